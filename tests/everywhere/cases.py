"""Section 1 of the design by small examples: a query, its rows, and the answer, written by hand. No executor has a part in it.

What depends on arrival (behind, idle) is no case here: `tests/threads` and `tests/spark` deliver it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import plait
from plait.errors import DataError, LateError, PlaitError

MOST = 2**62
KINDS = {"ts": pa.int64(), "k": pa.int64(), "x": pa.float64(), "s": pa.string(), "src": pa.string(), "i": pa.int64()}


@dataclass(frozen=True)
class Case:
    query: plait.Query
    data: dict[str, Any]
    #: The rows, in order; or the error, and what it says.
    answer: list[tuple[Any, ...]] | tuple[type[PlaitError], str]


def rows(columns: str, *values: tuple[Any, ...]) -> pa.Table:
    names = columns.split()
    return pa.table({name: pa.array([v[at] for v in values], KINDS[name]) for at, name in enumerate(names)})


def stream(name: str, **options: Any) -> plait.Stream:
    return plait.stream(name, unit="us", **options)


A, B = stream("a"), stream("b")
NEAR = {"a": rows("ts k", (0, 1), (5, 1), (5, 2), (9, None)), "b": rows("ts k", (2, 1), (3, 1), (7, 2), (8, None))}


def late(do: str) -> plait.Stream:
    return stream("a", disorder="2us", late=do)


def counted(of: plait.Stream, **options: Any) -> plait.Query:
    return plait.aggregate(of, **{"size": "4us", "compute": {"n": plait.count()}} | options)


def numbered(state: list[int], t: Any) -> Any:
    """How many tuples the bucket has seen, with a timer three microseconds on."""
    state.append(t.ts)
    yield (len(state), t.ts)
    yield plait.timer(t.ts + 3)


CASES: dict[str, Case] = {
    "a window has both its ends": Case(
        plait.join(A, B, on="l.k = r.k", within=2),
        NEAR,
        [(2, 0, 1, 2, 1), (5, 5, 1, 3, 1), (7, 5, 2, 7, 2)],
    ),
    "a window that looks one way": Case(
        plait.join(A, B, on="l.k = r.k", within=(0, 2)),
        NEAR,
        [(2, 0, 1, 2, 1), (7, 5, 2, 7, 2)],
    ),
    "NULL equals nothing, and a left row without a partner appears when none can come": Case(
        plait.join(A, B, on="l.k = r.k", within=1, how="left"),
        NEAR,
        [(1, 0, 1, None, None), (6, 5, 1, None, None), (6, 5, 2, None, None), (10, 9, None, None, None)],
    ),
    "semi: each left row once, at its first match": Case(
        plait.join(A, B, on="l.k = r.k", within=3, how="semi"),
        NEAR,
        [(2, 0, 1), (5, 5, 1), (7, 5, 2)],
    ),
    "a right row without a partner waits for left ones": Case(
        plait.join(A, B, on="l.k = r.k", within=(1, 3), how="right"),
        NEAR,
        [(2, 0, 1, 2, 1), (3, 0, 1, 3, 1), (7, 5, 2, 7, 2), (9, None, None, 8, None)],
    ),
    "full: rows of both sides; at one moment the left ones come first, though a right one is older": Case(
        plait.join(A, B, on="l.k = r.k", within=(4, 1), how="full"),
        NEAR | {"b": rows("ts k", (2, 7), (4, 1), (6, None))},
        [
            (1, 0, 1, None, None),
            (5, 5, 1, 4, 1),
            (6, 5, 2, None, None),
            (6, None, None, 2, 7),
            (10, 9, None, None, None),
            (10, None, None, 6, None),
        ],
    ),
    "anti": Case(plait.join(A, B, on="l.k = r.k", within=3, how="anti"), NEAR, [(12, 9, None)]),
    "results come by the later tuple, then by the earlier one": Case(
        plait.join(A, B, on=None, within=5),
        {"a": rows("ts k", (0, 1), (1, 2)), "b": rows("ts k", (1, 7), (1, 8))},
        [(1, 0, 1, 1, 7), (1, 1, 2, 1, 7), (1, 0, 1, 1, 8), (1, 1, 2, 1, 8)],
    ),
    "the last tuple of the other stream, whatever its columns hold": Case(
        plait.join(A, B, on="l.k = r.k", last=1),
        {"a": rows("ts k", (0, 1), (1, None), (4, 1)), "b": rows("ts k", (2, 1), (3, 1))},
        [(4, 4, 1, 3, 1)],
    ),
    "the same span of a clock": Case(
        plait.join(A, B, on="l.k = r.k", tumbling="4us"),
        {"a": rows("ts k", (-1, 1), (0, 1), (3, 1)), "b": rows("ts k", (-4, 1), (3, 1), (4, 1))},
        [(-1, -1, 1, -4, 1), (3, 0, 1, 3, 1), (3, 3, 1, 3, 1)],
    ),
    "the other stream's window of tuples, until its next one begins": Case(
        plait.join(A, B, on=None, tumbling_count=2),
        {"a": rows("ts k", (0, 1), (1, 2), (5, 3)), "b": rows("ts k", (2, 7), (3, 8), (4, 9), (6, 10))},
        [
            (2, 0, 1, 2, 7),
            (2, 1, 2, 2, 7),
            (3, 0, 1, 3, 8),
            (3, 1, 2, 3, 8),
            (4, 0, 1, 4, 9),
            (4, 1, 2, 4, 9),
            (5, 5, 3, 4, 9),
            (6, 5, 3, 6, 10),
        ],
    ),
    "a stream joined with itself meets each tuple with itself": Case(
        plait.join(A, A, on="l.k = r.k", within=0),
        {"a": rows("ts k", (0, 1), (3, 2))},
        [(0, 0, 1, 0, 1), (3, 3, 2, 3, 2)],
    ),
    "the ends of 64 bits are far from one another": Case(
        plait.join(A, B, on=lambda l, r: abs(l.k - r.k) <= 5, within=0),
        {"a": rows("ts k", (0, 2**63 - 1), (0, -(2**63))), "b": rows("ts k", (0, -(2**63)), (0, 2**63 - 1))},
        [(0, 0, -(2**63), 0, -(2**63)), (0, 0, 2**63 - 1, 0, 2**63 - 1)],
    ),
    "the ends of time": Case(
        plait.join(A, B, on="l.k = r.k", within=0),
        {"a": rows("ts k", (-MOST, 1), (MOST, 2)), "b": rows("ts k", (-MOST, 1), (MOST, 2))},
        [(-MOST, -MOST, 1, -MOST, 1), (MOST, MOST, 2, MOST, 2)],
    ),
    "a comparison with NaN is unknown": Case(
        plait.join(stream("a"), stream("b"), on="l.x <= r.x OR l.x > r.x", within=0),
        {"a": rows("ts x", (0, float("nan")), (0, 1.0)), "b": rows("ts x", (0, 2.0), (0, float("nan")))},
        [(0, 0, 1.0, 0, 2.0)],
    ),
    "as-of: the last before, of the same key": Case(
        plait.asof(A, B, by="k"),
        {"a": rows("ts k", (1, 1), (6, 1), (6, 2)), "b": rows("ts k", (2, 1), (4, 1), (5, 3))},
        [(1, 1, 1, None, None), (6, 6, 1, 4, 1), (6, 6, 2, None, None)],
    ),
    "dedup: what comes within the span after the last that was kept; NULL is a key, NaN one, and -0.0 is 0.0": Case(
        plait.aggregate(plait.dedup(A, by="x", within=3), size="9us", compute={"all": plait.collect("i")}),
        {
            "a": rows(
                "ts x i",
                (0, 0.0, 1),
                (1, None, 2),
                (2, -0.0, 3),
                (2, float("nan"), 4),
                (3, 0.0, 5),
                (4, None, 6),
                (4, -0.0, 7),
                (5, None, 8),
                (5, float("nan"), 9),
                (6, float("nan"), 10),
            )
        },
        [(8, 0, 9, [1, 2, 4, 7, 8, 10])],
    ),
    "dedup: rows as they are, in their order": Case(
        plait.dedup(A, by="k", within=4),
        {"a": rows("ts k i", (0, 1, 1), (0, 1, 2), (1, 2, 3), (4, 1, 4), (5, 1, 5), (9, 1, 6), (10, 2, 7))},
        [(0, 1, 1), (1, 2, 3), (5, 1, 5), (10, 2, 7)],
    ),
    "dedup of a join, and an aggregate of what it keeps": Case(
        plait.aggregate(
            plait.dedup(plait.join(A, B, on="l.k = r.k", within=5, how="full"), by="b_k", within=2),
            size="4us",
            compute={"n": plait.count(), "all": plait.collect("b_k")},
        ),
        NEAR,
        [(3, 0, 4, 1, [1]), (7, 4, 8, 2, [1, 2]), (15, 12, 16, 1, [None])],
    ),
    "as-of: at one ts the last of those behind, by total order": Case(
        plait.asof(A, B, within=2),
        {"a": rows("ts k", (4, 1), (9, 2)), "b": rows("ts k", (4, 7), (4, 8), (5, 9))},
        [(4, 4, 1, 4, 8), (9, 9, 2, None, None)],
    ),
    "as-of: before, and not at, the same ts": Case(
        plait.asof(A, B, exact=False),
        {"a": rows("ts k", (4, 1), (5, 2)), "b": rows("ts k", (3, 6), (4, 7), (4, 8))},
        [(4, 4, 1, 3, 6), (5, 5, 2, 4, 8)],
    ),
    "as-of, forward: decided by the first ahead, or when its time is over; at one ts by left tuple": Case(
        plait.asof(A, B, by="k", within=3, direction="forward"),
        {"a": rows("ts k", (2, 1), (3, 2), (4, 2), (5, 1)), "b": rows("ts k", (1, 1), (5, 2), (5, 1), (6, 2))},
        [(5, 2, 1, 5, 1), (5, 3, 2, 5, 2), (5, 4, 2, 5, 2), (5, 5, 1, 5, 1)],
    ),
    "as-of, forward: after, and not at, the same ts": Case(
        plait.asof(A, B, within=3, exact=False, direction="forward"),
        {"a": rows("ts k", (2, 1), (7, 2)), "b": rows("ts k", (2, 5), (4, 6), (7, 7))},
        [(4, 2, 1, 4, 6), (10, 7, 2, None, None)],
    ),
    "as-of, nearest: decided when nothing closer can come; of two as near it is the one behind": Case(
        plait.asof(A, B, within=4, direction="nearest"),
        {
            "a": rows("ts k", (4, 1), (6, 2), (8, 3), (30, 4)),
            "b": rows("ts k", (2, 5), (8, 6), (8, 7), (28, 8), (32, 9)),
        },
        [(6, 4, 1, 2, 5), (8, 6, 2, 8, 6), (8, 8, 3, 8, 7), (32, 30, 4, 28, 8)],
    ),
    "as-of, nearest: of another ts": Case(
        plait.asof(A, B, within=4, exact=False, direction="nearest", how="inner"),
        {"a": rows("ts k", (4, 1), (6, 2), (30, 3)), "b": rows("ts k", (3, 5), (4, 6), (6, 7), (25, 8))},
        [(5, 4, 1, 3, 5), (8, 6, 2, 4, 6)],
    ),
    "as-of, forward: a moment that no ts can say": Case(
        plait.asof(A, B, within=MOST, exact=False, direction="forward"),
        {"a": rows("ts k", (MOST, 1)), "b": rows("ts k", (MOST, 5))},
        (DataError, "lies beyond 64 bits"),
    ),
    "as-of of a stream with itself: no tuple is its own partner": Case(
        plait.asof(A, A, within=2),
        {"a": rows("ts k", (0, 1), (3, 2), (3, 3))},
        [(0, 0, 1, None, None), (3, 3, 2, 3, 3), (3, 3, 3, 3, 2)],
    ),
    "as-of of a query with itself, forward": Case(
        plait.asof(*(2 * [counted(A, by="k")]), by="k", within=9, direction="forward"),
        {"a": rows("ts k", (0, 1), (5, 1), (5, 2))},
        [
            (7, 3, 0, 4, 1, 1, 7, 4, 8, 1, 1),
            (16, 7, 4, 8, 1, 1, None, None, None, None, None),
            (16, 7, 4, 8, 2, 1, None, None, None, None, None),
        ],
    ),
    "as-of of a query with an equal one: they are one": Case(
        plait.asof(counted(A), counted(A)).select("left_n", "right_n", late="right_window_end"),
        {"a": rows("ts k", (0, 1), (5, 1), (5, 2))},
        [(3, 1, None, None), (7, 2, 1, 4)],
    ),
    "as-of of a filter with an equal one: they are one": Case(
        plait.asof(A.where("k > 0").select("k"), A.where("k > 0").select("k"), within=5, direction="nearest"),
        {"a": rows("ts k", (0, 1), (3, 2), (4, 0), (5, 3))},
        [(3, 1, 2), (5, 2, 3), (7, 3, 2)],
    ),
    "as-of of a stream with some of its rows: that is another one, and a tuple may be its own partner": Case(
        plait.asof(A, A.where("k > 1")),
        {"a": rows("ts k", (0, 1), (3, 2), (4, 0))},
        [(0, 0, 1, None, None), (3, 3, 2, 3, 2), (4, 4, 0, 3, 2)],
    ),
    "a union of one stream in several ways, which have other columns on their way": Case(
        plait.union(A.where("k > 1"), A.select("k"), A.select(k="k + 1").where("k > 2")),
        {"a": rows("ts k", (0, 1), (3, 2))},
        [(0, 1), (3, 2), (3, 2), (3, 3)],
    ),
    "as-of of one stream in two ways, which have other columns": Case(
        plait.asof(A, A.where("k > 1").select(z="k * 2"), within=1, direction="forward"),
        {"a": rows("ts k", (0, 1), (3, 2))},
        [(1, 0, 1, None), (3, 3, 2, 4)],
    ),
    "an operator of one stream in two ways, which have other columns": Case(
        plait.operator(
            [A, A.select(z="k * 2").named("twice")],
            buckets=1,
            route=lambda t: 0,
            state=list,
            process=lambda state, t: [(t.k if t.stream == "a" else t.z,)],
            output={"n": "int64"},
        ),
        {"a": rows("ts k", (0, 1), (3, 2))},
        [(0, 1), (0, 2), (3, 2), (3, 4)],
    ),
    "windows are aligned at 0, half open, and an empty one gives no row": Case(
        counted(A),
        {"a": rows("ts k", (-1, 1), (0, 1), (3, 1), (12, 1))},
        [(-1, -4, 0, 1), (3, 0, 4, 2), (15, 12, 16, 1)],
    ),
    "windows that overlap, rows by key; NULL is a key, and the last": Case(
        counted(A, advance="2us", by="k"),
        {"a": rows("ts k", (0, None), (1, 2), (1, 1))},
        [(1, -2, 2, 1, 1), (1, -2, 2, 2, 1), (1, -2, 2, None, 1), (3, 0, 4, 1, 1), (3, 0, 4, 2, 1), (3, 0, 4, None, 1)],
    ),
    "float sums are exact, whatever the order": Case(
        plait.aggregate(A, size="4us", compute={"s": plait.sum("x"), "m": plait.mean("x")}),
        {"a": rows("ts x", (0, 1e17), (1, 0.25), (2, -1e17), (3, None))},
        [(3, 0, 4, 0.25, 0.25 / 3)],
    ),
    "count windows number the tuples of a key and close at one; one not filled gives no row": Case(
        plait.aggregate(A, size=2, advance=1, by="k", compute={"first": plait.first("i"), "last": plait.last("i")}),
        {"a": rows("ts k i", (0, 1, 10), (1, 2, 20), (2, 1, 11), (3, 1, 12))},
        [(2, 0, 2, 1, 10, 11), (3, 1, 3, 1, 11, 12)],
    ),
    "sessions: a tuple at the gap begins another; rows by end, then by key": Case(
        plait.aggregate(A, session="3us", by="k", compute={"n": plait.count(), "all": plait.collect("i")}),
        {"a": rows("ts k i", (0, 2, 1), (2, 2, 2), (2, 1, 3), (5, 2, 4), (6, 1, 5), (7, 2, 6))},
        [(4, 2, 5, 1, 1, [3]), (4, 0, 5, 2, 2, [1, 2]), (8, 6, 9, 1, 1, [5]), (9, 5, 10, 2, 2, [4, 6])],
    ),
    "quantiles, moments, the most frequent, and functions that see some tuples only": Case(
        plait.aggregate(
            A,
            size="9us",
            compute={
                "p": plait.quantile("k", 0.5),
                "m": plait.median("k"),
                "d": plait.std("k"),
                "c": plait.covar("k", "i"),
                "r": plait.corr("k", "i"),
                "o": plait.mode("k"),
                "low": plait.arg_min("i", "k"),
                "high": plait.arg_max("i", "k"),
                "top": plait.top("i", 2, "k"),
                "some": plait.sum("i", where="k > 3"),
                "those": plait.collect("i", where="k > 3"),
            },
        ),
        {"a": rows("ts k i", (0, 4, 1), (1, 2, 3), (2, 6, 5), (3, 4, 7))},
        [(8, 0, 9, 4, 4.0, 1.632993161855452, 4 / 3, 0.1**0.5, 4, 3, 5, [5, 1], 13, [1, 5, 7])],
    ),
    "ties: by source, then by place": Case(
        plait.aggregate(stream("a", source="src"), size="4us", compute={"all": plait.collect("i")}),
        {"a": rows("ts src i", (0, "b", 1), (0, "a", 2), (0, "b", 3), (0, "a", 4))},
        [(3, 0, 4, [2, 4, 1, 3])],
    ),
    "ties by content: the row itself is its place": Case(
        plait.aggregate(stream("a", seq="content"), size="4us", compute={"all": plait.collect("i")}),
        {"a": rows("ts i", (0, 3), (0, 1), (0, 2))},
        [(3, 0, 4, [1, 2, 3])],
    ),
    "seq of a column": Case(
        plait.aggregate(stream("a", seq="i", disorder="9us"), size="4us", compute={"all": plait.collect("k")}),
        {"a": rows("ts k i", (2, 30, 1), (0, 10, 2), (0, 20, 3))},
        [(3, 0, 4, [10, 20, 30])],
    ),
    "a source may run back by its disorder": Case(
        counted(late("error")), {"a": rows("ts k", (4, 1), (2, 1), (5, 1))}, [(3, 0, 4, 1), (7, 4, 8, 2)]
    ),
    "who runs back further is late: dropped": Case(
        counted(late("drop")), {"a": rows("ts k", (4, 1), (1, 1), (5, 1))}, [(7, 4, 8, 2)]
    ),
    "who runs back further is late: an error": Case(
        counted(late("error")), {"a": rows("ts k", (4, 1), (1, 1), (5, 1))}, (LateError, "ts 1 is late, 3 us behind 4")
    ),
    "late is a fact of its own source": Case(
        counted(stream("a", source="src", sources=["p", "q"])),
        {"a": rows("ts src", (9, "p"), (1, "q"), (10, "p"), (2, "q"))},
        [(3, 0, 4, 2), (11, 8, 12, 2)],
    ),
    "a source that is not declared": Case(
        counted(stream("a", source="src", sources=["p"])),
        {"a": rows("ts src", (9, "z"))},
        (DataError, "'z' is not declared"),
    ),
    "no time": Case(counted(A), {"a": rows("ts k", (None, 1))}, (DataError, "time column 'ts' is NULL")),
    "sources that no column names go by their place in the declaration": Case(
        plait.aggregate(stream("a", sources=2), size="4us", compute={"all": plait.collect("i")}),
        {"a": {0: rows("ts i", (0, 1), (2, 2)), 1: rows("ts i", (0, 3), (1, 4))}},
        [(3, 0, 4, [1, 3, 4, 2])],
    ),
    "an operator: each bucket sees its tuples in order, alone; a timer's rows follow those of its moment": Case(
        plait.operator(
            A,
            buckets=2,
            route=lambda t: t.k % 2,
            state=list,
            process=numbered,
            on_timer=lambda state, at: [(-len(state), at)],
            output={"n": "int64", "at": "int64"},
        ),
        {"a": rows("ts k", (0, 0), (1, 1), (2, 2), (5, 4))},
        [(0, 1, 0), (1, 1, 1), (2, 2, 2), (2, -2, 3), (3, -1, 4), (4, -2, 5), (5, 3, 5), (7, -3, 8)],
    ),
    "rows of nothing": Case(plait.join(A, B, on="l.k = r.k", within=2), {"a": rows("ts k"), "b": rows("ts k")}, []),
    "an aggregate of a join": Case(
        plait.aggregate(
            plait.join(A, B, on="l.k = r.k", within=2),
            size="4us",
            compute={"n": plait.count(), "last": plait.last("b_ts")},
        ),
        NEAR,
        [(3, 0, 4, 1, 2), (7, 4, 8, 2, 7)],
    ),
    "a join of an aggregate: its rows have the time of their window's last moment": Case(
        plait.join(A, counted(B), on="l.k <= r.n", within=0),
        {"a": rows("ts k", (3, 2), (3, 3), (7, 1)), "b": rows("ts k", (0, 5), (2, 5), (6, 5))},
        [(3, 3, 2, 3, 0, 4, 2), (7, 7, 1, 7, 4, 8, 1)],
    ),
    "where leaves out what is unknown, and a stream's rows have their ts in front": Case(
        A.where("k >= 1"), {"a": NEAR["a"]}, [(0, 1), (5, 1), (5, 2)]
    ),
    "a choice: an unknown condition goes on to the next branch": Case(
        A.select(z="CASE WHEN k > 1 THEN 'many' WHEN k > 0 THEN concat('one', '!') END"),
        {"a": NEAR["a"]},
        [(0, "one!"), (5, "one!"), (5, "many"), (9, None)],
    ),
    "a choice of both rows: NULL in it is no reason not to match": Case(
        plait.join(A, B, on="CASE WHEN l.k IS NULL THEN r.k = 2 ELSE l.k = r.k END", within=2),
        NEAR,
        [(2, 0, 1, 2, 1), (5, 5, 1, 3, 1), (7, 5, 2, 7, 2), (9, 9, None, 7, 2)],
    ),
    "text of both rows": Case(
        plait.join(A, B, on=lambda l, r: plait.concat(l.s, r.s).lower() == "ab", within=1),
        {"a": rows("ts s", (0, "a"), (1, "B")), "b": rows("ts s", (0, "b"), (2, None))},
        [(0, 0, "a", 0, "b")],
    ),
    "a choice in an aggregate, by a function of text": Case(
        plait.aggregate(A, size="4us", by={"g": "upper(s)"}, compute={"n": plait.sum("if(k > 1, k, 0)")}),
        {"a": rows("ts k s", (0, 1, "x"), (1, 5, "X"), (2, 3, None))},
        [(3, 0, 4, "X", 5), (3, 0, 4, None, 3)],
    ),
    "select computes, and gives NULL where a value is unknown": Case(
        A.select("k", twice="k * 2", more=lambda row: row.k > 1),
        {"a": NEAR["a"]},
        [(0, 1, 2, False), (5, 1, 2, False), (5, 2, 4, True), (9, None, None, None)],
    ),
    "rows of a join, changed": Case(
        plait.join(A.where("k = 1"), B.rename(n="k"), on="l.k = r.n", within=3)
        .select(gap="b_ts - a_ts")
        .where("gap > 0"),
        NEAR,
        [(2, 2), (3, 3)],
    ),
    "a stream that is read in two ways": Case(
        plait.join(A.where("k = 1"), A.where("k = 2").keep("k"), within=5),
        {"a": NEAR["a"]},
        [(5, 0, 1, 2), (5, 5, 1, 2)],
    ),
    "windows that count see what has passed": Case(
        plait.aggregate(A.where("k = 1"), size=2, compute={"last": plait.last("ts")}), {"a": NEAR["a"]}, [(5, 0, 2, 5)]
    ),
    "a row is late whether it passes or not": Case(
        late("error").where("k > 9"), {"a": rows("ts k", (5, 1), (2, 1))}, (LateError, "ts 2")
    ),
    "late rows are dropped before": Case(
        late("drop").where("k > 1").select(k="k + 1"), {"a": rows("ts k", (5, 2), (2, 3), (6, 3))}, [(5, 3), (6, 4)]
    ),
    "a union comes by ts, then by input": Case(
        plait.union(A, B.where("k >= 1"), A.where("k = 2")),
        NEAR,
        [(0, 1), (2, 1), (3, 1), (5, 1), (5, 2), (5, 2), (7, 2), (9, None)],
    ),
    "an aggregate of expressions": Case(
        plait.aggregate(
            A,
            size="8us",
            by={"odd": "k % 2"},
            compute={"s": plait.sum("k * 10"), "n": plait.sum(lambda row: row.k + 1)},
        ),
        {"a": NEAR["a"]},
        [(7, 0, 8, 0, 20, 3), (7, 0, 8, 1, 20, 4), (15, 8, 16, None, None, None)],
    ),
    "an integer that does not fit is told": Case(
        A.select(z="k * 4"),
        {"a": rows("ts k", (1, MOST))},
        (DataError, "'z' would be 18446744073709551616 in the row at ts 1"),
    ),
    "an operator over rows that were changed, and its results": Case(
        plait.operator(
            A.where("k >= 1"),
            buckets=1,
            route=lambda t: 0,
            state=list,
            process=numbered,
            on_timer=lambda state, at: [(-len(state), at)],
            output={"n": "int64", "at": "int64"},
        )
        .where("n < 0")
        .keep("at"),
        {"a": rows("ts k", (0, 1), (1, 0), (9, 1))},
        [(2, 3), (11, 12)],
    ),
}
