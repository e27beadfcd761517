"""Figure 7: tuples sorted by T-Gate and by a plain lock-free skip list, and how long that takes, by number of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from plait_bench import gate
from plait_bench.gate_latency import latencies
from plait_bench.papers.aggregation.sweeps import ends, lines, millions, of, value
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

T_GATE, PLAIN = "skiplist", "plain skip list"
NAMES = {
    T_GATE: "T-Gate", PLAIN: "plain skip list", "ring": "ring", "locked multi-queue": "multi-queue",
    "lock-free multi-queue": "lock-free multi-queue",
}  # fmt: skip
BATCH = 32
TUPLES = (100_000, 1_000_000)  # by size
SECONDS = (0.15, 0.3)
PART = 0.9  # of the plain list's highest rate, at which latency is measured


def figure_7(scale: Scale) -> Found:
    rows: list[Row] = []
    for inputs in scale.pick((5, 20), (5, 10, 15, 20)):
        fast = gate.measure(inputs, 1, BATCH, scale.pick(*TUPLES), runs=scale.pick(3, 5))
        rate = PART * value(fast, "tuples_per_s", contender=PLAIN)
        timed = [each for each in gate.CONTENDERS if scale.size != "quick" or each.name in (T_GATE, PLAIN)]
        slow = latencies(inputs, BATCH, rate, scale.pick(*SECONDS), runs=3, contenders=timed)
        took = {row["contender"]: {"rate": rate, "mean_ms": row["mean_ms"], "p50_ms": row["p50_ms"]} for row in slow}
        rows += [
            {
                "sources": inputs, "contender": row["contender"], "tuples_per_s": row["tuples_per_s"],
                **took.get(row["contender"], {}),
            }
            for row in fast
        ]  # fmt: skip
    return shown(rows)


def shown(rows: Sequence[Row]) -> Found:
    """The figure of these rows."""
    fewest, most = ends(rows, "sources")
    rate = {
        (n, who): value(rows, "tuples_per_s", sources=n, contender=who)
        for n in (fewest, most)
        for who in (T_GATE, PLAIN)
    }
    ms = {who: value(rows, "mean_ms", sources=most, contender=who) for who in (T_GATE, PLAIN)}
    ratios, slower = [], []
    for row in of(rows, contender=T_GATE):
        (plain,) = of(rows, contender=PLAIN, sources=row["sources"])
        ratios.append(row["tuples_per_s"] / plain["tuples_per_s"])
        slower.append(plain["mean_ms"] / row["mean_ms"])
    claims = [
        Claim("T-Gate sorts more tuples a second than a skip list, whatever the inputs", min(ratios) > 1.5,
              ", ".join(f"{ratio:.1f} times" for ratio in ratios)),
        Claim("the skip list gets slower as inputs are added", rate[most, PLAIN] < rate[fewest, PLAIN],
              f"{millions(rate[fewest, PLAIN])} to {millions(rate[most, PLAIN])} t/s", quick=False),
        Claim("T-Gate gets faster as inputs are added", rate[most, T_GATE] > rate[fewest, T_GATE],
              f"{millions(rate[fewest, T_GATE])} to {millions(rate[most, T_GATE])} t/s", cores=most + 1),
        Claim("T-Gate's latency is lower", geometric_mean(slower) > 1.0,
              "the skip list's is " + ", ".join(f"{times:.1f} times as long" for times in slower)),
    ]  # fmt: skip
    panels = [
        Panel("inputs", "tuples/s", [
            *lines(rows, "sources", "tuples_per_s", "contender", NAMES),
            Line("T-Gate", [20], [2.2e6], published=True), Line("skip list", [20], [1.5e6], published=True),
        ], title="sorted", log_y=True),
        Panel("inputs", "mean latency, ms", [
            *lines(rows, "sources", "mean_ms", "contender", NAMES),
            Line("T-Gate", [20], [1.0], published=True), Line("skip list", [20], [1.6], published=True),
        ], title=f"at {PART:.0%} of the plain list's rate", log_y=True),
    ]  # fmt: skip
    return Found(
        f"With {most} inputs T-Gate sorts {millions(rate[most, T_GATE])} t/s, a plain skip list {millions(rate[most, PLAIN])}, "
        f"and a tuple takes {ms[T_GATE]:.1f} against {ms[PLAIN]:.1f} ms.",
        rows, claims, panels,
        "The plain list is ours, not Java's: T-Gate's own nodes without handles and without a frontier that is kept. Tuples come "
        f"in batches of {BATCH}. Latency is from the moment when a tuple was due, at one rate for all: {PART} of the plain "
        "list's highest.",
    )  # fmt: skip
