"""SplitJoin's figures: rows with the paper's shapes have its claims hold, rows without them do not. Nothing is timed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.papers.judging import drawn, holds

from plait_bench.band import counted
from plait_bench.papers.splitjoin import STUDIES, latency, ordering, throughput
from plait_bench.papers.splitjoin.throughput import RIVAL, SPLIT
from plait_bench.papers.study import Scale
from plait_bench.papers.sustained import replayed

Rows = list[dict[str, Any]]


def rates(*, split: float = 0.5, rival: float = 0.5, ahead: float = 1.4) -> Rows:
    return [
        {"strategy": name, "workers": n, "window_s": w, "tuples_per_s": speed * n**exponent / w**0.5}
        for name, speed, exponent in ((SPLIT, 1e4 * ahead, split), (RIVAL, 1e4, rival))
        for n in (1, 2, 4) for w in (1.0, 2.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "without"),
    [
        ("SplitJoin scales", {"split": 0.0}),
        ("handshake join scales", {"rival": 0.0}),
        ("sustains more", {"ahead": 0.9}),
    ],
)
def test_figure_12(words: str, without: dict[str, float]) -> None:
    assert holds(throughput.found_12(rates(), cores=2), words)
    assert not holds(throughput.found_12(rates(**without), cores=2), words)


def sizes(*, size: float = -1.0, threads: float = 1.0, gain: float = 1.2) -> Rows:
    return [
        {"window": kind, "size": tuples, "workers": n, "tuples_per_s": 1e10 * tuples**size * n**threads * part}
        for kind, part in (("count", 1.0), ("time", 1 / gain)) for tuples in (2**15, 2**16) for n in (1, 2, 4)
        if kind == "count" or tuples == 2**16
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "without"),
    [("twice as large", {"size": -0.2}), ("more join cores", {"threads": 0.2}), ("fifth more", {"gain": 1.0})],
)
def test_figure_16(words: str, without: dict[str, float]) -> None:
    assert holds(throughput.found_16(sizes(), cores=2), words)
    assert not holds(throughput.found_16(sizes(**without), cores=2), words)


def test_windows_that_count_and_do_not_gain_are_explained() -> None:
    [claim] = [each for each in throughput.found_16(sizes(gain=1.0), cores=2).claims if "fifth" in each.says]
    assert claim.verdict(Scale("usual")) == "explained"
    assert "1.00 times as many tuples" in claim.instead


def selected(*, usual: float = 0.95, last: float = 0.2) -> Rows:
    parts = {1: 1.0, 10: usual, 32: (usual + last) / 2, 100: last}
    return [
        {"workers": 2, "sub_window": size, "band": band, "selectivity": (band / 5000) ** 2, "tuples_per_s": 1e5 * part}
        for size in (2**12, 2**13) for band, part in parts.items()
    ]  # fmt: skip


def test_figure_17() -> None:
    assert holds(throughput.found_17(selected()), "hardly changes")
    assert not holds(throughput.found_17(selected(usual=0.5)), "hardly changes")
    assert holds(throughput.found_17(selected()), "far less than results grow")
    assert not holds(throughput.found_17(selected(last=0.01)), "far less than results grow")
    drawn(throughput.found_17(selected()))


def staged(
    *, execution: float = -0.5, distribution: float = -0.3, gathering: float = 4.0, visiting: float = 3.0, kind: str = "time"
) -> Rows:  # fmt: skip
    return [
        {
            "window": kind, "strategy": SPLIT, "workers": n, "size": size, "execution_ms": 2 * n**execution,
            "distribution_ms": 3 * n**distribution, "gathering_ms": gathering, "visiting_ms": visiting,
            "processing_ms": 5 + gathering, "push_ms": 3 + 0.1 * n,
        }
        for n in (1, 2, 4) for size in (1.0, 2.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "without"),
    [
        ("execution takes less", {"execution": 0.0}),
        ("distribution takes less", {"distribution": 0.2}),
        ("gathering takes longest", {"gathering": 0.1}),
    ],
)
def test_figures_15_and_18(words: str, without: dict[str, float]) -> None:
    for kind in ("time", "count"):
        assert holds(latency.found_stages(staged(kind=kind)), words)
        assert not holds(latency.found_stages(staged(kind=kind, **without)), words)


def test_figure_18_beside_windows_of_time() -> None:
    over_time = staged(visiting=3.0)
    assert holds(latency.found_stages(staged(kind="count", visiting=1.0), over_time), "windows that count")
    same = latency.found_stages(staged(kind="count", visiting=3.0), over_time)
    assert not holds(same, "windows that count")
    assert same.claims[-1].verdict(Scale("usual", cores=4)) == "explained"


def passing(ms: float, threads: float) -> Rows:
    """Low-latency handshake join's latencies."""
    return [
        {"window": "time", "strategy": RIVAL, "workers": n, "size": 2.0, "push_ms": ms * n**threads} for n in (1, 2, 4)
    ]


