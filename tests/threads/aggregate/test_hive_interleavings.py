"""The W-Hive's own source under the scheduler: all schedules with few preemptions, then random ones.

Every run is checked to be linearizable against a sequential hive, to lose and repeat nothing, and to be free of data races
on plain words.
"""

from __future__ import annotations

import os

import pytest
from tests.examples import examples
from tests.explore.schedule import explore, sample
from tests.threads.aggregate.hive_scenarios import Case, TwinHive

from plait.threads.aggregate.hive import words as y

SEED = int(os.environ.get("PLAIT_SEED", "20140623"))


def sequence(*calls):
    """A thread that makes these calls one after the other."""
    for call in calls:
        yield from call


def same_pane(hive: TwinHive):
    # Both want the same winset, and the same window in it.
    return [
        sequence(hive.update(0, 1, (5, 1)), hive.advance(0, 2)),
        sequence(hive.update(1, 1, (5, 10), (6, 20)), hive.advance(1, 2)),
        sequence(hive.take(), hive.take()),
    ]


def earlier_pane(hive: TwinHive):
    # A winset is linked in front of one that the taker may be looking at.
    return [
        sequence(hive.update(0, 3, (1, 1)), hive.advance(0, 9)),
        sequence(hive.update(1, 1, (1, 2)), hive.advance(1, 9)),
        sequence(hive.take(), hive.take()),
    ]


def same_table(hive: TwinHive):
    # Keys 1, 257 and 513 differ only in bits of the second table, 4097 of the third: tables grow while both enter.
    return [
        sequence(hive.update(0, 1, (1, 1), (257, 2)), hive.advance(0, 2)),
        sequence(hive.update(1, 1, (513, 3), (4097, 4), (1, 5)), hive.advance(1, 2)),
    ]


def same_hash(hive: TwinHive):
    return [
        sequence(hive.update(0, 1, (1, 1), (2, 2)), hive.advance(0, 2)),
        sequence(hive.update(1, 1, (2, 3), (3, 4)), hive.advance(1, 2)),
    ]


def towers(hive: TwinHive):
    # Panes 4, 8 and 16 are tall: higher levels are linked by two sources at once, and climbed.
    return [
        sequence(hive.update(0, 4, (1, 1)), hive.update(0, 16, (1, 2)), hive.update(0, 17, (1, 2))),
        sequence(hive.update(1, 8, (1, 3)), hive.update(1, 12, (1, 4)), hive.update(1, 16, (1, 4))),
    ]


def one_by_one(slot, panes, hive, key=1):
    for pane in panes:
        yield from hive.advance(slot, pane)
        yield from hive.update(slot, pane, (key, pane))
    yield from hive.advance(slot, y.LAST)


def memory_again(hive: TwinHive):
    # Two nodes and few words a source for six panes: memory is used again while all run, and each waits for the taker.
    return [one_by_one(0, range(1, 7), hive), one_by_one(1, range(1, 7), hive), hive.take_until(6)]


def arena_again(hive: TwinHive):
    # Words for two windows a source, three panes: the third waits for the taker.
    return [one_by_one(0, range(1, 4), hive), one_by_one(1, range(1, 4), hive), hive.take_until(3)]


def left_behind(hive: TwinHive):
    # Source 1 stands at pane 1, then jumps: meanwhile what its handles name is taken, freed and used again by source 0.
    return [
        sequence(hive.update(1, 1, (1, 1)), hive.advance(1, 40), hive.update(1, 40, (1, 2)), hive.advance(1, y.LAST)),
        one_by_one(0, (1, 2, 3, 4, 5, 6, 7, 41), hive),
        hive.take_until(9),
    ]


def three_sources(hive: TwinHive):
    return [
        sequence(hive.update(0, 1, (1, 1)), hive.advance(0, 2), hive.update(0, 2, (1, 1)), hive.advance(0, 3)),
        sequence(hive.update(1, 2, (1, 2)), hive.advance(1, 3)),
        sequence(hive.update(2, 1, (1, 4)), hive.advance(2, 3)),
        sequence(hive.take(), hive.take()),
    ]


TIGHT = {"nodes": 2, "words": 32}
TABLES = {"words": 1024}
CASES = {
    # name: (threads, hive, preemptions)
    "same_pane": (same_pane, TABLES, 2),
    "earlier_pane": (earlier_pane, {}, 2),
    "same_table": (same_table, TABLES, 2),
    "same_hash": (same_hash, {"hashes": lambda key: 7}, 2),
    "towers": (towers, {"walk": 0}, 1),
    "memory_again": (memory_again, TIGHT, 0),
    "arena_again": (arena_again, {"nodes": 16, "words": 16}, 0),
    "left_behind": (left_behind, TIGHT, 0),
    "three_sources": (three_sources, {"slots": 3, **TABLES}, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_with_few_preemptions(name):
    threads, hive, preemptions = CASES[name]
    runs = explore(Case(**hive).scenario(threads), preemptions=preemptions)
    assert len(runs) == preemptions + 1
    assert min(runs) > 1


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_random_schedules(name):
    threads, hive, _ = CASES[name]
    sample(Case(**hive).scenario(threads), seed=SEED, runs=examples(100), switch=0.35)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_no_plain_word_is_raced_for(name):
    threads, hive, _ = CASES[name]
    sample(Case(**hive, find_races=True).scenario(threads), seed=SEED, runs=examples(30), switch=0.35)


#: Those whose next bound is more than minutes of schedules: three threads that sleep again and again.
ENOUGH = {"memory_again", "left_behind"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in ENOUGH])
def test_every_schedule_with_one_preemption_more(name):
    threads, hive, preemptions = CASES[name]
    assert min(explore(Case(**hive).scenario(threads), preemptions=preemptions + 1)) > 1
