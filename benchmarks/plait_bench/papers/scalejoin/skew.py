"""Figures 8a to 8c: comparisons of each thread, second by second, while many sources change their rates.

Balance is a count. A second's tuples are pushed, every source promises that the second is over, and when each thread has
compared them all its comparisons are read: so the figures are exact, whatever the machine does meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors import synthetic
from plait.connectors.synthetic.workload import Workload, tables
from plait.core.metrics import variation_percent
from plait.errors import RunError
from plait_bench.band import query
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale
from plait_bench.papers.sustained import BATCH, Taker

Make = Callable[..., Workload]

#: The paper's windows are 5 minutes, and so is what its figures show.
PAPER_S = 300
SECOND_US = 1_000_000


def seconds_of(make: Make, workers: int, window_s: int, shown_s: int) -> list[Row]:
    """A row for each second after the windows are full."""
    work = make(seconds=window_s + shown_s)
    rows: list[Row] = []
    whole = tables(work)
    begin_us = min(_times_us(table)[0] for table in whole.values()) // SECOND_US * SECOND_US
    given = {name: _by_second(table, begin_us, window_s + shown_s) for name, table in whole.items()}
    schemas = {name: table.schema for name, table in whole.items()}
    options: dict[str, Any] = {"strategy": "scalejoin", "workers": workers, "index": "scan", "batch": BATCH}
    with query(window_s, workload=work).on_threads(schemas=schemas, **options) as run:
        reader, pushed, before = Taker(run), 0, [0] * workers
        for second in range(window_s + shown_s):
            rates = {}
            for name, parts in given.items():
                run.push(name, None, parts[second])
                pushed, rates[name] = pushed + parts[second].num_rows, parts[second].num_rows
                for source in work.declarations[name].get("sources", (None,)):
                    run.heartbeat(name, source, _stamp(whole[name], begin_us + (second + 1) * SECOND_US))
            if second < window_s - 1:
                continue
            now = _compared(run, pushed)
            counts = [b - a for a, b in zip(before, now, strict=True)]
            before = now
            if second >= window_s:
                rows.append({
                    "second": second - window_s, "workers": workers, "left_tuples": rates["stream_r"],
                    "right_tuples": rates["stream_s"], "comparisons_a_worker": sum(counts) / workers,
                    "balance_cv_percent": variation_percent(counts), "window_s": window_s,
                })  # fmt: skip
        reader.stop()
    return rows


def _times_us(table: pa.Table) -> np.ndarray:
    return pc.cast(table.column("ts"), pa.int64()).to_numpy()  # type: ignore[no-any-return]


def _stamp(table: pa.Table, at_us: int) -> Any:
    return pa.scalar(at_us).cast(table.schema.field("ts").type).as_py()


def _by_second(table: pa.Table, begin_us: int, seconds: int) -> list[pa.Table]:
    edges = np.searchsorted(_times_us(table), begin_us + np.arange(seconds + 1) * SECOND_US)
    return [table.slice(low, high - low) for low, high in pairwise(edges)]


def _compared(run: Any, pushed: int, limit_s: float = 120.0) -> list[int]:
    """Each worker's comparisons, once all have compared everything that was pushed."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        workers = run.stats().workers
        if all(worker.tuples == pushed for worker in workers):
            # Asked again: what a batch compared may be written between the two numbers of one answer.
            return [worker.comparisons for worker in run.stats().workers]
        time.sleep(0.002)
    raise RunError(f"Workers have compared {[w.tuples for w in workers]} of {pushed} tuples after {limit_s:.0f} s")


@cache
def _measured(scale: Scale, case: str) -> list[Row]:
    make, workers = CASES[case]
    window_s, shown_s = scale.pick((5, 30), (PAPER_S, PAPER_S))
    return seconds_of(make, workers, window_s, shown_s)


def figure_8(case: str, scale: Scale) -> Found:
    return found_8(case, _measured(scale, case))


def found_8(case: str, rows: Sequence[Row]) -> Found:
    """What the rows of one case show."""
    second = [row["second"] for row in rows]
    work = [row["comparisons_a_worker"] / 1e6 for row in rows]
    balance = [row["balance_cv_percent"] for row in rows]
    rates = {name: [row[f"{name}_tuples"] for row in rows] for name in ("left", "right")}
    workers, window_s = rows[0]["workers"], rows[0]["window_s"]
    claims = [
        Claim(
            "in every second the threads' comparisons differ by at most 0.1 %", max(balance) <= 0.1,
            f"{max(balance):.3g} % in the worst second, {sorted(balance)[len(balance) // 2]:.3g} % in the median one",
        ),
        _of_load(case, work, rates, window_s),
    ]  # fmt: skip
    published = {
        "constant": [Line("every thread", [second[0], second[-1]], [65, 65], published=True)],
        "fluctuating": [
            Line("lowest", [second[0], second[-1]], [18.5, 18.5], published=True),
            Line("highest", [second[0], second[-1]], [55, 55], published=True),
        ],
    }.get(case, [])
    panels = [
        Panel("second", "tuples/s", [Line("R", second, rates["left"]), Line("S", second, rates["right"])], "input"),
        Panel(
            "second", "million comparisons/s a thread",
            [Line("mean", second, work), *(published if window_s == PAPER_S else [])], f"{workers} threads",
        ),
        Panel("second", "standard deviation, %", [Line("threads' comparisons", second, balance)], "balance"),
    ]  # fmt: skip
    sentence = (
        f"{workers} threads make {min(work):.3g} to {max(work):.3g} million comparisons each in a second, and differ by at most "
        f"{max(balance):.2g} %."
    )
    departs = "A second is one of event time: its tuples are pushed as fast as they are taken."
    if window_s != PAPER_S:
        departs += f" Windows are {window_s} s, the paper's 5 minutes: so there are fewer comparisons."
    return Found(sentence, rows, claims, panels, departs)


def _of_load(case: str, work: Sequence[float], rates: dict[str, list[int]], window_s: int) -> Claim:
    """How the load goes: with constant rates it stays, with others it follows them."""
    span, shown = max(work) / max(min(work), 1e-9), f"{min(work):.3g} to {max(work):.3g} million c/s a thread"
    if case == "constant":
        return Claim("constant rates are a constant load", min(work) > 0 and span < 1.1, shown)
    total = np.add(rates["left"], rates["right"])
    follows = float(np.corrcoef(total, work)[0, 1])
    return Claim(
        "the load follows the rates", bool(follows > 0.5 and span > 1.2), f"{shown}; correlation {follows:.2f}"
    )


CASES: dict[str, tuple[Make, int]] = {
    "constant": (synthetic.scalejoin_constant, 10),
    "fluctuating": (synthetic.scalejoin_fluctuating, 12),
    "peaks": (synthetic.scalejoin_peaks, 14),
}
figure_8a, figure_8b, figure_8c = (partial(figure_8, case) for case in CASES)
