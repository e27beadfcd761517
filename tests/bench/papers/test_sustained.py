"""The search for the rate that is sustained: it finds it where it is known, and a join's run tells what the search needs."""

from __future__ import annotations

from math import sqrt
from typing import Any, cast

import pytest

from plait.threads.stats import Stats
from plait_bench.band import query
from plait_bench.papers import sustained as of


def made(rate: float, *, window_s: float, comparisons_per_s: float, tuples_per_s: float = 1e12) -> of.Steady:
    """A second of a machine that can make so many comparisons, and take in so many tuples, in all its time."""
    a_tuple_s = rate * window_s / comparisons_per_s + 1 / tuples_per_s
    tuples = round(1 / a_tuple_s)
    comparisons = round(tuples * rate * window_s)
    stats = cast("Stats", None)
    return of.Steady(rate, 2 * window_s * rate**2, tuples, 1.0, (0.5, 0.25), (0.1, 0.1), (comparisons, 0), 0, stats)


@pytest.mark.parametrize("guess", [100.0, 1e5])
def test_a_rate_that_is_known_is_found(guess: float) -> None:
    found = of.sustained(lambda rate: made(rate, window_s=4, comparisons_per_s=8e9), guess=guess)
    assert found.rate == pytest.approx(sqrt(8e9 / 8), rel=0.01)
    assert found.runs == 2


def test_other_work_than_comparing_takes_more_runs() -> None:
    found = of.sustained(
        lambda rate: made(rate, window_s=1, comparisons_per_s=8e9, tuples_per_s=1e5), guess=1e5, runs=9
    )
    # 2 r tuples, each r comparisons and ten microseconds, are a second.
    rate = found.rate
    assert 2 * rate * (rate / 8e9 + 1e-5) == pytest.approx(1, rel=0.05)
    assert 2 < found.runs < 9


def test_by_processor_time_the_busiest_thread_counts() -> None:
    one = made(1000, window_s=1, comparisons_per_s=1e9)
    assert one.seconds("wall") == 1
    assert one.seconds("processor") == 0.5
    assert one.keeps_up("processor") == pytest.approx(2 * one.keeps_up("wall"))


def test_streams_at_another_rate_are_the_same_tuples() -> None:
    given = of.streams(10, right=3)
    faster = of.retimed(given, 4.0)
    assert [table.num_rows for table in given.values()] == [10, 30]
    for name, table in faster.items():
        assert table.drop_columns(["ts"]).equals(given[name].drop_columns(["ts"]))
        before, after = (t.column("ts").cast("int64").to_numpy() for t in (given[name], table))
        assert abs(before / 4 - after).max() < 1


@pytest.mark.parametrize("options", [{"workers": 1}, {"strategy": "scalejoin", "workers": 2}])
def test_a_run_counts_what_full_windows_make(options: dict[str, Any]) -> None:
    one = of.steady(query(0.5), rate=400, window_s=0.5, seconds=1.0, size=50, **options)
    assert one.tuples == 800
    assert len(one.by_worker) == options["workers"]
    # Every tuple of the second meets about 200. The last pushes wait for one another.
    assert one.comparisons == pytest.approx(800 * 200, rel=0.15)
    assert one.needed_per_s == 800 * 200
