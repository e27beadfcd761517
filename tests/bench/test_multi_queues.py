"""The lock-free multi-queue under the scheduler, against the sequential gate; one reader, and nobody sleeps.

The locked one spins, which a schedule without fairness never ends; both run with real threads in `tests/aggregates`.
"""

from __future__ import annotations

import pytest
from tests.explore.schedule import Failure, explore, sample
from tests.threads.gate.gate_scenarios import Case, TwinGate
from tests.threads.gate.test_interleavings import CASES, SEED, sequence

from plait import QueryError
from plait_bench.multi_queues import LockFreeQueueGate, QueueGate


def memory_again(gate: TwinGate):
    # A ring of four: three tuples at a time, and the node before the first unread one stays.
    return [
        sequence(*(gate.add(0, (n, n)) for n in range(1, 7)), gate.end(0)),
        sequence(*(gate.read(0, 2) for _ in range(6))),
    ]


QUEUES = {
    "two_sources": CASES["two_sources"],
    "same_place": CASES["same_place"],
    "source_comes": CASES["source_comes"],
    "memory_again": (memory_again, {"origins": [0], "capacity": 4, "pending": 4, "ring": 4}, 1),
}


@pytest.mark.parametrize("name", QUEUES)
def test_schedules_of_the_lock_free_queue(name):
    threads, gate, preemptions = QUEUES[name]
    assert min(explore(Case("queues", **gate).scenario(threads), preemptions=preemptions)) > 1
    sample(Case("queues", **gate).scenario(threads), seed=SEED, runs=60, switch=0.35)
    sample(Case("queues", **gate, find_races=True).scenario(threads), seed=SEED, runs=30, switch=0.35)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("    while not cas(g, tuple_at(g, slot, count - 1) + NEXT, NIL, node):", "    while False:", "two_sources"),
        ("g[RING] - 1 - (tail - g[s + FREED])", "g[RING] - (tail - g[s + FREED])", "memory_again"),
        ("least >= frontier", "least > frontier", "two_sources"),
        ("g[source_at(slot) + ORIGIN] < rank", "g[source_at(slot) + ORIGIN] > rank", "same_place"),
    ],
)
def test_planted_faults_are_noticed(old, new, name):
    threads, gate, _ = QUEUES[name]
    scenario = Case("queues", **gate, patches={"plait_bench.multi_queues.queues": [(old, new)]}).scenario(threads)
    with pytest.raises(Failure):
        explore(scenario, preemptions=0, most_steps=4000)


@pytest.mark.parametrize("kind", [QueueGate, LockFreeQueueGate])
def test_one_reader_only(kind):
    with pytest.raises(QueryError, match="A tuple is dequeued once"):
        kind(slots=2, readers=2, capacity=8, pending=8)
