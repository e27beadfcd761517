"""The aggregation paper's studies besides its twelve queries by inputs (`aggregate_queries`), a function each.

- `rates` (`plait bench aggregate-rates`): latency by the rate that is injected, design by design (its figures 9 and 11).
- `workers` (`aggregate-workers`): TuML-MC by its number of update threads, the six order-sensitive queries (its figures 28 to
  34).
- `batches` (`aggregate-batches`): how many tuples a source adds to its windows at once (WiML), or an update thread takes
  (TuML): `batch=`.

Each takes `quick` and what it varies, so that a report can ask for more or less than the command does. All runs are warm:
windows are full when measuring begins.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from plait_bench import aggregate_queries as paper
from plait_bench.aggregate_runs import Outcome
from plait_bench.machine import machine

ORDER_SENSITIVE = tuple(name for name in paper.QUERIES if name.endswith("OS"))
#: Of the slowest design's highest rate and of the fastest one's: from nearly idle to more than any can do.
STEPS = (0.1, 0.5, 0.9, 1.2)
PUSH_S = 0.01  # of tuples in a push, where a rate is injected
MOST = 1_500_000  # tuples of a run at a rate: what no design sustains need not last, and a gigabyte of comments would be made


def rates(
    quick: bool = False, *, names: Sequence[str] = ("K-OS", "K-OI"), inputs: int = 20, per_second: int | None = None,
    seconds: float | None = None, steps: Sequence[float] = STEPS, designs: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Latency by rate.

    Every design is first run flat out. Then rates are injected that are `steps` of the slowest one's and of the fastest one's
    highest rate, the same for all. A design that is more than a tenth of the time behind at the end does not sustain its rate
    (`sustained`); its latency is then what its room for waiting makes it.

    Args:
        quick: A look.
        names: Which of the twelve queries.
        inputs: Sources.
        per_second: Tuples a second of event time, which a window's size is counted in. None: 1,000.
        seconds: How long each rate is injected, or until `MOST` tuples are. None: 2.
        steps: Parts of the highest rates.
        designs: Which of them. Empty: all that serve the query.

    Returns:
        Rows by query, design and rate.
    """
    about, rows, ratios = machine(), [], {}
    density, span = per_second or (200 if quick else 1_000), seconds or (0.3 if quick else 2.0)
    paper.warm()
    for name in names:
        query = paper.QUERIES[name]
        # A first window fills, another is what flat out means.
        filling = 2 * query.size_s * density
        flat = {
            design: _run(query, design, inputs, density, filling, 4 * filling, None).tuples_per_s
            for design in designs or query.designs
        }
        low, high = min(flat.values()), max(flat.values())
        injected = sorted({round(step * most, -3) or 1_000.0 for step in steps for most in (low, high)})
        for rate in sorted({injected[0], injected[-1]}) if quick else injected:
            for design in flat:
                made = _run(query, design, inputs, density, filling, min(int(rate * span), MOST), rate)
                rows.append({
                    **paper.described(query), "inputs": inputs, "design": design, "rate": rate,
                    "push_p50_ms": made.push_ms.p50, "push_p99_ms": made.push_ms.p99, "ready_p50_ms": made.ready_ms.p50,
                    "late_p50_ms": made.late_p50_ms,
                    "sustained": made.late_s < 0.1 * made.seconds, "highest_rate": flat[design],
                })  # fmt: skip
        best = "tuml_sc" if name.endswith("OS") else "wiml"
        if best in flat and "mq" in flat:
            ratios[f"{best}_vs_mq_{name}_rate".replace("-", "_")] = flat[best] / flat["mq"]
    return {"bench": "aggregate-rates", "machine": about, "rows": rows, "ratios": ratios}


