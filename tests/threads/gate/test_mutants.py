"""Planted faults: each must be noticed, or the tests that pass on the real text say nothing.

A mutant is the gate's own text with one change; the cases are those of `test_interleavings`. What finds it is the exploration
of all schedules with so many preemptions as it needs, and no fewer; one is found by random schedules alone, and says so.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests.explore.schedule import Failure, explore, sample
from tests.threads.gate.gate_scenarios import Case
from tests.threads.gate.test_interleavings import CASES, SEED


class Mutant(NamedTuple):
    kind: str
    module: str
    old: str
    new: str
    case: str
    needs: int = 1  # so many preemptions show it
    find_races: bool = False


PUBLISH_SKIPLIST = """        insert(g, slot, count)
        added += count
        store_release(g, s + PROGRESS, progress if low + added == high else ts[low + added - 1])
"""
PUBLISH_RING = """        append(g, slot, ts, seq, ref, first, count)
        added += count
"""
TELL_RING = """        store_release(g, s + PROGRESS, progress if low + added == high else ts[first + count - 1])
"""

MUTANTS = {
    "publish before link": Mutant(
        "skiplist", "skiplist", PUBLISH_SKIPLIST,
        "        added += count\n" + PUBLISH_SKIPLIST.splitlines(keepends=True)[2] + "        insert(g, slot, count)\n",
        "two_sources",
    ),
    "publish before the columns are written": Mutant(
        "ring", "ring", PUBLISH_RING,
        "        added += count\n" + TELL_RING + "        append(g, slot, ts, seq, ref, first, count)\n",
        "two_sources", find_races=True,
    ),
    "publish before the tail": Mutant(
        "ring", "ring", "        store_release(g, s + TAIL, g[s + TAIL] + count)\n" + TELL_RING,
        TELL_RING + "        store_release(g, s + TAIL, g[s + TAIL] + count)\n",
        "two_sources",
    ),
    "no retry after a failed CAS": Mutant(
        "skiplist", "nodes", "if cas(g, node + NEXT, ahead, new):", "if cas(g, node + NEXT, ahead, new) or True:",
        "two_sources",
    ),
    "<= for < when ready (list)": Mutant(
        "skiplist", "skiplist", "g[ahead + TS] >= frontier", "g[ahead + TS] > frontier", "two_sources", 0
    ),
    "<= for < when ready (ring)": Mutant(
        "ring", "ring", "first_at(g, ring_at(g, slot), 1, g[counts + slot], tail, frontier)",
        "first_at(g, ring_at(g, slot), 1, g[counts + slot], tail, frontier + 1)", "two_sources", 0,
    ),
    "ties by arrival": Mutant("skiplist", "nodes", "        return rank < origin\n", "        return True\n", "same_place", 0),
    "ties the wrong way round": Mutant(
        "ring", "ring", "g[ranks + place - 1] > rank", "g[ranks + place - 1] < rank", "two_sources", 0
    ),
    "handles not checked": Mutant(
        "skiplist", "skiplist", "            if kept(g, place):\n                break\n", "            break\n", "stale_handle"
    ),
    "a row believed that is being told": Mutant(
        "skiplist", "skiplist", "(unread and not telling)", "unread", "told_by_halves"
    ),
    "memory freed under a pin": Mutant(
        "skiplist", "flow", "pinned = load_acquire(g, source_at(other) + PIN)", "pinned = AFTER_ALL", "pinned"
    ),
    "memory freed under a reader": Mutant(
        "skiplist", "flow", "left = min(left, head & PLACE_MASK)", "left = left", "wrap_tight"
    ),
    "memory used before it was read": Mutant(
        "ring", "flow", "                left = min(left, count)\n", "                left = min(left, count + 1)\n",
        "wrap_tight", 0,
    ),
    "limits not looked at": Mutant(
        "ring", "flow", "number = min(held_back, min(unready, memory))", "number = 9", "wrap_around", 0
    ),
    "a new reader forgotten": Mutant(
        "skiplist", "flow",
        "        if load_acquire(g, READERS_VERSION) == version:\n            return read, left",
        "        if True:\n            return read, left", "reader_returns",
    ),
    "frontier settled without a second look": Mutant(
        "ring", "frontier", "if load_acquire(g, SOURCES_VERSION) == version:", "if True:", "source_comes"
    ),
    "announced below a settled frontier": Mutant(
        "skiplist", "elastic", "load_acquire(g, r + FRONTIER) > min_ts", "load_acquire(g, r + FRONTIER) > AFTER_ALL",
        "source_comes", 0,
    ),
    "flush while the source is inside": Mutant(
        "skiplist", "elastic", "            taken += 1\n            # As",
        "            taken += 1\n            store_release(g, s + PROGRESS, AFTER_ALL)\n            # As", "source_goes",
    ),
    "one slot announced twice": Mutant(
        "ring", "elastic", "    if not cas(g, s + BUSY, 0, 1):\n        return INSIDE\n    state",
        "    if load_acquire(g, s + BUSY) != 0:\n        return INSIDE\n    state", "source_twice",
    ),
    "a slot taken that nobody could remove yet": Mutant(
        "ring", "elastic", "        code = INSIDE  # its announcer", "        code = NOT_TAKEN  # its announcer", "source_twice"
    ),
    "a slot announced before it is drained": Mutant(
        "ring", "elastic", "!= AFTER_ALL or not drained(g, slot)", "!= AFTER_ALL", "source_again", 0
    ),
    "both readers removed": Mutant(
        "ring", "elastic", "        if live <= 1:\n", "        if live <= 0:\n", "both_readers_go", 0
    ),
    "a sleeper not counted": Mutant(
        "ring", "flow", "    fetch_add(g, event + 1, 1)\n    ticket", "    ticket", "wrap_around", 0
    ),
    "ticket taken after the last look": Mutant(
        "skiplist", "flow", "sleep_on(g, event, ticket, nanoseconds)", "sleep_on(g, event, load_acquire(g, event), nanoseconds)",
        "wrap_around",
    ),
    "asleep without a second look": Mutant(
        "ring", "flow", "            return look + 1, now, prepare(g, now)\n",
        "            sleep(g, now, prepare(g, now), nanoseconds)\n            return look + 2, now, ticket\n", "wrap_around",
    ),
    "sources not woken": Mutant(
        "ring", "calls", "        if took:\n            wake_sources(g)\n", "        if False:\n            pass\n",
        "wrap_around", 0,
    ),
    "readers not woken": Mutant(
        "skiplist", "calls", "            wake_if_moved(g, slot, before)\n            wake_sources(g)",
        "            wake_sources(g)", "wrap_around", 0,
    ),
    "readers not woken if anybody else is there": Mutant(
        "ring", "frontier", "load_acquire(g, source_at(other) + PROGRESS) <= before:",
        "load_acquire(g, source_at(other) + PROGRESS) < AFTER_ALL:", "both_promise", 0,
    ),
    "readers left to a source that has moved on": Mutant(
        "ring", "frontier", "load_acquire(g, source_at(other) + PROGRESS) <= before:",
        "load_acquire(g, source_at(other) + PROGRESS) <= before + 1:", "both_promise",
    ),
    "who else holds the frontier looked at before the promise": Mutant(
        "skiplist", "calls",
        "    if ts > before:\n        store_release(g, source_at(slot) + PROGRESS, ts)\n        leave_source(g, slot, before)\n",
        "    if ts > before:\n        other = load_acquire(g, source_at(1 - slot) + PROGRESS)\n"
        "        store_release(g, source_at(slot) + PROGRESS, ts)\n"
        "        leave_source(g, slot, before if other > before else AFTER_ALL)\n", "both_promise",
    ),
    "two threads inside": Mutant(
        "skiplist", "calls", "    r = reader_at(g, reader)\n    if not cas(g, r + BUSY, 0, 1):\n",
        "    r = reader_at(g, reader)\n    if load_acquire(g, r + BUSY) != 0:\n", "shared_reader",
    ),
    "the frontier believed to stand still": Mutant(
        "skiplist", "frontier", "load_acquire(g, source_at(holder) + PROGRESS) == old:",
        "load_acquire(g, source_at(holder) + PROGRESS) >= old:", "two_readers", 0,
    ),
    "towers linked before level 0": Mutant(
        "skiplist", "nodes",
        "        if cas(g, node + NEXT, ahead, new):\n            raise_towers(g, s, first + done, size)\n",
        "        raise_towers(g, s, first + done, size)\n        if cas(g, node + NEXT, ahead, new):\n", "towers",
    ),
}  # fmt: skip


#: The schedules of its case with one preemption take minutes.
BY_CHANCE = "a new reader forgotten"


def scenario_of(name):
    mutant = MUTANTS[name]
    threads, gate, _ = CASES[mutant.case]
    patches = {f"plait.threads.gate.{mutant.module}": [(mutant.old, mutant.new)]}
    return Case(mutant.kind, **gate, patches=patches, find_races=mutant.find_races).scenario(threads)


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != BY_CHANCE])
def test_the_fault_is_noticed(name):
    needs = MUTANTS[name].needs
    with pytest.raises(Failure) as found:
        explore(scenario_of(name), preemptions=needs, most_steps=4000)
    assert found.value.preemptions == needs


def test_a_fault_is_noticed_by_random_schedules():
    with pytest.raises(AssertionError):
        hunt(scenario_of(BY_CHANCE))


def hunt(scenario):
    for switch in (0.3, 0.05, 0.01):
        sample(scenario, seed=SEED, runs=400, switch=switch, most_steps=4000)
