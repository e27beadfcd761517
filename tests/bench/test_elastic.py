"""What `plait bench elastic` runs besides switches, small: rivals give the same results, and a load that steps is answered."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from plait.cli.commands.bench import command
from plait.errors import QueryError
from plait_bench import elastic_operators as operators
from plait_bench import elastic_runs as runs


def test_the_pure_rival_gives_the_joins_results_by_pushers_of_its_own():
    data, made = runs.tables(300), runs.query(50, band=2_000)
    run = runs.PureRun(made, data, 3)
    try:
        assert run.push(data, 64) > 0
        found = run.finish()
    finally:
        run.stop()
    with runs.started(made, data, workers=1, keys=True) as one:
        runs.pushed(one, data)
        one.drain()
        assert found == one.table()


def test_an_error_of_a_pusher_is_raised():
    with pytest.raises(ZeroDivisionError):
        runs.in_threads([lambda: None, lambda: [1 / 0][0]])  # type: ignore[list-item]


def test_an_operator_that_only_forwards_virtual_and_pure():
    (row,) = operators.forwarding(quick=True, threads=(2,), rows=400)
    assert row["same results"]
    assert row["virtual push_p50_ms"] > 0
    assert row["virtual cpu_us"] > 0


def test_scalejoin_in_buckets_is_machine_code_and_finds_the_joins_pairs():
    (row,) = operators.scalejoin(quick=True, threads=(2,), rows=3_000)
    assert row["operator, how"] == "machine code"
    assert row["same pairs"]
    assert row["pairs"] > 0


def test_streams_in_real_time_have_the_rate_of_each_phase():
    data = runs.real_time((1_000.0, 3_000.0), (2.0, 1.0))
    for table in data.values():
        ts = np.asarray(table.column("ts"))
        assert np.all(np.diff(ts) >= 0)
        assert [np.sum(ts < 2e6), np.sum(ts >= 2e6)] == [1_000, 1_500]


def test_the_root_law():
    assert runs.highest_rate(2_000_000.0, 4.0) == 1_000.0, "1,000 tuples a second, each of which meets 2,000"


@pytest.mark.slow  # `make papers` has the same study
def test_a_load_that_steps_has_a_row_a_second_and_its_phases():
    steps = runs.Steps(window_s=0.1, before_s=0.2, after_s=0.2, row_s=0.1)
    found, series = runs.stepped(steps, 1, (0.5, 0.8), 100_000.0)
    assert found["rate after"] > found["rate before"] > 0
    assert {"threads before", "threads after", "changes"} <= found.keys()
    assert [row["second"] for row in series] == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=1.5 * runs.PUSH_S)
    assert all(row["called_for"] >= 1 for row in series)
    sent = 0.2 * (found["rate before"] + found["rate after"])
    assert sum(row["tuples_per_s"] * 0.1 for row in series) == pytest.approx(sent, rel=0.2)


def test_full_is_for_those_that_have_it():
    with pytest.raises(QueryError, match="--full with 'gate'"):
        CliRunner().invoke(command, ["gate", "--full"], catch_exceptions=False)
    with pytest.raises(QueryError, match="--quick with --full"):
        CliRunner().invoke(command, ["elastic", "--full", "--quick"], catch_exceptions=False)
