"""Figures 28 to 34: TuML-MC by its number of update threads, the six order-sensitive queries, 5 and 20 inputs.

On a machine with fewer cores than threads rates say little: what is judged everywhere is how long the busiest update thread
works on a tuple, which bounds the rate where each has a core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plait_bench.papers.aggregation.sweeps import SIX, by_threads, ends, lines, millions, of, value
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

GATES = {"skiplist": "T-Gate", "ring": "the ring"}
#: Threads that a machine needs a core for: those that push, update and read.
CORES = 16
DEPARTS = (
    "Update threads have windows of their own instead of a W-Hive between them, and whoever reads merges what they close. Every "
    "one of them reads all tuples from the gate, and keeps those of its keys. Claims are of T-Gate, the paper's. The paper goes "
    "to 12 threads."
)


def figure(scale: Scale, name: str) -> Found:
    """The study of a query."""
    return shown(name, by_threads(scale, name))


def figure_34(scale: Scale) -> Found:
    return scaling({name: by_threads(scale, name) for name in SIX})


def shown(name: str, rows: Sequence[Row]) -> Found:
    """A query's figure, of these rows."""
    few, many = ends(rows, "threads")
    inputs = ends(rows)[1]
    own = of(rows, inputs=inputs, gate="skiplist")
    rate = {row["threads"]: row["tuples_per_s"] for row in own}
    busy = {row["threads"]: row["updater_ns"] for row in own}
    told = f"{busy[few]:.0f} ns a tuple with {few}, {busy[many]:.0f} with {many}"
    few_keys = name[0] in "kwW"
    instead = (
        f"Every update thread reads all tuples, and with 243 keys there is little else to do: its time is {told}"
        if few_keys
        else ""
    )
    claims = [
        Claim("no update thread gets more to do as threads are added", busy[many] < 1.5 * busy[few], told, cores=4,
              quick=False),
        Claim("throughput grows with the update threads", rate[many] > rate[few],
              f"{millions(rate[few])} to {millions(rate[many])} t/s", cores=CORES, instead=instead),
        Claim("it does not degrade beyond the best number of threads", rate[many] > 0.8 * max(rate.values()),
              f"{rate[many] / max(rate.values()):.2f} of the best", cores=CORES, instead=instead),
    ]  # fmt: skip
    if not few_keys:
        claims.insert(0, Claim("update threads share the work: the busiest one's falls as they are added",
                               busy[many] < 0.9 * busy[few], told, quick=False))  # fmt: skip
    return Found(
        f"With {inputs} inputs the busiest of {many} update threads works {busy[many] / busy[few]:.2f} of the time a tuple that "
        f"one alone does; here {few} gave {millions(rate[few])} t/s and {many} gave {millions(rate[many])}.",
        rows, claims, _panels(rows), DEPARTS,
    )  # fmt: skip


def _panels(rows: Sequence[Row]) -> list[Panel]:
    named = [{**row, "line": f"{row['inputs']} inputs, {GATES[row['gate']]}"} for row in rows]
    names = {row["line"]: row["line"] for row in named}
    return [
        Panel(
            "update threads",
            label,
            lines(named, "threads", column, "line", names),
            title=title,
            log_y=column == "push_p50_ms",
        )
        for label, column, title in (
            ("tuples/s", "tuples_per_s", "here"),
            ("latency, ms p50", "push_p50_ms", "here"),
            ("processor time, ns a tuple", "updater_ns", "busiest update thread"),
        )
    ]


def scaling(group: Mapping[str, Sequence[Row]]) -> Found:
    """Figure 34, the six before it as one, of these rows."""
    few, many = ends(group["k-OS"], "threads")
    inputs = ends(group["k-OS"])[1]
    share = {}
    rates = {}
    for name, rows in group.items():
        busy, rate = (
            [value(rows, column, threads=n, inputs=inputs, gate="skiplist") for n in (few, many)]
            for column in ("updater_ns", "tuples_per_s")
        )
        share[name], rates[name] = busy[0] / busy[1], rate[1] / rate[0]
    told = ", ".join(f"{name} {times:.2f}" for name, times in share.items())
    claims = [
        Claim("K-OS scales better than k-OS", share["K-OS"] > share["k-OS"], told, quick=False),
        Claim("w-OS and W-OS scale alike", 0.5 < share["W-OS"] / share["w-OS"] < 2.0, told, quick=False),
        Claim("TuML-MC's throughput grows with its threads, on all six", min(rates.values()) > 1.0,
              ", ".join(f"{name} {times:.2f}" for name, times in rates.items()), cores=CORES,
              instead="With 243 keys (k, w, W) there is little to update, and every update thread reads all tuples: the busiest "
              f"one's time is {1 / share['k-OS']:.2f} of a single one's on k-OS"),
    ]  # fmt: skip
    rows = [
        {
            "query": name,
            "inputs": inputs,
            "threads": many,
            "speedup_of_the_busiest": share[name],
            "rate_here": rates[name],
        }
        for name in group
    ]
    panel = Panel("", f"{many} threads over {few}", [
        Line("busiest update thread, times shorter", list(group), list(share.values())),
        Line("rate here", list(group), list(rates.values())),
    ], bars=True)  # fmt: skip
    return Found(
        f"With {many} update threads for {few} the busiest one's work a tuple is {share['K-OS']:.1f} times shorter on K-OS and "
        f"{share['k-OS']:.1f} times on k-OS.",
        rows, claims, [panel], DEPARTS,
    )  # fmt: skip
