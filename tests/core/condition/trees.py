"""Random conditions as trees, each with the Python function or the SQL text that means it, and rows that hurt.

Trees are well-typed by construction. Values are few and extreme: the ends of every integer type, halves and infinities,
NaN, both zeros, and NULL in every column, so that ties, overflows and unknowns are common rather than rare.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import plait
from plait.query.condition.expression import (
    CAST_TYPES,
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
)
from plait.query.condition.predicate import Predicate, predicate

SCHEMA = pa.schema(
    [
        ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()), ("u8", pa.uint8()),
        ("u32", pa.uint32()), ("u64", pa.uint64()), ("f32", pa.float32()), ("f64", pa.float64()), ("b", pa.bool_()),
        ("s", pa.string()), ("z", pa.binary()), ("t", pa.timestamp("ms", tz="UTC")), ("d", pa.date32()),
        ("c", pa.dictionary(pa.int32(), pa.string())), ("n", pa.null()),
    ]
)  # fmt: skip

NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u32", "u64", "f32", "f64", "t", "d", "n")


def _ints(low: int, high: int) -> list[int]:
    return [v for v in (0, 1, 2, 3, 7, -1, -2, low, low + 1, high, high - 1, 100, 2**31, 2**40) if low <= v <= high]


_FLOATS = [
    0.0,
    -0.0,
    0.5,
    1.0,
    1.5,
    -2.5,
    3.0,
    0.1,
    math.nan,
    math.inf,
    -math.inf,
    1e30,
    -1e30,
    2.0**24 + 2,
    2.0**53 + 2,
]
_POOLS: dict[str, list[Any]] = {
    "i8": _ints(-128, 127), "i16": _ints(-(2**15), 2**15 - 1), "i32": _ints(-(2**31), 2**31 - 1),
    "i64": _ints(-(2**63), 2**63 - 1), "u8": _ints(0, 255), "u32": _ints(0, 2**32 - 1), "u64": _ints(0, 2**64 - 1),
    "f32": [*(float(np.float32(v)) for v in _FLOATS), 3.4028234663852886e38, 1e-45],
    "f64": [*_FLOATS, 1.7976931348623157e308, 5e-324], "b": [True, False],
    "s": ["", "a", "b", "é", "a\x00"], "z": [b"", b"a", b"\x00"], "c": ["a", "b"],
    "t": [0, 1, 2, 1000, -1, 10**12], "d": [0, 1, -1, 20000],
}  # fmt: skip
#: Small values only: nothing overflows, matches are frequent, and kernels stay in machine words.
_TAME: dict[str, list[Any]] = {name: [0, 1, 2, 3, 5, 8] for name in NUMBERS} | {
    "f32": [0.0, 0.5, 1.0, 1.5, 2.25, math.nan], "f64": [0.0, 0.1, 0.5, 1.0, 3.0, math.nan], "b": [True, False],
    "s": ["a", "b"], "z": [b"a", b""], "c": ["a", "b"],
}  # fmt: skip


def rows(random: np.random.Generator, n: int, columns: tuple[str, ...], *, tame: bool, nulls: bool) -> pa.RecordBatch:
    """Rows of SCHEMA in which only the columns a condition reads vary."""
    pools = _TAME if tame else _POOLS
    arrays = []
    for field in SCHEMA:
        values: list[Any] = [None] * n
        if field.name in columns and field.name != "n":
            options = pools[field.name] + ([None] * (len(pools[field.name]) // 3) if nulls else [])
            values = [options[i] for i in random.integers(0, len(options), n)]
        storage = {"t": pa.int64(), "d": pa.int32(), "c": pa.string()}.get(field.name, field.type)
        array = pa.array(values, storage)
        arrays.append(array.dictionary_encode() if field.name == "c" else array.view(field.type))
    return pa.record_batch(arrays, schema=SCHEMA)


def batches(n: int, columns: tuple[str, ...], *, tame: bool, nulls: bool) -> st.SearchStrategy[pa.RecordBatch]:
    """Rows from a generator of their own: hypothesis favours lists of few, equal values, which hardly ever match some
    rows and not others."""
    seeds = st.integers(0, 2**32)
    return seeds.map(lambda seed: rows(np.random.default_rng(seed), n, columns, tame=tame, nulls=nulls))


# --- trees --------------------------------------------------------------------------------------------------


def _columns(names: tuple[str, ...]) -> st.SearchStrategy[Expr]:
    return st.builds(Column, st.sampled_from((0, 1)), st.sampled_from(names))


_INT_LITERALS = st.sampled_from((0, 1, 2, 3, 5, -1, -4, 10, 127, 2**31, 2**40, -(2**63), 2**63, 2**64))
_FLOAT_LITERALS = st.sampled_from((0.0, 0.5, 0.1, 1.0, -2.5, 10.0, 1e30, 1e39))
_PYTHON_ARITHMETIC = ("add", "sub", "sub", "mul", "div", "floordiv", "mod", "least", "greatest")
_SQL_ARITHMETIC = ("add", "sub", "sub", "mul", "sqldiv", "sqlmod", "least", "greatest")
_SQL_CASTS = ("bool", "int8", "int16", "int32", "int64", "float32", "float64")


def numbers(depth: int, *, sql: bool, casts: bool = True) -> st.SearchStrategy[Expr]:
    columns = _columns(NUMBERS)
    if depth == 0:
        return columns
    below = numbers(depth - 1, sql=sql)
    literals: st.SearchStrategy[Expr] = st.builds(Literal, st.one_of(_INT_LITERALS, _FLOAT_LITERALS))
    if not sql:
        # NumPy scalars keep a width of their own.
        widths = st.builds(Cast, st.builds(Literal, st.sampled_from((0, 1, 3))), st.sampled_from(("int16", "float32")))
        literals = st.one_of(literals, literals, widths)
    ops = st.sampled_from(_SQL_ARITHMETIC if sql else _PYTHON_ARITHMETIC)
    pairs = st.one_of(
        st.builds(Binary, ops, below, below),
        st.builds(Binary, ops, below, literals),
        st.builds(Binary, ops, literals, below),
    )
    to = st.sampled_from([c for c in (_SQL_CASTS if sql else CAST_TYPES) if c != "bool"])
    chosen = cases(conditions(0, sql=sql), below, st.one_of(below, literals, st.just(Literal(None))))
    lengths = st.builds(Text, st.just("length"), texts(1, sql=sql))
    parts = st.builds(Unary, st.sampled_from(TIME_PARTS), _columns(("t", "d")))
    return st.one_of(
        columns, pairs, pairs, st.builds(Unary, st.sampled_from(("neg", "abs")), below), chosen, chosen, lengths, parts,
        st.builds(Cast, below, to), st.builds(Cast, conditions(0, sql=sql), to),
    )  # fmt: skip


def cases(
    truths: st.SearchStrategy[Expr], first: st.SearchStrategy[Expr], values: st.SearchStrategy[Expr]
) -> st.SearchStrategy[Expr]:
    """Choices. One value at least is no constant, so that a function of it traces."""
    more = st.lists(st.tuples(truths, values), max_size=2)
    return st.builds(lambda c, v, rest, last: Case(((c, v), *rest), last), truths, first, more, values)


#: Functions of text with their constants.
TEXT_FUNCTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("lower", ()), ("upper", ()), ("trim", ("a",)), ("ltrim", (" ",)), ("rtrim", ("é",)), ("substring", (1, 1)),
    ("substring", (-1, None)), ("substring", (-2, 1)), ("split_part", ("a", 1)), ("split_part", ("b", -1)),
    ("replace", ("a", "b")),
    ("regexp_extract", ("(a|b)", 1)), ("regexp_extract", ("[^a]", 0)),
)  # fmt: skip


def texts(depth: int, *, sql: bool) -> st.SearchStrategy[Expr]:
    columns = _columns(("s", "c"))
    if depth == 0:
        return columns
    below = texts(depth - 1, sql=sql)
    given = st.one_of(below, st.sampled_from([Literal("a"), Literal(""), Literal(None)]))
    return st.one_of(
        columns,
        st.builds(lambda f, arg: Text(f[0], arg, f[1]), st.sampled_from(TEXT_FUNCTIONS), below),
        st.builds(lambda a, b: Concat((a, b)), below, given),
        cases(comparisons(0, sql=sql), below, given),
    )


_COMPARISONS = st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge"))


def comparisons(depth: int, *, sql: bool) -> st.SearchStrategy[Expr]:
    side = numbers(depth, sql=sql)
    literals = st.builds(Literal, st.one_of(_INT_LITERALS, _FLOAT_LITERALS))
    return st.one_of(
        st.builds(Binary, _COMPARISONS, side, side), st.builds(Binary, _COMPARISONS, side, literals), indexable(sql=sql)
    )  # fmt: skip


def indexable(*, sql: bool) -> st.SearchStrategy[Expr]:
    """Comparisons in the shapes that terms recognise: equalities, bands in all their spellings, inequalities."""
    left = st.builds(Column, st.just(0), st.sampled_from(NUMBERS))
    right = st.builds(Column, st.just(1), st.sampled_from(NUMBERS))
    widths = st.builds(Literal, st.sampled_from((0, 1, 2, 0.5, 10, -1, 1e30)))
    difference = st.one_of(
        st.builds(Binary, st.just("sub"), left, right), st.builds(Binary, st.just("sub"), right, left)
    )
    shifted = st.builds(Binary, st.sampled_from(("add", "sub")), right, widths)
    order = st.sampled_from(("lt", "le", "gt", "ge"))
    return st.one_of(
        st.builds(Binary, st.just("eq"), left, right),
        st.builds(Binary, st.sampled_from(("le", "lt")), st.builds(Unary, st.just("abs"), difference), widths),
        st.builds(Binary, order, difference, widths),
        st.builds(Binary, order, left, shifted),
        st.builds(_band, left, right, widths),
    )


def _band(left: Expr, right: Expr, width: Literal) -> Expr:
    low, high = Binary("sub", right, width), Binary("add", right, width)
    return Binary("and", Binary("ge", left, low), Binary("le", left, high))


def conditions(depth: int, *, sql: bool) -> st.SearchStrategy[Expr]:
    said = texts(min(depth, 2), sql=sql)
    text = st.builds(Binary, st.sampled_from(("eq", "ne")), said, st.one_of(said, st.just(Literal("a"))))
    raw = st.builds(Binary, st.sampled_from(("eq", "ne")), _columns(("z",)), _columns(("z",)))
    truths = _columns(("b",))
    simple = st.one_of(comparisons(0, sql=sql), text, raw, truths)
    if depth == 0:
        return simple
    below = conditions(depth - 1, sql=sql)
    return st.one_of(
        comparisons(min(depth, 2), sql=sql),
        st.builds(Binary, st.sampled_from(("and", "and", "or")), below, below),
        st.builds(Unary, st.just("not"), below),
        st.builds(Unary, st.just("is_null"), st.one_of(below, numbers(1, sql=sql), _columns(("s",)))),
        st.builds(Binary, st.sampled_from(("eq", "ne")), below, below),
        st.builds(Cast, st.one_of(numbers(1, sql=sql), below), st.just("bool")),
        cases(below, below, st.one_of(below, st.sampled_from([Literal(True), Literal(None)]))),
        st.builds(lambda arg: Text("contains", arg, ("a",)), texts(1, sql=sql)),
        simple,
    )


# --- what a tree is written as ------------------------------------------------------------------------------

_PYTHON = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "least": plait.minimum, "greatest": plait.maximum,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
}  # fmt: skip


def python_value(expr: Expr, l: Any, r: Any) -> Any:
    """The tree computed by Python's operators on whatever the rows hold."""
    match expr:
        case Column(side, name):
            return (l, r)[side or 0][name]
        case Literal(value):
            return value
        case Cast(Literal(value), to):
            return np.dtype(to).type(value)
        case Cast(arg, to):
            return python_value(arg, l, r).cast(to)
        case Unary("is_null", arg):
            return python_value(arg, l, r).is_null()
        case Unary(op, arg) if op in TIME_PARTS:
            return getattr(python_value(arg, l, r), op)()
        case Text(op, arg, constants):
            return getattr(python_value(arg, l, r), op)(*constants)
        case Concat(parts):
            return plait.concat(*(python_value(part, l, r) for part in parts))
        case Case(branches, otherwise):
            made = [(python_value(c, l, r), python_value(v, l, r)) for c, v in branches]
            found = plait.when(*made[0])
            for branch in made[1:]:
                found = found.when(*branch)
            return found.otherwise(python_value(otherwise, l, r))
        case Unary(op, arg):
            value = python_value(arg, l, r)
            return ~value if op == "not" else abs(value) if op == "abs" else -value
        case Binary(op, a, b):
            return _PYTHON[op](python_value(a, l, r), python_value(b, l, r))


