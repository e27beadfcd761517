"""What so many executors are projected to be sent and to hold is what their cells, run in this process, are sent and hold."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
import plait.connectors
from plait.query.join import Join
from plait.spark.keep import projection
from plait.spark.keep.counting import Counted, counted
from plait.spark.keep.projection import Projected, lines, projected

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
#: Windows that hold all rows: what is dealt out anew is then all that came.
ALL = 10**9


def feeds(left: int = 12_000, right: int = 5_000, *, hot: float = 0.0, seed: int = 7) -> dict[str, Any]:
    """Two streams of different rates: a key of a hundred, of which one may be hot, and a value in a wide range."""
    chance, found = np.random.default_rng(seed), {}
    for stream, rows in ((A, left), (B, right)):
        key = np.where(chance.random(rows) < hot, 0, chance.integers(0, 100, rows))
        columns = {"ts": np.sort(chance.integers(0, 1_000_000, rows)), "k": key, "x": chance.random(rows) * 1e5}
        found[stream.name] = plait.connectors.feed(stream, pa.table(columns))
    return found


NEAR = plait.join(A, B, on="l.k = r.k and abs(l.x - r.x) <= 20", within=ALL)
QUERIES: dict[str, Any] = {
    "inner": NEAR,
    "left": plait.join(A, B, on="l.k = r.k and abs(l.x - r.x) <= 20", within=ALL, how="left"),
    "right": plait.join(A, B, on="abs(l.x - r.x) <= 20", within=ALL, how="right"),
    "full": plait.join(A, B, on="l.k = r.k", within=ALL, how="full"),
    "as-of": plait.asof(A, B, by="k", within=ALL),
    "counts": plait.join(A, B, on="abs(l.x - r.x) <= 20", last=1_000_000),
}
KINDS = {
    "inner": ["grid", "hash", "band", "see_all"], "left": ["grid", "hash", "band"], "right": ["grid", "band"], "full": ["hash"],
    "as-of": ["grid", "hash"], "counts": ["see_all"],
}  # fmt: skip


def asked(query: Any, kind: str) -> str:
    return {
        "grid": "auto",
        "band": "band",
        "see_all": "see_all",
        "hash": "auto" if query is QUERIES["full"] else "hash",
    }[kind]


def really(query: Any, made: Projected) -> Counted:
    """The same cells, run."""
    layout = "auto" if query is QUERIES["counts"] else asked(query, made.layout.kind)
    (found,) = counted(query, feeds(), layout=layout, cells=made.layout.cells)
    assert (found.layout.kind, found.layout.rows) == (made.layout.kind, made.layout.rows)
    return found


def compare(made: Projected, found: Counted, tuples: int) -> None:
    told = f"{made.layout.describe()} of {made.layout.cells}"
    assert made.copies * tuples == pytest.approx(found.counts.copies, rel=1e-12), told
    assert made.bytes * tuples == pytest.approx(found.counts.shuffled_bytes, rel=0.1), told
    # An as-of join's cells do not hold all that came, which would be dealt out anew.
    dealt = made.layout.kind in ("hash", "band") and isinstance(found.bound.node, Join)
    even = 1e-12 if dealt else 0.1
    assert made.busiest * tuples == pytest.approx(max(own.copies for own in found.own), rel=even), told
    held = [plait.spark.formats.Manifest.load(cell[-1]) for cell in found.cells]
    if isinstance(found.bound.node, Join) and made.layout.kind != "see_all":
        assert made.held == pytest.approx(max(each.held for each in held), rel=even), told
        size = max(sum(chunk.size for chunk in each.chunks) for each in held)
        assert made.held_bytes == pytest.approx(size, rel=0.15), told


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_projected_is_what_is_counted(name: str) -> None:
    """From the counts of one cell to 1, 2, 4, 6 and 9 of them, in every layout that the condition allows."""
    query = QUERIES[name]
    (one,) = counted(query, feeds())
    for executors in (1, 2, 4, 6, 9):
        made = projected(one, executors)
        assert sorted({each.layout.kind for each in made}) == sorted(KINDS[name])
        for each in made:
            compare(each, really(query, each), 17_000)


@pytest.mark.parametrize(("kind", "cells"), [("grid", 6), ("hash", 3), ("band", 4), ("see_all", 3)])
def test_it_does_not_matter_in_which_layout_it_was_counted(kind: str, cells: int) -> None:
    (found,) = counted(NEAR, feeds(), layout=asked(NEAR, kind), cells=cells)
    for executors in (1, 4):
        for made in projected(found, executors):
            compare(made, really(NEAR, made), 17_000)


def test_a_stream_with_other_rates_swaps_rows_and_columns() -> None:
    """Of a grid that is not square: a mistaken side would show, since the left stream has twice as many tuples."""
    (one,) = counted(NEAR, feeds())
    (grid,) = [each for each in projected(one, 6) if each.layout.kind == "grid"]
    rows, columns = grid.layout.rows, grid.layout.columns
    assert rows != columns
    assert grid.copies == (12_000 * columns + 5_000 * rows) / 17_000
    assert grid.busiest == pytest.approx((12_000 / rows + 5_000 / columns) / 17_000)


def test_where_each_layout_stops() -> None:
    (even,), (hot,) = (counted(NEAR, feeds(hot=share)) for share in (0, 0.6))
    said = {each.layout.kind: each.stops for each in projected(even, 4)}
    assert said["grid"].startswith("Copies grow with the square root of the executors")
    assert "Every executor gets every tuple" in said["see_all"]
    assert said["band"].startswith("Copies do not grow. The hottest range has 0.")
    assert "until plait.spark.relayout splits it" in said["band"]
    assert "The hottest value has 1." in said["hash"]
    assert "more than about 8" in said["hash"], "a hundred keys; the hottest one has more than its share"
    said = {each.layout.kind: each.stops for each in projected(hot, 4)}
    assert "The hottest value has 60." in said["hash"]
    assert "more than about 2 executors do not help, and it is never split" in said["hash"]
    linear = {each.layout.kind: each.stops for each in projected(counted(QUERIES["left"], feeds())[0], 4)}
    assert linear["grid"].startswith("Every executor gets all tuples of b, 29% of all")
    seven = {each.layout.kind: each.stops for each in projected(even, 7)}
    assert "7 make no square: 4 executors (2x2) would copy less" in seven["grid"]


def test_heads_weigh_more_than_tuples_from_so_many_on() -> None:
    """At the number that is told, by value, half of the bytes are those of packed rows without their rows."""
    (one,) = counted(NEAR, feeds(left=2_000, right=2_000))
    (by_hash,) = [each for each in projected(one, 2) if each.layout.kind == "hash"]
    number = int(by_hash.stops.partition("from about ")[2].partition(" ")[0].replace(",", ""))
    seen = projection._seen(one)
    (there,) = [each for each in projected(one, number) if each.layout.kind == "hash"]
    assert there.bytes == pytest.approx(2 * seen.each, rel=0.15)


def test_operators_of_other_kinds_and_queries_of_queries() -> None:
    counts = plait.aggregate(A, size="100ms", by="k", compute={"n": plait.count()})
    near = plait.asof(plait.dedup(A, by="k", within=50), B, by="k", within=ALL)
    routed = plait.operator(
        A, buckets=5, route=lambda t: t.k % 5, state=int, process=lambda state, t: [], output={"n": "int64"}
    )
    for query, operators, words in (
        (counts, 1, ["A key's tuples are folded", "more than 100 executors have none of their own"]),
        (near, 2, ["(operator 1)", "its hottest key"]),
        (routed, 1, ["A bucket is in one cell: more than 5 executors, one for each bucket, have nothing to do"]),
        (plait.union(A.select("k"), B.select("k")), 1, ["No tuple is copied"]),
    ):
        own = {name: feed for name, feed in feeds().items() if name in query.streams()}
        found = counted(query, own)
        assert len(found) == operators
        text = "\n".join(lines(found, 4, "x.toml"))
        for each in words:
            assert each in text
        for number, each in enumerate(found):
            for made in projected(each, 4):
                if made.layout.kind in ("hash", "buckets") and number == operators - 1:
                    again = counted(query, own, cells=4)[number]
                    assert made.copies * sum(each.counts.copies_by_input.values()) == pytest.approx(
                        again.counts.copies
                    ), text


@pytest.mark.parametrize("each", [1, 2, 3, 6])
def test_tuples_for_several_buckets_go_to_the_cells_that_have_them(each: int) -> None:
    """Exactly where a tuple is for one bucket or for all, and nearly where it is for any two or three of six."""
    some = list(itertools.combinations(range(6), each))
    several = plait.operator(
        A,
        buckets=6,
        route=lambda t: some[int(t.x) % len(some)],
        state=int,
        process=lambda state, t: [],
        output={"n": "int64"},
    )
    given = {"a": feeds(left=3_000)["a"]}
    near = 1e-6 if each in (1, 6) else 0.05
    for had in (1, 4):
        (one,) = counted(several, given, cells=had)
        for cells in (1, 2, 4, 6):
            (made,) = projected(one, cells)
            (again,) = counted(several, given, cells=cells)
            assert made.copies * 3_000 == pytest.approx(again.counts.copies, rel=near), (had, cells)
            assert made.busiest * 3_000 == pytest.approx(max(own.copies for own in again.own), rel=0.15), (had, cells)


def test_no_rows_are_nothing_to_go_by() -> None:
    none = {
        s.name: plait.connectors.feed(s, pa.table({n: pa.array([], pa.int64()) for n in ("ts", "k", "x")}))
        for s in (A, B)
    }
    found = counted(NEAR, none)
    assert lines(found, 4, "x")[1:] == ["  nothing has come to the cells: there is nothing to go by"]


def test_only_the_first_rows_are_looked_at() -> None:
    read = itertools.count()
    feed = feeds()["a"]

    def chunks() -> Any:
        for chunk in feed.lanes[0].read():
            next(read)
            yield chunk

    lane = plait.connectors.Lane(feed.lanes[0].source, chunks)
    given = {"a": plait.connectors.Feed(feed.schema, (lane,), 10**9), "b": feeds()["b"]}
    (found,) = counted(NEAR, given, rows=2_000)
    assert found.counts.copies_by_input == {"0": 2_000, "1": 2_000}
    assert next(read) == 1
