"""Every Arrow type in every role that a column can have, in every layout: the reference against threads.

A cell is a type, a layout, a role and a seed; its data follow from these alone. Both executors give the same bytes, or both
refuse it with a PlaitError.
"""

from __future__ import annotations

import decimal
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import plait
from plait.encodings import plain_array
from plait.query.identical import difference

D = decimal.Decimal
_INTS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS = [1.5, float("nan"), -0.0, 0.0, float("inf"), float("-inf")]


def _ends(kind: pa.DataType) -> list[int]:
    ends = np.iinfo(kind.to_pandas_dtype())
    return [int(ends.min), int(ends.max), 0, 1]


#: Values of each type, those at its ends among them. Those of times are the numbers that are stored.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{str(kind): (kind, _ends(kind)) for kind in _INTS},
    "bool": (pa.bool_(), [True, False]), "null": (pa.null(), [None]),
    "half": (pa.float16(), [np.float16(x) for x in _FLOATS]), "float": (pa.float32(), _FLOATS), "double": (pa.float64(), _FLOATS),
    "string": (pa.string(), ["a", "", "é", "b"]), "large_string": (pa.large_string(), ["a", "", "é"]),
    "string_view": (pa.string_view(), ["a", "a text that is longer than twelve", ""]),
    "binary": (pa.binary(), [b"a", b"", b"\0z"]), "large_binary": (pa.large_binary(), [b"a", b"\xff"]),
    "binary_view": (pa.binary_view(), [b"a", b"\xff" * 20]), "fixed_binary": (pa.binary(2), [b"ab", b"\0\0"]),
    "decimal32": (pa.decimal32(5, 1), [D("1.5"), D("-2.0")]), "decimal64": (pa.decimal64(12, 1), [D("1.5")]),
    "decimal128": (pa.decimal128(10, 2), [D("1.50"), D("-2.00")]), "decimal256": (pa.decimal256(50, 2), [D("1.50"), D("-2.00")]),
    "date32": (pa.date32(), [0, 1, -1, 3_000_000, 2**31 - 1, -(2**31)]), "date64": (pa.date64(), [0, 86_400_000]),
    "time32[s]": (pa.time32("s"), [0, 86_399]), "time32[ms]": (pa.time32("ms"), [1, 0]), "time64[us]": (pa.time64("us"), [1, 0]),
    "time64[ns]": (pa.time64("ns"), [1, 1_000, 86_399_999_999_999]),
    **{f"ts[{u}]": (pa.timestamp(u), [0, 5, -1, 2**62, -(2**62), 2**63 - 1]) for u in ("s", "ms", "us")},
    "ts[ns]": (pa.timestamp("ns"), [0, 1, 1_000, 2_000, -(2**62)]), "ts[UTC]": (pa.timestamp("us", "UTC"), [0, 5]),
    "ts[zone]": (pa.timestamp("ns", "Europe/Berlin"), [0, 1_000]),
    "duration[s]": (pa.duration("s"), [0, 5, 2**62]), "duration[ns]": (pa.duration("ns"), [0, 1, 1_000]),
    "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano((1, 2, 3)), pa.MonthDayNano((0, 0, 0))]),
    "list": (pa.list_(pa.int64()), [[1, None], [], [2]]), "large_list": (pa.large_list(pa.string()), [["a"], []]),
    "list of ts": (pa.list_(pa.timestamp("ns")), [[1], [], [2**62]]), "list of nulls": (pa.list_(pa.null()), [[None, None], []]),
    "list of days": (pa.large_list(pa.date32()), [[2**31 - 1, None], []]),
    "fixed_list": (pa.list_(pa.int8(), 2), [[1, 2], [3, None]]),
    "fixed_list of times": (pa.list_(pa.time64("ns"), 1), [[1], [None]]), "list_view": (pa.list_view(pa.int64()), [[1], []]),
    "list of views": (pa.list_(pa.string_view()), [["a"], []]),
    "list of lists": (pa.list_(pa.list_(pa.duration("ns"))), [[[1], None], []]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]),
    "struct of ns": (pa.struct([("a", pa.timestamp("ns")), ("t", pa.time64("ns"))]), [{"a": 1, "t": 1}, {"a": None, "t": 1_000}]),
    "struct of views": (pa.struct([("a", pa.string_view()), ("l", pa.list_(pa.null()))]), [{"a": "x", "l": [None] * 3}]),
    "struct of struct": (pa.struct([("s", pa.struct([("d", pa.date32())]))]), [{"s": {"d": -(2**31)}}, {"s": None}]),
    "struct of nothing": (pa.struct([]), [{}]), "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], []]),
    "map of times": (pa.map_(pa.timestamp("ns"), pa.time64("ns")), [[(1, 1), (2, None)], []]),
    "uuid": (pa.uuid(), [b"0" * 16, b"1" * 16]), "json": (pa.json_(), ["1", "{}"]), "bool8": (pa.bool8(), [0, 1]),
}  # fmt: skip

