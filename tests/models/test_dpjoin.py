"""DP-Join's equations 2 to 9 with the numbers of its section 5."""

from __future__ import annotations

import pytest

from plait.errors import QueryError
from plait.models import dpjoin

HIT_RATE = 3.6e-6  # section 5.1
WINDOW = 300.0
#: Figure 6: 2 workers offer 3,100 pairs a second and 4 of them 6,200, so one worker 1,550.
ON = HIT_RATE / 1550


def test_equation_2() -> None:
    assert dpjoin.result_latency(12.0, 10.0, 11.0) == 1.0
    with pytest.raises(QueryError, match="A result at 9"):
        dpjoin.result_latency(9.0, 10.0, 1.0)


def test_equation_3_is_the_sum_over_both_windows() -> None:
    both = (1000 * 60 * 3000 * WINDOW + 3000 * 60 * 1000 * WINDOW) * HIT_RATE
    assert dpjoin.joined(1000, 3000, WINDOW, HIT_RATE, 60) == pytest.approx(both)


def test_equation_4_is_equation_3_a_second() -> None:
    assert dpjoin.max_bandwidth(2100, 2100, WINDOW, HIT_RATE) == pytest.approx(9525.6)
    assert dpjoin.joined(2100, 2100, WINDOW, HIT_RATE, 7) == pytest.approx(7 * 9525.6)


def test_optimal_degrees_of_figure_6() -> None:
    """The square and rectangular layouts «have slightly greater optimal parallelism degrees (8 and 9)» than the linear (7)."""
    shapes: tuple[dpjoin.Layout, ...] = ("linear", "rectangular", "square")
    assert [dpjoin.optimal_workers(2100, 2100, WINDOW, ON, shape) for shape in shapes] == [7, 8, 9]


def test_the_optimal_degree_is_the_first_that_offers_the_maximum() -> None:
    best = dpjoin.optimal_workers(2100, 2100, WINDOW, ON)
    wanted = dpjoin.max_bandwidth(2100, 2100, WINDOW, HIT_RATE)
    assert (
        dpjoin.offered_bandwidth(best, 1, ON, HIT_RATE) >= wanted > dpjoin.offered_bandwidth(best - 1, 1, ON, HIT_RATE)
    )


def test_small_degrees() -> None:
    assert dpjoin.optimal_workers(1, 1, 1, 1e-9) == 1
    assert [dpjoin.optimal_workers(1, 1, 1, n / 2, "square") for n in (1, 2, 4, 5, 9, 10)] == [1, 4, 4, 9, 9, 16]
    assert [dpjoin.optimal_workers(1, 1, 1, n / 2, "rectangular") for n in (1, 4, 5, 7, 11)] == [4, 4, 6, 8, 12]
    with pytest.raises(QueryError, match="layout='round'"):
        dpjoin.optimal_workers(1, 1, 1, 1, "round")  # type: ignore[arg-type]


@pytest.mark.parametrize(("rows", "columns", "measured"), [(2, 3, 9301), (3, 3, 14047)])
def test_offered_bandwidth_of_table_1(rows: int, columns: int, measured: int) -> None:
    """Equation 6 within a hundredth; with 16 workers two share their core with the Emitter and the Collector."""
    assert dpjoin.offered_bandwidth(rows, columns, ON, HIT_RATE) == pytest.approx(measured, rel=0.01)
    assert dpjoin.offered_bandwidth(rows, columns, ON, HIT_RATE) < dpjoin.max_bandwidth(6000, 6000, WINDOW, HIT_RATE)


def test_equation_6_knows_no_layout() -> None:
    assert dpjoin.offered_bandwidth(4, 4, ON, HIT_RATE) == dpjoin.offered_bandwidth(16, 1, ON, HIT_RATE)


def test_equation_5_of_equation_6_is_the_number_of_workers() -> None:
    one = dpjoin.offered_bandwidth(1, 1, ON, HIT_RATE)
    assert dpjoin.scalability(dpjoin.offered_bandwidth(3, 5, ON, HIT_RATE), one) == pytest.approx(15)


def test_equation_7_is_its_sum_less_half_a_comparison() -> None:
    window, parts = 3000, 5
    in_full = sum(i * ON for i in range(1, window // parts + 1)) / (window // parts)
    assert dpjoin.stream_latency(window, ON, parts) == pytest.approx(in_full - ON / 2)


def test_equation_8_is_equation_9_where_rates_are_equal() -> None:
    for rows, columns in ((3, 3), (9, 1), (2, 8)):
        assert dpjoin.mean_latency(2500, 2500, WINDOW, ON, rows, columns) == pytest.approx(
            dpjoin.symmetric_latency(2500, WINDOW, ON, rows, columns)
        )
    weighed = dpjoin.mean_latency(1000, 3000, WINDOW, ON, 3, 5, share_x=1.0)
    assert weighed == dpjoin.stream_latency(3000 * WINDOW, ON, 5)


def test_equation_9_has_the_order_of_figure_8() -> None:
    """9 workers carry 2,500 tuples a second. Square 0.95 ms, linear 2.42 ms: the model's order; with the factor p far from it."""
    assert dpjoin.optimal_workers(2500, 2500, WINDOW, ON) == 9
    square = dpjoin.symmetric_latency(2500, WINDOW, ON, 3, 3)
    linear = dpjoin.symmetric_latency(2500, WINDOW, ON, 9, 1)
    assert square < linear
    assert 0.1 * 0.95e-3 < square < 0.95e-3
    assert 0.1 * 2.42e-3 < linear < 2.42e-3
    assert square * HIT_RATE < 1e-8  # what the printed factor would make of it


def test_layouts_of_figures_8_and_9() -> None:
    """Square for equal rates; 3 x 5 for 1,000 and 3,000 tuples a second on 15 workers, 5 x 3 the other way round."""
    assert dpjoin.best_layout(9, 2500, 2500) == (3, 3)
    assert dpjoin.best_layout(15, 1000, 3000) == (3, 5)
    assert dpjoin.best_layout(15, 3000, 1000) == (5, 3)
    assert dpjoin.best_layout(7, 1, 1) == (1, 7)


def test_the_best_layout_has_the_least_of_the_slower_latencies() -> None:
    best = dpjoin.slower_latency(1000, 3000, WINDOW, ON, 3, 5)
    assert best < min(dpjoin.slower_latency(1000, 3000, WINDOW, ON, *shape) for shape in ((5, 3), (1, 15), (15, 1)))
    assert best == max(dpjoin.stream_latency(3000 * WINDOW, ON, 5), dpjoin.stream_latency(1000 * WINDOW, ON, 3))


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(QueryError, match=r"hit_rate=1\.5"):
        dpjoin.max_bandwidth(1, 1, 1, 1.5)
