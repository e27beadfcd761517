"""`plait bench elastic-operators`, operators of one's own: one that only forwards (STRETCH, figure 4b), and ScaleJoin in buckets
(its algorithm 4).

Forwarding has no work of its own: what is left is bringing two streams into one order, routing and giving out. The virtual
form is one run whose shares are served by n threads. The pure one is n engines: a tuple is pushed to the engine of its bucket
alone, by a thread for each stream, and what the engines give is merged by its keys.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.query.identical import KEY
from plait_bench.elastic_runs import in_threads, tables
from plait_bench.join_runs import Reader, pieces
from plait_bench.machine import machine

BUCKETS = 64
PIECE = 1024
NAMES = ("tweets", "retweets")
#: ScaleJoin in buckets: as many, and so many tuples of a stream in one of them at most.
SHARES, ROOM = 8, 4096
WITHIN_US = 200_000
BAND = 10.0
HEAD, FIELDS = (
    6,
    3,
)  # words of a state before its rings: tuples seen, its bucket, first and end of either ring; then ts, x, y of a tuple
SECOND_AT = HEAD + FIELDS * ROOM


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    rows = forwarding(quick) + scalejoin(quick)
    first, *_, last = (row for row in rows if "virtual tuples_per_s" in row)
    ratios = {
        "virtual_vs_pure_forwarding": last["virtual tuples_per_s"] / last["pure tuples_per_s"],
        "virtual_forwarding_most_threads_vs_one": last["virtual tuples_per_s"] / first["virtual tuples_per_s"],
        "pure_forwarding_most_threads_vs_one": last["pure tuples_per_s"] / first["pure tuples_per_s"],
        "scalejoin_operator_vs_join": rows[-1]["operator tuples_per_s"] / rows[-1]["join tuples_per_s"],
    }
    return {"bench": "elastic-operators", "machine": about, "rows": rows, "ratios": ratios}


# --- forwarding ---------------------------------------------------------------------------------------------------


def nothing() -> np.ndarray:
    return np.zeros(1)


def by_tag(t: Any) -> Any:
    return t.tag % 64


def forward(state: Any, t: Any) -> Any:
    yield (t.tag, t.length)


def forwarding_query() -> Any:
    streams = [plait.stream(name, unit="us") for name in NAMES]
    return plait.operator(streams, buckets=BUCKETS, route=by_tag, state=nothing, process=forward,
                          output={"tag": "int64", "length": "int64"})  # fmt: skip


def tweets(rows: int, seed: int = 5) -> dict[str, pa.Table]:
    """Two streams of numbers as tweets have them: a hashtag, popular as Zipf has it, and a length."""
    dice = np.random.default_rng(seed)
    return {
        name: pa.table({
            "ts": np.cumsum(dice.integers(1, 2_000, rows)), "tag": dice.zipf(1.5, rows) % 10_000,
            "length": dice.integers(1, 281, rows),
        })
        for name in NAMES
    }  # fmt: skip


def virtual(data: dict[str, pa.Table], threads: int, **options: Any) -> tuple[float, pa.Table, Any]:
    """Seconds, results and what the run tells: one run, pushed by a thread for each stream."""
    made = forwarding_query()
    with made.on_threads(
        schemas={name: t.schema for name, t in data.items()}, workers=threads, pending=1 << 16, **options
    ) as run:
        reader = Reader(run)
        begin = time.perf_counter()
        in_threads([partial(_push, [(run, table)], name) for name, table in data.items()])
        found = reader.join()
        return time.perf_counter() - begin, found, run.stats()


def pure(data: dict[str, pa.Table], threads: int) -> tuple[float, pa.Table, Any]:
    """As `virtual`, with an engine for every thread, which is given its own tuples alone; what the last engine tells."""
    made, schemas = forwarding_query(), {name: t.schema for name, t in data.items()}
    runs = [made.on_threads(schemas=schemas, workers=1, keys=True, pending=1 << 16) for _ in range(threads)]
    try:
        readers = [Reader(run) for run in runs]
        begin = time.perf_counter()
        parts = {
            name: [
                table.filter(pa.array(np.asarray(table.column("tag")) % BUCKETS % threads == k)) for k in range(threads)
            ]
            for name, table in data.items()
        }
        in_threads([partial(_push, list(zip(runs, parts[name], strict=True)), name) for name in data])
        whole = pa.concat_tables([reader.join() for reader in readers]).sort_by(KEY)
        return time.perf_counter() - begin, whole.drop_columns([KEY]), runs[-1].stats()
    finally:
        for run in runs:
            run.stop()


def _push(to: list[tuple[Any, pa.Table]], name: str) -> None:
    """One stream, by turns to every run what is its own."""
    batches = [[batch for _, batch in pieces({name: table}, PIECE)] for _, table in to]
    for k in range(max(map(len, batches))):
        for (run, _), own in zip(to, batches, strict=True):
            if k < len(own):
                run.push(name, None, own[k])
    for run, _ in to:
        run.close(name)


def forwarding(
    quick: bool = False, *, threads: tuple[int, ...] = (1, 2, 4), rows: int | None = None
) -> list[dict[str, Any]]:
    """Figure 4b: tuples a second, latency and all threads' processor time a tuple of an operator that only forwards, virtual and
    pure, by threads."""
    data, times = tweets(rows or (5_000 if quick else 100_000)), 1 if quick else 3
    small, tuples = {name: table.slice(0, 500) for name, table in data.items()}, sum(t.num_rows for t in data.values())
    found = []
    for n in threads:
        rivals = {"virtual": partial(virtual, threads=n, elastic=max(n, 2)), "pure": partial(pure, threads=n)}
        runs: dict[str, list[Any]] = {name: [] for name in rivals}
        spent: dict[str, list[float]] = {name: [] for name in rivals}
        for rival in rivals.values():
            rival(small)
        for _ in range(times):
            for name, rival in rivals.items():
                begin = time.process_time()
                runs[name].append(rival(data))
                spent[name].append(time.process_time() - begin)
        row: dict[str, Any] = {"case": "an operator that only forwards, two streams (figure 4b)", "threads": n}
        for name, made in runs.items():
            row[f"{name} tuples_per_s"] = tuples / statistics.median(seconds for seconds, _, _ in made)
            row[f"{name} push_p50_ms"] = statistics.median(stats.latency_from_push_ms.p50 for *_, stats in made)
            row[f"{name} cpu_us"] = 1e6 * statistics.median(spent[name]) / tuples
        row["same results"] = runs["virtual"][0][1] == runs["pure"][0][1]
        found.append(row)
    return found


# --- ScaleJoin in buckets -------------------------------------------------------------------------------------------


def bucket(number: int) -> np.ndarray:
    made = np.zeros(HEAD + 2 * FIELDS * ROOM)
    made[1] = number
    return made


def everywhere(t: Any) -> Any:
    return plait.ALL


def compare(state: Any, t: Any) -> Any:
    """Purge and compare with the other stream's part of the window; one bucket, by turns, keeps the tuple."""
    state[0] += 1.0
    other, other_at, own, own_at = 2, HEAD, 4, SECOND_AT
    if t.stream == "stream_r":
        other, other_at, own, own_at = 4, SECOND_AT, 2, HEAD
    first = int(state[other])
    end = int(state[other + 1])
    while first < end and state[other_at + FIELDS * (first % ROOM)] < t.ts - WITHIN_US:
        first += 1
    state[other] = float(first)
    for k in range(first, end):
        at = other_at + FIELDS * (k % ROOM)
        if abs(t.x - state[at + 1]) <= BAND and abs(t.y - state[at + 2]) <= BAND:
            if t.stream == "stream_r":
                yield (t.ts, int(state[at]))
            else:
                yield (int(state[at]), t.ts)
    if int(state[0]) % SHARES == int(state[1]):
        kept = own_at + FIELDS * (int(state[own + 1]) % ROOM)
        state[kept] = float(t.ts)
        state[kept + 1] = float(t.x)
        state[kept + 2] = float(t.y)
        state[own + 1] += 1.0


