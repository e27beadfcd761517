"""The type of every node of a predicate, and its columns resolved against two schemas.

Types are named by text: ``bool``, ``int8`` .. ``uint64``, ``float32``, ``float64``, ``text``, ``bytes``, ``null``, and
for literals, which take the width of what they meet (NumPy 2), ``weakint`` and ``weakfloat``. An integer type is
*nominal*: integer arithmetic is exact, the name only decides what happens when the value meets a float.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from plait.errors import QueryError
from plait.query.condition.expression import (
    COMPARISON,
    LOGIC,
    TIME_PARTS,
    Binary,
    Case,
    Cast,
    Column,
    Concat,
    Expr,
    Literal,
    Text,
    Unary,
    rebuilt,
    text,
)
from plait.query.condition.textual import RESULTS

Sides = tuple[pa.Schema, pa.Schema]
_WEAK: Final = {"weakint": 1, "weakfloat": 1.0}


class Names(NamedTuple):
    """What messages call the rows of the left and of the right side, and what they are about."""

    left: str = "left"
    right: str = "right"
    about: str = "The condition"


def column_type(kind: pa.DataType) -> str | None:
    """How a predicate sees an Arrow column; None if it can't. Moments, days and spans count microseconds."""
    if pa.types.is_dictionary(kind):
        return column_type(kind.value_type)
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return str(np.dtype(kind.to_pandas_dtype()).name)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
        return "int64"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return "bytes"
    if pa.types.is_null(kind):
        return "null"
    return None


def is_int(kind: str) -> bool:
    """Whether a type's name is that of an integer, `weakint` among them."""
    return "int" in kind


def is_float(kind: str) -> bool:
    """Whether a type's name is that of a float, `weakfloat` among them."""
    return "float" in kind


def is_number(kind: str) -> bool:
    """Whether it is either. A truth value is none."""
    return is_int(kind) or is_float(kind)


def promote(a: str, b: str) -> str:
    """The common type of two numbers: integers stay integers, widths of floats follow NumPy 2, literals are weak.

    >>> promote("int32", "int64"), promote("float32", "weakfloat"), promote("int64", "float32"), promote("int64", "uint64")
    ('int64', 'float32', 'float64', 'int64')
    """
    if "null" in (a, b):
        return b if a == "null" else a
    weak = [k for k in (a, b) if k.startswith("weak")]
    if len(weak) == 2:
        return "weakfloat" if "weakfloat" in weak else "weakint"
    if weak:
        strong = b if a.startswith("weak") else a
        return "float64" if weak[0] == "weakfloat" and is_int(strong) else strong
    if is_int(a) and is_int(b):
        joint = np.result_type(a, b).name
        return "int64" if is_float(joint) else joint  # int64 with uint64: exact, so no float is needed
    return np.result_type(a, b).name


def resolve(expr: Expr, sides: Sides, names: Names, *, insensitive: bool = False) -> Expr:
    """The expression with every column tied to a side and spelled as its schema spells it.

    Args:
        expr: The tree as it was read.
        sides: The schemas of the left and the right input.
        names: What the two are called in messages.
        insensitive: SQL's names know no case: where no column has the very name, one that differs only in case is taken.

    Raises:
        QueryError: A column is not there, or an unqualified name is in both inputs.
    """
    if isinstance(expr, Column):
        return _resolve_column(expr.side, expr.name, sides, names, insensitive)
    return rebuilt(expr, lambda below: resolve(below, sides, names, insensitive=insensitive))


def _resolve_column(side: int | None, name: str, sides: Sides, names: Names, insensitive: bool) -> Column:
    """One column: the very name first, then any case where that is allowed; unqualified names are looked for on both sides."""
    places = [side] if side is not None else [0, 1]
    found = [(s, name) for s in places if name in sides[s].names]
    if not found and insensitive:
        found = [(s, n) for s in places for n in sides[s].names if n.lower() == name.lower()]
    if len(found) == 1:
        return Column(*found[0])
    if len(found) > 1:
        raise QueryError(
            f"{names.about} reads column {name!r}, which could be any of {', '.join(f'{names[s]}.{n}' for s, n in found)}",
            do="Write the stream's name in front of it",
        )
    have = ", ".join(f"{names[s]}.{column}" for s in places for column in sides[s].names)
    raise QueryError(f"{names.about} reads column {name!r}, which is not there", why=f"there are {have}")


def infer(expr: Expr, sides: Sides, names: Names = Names()) -> str:  # noqa: B008 - it is frozen
    """The type of a resolved expression; raises where types do not go together."""
    match expr:
        case Column(side, name):
            assert side is not None
            return _infer_column(side, name, sides, names)
        case Literal(value):
            return _literal_type(value)
        case Cast(arg, to):
            inner = infer(arg, sides, names)
            if not (is_number(inner) or inner in ("bool", "null")):
                raise _mismatch(expr, names, f"a cast of {_word(inner)} to {to}")
            return to
        case Text(op, arg, _):
            inner = infer(arg, sides, names)
            if inner not in ("text", "null"):
                raise _mismatch(expr, names, f"`{op}` of {_word(inner)}")
            return RESULTS[op]
        case Concat(parts):
            for part in parts:
                inner = infer(part, sides, names)
                if inner not in ("text", "null"):
                    raise _mismatch(expr, names, f"`concat` of {_word(inner)}")
            return "text"
        case Case():
            return _infer_case(expr, sides, names)
        case Unary(op, arg) if op in TIME_PARTS:
            return _infer_part(expr, sides, names)
        case Unary(op, arg):
            return _infer_unary(expr, op, infer(arg, sides, names), names)
        case Binary(op, left, right):
            return _infer_binary(expr, op, infer(left, sides, names), infer(right, sides, names), names)


