"""Studies of STRETCH's model (section 8) and evaluation (section 9)."""

from __future__ import annotations

from typing import Any

from plait.core.policy import Load, Thresholds
from plait.models import stretch as model
from plait_bench.papers.study import Claim, Found, Line, Panel, Scale, Study

#: Threads at first, after a step from 70 to 120 percent of what they sustain, and after one from 70 to 30 percent.
TABLE_2 = {5: (9, 2), 9: (16, 3), 18: (31, 7), 30: (52, 12), 40: (69, 17)}


def figure_3(scale: Scale) -> Found:
    """The model with the costs of table 1: where either kind of parallelism stops scaling."""
    numbers = range(1, 17)
    rows: list[dict[str, Any]] = []
    for kind in ("virtual", "pure"):
        for threads in numbers:
            made = model.stages(kind, model.TABLE_1, threads)
            rows.append({
                "kind": kind, "threads": threads, "input": 1 / made.input_s, "processing": 1 / made.process_s,
                "output": 1 / made.output_s,
            })  # fmt: skip
    ends = {kind: model.scales_to(kind, model.TABLE_1) for kind in ("pure", "virtual")}
    panels = [
        Panel("processing threads", "rate, in units of one input thread's", [
            Line(stage, list(numbers), [row[stage] for row in rows if row["kind"] == kind])
            for stage in ("input", "processing", "output")
        ], title=kind)
        for kind in ("virtual", "pure")
    ]  # fmt: skip
    claim = Claim(
        "pure parallelism scales to 6 threads and virtual to 11", ends == {"pure": 6, "virtual": 11}, f"{ends}"
    )
    return Found(
        f"With table 1's costs pure shared-nothing stops scaling at {ends['pure']} threads, virtual at {ends['virtual']}.",
        rows, [claim], panels,
    )  # fmt: skip


def table_2(scale: Scale) -> Found:
    """What the policy does with the paper's steps of load."""
    policy, rows = Thresholds(), []
    for starting, (more, fewer) in TABLE_2.items():
        for load, published in ((1.2, more), (0.3, fewer)):
            busy, waits = (min(load, 1.0),) * starting, (max(load - 1.0, 0.0),) * starting
            change = policy(Load(starting, 72, busy, 1.0, waits))
            rows.append({
                "starting": starting, "load_percent": 100 * load, "threads": change[0] if change else starting,
                "published": published,
            })  # fmt: skip
    claim = Claim(
        "all ten numbers of the table come out of the policy", all(row["threads"] == row["published"] for row in rows),
        ", ".join(f"{row['starting']} -> {row['threads']}" for row in rows),
    )  # fmt: skip
    return Found("The policy with the paper's thresholds gives the paper's numbers of threads.", rows, [claim])


STUDIES: tuple[Study, ...] = (
    Study("stretch", "figure 3", "How far virtual and pure shared-nothing parallelism scale, by the model", figure_3,
          "The model's curves cross at 6 threads (pure) and 11 (virtual)."),
    Study("stretch", "table 2", "Threads that come and go with the paper's steps of load", table_2,
          "From 5, 9, 18, 30 and 40 threads to 9, 16, 31, 52, 69, and to 2, 3, 7, 12, 17."),
)  # fmt: skip
