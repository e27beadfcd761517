"""Workers that share window segments, with rings of results that are full all the time: nobody waits in a circle.

One worker writes a segment and waits for room in its ring. The other one has taken a longer batch, and waits for rows that the
first has not stored. What is in the first one's ring can be given out only when the second is done with the tuples before it.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.query.identical import difference

ROWS = 4000


def tables() -> dict[str, pa.Table]:
    chance = np.random.default_rng(1)
    return {
        name: pa.table({"ts": np.sort(chance.integers(0, ROWS, ROWS)), "k": chance.integers(0, 20, ROWS)})
        for name in "ab"
    }


def joined(query: plait.Query, data: dict[str, pa.Table], seed: int, **options: Any) -> pa.Table:
    """Pushed in pieces of many sizes, so that workers take batches of different lengths, and read beside."""
    chance = random.Random(seed)
    schemas = {name: table.schema for name, table in data.items()}
    with query.on_threads(schemas=schemas, batch=2048, stall_after_s=20, **options) as run:

        def push() -> None:
            at = 0
            while at < ROWS:
                rows = chance.choice((100, 300, 450, 700))
                for name, table in data.items():
                    run.push(name, None, table.slice(at, rows))
                at += rows
            run.drain()

        pushes = threading.Thread(target=push, daemon=True)
        pushes.start()
        # A run that stands still ends here, and not with the suite's patience.
        batches = list(run.results(timeout_s=10))
        pushes.join(timeout=10)
        assert not pushes.is_alive(), "the run stands still"
        return pa.Table.from_batches(batches)


@pytest.mark.parametrize(
    ("how", "layout"),
    [("inner", (2, 1)), ("inner", (1, 2)), ("inner", (2, 2)), ("left", (2, 1)), ("full", (1, 2)), ("full", (2, 2))],
)
def test_nobody_waits_in_a_circle(how: str, layout: tuple[int, int]) -> None:
    data = tables()
    query = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="l.k = r.k", within=200, how=how)
    expected = query.run(data, workers=1)
    for seed in range(2):
        assert difference(expected, joined(query, data, seed, layout=layout, unread_results=16)) is None
