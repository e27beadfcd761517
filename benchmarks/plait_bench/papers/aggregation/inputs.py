"""Figures 13 to 16, 18 to 21 and 23 to 26: throughput and latency of one query by number of inputs, design by design.

Three panels each: tuples a second here; what the designs' threads would let through with a core each, computed from their
processor times by section 7.3's rule (the slowest kind of threads bounds); and latency of the runs flat out.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait_bench.papers.aggregation.sweeps import (
    MQ,
    MQ_LF,
    NAMES,
    WIML,
    by_inputs,
    ends,
    gain,
    improved,
    let_through,
    lines,
    millions,
    of,
    on_readings,
    value,
)  # fmt: skip
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

#: What the text gives at 20 inputs, tuples a second: its own design, and MQ where it says how many times that is.
PUBLISHED: dict[str, dict[str, float]] = {
    "k-OI": {WIML: 2.6e6}, "K-OI": {WIML: 430_000}, "w-OI": {WIML: 2.4e6, MQ: 2.4e6 / 19}, "W-OI": {WIML: 1.4e6, MQ: 1.4e6 / 16},
    "f-OI": {WIML: 615_000, MQ: 615_000 / 9}, "F-OI": {WIML: 615_000, MQ: 615_000 / 9},
}  # fmt: skip
#: With fewer, the threads that push and the one that gives out share cores, and the sum of their work counts, not the slowest.
CORES = 8
DEPARTS = (
    "Made-up data with the paper's schemas, keys and shares. Inputs are pushed in batches by as many threads as there are cores. "
    "Latency is that of a run flat out, with as much waiting as there is room for; the paper's is at the highest rate that is "
    "sustained."
)


def figure(scale: Scale, name: str) -> Found:
    """The study of a query."""
    return shown(name, by_inputs(scale, name))


def shown(name: str, rows: Sequence[Row]) -> Found:
    """A query's figure, of these rows."""
    most, best = ends(rows)[1], improved(name)[0]
    through = [{**row, "let_through": let_through(row)} for row in rows]
    here = {d: value(rows, "tuples_per_s", design=d, inputs=most) for d in (best, MQ)}
    ms = {d: value(rows, "push_p50_ms", design=d, inputs=most) for d in (best, MQ)}
    points = [Line(NAMES[d], [20], [rate], published=True) for d, rate in PUBLISHED.get(name, {}).items()]
    panels = [
        Panel("inputs", "tuples/s", [*lines(rows, "inputs", "tuples_per_s", "design", NAMES), *points], title="here", log_y=True),
        Panel("inputs", "tuples/s", lines(through, "inputs", "let_through", "design", NAMES),
              title="a core for each thread (computed)"),
        Panel("inputs", "latency, ms p50", lines(rows, "inputs", "push_p50_ms", "design", NAMES), title="here", log_y=True),
    ]  # fmt: skip
    return Found(
        f"With {most} inputs {NAMES[best]} does {millions(here[best])} t/s at {ms[best]:.0f} ms here and MQ "
        f"{millions(here[MQ])} at {ms[MQ]:.0f}; by their threads' times it lets {gain(rows, best, most):.1f} times as much "
        "through.",
        through, [*trends(name, rows), *ranks(name, rows)], panels, DEPARTS,
    )  # fmt: skip


def trends(name: str, rows: Sequence[Row]) -> list[Claim]:
    """What more inputs do to each design."""
    fewest, most = ends(rows)
    best = improved(name)[0]
    readings = on_readings(name)
    grown = {
        d: let_through(of(rows, design=d, inputs=most)[0]) / let_through(of(rows, design=d, inputs=fewest)[0])
        for d in (MQ, MQ_LF, best)
    }
    shown = f"{NAMES[best]} {grown[best]:.2f} of what it was with {fewest}"
    falls = Claim(
        "what the multi-queues let through falls as inputs are added",
        (grown[MQ] + grown[MQ_LF]) / 2 < (0.9 if readings else 1.0),
        f"MQ {grown[MQ]:.2f} and MQ_LF {grown[MQ_LF]:.2f} of what it was with {fewest}", quick=False,
        instead="The function is computed by who pushes here, and what it takes hides the merging" if name[0] in "fF" else "",
    )  # fmt: skip
    if best != WIML:
        return [falls, Claim("what TuML-SC lets through is rather stable", grown[best] > 0.6, shown, quick=False)]
    rates = [value(rows, "tuples_per_s", design=WIML, inputs=n) for n in (fewest, most)]
    return [
        falls,
        Claim("what WiML lets through does not fall", grown[best] > 0.8, shown, quick=False),
        Claim("WiML's throughput grows with the inputs", rates[1] > rates[0], f"{millions(rates[0])} to {millions(rates[1])} t/s",
              cores=most + 1),
    ]  # fmt: skip


def ranks(name: str, rows: Sequence[Row]) -> list[Claim]:
    """Who is better with the most inputs."""
    most, best = ends(rows)[1], improved(name)[0]
    costly = name[0] in "fF"
    row = of(rows, design=best, inputs=most)[0]
    instead = (
        f"The function is computed by who pushes here, in every design: {row['input_ns']:.0f} of "
        f"{row['input_ns'] + row['output_ns']:.0f} ns a tuple, which all designs have in parallel and which few cores are "
        "busy with"
    ) if costly else ""  # fmt: skip
    rate, ms = (
        {d: value(rows, column, design=d, inputs=most) for d in (best, MQ)}
        for column in ("tuples_per_s", "push_p50_ms")
    )
    return [
        Claim(f"{NAMES[best]}'s threads let more through than MQ's", gain(rows, best, most) > 1.05,
              f"{gain(rows, best, most):.2f} times with {most} inputs", quick=False, instead=instead),
        Claim(f"{NAMES[best]} has the higher throughput", rate[best] > rate[MQ],
              f"{millions(rate[best])} against {millions(rate[MQ])} t/s", cores=CORES, quick=False, instead=instead),
        Claim(f"{NAMES[best]} has the lower latency", ms[best] < ms[MQ], f"{ms[best]:.0f} against {ms[MQ]:.0f} ms", quick=False,
              instead=instead),
    ]  # fmt: skip
