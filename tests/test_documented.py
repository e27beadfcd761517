"""Everything public says what it is, each parameter, what it gives back, what it raises, and shows an example.

The form is the same everywhere: a sentence, then `Args:` (of a class `Attributes:`), `Returns:` (or `Yields:`), `Raises:` and
`Example:`. The examples are run by `test_examples.py`.
"""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import click
import pytest
from tests.public import Public, constants, everything

from plait import errors
from plait.cli.main import cli
from plait.core import metrics
from plait.query.run_options import SparkOptions, ThreadsOptions
from plait.spark.run import dataframe
from plait.threads.options import Options

SOURCE = Path(errors.__file__).parent
PUBLIC = everything()
HEADS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")

#: Functions with parameters that refuse nothing: whatever they are given, they do not raise.
REFUSES_NOTHING = {"plait.maximum", "plait.minimum", "plait.connectors.synthetic.tables", "plait.spark.told"}


def sections(text: str) -> dict[str, str]:
    """The parts of a docstring by their heads; what stands before the first is under ""."""
    parts = re.split(rf"^({'|'.join(HEADS)}):\n", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(section: str) -> dict[str, str]:
    """What a section says of each name: `name: text`, the text going on in lines that are indented further."""
    found = re.split(r"^    (\*{0,2}\w+): ", section, flags=re.MULTILINE)
    return dict(zip((name.lstrip("*") for name in found[1::2]), found[2::2], strict=True))


def wanting(public: Public) -> list[str]:
    """What its docstring lacks."""
    text, thing = public.text, public.object
    if not text or (public.is_class and dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}(")):
        return ["a docstring"]
    found = sections(text)
    lacks = [] if re.match(r"[^\n]+[.:]($|\n)", text) else ["a first line that is a sentence"]
    if isinstance(thing, property):
        return lacks
    if "Example" not in found or ">>>" not in found["Example"]:
        lacks.append("an example")
    if public.is_class:
        told = {*entries(found.get("Attributes", "") + found.get("Args", "")), *_metrics(thing)}
        return lacks + [f"attribute {name}" for name in _attributes(thing) if name not in told]
    signature = inspect.signature(thing.__func__ if isinstance(thing, classmethod) else thing)
    taken = [name for name in signature.parameters if name not in ("self", "cls")]
    told = entries(found.get("Args", ""))
    lacks += [f"parameter {name}" for name in taken if name not in told]
    lacks += [f"no parameter is called {name}, and it tells of one" for name in told if name not in taken]
    if signature.return_annotation not in (None, "None") and not found.keys() & {"Returns", "Yields"}:
        lacks.append("what it returns")
    if taken and "Raises" not in found and public.name not in REFUSES_NOTHING:
        lacks.append("what it raises")
    return lacks


def _metrics(thing: Any) -> set[str]:
    """Fields that are metrics: each has its meaning in its entry, and a line in docs/metrics.md (tests/core/test_metrics.py)."""
    return (
        {name for name, entry in metrics.entries(thing).items() if entry.meaning}
        if dataclasses.is_dataclass(thing)
        else set()
    )


def _attributes(thing: Any) -> list[str]:
    if dataclasses.is_dataclass(thing):
        return [field.name for field in dataclasses.fields(thing) if not field.name.startswith("_")]
    return list(getattr(thing, "__annotations__", {})) if getattr(thing, "__total__", None) is not None else []


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.name)
def test_documented(public: Public) -> None:
    assert not wanting(public), f"{public.name} lacks {'; '.join(wanting(public))}"


@pytest.mark.parametrize("public", [p for p in PUBLIC if "Raises:" in p.text], ids=lambda public: public.name)
def test_errors_exist(public: Public) -> None:
    for name in entries(sections(public.text)["Raises"]):
        assert hasattr(errors, name) or hasattr(builtins, name), f"{public.name} raises {name}, which there is not"


def test_constants() -> None:
    """A name that is no function and no class has its words in the package's docstring, or beside it in a comment."""
    texts = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    silent = [
        f"{package}.{name}" for package, name in constants()
        if not re.search(rf"^#: [^\n]*\n(#[^\n]*\n)*{name}\b", texts, re.MULTILINE)
    ]  # fmt: skip
    assert not silent


# --- options ---


def test_defaults_of_threads() -> None:
    told = entries(sections(inspect.cleandoc(ThreadsOptions.__doc__ or ""))["Args"])
    for field in dataclasses.fields(Options):
        assert f"Default: {field.default!r}." in " ".join(told[field.name].split()), field.name


def test_defaults_of_spark() -> None:
    told = entries(sections(inspect.cleandoc(SparkOptions.__doc__ or ""))["Args"])
    for name, parameter in inspect.signature(dataframe).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert f"Default: {parameter.default!r}." in " ".join(told[name].split()), name


def test_options_stand_in_the_docs() -> None:
    for name, options in (("threads", ThreadsOptions), ("spark", SparkOptions)):
        text = (SOURCE.parent.parent / "docs" / f"{name}.md").read_text()
        missing = [option for option in options.__annotations__ if not re.search(rf"`{option}\b", text)]
        assert not missing, f"docs/{name}.md says nothing of {', '.join(missing)}"


COMMANDS = click.Context(cli)


@pytest.mark.parametrize("name", cli.list_commands(COMMANDS))
def test_command(name: str) -> None:
    command = cli.get_command(COMMANDS, name)
    assert command is not None
    text = inspect.getdoc(command.callback) or ""
    assert re.match(r"[^\n]+\.", text)
    assert re.search(r"^Example:\n    plait ", text, re.MULTILINE), f"plait {name} has no example"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"plait {name}: {parameter.opts[-1]} has no words"
        else:
            assert parameter.human_readable_name in text, (
                f"plait {name}: {parameter.human_readable_name} is not explained"
            )


# --- a test that can't fail is none ---


def _silent(x: int, y: int) -> int:
    """One sentence.

    Args:
        x: A number.
        z: Another.
    """
    return x + y


def test_what_is_missing_is_named() -> None:
    lacks = wanting(Public("silent", _silent))
    assert lacks == [
        "an example", "parameter y", "no parameter is called z, and it tells of one", "what it returns", "what it raises",
    ]  # fmt: skip
