"""Windows that slide over panes, in `panes` itself: what running totals, lists of slots and orders of keys may get wrong.

Keys come and go, so that groups are forgotten and their numbers used again; values have every exponent, NaN and infinities among
them; and the limits at which things are done another way are set so low that all of it happens in a few thousand tuples.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same

import plait
from plait.core.aggregate import groups as pane_groups
from plait.core.aggregate import panes, span, sums
from plait.query.bind import bind

# The reference's windows are the same for either limit.
pytestmark = pytest.mark.xdist_group("sliding")

STREAM = plait.stream("s", unit="us")
COMPUTE = {
    "n": plait.count(), "some": plait.count_where("x > 0"), "sum": plait.sum("x"), "mean": plait.mean("x"), "var": plait.var("x"),
    "total": plait.sum("k"), "first": plait.first("x"), "last": plait.last("x"), "where": plait.first_where("k", "x > 1"),
    "low": plait.min("x"), "all": plait.collect("k"), "text": plait.last("t"),
}  # fmt: skip
WINDOWS = [("300us", "30us"), ("100us", "70us"), ("40us", "40us"), ("30us", "90us"), ("500us", "7us")]


def tuples(rows: int, seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    gaps = dice.choice((0, 1, 2, 5, 400), rows, p=(0.2, 0.4, 0.3, 0.09, 0.01))
    x = dice.standard_normal(rows) * 10.0 ** dice.integers(-300, 300, rows)
    x[dice.random(rows) < 0.9] = 0.1
    odd = dice.random(rows) < 0.02
    x[odd] = dice.choice((np.nan, np.inf, -np.inf, -0.0), int(odd.sum()))
    known, passing = dice.integers(0, 20, rows), np.arange(rows) // 3
    return pa.table({
        "ts": np.cumsum(gaps), "k": np.where(dice.random(rows) < 0.5, known, passing),
        "x": pa.array(x, mask=dice.random(rows) < 0.05), "t": pa.array([f"t{n}" for n in dice.integers(0, 9, rows)]),
    })  # fmt: skip


@pytest.fixture(params=["sorted by group", "sorted by row"])
def low_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span, "FIRST", 4)
    monkeypatch.setattr(span, "WINDOWS", 3)
    monkeypatch.setattr(span, "FEW_SLOTS", 1 << 40 if request.param == "sorted by group" else 0)
    monkeypatch.setattr(pane_groups, "FIRST", 4)
    monkeypatch.setattr(sums.Sum, "CARRY_AFTER", 50)


@functools.cache
def judged(window: tuple[str, str], by: tuple[str, ...]) -> tuple[pa.Table, plait.Query, pa.Table]:
    """Tuples, a query, and the reference's windows: the same for either limit."""
    # Of the last a tuple is in 71 windows: fewer tuples will do.
    table = tuples(200 if window == WINDOWS[-1] else 400, WINDOWS.index(window))
    query = plait.aggregate(STREAM, size=window[0], advance=window[1], by=list(by), compute=COMPUTE)
    return table, query, query.reference({"s": table})


@pytest.mark.crossed
@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize("by", [("k",), ("t", "k"), ()])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_those_of_the_reference(window: tuple[str, str], by: tuple[str, ...]) -> None:
    seed = WINDOWS.index(window)
    table, query, expected = judged(window, by)
    made = panes.pane_windows(bind(query, {"s": table.schema}))
    ts, out, at = table.column("ts").to_numpy(), [], 0
    dice = np.random.default_rng(seed)
    while at < table.num_rows:
        size = int(dice.choice((1, 5, 60, 400)))
        part = table.slice(at, size)
        at += part.num_rows
        frontier = int(ts[at]) if at < table.num_rows else int(ts[-1])
        out += made.take_rows(part, ts[at - part.num_rows : at], frontier)
    out += made.end()
    rows = pa.Table.from_batches([c.rows for c in out], made.schema)
    assert_same(rows, expected)


def test_a_limb_that_was_carried_stays_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running totals are carried when slots are: else they would keep, of every slot, what was carried there."""
    monkeypatch.setattr(sums.Sum, "CARRY_AFTER", 64)
    rows = 4000
    table = pa.table({"ts": np.arange(rows), "x": np.full(rows, 1e16 + 2)})
    query = plait.aggregate(STREAM, size="64us", advance="16us", compute={"sum": plait.sum("x")})
    made = panes.pane_windows(bind(query, {"s": table.schema}))
    ts = table.column("ts").to_numpy()
    for at in range(0, rows, 16):
        made.take_rows(table.slice(at, 16), ts[at : at + 16], at + 16)
    (total,) = made.accumulators
    assert isinstance(total, sums.Sum)
    assert np.abs(total._running).max() < 200 << 32


def test_panes_of_windows_that_are_skipped_leave_the_totals_too() -> None:
    table = tuples(600, 7)
    query = plait.aggregate(
        STREAM, size="300us", advance="30us", by=["k"], compute={"n": plait.count(), "sum": plait.sum("x")}
    )
    made = span.SpanPanes(bound := bind(query, {"s": table.schema}), bound.node.window)  # type: ignore[union-attr]
    ts = table.column("ts").to_numpy()
    begun, middle, gone = 200, 300, int(ts[200])
    made.take_rows(table.slice(0, begun), ts[:begun], gone)
    made.skip(gone + 200)  # windows that end up to here are out already, as far as this one is told
    assert made.close(gone) == []
    out = made.take_rows(table.slice(begun, middle), ts[begun : begun + middle], int(ts[begun + middle]))
    out += made.take_rows(table.slice(begun + middle), ts[begun + middle :], int(ts[-1]))
    out += made.end()
    rows = pa.Table.from_batches([c.rows for c in out], made.schema)
    expected = query.reference({"s": table})
    later = expected.column("window_end").to_numpy() > gone + 200
    assert_same(rows, expected.filter(pa.array(later)))
