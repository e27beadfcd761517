"""Figures 9, 11 and 12: latency by the rate that is injected, 20 inputs and 40,000 keys, and what the new designs improve.

Latency is from the moment when a push was due: what it waited for its turn, in the median, and from the push to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

from plait_bench.papers.aggregation.sweeps import (
    MQ,
    MQ_LF,
    NAMES,
    T_GATE,
    WIML,
    by_inputs,
    by_rate,
    ends,
    gain,
    millions,
    value,
)  # fmt: skip
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

DEPARTS = (
    "Pushes are a hundredth of a second long at any rate, and all inputs push the same stretch of event time. Event time runs "
    "faster than the clock, so that windows are full and many close in a short run. Flat out gives the highest rates that the "
    "injected ones are parts of."
)
PUBLISHED = {MQ: 100_000, MQ_LF: 130_000, T_GATE: 160_000, WIML: 400_000}


def figure_9(scale: Scale) -> Found:
    return by_injected(by_rate(scale, "K-OS"), T_GATE)


def figure_11(scale: Scale) -> Found:
    return by_injected(by_rate(scale, "K-OI"), WIML)


def figure_12(scale: Scale) -> Found:
    return improvements(*(by_inputs(scale, name) for name in ("K-OS", "K-OI")))


def by_injected(rows: Sequence[Row], best: str) -> Found:
    """Latency by rate, of these rows; `best` is the paper's design."""
    whole = {(row["design"], row["rate"]): row["push_p50_ms"] + row["late_p50_ms"] for row in rows}
    rates, designs = sorted({rate for _, rate in whole}), list(dict.fromkeys(design for design, _ in whole))
    blown = {d: whole[d, rates[-1]] / min(whole[d, rate] for rate in rates[:-1]) for d in designs}
    claims = [
        Claim("latency explodes when more is injected than a design can do", geometric_mean(blown.values()) > 2,
              ", ".join(f"{NAMES[d]} {times:.0f} times" for d, times in blown.items()), quick=False),
        _falls_first(whole, rates, designs),
        *([_lowest(whole, rates)] if best == WIML else []),
    ]  # fmt: skip
    high = {row["design"]: row["highest_rate"] for row in rows}
    panel = Panel("tuples/s that are injected", "latency, ms p50", [
        *(Line(NAMES[d], rates, [whole[d, rate] for rate in rates]) for d in designs),
    ], log_x=True, log_y=True)  # fmt: skip
    most = Panel("", "highest rate, tuples/s", [
        Line("here", [NAMES[d].replace(" on ", "\n") for d in designs], [high[d] for d in designs]),
        Line("O_t alone" if best == T_GATE else "WiML", [NAMES[d].replace(" on ", "\n") for d in designs if d in _told(best)],
             [PUBLISHED[d] for d in designs if d in _told(best)], published=True),
    ], bars=True)  # fmt: skip
    return Found(
        f"{NAMES[best]} takes {whole[best, rates[0]]:.1f} ms at {rates[0]:,.0f} t/s and {whole[best, rates[-1]]:.0f} ms at "
        f"{rates[-1]:,.0f}; flat out it does {millions(high[best])} t/s, MQ {millions(high[MQ])}.",
        rows, claims, [panel, most], DEPARTS,
    )  # fmt: skip


def improvements(sensitive: Sequence[Row], insensitive: Sequence[Row]) -> Found:
    """Figure 12, the four before it as one: what T-Gate and W-Hive give, of these rows of K-OS and K-OI."""
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    for query, own, best in (("K-OS", sensitive, T_GATE), ("K-OI", insensitive, WIML)):
        most = ends(own)[1]
        through = gain(own, best, most)
        ms = {d: value(own, "push_p50_ms", design=d, inputs=most) for d in (best, MQ)}
        here = value(own, "tuples_per_s", design=best, inputs=most) / value(own, "tuples_per_s", design=MQ, inputs=most)
        rows.append({
            "query": query, "inputs": most, "design": best, "threads_let_through": through, "rate_here": here,
            "latency_here": ms[MQ] / ms[best],
        })  # fmt: skip
        claims += [
            Claim(f"{query}: {NAMES[best]}'s threads let more through than MQ's", through > 1.05, f"{through:.2f} times",
                  quick=False),
            Claim(f"{query}: its latency is lower, flat out", ms[best] < ms[MQ], f"{ms[best]:.0f} against {ms[MQ]:.0f} ms",
                  quick=False),
        ]  # fmt: skip
    places = [f"{row['query']}\n{NAMES[row['design']]}" for row in rows]
    panel = Panel("", "times MQ", [
        Line("rate, a core for each thread", places, [row["threads_let_through"] for row in rows]),
        Line("rate here", places, [row["rate_here"] for row in rows]),
        Line("latency here, times better", places, [row["latency_here"] for row in rows]),
        Line("rate", places[:1], [1.6], published=True),
    ], bars=True)  # fmt: skip
    return Found(
        f"By their threads' times TuML-SC on T-Gate lets {rows[0]['threads_let_through']:.1f} times as much through as MQ on "
        f"K-OS, and WiML {rows[1]['threads_let_through']:.1f} times on K-OI.",
        rows, claims, [panel],
        "The figure is the caption of figures 8 to 11. Rates with a core for each thread are computed from processor times, as "
        "the paper expects them from its durations: the slowest thread's.",
    )  # fmt: skip


def _falls_first(whole: dict[tuple[str, float], float], rates: list[float], designs: list[str]) -> Claim:
    first, least = ([f([whole[d, rate] for rate in rates[:-1]]) for d in designs] for f in (lambda ms: ms[0], min))
    return Claim(
        "latency falls at first, as inputs' tuples come closer", all(a > 1.2 * b for a, b in zip(first, least, strict=True)),
        ", ".join(f"{NAMES[d]} {a:.1f} ms, its least {b:.1f}" for d, a, b in zip(designs, first, least, strict=True)),
        quick=False,
        instead="All inputs push the same stretch of event time at once here, so no tuple waits for a slower input's next one",
    )  # fmt: skip


def _lowest(whole: dict[tuple[str, float], float], rates: list[float]) -> Claim:
    """At all rates but the highest, which no design sustains. With two cores those who push and update wait for one another."""
    ratios = [whole[WIML, rate] / min(whole[MQ, rate], whole[MQ_LF, rate]) for rate in rates[:-1]]
    return Claim(
        "WiML's latency is not above the multi-queues', whatever the rate", geometric_mean(ratios) < 1.25,
        ", ".join(f"{ratio:.2f}" for ratio in ratios) + " of the better one's", cores=4, quick=False,
    )  # fmt: skip


def _told(best: str) -> tuple[str, ...]:
    return (MQ, MQ_LF, T_GATE) if best == T_GATE else (WIML,)
