"""Segments and runs: rows that only probe, restored windows, payload, purging and refusals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from plait.core.join.window import JoinWindow
from plait.core.rows import NumberedRows
from plait.errors import QueryError, RunError
from plait.query.condition.predicate import predicate
from plait.query.join import CountWindow, TimeWindow, TumblingCountWindow, TumblingWindow, Window

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
WINDOWS = (TimeWindow(30, 50), CountWindow(40), TumblingWindow(64), TumblingCountWindow(30))


def join(window: Window, on: str = "l.k = r.k", **options: object) -> JoinWindow:
    bound = predicate(on, ("quotes", "trades"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)
    return JoinWindow(bound, SCHEMA, SCHEMA, window, **options)  # type: ignore[arg-type]


def batch(random: np.random.Generator, n: int, keys: int = 9) -> pa.RecordBatch:
    values = random.integers(0, keys, n)
    return pa.record_batch([pa.array(values), pa.array([f"row {v}" for v in values])], schema=SCHEMA)


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("kind", ["scan", "hash"])
def test_workers_that_store_a_share_each_find_all_pairs_together(window: Window, kind: str) -> None:
    """ScaleJoin's layout: every worker sees every tuple and stores its own; none counts another's rows twice."""
    random = np.random.default_rng(2)
    whole = join(window, index=kind)
    workers = [join(window, index=kind) for _ in range(3)]
    now = 0
    for _ in range(12):
        n = int(random.integers(1, 60))
        side = random.integers(0, 2, n).astype(np.uint8)
        moments = now + np.sort(random.integers(0, 20, n))
        now = int(moments[-1]) + 1
        side = side[np.lexsort((side, moments))]
        batches = tuple(batch(random, int((side == s).sum())) for s in (0, 1))
        ts = tuple(moments[side == s] for s in (0, 1))
        owners = [(whole.next_id[s] + np.arange(len(ts[s]))) % 3 for s in (0, 1)]
        expected = whole.process(side, batches, ts)  # type: ignore[arg-type]
        found = []
        for number, worker in enumerate(workers):
            stored = tuple(owners[s] == number for s in (0, 1))
            pairs = worker.process(side, batches, ts, stored=stored)  # type: ignore[arg-type]
            found += list(zip(pairs.trigger.tolist(), pairs.left.tolist(), pairs.right.tolist(), strict=True))
        by_trigger = lambda p: (p[0], p[1] if side[p[0]] else p[2])  # noqa: E731, B023
        truth = list(zip(expected.trigger.tolist(), expected.left.tolist(), expected.right.tolist(), strict=True))
        assert sorted(found, key=by_trigger) == truth


def test_a_restored_window_goes_on_as_if_nothing_had_happened() -> None:
    random = np.random.default_rng(4)
    window = CountWindow(25)
    first, second = batch(random, 40), batch(random, 40)
    side = np.tile(np.array([0, 1], np.uint8), 20)
    ts = np.arange(20)

    def parts(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        return rows.slice(0, 20), rows.slice(20)

    running = join(window)
    running.process(side, parts(first), (ts, ts))
    expected = running.process(side, parts(second), (ts + 20, ts + 20))
    restored = join(window)
    restored.start_at(0, 0)
    restored.process(side, parts(first), (ts, ts), probe=False)
    got = restored.process(side, parts(second), (ts + 20, ts + 20))
    assert (got.left == expected.left).all()
    assert (got.right == expected.right).all()
    late = join(window)
    late.start_at(20, 20)  # as if only the second run were new
    assert late.process(side, parts(second), (ts + 20, ts + 20)).left.min() >= 20
    with pytest.raises(RunError, match="entered this window already"):
        late.start_at(0, 0)


def test_purging_frees_rows_and_payload_and_codes() -> None:
    window = join(TimeWindow(10, 10), "l.s = r.s")
    payload = NumberedRows(SCHEMA)
    random = np.random.default_rng(4)
    for step in range(50):
        rows = batch(random, 20, keys=10**9)
        payload.append(rows)
        ts = np.full(20, 5 * step)
        window.process(np.zeros(20, np.uint8), (rows, rows.slice(0, 0)), (ts, np.zeros(0, np.int64)))
        payload.expire(window.live_from(0))
    assert window.segments[0].live == 60
    assert payload.rows == 60
    assert len(window.interner) <= 80
    window.advance(10**6)
    payload.expire(window.live_from(0))
    assert (window.segments[0].live, payload.rows, len(window.interner)) == (0, 0, 0)


def test_payload_is_taken_in_the_order_asked_for() -> None:
    payload = NumberedRows(SCHEMA)
    every = batch(np.random.default_rng(1), 1000, keys=10**6)
    for at in range(0, 1000, 37):
        payload.append(every.slice(at, 37))
    ids = np.random.default_rng(2).integers(0, 1000, 500)
    assert payload.take(ids).equals(pa.Table.from_batches([every]).take(ids))
    assert payload.take(ids[:0]).num_rows == 0
    payload.expire(500)
    late = ids[ids >= 500]
    assert payload.take(late).equals(pa.Table.from_batches([every]).take(late))
    assert payload.take(np.array([999, 999])).num_rows == 2


def test_runs_out_of_order_are_refused() -> None:
    window = join(TimeWindow(10, 10))
    rows = batch(np.random.default_rng(1), 2)
    none = (rows.slice(0, 0), np.zeros(0, np.int64))
    with pytest.raises(RunError, match="quotes entered a window out of order"):
        window.process(np.zeros(2, np.uint8), (rows, none[0]), (np.array([5, 4]), none[1]))
    window.process(np.zeros(2, np.uint8), (rows, none[0]), (np.array([5, 5]), none[1]))
    with pytest.raises(RunError, match="out of order"):
        window.process(np.zeros(2, np.uint8), (rows, none[0]), (np.array([4, 6]), none[1]))


def test_an_index_that_cannot_serve_is_refused() -> None:
    with pytest.raises(QueryError, match="holds no band"):
        join(CountWindow(3), index="grid")
    with pytest.raises(QueryError, match="is no index"):
        join(CountWindow(3), index="btree")


def test_a_run_with_very_many_pairs_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.core.join.window._STEP_PAIRS", 1000)
    every, one = join(CountWindow(300)), join(CountWindow(300))
    random = np.random.default_rng(1)
    left, right, ts = batch(random, 9000, 2), batch(random, 9000, 2), np.arange(9000)
    side = np.tile(np.array([0, 1], np.uint8), 9000)
    pieces = list(one.pieces(side, (left, right), (ts, ts)))
    assert max(len(piece) for piece in pieces[2:]) < 64 * 400
    whole = every.process(side, (left, right), (ts, ts))
    assert (np.concatenate([piece.trigger for piece in pieces]) == whole.trigger).all()
    assert (np.concatenate([piece.left for piece in pieces]) == whole.left).all()
    assert (whole.trigger[1:] >= whole.trigger[:-1]).all()


def test_an_empty_run() -> None:
    window = join(CountWindow(3))
    rows = batch(np.random.default_rng(1), 0)
    none = np.zeros(0, np.int64)
    assert len(window.process(np.zeros(0, np.uint8), (rows, rows), (none, none))) == 0


def test_integers_leave_64_bits_and_come_back() -> None:
    """A rogue value makes the window judge pairs by Python's integers; once it has expired, kernels return."""
    window = join(CountWindow(600), "l.k * 4 - r.k * 4 BETWEEN -8 AND 8")
    calm = pa.record_batch([pa.array(np.arange(200)), pa.array([""] * 200)], schema=SCHEMA)
    rogue = pa.record_batch([pa.array([2**62] * 2), pa.array([""] * 2)], schema=SCHEMA)
    side = np.repeat(np.array([0, 1], np.uint8), 200)
    results, kernels = [], []
    for step in range(60):
        rows, flags = (rogue, np.array([0, 1, 0, 1], np.uint8)) if step == 3 else (calm, side)
        ts = np.full(rows.num_rows, step)
        results.append(len(window.process(flags, (rows, rows), (ts, ts))))
        kernels.append(window.matcher._kernel() is not None)
    assert kernels[2]
    assert not kernels[3]
    assert kernels[-1]
    assert results[3] == 4  # the rogues meet each other: 2**64 * 4 is exact
    assert results[-1] == results[20]
