"""What public calls take: the types of arguments that several of them share, and keywords that a call does not have.

Editors and type checkers see the calls as they are written: a decorated function has its own signature. A row of a user's
function is `Any`: its columns are symbols when the function is traced, and Python's own values when it is not.
tests/query/typed_program.py is checked by mypy as a user's program would be.
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from plait.errors import QueryError

#: A span of time: text such as "1h 30min", a timedelta, or whole microseconds.
Duration = str | int | dt.timedelta
#: A condition on a pair of rows, the left one first: SQL text, or a function of them.
PairCondition = str | Callable[[Any, Any], object]
#: A condition or an expression of one row: SQL text, or a function of it.
RowFunction = str | Callable[[Any], object]
How = Literal["inner", "left", "right", "full", "semi", "anti"]
Direction = Literal["backward", "forward", "nearest"]
Order = Literal["strict", "trigger", "none"]


class ArrowStream(Protocol):
    """Whatever gives its rows as Arrow does: tables of Arrow, DataFrames of pandas and Polars, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows, as a capsule of Arrow's C interface."""


#: Rows of a stream: Arrow's, a dict of columns, a list of batches or of sources' rows, or the path of files.
Rows = ArrowStream | Mapping[Any, Any] | Sequence[Any] | os.PathLike[str]

P = ParamSpec("P")
R = TypeVar("R")


def by_name(function: Callable[P, R]) -> Callable[P, R]:
    """The same function; a keyword that it does not have is a `QueryError` that names its neighbour."""
    found = inspect.signature(function).parameters.values()
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found)
    names = [
        each.name
        for each in found
        if each.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]

    @functools.wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        for name in named if not open_ended else ():
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                raise QueryError(
                    f"plait.{function.__name__} has no argument {name!r}",
                    why=f"there are {', '.join(names)}",
                    do=f"Did you mean {near[0]}=?" if near else "",
                )
        return function(*arguments, **named)

    return called
