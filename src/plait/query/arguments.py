"""Keywords that a public call does not have: told with the nearest one that it has.

Editors and type checkers see the calls as they are written: a decorated function has its own signature.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from plait.errors import QueryError

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
