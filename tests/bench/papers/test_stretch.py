"""The studies of STRETCH's figures: a claim holds of rows with the paper's shape and fails without it. Nothing is timed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.papers.judging import drawn, holds

from plait.models import stretch as model
from plait_bench.papers.stretch import STUDIES, epochs, parallelism, synthetic_costs
from plait_bench.papers.study import Scale

Rows = list[dict[str, Any]]


def changed(rows: Rows, column: str, factor: float, **where: Any) -> Rows:
    """The same with a column multiplied, in the rows that have these values."""
    return [
        {**row, column: row[column] * factor} if all(row[key] == value for key, value in where.items()) else row
        for row in rows
    ]


def test_figure_3_and_table_2_are_the_papers() -> None:
    for found in (parallelism.figure_3(Scale()), epochs.table_2(Scale())):
        assert all(claim.holds for claim in found.claims)


@pytest.mark.parametrize(("column", "says"), [("threads", "all ten numbers"), ("after_looks", "a run's policy")])
def test_table_2_with_a_number_that_is_not_there(column: str, says: str) -> None:
    rows = [dict(row) for row in epochs.table_2(Scale()).rows]
    rows[3][column] += 1
    assert not holds(epochs.judged_table_2(rows), says)


def test_the_policy_look_by_look_keeps_what_it_came_to() -> None:
    assert epochs.asked(18, 1.2) == 31
    assert epochs.asked(18, 0.7) == 18


def synthetic() -> Rows:
    """Just what the model has."""
    costs = parallelism.costs_of(0.7e-3)
    return [
        {"kind": kind, "threads": n, "model_ms": (ms := 1e3 / model.stages(kind, costs, n).tuples_per_s), "measured_ms": ms,
         "latency_ms": 8 * ms, "d_input_ms": 0.7}
        for n in (1, 6, 11) for kind in parallelism.KINDS
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(synthetic(), "measured_ms", 2.0, kind="virtual", threads=6), "virtual parallelism performs"),
        (changed(synthetic(), "measured_ms", 0.5, kind="pure", threads=6), "pure parallelism performs"),
        (changed(synthetic(), "measured_ms", 0.1, kind="pure", threads=11), "virtual parallelism gains"),
        (changed(synthetic(), "measured_ms", 3.0, kind="virtual", threads=11), "it has the higher"),
        (changed(synthetic(), "latency_ms", 9.0, kind="virtual", threads=11), "and the lower latency"),
    ],
)
def test_figure_4a(rows: Rows, says: str) -> None:
    assert holds(parallelism.judged_4a(synthetic()), says)
    assert not holds(parallelism.judged_4a(rows), says)


def forwarded() -> Rows:
    return [
        {"threads": n, "virtual tuples_per_s": 5e5, "pure tuples_per_s": 4e5 / n, "virtual cpu_us": 2.0, "pure cpu_us": 3.0 * n,
         "virtual push_p50_ms": 20.0, "pure push_p50_ms": 200.0, "same results": True}
        for n in (1, 2, 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "factor", "threads", "says"),
    [
        ("same results", 0, 2, "both give"),
        ("pure cpu_us", 0.1, 2, "a tuple costs pure"),
        ("virtual tuples_per_s", 0.1, 4, "virtual parallelism has"),
        ("virtual cpu_us", 9.0, 4, "and loses less"),
        ("virtual push_p50_ms", 99.0, 4, "its latency"),
    ],
)
def test_figure_4b(column: str, factor: float, threads: int, says: str) -> None:
    assert holds(parallelism.judged_4b(forwarded()), says)
    assert not holds(parallelism.judged_4b(changed(forwarded(), column, factor, threads=threads)), says)


def intra() -> Rows:
    rows = [(epochs.ONE, 1, 0.5)] + [(name, n, 1.0) for name in (epochs.SCALEJOIN, epochs.STRETCH) for n in (1, 2, 4)]
    return [
        {
            "contender": name,
            "threads": n,
            "window_s": 1.0,
            "rate": 1e5 * n**0.5,
            "comparisons_per_s": 1e10 * n,
            "latency_ms": ms,
        }
        for name, n, ms in rows
    ]


@pytest.mark.parametrize(
    ("column", "factor", "where", "says"),
    [
        ("comparisons_per_s", 2.0, {"contender": epochs.ONE}, "one thread of"),
        ("comparisons_per_s", 0.5, {"contender": epochs.STRETCH, "threads": 4}, "comparisons grow"),
        ("rate", 2.0, {"contender": epochs.STRETCH, "threads": 4}, "the rate goes"),
        ("latency_ms", 20.0, {"contender": epochs.STRETCH, "threads": 4}, "STRETCH's latency"),
        ("latency_ms", 9.0, {"contender": epochs.ONE}, "a single thread has"),
    ],
)
def test_figure_5_within_an_epoch(column: str, factor: float, where: dict[str, Any], says: str) -> None:
    assert holds(epochs.judged_intra(intra()), says)
    assert not holds(epochs.judged_intra(changed(intra(), column, factor, **where)), says)


def step(
    percent: float, after: int, rate: float = 1.7, delay: float = 1.0, stays: float = 0.9, cores: float = 1.0
) -> Rows:
    rising = percent > 70
    began, told = (1, 2) if rising else (2, 1)
    rows = [
        {"second": k, "phase": phase, "starting": began, "step_percent": percent, "told": told, "changes": "", "cpu_s": cores * k,
         "threads": (now := began if phase == "before" else after), "called_for": now,
         "tuples_per_s": 1e4 * (1 if phase == "before" else rate),
         "comparisons_per_s": 1e9, "push_p50_ms": 5.0 * (1 if phase == "before" else delay)}
        for k, phase in enumerate(["before"] * 4 + ["after"] * 4)
    ]  # fmt: skip
    stay = [row | {"contender": epochs.SCALEJOIN, "threads": began, "comparisons_per_s": 1e9 * stays} for row in rows]
    return [row | {"contender": epochs.STRETCH} for row in rows] + stay


def test_figure_5_a_load_that_steps() -> None:
    for found in (parallelism.judged_4a(synthetic()), parallelism.judged_4b(forwarded()), epochs.judged_intra(intra())):
        drawn(found)
    for rows in (step(120, 2), step(30, 1, rate=0.4)):
        drawn(epochs.judged_step(rows))
        assert all(claim.holds for claim in epochs.judged_step(rows).claims)
    assert not holds(epochs.judged_step(step(120, 1)), "threads come")
    assert epochs.judged_step(step(120, 1)).claims[0].verdict(Scale("quick")) == "fails"
    assert epochs.judged_step(step(120, 1, cores=0.2)).claims[0].verdict(Scale("quick")) == "not judged", (
        "others had the core"
    )
    assert not holds(epochs.judged_step(step(30, 2, rate=0.4)), "threads go")
    early = [row | {"called_for": 1} for row in step(30, 1, rate=0.4)]
    assert not holds(epochs.judged_step(early), "threads go"), "they went before the step"
    assert not holds(epochs.judged_step(step(120, 3)), "as many as")
    assert not holds(epochs.judged_step(step(120, 2, rate=1.0)), "throughput follows")
    assert not holds(epochs.judged_step(step(30, 1, rate=2.0)), "throughput follows")
    assert not holds(epochs.judged_step(step(120, 2, delay=50.0)), "latency does not")
    without = [row for row in step(120, 2) if row["contender"] == epochs.STRETCH]
    assert holds(epochs.judged_step(without), "threads come"), "a quick run has no threads that stay"
    assert not holds(epochs.judged_step(step(120, 2, stays=1.1)), "more is compared")
    assert not holds(epochs.judged_step(step(30, 1, rate=0.4, stays=1.5)), "as much is compared")


def reconfigured(ms: float = 0.2, tail: float = 1.0, percent: float = 0.5) -> Rows:
    times = [ms] * 8 + [tail] * 2
    return [{"case": "change", "threads": "1 -> 2", "value": each} for each in times] + [
        {"case": "imbalance", "threads": "18", "value": percent}
    ]


def test_figure_5_reconfiguration() -> None:
    assert all(claim.holds for claim in epochs.judged_reconfiguration(reconfigured()).claims)
    assert not holds(epochs.judged_reconfiguration(reconfigured(ms=50.0)), "a reconfiguration")
    assert not holds(epochs.judged_reconfiguration(reconfigured(tail=99.0)), "nine in ten")
    assert not holds(epochs.judged_reconfiguration(reconfigured(percent=3.0)), "threads' work")


def test_an_operator_with_given_costs_gives_every_tuple_in_order_by_stages() -> None:
    for kind in parallelism.KINDS:
        row = synthetic_costs.measured(kind, 2, parallelism.costs_of(1e-6), 6)
        assert row["measured_ms"] == max(row[f"{stage}_ms"] for stage in ("input", "processing", "output"))
        assert row["latency_ms"] > 0, "all six came out"


def test_work_is_even_where_shares_are_a_multiple_of_threads() -> None:
    assert epochs.imbalance_percent(3, 6, 1_200) < 2


def test_every_column_of_figure_5_is_a_study() -> None:
    names = [study.name for study in STUDIES]
    assert names[:3] == ["stretch-3", "stretch-4a", "stretch-4b"]
    assert names[3:] == [
        "stretch-5-intra-epoch", "stretch-5-provisioning", "stretch-5-decommissioning", "stretch-5-reconfiguration",
        "stretch-table-2",
    ]  # fmt: skip
    assert epochs.starting(Scale("full", cores=16), fewer=False) == 5
    assert [epochs.starting(Scale(cores=2), fewer=each) for each in (False, True)] == [1, 2]