_SQL = {
    "add": "+", "sub": "-", "mul": "*", "sqldiv": "/", "sqlmod": "%", "eq": "=", "ne": "<>", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "AND", "or": "OR",
}  # fmt: skip
_SQL_TYPES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float32": "FLOAT",
    "float64": "DOUBLE",
}  # fmt: skip


def sql_text(expr: Expr) -> str:
    match expr:
        case Column(side, name):
            return f"{'lr'[side or 0]}.{name}"
        case Literal(bool(value)):
            return str(value).upper()
        case Literal(None):
            return "NULL"
        case Literal(str(value)):
            return f"'{value}'"
        case Unary(op, arg) if op in TIME_PARTS:
            return f"{op}({sql_text(arg)})"
        case Text("trim" | "ltrim" | "rtrim" as op, arg, (characters,)):
            word = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}[op]
            return f"trim({word} '{characters}' FROM {sql_text(arg)})"
        case Text(op, arg, constants):
            return f"{op}({', '.join([sql_text(arg), *(repr(each) for each in constants if each is not None)])})"
        case Concat(parts):
            return f"({' || '.join(sql_text(part) for part in parts)})"
        case Case(branches, otherwise):
            said = " ".join(f"WHEN {sql_text(c)} THEN {sql_text(v)}" for c, v in branches)
            return f"CASE {said} ELSE {sql_text(otherwise)} END"
        case Literal(value):
            return f"({value!r})" if str(value).startswith("-") else repr(value)
        case Cast(arg, to):
            return f"CAST({sql_text(arg)} AS {_SQL_TYPES[to]})"
        case Unary("is_null", arg):
            return f"({sql_text(arg)} IS NULL)"
        case Unary("abs", arg):
            return f"abs({sql_text(arg)})"
        case Unary(op, arg):
            return f"({'NOT' if op == 'not' else '-'} {sql_text(arg)})"
        case Binary("least" | "greatest" as op, a, b):
            return f"{op}({sql_text(a)}, {sql_text(b)})"
        case Binary(op, a, b):
            return f"({sql_text(a)} {_SQL[op]} {sql_text(b)})"


def as_predicate(expr: Expr, *, sql: bool) -> Predicate:
    """The tree as a user would have written it, bound to SCHEMA on both sides."""
    on = sql_text(expr) if sql else (lambda l, r: python_value(expr, l, r))
    return predicate(on, ("left", "right"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)


EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
