"""Does an opaque condition compile? Asked when the query is built, so that a refusal names the user's line."""

from __future__ import annotations

import dis
import linecache
from types import CodeType, FunctionType
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.predicates.leaves import Shape, shape
from plait.predicates.opaque import WORKS, codes_of, function_of, function_text, place, widened
from plait.query.predicate import Predicate


def check_compiles(predicate: Predicate, left: pa.Schema, right: pa.Schema) -> None:
    """Refuse an opaque function that Numba can't compile, naming the line to blame and what would work.

    The predicate must be bound to the schemas. Trees, traced or parsed, always compile.
    """
    if predicate.expr is None:
        _check_function(shape(predicate, left, right))


def _check_columns(shape: Shape) -> None:
    """Bytes have no compiled form: say what would work instead."""
    for side in (0, 1):
        for leaf in shape.leaves[side]:
            if leaf.kind in ("bytes", "null"):
                name = leaf.expr.name  # type: ignore[union-attr]  # an opaque function's leaves are columns
                code = function_of(shape).__code__
                raise QueryError(
                    f"The condition reads {shape.predicate.names[side]}.{name}, a column of {leaf.kind}, in a function "
                    f"that does not trace ({place(code, _line_of(code, name))}): {shape.predicate.why_opaque}",
                    why="compiled functions take numbers, booleans, and text that is compared by == and !=",
                    do="Write the condition as an expression (`&`, `|`, `~` instead of `and`, `or`, `not`, `if`) or as "
                    "SQL text",
                )


def _line_of(code: CodeType, name: str) -> int | None:
    for inner in codes_of(code):
        for step in dis.get_instructions(inner):
            if step.argval == name and step.positions and step.positions.lineno:
                return step.positions.lineno
    return None


def _check_function(shape: Shape) -> None:
    """Refuse a function Numba can't compile, with the line that is to blame."""
    from numba import types
    from numba.core.errors import NumbaError

    _check_columns(shape)
    text = function_text(shape, plain=False)
    names: dict[str, Any] = {}
    head = (
        "from collections import namedtuple\nimport numpy as np\nfrom numba import njit\ncompiled = njit(nogil=True)\n"
    )
    exec(compile(head + text, "<plait condition>", "exec"), names)
    rows = tuple(
        types.BaseTuple.from_types(  # type: ignore[no-untyped-call]  # Numba's own
            [_numba_type(leaf.kind) for leaf in shape.leaves[side]], names[row]
        )
        for side, row in enumerate(("LeftRow", "RightRow"))
    )
    function = function_of(shape)
    try:
        names["holds"].compile(rows)
    except NumbaError as error:
        raise QueryError(
            f"The condition {function.__name__!r} can't be compiled: {_blame(error, function)}",
            why=f"it does not trace either: {shape.predicate.why_opaque}",
            do=WORKS,
        ) from error


def _numba_type(kind: str) -> Any:
    from numba import types

    if kind == "text":
        from plait.predicates.rows import text

        return text
    return types.boolean if kind == "bool" else getattr(types, widened(kind))


def _blame(error: Exception, function: FunctionType) -> str:
    """The line of the user's file in an error of Numba, and the first sentence that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    filename = function.__code__.co_filename
    place = ""
    for line in lines:
        if line.startswith(("File ", "During: ")) and "line" in line and filename.rsplit("/", 1)[-1] in line:
            number = line.rsplit("line", 1)[1].strip(" :().")
            if number.isdigit():
                place = f"{filename}, line {number}: "
                code = _source_line(filename, int(number))
                if code:
                    place += f"`{code}`: "
    if not place:
        loc = getattr(error, "loc", None)
        place = f"{filename}, line {getattr(loc, 'line', function.__code__.co_firstlineno)}: "
    told = [
        line
        for line in lines
        if not line.startswith(("File ", "During", "Failed in", "<source", "def ", "^", "-", ">"))
    ]
    first = told[0] if told else lines[0]
    call = next((line[3:].strip() for line in lines if line.startswith(">>>")), "")
    return place + (f"{first} {call}" if first.endswith(":") else first)


def _source_line(filename: str, number: int) -> str:
    return linecache.getline(filename, number).strip()
