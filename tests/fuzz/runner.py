"""One case on threads, by its number: what it is, what came of it, and how a difference is made small."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.fuzz import bounded, deliveries, duck, judge, queries
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw
from tests.fuzz.queries import Group

#: Cases that share a query, its data and the reference's answer.
DELIVERIES = 8


@dataclass(frozen=True)
class Plan:
    """What all cases of a run have in common."""

    seed: int
    draw: Draw = field(default_factory=Draw)
    ways: Ways = field(default_factory=Ways)
    flags: str = ""  # of the command that made it: what a case is depends on them


@functools.lru_cache(maxsize=4)
def group_of(plan: Plan, number: int) -> tuple[Group, judge.Answer]:
    made = queries.group(random.Random(f"{plan.seed}:{number}"), plan.draw)
    return made, judge.answer(made)


def outside(plan: Plan, number: int) -> str | None:
    """What DuckDB has to say against the reference."""
    made, answer = group_of(plan, number)
    found = duck.judged(made, answer)
    return None if found is None else f"group {number} of seed {plan.seed}: {found}\n{made.described()}"


def delivered(plan: Plan, case: int, group: Group) -> deliveries.Delivery:
    return deliveries.delivery(random.Random(f"{plan.seed}:case {case}"), group, plan.ways)


def check(plan: Plan, case: int) -> str | None:
    """None, or the difference with all that is needed to see it again."""
    group, answer = group_of(plan, case // DELIVERIES)
    if case % DELIVERIES == 0 and (said := outside(plan, case // DELIVERIES)) is not None:
        return said
    if case % DELIVERIES == 1 and (said := all_at_hand(plan, case)) is not None:
        return said
    given = delivered(plan, case, group)
    found = judge.judged(answer, deliveries.carried_out(group, given))
    if found is None:
        return None
    small, tries = shrunk(group, lambda other: _differs(plan, case, other))
    again = delivered(plan, case, small)
    return "\n".join((
        f"case {case} of seed {plan.seed}: {found}",
        f"{small.described()}", again.described(),
        f"({group_rows(group)} rows, {group_rows(small)} of them left after {tries} tries)",
        f"again: python -m tests.fuzz threads --seed {plan.seed}{plan.flags} --case {case}",
    ))  # fmt: skip


def all_at_hand(plan: Plan, case: int) -> str | None:
    """The same of the whole tables in slabs (`query.run`), once a group: no case has another meaning by it."""
    group, answer = group_of(plan, case // DELIVERIES)
    seed = f"{plan.seed}:slabs {case // DELIVERIES}"

    def found(other: Group, expected: judge.Answer) -> str | None:
        for got in bounded.carried_out(other, random.Random(seed), plan.ways):
            if (said := judge.judged(expected, got)) is not None:
                return said
        return None

    said = found(group, answer)
    if said is None:
        return None
    small, tries = shrunk(group, lambda other: found(other, judge.answer(other)) is not None)
    return "\n".join((
        f"group {case // DELIVERIES} of seed {plan.seed}, in slabs: {said}", small.described(),
        f"({group_rows(group)} rows, {group_rows(small)} of them left after {tries} tries)",
        f"again: python -m tests.fuzz threads --seed {plan.seed}{plan.flags} --case {case}",
    ))  # fmt: skip


def _differs(plan: Plan, case: int, group: Group) -> bool:
    """Threads take turns as they like: a difference that shows once in three runs is one."""
    answer = judge.answer(group)
    return any(judge.judged(answer, deliveries.carried_out(group, delivered(plan, case, group))) for _ in range(3))


def group_rows(group: Group) -> int:
    return sum(each.rows for each in group.feeds)


def shrunk(group: Group, differs: Callable[[Group], bool], most: int = 60) -> tuple[Group, int]:
    """Leave rows out, halves first, as long as it still differs."""
    tries = 0
    size = max((len(rows) for each in group.feeds for rows in each.sources.values()), default=0)
    while size >= 1 and tries < most:
        for at, each in enumerate(group.feeds):
            for name in each.sources:
                begin = 0
                while begin < len(group.feeds[at].sources[name]) and tries < most:
                    feeds = list(group.feeds)
                    feeds[at] = feeds[at].without(name, begin, begin + size)
                    tries += 1
                    less = replace(group, feeds=tuple(feeds))
                    if differs(less):
                        group = less
                    else:
                        begin += size
        size //= 2
    return group, tries
