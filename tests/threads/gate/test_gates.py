"""The gates as Python objects: order, readiness, limits, disorder, payload, elasticity and what the errors say."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from plait.errors import BehindError, DataError, LateError, PendingError, QueryError, RunError
from plait.threads.gate import Gate, Origin, RingGate, SkipListGate

GATES = pytest.mark.parametrize("make", [SkipListGate, RingGate], ids=["skiplist", "ring"])


def everything(gate: Gate, reader: int = 0, most: int = 7) -> list[tuple[int, int, int]]:
    out: list[tuple[int, int, int]] = []
    while (ready := gate.read(reader, most)) is not None:
        out += zip(ready.ts.tolist(), ready.origin.tolist(), ready.seq.tolist(), strict=True)
        assert len(ready) > 0, "nothing is ready, and there is no end"
    return out


def batch(ts, **columns):
    return pa.record_batch({"ts": pa.array(ts, pa.int64()), **columns})


@GATES
def test_ties_follow_input_then_position_then_seq(make):
    gate = make([(1, 0), (0, 1), (0, 0)])
    for source in (0, 1, 2):
        gate.add_words(source, np.array([5, 5]))
        gate.end(source)
    ranks = [Origin(0, 0).rank, Origin(0, 1).rank, Origin(1, 0).rank]
    assert everything(gate) == [(5, rank, seq) for rank in ranks for seq in (0, 1)]


@GATES
def test_nothing_is_given_before_it_is_ready(make):
    gate = make(2)
    gate.add_words(0, np.array([1, 2, 3]))
    assert len(gate.read()) == 0, "the second source has not spoken"
    assert gate.frontier() == (-(2**63), 1)
    gate.add_words(1, np.array([2]))
    assert gate.read().ts.tolist() == [1], "ts 2 equals the frontier: the second source may bring another"
    gate.heartbeat(1, 3)
    assert gate.read().ts.tolist() == [2, 2]
    gate.end(1)
    assert len(gate.read()) == 0, "the first source may bring another ts 3"
    gate.end(0)
    assert gate.read().ts.tolist() == [3]
    assert gate.read() is None


@GATES
def test_a_read_sleeps_until_something_is_ready(make):
    gate = make(1)
    timer = threading.Timer(0.1, lambda: gate.add_words(0, np.array([1, 2])))
    timer.start()
    start = time.monotonic()
    assert gate.read(timeout_s=10).ts.tolist() == [1]
    assert time.monotonic() - start < 5
    assert len(gate.read(timeout_s=0.02)) == 0


@GATES
@given(data=st.data())
@settings(max_examples=examples(40))
def test_as_a_sort_whatever_the_batches(make, data):
    sources = data.draw(st.integers(1, 5))
    gate = make(sources, readers=2, capacity=50, pending=200, disorder_us=data.draw(st.sampled_from([0, 3])))
    sent = []
    for source in range(sources):
        steps = data.draw(st.lists(st.integers(0, 4), max_size=20))
        ts = np.cumsum(np.array([0, *steps]))[1:]
        cuts = sorted(data.draw(st.lists(st.integers(0, len(ts)), max_size=3)))
        for part in np.split(ts, cuts):
            gate.add_words(source, part)
        gate.end(source)
        sent += [(int(t), source, seq) for seq, t in enumerate(ts)]
    most = data.draw(st.integers(1, 9))
    assert everything(gate, 0, most) == everything(gate, 1, most) == sorted(sent)


@GATES
@given(data=st.data())
@settings(max_examples=examples(40))
def test_disorder_is_settled_in_front(make, data):
    disorder = data.draw(st.integers(1, 6))
    gate = make(2, disorder_us=disorder, late="drop")
    sent, late = [], 0
    for source in (0, 1):
        ts = data.draw(st.lists(st.integers(0, 25), max_size=25))
        largest = None
        for seq, value in enumerate(ts):
            if largest is not None and value < largest - disorder:
                late += 1
            else:
                sent.append((value, source, seq))
            largest = value if largest is None else max(largest, value)
        for low in range(0, len(ts), 4):
            gate.add_words(source, np.array(ts[low : low + 4]))
        gate.end(source)
    assert everything(gate) == sorted(sent)
    assert sum(rows.num_rows for _, rows in gate.late_rows) == late


@GATES
def test_late_tuples_are_refused_by_name(make):
    gate = make(1, names=["nyse"], disorder_us=2)
    gate.add_words(0, np.array([10, 8]))
    with pytest.raises(LateError, match=r"nyse, row 1 of the batch: ts 7 after 10"):
        gate.add_words(0, np.array([9, 7]))
    gate = make(1)
    gate.heartbeat(0, 50)
    with pytest.raises(LateError, match="ts 49"):
        gate.add_words(0, np.array([49]))


@GATES
def test_too_many_unready_tuples_name_who_holds_the_frontier(make):
    gate = make(2, names=["nyse", "arca"], pending=10)
    gate.add_words(1, np.array([4]))
    with pytest.raises(PendingError, match=r"nyse has 10 .* The frontier is held by arca, at ts 4") as caught:
        gate.add_words(0, np.arange(5, 25))
    assert "10 of 20 were added" in str(caught.value)
    gate.heartbeat(1, 100)
    gate.add_words(0, np.arange(5 + gate.count(0), 25))
    gate.end(0)
    gate.end(1)
    assert [ts for ts, _, _ in everything(gate)] == [4, *range(5, 25)]
    silent = make(2, pending=3)
    with pytest.raises(PendingError, match="it has not spoken"):
        silent.add_words(0, np.arange(9))


@GATES
def test_ready_tuples_hold_the_source_back(make):
    gate = make(1, capacity=4, pending=2, full="refuse")
    assert gate.add_words(0, np.arange(20)) == 5, "four ready and unread, and the last, which is not ready"
    assert gate.add_words(0, np.array([5])) == 0
    assert gate.read(0, 2).ts.tolist() == [0, 1]
    assert gate.add_words(0, np.arange(5, 20)) == 2
    assert gate.add_tuple(0, 9) is False


@GATES
def test_a_reader_that_stops_is_named(make):
    gate = make(1, readers=2, capacity=4, pending=4, stall_after_s=0.1, names=["nyse"])
    gate.add_words(0, np.arange(4))
    assert len(gate.read(0)) == 3
    with pytest.raises(RunError, match=r"nyse waited .* reader 1 has not read \d ready tuples"):
        gate.add_words(0, np.arange(4, 30))
    assert gate.lag()[0].reader == 1
    gate.remove_readers([1])
    pushed = gate.count(0)
    gate.read(0)
    gate.add_words(0, np.arange(pushed, pushed + 3))
    with pytest.raises(RunError, match=r"waited 0\.05 s"):
        make(1, capacity=1, pending=2).add_words(0, np.arange(10), timeout_s=0.05)


@GATES
def test_a_blocked_source_goes_on_when_readers_read(make):
    gate = make(1, capacity=8, pending=8)
    seen = []

    def pull():
        while (ready := gate.read(timeout_s=1)) is not None:
            seen.extend(ready.ts.tolist())

    thread = threading.Thread(target=pull)
    thread.start()
    gate.add_words(0, np.arange(5000))
    gate.end(0)
    thread.join(timeout=30)
    assert seen == list(range(5000))


@GATES
def test_rows_stay_in_arrow_and_are_let_go(make):
    gate = make([(0, 0), (1, 0)], readers=2)
    gate.add(0, batch([1, 3], name=["a", "c"]))
    gate.add(1, pa.table({"ts": pa.array([2, 4], pa.int64()), "price": [0.5, 1.5]}))
    gate.end(0)
    gate.end(1)
    first = gate.read(0)
    assert first.ts.tolist() == [1, 2, 3, 4]
    which, left = first.by_input()[0]
    assert which.tolist() == [0, 2]
    assert left.column("name").to_pylist() == ["a", "c"]
    which, right = first.by_input()[1]
    assert which.tolist() == [1, 3]
    assert right.column("price").to_pylist() == [0.5, 1.5]
    assert len(gate._payload) == 2, "the other reader has yet to take them"
    assert len(gate.read(1)) == 4
    assert len(gate._payload) == 0


@GATES
def test_rows_of_a_batch_that_did_not_get_in_are_let_go_too(make):
    gate = make(2, pending=3)
    with pytest.raises(PendingError):
        gate.add(0, batch(range(9)))
    gate.end(1)
    gate.end(0)
    assert gate.read().table().column("ts").to_pylist() == [0, 1, 2]
    assert len(gate._payload) == 0


@GATES
def test_seq_may_be_a_column(make):
    gate = make(1, seq="n")
    gate.add(0, batch([1, 1], n=[7, 9]))
    gate.end(0)
    assert everything(gate) == [(1, 0, 7), (1, 0, 9)]
    with pytest.raises(DataError, match="seq does not rise"):
        make(1, seq="n").add(0, batch([1, 1], n=[9, 7]))


@GATES
def test_readers_come_and_go(make):
    gate = make(1, max_readers=3)
    gate.add_words(0, np.arange(6))
    gate.read(0, 2)
    assert gate.announce_readers([2, 1], parent=0)
    assert not gate.announce_readers([1], parent=0), "it is in already"
    assert gate.read(1, 2).ts.tolist() == [2, 3]
    assert gate.remove_readers([1])
    with pytest.raises(RunError, match="Reader 1 was removed"):
        gate.read(1)
    gate.remove_readers([0])
    with pytest.raises(RunError, match="last reader"):
        gate.remove_readers([2])
    gate.end(0)
    assert [ts for ts, _, _ in everything(gate, 2)] == [2, 3, 4, 5]


@GATES
def test_sources_come_and_go(make):
    gate = make(1, max_sources=3)
    gate.add_words(0, np.array([1, 5]))
    assert gate.read().ts.tolist() == [1]
    with pytest.raises(BehindError, match="promised up to 5"):
        gate.announce_sources([1], origins=[(0, 1)], min_ts=4)
    assert gate.announce_sources([2, 1], origins=[(0, 2), (0, 1)], min_ts=5)
    assert not gate.announce_sources([1], origins=[(0, 1)], min_ts=5)
    gate.add_words(0, np.array([9]))
    assert len(gate.read()) == 0, "the new ones hold the frontier at 5"
    gate.add_words(1, np.array([5, 6]))
    gate.add_words(2, np.array([5]))
    assert gate.remove_sources([1, 2])
    assert not gate.remove_sources([1, 2])
    with pytest.raises(RunError, match="has ended or was removed"):
        gate.add_words(1, np.array([8]))
    gate.end(0)
    assert everything(gate) == [(5, 0, 1), (5, 1, 0), (5, 2, 0), (6, 1, 1), (9, 0, 2)]


@GATES
def test_of_concurrent_changes_one_takes_effect(make):
    for change in (0, 1):
        gate = make(1, max_sources=2, max_readers=2)
        gate.heartbeat(0, 1)
        taken: list[str] = []
        barrier = threading.Barrier(4)

        def work(gate=gate, taken=taken, barrier=barrier, change=change):
            barrier.wait()
            if gate.announce_sources([1], origins=[(0, 1)], min_ts=3, change=change):
                taken.append("sources")
            if gate.announce_readers([1], parent=0, change=change):
                taken.append("readers")
            barrier.wait()
            if gate.remove_sources([1], change=change):
                taken.append("removed")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == ["readers", "removed", "sources"]


@GATES
def test_a_numbered_change_takes_effect_once(make):
    gate = make(1, max_readers=2)
    assert gate.announce_readers([1], parent=0, change=7)
    assert gate.remove_readers([1], change=7)
    assert not gate.announce_readers([1], parent=0, change=7), "a late repetition of an old call"
    assert gate.announce_readers([1], parent=0, change=8)


@GATES
def test_a_second_thread_for_one_source_is_told(make):
    gate = make(1, capacity=1, pending=2)

    def push():
        with pytest.raises(RunError, match="closed"):
            gate.add_words(0, np.arange(50))

    blocked = threading.Thread(target=push)
    blocked.start()
    time.sleep(0.1)
    with pytest.raises(RunError, match="Another thread is inside"):
        gate.add_words(0, np.array([99]))
    gate.close()
    blocked.join(timeout=10)
    assert not blocked.is_alive()
    with pytest.raises(RunError, match="closed"):
        gate.read()


def test_what_makes_no_gate_is_refused():
    for wrong in ({"sources": 0}, {"sources": [(0, 0), (0, 0)]}, {"sources": 1, "readers": 0}, {"sources": 1, "pending": 1},
                  {"sources": 1, "full": "drop"}, {"sources": 3, "max_sources": 2}):  # fmt: skip
        with pytest.raises(QueryError):
            RingGate(**wrong)
    with pytest.raises(QueryError, match="max_sources"):
        RingGate(1).heartbeat(3, 1)
