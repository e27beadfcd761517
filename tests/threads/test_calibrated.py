"""Where a calibration is kept the models decide what rules of thumb decide otherwise, and results stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import plait
from plait.core import calibration
from plait.core.calibration import Calibration, Costs
from plait.threads.aggregate import designs
from plait.threads.join.strategies import choice
from plait.threads.options import Options
from plait.threads.plan import plan

NS = 1e-9
#: About what the machine that plait was written on takes.
COSTS = Costs(
    comparison_s=0.14 * NS, see_s=70 * NS, push_s=100 * NS, emit_s=20 * NS, result_s=22 * NS, result_merge_s=0, hop_s=2500 * NS,
    ring_add_s=10 * NS, ring_add_level_s=1 * NS, ring_get_s=10 * NS, ring_get_level_s=3 * NS, ring_contend_s=0,
    skiplist_add_s=25 * NS, skiplist_add_level_s=33 * NS, skiplist_get_s=9 * NS, skiplist_get_level_s=1 * NS,
    skiplist_contend_s=0, tuml_input_s=20 * NS, tuml_input_source_s=0.5 * NS, tuml_output_s=50 * NS, tuml_output_source_s=1 * NS,
    wiml_input_s=30 * NS, wiml_input_source_s=1 * NS, wiml_output_s=15 * NS, wiml_output_source_s=0.4 * NS,
)  # fmt: skip
Calibrated = Callable[..., Calibration]


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calibrated:
    """Keep these costs, with changes, on a machine with so many cores."""
    monkeypatch.setenv(calibration.VARIABLE, str(tmp_path / "calibration.json"))

    def keep(cores: int = 8, **other: float) -> Calibration:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        calibration.this_machine.cache_clear()
        made = Calibration(
            costs=replace(COSTS, **other), machine=calibration.this_machine(), measured="2026-11-16T16:00:00Z"
        )
        calibration.keep(made)
        return made

    yield keep  # type: ignore[misc]
    calibration.this_machine.cache_clear()


LEFT, RIGHT = plait.stream("a", unit="s"), plait.stream("b", unit="s")


def joined(**window: object) -> plait.Query:
    return plait.join(LEFT, RIGHT, on="a.x = b.x", **window)  # type: ignore[arg-type]


def workers(query: plait.Query, **options: object) -> int:
    return len(plan(query, Options(**options)).seats)  # type: ignore[arg-type]


# --- joins: how many workers ---


def test_small_windows_have_few_workers_and_large_ones_all(calibrated: Calibrated) -> None:
    calibrated(cores=8, push_s=400 * NS)
    found = [workers(joined(last=count)) for count in (1, 10, 100, 1_000, 10_000, 10_000_000)]
    assert found == sorted(found)
    assert found[0] == 1
    assert found[-1] == 8
    assert len(set(found)) > 2


def test_explain_says_which_numbers_decided(calibrated: Calibrated) -> None:
    calibrated(cores=8, push_s=400 * NS)
    made = plan(joined(last=1), Options())
    assert made.strategy == "sequential"
    assert (
        "1 worker of 8 by STRETCH's model: a tuple meets 1 others at 0.14 ns to 2.8 ns each, is taken in 70 ns"
        in made.why
    )
    assert "pushed in 400 ns (calibrated 2026-11-16); there is one worker" in made.why


def test_time_windows_need_rates(calibrated: Calibrated) -> None:
    calibrated(cores=8, push_s=400 * NS)
    assert workers(joined(within="1s")) == 8
    assert "model" not in plan(joined(within="1s"), Options()).why
    assert workers(joined(within="1s"), rates=(2, 2)) == 1
    assert workers(joined(within="1h"), rates=(50_000, 50_000)) == 8


def test_rates_have_an_optimal_number_of_workers(calibrated: Calibrated) -> None:
    """Figure 6 of DP-Join with its Ton: 7 workers carry 2,100 tuples a second of each stream over 300 seconds."""
    calibrated(cores=8, comparison_s=3.6e-6 / 1550)
    assert (
        "2100 and 2100 tuples/s take 7 workers (DP-Join's N_opt)"
        in plan(joined(within="300s"), Options(rates=(2100, 2100))).why
    )
    assert "N_opt" not in plan(joined(last=10), Options()).why


def test_without_a_calibration_there_is_a_worker_a_core(calibrated: Calibrated) -> None:
    calibrated(cores=8)
    calibration.forget()
    made = plan(joined(last=1), Options(rates=(2, 2)))
    assert len(made.seats) == 8
    assert "model" not in made.why


def test_whoever_says_a_number_or_a_strategy_gets_it(calibrated: Calibrated) -> None:
    calibrated(cores=8)
    small = joined(last=1)
    assert workers(small, workers=5) == 5
    assert workers(small, strategy="scalejoin") == 8
    assert workers(small, layout=(2, 3)) == 6
    assert workers(plait.join(LEFT, RIGHT, on="a.x = b.x", within="1s", how="left"), rates=(1, 1)) == 8
    assert workers(small, elastic=4, workers=2) == 4


def test_more_sources_push_faster_so_more_workers_pay(calibrated: Calibrated) -> None:
    found = calibrated(cores=16)
    few, many = (choice.crew(16, sources, None, (20.0, 20.0), found)[0] for sources in (1, 16))
    assert few < many


def test_fewer_cores_have_fewer_workers(calibrated: Calibrated) -> None:
    found = calibrated(cores=16)
    for cores in (1, 2, 4, 16):
        assert 1 <= choice.crew(cores, 2, None, (1e6, 1e6), found)[0] <= cores


def test_a_tuple_that_is_dear_to_take_has_fewer_workers(calibrated: Calibrated) -> None:
    """Every worker takes every tuple: what that costs is not shared out."""
    cheap = calibrated(cores=8)
    dear = calibrated(cores=8, see_s=700 * NS)
    many, few = (choice.crew(8, 2, None, (1000.0, 1000.0), found)[0] for found in (cheap, dear))
    assert few < many


def test_the_worst_of_the_cases_is_not_far_from_the_best(calibrated: Calibrated) -> None:
    """A condition that is 20 times dearer must not find a single worker where eight would be eight times as fast."""
    found = calibrated(cores=8)
    met = 1000.0  # 140 ns of comparisons if the condition is cheap, 2.8 us if it is dear
    assert choice.crew(8, 2, None, (met, met), found)[0] > 4


def test_what_a_tuple_meets() -> None:
    def met(rates: tuple[float, float] | None, **window: object) -> tuple[float, float] | None:
        return choice.meets(joined(**window).window, rates)  # type: ignore[attr-defined]

    assert met(None, last=7) == (7, 7)
    assert met(None, within="2s") is None
    assert met((10, 30), within="2s") == (60, 20)
    assert met((10, 30), within=("2s", "0s")) in ((60, 0), (0, 20))
    assert met((10, 30), tumbling="4s") == (60, 20)


# --- layouts and trees: what is said of them ---


def test_layouts_say_their_latency(calibrated: Calibrated) -> None:
    calibrated(cores=15)
    options = {"strategy": "dpjoin", "workers": 15, "rates": (1000, 3000)}
    made = plan(joined(within="300s"), Options(**options))  # type: ignore[arg-type]
    assert made.layout == (3, 5)  # type: ignore[union-attr]
    # Equation 8: 1/4 x (900,000 / 5) x 0.07 ns + 3/4 x (300,000 / 3) x 0.07 ns
    assert "a partner is found after 8.4 us in the mean (DP-Join's equation 8, a comparison at 0.14 ns)" in made.why
    calibration.forget()
    assert plan(joined(within="300s"), Options(**options)).why.endswith("as equal as 15 workers allow")  # type: ignore[arg-type]


def test_trees_say_their_latency(calibrated: Calibrated) -> None:
    calibrated(cores=4)
    made = plan(joined(last=4_000_000), Options(strategy="splitjoin", workers=4, fan_out=2))
    # Equation 6: 2 hops of 2.5 us, and half a sub-window of a million at 0.14 ns
    assert "two tuples meet after 75 us in the mean (SplitJoin's equation 6, a hop at 2.5 us" in made.why
    calibration.forget()
    assert "equation" not in plan(joined(last=4_000_000), Options(strategy="splitjoin", workers=4)).why


# --- aggregates: which design ---


def counted(sources: int | None) -> plait.Query:
    readings = plait.stream("readings", unit="s", sources=sources)
    return plait.aggregate(readings, size="10s", by="k", compute={"n": plait.count()})


def test_the_model_chooses_the_design(calibrated: Calibrated) -> None:
    calibrated(cores=2)
    made = plan(counted(100), Options())
    assert made.strategy == "wiml"  # 100 sources on 2 cores: more than four a core
    assert "100 sources on 2 cores: tuml_sc 6.7 million, wiml 11 million (calibrated 2026-11-16)" in made.why
    calibrated(cores=2, wiml_output_s=200 * NS)
    assert plan(counted(2), Options()).strategy == "tuml_sc"


def test_what_is_not_clearly_better_is_left_as_it_is(calibrated: Calibrated) -> None:
    calibrated(cores=8, wiml_input_s=0, wiml_input_source_s=0, wiml_output_s=62 * NS, wiml_output_source_s=0)
    assert plan(counted(2), Options()).strategy == "wiml"  # 62 ns to TuML's 52: within a fifth
    calibrated(cores=8, wiml_input_s=0, wiml_input_source_s=0, wiml_output_s=63 * NS, wiml_output_source_s=0)
    assert plan(counted(2), Options()).strategy == "tuml_sc"


def test_without_a_calibration_it_is_four_sources_a_core(calibrated: Calibrated) -> None:
    calibrated(cores=2, wiml_output_s=200 * NS)
    calibration.forget()
    assert [plan(counted(sources), Options()).strategy for sources in (2, 8, 9)] == ["wiml", "wiml", "tuml_sc"]


def test_sources_that_nobody_declared_are_no_number_for_a_model(calibrated: Calibrated) -> None:
    calibrated(cores=2, wiml_output_s=200 * NS)
    assert plan(counted(None), Options()).strategy == "wiml"


def test_what_is_asked_for_is_not_chosen(calibrated: Calibrated) -> None:
    calibrated(cores=2, wiml_output_s=200 * NS)
    assert plan(counted(2), Options(strategy="wiml")).strategy == "wiml"
    assert plan(counted(2), Options(workers=2)).strategy == "tuml_mc"


def test_designs_agree_with_the_paper_that_more_cores_are_for_wiml(calibrated: Calibrated) -> None:
    found = calibrated(cores=2)
    rates = [designs.by_model("wiml", 16, cores, found)[1] for cores in (2, 16)]
    assert "wiml 30 million" in rates[0]  # (46 + 21.4) / 2 ns a tuple
    assert "wiml 47 million" in rates[1]  # the output thread's 21.4 ns


# --- the law ---


def run_of(query: plait.Query, data: dict[str, dict[str, list[int]]], **options: object) -> tuple[str, pa.Table]:
    with query.on_threads(keys=True, **options) as run:  # type: ignore[arg-type]
        for name, rows in data.items():
            run.push(name, 0 if name == "readings" else None, rows)
        run.drain()
        return run.stats().strategy, run.table()


def test_results_are_the_same_with_and_without(calibrated: Calibrated) -> None:
    calibrated(cores=2, push_s=400 * NS, wiml_output_s=500 * NS)
    rows = {"ts": list(range(200)), "x": [k % 7 for k in range(200)]}
    cases = (
        (joined(last=2), {"a": rows, "b": rows}),
        (counted(1), {"readings": {"ts": rows["ts"], "k": rows["x"]}}),
    )
    with_one = [run_of(query, data) for query, data in cases]
    calibration.forget()
    without = [run_of(query, data) for query, data in cases]
    assert [name for name, _ in with_one] == ["sequential", "tuml_sc"]
    assert [name for name, _ in without] == ["partitioned", "wiml"]
    for (_, one), (_, other) in zip(with_one, without, strict=True):
        assert one.num_rows > 0
        assert one.equals(other)


def explained(query: plait.Query, **options: object) -> str:
    with query.on_threads(**options) as run:  # type: ignore[arg-type]
        return run.explain()


def test_explain_says_which_gate_and_why(calibrated: Calibrated) -> None:
    said = "sources meet in rings, which every reader merges for itself: in batches up to 3.8 times as much"
    assert said in explained(joined(within="5s"), workers=2)
    assert "a tuple takes" not in explained(joined(within="5s"), workers=2)
    calibrated()
    took = "with 2 sources and 3 readers a tuple takes 10 ns to add and 3 x 10 ns to get there"
    assert f"{took}, and 25 ns to add and 3 x 9 ns to get on the other gate (calibrated 2026-11-16)" in explained(
        joined(within="5s"), workers=3
    )
    assert "one skip list, into which they sort: as asked for; with 2" in explained(
        joined(within="5s"), gate="skiplist"
    )
    # Only the root of a tree reads; each doubling of sources adds.
    sixteen = plait.join(plait.stream("a", unit="s", sources=15), RIGHT, on="a.x = b.x", within="5s")
    took = "with 16 sources and 1 reader a tuple takes 13 ns to add and 19 ns to get there, and 124 ns to add and 12 ns to get"
    assert took in explained(sixteen, strategy="splitjoin", workers=3)


def test_what_goes_through_no_gate_names_none(calibrated: Calibrated) -> None:
    counts = plait.aggregate(LEFT, size="5s", compute={"n": plait.count()})
    assert "sources meet" not in explained(counts, strategy="wiml")
    assert "sources meet in rings" in explained(counts, strategy="tuml_sc")
