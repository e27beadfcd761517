"""The join's benchmark and its studies in their short form: they run, and what they compare agrees. Nothing is timed."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner

import plait_bench
from plait.cli.main import cli

RATIOS = {
    "threads_vs_duckdb", "run_vs_duckdb_buckets", "run_vs_duckdb_buckets_in_order",
    "scan_per_worker_vs_numpy", "scan_2_workers_vs_1", "balance_cv_percent",
    "push128_us", "push128_python_us", "push128_vs_push2048", "latency_ready_p50_ms", "latency_ready_p99_ms",
    "skiplist_vs_ring_scalejoin", "skiplist_vs_ring_splitjoin",
    *(f"partitioned_{name}" for case in ("band", "equality") for name in (
        f"vs_scalejoin_{case}_4_workers", f"skewed_vs_balanced_{case}", f"{case}_busiest_of_15")),
    *(f"many_results{wide}{pushed}_vs_duckdb" for wide in ("", "_wide") for pushed in ("", "_pushed")),
}  # fmt: skip


@pytest.mark.slow  # half a minute where kernels have to be compiled
def test_join_gives_its_ratios_and_one_result_for_all_strategies() -> None:
    done = CliRunner().invoke(cli, ["bench", "join", "--quick", "--json"], catch_exceptions=False)
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["ratios"]) == RATIOS
    assert all(math.isfinite(value) for value in result["ratios"].values())
    one = [row for row in result["rows"] if row["case"] == "one result"]
    assert {row["contender"].split()[0] for row in one} >= {
        "sequential",
        "scalejoin",
        "partitioned",
        "splitjoin",
        "dpjoin",
    }
    assert len({row["set"] for row in one}) == 1
    assert len({row["sequence"] for row in one} - {None}) == 1
    assert [row["contender"] for row in one if row["sequence"] is None] == [
        "celljoin", "handshake", "low_latency_handshake",
    ]  # fmt: skip
    assert all(row["results"] > 0 for row in one)
    gates = {row["contender"] for row in result["rows"] if row["case"] == "gate"}
    assert gates == {f"{name}, {gate}" for name in ("scalejoin", "splitjoin") for gate in ("ring", "skiplist")}
    many = [row for row in result["rows"] if str(row["case"]).startswith("many results")]
    assert {row["contender"] for row in many} == {"run", "pushed", "duckdb", "duckdb, in order"}
    assert all(row["results"] > 50 * row["tuples"] for row in many)
    # Exactly the same comparisons for each worker, whatever the skew, but for the last tuples of either stream.
    assert result["ratios"]["balance_cv_percent"] < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column"),
    [("workers", "set"), ("balance", None), ("punctuation", "set"), ("selectivity", None), ("peers", "results"),
     ("ordering", None), ("gathering", "set"), ("stages", None),
     ("latency", None)],
)  # fmt: skip
def test_a_study_runs_and_its_contenders_agree(name: str, column: str | None) -> None:
    result = plait_bench.load(f"join-{name}")(quick=True)
    assert result["bench"] == f"join-{name}"
    assert result["rows"]
    assert all(math.isfinite(value) for value in result["ratios"].values())
    if column == "results":
        assert len({row[column] for row in result["rows"] if "skipped" not in row}) == 1
    elif column is not None:
        by_case = {(row.get("window_s"), row[column]) for row in result["rows"] if column in row}
        assert len(by_case) == len({window for window, _ in by_case})
    plait_bench.report(result)


def test_a_peer_that_is_not_there_is_named() -> None:
    from plait_bench import join_peers

    assert "not installed" in (join_peers.missing("no_such_peer") or "")
    assert join_peers.missing("json") is None
