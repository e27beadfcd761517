"""Random conditions: trees that can be written as SQL or as a Python function, and evaluated by the rules of values.

A tree is a tuple, its first item the operation, by the names of `plait.query.condition.expression`. A value is a pair (kind, v):
kind is a NumPy type's name, or `weakint` and `weakfloat` for literals; v is None for NULL. Integers are Python's own
and exact: their kind only says what they become when they meet a float. Promotion is asked of NumPy itself.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests import definitions as define
from tests.strategies import Case, Given, table

import plait
from plait.query.condition import expression as written

Tree = tuple[Any, ...]
Value = tuple[str, Any]
Rows = list[tuple[Any, ...]]

#: Both sides have these columns.
COLUMNS = {"i8": "int8", "i32": "int32", "i64": "int64", "u64": "uint64", "f4": "float32", "f8": "float64"}
SCHEMA = pa.schema([("ts", pa.int64()), *((n, getattr(pa, kind)()) for n, kind in COLUMNS.items()), ("b", pa.bool_())])

_WEAK = {"weakint": 1, "weakfloat": 1.0}


# --- kinds --------------------------------------------------------------------------------------------------


def is_float(kind: str) -> bool:
    return "float" in kind


def meet(a: str, b: str) -> str:
    """The kind in which two numbers meet: NumPy 2's promotion, but integers stay integers among themselves."""
    if "null" in (a, b):
        return b if a == "null" else a
    if a in _WEAK and b in _WEAK:
        return "weakfloat" if "weakfloat" in (a, b) else "weakint"
    promoted = np.result_type(*(_WEAK[k] if k in _WEAK else np.dtype(k) for k in (a, b))).name
    return "int64" if is_float(promoted) and not (is_float(a) or is_float(b)) else promoted


def as_float(v: Any, kind: str) -> Any:
    """A number as a float of that kind, rounded once: an int64 is not first made a float64."""
    width = np.float32 if kind == "float32" else np.float64
    if isinstance(v, int) and -(2**63) <= v < 2**63:
        return np.array([v], np.int64).astype(width)[0]
    try:
        with np.errstate(over="ignore"):
            return width(v)
    except OverflowError:
        return width(math.inf if v > 0 else -math.inf)


# --- evaluation ---------------------------------------------------------------------------------------------

_ON_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "sqldiv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod, "sqlmod": np.fmod,
}  # fmt: skip
_ON_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "mod": operator.mod, "sqlmod": lambda a, b: a - b * (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
}  # fmt: skip
SIGNS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
         "ge": operator.ge}  # fmt: skip


def evaluate(tree: Tree, rows: tuple[dict[str, Any], dict[str, Any]]) -> Value:
    op, *args = tree
    if op == "col":
        side, name = args
        v = rows[side][name]
        kind = "bool" if name == "b" else COLUMNS.get(name, "int64")
        return kind, as_float(v, kind) if is_float(kind) and v is not None else v
    if op == "lit":
        return _literal(args[0])
    if op == "cast":
        return _cast(evaluate(args[0], rows), args[1])
    values = [evaluate(arg, rows) for arg in args]
    with np.errstate(all="ignore"):
        return _apply(op, values)


def _literal(v: Any) -> Value:
    if isinstance(v, bool) or v is None:
        return "bool" if v is not None else "null", v
    return ("weakint", v) if isinstance(v, int) else ("weakfloat", np.float64(v))


def _apply(op: str, values: list[Value]) -> Value:
    if op in ("and", "or"):
        return "bool", _logic(op, values[0][1], values[1][1])
    if op in SIGNS:
        return "bool", _compare(op, *values)
    if op in ("least", "greatest"):
        return _pick(op, *values)
    if len(values) == 2:
        return _arithmetic(op, *values)
    ((kind, v),) = values
    if op == "is_null":
        return "bool", v is None
    if op == "not":
        return "bool", None if v is None else not v
    return kind, None if v is None else abs(v) if op == "abs" else -v


def _logic(op: str, a: bool | None, b: bool | None) -> bool | None:
    decides = op == "or"
    if a is decides or b is decides:
        return decides
    return None if a is None or b is None else not decides


def _compare(op: str, a: Value, b: Value) -> bool | None:
    if a[1] is None or b[1] is None:
        return None
    if a[0] == "bool":
        return bool(SIGNS[op](a[1], b[1]))
    kind = meet(a[0], b[0])
    x, y = (as_float(v, kind) if is_float(kind) else v for v in (a[1], b[1]))
    return None if x != x or y != y else bool(SIGNS[op](x, y))


