"""Every index against a scan by NumPy, on windows long enough for chains, chunks, budgets and rebuilding to matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core.join.choice import possible
from plait.core.join.window import JoinWindow
from plait.query.condition.predicate import predicate
from plait.query.join import CountWindow, TimeWindow, TumblingWindow, Window

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int32()), ("y", pa.float32())])


def bound(on: Any) -> Any:
    return predicate(on, ("left", "right"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)


CONDITIONS: dict[str, tuple[Any, Any]] = {
    "equality": (lambda l, r: l.k == r.k, lambda l, r: l["k"][:, None] == r["k"]),
    "two bands": (
        lambda l, r: (abs(l.x - r.x) <= 10) & (abs(l.y - r.y) <= 10),
        lambda l, r: (np.abs(l["x"][:, None] - r["x"]) <= 10) & (np.abs(l["y"][:, None] - r["y"]) <= 10),
    ),
    "one band": ("l.x BETWEEN r.x - 1 AND r.x + 2", lambda l, r: _between(l["x"][:, None] - r["x"], -1, 2)),
    "equality and band": (
        lambda l, r: (l.k % 8 == r.k % 8) & (abs(l.x - r.x) <= 20),
        lambda l, r: ((l["k"] % 8)[:, None] == r["k"] % 8) & (np.abs(l["x"][:, None] - r["x"]) <= 20),
    ),
    "inequality": (lambda l, r: l.x > r.x + 990, lambda l, r: l["x"][:, None] > r["x"] + 990),
    "filter and rest": (
        lambda l, r: (l.x > 500) & ((l.x + r.x) % 97 == 0),
        lambda l, r: (l["x"] > 500)[:, None] & ((l["x"][:, None] + r["x"]) % 97 == 0),
    ),
}  # fmt: skip


def _between(values: np.ndarray, low: int, high: int) -> np.ndarray:
    return np.asarray((values >= low) & (values <= high))


def table(random: np.random.Generator, n: int, *, spread: int = 1000) -> pa.RecordBatch:
    values = random.integers(0, 500, n), random.integers(0, spread, n), (random.random(n) * spread).astype(np.float32)
    return pa.record_batch([pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


def truth(
    left: pa.RecordBatch, right: pa.RecordBatch, ts: Any, side: np.ndarray, window: Window, holds: Any
) -> np.ndarray:
    """All pairs at once: (trigger, left, right), sorted by trigger, then partner."""
    at = [np.flatnonzero(side == s) for s in (0, 1)]  # positions in the run
    columns = [{n: b.column(n).to_numpy() for n in SCHEMA.names} for b in (left, right)]
    hit = holds(*columns)
    if isinstance(window, TimeWindow):
        gap = ts[1][None, :] - ts[0][:, None]
        hit &= (gap >= -window.before_us) & (gap <= window.after_us)
    elif isinstance(window, TumblingWindow):
        hit &= (ts[0] // window.size_us)[:, None] == ts[1] // window.size_us
    else:
        # How many tuples of the earlier one's stream lie between it and the later one.
        later = at[0][:, None] > at[1]
        rights_before, lefts_before = np.searchsorted(at[1], at[0]), np.searchsorted(at[0], at[1])
        behind_r = rights_before[:, None] - np.arange(len(at[1])) <= window.count
        behind_l = lefts_before[None, :] - np.arange(len(at[0]))[:, None] <= window.count
        hit &= np.where(later, behind_r, behind_l)
    l, r = np.nonzero(hit)
    trigger = np.maximum(at[0][l], at[1][r])
    partner = np.minimum(at[0][l], at[1][r])
    order = np.lexsort((partner, trigger))
    return np.stack([trigger[order], l[order], r[order]])


def run(join: JoinWindow, side: np.ndarray, tables: Any, ts: Any, batch: int) -> np.ndarray:
    parts, done = [], [0, 0]
    for at in range(0, len(side), batch):
        piece = side[at : at + batch]
        n = [int((piece == s).sum()) for s in (0, 1)]
        pairs = join.process(
            piece,
            (tables[0].slice(done[0], n[0]), tables[1].slice(done[1], n[1])),
            (ts[0][done[0] : done[0] + n[0]], ts[1][done[1] : done[1] + n[1]]),
        )
        parts.append(np.stack([pairs.trigger + at, pairs.left, pairs.right]))
        done = [done[0] + n[0], done[1] + n[1]]
    return np.concatenate(parts, axis=1)


WINDOWS = (TimeWindow(900, 1300), CountWindow(1500), TumblingWindow(2000))


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_index_finds_the_pairs_of_a_scan_in_result_order(name: str) -> None:
    on, holds = CONDITIONS[name]
    random = np.random.default_rng(11)
    n = 7000
    side = random.integers(0, 2, n).astype(np.uint8)
    tables = [table(random, int((side == s).sum())) for s in (0, 1)]
    moments = np.cumsum(random.integers(0, 2, n))  # many ties
    # At equal moments left precedes right: sort inside ties.
    side = side[np.lexsort((side, moments))]
    ts = [moments[side == s] for s in (0, 1)]
    for window in WINDOWS:
        expected = truth(tables[0], tables[1], ts, side, window, holds)
        assert expected.shape[1] > 100
        for kind in ("auto", *possible(JoinWindow(bound(on), SCHEMA, SCHEMA, window).shape)):
            join = JoinWindow(bound(on), SCHEMA, SCHEMA, window, index=kind)
            got = run(join, side, tables, ts, 640)
            assert got.shape == expected.shape, (kind, window)
            assert (got == expected).all(), (kind, window)


@pytest.mark.parametrize("kind", ["hash", "grid", "sorted"])
def test_probes_that_spend_their_budget_are_scanned(kind: str) -> None:
    """One hot key, one crowded box, an inequality nearly all rows meet: the pairs are the same."""
    random = np.random.default_rng(5)
    on = {
        "hash": lambda l, r: (l.k == r.k) & (l.x < r.x - 900),
        "grid": lambda l, r: (abs(l.x - r.x) <= 2000) & (abs(l.y - r.y) <= 1),
        "sorted": lambda l, r: (l.x >= r.x - 990) & (l.k == 7 * r.k),
    }[kind]
    n = 6000
    side = np.tile(np.array([0, 1], np.uint8), n // 2)
    tables = [table(random, n // 2) for _ in (0, 1)]
    hot = pa.array(np.where(random.random(n // 2) < 0.9, 7, random.integers(0, 500, n // 2)))
    tables = [t.set_column(0, "k", hot) for t in tables]
    ts = [np.arange(n // 2)] * 2
    window = CountWindow(2500)
    found = [run(JoinWindow(bound(on), SCHEMA, SCHEMA, window, index=k), side, tables, ts, 512) for k in (kind, "scan")]
    assert found[1].shape[1] > 0
    assert (found[0] == found[1]).all()


def test_a_crowded_index_rests_and_comes_back() -> None:
    random = np.random.default_rng(3)
    on = lambda l, r: (l.k == r.k) & (l.x < r.x - 900)  # noqa: E731
    join = JoinWindow(bound(on), SCHEMA, SCHEMA, CountWindow(4000))
    used = []
    for step in range(60):
        keys = np.full(500, 7) if step < 30 else random.integers(0, 10**6, 500)
        batch = table(random, 500).set_column(0, "k", pa.array(keys, pa.int64()))
        ts = np.full(500, step)
        join.process(np.repeat(np.array([0, 1], np.uint8), 500), (batch, batch), (ts, ts))
        used.append(join.used[0])
    assert used[20:30].count("scan") > used[20:30].count("hash"), used
    assert used[-1] == "hash", used


def test_a_key_that_tells_little_makes_way_for_a_grid() -> None:
    random = np.random.default_rng(3)
    on = lambda l, r: (l.k == r.k) & (abs(l.y - r.y) <= 0.5)  # noqa: E731
    join = JoinWindow(bound(on), SCHEMA, SCHEMA, CountWindow(20_000))
    for step in range(30):
        batch = table(random, 2000).set_column(0, "k", pa.array(random.integers(0, 50, 2000)))
        ts = np.full(2000, step)
        join.process(np.repeat(np.array([0, 1], np.uint8), 2000), (batch, batch), (ts, ts))
    assert join.used == ["grid", "grid"]
    assert any("grid" in line for line in join.describe())


@pytest.mark.parametrize("kind", ["grid", "sorted"])
def test_rounding_does_not_push_a_match_out_of_reach(kind: str) -> None:
    """In float32, 1e8 + 13 is 1e8 + 16: rows three apart from the band's edge match."""
    on = "l.y BETWEEN r.y - 13 AND r.y + 13"
    random = np.random.default_rng(9)
    n = 3000
    y = (1e8 + 8 * random.integers(0, 4000, (2, n))).astype(np.float32)
    tables = [table(random, n).set_column(2, "y", pa.array(values)) for values in y]
    side, ts = np.tile(np.array([0, 1], np.uint8), n), [np.arange(n)] * 2
    found = [
        run(JoinWindow(bound(on), SCHEMA, SCHEMA, CountWindow(n), index=k), side, tables, ts, 500)
        for k in (kind, "scan")
    ]
    apart = np.abs(y[0][found[1][1]].astype(np.float64) - y[1][found[1][2]])
    assert (apart == 16).any()
    assert found[0].shape == found[1].shape
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("kind", ["grid", "sorted", "hash"])
def test_infinities_and_the_largest_floats_match_as_in_a_scan(kind: str) -> None:
    on = "l.y = r.y AND l.y BETWEEN r.y - 13 AND r.y + 13"
    random = np.random.default_rng(9)
    n = 2000
    pool = np.array([np.inf, -np.inf, 3.4028235e38, -3.4028235e38, 1e37, 0.0, -0.0, np.nan], np.float32)
    tables = [table(random, n).set_column(2, "y", pa.array(pool[random.integers(0, len(pool), n)])) for _ in (0, 1)]
    side, ts = np.tile(np.array([0, 1], np.uint8), n), [np.arange(n)] * 2
    found = [
        run(JoinWindow(bound(on), SCHEMA, SCHEMA, CountWindow(60), index=k), side, tables, ts, 500)
        for k in (kind, "scan")
    ]
    assert found[0].shape == found[1].shape
    assert (found[0] == found[1]).all()
