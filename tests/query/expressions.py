"""Random conditions: trees, the same as Python and as SQL text, and rows to judge them on."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests.query.interpreter import INTS, Typed

import plait
from plait.query.condition.expression import CAST_TYPES, COMPARISON, Binary, Cast, Column, Expr, Literal, Unary, walk
from plait.query.condition.expression import columns as columns_of
from plait.reference.rows import Row, values_of

DAY = 86_400_000_000

#: Columns of both rows: how they are stored, and how many microseconds one count has for those that tell time.
TEMPORAL = {
    "t": (pa.timestamp("us", "UTC"), 1),
    "ms": (pa.timestamp("ms"), 1_000),
    "d": (pa.date32(), DAY),
    "d64": (pa.date64(), 1_000),
    "w": (pa.duration("s"), 1_000_000),
}
SCHEMA = pa.schema(
    {
        **{kind: getattr(pa, kind)() for kind in INTS},
        "f": pa.float32(),
        "g": pa.float64(),
        "ns": pa.timestamp("ns", "UTC"),
        **{name: kind for name, (kind, _) in TEMPORAL.items()},
        "z": pa.null(),
        "b": pa.bool_(),
        "s": pa.string(),
        "e": pa.dictionary(pa.int8(), pa.large_string()),
        "y": pa.binary(),
    }
)
NUMBERS = [name for name in SCHEMA.names if name not in ("z", "b", "s", "e", "y")]

# --- rows ---------------------------------------------------------------------------------------------------

texts = st.text(st.sampled_from("ab'\"\\%é\n "), max_size=2)
raws = st.sampled_from([b"", b"a", b"\x00"])
singles = st.floats(width=32) | st.sampled_from([0.0, -0.0, 0.5, math.nan, math.inf, -math.inf])
doubles = st.floats() | st.sampled_from([0.0, -0.0, 0.1, math.nan, math.inf, -math.inf, 2.0**53])


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    edges = [low, low + 1, high - 1, high]
    return st.integers(max(low, -3), min(high, 3)) | st.sampled_from(edges) | st.integers(low, high)


def stored(name: str) -> st.SearchStrategy[Any]:
    """A value of a column as Arrow stores it."""
    if name in INTS:
        return whole(*INTS[name])
    if name in ("f", "g"):
        return singles if name == "f" else doubles
    if name == "ns":
        return whole(-(2**50), 2**50).map(lambda n: n * 1_000)
    if name in TEMPORAL:
        return whole(-(2**31), 2**31 - 1) if name == "d" else whole(-(2**40), 2**40)
    return {"z": st.none(), "b": st.booleans(), "s": texts, "e": texts, "y": raws}[name]


@st.composite
def pairs(draw: st.DrawFn, tree: Expr) -> tuple[dict[str, Any], dict[str, Any]]:
    """A left and a right row with values in the columns that the tree reads."""
    read = columns_of(tree)
    left, right = (sorted({column.name for column in read if column.side == side}) for side in (0, 1))
    rows = st.tuples(*(st.fixed_dictionaries({n: st.none() | stored(n) for n in names}) for names in (left, right)))
    return draw(rows)


def cases(trees: st.SearchStrategy[Expr]) -> st.SearchStrategy[tuple[Expr, list[Any]]]:
    return trees.flatmap(lambda tree: st.tuples(st.just(tree), st.lists(pairs(tree), min_size=1, max_size=3)))


def as_row(values: dict[str, Any]) -> Row:
    """A row as the reference holds it, by way of Arrow; NULL in the columns that it does not mention."""
    kept = [field for field in SCHEMA if field.name in values]
    arrays = []
    for field in kept:
        counts = {"d": pa.int32()}.get(field.name, pa.int64() if pa.types.is_temporal(field.type) else None)
        array = pa.array([values[field.name]], counts or field.type)
        arrays.append(array if counts is None else array.view(field.type))
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(kept))
    given = dict(zip(batch.schema.names, values_of(batch)[0] if kept else (), strict=True))
    return Row(0, (), tuple(given.get(name) for name in SCHEMA.names))


def as_typed(values: dict[str, Any]) -> dict[str, Typed]:
    """The same row as conditions see it: times in microseconds."""
    kinds = {"f": "float32", "g": "float64", "z": "null", "b": "bool", "s": "text", "e": "text", "y": "bytes"}
    typed = {}
    for name, value in values.items():
        if name == "ns":
            value = None if value is None else value // 1_000
        elif name in TEMPORAL:
            value = None if value is None else value * TEMPORAL[name][1]
        elif name in ("f", "g"):
            value = None if value is None else float(value)
        typed[name] = Typed(kinds.get(name, name if name in INTS else "int64"), value)
    return typed


# --- trees --------------------------------------------------------------------------------------------------
# Every operator has a column below it: Python itself would work out what has none.

ARITHMETIC = {
    "python": ["add", "sub", "mul", "div", "floordiv", "mod"],
    "sql": ["add", "sub", "mul", "sqldiv", "sqlmod"],
}


def columns(*names: str) -> st.SearchStrategy[Expr]:
    return st.builds(Column, st.sampled_from([0, 1]), st.sampled_from(names))


def cast_types(dialect: str) -> st.SearchStrategy[str]:
    """Types of numbers; SQL has no words for most of the unsigned ones."""
    return st.sampled_from(
        [kind for kind in CAST_TYPES if kind != "bool" and (dialect == "python" or kind in SQL_TYPES)]
    )


@st.composite
def widths(draw: st.DrawFn, dialect: str) -> Expr:
    """A constant with a type of its own, such as `np.float32(0.1)`."""
    to = draw(cast_types(dialect))
    value = draw(whole(*INTS[to]) if to in INTS else st.floats(-1e6, 1e6, width=32))
    return Cast(Literal(value), to)


def constants(dialect: str) -> st.SearchStrategy[Expr]:
    numbers = st.builds(
        Literal, whole(-(2**70), 2**70) | st.floats(allow_nan=False) | st.sampled_from([0.1, 1e999, -0.0])
    )
    if dialect == "sql":
        return numbers | widths(dialect) | st.just(Literal(None))
    return numbers | widths(dialect) | st.just(Literal(math.nan))


@st.composite
def two(draw: st.DrawFn, op: str, inner: st.SearchStrategy[Expr], constant: st.SearchStrategy[Expr]) -> Expr:
    """An operator on two trees, or on a tree and a constant on either side."""
    tree, other = draw(inner), draw(inner | constant)
    return Binary(op, *((tree, other) if draw(st.booleans()) else (other, tree)))


@st.composite
def numbers(draw: st.DrawFn, dialect: str, depth: int) -> Expr:
    shape = draw(st.sampled_from(["column", "arithmetic", "pick", "unary", "cast"])) if depth else "column"
    inner = numbers(dialect, depth - 1)
    match shape:
        case "column":
            return draw(columns(*NUMBERS, *NUMBERS, "z"))
        case "arithmetic":
            return draw(two(draw(st.sampled_from(ARITHMETIC[dialect])), inner, constants(dialect)))
        case "pick":
            return draw(two(draw(st.sampled_from(["least", "greatest"])), inner, constants(dialect)))
        case "unary":
            return Unary(draw(st.sampled_from(["neg", "abs"])), draw(inner))
        case _:
            return Cast(draw(inner | truths(dialect, depth - 1)), draw(cast_types(dialect)))


@st.composite
def truths(draw: st.DrawFn, dialect: str, depth: int) -> Expr:
    shapes = ["compare", "compare", "logic", "not", "null", "equal", "between", "in", "cast"]
    shape = draw(st.sampled_from(shapes)) if depth else "column"
    number, truth, constant = numbers(dialect, depth - 1), truths(dialect, depth - 1), constants(dialect)
    match shape:
        case "column":
            return draw(columns("b"))
        case "compare":
            return draw(two(draw(st.sampled_from(COMPARISON)), number, constant))
        case "logic":
            known = st.builds(Literal, st.booleans() | (st.none() if dialect == "sql" else st.nothing()))
            return draw(two(draw(st.sampled_from(["and", "or"])), truth, known))
        case "not":
            return Unary("not", draw(truth))
        case "null":
            return Unary("is_null", draw(number | truth | columns("s", "e", "y", "z")))
        case "equal":
            kind = draw(st.sampled_from(["b", "s", "y"]))
            among = columns("s", "e") if kind == "s" else columns(kind)
            # SQL text for bytes is not read, so they only meet each other there.
            given = {"b": st.booleans(), "s": texts, "y": raws if dialect == "python" else st.nothing()}[kind]
            return draw(two(draw(st.sampled_from(["eq", "ne"])), among, st.builds(Literal, given)))
        case "between":
            value, low, high = draw(number), draw(number | constant), draw(number | constant)
            return Binary("and", Binary("ge", value, low), Binary("le", value, high))
        case "in":
            value = draw(number)
            found: Expr = Binary("eq", value, draw(constant))
            for option in draw(st.lists(number | constant, max_size=2)):
                found = Binary("or", found, Binary("eq", value, option))
            return found
        case _:
            return Cast(draw(number | truth), "bool")


def is_constant(expr: Expr) -> bool:
    return not any(isinstance(node, Column) for node in walk(expr))


# --- as Python ----------------------------------------------------------------------------------------------

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "sqldiv": "/", "sqlmod": "%",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|",
}  # fmt: skip


def python(expr: Expr) -> str:
    match expr:
        case Column(side, name):
            return f"{'lr'[side or 0]}.{name}" if len(name) > 1 else f"{'lr'[side or 0]}[{name!r}]"
        case Literal(float() as value) if not math.isfinite(value):
            return f"float({str(value)!r})"
        case Literal(value):
            return f"({value!r})"
        case Cast(Literal(value), to):
            return f"np.{to}({value!r})"
        case Cast(arg, to):
            return f"{python(arg)}.cast({to!r})"
        case Unary(op, arg):
            inner = python(arg)
            return {
                "neg": f"(-{inner})",
                "abs": f"abs({inner})",
                "not": f"(~{inner})",
                "is_null": f"{inner}.is_null()",
            }[op]
        case Binary("and", Binary("ge", value, low), Binary("le", again, high)) if value == again:
            return f"{python(value)}.between({python(low)}, {python(high)})"
        case Binary("least" | "greatest" as op, left, right):
            return f"{'minimum' if op == 'least' else 'maximum'}({python(left)}, {python(right)})"
        case Binary(op, left, right):
            return f"({python(left)} {SIGNS[op]} {python(right)})"


def compiled(expr: Expr) -> Callable[..., Any]:
    names = {"np": np, "minimum": plait.minimum, "maximum": plait.maximum}
    return eval(f"lambda l, r: {python(expr)}", names)  # type: ignore[no-any-return]


MIRROR = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def as_python_sees_it(expr: Expr) -> Expr:
    """The tree after Python's own turns: with a constant on the left, the column is the one that is asked."""
    match expr:
        case Unary(op, arg):
            return Unary(op, as_python_sees_it(arg))
        case Cast(arg, to):
            return Cast(as_python_sees_it(arg), to)
        case Binary(op, left, right):
            a, b = as_python_sees_it(left), as_python_sees_it(right)
            turns = op in (*COMPARISON, "and", "or", "least", "greatest") and is_constant(a)
            return Binary(MIRROR.get(op, op), b, a) if turns else Binary(op, a, b)
        case _:
            return expr


