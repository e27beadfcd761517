"""The studies of DP-Join's figures: a claim holds of rows with the paper's shape and fails without it. Nothing is timed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.bench.papers.judging import drawn, holds

from plait.models import dpjoin as model
from plait_bench.papers.dpjoin import STUDIES, bandwidth, latency, layouts, single_tuples
from plait_bench.papers.study import Scale

Rows = list[dict[str, Any]]


def bandwidths() -> Rows:
    """Perfect scaling in all layouts, and of Handshake Join a quarter less."""
    rows: Rows = []
    shapes = [(layouts.kind_of(*shape), shape) for shape in bandwidth.SHAPES]
    for kind, (m, n) in shapes + [(layouts.HANDSHAKE, (n, 1)) for n in (1, 4, 16)]:
        offered = 1550.0 * m * n * (0.75 if kind == layouts.HANDSHAKE else 1.0)
        rows.append({
            "kind": kind, "rows": m, "columns": n, "workers": m * n, "offered": offered, "wall": offered, "window": 1000,
            "window_s": 1.0, "span_s": 1.0, "comparisons": 2_000_000, "busiest_part": 1 / (m * n),
            "results": model.max_bandwidth(1000, 1000, 1.0, layouts.HIT_RATE),
        })  # fmt: skip
    return rows


def changed(rows: Rows, column: str, factor: float, *, kind: str | None = None, workers: int | None = None) -> Rows:
    """The same with a column multiplied, in the rows of a kind or of a number of workers."""
    return [
        {**row, column: row[column] * factor}
        if (kind is None or row["kind"] == kind) and (workers is None or row["workers"] == workers)
        else row
        for row in rows
    ]


def test_figure_6_has_the_papers_degrees() -> None:
    found = bandwidth.judged_6(bandwidths())
    assert bandwidth.optimal(bandwidths()) == {"linear": 7, "rectangular": 8, "square": 9}
    assert all(claim.holds for claim in found.claims), found.claims
    for each in (found, bandwidth.judged_7a(bandwidths(), 16), bandwidth.judged_table_1(bandwidths())):
        drawn(each)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(bandwidths(), "results", 1.03), "the pairs that are found"),
        (changed(bandwidths(), "offered", 0.5, kind="linear"), "the optimal degrees"),
        (changed(bandwidths(), "offered", 0.6, kind="rectangular"), "the linear layout needs"),
        (changed(bandwidths(), "offered", 0.5, kind="linear", workers=4), "four workers offer"),
        (changed(bandwidths(), "offered", 1.4, kind="handshake"), "one worker offers"),
    ],
)
def test_figure_6_without_its_shape(rows: Rows, says: str) -> None:
    assert holds(bandwidth.judged_6(bandwidths()), says)
    assert not holds(bandwidth.judged_6(rows), says)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(bandwidths(), "offered", 0.4, kind="linear", workers=16), "bandwidth grows"),
        (changed(bandwidths(), "wall", 0.3, kind="linear", workers=8), "so it does by the clock"),
        (changed(bandwidths(), "offered", 0.4, kind="handshake", workers=16), "Handshake Join scales"),
    ],
)
def test_figure_7a(rows: Rows, says: str) -> None:
    assert holds(bandwidth.judged_7a(bandwidths(), 16), says)
    assert not holds(bandwidth.judged_7a(rows, 16), says)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (changed(bandwidths(), "comparisons", 2, workers=6), "layouts of as many"),
        (changed(bandwidths(), "offered", 0.6, kind="linear"), "and offer about"),
        (changed(bandwidths(), "offered", 1.2, kind="linear"), "of 16 workers"),
    ],
)
def test_table_1(rows: Rows, says: str) -> None:
    found = bandwidth.judged_table_1(bandwidths())
    assert holds(found, says)
    assert [row["published"] for row in found.rows] == list(bandwidth.TABLE_1.values())
    assert not holds(bandwidth.judged_table_1(rows), says)


def rates(power: float = 0.5, longer: float = 3**0.5, beyond: float = 1.0, chain: float = 0.8) -> Rows:
    rows = [
        {"kind": kind, "workers": n, "window_s": window, "rate": 1e5 * n**power / (longer if window > 1 else 1), "runs": 2,
         "comparisons_per_s": 1e10 * n, "wall_rate": 1e5 * min(n, 2) ** 0.5 * (beyond if n > 2 else 1)}
        for window in (1.0, 3.0) for kind in (layouts.LINEAR, layouts.HANDSHAKE) for n in (1, 2, 4)
    ]  # fmt: skip
    return changed(rows, "rate", chain, kind=layouts.HANDSHAKE)


def test_figure_7b() -> None:
    assert all(claim.holds for claim in bandwidth.judged_7b(rates(), 2).claims)
    drawn(bandwidth.judged_7b(rates(), 2))
    assert not holds(bandwidth.judged_7b(rates(power=1.0), 2), "the rate goes with the root")
    assert not holds(bandwidth.judged_7b(rates(longer=1.0), 2), "longer windows")
    assert not holds(bandwidth.judged_7b(rates(chain=1.2), 2), "DP-Join sustains")
    assert not holds(bandwidth.judged_7b(rates(beyond=2.0), 2), "more workers than cores")


def course(fills: bool = True, square: float = 1.0, chain: float = 500.0) -> Rows:
    return [
        {"kind": kind, "rows": 2, "columns": 2, "workers": 4, "second": k * 0.5, "windows": k * 0.5, "results": 10,
         "latency_ms": ms, "median_ms": ms, "comparisons_a_tuple": 100.0 * (min(k, 2) if fills else k)}
        for kind, ms in (("square", square), ("linear", 2.0), ("handshake", chain)) for k in range(1, 7)
    ]  # fmt: skip


def test_figure_8a() -> None:
    assert all(claim.holds for claim in latency.judged_8a(course()).claims)
    drawn(latency.judged_8a(course()))
    assert not holds(latency.judged_8a(course(fills=False)), "comparisons a tuple grow")
    assert not holds(latency.judged_8a(course(square=3.0)), "the square layout")
    assert not holds(latency.judged_8a(course(chain=2.0)), "Handshake Join's is a part")
    assert not holds(latency.judged_8a(course(chain=2.0)), "and higher")
    assert latency.handshake_ms(course()) == 500.0


def latencies(rates_as: tuple[int, int], shapes: tuple[layouts.Shape, ...]) -> Rows:
    """What equation 7 has, of windows of 1,000 tuples for each unit of rate."""
    wx, wy = (1000 * each for each in rates_as)
    return [
        {"kind": layouts.kind_of(m, n), "rows": m, "columns": n, "workers": m * n, "longest": (wy / n + wx / m) / 2,
         "part": (wy / n + wx / m) / (wx + wy), "latency_ms": (wy / n + wx / m) / 1000, "window_x": wx, "window_y": wy}
        for m, n in shapes
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("longest", 3.0, "square", None), "of as many workers the square"),
        (("longest", 1.1, None, None), "the longest part is that"),
        (("longest", 9.0, "square", 16), "more workers make it shorter"),
        (("latency_ms", 5.0, "square", 9), "the square layout's latency"),
        (("latency_ms", 1000.0, None, None), "Handshake Join's"),
    ],
)
def test_figure_8b(change: tuple[str, float, str | None, int | None], says: str) -> None:
    rows, (column, factor, kind, workers) = latencies((1, 1), latency.SYMMETRIC), change
    assert holds(latency.judged_8b(rows, 500.0), says)
    assert not holds(latency.judged_8b(changed(rows, column, factor, kind=kind, workers=workers), 500.0), says)


def asymmetric(rates_as: tuple[int, int] = (1, 3)) -> Rows:
    """And lines in which tuples are handed on, the longer the slower."""
    along = latencies(rates_as, ((4, 1), (16, 1)))
    return latencies(rates_as, latency.ASYMMETRIC) + [
        row | {"kind": latency.HANDED_ON, "latency_ms": row["workers"]} for row in along
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("longest", 2.0, "rectangular", 15), "3 x 5 workers have"),
        (("latency_ms", 9.0, "rectangular", 15), "their latency is lower"),
        (("latency_ms", 0.01, latency.HANDED_ON, 16), "along a line"),
        (("latency_ms", 1000.0, None, None), "Handshake Join's"),
    ],
)
def test_figure_9(change: tuple[str, float, str | None, int | None], says: str) -> None:
    rows, (column, factor, kind, workers) = asymmetric(), change
    found = latency.judged_9(rows, 500.0)
    assert holds(found, says)
    assert holds(found, "the layout has to lie")
    assert holds(found, "the rates choose")
    drawn(found)
    assert not holds(latency.judged_9(changed(rows, column, factor, kind=kind, workers=workers), 500.0), says)


def test_figure_9_the_wrong_way_round() -> None:
    assert not holds(latency.judged_9(asymmetric((3, 1)), 500.0), "the layout has to lie")


def test_layouts_are_run_flat_out_and_all_compare_the_same() -> None:
    rows = layouts.offered(600, [("linear", (1, 1)), ("linear", (2, 1)), ("square", (2, 2))], 1)
    assert len({row["comparisons"] for row in rows}) == 1
    assert all(row["offered"] > 0 and row["results"] >= 0 for row in rows)
    assert rows[2]["busiest_part"] == pytest.approx(0.25, rel=0.05)


@pytest.mark.slow  # `make papers` has the same study
def test_a_tuple_s_longest_part_is_counted() -> None:
    each = single_tuples.Singles((200, 600), 2, 4, 0.001)
    rows = single_tuples.by_layout(each, [("linear", (4, 1)), ("square", (2, 2))])
    assert rows[0]["longest_x"] == pytest.approx(600, rel=0.02), "all of Y's window, by one worker"
    assert rows[0]["longest_y"] == pytest.approx(50, rel=0.1), "a quarter of X's"
    assert (rows[1]["longest_x"], rows[1]["longest_y"]) == (pytest.approx(300, rel=0.02), pytest.approx(100, rel=0.05))


def test_a_course_has_a_row_a_slice_and_counts_what_was_compared() -> None:
    rows = single_tuples.course(single_tuples.Course(200, 0.1, 0.4, 4), "square", (2, 2))
    assert len(rows) == 4
    assert sum(row["comparisons_a_tuple"] for row in rows) / 4 <= 20, "a tuple meets a window of 20 tuples at most"
    assert [row["windows"] for row in rows] == pytest.approx([1, 2, 3, 4])


def test_every_study_has_a_name_and_says_what_the_paper_has() -> None:
    names = [study.name for study in STUDIES]
    assert names == [f"dpjoin-{label}" for label in ("6", "7a", "7b", "table-1", "8a", "8b", "9")]
    assert all(study.published for study in STUDIES)
    assert latency.degree(Scale(cores=2)) == [("square", (2, 2)), ("linear", (4, 1))]
    assert len(latency.degree(Scale(cores=16))) == 3
