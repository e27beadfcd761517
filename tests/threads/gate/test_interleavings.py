"""The gates' own source under the scheduler: all schedules with few preemptions, then random ones.

Every run is checked to be linearizable against the sequential gate of `tests.explore.naive_gate`, to lose and repeat
nothing, and to be free of data races on plain words.
"""

from __future__ import annotations

import os

import pytest
from tests.examples import examples
from tests.explore.schedule import explore, sample
from tests.threads.gate.gate_scenarios import KINDS, Case, TwinGate, exhaust

from plait.threads.gate import words as gate_words

SEED = int(os.environ.get("PLAIT_SEED", "20140615"))


def sequence(*calls):
    """A thread that makes these calls one after the other."""
    for call in calls:
        yield from call


def two_sources(gate: TwinGate):
    # Both have a tuple of ts 1, and the second source's 2 falls between the first one's.
    return [
        sequence(gate.add(0, (1, 0), (3, 1))),
        sequence(gate.add(1, (1, 0), (2, 1))),
        sequence(gate.read(0), gate.read(0)),
    ]


def same_place(gate: TwinGate):
    # All of one ts: every insertion competes for the same link, and only origin and seq order them.
    return [sequence(gate.add(0, (5, 0)), gate.add(0, (5, 1), (6, 2))), sequence(gate.add(1, (5, 0), (6, 1)))]


def two_readers(gate: TwinGate):
    return [
        sequence(gate.add(0, (1, 0), (2, 1)), gate.heartbeat(0, 3), gate.end(0)),
        sequence(gate.read(0, 1), gate.read(0, 1)),
        sequence(gate.read(1, 2), gate.read(1, 2)),
    ]


def wrap_around(gate: TwinGate):
    # A ring of four for six tuples: memory is used again while both run, and each sleeps for the other.
    return [
        sequence(gate.add_all(0, *((n, n) for n in range(1, 7))), gate.end(0)),
        sequence(gate.read_all(0, 2)),
    ]


def wrap_two(gate: TwinGate):
    return [
        sequence(gate.add_all(0, (1, 0), (2, 1), (4, 2)), gate.end(0)),
        sequence(gate.add_all(1, (1, 0), (3, 1), (5, 2)), gate.end(1)),
        sequence(gate.read_all(0, 2)),
    ]


def idle_ahead(gate: TwinGate):
    # Source 1 promises far ahead and idles; source 0 wraps round under its old handles; then source 1 comes back.
    return [
        sequence(gate.heartbeat(1, 50), gate.add(1, (50, 0)), gate.end(1)),
        sequence(gate.add_all(0, *((n, n) for n in range(1, 8))), gate.end(0)),
        sequence(gate.read_all(0, 1)),
    ]


def both_promise(gate: TwinGate):
    # The reader sleeps until both have moved on: who moves last wakes it, and at one ts neither may leave it to the other.
    return [
        sequence(gate.heartbeat(0, 2), gate.heartbeat(0, 3)),
        sequence(gate.heartbeat(1, 2), gate.add(1, (2, 0), progress=3)),
        sequence(gate.until_read(0, 1)),
    ]


def source_comes(gate: TwinGate):
    return [
        sequence(gate.add(0, (1, 0), (4, 1)), gate.end(0)),
        sequence(gate.announce_sources([1], [1], 3), gate.add(1, (3, 0), (5, 1))),
        sequence(gate.read(0), gate.read(0)),
    ]


def source_goes(gate: TwinGate):
    return [
        sequence(gate.add(0, (1, 0), (4, 1))),
        sequence(gate.add(1, (2, 0)), gate.add(1, (3, 1))),
        sequence(gate.remove_sources([1])),
        sequence(gate.read(0)),
    ]


def source_twice(gate: TwinGate):
    # Both announce the same slot; then both remove it: one of each takes effect.
    return [
        sequence(gate.announce_sources([1], [1], 5), gate.remove_sources([1])),
        sequence(gate.announce_sources([1], [1], 5), gate.remove_sources([1])),
        sequence(gate.add(0, (1, 0), (9, 1)), gate.read(0)),
    ]


