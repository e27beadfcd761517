from itertools import product

import pytest
from tests.crossed import BESIDES, left_to_the_soak

A, B, C = "abcde", (1, 2, 3), (True, False)


def test_every_value_is_run() -> None:
    sets = [dict(zip("abc", each, strict=True)) for each in product(A, B, C)]
    run = [values for values, left in zip(sets, left_to_the_soak(sets), strict=True) if not left]
    for name, values in zip("abc", (A, B, C), strict=True):
        assert {each[name] for each in run} == set(values)
    assert len(sets) / BESIDES < len(run) < len(sets) / 2


def test_a_list_of_cases_is_run_whole() -> None:
    assert not any(left_to_the_soak([{"case": name} for name in A]))


@pytest.mark.crossed
@pytest.mark.parametrize("one", [object() for _ in range(6)])
@pytest.mark.parametrize("other", [object() for _ in range(5)])
def test_this_one_is_crossed(one: object, other: object, request: pytest.FixtureRequest) -> None:
    """Collected as others are: of its thirty sets some are run, and none of those that are left."""
    items = [item for item in request.session.items if getattr(item, "originalname", "") == "test_this_one_is_crossed"]
    if "not slow" in request.config.option.markexpr:
        assert len(items) == 14
        assert not any(item.get_closest_marker("slow") for item in items)
