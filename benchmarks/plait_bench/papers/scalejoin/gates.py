"""Figure 7a: how many tuples a second go through a ScaleGate, by sources and readers.

By processor time: every source and every reader as if it had a core of its own, and the slower kind of them decides. A reader
takes all tuples, a source adds its share; so with more sources each adds fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import mean
from typing import Any

from plait_bench import gate
from plait_bench.papers.study import Claim, Found, Panel, Row, Scale
from plait_bench.papers.sweep import column, curves, sweep, windows_of, workers_of

BATCH = 64
GATES = {"skiplist": "ScaleGate (skip list)", "ring": "ring"}


@cache
def measured(scale: Scale, total: int | None = None) -> list[Row]:
    """The least of some rounds, since other work only adds to what a thread spends."""
    tuples = total or scale.pick(200_000, 1_000_000)
    contenders = [each for each in gate.CONTENDERS if each.name in GATES]
    rows: list[Row] = []
    for sources in scale.pick((1, 2, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32)):
        columns = gate.columns_of(sources, tuples)
        few = [each[:1000] for each in columns]
        answers = gate.expected(few), gate.expected(columns)
        for readers in scale.pick((1, 4), (1, 2, 4), (1, 2, 4, 8)):
            runs: dict[str, list[gate.Passed]] = {each.name: [] for each in contenders}
            for each in contenders:
                gate.passed(each, few, readers, BATCH, answers[0])
            for _ in range(3):
                for each in contenders:
                    runs[each.name].append(gate.passed(each, columns, readers, BATCH, answers[1]))
            rows += [_row(name, sources, readers, made) for name, made in runs.items()]
    return rows


def _row(name: str, sources: int, readers: int, made: Sequence[gate.Passed]) -> dict[str, Any]:
    adding, reading = (
        min(mean(getattr(each, kind)) / each.tuples for each in made) for kind in ("sources_s", "readers_s")
    )
    return {
        "gate": name, "sources": sources, "readers": readers, "tuples_per_s": 1 / max(adding, reading),
        "source_ns_a_tuple_of_all": 1e9 * adding, "reader_ns_a_tuple": 1e9 * reading,
        "wall_tuples_per_s": max(each.tuples_per_s for each in made),
    }  # fmt: skip


def figure_7a(scale: Scale) -> Found:
    joined = sweep(scale, "scalejoin", windows_of(scale), workers_of(scale))
    return found_7a(measured(scale), 2 * max(column(joined, "tuples_per_s")))


def found_7a(rows: Sequence[Row], join_per_s: float) -> Found:
    """What the rows show, beside the highest rate of figure 5, both streams together."""
    own = [row for row in rows if row["gate"] == "skiplist"]
    sources, readers = sorted({row["sources"] for row in own}), sorted({row["readers"] for row in own})
    one_reader = {row["sources"]: row["tuples_per_s"] for row in own if row["readers"] == readers[0]}
    kept = min(
        max(column(own, "tuples_per_s", readers=readers[-1], sources=n)) / one_reader[n] for n in sources
    )  # fmt: skip
    several = [n for n in sources if n > 1]
    grows = one_reader[several[-1]] / one_reader[several[0]]
    least = min(column(own, "tuples_per_s"))
    claims = [
        Claim(
            "the rate rises with the sources", grows > 1.1,
            f"{grows:.2f} times from {several[0]} to {several[-1]} sources, one reader",
        ),
        Claim(
            "it does not fall with more readers (by a third, at most)", kept > 0.67,
            f"with {readers[-1]} readers {kept:.2f} of one reader's, where it is least",
        ),
        Claim(
            "it is far above what the join takes in (ten times, at least)", least > 10 * join_per_s,
            f"{least / 1e6:.0f} M t/s, the join {join_per_s / 1e6:.2g} M",
        ),
    ]  # fmt: skip
    panels = [
        Panel(
            "sources", "million tuples/s",
            curves([row for row in rows if row["gate"] == name], "{} readers", by="readers", x="sources", y="tuples_per_s",
                   unit=1e6), words,
        )
        for name, words in GATES.items()
    ]  # fmt: skip
    sentence = (
        f"A ScaleGate takes {one_reader[several[0]] / 1e6:.0f} M t/s of {several[0]} sources and "
        f"{one_reader[several[-1]] / 1e6:.0f} M of {several[-1]}, and {least / join_per_s:.0f} times what the join takes."
    )
    departs = (
        f"Tuples come in batches of {BATCH}. By processor time of the mean source and reader, since here they outnumber the "
        "cores; by the wall in the data. The ring, plait's own gate, sorts where it is read: its readers take longer with more "
        "sources."
    )
    return Found(sentence, rows, claims, panels, departs)
