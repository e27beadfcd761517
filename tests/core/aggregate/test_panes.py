"""Panes against the reference, byte for byte: functions x windows x keys, however the sequence is cut into batches.

Cases are drawn by seeds, which are the tests' parameters: a failure names its own.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait import DataError
from plait.core.aggregate.panes import pane_windows
from plait.core.aggregate.span import SpanPanes
from plait.query.bind import bind
from plait.query.identical import difference

STREAM = plait.stream("s", unit="us")


def mixed(state: int, i: int | None, s: str | None) -> int:
    return (state * 31 + (7 if i is None else i) + len(s or "xx")) % 1_000_003


def opaque(row: Any) -> bool:
    return True if row.i > 10 else False  # noqa: SIM210  (an `if` keeps it from being traced)


FUNCTIONS: dict[str, plait.Function] = {
    "n": plait.count(), "where": plait.count_where(lambda r: (r.i > 0) & (r.s != "a")),
    **{f"sum {c}": plait.sum(c) for c in ("f", "g", "i")},
    **{f"mean {c}": plait.mean(c) for c in ("f", "g", "i", "u")},
    **{f"var {c}": plait.var(c) for c in ("f", "g", "i", "u")},
    **{f"min {c}": plait.min(c) for c in "fguitbs"},
    **{f"max {c}": plait.max(c) for c in "fguitbs"},
    **{f"first {c}": plait.first(c) for c in "fgisbtu"},
    **{f"last {c}": plait.last(c) for c in "fgisbtu"},
    "text where": plait.first_where("s", "i > 500"), "number where": plait.first_where("i", opaque),
    **{f"collect {c}": plait.collect(c) for c in "fst"},
    **{f"distinct {c}": plait.distinct(c) for c in ("k", "s", "b", "z")},
    **{f"std {c}": plait.std(c) for c in ("f", "g", "i", "u")},
    **{f"covar {x} {y}": plait.covar(x, y) for x, y in ("gi", "iu", "fg", "gf", "gg")},
    **{f"corr {x} {y}": plait.corr(x, y) for x, y in ("gi", "iu", "fg", "gf", "gg")},
    **{f"quantile {q} {c}": plait.quantile(c, q)
       for q, c in ((0.0, "f"), (0.3, "s"), (0.5, "z"), (0.75, "t"), (0.1, "u"), (1, "b"))},
    **{f"between {q} {c}": plait.quantile(c, q, interpolate=True) for q, c in ((0.3, "f"), (0.75, "u"), (0.1, "i"), (0.9, "z"))},
    **{f"median {c}": plait.median(c) for c in ("f", "g", "i", "u")},
    **{f"mode {c}": plait.mode(c) for c in "kszbdf"},
    **{f"arg_min {c} {by}": plait.arg_min(c, by) for c, by in ("sf", "ds", "tz", "ib", "su")},
    **{f"arg_max {c} {by}": plait.arg_max(c, by) for c, by in ("sf", "ds", "tz", "ib", "su")},
    **{f"top {k} {c} {by}": plait.top(c, k, by) for k, c, by in ((1, "s", "f"), (3, "d", "z"), (2, "i", "s"), (9, "t", "u"))},
    **{f"{kind} only": getattr(plait, kind)("f", where="i > 0")
       for kind in ("sum", "mean", "var", "std", "min", "max", "first", "last", "collect", "distinct", "median", "mode")},
    "text only": plait.max("s", where=lambda r: r.i < 100), "none only": plait.sum("i", where="i > 5000"),
    "count only": plait.count(where=opaque), "top only": plait.top("s", 2, "f", where=lambda r: r.k >= 2),
    "corr only": plait.corr("g", "i", where="k < 4"), "quantile only": plait.quantile("s", 0.5, where="f > 0"),
    "custom only": plait.custom("i", init=list, add=lambda state, i: [*state, i], result=len, type="int64", where="k = 1"),
    "custom": plait.custom(["i", "s"], init=lambda: 0, add=mixed, type="int64"),
    "list": plait.custom("t", init=list, add=lambda state, t: [*state, t], result=len, type="int32"),
}  # fmt: skip
KEYS = [(), ("k",), ("s",), ("z",), ("s", "k"), ("z", "b", "s"), ("g",), ("t",), ("u",), ("d",)]
SPANS = [(100, 30), (30, 30), (30, 100), (10, 3), (90, 30), (7, 11), (1000, 10), (1, 1)]
COUNTS = [(10, 3), (1, 1), (5, 5), (2, 7), (3, 2), (60, 1)]


def table(rows: int, seed: int, span: int) -> pa.Table:
    """Every kind of column, with NULL, NaN, infinities, -0.0 and numbers of all sizes."""
    dice = np.random.default_rng(seed)
    odd = dice.random(rows)
    f = dice.random(rows) * 1000 - 500
    for below, value in ((0.03, np.nan), (0.06, -0.0), (0.08, np.inf), (0.09, -np.inf), (0.12, 1e-300), (0.14, 1e300)):
        f[(odd < below) & (odd >= below - 0.03)] = value

    def some(values: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, kind, mask=dice.random(rows) < 0.15)

    text = [("a", "bb", "", "é", "\0z")[k] for k in dice.integers(0, 5, rows)]
    return pa.table({
        "ts": np.sort(dice.integers(-span // 3, span, rows)), "f": some(f), "i": some(dice.integers(-1000, 1000, rows)),
        "g": some((dice.integers(-8, 8, rows) / 4).astype(np.float32)), "s": some(text, pa.string()),
        "u": some(dice.integers(0, 2**60, rows).astype(np.uint64) + np.uint64(2**63)),
        "k": dice.integers(0, 6, rows).astype(np.int32), "b": some(dice.integers(0, 2, rows) == 1),
        "z": some(np.array([0.0, -0.0, np.nan, 1.5, -2.0])[dice.integers(0, 5, rows)]),
        "t": some(dice.integers(0, 5, rows)).cast(pa.timestamp("ms")), "d": some(text, pa.string()).dictionary_encode(),
    })  # fmt: skip


def computed(query: plait.Query, rows: pa.Table, chance: random.Random) -> pa.Table:
    """By panes, in batches of any size, with a frontier at the last tuple or the next one; memory is moved about."""
    windows = pane_windows(bind(query, {"s": rows.schema}))
    ts, at, out = rows["ts"].to_numpy(), 0, []
    while at < len(ts):
        end = min(len(ts), at + chance.choice((1, 2, 17, 200)))
        frontier = int(ts[end] if end < len(ts) and chance.random() < 0.7 else ts[end - 1])
        out += windows.take_rows(rows.slice(at, end - at), ts[at:end], frontier)
        at = end
        if windows.needs_rows and chance.random() < 0.2 and windows._refers:
            windows._let_go()
        if chance.random() < 0.1 and windows.groups.by:
            windows.groups._sweep(windows.groups.words[:, :0])
        if chance.random() < 0.2 and isinstance(windows, SpanPanes):
            windows._move()
    out += windows.end()
    return pa.Table.from_batches([closed.rows for closed in out], windows.schema)


def assert_identical(query: plait.Query, rows: pa.Table, seed: int) -> None:
    assert difference(query.reference({"s": rows}), computed(query, rows, random.Random(seed))) is None


@pytest.mark.crossed
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("window", ["time", "tuples"])
def test_every_function(name: str, window: str) -> None:
    seed = sum(name.encode())
    chance = random.Random(seed)
    size: Any
    for by in ((), ("k",)):
        if window == "time":
            size, advance = (f"{us}us" for us in chance.choice(SPANS[:6]))
        else:
            size, advance = chance.choice(COUNTS[:5])
        query = plait.aggregate(STREAM, size=size, advance=advance, by=by, compute={"x": FUNCTIONS[name]})
        assert_identical(query, table(120, seed, 400), seed)


@pytest.mark.parametrize("seed", range(60))
def test_everything_with_everything(seed: int) -> None:
    chance = random.Random(seed)
    rows = table(chance.choice((1, 5, 60, 300)), seed, chance.choice((50, 2000)))
    compute = {name: FUNCTIONS[name] for name in chance.sample(sorted(FUNCTIONS), chance.choice((1, 3, 8)))}
    size: Any
    if chance.random() < 0.6:
        size, advance = (f"{us}us" for us in chance.choice(SPANS))
    else:
        size, advance = chance.choice(COUNTS)
    query = plait.aggregate(STREAM, size=size, advance=advance, by=chance.choice(KEYS), compute=compute)
    assert_identical(query, rows, seed)


@pytest.mark.parametrize("window", [(4 * 10**18, 4 * 10**18), (4 * 10**18, 3 * 10**18), (2**62, 2**61 + 1), (3, 2**62)])
def test_windows_nearly_as_long_as_time(window: tuple[int, int]) -> None:
    size, advance = (f"{us}us" for us in window)
    query = plait.aggregate(STREAM, size=size, advance=advance, compute={"n": plait.count(), "x": plait.collect("x")})
    ts = [-(2**62), -(2**62) + 1, -(2**61), -1, 0, 2**61]
    assert_identical(query, pa.table({"ts": ts, "x": range(len(ts))}), 1)


def test_a_window_that_ends_beyond_64_bits() -> None:
    query = plait.aggregate(STREAM, size=f"{2**62}us", compute={"n": plait.count()})
    rows = pa.table({"ts": [0, 2**62]})
    for run in (lambda: query.reference({"s": rows}), lambda: computed(query, rows, random.Random(1))):
        with pytest.raises(DataError, match="A result's 'window_end' lies beyond 64 bits"):
            run()


def test_all_nans_are_one() -> None:
    """Whatever their bits, and whichever came first: as a key and as an extreme; what is kept keeps its own."""
    bits = np.array([0xFFF8000000000001, 0x7FF8000000000000, 0x7FF8000000000123, 0x3FF0000000000000], np.uint64)
    x = np.tile(bits.view(np.float64), 5)
    rows = pa.table({"ts": np.arange(20) // 2, "z": np.roll(x, 1), "x": x})
    compute = {"low": plait.min("x"), "high": plait.max("x"), "first": plait.first("x"), "all": plait.collect("x")}
    query = plait.aggregate(STREAM, size="3us", advance="2us", by="z", compute=compute)
    assert_identical(query, rows, 1)
    found = query.reference({"s": rows})
    for name in ("z", "high"):
        values = found[name].to_numpy()
        assert set(values[np.isnan(values)].view(np.uint64).tolist()) == {0x7FF8000000000000}


def test_a_sum_beyond_64_bits() -> None:
    rows = pa.table({"ts": [1, 2, 30], "x": [2**63 - 1, 1, -1]})
    query = plait.aggregate(STREAM, size="10us", compute={"v": plait.sum("x")})
    with pytest.raises(DataError, match="sum in column 'v' is 9223372036854775808, beyond 64 bits"):
        computed(query, rows, random.Random(1))


def test_a_result_of_the_wrong_type() -> None:
    query = plait.aggregate(
        STREAM, size="10us", compute={"v": plait.custom("x", init=int, add=lambda s, x: "text", type="int64")}
    )
    with pytest.raises(DataError, match="custom function's result in column 'v' is 'text', which is no int64"):
        computed(query, pa.table({"ts": [1], "x": [1]}), random.Random(1))


def test_memory_follows_open_windows() -> None:
    """Keys come and go; what is held is what open windows need, however many keys there were."""
    compute = {"n": plait.count(), "sum": plait.sum("f"), "t": plait.last("s"), "c": plait.collect("i")}
    query = plait.aggregate(STREAM, size="20us", advance="10us", by=["s", "k"], compute=compute)
    schema = pa.schema({"ts": pa.int64(), "f": pa.float64(), "s": pa.string(), "k": pa.int64(), "i": pa.int64()})
    windows = pane_windows(bind(query, {"s": schema}))
    rows, sizes = 20_000, []
    for turn in range(12):
        ts = np.arange(turn * rows, (turn + 1) * rows)
        names = pa.array([f"name {k}" for k in ts])
        batch = pa.table({"ts": ts, "f": ts / 7, "s": names, "k": ts % 1000, "i": ts}).cast(schema)
        windows.take_rows(batch, ts, int(ts[-1]))
        texts = windows.groups._texts["s"]
        sizes.append((windows.groups.capacity, windows.capacity, windows.kept.rows, len(texts.values), windows.nbytes))
    assert sizes[-1][0] <= 1 << 17
    assert sizes[-1][3] <= 1 << 17
    assert sizes[-1] <= tuple(2 * s for s in sizes[5])
    assert windows.kept.rows <= 2 * (1 << 16)
