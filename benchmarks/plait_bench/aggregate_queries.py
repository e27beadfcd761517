"""`plait bench aggregate-queries`: the twelve queries of multiway-aggregation.txt (table 2), 5 to 20 inputs, by design.

Small and capital letters: k, K the number of keys (243 meters, 40,000 songs), w, W the windows a tuple is in (10, 20), f, F
the function's cost (a comment that holds a mail address; a mail or an IP address); OS is order-sensitive, OI not. The paper's
readings and comments are not public: these are `plait.connectors.synthetic`'s, with its schemas, keys and shares. A stream is
ten windows long, whatever the number of its tuples; what is measured begins after two of them, when windows are full and
everything is compiled. Rates and latencies are of runs flat out: the highest rate, and the latency from the push at it, with
as much waiting as there is room for. The paper's figures 8 and 10 are the columns `input_ns` and `output_ns`: processor time
a tuple of the threads that push and of those that update and give out. `tuml_sc, T-Gate` is TuML on the paper's own
structure, where pushing threads merge; `tuml_sc` is on the ring, where the update thread does.

Every design must give the same rows, in the same order, to the byte. Needs NumPy, Numba and PyArrow only.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa

import plait
from plait.connectors.synthetic import energy, songs
from plait.errors import RunError
from plait.query.functions import Function
from plait.query.identical import difference
from plait_bench import multi_queues
from plait_bench.aggregate_runs import Outcome, on_threads
from plait_bench.machine import machine

INPUTS = (5, 10, 15, 20)
WINDOWS = 10  # a stream's length
WARM = 0.2  # of a stream, which is not measured: two windows
PIECE, PIECES = 2048, 20  # rows a push; and fewer, where a stream would not have so many pushes an input
#: What `on_threads` is told of a design; the others are told their own name.
OPTIONS: dict[str, dict[str, Any]] = {"tuml_sc, T-Gate": {"strategy": "tuml_sc", "gate": "skiplist"}}
MAIL = plait.text("cmt").matches(r"[\w.]+@[\w.]+\.\w+")
MAIL_OR_IP = MAIL | plait.text("cmt").matches(r"\b\d{1,3}(\.\d{1,3}){3}\b")


@dataclass(frozen=True)
class PaperQuery:
    """A row of table 2; sizes in seconds."""

    name: str
    data: str
    size_s: int
    advance_s: int
    function: Function
    tuples: int

    @property
    def designs(self) -> tuple[str, ...]:
        return (*multi_queues.NAMES, *OPTIONS, "tuml_sc", *(("wiml",) if self.name.endswith("OI") else ("tuml_mc",)))

    def query(self, inputs: int) -> plait.Query:
        stream = plait.stream(self.data, sources=inputs, unit="us")
        key = "meter" if self.data == "readings" else "song"
        return plait.aggregate(stream, size=f"{self.size_s}s", advance=f"{self.advance_s}s", by=key,
                               compute={"out": self.function})  # fmt: skip


EC, SC = "readings", "comments"
MANY, FEW = 1_000_000, 200_000  # regular expressions take about a microsecond a tuple: fewer of them
QUERIES = {
    q.name: q
    for q in (
        PaperQuery("k-OS", EC, 30, 3, plait.first("cons"), MANY),
        PaperQuery("K-OS", SC, 30, 3, plait.first("cmt"), MANY),
        PaperQuery("w-OS", EC, 20, 2, plait.first("cons"), MANY),
        PaperQuery("W-OS", EC, 40, 2, plait.first("cons"), MANY),
        PaperQuery("f-OS", SC, 20, 2, plait.first_where("cmt", MAIL), FEW),
        PaperQuery("F-OS", SC, 20, 2, plait.first_where("cmt", MAIL_OR_IP), FEW),
        PaperQuery("k-OI", EC, 30, 3, plait.count(), MANY),
        PaperQuery("K-OI", SC, 30, 3, plait.count(), MANY),
        PaperQuery("w-OI", EC, 20, 2, plait.mean("cons"), MANY),
        PaperQuery("W-OI", EC, 40, 2, plait.mean("cons"), MANY),
        PaperQuery("f-OI", SC, 20, 2, plait.count_where(MAIL), FEW),
        PaperQuery("F-OI", SC, 20, 2, plait.count_where(MAIL_OR_IP), FEW),
    )
}


@lru_cache(maxsize=3)
def sources(data: str, inputs: int, tuples: int, seconds: int) -> list[pa.RecordBatch]:
    """What each input delivers: so many tuples together, over so many seconds of event time."""
    rate = tuples / seconds
    if data == EC:
        made = energy(readings_per_second=rate, alarms_per_second=1, concentrators=inputs, seconds=seconds).feeds[EC]
    else:
        made = songs(per_second=rate, sources=inputs, seconds=seconds).feeds[SC]
    whole = [
        pa.Table.from_batches([c.batch for c in lane.read()]).combine_chunks().to_batches()[0] for lane in made.lanes
    ]
    return [batch.select(batch.schema.names[:-1]) for batch in whole]  # the last column names the source


def once(query: PaperQuery, data: list[pa.RecordBatch], design: str, *, piece: int = PIECE, pieces: int = PIECES,
         **said: Any) -> Outcome:  # fmt: skip
    """One run of a design over these inputs: `piece` rows a push, fewer where an input would not have that many `pieces`."""
    options = OPTIONS.get(design, {"strategy": design})
    piece = min(piece, max(max(source.num_rows for source in data) // pieces, 1))
    return on_threads(query.query(len(data)), data, piece=piece, **options, **said)


def case(
    name: str, inputs: int, *, times: int, tuples: int | None = None, designs: tuple[str, ...] = (),
    windows: float = WINDOWS, warm: float = WARM, **said: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """One query at one number of inputs, design by design; they take turns. A stream is so many `windows` long.

    Every design first runs once to be compared with the others, row by row. In the runs that are measured results are read and
    dropped.
    """
    query = QUERIES[name]
    designs = designs or query.designs
    data = sources(query.data, inputs, tuples or query.tuples, int(windows * query.size_s))
    found: dict[str, list[Outcome]] = {design: [] for design in designs}
    first: pa.Table | None = None
    for design in designs:
        made = once(query, data, design, warm=warm, **said).table
        first = made if first is None else first
        agree(first, made, f"{name}, {inputs} inputs: {design}", designs[0])
    del made
    for _ in range(times):
        for design in designs:
            found[design].append(once(query, data, design, warm=warm, keep=False, **said))
    return [{**described(query), "inputs": inputs, "design": design, **summary(runs)} for design, runs in found.items()]


def agree(first: pa.Table, other: pa.Table, who: str, whom: str) -> None:
    if (said := difference(first, other)) is not None:
        raise RunError(f"{who} disagrees with {whom}: {said}", do="Report this")


def described(query: PaperQuery) -> dict[str, Any]:
    return {"case": f"{query.name}: {query.function.describe()}, {query.size_s} s every {query.advance_s} s"}


def summary(found: list[Outcome]) -> dict[str, Any]:
    """Of several runs: medians, and the least processor times, since other load on a machine only adds to them."""
    seconds = statistics.median(f.seconds for f in found)
    return {
        "tuples": found[0].tuples,
        "results": found[0].results,
        "seconds": seconds,
        "tuples_per_s": found[0].tuples / seconds,
        "input_ns": min(f.input_ns for f in found),
        "output_ns": min(f.output_ns for f in found),
        "updater_ns": min(f.updater_ns for f in found),
        "reader_ns": min(f.reader_ns for f in found),
        "push_p50_ms": statistics.median(f.push_ms.p50 for f in found),
        "push_p99_ms": statistics.median(f.push_ms.p99 for f in found),
    }


def ratio(rows: list[dict[str, Any]], name: str, inputs: int, design: str) -> float:
    """A design's tuples/s over those of MQ."""
    rates = {r["design"]: r["tuples_per_s"] for r in rows if r["case"].startswith(f"{name}:") and r["inputs"] == inputs}
    return float(rates[design] / rates["mq"])


