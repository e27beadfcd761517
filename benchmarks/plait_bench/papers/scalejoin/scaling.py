"""Figures 5 and 6: comparisons and tuples a second by processing threads and window sizes, and beside the handshake joins."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from plait.models.scalejoin import max_tuples
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, slope
from plait_bench.papers.sweep import apart, column, curves, sweep, windows_of, workers_of

#: Tuples a second of each stream that 48 threads sustain (system S1), and 16 cores (S2), by window size in minutes.
PUBLISHED_RATES = {"S1": {5: 5100, 10: 3500, 15: 3000}, "S2": {5: 3000, 10: 2100, 15: 1750}}
#: Billions of comparisons a second: of S1 one thread's and 48 threads', of S2 16 cores'.
PUBLISHED_C_PER_S = {"S1": {1: 0.1, 48: 4.0}, "S2": {16: 1.4}}
RIVALS = ("handshake", "low_latency_handshake")
SECONDS = (
    "Windows are seconds where the paper's are minutes: a worker here makes a hundred times as many comparisons a second, and "
    "filling a window at the highest rate takes half its length. "
)
CLOCK = "By processor time a rate is the busiest thread's, as if each had a core of its own; by the wall it is this machine's."


def figure_5(scale: Scale) -> Found:
    return found_5(sweep(scale, "scalejoin", windows_of(scale), workers_of(scale)), scale.cores)


def found_5(rows: Sequence[Row], cores: int) -> Found:
    """What the rows of a sweep show of figure 5."""
    judged = apart(rows, cores)
    windows, most = sorted({row["window_s"] for row in rows}), max(row["workers"] for row in judged)
    by_threads = {w: _slope(judged, "comparisons_per_s", window_s=w) for w in windows}
    roots = {w: _slope(judged, "tuples_per_s", window_s=w) for w in windows}
    lengths = {
        n: slope(windows, column(judged, "tuples_per_s", workers=n)) for n in sorted({r["workers"] for r in judged})
    }
    balance = max(row["balance_cv_percent"] for row in rows)
    walls = [row for row in judged if "wall_comparisons_per_s" in row]
    claims = [
        Claim("c/s grow linearly with the threads", median(by_threads.values()) > 0.75, _exponents(by_threads, " s")),
        Claim("t/s grow with the root of the threads", 0.35 < median(roots.values()) < 0.65, _exponents(roots, " s")),
        Claim(
            "t/s fall with the root of the window size", -0.65 < median(lengths.values()) < -0.35,
            _exponents(lengths, " threads"),
        ),
        Claim("the threads' work differs by at most 4 %", balance <= 4, f"{balance:.2g} % at most"),
    ]  # fmt: skip
    if len({row["workers"] for row in walls}) > 1:
        exponent = _slope(walls, "wall_comparisons_per_s", window_s=windows[-1])
        says = "c/s grow with the threads by the wall too"
        claims.append(Claim(says, exponent > 0.6, f"exponent {exponent:.2f}", cores=8, quick=False))
    top = column(judged, "comparisons_per_s", workers=most, window_s=windows[-1])[0]
    one = column(judged, "comparisons_per_s", workers=1, window_s=windows[-1])[0]
    sentence = (
        f"From 1 to {most} threads c/s go from {one / 1e9:.1f} to {top / 1e9:.1f} G, with an exponent of "
        f"{median(by_threads.values()):.2f}; t/s with one of {median(roots.values()):.2f}."
    )
    return Found(sentence, rows, claims, _panels_5(rows, windows), SECONDS + CLOCK)


def _panels_5(rows: Sequence[Row], windows: Sequence[float]) -> list[Panel]:
    def lines(name: str, unit: float) -> list[Line]:
        found = curves(rows, "{:g} s", by="window_s", x="workers", y=name, unit=unit)
        walls = [row for row in rows if f"wall_{name}" in row and row["window_s"] == windows[-1]]
        if walls:
            values = [row[f"wall_{name}"] / unit for row in walls]
            found.append(Line(f"{windows[-1]:g} s, by the wall", [row["workers"] for row in walls], values))
        return found

    one = column(rows, "comparisons_per_s", workers=1, window_s=windows[-1])[0]
    threads = sorted({row["workers"] for row in rows})
    bound = [max_tuples(c_max=one, window_s=windows[-1], threads=n) / 1e3 for n in threads]
    published = [
        Line(name, list(points), list(points.values()), published=True) for name, points in PUBLISHED_C_PER_S.items()
    ]
    rates = [
        Line(f"{name}, most threads", [60 * m for m in points], list(points.values()), published=True)
        for name, points in PUBLISHED_RATES.items()
    ]
    differ = curves(rows, "{:g} s", by="window_s", x="workers", y="balance_cv_percent")
    ours = curves(rows, "{} threads", by="workers", x="window_s", y="tuples_per_s")
    average = [
        Line(
            f"{w:g} s", threads,
            [row["comparisons_per_s"] / row["workers"] / 1e9 for row in rows if row["window_s"] == w],
        )
        for w in windows
    ]  # fmt: skip
    return [
        Panel("threads", "billion comparisons/s", lines("comparisons_per_s", 1e9) + published, "5a, 5d", True, True),
        Panel(
            "threads", "thousand tuples/s of each stream",
            [*lines("tuples_per_s", 1e3), Line(f"bound, {windows[-1]:g} s", threads, bound)], "5b, 5e", True, True,
        ),
        Panel("threads", "billion comparisons/s a thread", average, "5c, 5f: mean"),
        Panel("threads", "standard deviation, %", [*differ, Line("S1, at most", [1, 48], [4, 4], published=True)],
              "5c, 5f: how far threads differ", True),
        Panel("window, s", "tuples/s of each stream", ours + rates, "by window size", True, True),
    ]  # fmt: skip


def figure_6(scale: Scale) -> Found:
    window = windows_of(scale)[-1]
    rows = [row for row in sweep(scale, "scalejoin", windows_of(scale), workers_of(scale)) if row["window_s"] == window]
    for name in RIVALS:
        rows += sweep(scale, name, (window,), workers_of(scale), wall=name == "low_latency_handshake")
    return found_6(rows, scale.cores)


def found_6(rows: Sequence[Row], cores: int) -> Found:
    """What ScaleJoin's and the handshake joins' rows show of figure 6."""
    judged = apart(rows, cores)
    threads = sorted({row["workers"] for row in judged})
    ahead = {name: _ahead(judged, name, threads) for name in RIVALS}
    several = [n for n in threads if n > 1]
    claims: list[Claim] = []
    for name, by_threads in ahead.items():
        shown = ", ".join(f"{n}: {by_threads[n] / 1e9:+.1f} G" for n in threads)
        words = name.replace("_", "-")
        claims.append(
            Claim(f"ScaleJoin makes more c/s than {words} join", all(by_threads[n] > 0 for n in several), shown)
        )
        grows = by_threads[threads[-1]] > by_threads[threads[0]]
        claims.append(Claim(f"the difference to {words} join grows with the threads", grows, shown, quick=False))
    most = threads[-1]
    sentence = f"With {most} threads ScaleJoin makes " + " and ".join(
        f"{by_threads[most] / 1e9:.1f} G c/s more than {name.replace('_', '-')} join"
        for name, by_threads in ahead.items()
    )
    lines = [
        Line(name, column(rows, "workers", strategy=name), [v / 1e9 for v in column(rows, "comparisons_per_s", strategy=name)])
        for name in ("scalejoin", *RIVALS)
    ]  # fmt: skip
    differences = [Line(name, threads, [by_threads[n] / 1e9 for n in threads]) for name, by_threads in ahead.items()]
    published = [Line("S1", [48], [2.5], published=True), Line("S2", [32], [1.0], published=True)]
    panels = [
        Panel("threads", "billion comparisons/s", lines, "6a, 6b"),
        Panel("threads", "billion comparisons/s more than", differences, "6c"),
        Panel("threads", "billion comparisons/s more than", published, "6c in the paper: handshake"),
    ]
    departs = (
        "The rivals are rebuilt in the same compiled code and share windows where the originals copied tuples, to their favour; "
        "handshake join's windows were filled for one window's time only. " + SECONDS + CLOCK
    )
    return Found(sentence + ".", rows, claims, panels, departs)


def _ahead(rows: Sequence[Row], rival: str, threads: Sequence[int]) -> dict[int, float]:
    speed: dict[tuple[Any, Any], float] = {(row["strategy"], row["workers"]): row["comparisons_per_s"] for row in rows}
    return {n: speed["scalejoin", n] - speed[rival, n] for n in threads}


def _slope(rows: Sequence[Row], name: str, **where: Any) -> float:
    chosen = [row for row in rows if name in row and all(row[key] == value for key, value in where.items())]
    return slope([row["workers"] for row in chosen], [row[name] for row in chosen])


def _exponents(by: dict[Any, float], unit: str) -> str:
    return "exponents " + ", ".join(f"{value:.2f} ({key:g}{unit})" for key, value in by.items())