HANDED = {SPLIT: {2: 1, 28: 4}, RIVAL: {2: 1, 28: 27}}


def test_figure_13() -> None:
    found = latency.found_13([*staged(), *passing(3, 1.0)], HANDED)
    assert holds(found, "handshake join's is higher")
    assert holds(found, "more slowly")
    assert holds(found, "handed on")
    drawn(found)
    assert not holds(latency.found_13([*staged(), *passing(3, 0.0)], HANDED), "handshake join's is higher")
    assert not holds(latency.found_13([*staged(), *passing(3, 0.0)], HANDED), "more slowly")
    for handed in ({**HANDED, SPLIT: {2: 1, 28: 27}}, {**HANDED, RIVAL: {2: 1, 28: 5}}):
        assert not holds(latency.found_13([*staged(), *passing(3, 1.0)], handed), "handed on")


def test_hand_offs_are_those_of_the_plans() -> None:
    assert latency.hand_offs((2, 4, 8)) == {SPLIT: {2: 1, 4: 2, 8: 3}, RIVAL: {2: 1, 4: 3, 8: 7}}


def marked(*, strict: float = 0.1, coarse: float = 0.95) -> Rows:
    parts = {(256, 1): strict, (256, 64): 0.9, (256, 256): 1.0, (4096, 1024): coarse, (4096, 4096): 1.0}
    return [{"sub_window": s, "interval": k, "tuples_per_s": 1e5 * part} for (s, k), part in parts.items()]


def test_figure_19() -> None:
    assert holds(ordering.found_19(marked()), "cost little")
    assert not holds(ordering.found_19(marked(coarse=0.4)), "cost little")
    assert holds(ordering.found_19(marked()), "most of the throughput")
    assert not holds(ordering.found_19(marked(strict=0.8)), "most of the throughput")
    drawn(ordering.found_19(marked()))


def test_intervals_go_from_a_comparison_to_the_sub_window() -> None:
    assert ordering.intervals(8, 1000, most=1 << 40) == [1, 4, 16, 64, 256]
    assert ordering.intervals(9, 1000, most=1 << 40) == [1, 2, 8, 32, 128, 512]
    assert ordering.intervals(8, 1000, most=4000) == [64, 256]


def test_every_figure_that_is_a_measurement_has_a_study() -> None:
    assert [each.label for each in STUDIES] == [f"figure {n}" for n in (12, 13, 15, 16, 17, 18, 19)]


def test_full_windows_and_latencies_are_measured() -> None:
    made = throughput.full(counted(400), 400, 2, 0.0001)
    # Each tuple meets the last 400 of the other stream.
    assert made.comparisons == pytest.approx(400 * made.tuples, rel=0.05)
    over = replayed(counted(200), rate=4000, window_s=0.05, seconds=0.1, strategy=SPLIT, workers=2, fan_in=2)
    row = latency.row_of("count", SPLIT, 2, 200, over)
    assert {f"{stage}_ms" for stage in latency.STAGES if stage != "visiting"} <= set(row)
