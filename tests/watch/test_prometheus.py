"""`/metrics`: Prometheus' own parser reads it, names have units as it wants them, and the board asks for nothing else."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import plait
from plait.core.held import OnThreads, reason
from plait.core.metrics import OperatorStats, Quantiles, SourceStats, shared_out
from plait.spark.publish.stats import CellStats, SparkStats
from plait.threads.stats import Stats
from plait.watch import prometheus

ODD = 'a"b\\c\nd\u202e{}='


def on_threads() -> Stats:
    a, b = plait.stream("a", unit="us", source="from", sources=["x", ODD], late="drop"), plait.stream("b", unit="us")
    with plait.join(a, b, within=5).on_threads(workers=2) as run:
        run.push("a", None, {"ts": [10, 20, 15], "from": ["x"] * 3})
        run.push("b", None, {"ts": [11, 12]})
        return run.watched()  # type: ignore[return-value]


def on_spark() -> SparkStats:
    cells = shared_out([CellStats(cell=k, busy_s=k + 1.0, copies=5, comparisons=7, held_bytes=99) for k in range(2)])
    split = {"waiting": Quantiles(1.0, 2.0, 3.0, 4)}
    return SparkStats(
        rows=9, late={"a": 2}, frontier=1_500_000, newest=2_500_000, cells=cells, latency_split_ms=split, restarts=1,
        stages={"execution": 0.5}, sources=(SourceStats(stream="a", source=7, progress=1_500_000, silent_s=2.5),),
        operators=(OperatorStats(operator=0, label="join", inputs=("a",)),), state_bytes=10**6,
    )  # fmt: skip


def told(run: Any, executor: str) -> dict[str, Any]:
    """By name, as Prometheus' parser has it."""
    text = prometheus.text(run, reason(run, OnThreads()), ODD, executor)
    assert text.endswith("\n")
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize(("run", "executor"), [(on_threads(), "threads"), (on_spark(), "spark")])
def test_prometheus_reads_it(run: Any, executor: str) -> None:
    found = told(run, executor)
    for name, family in found.items():
        assert re.fullmatch(r"plait(_[a-z]+)+", name)
        assert family.documentation
        assert family.type == ("counter" if prometheus.names()[_full(family)] == "counter" else "gauge")
        for sample in family.samples:
            assert sample.labels["query"] == ODD, "a name is what it was, however it was escaped"
            assert set(sample.labels) <= {
                "query", "stream", "source", "operator", "worker", "cell", "quantile", "stage", "kind"
            }  # fmt: skip
    (held,) = [s.labels["kind"] for s in found["plait_held"].samples if s.value == 1]
    assert held == reason(run, OnThreads()).kind


def _full(family: Any) -> str:
    return str(family.name) + ("_total" if family.type == "counter" else "")


def test_values_are_in_base_units() -> None:
    found = told(on_spark(), "spark")

    def value(name: str, **labels: str) -> float:
        (sample,) = [s for s in found[name].samples if labels.items() <= s.labels.items()]
        return float(sample.value)

    assert value("plait_lag_seconds") == 1.0
    assert value("plait_frontier_timestamp_seconds") == 1.5
    assert value("plait_state_bytes") == 1e6
    assert value("plait_late", stream="a") == 2
    assert value("plait_source_silent_seconds", stream="a", source="7") == 2.5
    assert value("plait_part_busy_seconds", cell="1", operator="0") == 2.0
    assert value("plait_part_share_ratio", cell="1") == pytest.approx(2 / 3)
    assert value("plait_latency_seconds", stage="waiting", quantile="0.99") == 0.002
    assert value("plait_stages_ratio", stage="execution") == 0.5
    assert value("plait_restarts") == 1


def test_names_are_the_same_on_both() -> None:
    threads, spark = told(on_threads(), "threads"), told(on_spark(), "spark")
    for name in ("plait_rows", "plait_newest_timestamp_seconds", "plait_source_silent_seconds", "plait_part_busy_seconds",
                 "plait_operator_results", "plait_held", "plait_waiting"):  # fmt: skip
        assert name in threads, name
        assert name in spark or name == "plait_waiting", name
    assert {_full(f) for f in (*threads.values(), *spark.values())} <= set(prometheus.names())


def test_a_source_that_has_not_spoken_is_at_no_moment() -> None:
    found = told(on_threads(), "threads")
    assert {s.labels["source"] for s in found["plait_source_progress_timestamp_seconds"].samples} == {"x", "0"}
    assert {s.labels["source"] for s in found["plait_source_silent_seconds"].samples} == {"x", ODD, "0"}


def test_the_board_asks_for_what_there_is() -> None:
    board = json.loads(resources.files("plait.watch").joinpath("static", "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [each["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    names = {name for text in asked for name in re.findall(r"plait_[a-z_]+", text)}
    assert len(names) > 12
    assert names <= set(prometheus.names()), names - set(prometheus.names())
    rated = {name for text in asked for name in re.findall(r"rate\((plait_[a-z_]+)", text)}
    assert {prometheus.names()[name] for name in rated} == {"counter"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
