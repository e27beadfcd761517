"""Planted faults: each must be noticed, or the tests that pass on the real text say nothing.

A mutant is the W-Hive's own text with one change; the cases are those of `test_hive_interleavings`. What finds it is the
exploration of all schedules with one preemption; those with none do not find the ones that are said to need it.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests.explore.schedule import Failure, explore
from tests.threads.aggregate.hive_scenarios import Case
from tests.threads.aggregate.test_hive_interleavings import CASES


class Mutant(NamedTuple):
    module: str
    old: str
    new: str
    case: str
    find_races: bool = False


LOOK = """    least = min(below, written_by_all(h))
    ahead = load_acquire(h, node_at(h, h[HEAD]) + NEXT)
"""
TAKEN = """    store_release(h, HEAD, ahead)
    store_release(h, HEAD_PANE, pane)
"""

MUTANTS = {
    "the list looked at before what was written": Mutant(
        "hive", LOOK, "".join(reversed(LOOK.splitlines(keepends=True))), "earlier_pane"
    ),
    "a winset taken while it is written": Mutant("hive", "    if pane >= least:", "    if pane > least:", "memory_again"),
    "one source not asked": Mutant("hive", "for slot in range(h[SLOTS]):", "for slot in range(h[SLOTS] - 1):", "same_pane"),
    "a winset taken twice": Mutant("hive", TAKEN, TAKEN.splitlines(keepends=True)[1], "same_pane"),
    "two winsets of one pane": Mutant(
        "winsets", "        if found != NIL and h[node_at(h, found) + PANE] == pane:", "        if False:", "same_pane"
    ),
    "no retry after a failed CAS in the list": Mutant(
        "winsets", "        if cas(h, node + NEXT, found, made):", "        if cas(h, node + NEXT, found, made) or True:",
        "earlier_pane",
    ),
    "a winset linked behind a later one": Mutant(
        "winsets", "        if ahead == NIL or h[node_at(h, ahead) + PANE] >= pane:\n            return node, ahead",
        "        if ahead == NIL:\n            return node, ahead", "earlier_pane",
    ),
    "handles not checked": Mutant(
        "winsets", "if load_acquire(h, HEAD_PANE) <= h[s + HANDLES_PANE + level]:", "if True:", "left_behind"
    ),
    "nodes freed under a pin": Mutant(
        "winsets", "        bound = min(bound, load_acquire(h, source_at(other) + PIN))", "        bound = bound",
        "left_behind", find_races=True,
    ),
    "the node taken last freed": Mutant("winsets", "+ PANE] < bound", "+ PANE] <= bound", "memory_again"),
    "towers linked before level 0": Mutant(
        "winsets", "        h[new + NEXT] = found\n        if cas(h, node + NEXT, found, made):\n",
        "        h[new + NEXT] = found\n        for level in range(1, h[new + HEIGHT]):\n"
        "            link_level(h, s, new, level)\n        if cas(h, node + NEXT, found, made):\n", "towers",
    ),
    "two windows of one key": Mutant(
        "table", "            if made == NIL or cas(h, entry_at, NIL, made << 1):\n",
        "            if made == NIL or cas(h, entry_at, NIL, made << 1) or True:\n", "same_pane",
    ),
    "a table that forgets the window before it": Mutant(
        "table", "        h[table + ((hash >> shift) & (fan - 1))] = entry\n", "", "same_table"
    ),
    "a table linked over a newer one": Mutant(
        "table", "                cas(h, entry_at, entry, table << 1 | 1)",
        "                store_release(h, entry_at, table << 1 | 1)",
        "same_table",
    ),
    "equal hashes taken for equal keys": Mutant(
        "table", "        if h[window + W_KEY + k] != words[at + k * stride]:", "        if False:", "same_hash"
    ),
    "a chain that is not listed": Mutant("table", "        if h[at + W_CHAIN] != NIL:", "        if False:", "same_hash"),
    "a member linked over another": Mutant(
        "table", "        if cas(h, members, last, place):\n            return place",
        "        if cas(h, members, last, place) or True:\n            return place", "same_pane",
    ),
    "what was written said before it is": Mutant(
        "hive", "    if pane > h[source_at(slot) + WRITTEN]:\n        store_release(h, source_at(slot) + WRITTEN, pane)",
        "    h[source_at(slot) + WRITTEN] = max(pane, h[source_at(slot) + WRITTEN])", "same_pane", find_races=True,
    ),
    "let go of before it was copied": Mutant(
        "hive", "    store_release(h, HEAD, ahead)\n",
        "    store_release(h, HEAD, ahead)\n    store_release(h, PASSED, pane + 1)\n",
        "arena_again", find_races=True,
    ),
}  # fmt: skip


NEED_A_PREEMPTION = {
    "the list looked at before what was written", "no retry after a failed CAS in the list", "nodes freed under a pin",
    "two windows of one key", "a table linked over a newer one", "a member linked over another", "let go of before it was copied",
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name):
    mutant = MUTANTS[name]
    threads, hive, _ = CASES[mutant.case]
    patches = {f"plait.threads.aggregate.hive.{mutant.module}": [(mutant.old, mutant.new)]}
    if "store_release" in mutant.new and mutant.module == "table":
        patches[f"plait.threads.aggregate.hive.{mutant.module}"].append(
            ("load_acquire, pure\n", "load_acquire, pure, store_release\n")
        )
    scenario = Case(**hive, patches=patches, find_races=mutant.find_races).scenario(threads)
    with pytest.raises(Failure) as found:
        explore(scenario, preemptions=1, most_steps=4000)
    assert isinstance(found.value.cause, (AssertionError, IndexError)), found.value
    assert found.value.preemptions == (name in NEED_A_PREEMPTION)