def _run(query: paper.PaperQuery, design: str, inputs: int, density: int, filling: int, tuples: int,
         rate: float | None) -> Outcome:  # fmt: skip
    """Two windows to fill, then so many tuples: at a rate, in pushes of a hundredth of a second; or flat out."""
    whole = paper.sources(query.data, inputs, filling + tuples, max((filling + tuples) // density, 1))
    piece = paper.PIECE if rate is None else max(int(rate * PUSH_S / inputs), 1)
    return paper.once(query, whole, design, piece=piece, warm=filling / (filling + tuples), rate=rate)


def workers(
    quick: bool = False, *, names: Sequence[str] = ORDER_SENSITIVE, inputs: Sequence[int] = (5, 20),
    numbers: Sequence[int] = (), tuples: int | None = None, times: int | None = None, windows: float = paper.WINDOWS,
    warm: float = paper.WARM, **said: Any,
) -> dict[str, Any]:  # fmt: skip
    """TuML-MC by update threads.

    Args:
        quick: A look.
        names: Which of the twelve queries; those that group by a column, which all do.
        inputs: Numbers of sources.
        numbers: Of update threads. Empty: 1, 2, 4 ... up to the cores, at least up to 4.
        tuples: In each stream. None: as the query has it.
        times: Runs of each, whose median counts. None: 3.
        windows: How many of them a stream is long.
        warm: Part of it that is not measured.
        **said: What `aggregate_queries.once` takes.

    Returns:
        Rows by query, inputs and threads, and of each query the rate with the most threads over that with one.
    """
    about, rows, ratios = machine(), [], {}
    crews = tuple(numbers) or tuple(n for n in (1, 2, 4, 8, 12) if n <= max(os.cpu_count() or 1, 4))
    tuples = tuples or (20_000 if quick else None)
    paper.warm()
    for count in inputs:
        for name in names:
            query = paper.QUERIES[name]
            data = paper.sources(query.data, count, tuples or query.tuples, int(windows * query.size_s))
            found: dict[int, list[Outcome]] = {crew: [] for crew in crews}
            first: pa.Table | None = None
            for _ in range(times or (1 if quick else 3)):
                for crew in crews:
                    made = paper.once(query, data, "tuml_mc", warm=warm, workers=crew, **said)
                    first = made.table if first is None else first
                    paper.agree(first, made.table, f"{name}, {count} inputs, {crew} threads", f"{crews[0]}")
                    found[crew].append(made)
            made_rows = [
                {**paper.described(query), "inputs": count, "threads": crew, **paper.summary(runs)}
                for crew, runs in found.items()
            ]
            rows += made_rows
            label = f"tuml_mc_{crews[-1]}_vs_{crews[0]}_{name}_{count}".replace("-", "_")
            ratios[label] = made_rows[-1]["tuples_per_s"] / made_rows[0]["tuples_per_s"]
    return {"bench": "aggregate-workers", "machine": about, "rows": rows, "ratios": ratios}


def batches(
    quick: bool = False, *, names: Sequence[str] = ("k-OI", "K-OI"), inputs: int = 5, sizes: Sequence[int] = (),
    tuples: int | None = None, times: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What `batch=` does, of pushes as large as the largest of them.

    Args:
        quick: A look.
        names: Which of the twelve queries.
        inputs: Sources.
        sizes: Values of `batch=`. Empty: 256 to 65,536.
        tuples: In each stream. None: as the query has it.
        times: Runs of each, whose median counts. None: 3.

    Returns:
        Rows by query, design and batch, and the processor time a tuple of small batches over that of the default.
    """
    about, rows, ratios = machine(), [], {}
    sizes = tuple(sizes) or ((256, 65_536) if quick else (256, 1_024, 4_096, 16_384, 65_536))
    paper.warm()
    for name in names:
        query = paper.QUERIES[name]
        number = tuples or (40_000 if quick else 2 * query.tuples)
        data = paper.sources(query.data, inputs, number, paper.WINDOWS * query.size_s)
        found: dict[tuple[str, int], list[Outcome]] = {(d, size): [] for d in ("wiml", "tuml_sc") for size in sizes}
        first: pa.Table | None = None
        for _ in range(times or (1 if quick else 3)):
            for (design, size), runs in found.items():
                made = paper.once(query, data, design, piece=max(sizes), batch=size)
                first = made.table if first is None else first
                paper.agree(first, made.table, f"{name}: {design}, batch={size}", "the first")
                runs.append(made)
        for (design, size), runs in found.items():
            rows.append(
                {**paper.described(query), "inputs": inputs, "design": design, "batch": size, **paper.summary(runs)}
            )
        spent = {key: statistics.median(f.input_ns + f.output_ns for f in runs) for key, runs in found.items()}
        for design in ("wiml", "tuml_sc"):
            ratios[f"{design}_batch_{sizes[0]}_cost_{name}".replace("-", "_")] = (
                spent[design, sizes[0]] / spent[design, sizes[-1]]
            )
    return {"bench": "aggregate-batches", "machine": about, "rows": rows, "ratios": ratios}
