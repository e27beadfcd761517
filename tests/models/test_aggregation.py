"""The aggregation paper's costs with the numbers of its table 2 and section 7.3."""

from __future__ import annotations

import pytest

from plait.errors import QueryError
from plait.models import aggregation
from plait.models.aggregation import Costs, Durations, durations

COSTS = Costs(add_s=1.0, merge_s=2.0, update_s=8.0, output_s=0.5)


@pytest.mark.parametrize(
    ("size", "advance", "windows"), [(30, 3, 10), (20, 2, 10), (40, 2, 20), (10, 10, 1), (3, 2, 2), (1, 5, 1)]
)
def test_windows_of_table_2(size: int, advance: int, windows: int) -> None:
    """«Each tuple contributes to 10 windows» (w), «to 20 windows» (W); figure 1 has size 3 and advance 2."""
    assert aggregation.windows_per_tuple(size, advance) == windows


@pytest.mark.parametrize("reached", [100_000, 130_000, 160_000])
def test_the_output_thread_bounds_order_sensitive_designs(reached: int) -> None:
    """Figure 8: «O_t threads, which constitute the bottleneck, will reach 100,000, 130,000 and 160,000 t/s»: MQ, MQ_LF, TuML."""
    made = Durations(input_s=1 / 1_000_000, output_s=1 / reached)
    assert made.bottleneck(inputs=20) == "output"
    assert made.tuples_per_s(inputs=20) == pytest.approx(reached)


def test_wiml_of_figure_10() -> None:
    """22,000 t/s an input thread, 20 of them, and an output thread for 2 million: the paper measured 430,000 (figure 16)."""
    wiml = Durations(input_s=1 / 22_000, output_s=1 / 2_000_000)
    assert wiml.tuples_per_s(inputs=20) == pytest.approx(430_000, rel=0.03)
    assert wiml.bottleneck(inputs=20) == "input"
    assert [round(wiml.tuples_per_s(inputs=n) / 22_000) for n in (5, 10, 15, 20)] == [5, 10, 15, 20]


def test_who_does_which_stage() -> None:
    """Figure 2: what moves from the output thread to others from design to design."""
    assert durations("mq", COSTS) == Durations(input_s=1.0, output_s=10.5)
    assert durations("tuml_sc", COSTS) == Durations(input_s=3.0, output_s=8.5)
    assert durations("tuml_mc", COSTS, updaters=4) == Durations(input_s=3.0, update_s=2.0, output_s=0.5)
    assert durations("wiml", COSTS) == Durations(input_s=11.0, output_s=0.5)
    assert set(aggregation.DESIGNS) == {"mq", "tuml_sc", "tuml_mc", "wiml"}


def test_all_work_of_a_tuple_is_the_same_in_every_design() -> None:
    for design in aggregation.DESIGNS:
        made = durations(design, COSTS)
        assert made.input_s + made.update_s + made.output_s == 11.5


def test_queues_slow_down_with_inputs_gates_hardly_and_windows_speed_up() -> None:
    """Section 7.3: MQ's «throughput decreases linearly», TuML_SC's «is rather stable», WiML's «actually increases»."""

    def through(design: str, inputs: int) -> float:
        queue = aggregation.queue_merge(0.5e-6, inputs)
        merge = queue if design == "mq" else aggregation.gate_merge(0.1e-6, inputs) if design == "tuml_sc" else 0.0
        costs = Costs(add_s=0.1e-6, merge_s=merge, update_s=6e-6, output_s=0.2e-6)
        return durations(design, costs).tuples_per_s(inputs)

    mq, tuml, wiml = ([through(design, inputs) for inputs in (5, 10, 15, 20)] for design in ("mq", "tuml_sc", "wiml"))
    assert mq == sorted(mq, reverse=True)
    assert mq[0] / mq[-1] > 1.5
    assert max(tuml) / min(tuml) < 1.05
    assert wiml[-1] / wiml[0] == pytest.approx(4)
    assert tuml[-1] / mq[-1] > 1.6


def test_merging_costs() -> None:
    assert [aggregation.queue_merge(1.0, n) for n in (1, 10, 20)] == [1, 10, 20]
    assert [aggregation.gate_merge(1.0, n) for n in (1, 2, 16)] == [1, 2, 5]


def test_more_keys_bring_more_results() -> None:
    """Queries k (243 keys) and K (40,000 keys), an advance of 3 seconds."""
    few, many = (aggregation.results_per_tuple(keys, 3, 100_000) for keys in (243, 40_000))
    assert many / few == pytest.approx(40_000 / 243)


def test_update_threads_share_until_something_else_is_slower() -> None:
    """Section 7.4: TuML_MC gains with threads, up to what its input threads let through."""
    rates = [durations("tuml_mc", COSTS, updaters=n).tuples_per_s(2, updaters=n) for n in (1, 2, 4, 8)]
    assert rates == pytest.approx([1 / 8, 1 / 4, 1 / 2, 1 / 1.5])


def test_cores_are_a_second_bound() -> None:
    made = durations("wiml", COSTS)
    assert made.tuples_per_s(20, cores=2) == pytest.approx(2 / 11.5)
    assert made.tuples_per_s(20, cores=1000) == made.tuples_per_s(20)
    shared = durations("tuml_mc", COSTS, updaters=4)
    assert shared.tuples_per_s(20, updaters=4, cores=2) == pytest.approx(2 / 11.5)


def test_bottlenecks() -> None:
    assert durations("tuml_mc", COSTS).bottleneck(inputs=20) == "update"
    assert durations("wiml", COSTS).bottleneck(inputs=20) == "input"
    assert durations("mq", COSTS).bottleneck(inputs=20) == "output"


def test_what_is_no_design_is_refused() -> None:
    with pytest.raises(QueryError, match="design='tuml'"):
        durations("tuml", COSTS)
    with pytest.raises(QueryError, match="update_s=-1"):
        Costs(add_s=1, merge_s=1, update_s=-1, output_s=1)
    with pytest.raises(QueryError, match="total=0"):
        Durations(input_s=0, output_s=0)
