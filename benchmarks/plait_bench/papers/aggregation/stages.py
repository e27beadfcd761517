"""Figures 8 and 10: how long input and output threads work on a tuple, with 20 inputs and 40,000 keys.

Processor time of threads, so that waiting is not in it. Output is everything after the gate: updating, closing, giving out.
"""

from __future__ import annotations

from collections.abc import Sequence

from plait_bench.papers.aggregation.sweeps import MQ, MQ_LF, NAMES, T_GATE, WIML, by_inputs, ends, of
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

DEPARTS = (
    "Processor time, so waiting for a lock or a core is not in it. Inputs are pushed by as many threads as there are cores, each "
    "with its share of them, in batches. What is made of a result (Arrow) is in the output's time, and where a design has a "
    "thread for it besides the one that updates, both are counted."
)


def figure_8(scale: Scale) -> Found:
    return order_sensitive(by_inputs(scale, "K-OS"))


def figure_10(scale: Scale) -> Found:
    return order_insensitive(by_inputs(scale, "K-OI"), by_inputs(scale, "K-OS"))


def order_sensitive(rows: Sequence[Row]) -> Found:
    """Figure 8 of these rows of K-OS."""
    own = _most(rows)
    into, out = ({row["design"]: row[stage] for row in own} for stage in ("input_ns", "output_ns"))
    claims = [
        Claim("the output thread of lock-free queues is not slower than that of locked ones", out[MQ_LF] < 1.1 * out[MQ],
              f"{out[MQ_LF]:.0f} and {out[MQ]:.0f} ns", quick=False),
        Claim("TuML-SC's output thread works shorter on a tuple than the multi-queues'", out[T_GATE] < min(out[MQ], out[MQ_LF]),
              f"{out[T_GATE]:.0f} against {out[MQ]:.0f} and {out[MQ_LF]:.0f} ns", quick=False),
        Claim("its input threads work longer, since they merge", into[T_GATE] > into[MQ_LF],
              f"{into[T_GATE]:.0f} against {into[MQ_LF]:.0f} ns", quick=False),
    ]  # fmt: skip
    return Found(
        f"On T-Gate, TuML-SC's input threads take {into[T_GATE]:.0f} ns a tuple where MQ's take {into[MQ]:.0f}, and its output "
        f"thread {out[T_GATE]:.0f} where MQ's takes {out[MQ]:.0f}.",
        own, claims, [*_panels(own), _published({"output": {"MQ": 1e4, "MQ_LF": 1e9 / 130_000, "TuML-SC": 6_250}})], DEPARTS,
    )  # fmt: skip


def order_insensitive(rows: Sequence[Row], sensitive: Sequence[Row]) -> Found:
    """Figure 10 of these rows of K-OI, beside those of K-OS."""
    own, other = _most(rows), _most(sensitive)
    into, out = ({row["design"]: row[stage] for row in own} for stage in ("input_ns", "output_ns"))
    tuml = {row["design"]: row["input_ns"] for row in other}
    more = into[WIML] / into[MQ], tuml[T_GATE] / tuml[MQ]
    claims = [
        Claim("WiML's input threads work longer on a tuple than MQ's, since they update", into[WIML] > into[MQ],
              f"{into[WIML]:.0f} against {into[MQ]:.0f} ns", quick=False),
        Claim("they gain more work than TuML-SC's on K-OS do", more[0] > more[1], f"{more[0]:.2f} and {more[1]:.2f} times MQ's",
              quick=False,
              instead=f"Here a source adds a tuple to one pane of its own, in {into[WIML] - into[MQ]:.0f} ns, where the paper's "
                      "updates every window in a table that all share; T-Gate's merging takes "
                      f"{tuml[T_GATE] - tuml[MQ]:.0f} ns on K-OS"),
        Claim("WiML's output thread works shorter on a tuple than the multi-queues'", out[WIML] < min(out[MQ], out[MQ_LF]),
              f"{out[WIML]:.0f} against {out[MQ]:.0f} and {out[MQ_LF]:.0f} ns", quick=False),
    ]  # fmt: skip
    return Found(
        f"WiML's input threads take {into[WIML]:.0f} ns a tuple, {more[0]:.1f} times MQ's, and its output thread {out[WIML]:.0f} "
        f"where MQ's takes {out[MQ]:.0f}.",
        own, claims, [*_panels(own), _published({"input": {"WiML": 1e9 / 22_000}, "output": {"WiML": 500.0}})], DEPARTS,
    )  # fmt: skip


def _most(rows: Sequence[Row]) -> list[Row]:
    return of(rows, inputs=ends(rows)[1])


def _panels(rows: Sequence[Row]) -> list[Panel]:
    places = [NAMES[row["design"]].replace(" on ", "\n") for row in rows]
    return [
        Panel("", "processor time, ns a tuple", [
            Line("input threads", places, [row["input_ns"] for row in rows]),
            Line("output thread", places, [row["output_ns"] for row in rows]),
        ], title="here", bars=True)
    ]  # fmt: skip


def _published(stages: dict[str, dict[str, float]]) -> Panel:
    """What the text's rates of single threads come to."""
    bars = [
        Line(f"{stage} thread", list(found), list(found.values()), published=True) for stage, found in stages.items()
    ]
    return Panel("", "duration, ns a tuple", bars, title="in the paper", log_y=len(bars) > 1, bars=True)
