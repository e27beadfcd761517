"""The short form on threads: the same cases in every run. `python -m tests.fuzz threads` is the long one."""

from __future__ import annotations

import pytest
from tests.fuzz import pool, runner
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw

SEED = 7
#: Few conditions are compiled: what a machine that has compiled nothing yet can do in a few seconds.
QUICK = runner.Plan(SEED, Draw(), Ways(compiled=2), " --compiled 2")


def found(plan: runner.Plan, cases: range, processes: int) -> list[str]:
    differences: list[str] = []

    def each(case: int, difference: str | None) -> None:
        if difference is not None:
            differences.append(difference)

    pool.run(lambda case: runner.check(plan, case), cases, processes=processes, each=each)
    return differences


#: Two of these parts are left to the soak: they take as long each, and find what the others find.
PARTS = [pytest.param(first, marks=[pytest.mark.slow] if first >= 160 else []) for first in range(0, 320, 80)]


@pytest.mark.parametrize("first", PARTS)
def test_cases(first: int) -> None:
    differences = found(QUICK, range(first, first + 80), processes=0)
    assert not differences, "\n\n".join(differences)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_cases() -> None:
    """Other cases than the short form's; each in a process that is killed if it hangs."""
    differences = found(runner.Plan(SEED, Draw(), Ways()), range(1_000_000, 1_020_000), processes=2)
    assert not differences, "\n\n".join(differences)


def test_a_case_is_a_function_of_its_number() -> None:
    for case in (3, 90, 1234):
        group, answer = runner.group_of(QUICK, case // runner.DELIVERIES)
        once = (group.described(), answer.table, runner.delivered(QUICK, case, group).described())
        runner.group_of.cache_clear()
        group, answer = runner.group_of(QUICK, case // runner.DELIVERIES)
        assert once == (group.described(), answer.table, runner.delivered(QUICK, case, group).described())