def _arithmetic(op: str, a: Value, b: Value) -> Value:
    kind = meet(a[0], b[0])
    if op in ("div", "sqldiv") and not is_float(kind):
        kind = "weakfloat" if kind == "weakint" else "float64"
    if a[1] is None or b[1] is None:
        return kind, None
    no_divisor = b[1] == 0 and (op in ("sqldiv", "sqlmod") or (op in ("floordiv", "mod") and not is_float(kind)))
    if no_divisor:
        return kind, None
    if is_float(kind):
        return kind, _ON_FLOATS[op](as_float(a[1], kind), as_float(b[1], kind))
    return kind, _ON_INTEGERS[op](a[1], b[1])


def _pick(op: str, a: Value, b: Value) -> Value:
    """NULL gives way; NaN is above all numbers."""
    kind = meet(a[0], b[0])
    there = [as_float(v, kind) if is_float(kind) else v for _, v in (a, b) if v is not None]
    ordered = sorted(there, key=lambda v: (bool(v != v), 0 if v != v else v))
    return kind, None if not ordered else ordered[0] if op == "least" else ordered[-1]


def _cast(value: Value, to: str) -> Value:
    """What does not fit is NULL; a float loses its fraction."""
    _, v = value
    if v is None:
        return to, None
    if is_float(to):
        return to, as_float(v, to)
    if to == "bool":
        return to, None if v != v else bool(v != 0)
    if isinstance(v, np.floating) and not np.isfinite(v):
        return to, None
    bounds = np.iinfo(to)
    return to, int(v) if int(bounds.min) <= int(v) <= int(bounds.max) else None


# --- writing ------------------------------------------------------------------------------------------------

_SQL = {"add": "+", "sub": "-", "mul": "*", "sqldiv": "/", "sqlmod": "%", "eq": "=", "ne": "<>", "lt": "<", "le": "<=",
        "gt": ">", "ge": ">=", "and": "and", "or": "or"}  # fmt: skip
_CASTS = {"int8": "tinyint", "int32": "int", "int64": "bigint", "float32": "float", "float64": "double"}
_PYTHON: dict[str, Callable[..., Any]] = {
    **SIGNS, "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "and": operator.and_, "or": operator.or_,
    "not": operator.invert, "neg": operator.neg, "abs": abs, "is_null": lambda v: v.is_null(),
    "least": plait.minimum, "greatest": plait.maximum,
}  # fmt: skip


def to_sql(tree: Tree) -> str:
    op, *args = tree
    if op == "col":
        return f"{'lr'[args[0]]}.{args[1]}"
    if op == "lit":
        return f"({args[0]!r})"
    if op == "cast":
        return f"cast({to_sql(args[0])} as {_CASTS[args[1]]})"
    parts = [to_sql(arg) for arg in args]
    if op in _SQL:
        return f"({parts[0]} {_SQL[op]} {parts[1]})"
    unary = {"not": "(not {})", "neg": "(- {})", "is_null": "({} is null)"}
    return unary[op].format(*parts) if op in unary else f"{op}({', '.join(parts)})"


def to_python(tree: Tree, rows: tuple[Any, Any]) -> Any:
    """The tree as operations on rows: what a function that is traced does."""
    op, *args = tree
    if op == "col":
        return getattr(rows[args[0]], args[1])
    if op == "lit":
        return args[0]
    if op == "cast":
        return to_python(args[0], rows).cast(args[1])
    return _PYTHON[op](*(to_python(arg, rows) for arg in args))


def read_back(expr: written.Expr) -> Tree:
    """The tree that `plait.query` made of what was written."""
    match expr:
        case written.Column(side, name):
            return ("col", side, name)
        case written.Literal(value):
            return ("lit", value)
        case written.Cast(arg, to):
            return ("cast", read_back(arg), to)
        case written.Unary(op, arg):
            return (op, read_back(arg))
        case written.Binary(op, left, right):
            return (op, read_back(left), read_back(right))


# --- strategies ---------------------------------------------------------------------------------------------

_LITERALS = (0, 1, -1, 3, 127, -128, 2**31, 2**53 + 1, 2**63, 0.5, 0.1, -2.0, 1e308, 1e-40)
_ARITHMETIC = {
    "sql": ("add", "sub", "mul", "least", "greatest", "sqldiv", "sqlmod"),
    "python": ("add", "sub", "mul", "least", "greatest", "div", "floordiv", "mod"),
}


