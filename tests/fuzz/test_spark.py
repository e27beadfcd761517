"""The short form on Spark: a few cases, the same in every run, in the suite's one session."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fuzz import spark as fuzz
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw
from tests.fuzz.runner import Plan

pytestmark = pytest.mark.spark


def found(spark: Any, plan: Plan, cases: range) -> list[str]:
    differences: list[str] = []

    def each(case: int, difference: str | None) -> None:
        if difference is not None:
            differences.append(difference)

    fuzz.check_all(spark, plan, cases, at_once=3, each=each)
    return differences


#: A group of three deliveries is in `make test`.
PARTS = [pytest.param(first, marks=[pytest.mark.slow] if first else []) for first in range(0, 12, 3)]


@pytest.mark.again
@pytest.mark.parametrize("first", PARTS)
def test_cases(spark: Any, first: int) -> None:
    plan = Plan(11, Draw(conditions=4), Ways(), " --conditions 4")
    differences = found(spark, plan, range(first, first + 3))
    assert not differences, "\n\n".join(differences)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_cases(spark: Any) -> None:
    differences = found(spark, Plan(7, Draw(), Ways()), range(10_000, 10_600))
    assert not differences, "\n\n".join(differences)
