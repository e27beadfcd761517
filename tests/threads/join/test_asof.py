"""As-of on threads: left tuples that wait, rows that other workers' results still name, memory that grows and stays small."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same

import plait

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")


def tables(rows: int, keys: int, seed: int, *, step: int = 4) -> dict[str, pa.Table]:
    dice = np.random.default_rng(seed)
    return {
        name: pa.table(
            {"ts": np.cumsum(dice.integers(0, step, rows)), "k": dice.integers(0, keys, rows), "n": np.arange(rows)}
        )
        for name in "ab"
    }


def run_through(query: plait.Query, data: dict[str, pa.Table], piece: int, **options: Any) -> tuple[pa.Table, int]:
    """Pieces of both streams by turns, read as they come; with the most rows that were held of all streams at once."""
    held, batches = 0, []
    with query.on_threads(schemas={name: table.schema for name, table in data.items()}, **options) as run:
        for at in range(0, max(map(len, data.values())), piece):
            for name, table in data.items():
                run.push(name, None, table.slice(at, piece))
            batches += list(run.results(timeout_s=0))
            held = max(held, sum(payload.rows for payload in run._engine.payloads.values()))
        run.drain()
        return pa.Table.from_batches([*batches, *run.results()], run.schema), held


@pytest.mark.crossed
@pytest.mark.parametrize("direction", ["forward", "nearest"])
@pytest.mark.parametrize("right", [A, B], ids=["itself", "another"])
def test_rows_stay_until_the_results_of_all_workers_are_out(direction: str, right: plait.Stream) -> None:
    """A result waits in its worker's ring until the others have come so far; its rows are older than what they are at."""
    query = plait.asof(A, right, by="k", within=40, direction=direction)
    data = {name: table for name, table in tables(600, 40, 3).items() if name in query.streams()}
    for piece in (1, 7):
        got, _ = run_through(query, data, piece, workers=3, batch=2)
        assert_same(got, query.reference(data))


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_memory_grows_with_values_and_with_what_waits(direction: str) -> None:
    """More values than the table has lines at first, and more left tuples than the ring has places; pandas is the judge."""
    data = tables(20_000, 9_000, 5, step=2)
    query = plait.asof(A, B, by="k", within=15_000, direction=direction)
    got, _ = run_through(query, data, 5_000, workers=2)
    frames = [table.to_pandas() for table in data.values()]
    want = pd.merge_asof(*frames, on="ts", by="k", tolerance=15_000, direction=direction, suffixes=("", "_b"))  # type: ignore[arg-type]
    found = got.select(["a_n", "b_n"]).to_pandas().sort_values("a_n")
    assert found["a_n"].tolist() == want["n"].tolist()
    assert found["b_n"].fillna(-1).tolist() == want["n_b"].fillna(-1).tolist()


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_what_is_out_of_reach_goes(direction: str) -> None:
    data = tables(200_000, 20, 7)
    query = plait.asof(A, B, by="k", within=100, direction=direction)
    held, batches, names = 0, [], {name: table.schema for name, table in data.items()}
    with query.on_threads(schemas=names, workers=2, unread_results=1 << 12) as run:
        # Beside who pushes: fewer results may wait than a push has, and who reads now and then falls behind on a busy machine.
        reader = threading.Thread(target=lambda: batches.extend(run.results()))
        reader.start()
        for at in range(0, 200_000, 5_000):
            for name, table in data.items():
                run.push(name, None, table.slice(at, 5_000))
            held = max(held, sum(payload.rows for payload in run._engine.payloads.values()))
        run.drain()
        reader.join()
    assert sum(batch.num_rows for batch in batches) == 200_000
    assert held < 250_000  # of 400,000; how far who pushes is ahead is the machine's affair
