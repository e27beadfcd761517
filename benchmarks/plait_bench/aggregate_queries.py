"""`plait bench aggregate-queries`: the twelve queries of multiway-aggregation.txt (table 2), 5 and 20 inputs, by design.

Small and capital letters: k, K the number of keys (243 meters, 40,000 songs), w, W the windows a tuple is in (10, 20), f, F
the function's cost (a comment that holds a mail address; a mail or an IP address); OS is order-sensitive, OI not. The paper's
readings and comments are not public: these are `plait.connectors.synthetic`'s, with its schemas, keys and shares, at 50,000
tuples a second of event time, about what its designs are given. Its figures 8 and 10 are the columns `input_ns` and `output_ns`:
processor time a tuple of the threads that push and of those that update and give out.

Every design must give the same rows, in the same order, to the byte. Needs NumPy, Numba and PyArrow only.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache
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

INPUTS = (5, 20)
RATE = 50_000
PIECE = 4096
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
        return (*multi_queues.NAMES, "tuml_sc", *(("wiml",) if self.name.endswith("OI") else ("tuml_mc",)))

    def query(self, inputs: int) -> plait.Query:
        time_type = {"unit": "us"}
        stream = plait.stream(self.data, sources=inputs, **time_type)
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
def sources(data: str, inputs: int, tuples: int) -> list[pa.RecordBatch]:
    """What each input delivers."""
    # A shorter stream is a slower one: it spans as many windows. A longer one is not faster.
    rate, seconds = min(RATE * tuples // MANY or 1_000, RATE), max(20 * tuples // MANY, 20)
    if data == EC:
        made = energy(readings_per_second=rate, alarms_per_second=1, concentrators=inputs, seconds=seconds).feeds[EC]
    else:
        made = songs(per_second=rate, sources=inputs, seconds=seconds).feeds[SC]
    whole = [
        pa.Table.from_batches([c.batch for c in lane.read()]).combine_chunks().to_batches()[0] for lane in made.lanes
    ]
    return [batch.select(batch.schema.names[:-1]) for batch in whole]  # the last column names the source


#: Designs that are no strategy's name: TuML on the paper's own gate, into which the threads that push sort. The product's ring
#: lets the output thread merge.
T_GATE = {"tuml_sc, T-Gate": {"strategy": "tuml_sc", "gate": "skiplist"}}


def options_of(design: str) -> dict[str, Any]:
    return T_GATE.get(design, {"strategy": design})


def timed(query: PaperQuery, inputs: int, design: str, times: int, tuples: int) -> tuple[Outcome, list[Outcome]]:
    data = sources(query.data, inputs, tuples)
    found = [on_threads(query.query(inputs), data, piece=PIECE, **options_of(design)) for _ in range(times)]
    return sorted(found, key=lambda f: f.seconds)[len(found) // 2], found


def case(
    name: str, inputs: int, *, times: int, tuples: int | None = None, designs: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """One query at one number of inputs, design by design."""
    query = QUERIES[name]
    number = tuples or query.tuples
    rows: list[dict[str, Any]] = []
    first: pa.Table | None = None
    for design in designs or query.designs:
        middle, found = timed(query, inputs, design, times, number)
        first = middle.table if first is None else first
        for each in found:
            said = difference(first, each.table)
            if said is not None:
                raise RunError(
                    f"{name}, {inputs} inputs: {design} disagrees with {query.designs[0]}: {said}", do="Report this"
                )
        rows.append({
            "case": f"{name}: {query.function.describe()}, {query.size_s} s every {query.advance_s} s",
            "inputs": inputs,
            "design": design,
            "tuples": middle.tuples,
            "results": middle.table.num_rows,
            "seconds": middle.seconds,
            "tuples_per_s": middle.tuples_per_s,
            "input_ns": statistics.median(f.input_ns for f in found),
            "output_ns": statistics.median(f.output_ns for f in found),
        })  # fmt: skip
    return rows


def ratio(rows: list[dict[str, Any]], name: str, inputs: int, design: str) -> float:
    """A design's tuples/s over those of MQ."""
    rates = {r["design"]: r["tuples_per_s"] for r in rows if r["case"].startswith(f"{name}:") and r["inputs"] == inputs}
    return float(rates[design] / rates["mq"])


def shift(rows: list[dict[str, Any]], name: str, inputs: int) -> dict[str, float]:
    """What T-Gate moves under TuML: processor time of input and of output threads, over those on the ring."""
    own = {r["design"]: r for r in rows if r["case"].startswith(f"{name}:") and r["inputs"] == inputs}
    (t_gate,) = T_GATE
    return {stage: float(own[t_gate][f"{stage}_ns"] / own["tuml_sc"][f"{stage}_ns"]) for stage in ("input", "output")}


def warm() -> None:
    """Compile, or load, everything once."""
    for name in ("k-OS", "K-OI"):
        for design in QUERIES[name].designs:
            timed(QUERIES[name], 2, design, 1, 20_000)


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    warm()
    rows: list[dict[str, Any]] = []
    for inputs in INPUTS:
        for name in QUERIES:
            rows += case(name, inputs, times=1 if quick else 3, tuples=20_000 if quick else None)
    ratios = {
        f"{design}_vs_mq_{name}_{inputs}".replace("-", "_"): ratio(rows, name, inputs, design)
        for inputs in INPUTS
        for name in QUERIES
        for design in (("wiml",) if name.endswith("OI") else ("tuml_sc",))
    }
    return {"bench": "aggregate-queries", "machine": about, "rows": rows, "ratios": ratios}
