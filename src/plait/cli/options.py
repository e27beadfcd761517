"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def file(command: Callable[..., Any]) -> Callable[..., Any]:
    """FILE, and where its streams are read from: `file` and `inputs`.

    It decorates a command's function, which then takes `file` (text) and `inputs` (texts NAME=PATH, see `pairs`).
    """
    command = click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME=PATH",
        help="Read stream NAME from this file or folder; may be repeated.",
    )(command)
    return click.argument("file", metavar="FILE")(command)


quiet = click.option("--quiet", "-q", is_flag=True, help="No progress, no summary; errors only.")


def pairs(inputs: tuple[str, ...]) -> dict[str, str]:
    """What `--input` was given, by stream.

    Of two for one stream the last one counts. A path may have `=` in it, a stream's name may not.
    """
    for given in inputs:
        if "=" not in given:
            raise click.BadParameter(f"{given!r} is not NAME=PATH", param_hint="--input")
    return dict(given.split("=", 1) for given in inputs)
