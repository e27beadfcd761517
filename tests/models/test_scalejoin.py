"""ScaleJoin's bounds with the numbers of its sections II and VI."""

from __future__ import annotations

import pytest

from plait.errors import QueryError
from plait.models import scalejoin

MINUTE = 60


def test_the_cost_of_section_two() -> None:
    """«If WS = 10 minutes and T = 500 tuples/second, a stream join must run 300 million comparisons/second on average.»"""
    assert scalejoin.comparisons(10 * MINUTE, 500) == 300e6


def test_different_rates_of_figure_8a() -> None:
    """R brings 1,200 and S 900 tuples a second, 5 minutes: «approximately 65 million c/s are run by each of the [10] PTs»."""
    assert scalejoin.comparisons(5 * MINUTE, 1200, 900) / 10 == pytest.approx(65e6, rel=0.01)


@pytest.mark.parametrize(
    ("billions", "minutes", "reported"),
    [(4.0, 5, 5100), (4.0, 10, 3500), (4.0, 15, 3000), (1.4, 5, 3000), (1.4, 10, 2100), (1.4, 15, 1750)],
)
def test_rates_of_figure_5(billions: float, minutes: int, reported: int) -> None:
    """Systems S1 and S2: comparisons a second give the rates that the paper reports, of both streams together."""
    both = 2 * scalejoin.max_tuples(billions * 1e9, minutes * MINUTE)
    assert both == pytest.approx(reported, rel=0.05)


def test_comparisons_grow_with_threads_and_rates_with_their_root() -> None:
    for threads in (1, 4, 16, 48):
        assert scalejoin.max_comparisons(100e6, threads) == threads * 100e6
        assert scalejoin.max_tuples(100e6, 300, threads) == pytest.approx(
            threads**0.5 * scalejoin.max_tuples(100e6, 300)
        )


def test_rates_at_the_bound_cost_what_the_threads_have() -> None:
    """T_max is the inverse of the cost: the two formulas agree."""
    rate = scalejoin.max_tuples(80e6, 300, 48)
    assert scalejoin.comparisons(300, rate) == pytest.approx(scalejoin.max_comparisons(80e6, 48))


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "many"])
def test_what_is_no_number_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(QueryError, match=r"window_s="):
        scalejoin.comparisons(wrong, 500)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"threads="):
        scalejoin.max_tuples(1e6, 300, 0.5)  # type: ignore[arg-type]
