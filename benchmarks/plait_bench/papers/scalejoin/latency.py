"""Figures 7b and 7c: latency at the highest rate that is sustained, by threads and window sizes.

The paper's two figures are two machines; here there is one. Rates are those of figure 5 by the wall, less a fifth: at the very
highest a queue grows with every moment in which the machine does something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median

from plait_bench.band import query
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, slope
from plait_bench.papers.sustained import replayed
from plait_bench.papers.sweep import PART, column, curves, options_of, to_replay, windows_of

PAPER_MS = 70.0


@cache
def measured(scale: Scale) -> list[Row]:
    rows: list[Row] = []
    for row in to_replay(scale, "scalejoin", windows_of(scale)):
        made = replayed(
            query(row["window_s"]), rate=row["replay_per_s"], window_s=row["window_s"],
            seconds=scale.pick(0.5, 2.0, 1.0), **options_of("scalejoin", row["workers"]),
        )  # fmt: skip
        found = made.stats
        rows.append({
            "workers": row["workers"], "window_s": row["window_s"], "tuples_per_s": made.rate,
            "ready_p50_ms": found.latency_from_ready_ms.p50, "ready_p99_ms": found.latency_from_ready_ms.p99,
            "push_p50_ms": found.latency_from_push_ms.p50, "results": found.latency_from_push_ms.samples,
            "most_behind_ms": made.behind_ms,
        } | {f"{name}_p50_ms": value.p50 for name, value in found.stage_latency_ms.items()})  # fmt: skip
    return rows


def figure_7b(scale: Scale) -> Found:
    return found_7b(measured(scale))


def found_7b(rows: Sequence[Row]) -> Found:
    """What latencies by threads and windows show."""
    threads = sorted({row["workers"] for row in rows})
    worst = max(row["ready_p50_ms"] for row in rows)
    by_threads = {n: median(column(rows, "ready_p50_ms", workers=n)) for n in threads}
    gathering = {n: median(column(rows, "gathering_p50_ms", workers=n)) for n in threads}
    exponent = slope(threads, list(by_threads.values())) if len(threads) > 1 else 0.0
    shown = ", ".join(f"{n}: {ms:.2g} ms" for n, ms in by_threads.items())
    claims = [
        Claim("latency stays below 70 ms", worst < PAPER_MS, f"medians up to {worst:.3g} ms", cores=4, quick=False),
        Claim(
            "it grows in proportion to the threads", exponent > 0.7, f"{shown}; exponent {exponent:.2f}", cores=4, quick=False,
            instead=(
                "There a result waits in SG_out until every thread has given a later one. Here a thread says after each batch "
                "how far it is, whether it found anything or not: gathering took "
                + ", ".join(f"{ms:.2g} ms with {n}" for n, ms in gathering.items())
            ),
        ),
    ]  # fmt: skip
    panels = [
        Panel("threads", "latency, ms (median)", [
            *curves(rows, "{:g} s", by="window_s", x="workers", y="ready_p50_ms"),
            Line("at most", [threads[0], threads[-1]], [PAPER_MS] * 2, published=True),
        ], "", False, True),
        Panel("threads", "latency, ms (99 in a hundred)",
              curves(rows, "{:g} s", by="window_s", x="workers", y="ready_p99_ms"), "", False, True),
    ]  # fmt: skip
    half, number = ", ".join(f"{ms:.2g}" for ms in by_threads.values()), ", ".join(map(str, threads))
    sentence = f"At {PART:.0%} of the highest rates half of the results are out after {half} ms with {number} threads."
    departs = (
        "Latency is from the moment that a result's later tuple is ready to the Arrow batch that has the result; a push is 5 ms "
        "of each stream. Of 7b and 7c, two machines, there is one here. Rates are four fifths of the highest by the wall."
    )
    return Found(sentence, rows, claims, panels, departs)
