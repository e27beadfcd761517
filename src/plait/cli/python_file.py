"""Python files: `query`, and optionally `data` (a dict of stream names to tables, paths or feeds) and `output`.

`data` may also be a function that gives the dict. Paths are relative to the file.

The file is run like any Python program, with all its effects. `output` is a path as `--output` takes it. Held by
tests/cli/test_files.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from plait import paths
from plait.cli.job import Job
from plait.connectors import folder, memory
from plait.connectors.contract import Feed
from plait.errors import PlaitError, QueryError
from plait.query.base import Query


def load(file: Path) -> Job:
    """Run the file, and take from it what describes work.

    Raises:
        QueryError: It raises, defines no query, or `data` names a stream that the query does not read.

    `data` may lack streams: `--input` or an explanation does without them. A function for `data` is called here, once.
    """
    module = _execute(file)
    query = getattr(module, "query", None)
    if not isinstance(query, Query):
        found = "nothing" if query is None else f"a {type(query).__name__}"
        raise QueryError(
            f"{file}: `query` is {found}", do="Assign the result of plait.join, asof, aggregate or operator to `query`"
        )
    data = getattr(module, "data", {})
    data = _called(file, data) if callable(data) else data
    if not isinstance(data, dict):
        raise QueryError(
            f"{file}: `data` is a {type(data).__name__}", do="Make it a dict of stream names to tables or paths"
        )
    streams = query.streams()
    unknown = [name for name in data if name not in streams]
    if unknown:
        raise QueryError(f"{file}: `data` names {unknown[0]!r}", why=f"the query reads {', '.join(streams)}")
    return Job(
        title=file.name,
        query=query,
        feeds={name: _feed(streams[name], given, file.parent) for name, given in data.items()},
        output=_output(file, getattr(module, "output", None)),
    )


def _called(file: Path, data: Any) -> Any:
    """What a function for `data` gives."""
    try:
        return data()
    except PlaitError:
        raise
    except Exception as error:
        raise QueryError(f"{file}: `data()` raised {type(error).__name__}: {error}") from error


def _feed(stream: Any, given: Any, here: Path) -> Feed:
    """The rows of a stream; a path is relative to the file's folder.

    A feed is taken as it is. Anything else that is no path is taken for rows in memory.
    """
    if isinstance(given, Feed):
        return given
    if isinstance(given, (str, os.PathLike)):
        return folder.feed(stream, paths.absolute(given, under=here))
    return memory.feed(stream, given)


def _output(file: Path, given: Any) -> str | None:
    """A path as `--output` takes it."""
    if given is None or isinstance(given, (str, os.PathLike)):
        return None if given is None else os.fsdecode(given)
    raise QueryError(f"{file}: `output` is {given!r}", do="Make it a path as text, or '-'")


def _execute(file: Path) -> Any:
    """Run the file under a name of its own, so that its functions can be found again by pickle and tracebacks.

    The module stays in `sys.modules`. An error in the file is told with the line of the file, not with plait's stack.
    """
    name = f"plait_file_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PlaitError:
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line = (
            f", line {frames[-1].lineno}"
            if frames
            else f", line {error.lineno}"
            if isinstance(error, SyntaxError)
            else ""
        )
        raise QueryError(f"{file}{line}: {type(error).__name__}: {error}") from error
    return module