def shift(rows: list[dict[str, Any]], name: str, inputs: int) -> dict[str, float]:
    """What T-Gate moves under TuML: processor time of input and of output threads, over those on the ring."""
    own = {r["design"]: r for r in rows if r["case"].startswith(f"{name}:") and r["inputs"] == inputs}
    (t_gate,) = OPTIONS
    return {stage: float(own[t_gate][f"{stage}_ns"] / own["tuml_sc"][f"{stage}_ns"]) for stage in ("input", "output")}


@cache
def warm() -> None:
    """Compile, or load, everything: once a process."""
    for name in ("k-OS", "K-OI"):
        case(name, 2, times=1, tuples=20_000)


def run(
    quick: bool = False, *, names: Sequence[str] = tuple(QUERIES), inputs: Sequence[int] = (), tuples: int | None = None,
    times: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Every query at every number of inputs: the paper's figures 13 to 27, and 8 and 10.

    Args:
        quick: A look: 5 and 20 inputs, few tuples, once.
        names: Which of the twelve.
        inputs: Numbers of inputs. Empty: 5, 10, 15 and 20.
        tuples: In each stream. None: a million, or 200,000 where a regular expression reads them.
        times: Runs of each, whose median counts. None: 3.

    Returns:
        Rows, and each design's rate over that of MQ.
    """
    about = machine()
    warm()
    rows: list[dict[str, Any]] = []
    counts = tuple(inputs) or ((5, 20) if quick else INPUTS)
    for number in counts:
        for name in names:
            rows += case(name, number, times=times or (1 if quick else 3), tuples=tuples or (20_000 if quick else None))
    ratios = {
        f"{design}_vs_mq_{name}_{number}".replace("-", "_"): ratio(rows, name, number, design)
        for number in counts
        for name in names
        for design in (("wiml",) if name.endswith("OI") else ("tuml_sc",))
    }
    return {"bench": "aggregate-queries", "machine": about, "rows": rows, "ratios": ratios}
