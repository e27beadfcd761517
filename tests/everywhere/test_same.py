"""Every case on every executor: the rows written by hand, in order; or the error, in the same words."""

from __future__ import annotations

import pytest
from tests.everywhere.cases import CASES
from tests.everywhere.executors import EXECUTORS


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("executor", [
    pytest.param(name, marks=pytest.mark.spark if "spark" in each.needs else ()) for name, each in EXECUTORS.items()
])  # fmt: skip
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