def scalejoin_query() -> Any:
    streams = [plait.stream(name, unit="us") for name in ("stream_r", "stream_s")]
    return plait.operator(streams, buckets=SHARES, route=everywhere, state=bucket, process=compare,
                          output={"r_ts": "int64", "s_ts": "int64"})  # fmt: skip


def scalejoin(
    quick: bool = False, *, threads: tuple[int, ...] = (1, 2), rows: int | None = None
) -> list[dict[str, Any]]:
    """The same join as an operator of one's own and as `plait.join`, which scans: tuples a second, and the same pairs."""
    data = {
        name: table.rename_columns(["ts", "x", "y"])
        for name, table in tables(rows or (500 if quick else 20_000)).items()
    }
    streams = [plait.stream(name, unit="us") for name in data]
    joined = plait.join(*streams, on=lambda r, s: (abs(r.x - s.x) <= BAND) & (abs(r.y - s.y) <= BAND), within=WITHIN_US)
    found = []
    for n in threads:
        row: dict[str, Any] = {"case": "ScaleJoin in buckets (algorithm 4), and plait.join", "threads": n}
        pairs = {}
        for label, made, options in (
            ("operator", scalejoin_query(), {"elastic": SHARES}), ("join", joined, {"strategy": "scalejoin", "index": "scan"})
        ):  # fmt: skip
            seconds = []
            for rows_now in (50, None):
                part = {name: table.slice(0, rows_now) for name, table in data.items()}
                with made.on_threads(schemas={k: t.schema for k, t in part.items()}, workers=n, **options) as run:
                    reader = Reader(run)
                    begin = time.perf_counter()
                    for name, batch in pieces(part, PIECE):
                        run.push(name, None, batch)
                    run.drain()
                    table = reader.join()
                    seconds.append(time.perf_counter() - begin)
                    row[f"{label}, how"] = "machine code" if label == "join" else _how(run)
            columns = ("r_ts", "s_ts") if label == "operator" else _times(table)
            pairs[label] = sorted(zip(*(table.column(c).to_pylist() for c in columns), strict=True))
            row[f"{label} tuples_per_s"] = sum(t.num_rows for t in data.values()) / seconds[-1]
        row["pairs"], row["same pairs"] = len(pairs["join"]), pairs["join"] == pairs["operator"]
        found.append(row)
    return found


def _how(run: Any) -> str:
    return "plain Python" if "plain Python" in str(run.explain()) else "machine code"


def _times(table: pa.Table) -> tuple[str, str]:
    """The columns that hold the ts of a pair's two tuples."""
    left, right = (name for name in table.schema.names[1:] if name.endswith("ts"))
    return left, right