def source_again(gate: TwinGate):
    # The slot of a source that leaves is announced again, while its last tuples may still be unread.
    return [
        sequence(gate.add(1, (2, 0)), gate.end(1), gate.announce_sources([1], [7], 6), gate.add(1, (6, 0))),
        sequence(gate.add(0, (1, 0), (5, 1))),
        sequence(gate.read(0), gate.read(0)),
    ]


def reader_comes(gate: TwinGate):
    return [
        sequence(gate.add(0, (1, 0), (2, 1)), gate.add(0, (3, 2))),
        sequence(gate.read(0, 1), gate.announce_readers([1], 0), gate.read(0, 1)),
        sequence(gate.read(1, 1), gate.read(1, 1)),
    ]


def reader_comes_wrapping(gate: TwinGate):
    # The new reader stands on what its parent leaves behind, while the source wants the memory.
    return [
        sequence(gate.add_all(0, *((n, n) for n in range(1, 6))), gate.end(0)),
        sequence(gate.read(0, 1), gate.announce_readers([1], 0), gate.read_all(0, 2)),
        sequence(gate.until(1, gate_words.LIVE), gate.read(1, 1), gate.read(1, 1), gate.remove_readers([1])),
    ]


def reader_returns(gate: TwinGate):
    # Announced again while the source looks at who reads: the parent moves on, the new reader stays behind.
    return [
        sequence(gate.add_all(0, *((n, n) for n in range(1, 8))), gate.end(0)),
        sequence(gate.remove_readers([0]), gate.read(1, 1), gate.announce_readers([0], 1), gate.read_all(1, 2)),
        sequence(gate.until_changed(2), gate.until(0, gate_words.LIVE), gate.read_all(0, 2)),
    ]


def reader_twice(gate: TwinGate):
    return [
        sequence(gate.announce_readers([1], 0, 1), gate.announce_readers([1], 0, 2)),
        sequence(gate.announce_readers([1], 0, 1), gate.remove_readers([1], 1)),
        sequence(gate.remove_readers([1], 1), gate.add(0, (1, 0), (2, 1))),
    ]


def reader_goes(gate: TwinGate):
    # One reader is removed in the middle of its reads, and no longer holds the source back.
    return [
        sequence(gate.add_all(0, *((n, n) for n in range(1, 6))), gate.end(0)),
        sequence(gate.read(1, 1), gate.read(1, 1)),
        sequence(gate.remove_readers([1]), gate.read_all(0, 2)),
    ]


def both_readers_go(gate: TwinGate):
    return [
        sequence(gate.remove_readers([0])),
        sequence(gate.remove_readers([1])),
        sequence(gate.add(0, (1, 0), (2, 1))),
    ]


def pinned(gate: TwinGate):
    # Source 1 has promised more than it added: while it looks for the place of its next tuple, all that follows the node
    # it starts from is read, and its memory wanted by source 0.
    return [
        sequence(gate.add(1, (1, 0)), gate.heartbeat(1, 9), gate.add(1, (9, 1)), gate.end(1)),
        sequence(gate.add_all(0, *((n, n) for n in (2, 3, 4, 5, 6, 7, 8, 20))), gate.end(0)),
        sequence(gate.read_all(0, 4)),
    ]


def stale_handle(gate: TwinGate):
    # As above, but source 1 comes back after the memory behind its last node has been used again, for a later tuple.
    return [
        sequence(gate.add(1, (1, 0)), gate.heartbeat(1, 9), gate.add(1, (9, 1)), gate.end(1)),
        sequence(gate.add_all(0, *((n, n) for n in (2, 3, 4, 5, 20))), gate.end(0)),
        sequence(gate.read_all(0, 4)),
    ]


def told_by_halves(gate: TwinGate):
    # The reader has told what it has read of source 0, whose memory is used again, and not yet of source 1, whose last node links
    # to that memory: source 1 must not begin there.
    for call in (gate.add(1, (1, 0)), gate.add(0, (2, 0), (3, 1), (4, 2), (5, 3)), gate.heartbeat(1, 9)):
        exhaust(gate, call)
    return [sequence(gate.read(0, 4)), sequence(gate.add(0, (20, 4))), sequence(gate.add(1, (9, 1)))]


def shared_reader(gate: TwinGate):
    # Two threads for one reader: the second is told so, and nothing is read twice.
    return [
        sequence(gate.add(0, (1, 0), (2, 1), (3, 2))),
        sequence(gate.read(0, 1)),
        sequence(gate.read(0, 1)),
    ]