def _infer_column(side: int, name: str, sides: Sides, names: Names) -> str:
    """The type of a column, as conditions see it."""
    kind = sides[side].field(name).type
    seen = column_type(kind)
    if seen is None:
        raise QueryError(
            f"{names.about} reads {names[side]}.{name}, a column of type {kind}",
            why="conditions read numbers, booleans, text, bytes, timestamps, dates and durations",
            do="Cast it before it enters the query (it may still be carried as payload)",
        )
    return seen


def joint(kinds: Iterable[str]) -> str | None:
    """The one type of a choice between values of these: numbers are promoted, others have to be alike. None: there is none."""
    found = {kind for kind in kinds if kind != "null"}
    if not found:
        return "null"
    if len(found) == 1:
        return found.pop()
    if not all(is_number(kind) for kind in found):
        return None
    if found == {"weakint", "weakfloat"}:
        return "weakfloat"
    # All at once: two at a time, the type would depend on the order of the branches.
    name = np.result_type(*(_WEAK[kind] if kind in _WEAK else np.dtype(kind) for kind in sorted(found))).name
    return name if any(is_float(kind) for kind in found) or not is_float(name) else "int64"


def _infer_case(expr: Case, sides: Sides, names: Names) -> str:
    """The type of a choice. Its conditions are truth values, its branches of one kind; NULL goes with any."""
    for condition, _ in expr.branches:
        kind = infer(condition, sides, names)
        if kind not in ("bool", "null"):
            raise _mismatch(expr, names, f"a CASE whose condition is {_word(kind)}")
    kinds = [infer(value, sides, names) for value in expr.values]
    found = joint(kinds)
    if found is None:
        raise _mismatch(expr, names, f"a CASE of {' and '.join(_word(kind) for kind in dict.fromkeys(kinds))}")
    return found


def _infer_part(expr: Unary, sides: Sides, names: Names) -> str:
    """The type of an hour, a year ...: only of a column that is known to be a moment or a day."""
    if isinstance(expr.arg, Column):
        assert expr.arg.side is not None
        kind = sides[expr.arg.side].field(expr.arg.name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_null(kind):
            return "int64"
    what = f"a column of type {kind}" if isinstance(expr.arg, Column) else "something that is no column"
    raise QueryError(
        f"{names.about} holds `{expr.op}` of {what}: {text(expr, names)}",
        why="nothing but a column of timestamps or dates tells which moment a number means",
        do="Declare the column as a timestamp, or compute with it: of seconds the hour in UTC is `ts // 3600 % 24`",
    )


def _literal_type(value: object) -> str:
    """The type of a constant. Numbers are weak: they take the width of what they meet."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            return "weakint"
        case float():
            return "weakfloat"
        case str():
            return "text"
        case _:
            return "bytes"


def _infer_unary(expr: Expr, op: str, kind: str, names: Names) -> str:
    """The type of a sign, an absolute value, a negation or a test for NULL."""
    if op == "is_null":
        return "bool"
    if op == "not":
        if kind not in ("bool", "null"):
            raise _mismatch(expr, names, f"`not` of {_word(kind)}")
        return "bool"
    if not (is_number(kind) or kind == "null"):
        raise _mismatch(expr, names, f"{'the negative' if op == 'neg' else 'the absolute value'} of {_word(kind)}")
    return kind


def _infer_binary(expr: Expr, op: str, a: str, b: str, names: Names) -> str:
    """The type of logic, a comparison or arithmetic on two types. A division of integers is a float."""
    both = {a, b} - {"null"}
    if op in LOGIC:
        if both - {"bool"}:
            raise _mismatch(expr, names, f"`{op}` of {_word(a)} and {_word(b)}")
        return "bool"
    if op in COMPARISON:
        numbers = all(is_number(k) for k in both)
        same = len(both) == 1 and op in ("eq", "ne")
        if not (numbers or same):
            raise _mismatch(expr, names, f"a comparison of {_word(a)} and {_word(b)}")
        return "bool"
    if not all(is_number(k) for k in both):
        raise _mismatch(expr, names, f"arithmetic on {_word(a)} and {_word(b)}")
    joint = promote(a, b)
    if op in ("div", "sqldiv") and is_int(joint):
        return "weakfloat" if joint == "weakint" else "float64"
    return joint


def _word(kind: str) -> str:
    """A type for a message."""
    return {"weakint": "an integer", "weakfloat": "a float", "null": "NULL"}.get(kind, kind)


def _mismatch(expr: Expr, names: Names, what: str) -> QueryError:
    """The error for types that don't go together, with the part of the condition that has them."""
    return QueryError(
        f"{names.about} holds {what}: {text(expr, names)}",
        why="numbers go with numbers; text, bytes and booleans compare only by equality with their own kind, and texts are put "
        "together by concat; `and`, `or`, `not` and the conditions of CASE take truth values",
        do="Cast one side, or write it as a Python function with `if`",
    )


def check_condition(expr: Expr, sides: Sides, names: Names = Names()) -> None:  # noqa: B008 - it is frozen
    """A condition must be a boolean."""
    kind = infer(expr, sides, names)
    if kind not in ("bool", "null"):
        raise QueryError(
            f"{names.about}, {text(expr, names)}, is {_word(kind)}, not a truth value",
            do="Compare it with something",
        )
