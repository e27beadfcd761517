"""Latency from the push, of every operator: each result's clock starts at the push of the last tuple that it is made of.

What a run notes is taken from `Latency.note`, what was pushed when from `Pusher._push`; which tuple is a result's last one is
said here again, by definition.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.threads.aggregate import results as aggregate_results
from plait.threads.aggregate.hive.tallies import HivePusher
from plait.threads.input.payload import Pushes
from plait.threads.input.push import Pusher
from plait.threads.stats import Last, Latency

SECOND = 1_000_000


@pytest.fixture
def noted(monkeypatch):
    """(ts, pushed_ns) of every result that a run notes, and of every push its stream, source, ts, moment and column k."""
    results: list[tuple[int, int]] = []
    pushes: list[tuple[str, Any, np.ndarray, int, list[int]]] = []
    note, push = Latency.note, Pusher._push

    def noting(self, ts, pushed_ns, now):
        results.extend(zip(ts.tolist(), pushed_ns.tolist(), strict=True))
        note(self, ts, pushed_ns, now)

    def pushing(self, intake, part, pushed_ns):
        pushes.append((intake.stream.name, part.name, part.ts, pushed_ns, part.batch.column("k").to_pylist()))
        push(self, intake, part, pushed_ns)

    monkeypatch.setattr(aggregate_results, "NOTED", 1 << 30)  # of an operator's and an aggregate's, all
    for kind in (Pusher, HivePusher):
        monkeypatch.setattr(kind, "_pushed_at_once", lambda *_: 0)  # all by one way, which is looked at here
    monkeypatch.setattr(Latency, "note", noting)
    monkeypatch.setattr(Pusher, "_push", pushing)
    return results, pushes


def played(query, seed: int, *, streams=("readings",), sources=("a", "b"), disorder: int = 0, **options):
    """Rows of several sources, a few a push, while results are read."""
    dice = random.Random(seed)
    rows: list[dict[str, Any]] = []
    clocks = {(name, source): 0 for name in streams for source in sources}
    with query.on_threads(**options) as run:
        for _ in range(60):
            name, source = dice.choice(list(clocks))
            n = dice.randint(1, 6)
            ts = []
            for _ in range(n):
                clocks[name, source] += dice.choice((0, 0, SECOND // 3, SECOND))
                ts.append(clocks[name, source] - (dice.randint(0, disorder) if disorder else 0))
            run.push(name, source, {"ts": ts, "k": [dice.randint(0, 2) for _ in ts]})
            rows += [row for batch in run.results(timeout_s=0) for row in batch.to_pylist()]
        run.drain()
        rows += [row for batch in run.results() for row in batch.to_pylist()]
        return rows, run.stats()


def tuples(pushes) -> list[tuple[int, Any, int, int, int]]:
    """What was pushed, in total order: ts, source, position, moment, k."""
    at: Counter[Any] = Counter()
    found = []
    for _, source, ts, moment, keys in pushes:
        for each, key in zip(ts.tolist(), keys, strict=True):
            at[source] += 1
            found.append((each, source, at[source], moment, key))
    return sorted(found)


def readings(**said):
    return plait.stream("readings", unit="us", sources=["a", "b"], **said)


def counted(stream, **said):
    return plait.aggregate(stream, size="2s", advance="1s", compute={"n": plait.count()}, **said)


@pytest.mark.parametrize(
    "options",
    [{"strategy": "tuml_sc"}, {"strategy": "tuml_sc", "batch": 1}, {"strategy": "tuml_mc", "workers": 2},
     {"strategy": "wiml"}, {"strategy": "wiml_shared"}, {"elastic": 3, "workers": 2}],
    ids=lambda options: "-".join(map(str, options.values())),
)  # fmt: skip
@pytest.mark.parametrize("disorder", [0, SECOND])
def test_a_window_from_the_push_of_its_last_tuple(noted, options, disorder):
    results, pushes = noted
    said = {"disorder": disorder} if disorder else {}
    _, stats = played(counted(readings(**said), by="k"), 7, disorder=disorder, **options)
    came = tuples(pushes)
    assert results
    for ts, moment in results:
        assert moment == max(each for each in came if each[0] <= ts)[3]
    assert stats.latency_from_push_ms.samples == len(results)


def test_a_push_is_remembered_until_its_pane_is_taken(noted):
    """A frontier within a pane lets go of what lies below it, but for what the pane will still ask for."""
    results, pushes = noted
    query = plait.aggregate(readings(schema={"ts": "int64", "k": "int64"}), size="10s", compute={"n": plait.count()})
    with query.on_threads(strategy="wiml") as run:
        run._engine.together.onward = True  # as if another operator were to hear of every step
        for source, second in (("a", 1), ("a", 2), ("b", 12)):
            run.push("readings", source, {"ts": [second * SECOND], "k": [0]})
        before = run.stats().workers[0].batches
        run.heartbeat("readings", "a", 9 * SECOND)
        until = time.monotonic() + 10
        while run.stats().workers[0].batches == before and time.monotonic() < until:
            time.sleep(0.001)
        run.push("readings", "b", {"ts": [13 * SECOND], "k": [0]})
        run.heartbeat("readings", "a", 11 * SECOND)
        run.drain()
        assert run.table().column("n").to_pylist() == [2, 2]
    assert results[0] == (10 * SECOND - 1, pushes[1][3])


def test_a_window_of_tuples_from_the_push_of_the_one_that_closes_it(noted):
    results, pushes = noted
    query = plait.aggregate(readings(), size=3, advance=2, by="k", compute={"n": plait.count()})
    played(query, 8)
    moments = {(ts, moment) for ts, _, _, moment, _ in tuples(pushes)}
    assert results
    assert set(results) <= moments, "its ts and its push are of one tuple"


def wake(state, at):
    yield {"n": len(state)}


def see(state, t):
    state.append(t.k)
    if t.k == 0:
        yield plait.timer(t.ts + 2 * SECOND)
    if t.k == 1:
        yield {"n": -len(state)}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_operator_from_the_push_of_the_tuple_or_of_the_last_one_before_its_timer(noted, workers):
    results, pushes = noted
    query = plait.operator(readings(), buckets=4, route=lambda t: t.k, state=list, process=see, on_timer=wake,
                           output={"n": pa.int64()})  # fmt: skip
    rows, _ = played(query, 9, workers=workers, plain=True)
    came = tuples(pushes)
    own = {(ts, moment) for ts, _, _, moment, key in came if key == 1}
    assert all(each in own or each[1] == max(one for one in came if one[0] <= each[0])[3] for each in results)
    if len(results) < len(rows):
        return  # of many that come at once, as on a busy machine, only some are noted
    timed = [row["n"] > 0 for row in rows]
    assert any(timed), "and some are of tuples"
    called = [each for each, timer in zip(results, timed, strict=True) if not timer]
    assert called == [(ts, moment) for ts, _, _, moment, key in came if key == 1]
    for ts, moment in (each for each, timer in zip(results, timed, strict=True) if timer):
        assert moment == max(each for each in came if each[0] <= ts)[3]


def test_through_a_query_of_queries_from_the_push_to_a_stream(noted):
    results, pushes = noted
    inner = counted(readings(), by="k")
    query = plait.aggregate(inner, size="3s", compute={"rows": plait.count()})
    played(query, 10)
    came = tuples(pushes)
    outer = [each for each in results if (each[0] + 1) % (3 * SECOND) == 0]
    assert outer
    for ts, moment in results:
        assert moment == max(each for each in came if each[0] <= ts)[3]


def test_a_join_inside_carries_its_later_tuples_push(noted):
    results, pushes = noted
    left, right = (plait.stream(name, unit="us", sources=["a"]) for name in ("lefts", "rights"))
    joined = plait.join(left, right, on=lambda r, s: r.k == s.k, within=2 * SECOND)
    query = plait.aggregate(joined, size="2s", compute={"pairs": plait.count()})
    played(query, 11, streams=("lefts", "rights"), sources=("a",))
    by_ts: dict[int, set[int]] = {}
    for _, _, ts, moment, _ in pushes:
        for each in ts.tolist():
            by_ts.setdefault(each, set()).add(moment)
    windows = {each for each in results if (each[0] + 1) % (2 * SECOND) == 0}
    assert windows
    pairs = sorted(each for each in results if each not in windows)
    for ts, moment in pairs:
        assert moment in by_ts[ts]
    for ts, moment in windows:
        # Of many pairs that come at once only some are noted: the window's last one may be later than the last of these.
        last = max(each for each, _ in pairs if each <= ts)
        assert any(moment in moments for each, moments in by_ts.items() if last <= each <= ts)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=20), st.data())
def test_steps_of_pushes_are_a_moment_for_every_row(runs, data):
    log, kept, first = Pushes(), {}, 0
    for moment, n in runs:
        moments = [data.draw(st.integers(0, 2)) for _ in range(n)]
        if n and data.draw(st.booleans()):
            log.note(first, np.array(moments))
        else:
            moments = [moment] * n
            log.note(first, moment)
        kept |= {first + k: each for k, each in enumerate(moments)}
        first += n
    if first:
        low = data.draw(st.integers(0, first - 1))
        log.forget(low)
        for numbers in (np.arange(low, first), np.resize(np.arange(low, first), 100)):
            assert log.of(numbers).tolist() == [kept[n] for n in numbers.tolist()]


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=5))
def test_the_last_tuple_before_a_moment(batches):
    last, all_ts, base = Last(), [], 0
    for batch in batches:
        ts = np.sort(np.array([base + each for each in batch], np.int64))
        first = len(all_ts)
        all_ts += ts.tolist()
        last.took(ts, lambda at, first=first: at + first)
        rows = np.arange(base, base + 12)
        found = last.pushed_ns(rows)
        for row, at in zip(rows.tolist(), found.tolist(), strict=True):
            below = [k for k, each in enumerate(all_ts) if each <= row]
            assert not below or at == below[-1]
        last.moved_on()
        base += 10


def test_a_result_that_came_before_the_frontier_was_told_is_ready_when_it_came():
    """However late it is looked up: the frontier may have passed it by then."""
    told = Latency()
    told.advanced(10, 1_000_000)
    told.note(np.array([5, 10]), np.array([0, 0]), 3_000_000)
    told.advanced(20, 9_000_000)
    push, ready = told.quantiles()
    assert (push.p50, push.samples) == (3.0, 2)
    assert (ready.max, ready.p50) == (2.0, 1.0)  # of 5 since the frontier passed it; of 10 none had


def test_what_was_noted_is_found_before_its_frontier_is_forgotten():
    told = Latency()
    told.advanced(10, 1_000_000)
    told.note(np.array([5]), np.array([0]), 3_000_000)
    for k in range(1 << 16):
        told.advanced(11 + k, 4_000_000 + k)
    assert told.quantiles()[1].max == 2.0


def test_samples_from_before_a_reset_do_not_count():
    quotes, trades = (
        plait.stream(name, unit="s", schema={"ts": "int64", "k": "int64"}) for name in ("quotes", "trades")
    )
    with plait.join(quotes, trades, on="quotes.k = trades.k", within="5s").on_threads(workers=1) as run:
        for at in (0, 100):
            for name in ("quotes", "trades"):
                run.push(name, None, {"ts": [at + k for k in range(10)], "k": [1] * 10})
            next(run.results())
            if at == 0:
                run.reset_latency()
        list(run.results(timeout_s=0.01))
        found = run.stats().stage_latency_ms
    # One batch of the worker's each time; of its sampled tuple results may still be to come.
    assert found["visiting"].samples == 1
    assert found["execution"].samples <= 1
