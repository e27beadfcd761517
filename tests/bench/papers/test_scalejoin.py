"""ScaleJoin's figures: rows with the paper's shapes have its claims hold, rows without them do not. Nothing is timed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.papers.judging import drawn, holds

from plait.connectors import synthetic
from plait_bench.band import query
from plait_bench.papers.scalejoin import STUDIES, gates, latency, scaling, skew
from plait_bench.papers.study import Scale
from plait_bench.papers.sustained import replayed
from plait_bench.papers.sweep import sweep, windows_of, workers_of

Rows = list[dict[str, Any]]


def scaled(
    *, threads: float = 1.0, root: float = 0.5, window: float = -0.5, apart: float = 0.1, strategy: str = "scalejoin",
    worker: float = 10e9, wall: float | None = None,
) -> Rows:  # fmt: skip
    """A sweep in which c/s and t/s follow power laws."""
    return [
        {
            "strategy": strategy, "workers": n, "window_s": w, "comparisons_per_s": worker * n**threads,
            "tuples_per_s": 1e4 * n**root * w**window, "balance_cv_percent": apart,
        } | ({} if wall is None else {"wall_comparisons_per_s": worker * n**wall, "wall_tuples_per_s": 1e4 * n ** (wall / 2)})
        for n in (1, 2, 4, 8, 15) for w in (1.0, 2.0, 3.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "without"),
    [
        ("linearly with the threads", {"threads": 0.4}),
        ("root of the threads", {"root": 1.0}),
        ("root of the threads", {"root": 0.1}),
        ("root of the window", {"window": 0.0}),
        ("root of the window", {"window": -1.0}),
        ("at most 4 %", {"apart": 7.0}),
        ("by the wall", {"wall": 0.1}),
    ],
)
def test_figure_5(words: str, without: dict[str, float]) -> None:
    assert holds(scaling.found_5(scaled(wall=1.0), cores=2), words)
    assert not holds(scaling.found_5(scaled(**{"wall": 1.0, **without}), cores=2), words)


def test_figure_5_does_not_judge_threads_that_share_a_core() -> None:
    rows = [row | {"comparisons_per_s": min(row["comparisons_per_s"], 80e9)} for row in scaled()]
    assert holds(scaling.found_5(rows, cores=16), "linearly")
    flat = [row | {"comparisons_per_s": min(row["comparisons_per_s"], 20e9)} for row in scaled()]
    assert not holds(scaling.found_5(flat, cores=16), "linearly")


@pytest.mark.parametrize("name", scaling.RIVALS)
def test_figure_6(name: str) -> None:
    words, own = name.replace("_", "-"), scaled()

    def beside(worker: float, threads: float) -> Rows:
        other = next(each for each in scaling.RIVALS if each != name)
        return [
            *own, *scaled(strategy=name, worker=worker, threads=threads), *scaled(strategy=other, worker=5e9, threads=0.9)
        ]  # fmt: skip

    def found(worker: float, threads: float) -> Any:
        return scaling.found_6([row for row in beside(worker, threads) if row["window_s"] == 3.0], cores=2)

    slower, faster, equal = found(9e9, 0.9), found(12e9, 1.0), found(9.9e9, 1.001)
    assert holds(slower, f"more c/s than {words} join")
    assert holds(slower, f"to {words} join grows")
    assert not holds(faster, f"more c/s than {words} join")
    assert not holds(faster, f"to {words} join grows")
    assert holds(equal, f"more c/s than {words} join")
    drawn(slower)


def gated(*, sources: float = 0.3, readers: float = 0.0, speed: float = 50e6) -> Rows:
    return [
        {"gate": name, "sources": n, "readers": m, "tuples_per_s": speed * n**sources * m**readers}
        for name in gates.GATES for n in (1, 2, 8) for m in (1, 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "without"),
    [("rises with the sources", {"sources": 0.0}), ("more readers", {"readers": -0.5}), ("far above", {"speed": 2e6})],
)
def test_figure_7a(words: str, without: dict[str, float]) -> None:
    assert holds(gates.found_7a(gated(), 1e6), words)
    assert not holds(gates.found_7a(gated(**without), 1e6), words)


def delayed(*, ms: float = 5.0, threads: float = 1.0) -> Rows:
    return [
        {"workers": n, "window_s": w, "ready_p50_ms": ms * n**threads, "ready_p99_ms": 2 * ms, "gathering_p50_ms": 0.1 * n}
        for n in (1, 2, 4) for w in (1.0, 2.0)
    ]  # fmt: skip


def test_figure_7b() -> None:
    assert holds(latency.found_7b(delayed()), "below 70 ms")
    assert not holds(latency.found_7b(delayed(ms=50)), "below 70 ms")
    assert holds(latency.found_7b(delayed()), "in proportion to the threads")
    assert not holds(latency.found_7b(delayed(threads=0.0)), "in proportion to the threads")
    [_, explained] = latency.found_7b(delayed(threads=0.0)).claims
    assert explained.verdict(Scale("usual", cores=4)) == "explained"
    assert "0.1 ms with 1" in explained.instead


def seconds(*, swing: float = 0.0, rates: float = 0.0, apart: float = 0.01) -> Rows:
    return [
        {
            "second": k, "workers": 10, "window_s": 300, "left_tuples": 1000 + rates * (k % 5), "right_tuples": 900,
            "comparisons_a_worker": 65e6 * (1 + swing * (k % 5)), "balance_cv_percent": apart if k == 7 else 0.0,
        }
        for k in range(20)
    ]  # fmt: skip


def test_figure_8() -> None:
    assert holds(skew.found_8("constant", seconds()), "differ by at most 0.1 %")
    assert not holds(skew.found_8("constant", seconds(apart=0.5)), "differ by at most 0.1 %")
    assert holds(skew.found_8("constant", seconds()), "constant load")
    assert not holds(skew.found_8("constant", seconds(swing=0.2)), "constant load")
    for case in ("fluctuating", "peaks"):
        assert holds(skew.found_8(case, seconds(swing=0.2, rates=100)), "follows the rates")
        assert not holds(skew.found_8(case, seconds(swing=0.2, rates=-100)), "follows the rates")
        assert not holds(skew.found_8(case, seconds(swing=0.001, rates=100)), "follows the rates")
    drawn(skew.found_8("fluctuating", seconds(swing=0.2, rates=100)))


def test_every_figure_has_a_study() -> None:
    assert [each.label for each in STUDIES] == [f"figure {n}" for n in ("5", "6", "7a", "7b", "8a", "8b", "8c")]


def test_a_large_machine_has_more_threads_and_leaves_one_core_to_who_pushes() -> None:
    assert workers_of(Scale("full", cores=16)) == (1, 2, 4, 8, 15)
    assert workers_of(Scale("full", cores=2)) == (1, 2, 4)
    assert windows_of(Scale("usual")) > windows_of(Scale("full")) > windows_of(Scale("quick"))


def test_rates_and_latencies_are_measured() -> None:
    rows = sweep(Scale("quick", attempt=7), "scalejoin", (0.01, 0.02), (1, 2), seconds=0.01)
    assert [(row["workers"], row["window_s"]) for row in rows] == [(1, 0.01), (1, 0.02), (2, 0.01), (2, 0.02)]
    assert all(row["balance_cv_percent"] < 1 for row in rows)
    drawn(scaling.found_5(rows, cores=2))
    made = replayed(query(0.1), rate=4000, window_s=0.1, seconds=0.1, workers=2)
    assert made.stats.latency_from_push_ms.samples >= 0


def test_a_gate_is_measured() -> None:
    rows = gates.measured(Scale("quick", attempt=7), total=4000)
    assert {row["gate"] for row in rows} == set(gates.GATES)
    drawn(gates.found_7a(rows, 1000.0))


def test_comparisons_of_a_second_are_exact() -> None:
    """Every second has as many as the windows say, and each of two threads has half of them."""
    rows = skew.seconds_of(synthetic.scalejoin_constant, 2, window_s=1, shown_s=2)
    assert [row["second"] for row in rows] == [0, 1]
    for row in rows:
        assert (row["left_tuples"], row["right_tuples"]) == (1200, 900)
        assert 2 * row["comparisons_a_worker"] == pytest.approx(2 * 1200 * 900, rel=0.01)
        assert row["balance_cv_percent"] < 0.1
