"""Compiled gates, called one by one: order, readiness, limits, elasticity; and the gate that a run holds."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.explore.called_gate import KINDS, CalledGate, rank

from plait.errors import DataError, QueryError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.gate import RingGate, SkipListGate, codes
from plait.threads.gate.gates import MOST_SLOTS

EITHER = pytest.mark.parametrize("kind", KINDS)
OF_A_RUN = pytest.mark.parametrize("make", [SkipListGate, RingGate])


def everything(gate: CalledGate, reader: int = 0, most: int = 7) -> list[tuple[int, int, int]]:
    out: list[tuple[int, int, int]] = []
    while (ready := gate.read(reader, most)) is not None:
        assert len(ready.ts) > 0, "nothing is ready, and there is no end"
        out += ready.rows()
    return out


@EITHER
def test_ties_follow_input_then_position_then_seq(kind):
    gate = CalledGate(kind, [(1, 0), (0, 1), (0, 0)])
    for source in (0, 1, 2):
        gate.add(source, [5, 5])
        gate.end(source)
    ranks = [rank((0, 0)), rank((0, 1)), rank((1, 0))]
    assert everything(gate) == [(5, origin, seq) for origin in ranks for seq in (0, 1)]


@EITHER
def test_nothing_is_given_before_it_is_ready(kind):
    gate = CalledGate(kind, 2)
    gate.add(0, [1, 2, 3])
    assert len(gate.read().ts) == 0, "the second source has not spoken"
    assert gate.frontier() == (-(2**63), 1)
    gate.add(1, [2])
    assert gate.read().ts.tolist() == [1], "ts 2 equals the frontier: the second source may bring another"
    gate.heartbeat(1, 3)
    assert gate.read().ts.tolist() == [2, 2]
    gate.end(1)
    assert len(gate.read().ts) == 0, "the first source may bring another ts 3"
    gate.end(0)
    assert gate.read().ts.tolist() == [3]
    assert gate.read() is None


@EITHER
def test_a_read_sleeps_until_something_is_ready(kind):
    gate = CalledGate(kind, 1)
    timer = threading.Timer(0.1, lambda: gate.add(0, [1, 2]))
    timer.start()
    start = time.monotonic()
    assert gate.read(timeout_s=10).ts.tolist() == [1]
    assert time.monotonic() - start < 5
    assert len(gate.read(timeout_s=0.02).ts) == 0


@EITHER
@given(data=st.data())
@settings(max_examples=examples(40))
def test_as_a_sort_whatever_the_batches(kind, data):
    sources = data.draw(st.integers(1, 5))
    gate = CalledGate(kind, sources, readers=2, capacity=50, pending=200)
    sent = []
    for source in range(sources):
        steps = data.draw(st.lists(st.integers(0, 4), max_size=20))
        ts = np.cumsum(np.array([0, *steps]))[1:]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(ts)), max_size=3)))
        for part in np.split(ts, cuts):
            if len(part):
                gate.add(source, part.tolist())
        gate.end(source)
        sent += [(int(t), source, seq) for seq, t in enumerate(ts)]
    most = data.draw(st.integers(1, 9))
    assert everything(gate, 0, most) == everything(gate, 1, most) == sorted(sent)


@EITHER
def test_what_breaks_a_sources_order_is_refused_whole(kind):
    gate = CalledGate(kind, 1)
    assert gate.offer(0, [10, 12]) == 2
    assert gate.offer(0, [11]) == codes.LATE
    assert gate.offer(0, [13, 12]) == codes.LATE
    assert gate.offer(0, [13, 13], seq=[9, 7]) == codes.UNSORTED
    gate.heartbeat(0, 50)
    assert gate.offer(0, [49]) == codes.LATE
    gate.end(0)
    assert [ts for ts, _, _ in everything(gate)] == [10, 12]


@EITHER
def test_too_many_unready_tuples_are_stuck(kind):
    gate = CalledGate(kind, 2, pending=10)
    gate.add(1, [4])
    assert gate.offer(0, range(5, 25)) == 10
    assert gate.add(0, range(15, 25)) == codes.STUCK
    assert gate.frontier() == (4, 1)
    gate.heartbeat(1, 100)
    assert gate.add(0, range(15, 25)) == 10
    gate.end(0)
    gate.end(1)
    assert [ts for ts, _, _ in everything(gate)] == [4, *range(5, 25)]


@EITHER
def test_ready_tuples_hold_the_source_back(kind):
    gate = CalledGate(kind, 1, capacity=4, pending=2)
    assert gate.offer(0, range(20)) == 5, "four ready and unread, and the last, which is not ready"
    assert gate.offer(0, [5]) == codes.FULL
    assert gate.read(0, 2).ts.tolist() == [0, 1]
    assert gate.offer(0, range(5, 20)) == 2
    assert gate.offer(0, [9]) == codes.FULL


@EITHER
def test_a_reader_that_is_removed_holds_nobody_back(kind):
    gate = CalledGate(kind, 1, readers=2, capacity=4, pending=4)
    gate.offer(0, range(4))
    assert len(gate.read(0).ts) == 3
    gate.offer(0, range(4, 30))
    assert gate.offer(0, [30]) == codes.FULL
    gate.remove_readers([1])
    gate.read(0)
    assert gate.offer(0, [30]) == 1


@EITHER
def test_a_blocked_source_goes_on_when_readers_read(kind):
    gate = CalledGate(kind, 1, capacity=8, pending=8)
    seen = []

    def pull():
        while (ready := gate.read(timeout_s=1)) is not None:
            seen.extend(ready.ts.tolist())

    thread = threading.Thread(target=pull)
    thread.start()
    gate.add(0, range(5000))
    gate.end(0)
    thread.join(timeout=30)
    assert seen == list(range(5000))


@EITHER
def test_readers_come_and_go(kind):
    gate = CalledGate(kind, 1, max_readers=3)
    gate.add(0, range(6))
    gate.read(0, 2)
    assert gate.announce_readers([2, 1], parent=0) == 0
    assert gate.announce_readers([1], parent=0) == codes.NOT_TAKEN, "it is in already"
    assert gate.read(1, 2).ts.tolist() == [2, 3]
    assert gate.remove_readers([1]) == 1
    assert gate.read(1) == codes.GONE
    gate.remove_readers([0])
    assert gate.remove_readers([2]) == codes.LAST_READER
    gate.end(0)
    assert [ts for ts, _, _ in everything(gate, 2)] == [2, 3, 4, 5]


@EITHER
def test_sources_come_and_go(kind):
    gate = CalledGate(kind, 1, max_sources=3)
    gate.add(0, [1, 5])
    assert gate.read().ts.tolist() == [1]
    assert gate.announce_sources([1], [(0, 1)], 4) == codes.BEHIND, "a reader was promised up to 5"
    assert gate.announce_sources([2, 1], [(0, 2), (0, 1)], 5) == 0
    assert gate.announce_sources([1], [(0, 1)], 5) == codes.NOT_TAKEN
    gate.add(0, [9])
    assert len(gate.read().ts) == 0, "the new ones hold the frontier at 5"
    gate.add(1, [5, 6])
    gate.add(2, [5])
    assert gate.remove_sources([1, 2]) == 2
    assert gate.remove_sources([1, 2]) == codes.NOT_TAKEN
    assert gate.add(1, [8]) == codes.GONE
    assert gate.announce_sources([1], [(0, 1)], 9) == codes.DRAINING, "its former source's tuples are unread"
    gate.end(0)
    assert everything(gate) == [(5, 0, 1), (5, 1, 0), (5, 2, 0), (6, 1, 1), (9, 0, 2)]


@EITHER
def test_of_concurrent_changes_one_takes_effect(kind):
    for change in (0, 1):
        gate = CalledGate(kind, 1, max_sources=2, max_readers=2)
        gate.heartbeat(0, 1)
        taken: list[str] = []
        barrier = threading.Barrier(4)

        def work(gate=gate, taken=taken, barrier=barrier, change=change):
            barrier.wait()
            if gate.announce_sources([1], [(0, 1)], 3, change) == 0:
                taken.append("sources")
            if gate.announce_readers([1], 0, change) == 0:
                taken.append("readers")
            barrier.wait()
            if gate.remove_sources([1], change) > 0:
                taken.append("removed")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == ["readers", "removed", "sources"]


@EITHER
def test_a_numbered_change_takes_effect_once(kind):
    gate = CalledGate(kind, 1, max_readers=2)
    assert gate.announce_readers([1], 0, change=7) == 0
    assert gate.remove_readers([1], change=7) == 1
    assert gate.announce_readers([1], 0, change=7) == codes.NOT_TAKEN, "a late repetition of an old call"
    assert gate.announce_readers([1], 0, change=8) == 0


@EITHER
def test_who_sleeps_hears_that_the_gate_is_closed(kind):
    gate = CalledGate(kind, 1, capacity=1, pending=2)
    told = []
    blocked = threading.Thread(target=lambda: told.append(gate.add(0, range(50))))
    blocked.start()
    time.sleep(0.1)
    gate.close()
    blocked.join(timeout=10)
    assert told == [codes.CLOSED_CODE]
    assert gate.read() == codes.CLOSED_CODE
    assert gate.heartbeat(0, 99) == codes.CLOSED_CODE


# --- the gate that a run holds ---


@OF_A_RUN
def test_a_run_lets_sources_in_by_name(make):
    gate = make(slots=3, readers=2, capacity=8, pending=8)
    gate.open(0, "nyse", origin=0, min_ts=BEFORE_ALL)
    gate.open(1, "arca", origin=1, min_ts=BEFORE_ALL)
    assert gate.held() == "nyse: it has not spoken"
    assert gate.heartbeat(0, 5) == gate.heartbeat(1, 7) == 0
    assert (gate.progress(0), gate.progress(1), gate.frontier()) == (5, 7, (5, 0))
    assert gate.held() == "nyse: it is at ts 5"
    columns = [np.zeros(4, np.int64) for _ in range(4)]
    assert gate.kind.read_waiting(gate.words, 1, 4, *columns, 0) == 0
    assert (gate.frontier_of(1), gate.frontier_of(0)) == (5, BEFORE_ALL)
    assert gate.open(2, "bats", origin=2, min_ts=4) == 5, "a reader was promised up to 5 meanwhile"
    for slot in range(3):
        assert gate.end(slot) == 0
    assert gate.held().startswith("nobody")
    assert gate.frontier() == (AFTER_ALL, None)


@OF_A_RUN
def test_ties_follow_ranks_that_are_given_later(make):
    gate = make(slots=2, readers=1, capacity=8, pending=8)
    gate.open(0, "b", origin=0, min_ts=BEFORE_ALL)
    gate.open(1, "a", origin=1, min_ts=BEFORE_ALL)
    gate.rank({0: 9, 1: 3})
    one, seq, ref = np.array([5], np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    for slot in (0, 1):
        assert gate.kind.add_waiting(gate.words, slot, one, seq, ref, 0, 1, 5, 0, False) == 1
        gate.end(slot)
    columns = [np.zeros(4, np.int64) for _ in range(4)]
    assert gate.kind.read_waiting(gate.words, 0, 4, *columns, 0) == 2
    assert columns[1][:2].tolist() == [3, 9]


@OF_A_RUN
def test_what_a_gate_refuses_is_said_with_the_source(make):
    gate = make(slots=1, readers=1, capacity=8, pending=8)
    gate.open(0, "nyse", origin=0, min_ts=BEFORE_ALL)
    gate.end(0)
    error = gate.refused(0, gate.heartbeat(0, 1))
    assert isinstance(error, RunError)
    assert "nyse has ended" in str(error)
    gate.close()
    assert "nyse has ended" in str(gate.refused(0, gate.heartbeat(0, 1)))
    assert "The gate was closed" in str(gate.refused(0, codes.CLOSED_CODE))
    assert "Another thread is inside a call for nyse" in str(gate.refused(0, codes.INSIDE))
    assert isinstance(gate.refused(0, codes.UNSORTED), DataError)
    with pytest.raises(QueryError, match="max_sources"):
        make(slots=MOST_SLOTS + 1, readers=1, capacity=8, pending=8)