LAYOUTS = ("plain", "sliced", "codes", "runs", "chunks", "under")
ROWS = 6


def plain(name: str, dice: random.Random, n: int, nulls: bool) -> pa.Array:
    kind, values = TYPES[name]
    picked = [None if nulls and dice.random() < 0.2 else dice.choice(values) for _ in range(n)]
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(picked, kind.storage_type))
    return pa.array(picked, kind)


def _under(array: pa.Array, dice: random.Random) -> pa.Array:
    """Values that lie under NULLs: what is NULL is not seen, and nor is what a struct or a list holds there."""
    gone = pa.array([dice.random() < 0.3 for _ in range(len(array))])
    if pa.types.is_struct(array.type) and array.type.num_fields:
        fields = [array.type.field(k) for k in range(array.type.num_fields)]
        return pa.StructArray.from_arrays([array.field(k) for k in range(len(fields))], fields=fields, mask=gone)
    if pa.types.is_list(array.type):
        full = array.filter(array.is_valid())
        full = full if len(full) else array
        full = full.take(pa.array([k % len(full) for k in range(len(array))]))
        return pa.ListArray.from_arrays(full.offsets, full.values, type=array.type, mask=gone)
    return array


def laid_out(name: str, how: str, dice: random.Random, n: int, nulls: bool) -> pa.Array | pa.ChunkedArray:
    own = plain(name, dice, n, nulls)
    if how == "under":
        return _under(own, dice)
    if how == "sliced":
        return pa.concat_arrays([plain(name, dice, 3, True), own, plain(name, dice, 2, True)]).slice(3, n)
    if how == "codes":  # values stand twice, and NULL stands beside the codes that are NULL
        words = pa.concat_arrays([own, own, pa.nulls(1, own.type)])
        codes = [dice.choice([k, n + k, None, 2 * n] if nulls else [k, n + k]) for k in range(n)]
        return pa.DictionaryArray.from_arrays(pa.array([0, *codes], pa.int8()), words).slice(1)
    if how == "runs":
        ends = [*sorted(dice.sample(range(1, n), 2)), n]
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), own.slice(0, 3))
    if how == "chunks":
        return pa.chunked_array(
            [laid_out(name, dice.choice(["plain", "sliced"]), dice, n // 3, nulls) for _ in range(3)]
        )
    return own


def _sorted(column: Any) -> Any:
    """A column of times in order, where Arrow can order it."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    try:
        return whole.take(pc.sort_indices(plain_array(whole)))
    except (pa.ArrowException, plait.PlaitError):
        return column


def table(name: str, how: str, role: str, dice: random.Random, nulls: bool) -> pa.Table:
    x = laid_out(name, how, dice, ROWS, nulls)
    return pa.table({
        "ts": pa.array(sorted(dice.randrange(20) for _ in range(ROWS)), pa.int64()), "n": pa.array(range(ROWS), pa.int64()),
        "x": _sorted(x) if role.startswith(("time", "seq")) else x,
        "k": pa.array([dice.randrange(2) for _ in range(ROWS)], pa.int64()),
    })  # fmt: skip


def _s(**options: Any) -> plait.Stream:
    return plait.stream("s", **{"unit": "us"} | options)


def _u() -> plait.Stream:
    return plait.stream("u", unit="us")


def _windows(stream: Any, **compute: Any) -> Any:
    return plait.aggregate(stream, size="10us", advance="5us", compute=compute)


def told(value: Any) -> str:
    return "nan" if value != value else repr(value)


def _process(state: Any, t: Any) -> Iterator[tuple[str]]:
    yield (told(t.x),)


_count = {"n": plait.count()}
_own = plait.custom("x", init=str, add=lambda state, x: f"{state};{told(x)}", type="string")

ROLES: dict[str, Callable[[], Any]] = {
    "beside seq": lambda: _windows(_s(seq="n"), n=plait.count()),
    "content": lambda: _windows(_s(seq="content"), c=plait.collect("n")),
    "collect": lambda: _windows(_s(), c=plait.collect("x")),
    "beside": lambda: _windows(_s(disorder="3us"), c=plait.collect("n"), f=plait.first("n")),
    "first": lambda: _windows(_s(), a=plait.first("x"), b=plait.last("x")),
    "first where": lambda: _windows(_s(), a=plait.first_where("x", "k = 1")),
    "distinct": lambda: _windows(_s(), a=plait.distinct("x")),
    "extremes": lambda: _windows(_s(), a=plait.min("x"), b=plait.max("x")),
    "sum": lambda: _windows(_s(), a=plait.sum("x")),
    "mean": lambda: _windows(_s(), a=plait.mean("x"), b=plait.var("x")),
    "std": lambda: _windows(_s(), a=plait.std("x"), b=plait.corr("x", "k"), c=plait.median("x")),
    "quantile": lambda: _windows(_s(), a=plait.quantile("x", 0.5), b=plait.quantile("x", 0.9, where="k = 1")),
    "mode": lambda: _windows(_s(), a=plait.mode("x")),
    "arg": lambda: _windows(
        _s(), a=plait.arg_min("x", "n"), b=plait.top("x", 2, "k"), c=plait.collect("x", where="k = 1")
    ),
    "arg by": lambda: _windows(_s(), a=plait.arg_min("n", "x"), b=plait.arg_max("n", "x"), c=plait.top("n", 2, "x")),
    "sessions by": lambda: plait.aggregate(_s(), session="2us", by="x", compute=_count),
    "by": lambda: plait.aggregate(_s(), size="10us", by="x", compute=_count),
    "by two": lambda: plait.aggregate(_s(), size=2, by=["k", "x"], compute=_count | {"f": plait.first("x")}),
    "source": lambda: _windows(_s(source="x"), c=plait.collect("n")),
    "seq": lambda: _windows(_s(seq="x"), c=plait.collect("n")),
    "where null": lambda: _windows(_s(), a=plait.count_where("x is null")),
    "where equal": lambda: _windows(_s(), a=plait.count_where("x = x")),
    "where function": lambda: _windows(_s(), a=plait.count_where(lambda r: bool(r.k) if r.x else False)),
    "where text": lambda: _windows(_s(), a=plait.count_where(plait.text("x").contains("a"))),
    "custom": lambda: _windows(_s(), a=_own),
    "as-of by": lambda: plait.asof(_s(), _u(), by="x", within="9us"),
    "as-of beside": lambda: plait.asof(_s(), _u(), within="9us"),
    "join equal": lambda: plait.join(_s(), _u(), on="s.x = u.x", within="9us"),
    "join function": lambda: plait.join(_s(), _u(), on=lambda s, u: bool(s.x == u.x and s.k == u.k), within="9us"),
    "join beside": lambda: plait.join(_s(), _u(), on="s.k = u.k", within="9us", how="left"),
    "join anti": lambda: plait.join(_s(), _u(), on="s.k = u.k", within="9us", how="anti"),
    "join full": lambda: plait.join(_s(), _u(), on="s.k = u.k", within="2us", how="full"),
    "dedup by": lambda: plait.dedup(_s(), by=["x", "k"], within="2us"),
    "dedup beside": lambda: plait.dedup(_s(), by="k", within="1us"),
    "operator": lambda: plait.operator(
        _s(), buckets=2, route=lambda t: t.k, state=dict, process=_process, output={"o": "string"}
    ),
    "time": lambda: _windows(_s(time="x", unit=None), n=plait.count()),
    **{
        f"time {unit}": (lambda unit=unit: _windows(_s(time="x", unit=unit), n=plait.count()))
        for unit in ("ns", "us", "ms", "s", "day")
    },
}


def data(name: str, how: str, role: str, seed: int) -> tuple[Any, dict[str, pa.Table]]:
    """A cell's query and its tables."""
    dice = random.Random(f"{name} {how} {role} {seed}")
    nulls = dice.random() < 0.5
    query = ROLES[role]()
    return query, {stream: table(name, how if stream == "s" else dice.choice(["plain", how]), role, dice, nulls)
                   for stream in query.streams()}  # fmt: skip


def on_threads(query: Any, tables: dict[str, pa.Table]) -> pa.Table:
    with query.on_threads(schemas={name: rows.schema for name, rows in tables.items()}, keys=True, workers=1) as run:
        for start in range(0, ROWS, 2):
            for name, rows in tables.items():
                run.push(name, None, rows.slice(start, 2))
        run.drain()
        return run.table()


def outcome(run: Callable[[], pa.Table]) -> pa.Table | str:
    """A result, or the words with which it is refused. Whatever is no PlaitError, or comes from within plait, is a fault."""
    try:
        return run()
    except plait.PlaitError as error:
        words = str(error)
        assert not re.search(r"The run stopped|\bArrow\w+:|numba", words), words
        return words


def wrong(name: str, how: str, role: str, seed: int) -> str | None:
    """What is wrong with a cell; None if nothing is."""
    try:
        query, tables = data(name, how, role, seed)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # Arrow itself has no such layout of this type
    try:
        expected = outcome(lambda: query.reference(tables, keys=True))
        got = outcome(lambda: on_threads(query, tables))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(expected, str) or isinstance(got, str):
        both = isinstance(expected, str) and isinstance(got, str)
        return None if both else f"one refuses: {expected!s:.200} / {got!s:.200}"
    if not expected.column("_plait_key").equals(got.column("_plait_key")):
        return "other keys"
    found = difference(expected, got)
    return None if found is None else str(found)