def _number(chance: random.Random, form: str, size: int) -> Tree:
    """A tree of numbers. A literal always meets a column: two literals are Python's or the parser's own affair."""
    if size <= 1:
        return ("col", chance.randrange(2), chance.choice(list(COLUMNS)))
    kind = chance.choice(("binary", "binary", "literal", "unary", "cast"))
    inner = _number(chance, form, size - 1)
    if kind == "unary":
        return (chance.choice(("neg", "abs")), inner)
    if kind == "cast":
        return ("cast", inner, chance.choice(list(_CASTS)))
    other = ("lit", chance.choice(_LITERALS)) if kind == "literal" else _number(chance, form, size // 2)
    pair = (inner, other) if chance.random() < 0.5 else (other, inner)
    return (chance.choice(_ARITHMETIC[form]), *pair)


def _truth(chance: random.Random, form: str, size: int) -> Tree:
    kind = chance.choice(("compare", "compare", "compare", "literal", "null", "flag", "logic", "not"))
    if kind == "flag":
        return ("col", chance.randrange(2), "b")
    if kind == "logic" and size > 2:
        return (chance.choice(("and", "or")), _truth(chance, form, size - 1), _truth(chance, form, size // 2))
    if kind == "not" and size > 1:
        return ("not", _truth(chance, form, size - 1))
    if kind == "null":
        return ("is_null", _number(chance, form, size))
    other = ("lit", chance.choice(_LITERALS)) if kind == "literal" else _number(chance, form, size - 1)
    return (chance.choice(list(SIGNS)), _number(chance, form, size), other)


def truths(form: str) -> st.SearchStrategy[Tree]:
    """Conditions from a seed: what hypothesis makes smaller is their size."""
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(lambda seed, size: _truth(random.Random(seed), form, size), seeds, st.integers(1, 4))


def _single(v: float) -> float:
    return float(np.float32(v))


_VALUES: dict[str, tuple[Any, ...]] = {
    "i8": (0, 1, -1, 127, -128, 3, None),
    "i32": (0, 2, -7, 2**31 - 1, -(2**31), 2**24 + 1, None),
    "i64": (0, 5, -5, 2**63 - 1, -(2**63), 2**53 + 1, 2**60 + 2**36 + 1, None),
    "u64": (0, 1, 2**64 - 1, 2**63, 2**53 + 1, None),
    "f4": (0.0, 0.5, -2.0, _single(0.1), _single(3e38), math.nan, math.inf, None, -0.0, 2.0**24),
    "f8": (0.0, 0.5, -2.0, 0.1, 1e308, math.nan, -math.inf, None, 2.0**53, 2.0**63, -0.0, 1e-310),
    "b": (True, False, None),
}


def fixed_rows(seed: int, length: int) -> Rows:
    """Rows at one moment, their values from a seed."""
    chance = random.Random(seed)
    return [(0, *(chance.choice(_VALUES[name]) for name in SCHEMA.names[1:])) for _ in range(length)]


def rows(count: int) -> st.SearchStrategy[Rows]:
    return st.builds(fixed_rows, st.integers(0, 2**32 - 1), st.integers(1, count))


# --- cases --------------------------------------------------------------------------------------------------


def side(name: str, rows: Rows) -> Given:
    relation, late = define.stream(SCHEMA, {0: rows})
    stream = plait.stream(name, unit="us")
    return Given(stream, SCHEMA, {0: rows}, (0,) * len(rows), relation, late, table(SCHEMA, rows))


def case_under(on: Any, truth: define.Truth, left: Rows, right: Rows) -> Case:
    """All pairs of rows under a condition."""
    l, r = side("a", left), side("b", right)
    expected = define.join(l.relation, r.relation, define.within(0, 0), truth, names=("a", "b"))
    return Case(plait.join(l.stream, r.stream, on=on, within=0), (l, r), expected)


def case_of(form: str, tree: Tree, left: Rows, right: Rows) -> Case:
    """A tree as a condition, written as SQL or as a Python function."""
    on: Any = to_sql(tree) if form == "sql" else lambda l, r: to_python(tree, (l, r))
    return case_under(on, lambda l, r: evaluate(tree, (l, r))[1], left, right)


def fixed_cases(form: str, count: int) -> list[Case]:
    """The same in every run; drawn evenly, as hypothesis does not."""
    return [
        case_of(form, _truth(random.Random(n), form, 1 + n % 4), fixed_rows(n, 6), fixed_rows(-n, 6))
        for n in range(count)
    ]
