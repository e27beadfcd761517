"""What the aggregation paper's figures are measured by: three sweeps that many figures share, each measured once a size.

By inputs, the twelve queries and the designs that the paper compares on each; TuML-MC by update threads; and latency by rate.
Streams are two and a half windows long and are measured over their second half, when windows are full. All streams of a
data set have one number of tuples a second of event time, so that queries differ in what their letters say and in nothing
else. A push has one number of rows whatever the number of inputs. Rounds of all contenders take turns.

Rates and latencies are medians. Processor times are the least of the rounds: other load on a machine only adds to them. They
decide the claims that are about who works how long, since on few cores rates are about all the work together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from plait.models.aggregation import Durations
from plait_bench import aggregate_queries as paper
from plait_bench import aggregate_studies as studies
from plait_bench import multi_queues
from plait_bench.papers.study import Line, Row, Scale

WINDOWS, FILLED = 2.5, 0.5
#: Tuples a second of event time, by size; fewer where regular expressions read them.
PER_SECOND = {"readings": (2_000, 8_000), "songs": (600, 8_000), "text": (400, 3_000)}
RATED = (100, 1_000)  # the same where rates are injected, for so long:
SPAN_S = (0.3, 1.0)
T_GATE, RING, WIML, MQ, MQ_LF = "tuml_sc, T-Gate", "tuml_sc", "wiml", *multi_queues.NAMES
#: As figures name them.
NAMES = {MQ: "MQ", MQ_LF: "MQ_LF", T_GATE: "TuML-SC on T-Gate", RING: "TuML-SC on the ring", WIML: "WiML"}
SIX = studies.ORDER_SENSITIVE


def designs(name: str) -> tuple[str, ...]:
    """What the paper compares on a query; TuML on either gate."""
    return (MQ, MQ_LF, T_GATE, RING) if name.endswith("OS") else (MQ, MQ_LF, WIML)


def improved(name: str) -> tuple[str, ...]:
    """The paper's own designs among them."""
    return designs(name)[2:]


def tuples(scale: Scale, name: str) -> int:
    """Of a query's stream, by its data's tuples a second of event time."""
    kind = "readings" if on_readings(name) else "text" if name[0] in "fF" else "songs"
    return int(scale.pick(*PER_SECOND[kind]) * WINDOWS * paper.QUERIES[name].size_s)


def on_readings(name: str) -> bool:
    """Whether a query reads meters. Where songs are keys, results are most of what a short run does: it decides less."""
    return paper.QUERIES[name].data == paper.EC


def shared(measure: Callable[[Scale, str], tuple[Row, ...]]) -> Callable[[Scale, str], tuple[Row, ...]]:
    """Measured once for all figures. Where one had to measure again, later ones have those rows: the first were doubtful."""
    kept: dict[tuple[Scale, str], tuple[Row, ...]] = {}

    @wraps(measure)
    def rows(scale: Scale, name: str) -> tuple[Row, ...]:
        again = replace(scale, attempt=1)
        at = (again if (again, name) in kept else scale, name)
        if at not in kept:
            kept[at] = measure(*at)
        return kept[at]

    return rows


@shared
def by_inputs(scale: Scale, name: str) -> tuple[Row, ...]:
    """A query's rows by number of inputs and design: figures 8, 10 and 13 to 27."""
    paper.warm()
    rows: list[dict[str, Any]] = []
    for inputs in scale.pick((5, 20), paper.INPUTS):
        rows += paper.case(
            name, inputs, times=scale.pick(2 if on_readings(name) else 1, 3, 2), tuples=tuples(scale, name),
            designs=designs(name), windows=WINDOWS, warm=FILLED, piece=scale.pick(512, 1024), pieces=5,
        )  # fmt: skip
    return tuple({"query": name, **row} for row in rows)


@shared
def by_threads(scale: Scale, name: str) -> tuple[Row, ...]:
    """TuML-MC's rows by gate, inputs and number of update threads: figures 28 to 34."""
    numbers = scale.pick((1, 2), (1, 2, 4), tuple(n for n in (1, 2, 4, 8, 12) if n <= max(scale.cores, 4)))
    rows: list[Row] = []
    for gate in scale.pick(("skiplist",), ("skiplist", "ring")):
        made = studies.workers(
            names=(name,), inputs=(5, 20), numbers=numbers, tuples=tuples(scale, name), times=scale.pick(1, 3, 2),
            windows=WINDOWS, warm=FILLED, piece=scale.pick(512, 1024), pieces=5, gate=gate,
        )  # fmt: skip
        rows += [{"query": name, "gate": gate, **row} for row in made["rows"]]
    return tuple(rows)


@shared
def by_rate(scale: Scale, name: str) -> tuple[Row, ...]:
    """Latency by the rate that is injected at 20 inputs: figures 9, 11 and 12."""
    made = studies.rates(
        scale.size == "quick", names=(name,), per_second=scale.pick(*RATED), seconds=scale.pick(*SPAN_S),
        steps=scale.pick((0.1, 2.0), (0.1, 0.5, 0.9, 2.0)), designs=designs(name),
    )  # fmt: skip
    return tuple({"query": name, **row} for row in made["rows"])


def of(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def value(rows: Iterable[Row], column: str, **wanted: Any) -> float:
    """One row's value."""
    (row,) = of(rows, **wanted)
    return float(row[column])


def ends(rows: Sequence[Row], column: str = "inputs") -> tuple[int, int]:
    """The least and the largest of what was varied."""
    numbers = [row[column] for row in rows]
    return min(numbers), max(numbers)


def lines(rows: Sequence[Row], x: str, y: str, by: str, names: Mapping[Any, str]) -> list[Line]:
    """A curve for each value of a column."""
    return [
        Line(names[each], [row[x] for row in own], [row[y] for row in own])
        for each in dict.fromkeys(row[by] for row in rows)
        if (own := [row for row in of(rows, **{by: each}) if row.get(y) is not None])
    ]


def let_through(row: Row) -> float:
    """Tuples a second that a design's threads could do with a core each, by their processor times: section 7.3's own rule."""
    spent = Durations(input_s=row["input_ns"] / 1e9, output_s=row["output_ns"] / 1e9)
    return spent.tuples_per_s(row["inputs"])


def gain(rows: Sequence[Row], design: str, inputs: int) -> float:
    """How many times what MQ's threads let through this design's do."""
    mine, theirs = (of(rows, design=each, inputs=inputs)[0] for each in (design, MQ))
    return let_through(mine) / let_through(theirs)


def millions(per_s: float) -> str:
    return f"{per_s / 1e6:.2f}M"
