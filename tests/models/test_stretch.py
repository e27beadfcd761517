"""STRETCH's section 8 with table 1: figure 3's break-even points are 6 and 11 threads."""

from __future__ import annotations

from math import log2

import pytest

from plait.errors import QueryError
from plait.models import stretch
from plait.models.stretch import TABLE_1, Costs, stages


def test_break_even_points_of_figure_3() -> None:
    assert stretch.scales_to("pure", TABLE_1) == 6
    assert stretch.scales_to("virtual", TABLE_1) == 11


@pytest.mark.parametrize("n", [1, 2, 6, 7, 11, 12, 16])
def test_table_1(n: int) -> None:
    pure, virtual = stages("pure", TABLE_1, n), stages("virtual", TABLE_1, n)
    assert (pure.input_s, virtual.input_s) == (1 + 0.1 * n, 1 + 0.01 * n)
    assert pure.process_s == virtual.process_s == 16 / n
    assert pure.output_s == pytest.approx(1 + 0.1 * n * log2(n))
    assert virtual.output_s == pytest.approx(1 + 0.01 * n * log2(n))


def test_the_output_threads_are_what_ends_it() -> None:
    """Section 9.1: «Once T^O's threads become the bottleneck of the pipeline ...»."""
    assert (stages("pure", TABLE_1, 6).bottleneck, stages("pure", TABLE_1, 7).bottleneck) == ("processing", "output")
    assert (stages("virtual", TABLE_1, 11).bottleneck, stages("virtual", TABLE_1, 12).bottleneck) == (
        "processing",
        "output",
    )
    assert stages("pure", Costs(input_s=1, process_s=4, output_s=1, route_s=1), 3).bottleneck == "input"


def test_rates_are_of_the_slowest_stage() -> None:
    """Pure peaks at 6 threads, virtual at 11, and lets 1.8 times as much through (figure 4a)."""
    peak = {kind: max(stages(kind, TABLE_1, n).tuples_per_s for n in range(1, 20)) for kind in ("pure", "virtual")}
    assert peak == {"pure": 6 / 16, "virtual": pytest.approx(1 / 1.430, rel=1e-3)}
    assert stages("pure", TABLE_1, 7).tuples_per_s < stages("pure", TABLE_1, 6).tuples_per_s == peak["pure"]
    assert stages("virtual", TABLE_1, 11).tuples_per_s == 11 / 16


def test_where_virtual_scales_and_pure_does_not() -> None:
    better = [n for n in range(1, 40) if stretch.virtual_scales_better(TABLE_1, n)]
    assert better == [9, 10, 11]
    faster = [
        n for n in range(1, 40) if stages("virtual", TABLE_1, n).tuples_per_s > stages("pure", TABLE_1, n).tuples_per_s
    ]
    assert faster[0] == 7


def test_an_operator_that_does_nothing_scales_to_no_thread() -> None:
    """Section 9.2: without processing cost the input or output threads are the bottleneck from the first thread on."""
    assert stretch.scales_to("virtual", Costs(input_s=1, process_s=0.5, output_s=1)) == 0


def test_seeing_every_tuple_is_virtuals_alone_and_not_shared_out() -> None:
    costs = Costs(input_s=1, process_s=8, output_s=1, see_s=0.5)
    assert [stages("virtual", costs, n).process_s for n in (1, 4)] == [8.5, 2.5]
    assert [stages("pure", costs, n).process_s for n in (1, 4)] == [8, 2]
    assert TABLE_1.see_s == 0


def test_cores_are_a_second_bound() -> None:
    made = stages("virtual", Costs(input_s=1, process_s=8, output_s=1, see_s=0.5), 4)
    assert made.on_cores(4, cores=2) == pytest.approx(2 / 12)
    assert made.on_cores(4, cores=2, inputs=3) == pytest.approx(2 / 14)
    assert made.on_cores(4, cores=100) == made.tuples_per_s == 1 / 2.5
    with pytest.raises(QueryError, match="cores=0"):
        made.on_cores(4, cores=0)


def test_it_stops_at_the_limit() -> None:
    assert stretch.scales_to("virtual", Costs(input_s=0, process_s=1, output_s=0), limit=64) == 64


def test_what_is_no_kind_is_refused() -> None:
    with pytest.raises(QueryError, match="kind='shared'"):
        stages("shared", TABLE_1, 1)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="threads=0"):
        stages("pure", TABLE_1, 0)
    with pytest.raises(QueryError, match="process_s=0"):
        Costs(input_s=1, process_s=0, output_s=1)
    with pytest.raises(QueryError, match="merge_pure_s=-1"):
        Costs(input_s=1, process_s=1, output_s=1, merge_pure_s=-1)