def towers(gate: TwinGate):
    # Both sources' first tuples are tall: higher levels are linked by two threads at once, and climbed by a third insertion.
    return [
        sequence(gate.add(0, (1, 0)), gate.add(0, (4, 1))),
        sequence(gate.add(1, (2, 0)), gate.add(1, (3, 1), (5, 2))),
    ]


TINY = {"capacity": 1, "pending": 2}
TIGHT = {"capacity": 4, "pending": 4, "ring": 4}
CASES = {
    # name: (threads, gate, preemptions tried exhaustively)
    "two_sources": (two_sources, {"origins": [0, 1]}, 2),
    "same_place": (same_place, {"origins": [0, 1]}, 2),
    "two_readers": (two_readers, {"origins": [0], "readers": 2}, 2),
    "wrap_around": (wrap_around, {"origins": [0], **TINY}, 1),
    "wrap_tight": (wrap_around, {"origins": [0], **TIGHT}, 2),
    "wrap_two": (wrap_two, {"origins": [0, 1], **TINY}, 0),
    "idle_ahead": (idle_ahead, {"origins": [0, 1], **TINY}, 0),
    "both_promise": (both_promise, {"origins": [0, 1]}, 2),
    "source_comes": (source_comes, {"origins": [0], "slots": 2}, 1),
    "source_goes": (source_goes, {"origins": [0, 1]}, 1),
    "source_twice": (source_twice, {"origins": [0], "slots": 2}, 1),
    "source_again": (source_again, {"origins": [0, 1]}, 1),
    "reader_comes": (reader_comes, {"origins": [0], "seats": 2}, 1),
    "reader_comes_wrapping": (reader_comes_wrapping, {"origins": [0], "seats": 2, **TIGHT}, 0),
    "reader_returns": (reader_returns, {"origins": [0], "readers": 2, **TIGHT}, 0),
    "reader_twice": (reader_twice, {"origins": [0], "seats": 2}, 1),
    "reader_goes": (reader_goes, {"origins": [0], "readers": 2, **TINY}, 0),
    "pinned": (pinned, {"origins": [0, 1], **TIGHT}, 0),
    "stale_handle": (stale_handle, {"origins": [0, 1], **TIGHT}, 0),
    "told_by_halves": (told_by_halves, {"origins": [0, 1], **TIGHT}, 2),
    "shared_reader": (shared_reader, {"origins": [0]}, 2),
    "towers": (towers, {"origins": [0, 1], "levels": 3, "walk": 0}, 2),
    "both_readers_go": (both_readers_go, {"origins": [0], "readers": 2}, 2),
}


@pytest.mark.crossed
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_every_schedule_with_few_preemptions(kind, name):
    threads, gate, preemptions = CASES[name]
    if kind == "skiplist":  # which takes many more steps: the test below, in the soak, has those with more preemptions
        preemptions = min(preemptions, 1)
    runs = explore(Case(kind, **gate).scenario(threads), preemptions=preemptions)
    assert len(runs) == preemptions + 1
    assert min(runs) > 1


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_random_schedules(kind, name):
    threads, gate, _ = CASES[name]
    sample(Case(kind, **gate).scenario(threads), seed=SEED, runs=examples(60), switch=0.35)


@pytest.mark.crossed
@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_no_plain_word_is_raced_for(kind, name):
    threads, gate, _ = CASES[name]
    scenario = Case(kind, **gate, find_races=True).scenario(threads)
    explore(scenario, preemptions=1 if name in ("same_place", "wrap_around") else 0)
    sample(scenario, seed=SEED, runs=examples(30), switch=0.35)


#: Those whose next bound is more than minutes of schedules: many threads that sleep, each time with a choice of who goes on.
ENOUGH = {
    "idle_ahead",
    "reader_comes_wrapping",
    "reader_returns",
    "reader_goes",
    "pinned",
    "wrap_around",
    "source_goes",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in CASES if name not in ENOUGH])
def test_every_schedule_with_one_preemption_more(kind, name):
    threads, gate, preemptions = CASES[name]
    runs = explore(Case(kind, **gate).scenario(threads), preemptions=preemptions + 1)
    assert min(runs) > 1
