"""Every case on every executor: the rows written by hand, in order; or the error, in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.everywhere.cases import CASES
from tests.everywhere.executors import EXECUTORS


def combined() -> Iterator[Any]:
    """Every case on every executor. On Spark, where one takes as long as all others do, every second one is CI's second look."""
    for executor, runs in EXECUTORS.items():
        for number, case in enumerate(CASES):
            marks = [pytest.mark.spark, *([pytest.mark.again] if number % 2 else [])] if "spark" in runs.needs else []
            yield pytest.param(executor, case, marks=marks)


@pytest.mark.parametrize(("executor", "case"), combined())
def test_every_executor_gives_the_answer(executor: str, case: str, request: pytest.FixtureRequest) -> None:
    runs, asked = EXECUTORS[executor], CASES[case]
    if case in runs.cannot:
        pytest.skip(runs.cannot[case])
    needs = tuple(request.getfixturevalue(name) for name in runs.needs)
    if isinstance(asked.answer, list):
        got = runs.run(asked.query, asked.data, needs)
        assert [tuple(row.values()) for row in got.to_pylist()] == asked.answer
        return
    kind, words = asked.answer
    with pytest.raises(runs.raises or kind, match=words):
        runs.run(asked.query, asked.data, needs)


def test_what_an_executor_cannot_do_is_a_case() -> None:
    assert {case for each in EXECUTORS.values() for case in each.cannot} <= set(CASES)