# --- as SQL -------------------------------------------------------------------------------------------------

SQL_TYPES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "uint32": "UINT",
    "float32": "FLOAT", "float64": "DOUBLE",
}  # fmt: skip
SQL_SIGNS = {"eq": "=", "ne": "<>", "and": "AND", "or": "OR"}


def sql(expr: Expr) -> str:
    match expr:
        case Column(side, name):
            return f"{'lr'[side or 0]}.`{name}`"
        case Literal(None):
            return "NULL"
        case Literal(str() as value):
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case Literal(float() as value) if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case Literal(value):
            return repr(value)
        case Cast(arg, to):
            return f"CAST({sql(arg)} AS {SQL_TYPES[to]})"
        case Unary(op, arg):
            inner = sql(arg)
            return {
                "neg": f"(- {inner})",
                "abs": f"abs({inner})",
                "not": f"(NOT {inner})",
                "is_null": f"({inner} IS NULL)",
            }[op]
        case Binary("and", Binary("ge", value, low), Binary("le", again, high)) if value == again:
            return f"({sql(value)} BETWEEN {sql(low)} AND {sql(high)})"
        case Binary("or", Binary("eq", value, first), Binary("eq", again, second)) if value == again:
            return f"({sql(value)} IN ({sql(first)}, {sql(second)}))"
        case Binary("least" | "greatest" as op, left, right):
            return f"{op}({sql(left)}, {sql(right)})"
        case Binary(op, left, right):
            return f"({sql(left)} {SQL_SIGNS.get(op, SIGNS[op])} {sql(right)})"
