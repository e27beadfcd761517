"""The papers' rivals: the reference's results, as a set. One test each; what they are not built for is refused."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.errors import QueryError
from plait_bench import rivals

RIVALS = rivals.NAMES


def tables(rows: int) -> dict[str, pa.Table]:
    dice = np.random.default_rng(5)
    made = {}
    for name in ("a", "b"):
        ts = np.sort(dice.integers(0, rows * 4, rows))
        x = pa.array(dice.integers(0, 60, rows).astype(np.int32), mask=dice.random(rows) < 0.02)
        made[name] = pa.table({"ts": ts, "x": x, "y": dice.random(rows) * 60, "z": np.arange(rows)})
    return made


def query(**window: Any) -> plait.Query:
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    return plait.join(a, b, on=lambda a, b: (abs(a.x - b.x) <= 6) & (abs(a.y - b.y) <= 6.0), **window)


def results(query: plait.Query, given: dict[str, pa.Table], sizes: Any, **options: Any) -> Counter[Any]:
    """Every result with how often it came; pushed in pieces of many sizes."""
    found: Counter[Any] = Counter()
    with query.on_threads(schemas={n: t.schema for n, t in given.items()}, batch=256, **options) as run:
        at = {"a": 0, "b": 0}
        dice = np.random.default_rng(1)
        while any(at[n] < t.num_rows for n, t in given.items()):
            name = min(at, key=lambda n: at[n])
            size = int(dice.choice(sizes))
            run.push(name, None, given[name].slice(at[name], size))
            at[name] += size
            for batch in run.results(timeout_s=0):
                found.update(map(tuple, zip(*batch.to_pydict().values(), strict=True)))
        run.drain()
        found.update(map(tuple, zip(*run.table().to_pydict().values(), strict=True)))
    return found


@functools.cache
def expected_once() -> Counter[Any]:
    found = query(within=(400, 700)).reference(tables(1_500))
    return Counter(map(tuple, zip(*found.to_pydict().values(), strict=True)))


# Each is compiled for some thirty seconds, and none is a part of the product.
@pytest.mark.slow
@pytest.mark.parametrize("strategy", RIVALS)
def test_finds_what_the_reference_finds(strategy: str) -> None:
    given, joined = tables(1_500), query(within=(400, 700))
    expected = expected_once()
    for workers in (1, 2, 3, 5):
        # In pieces, and all at once: then time passes for each worker while its neighbours have not begun.
        for sizes in ((1, 7, 300), (1_500,)):
            found = results(joined, given, sizes, strategy=strategy, workers=workers, order="none", index="scan")
            assert found == expected


def test_what_they_are_not_built_for_is_refused() -> None:
    with pytest.raises(QueryError, match="order='strict'"):
        query(within=10).on_threads(strategy="handshake", workers=2)
    with pytest.raises(QueryError, match="without a time window"):
        query(last=10).on_threads(strategy="celljoin", workers=2, order="none")
    with pytest.raises(QueryError, match="for a left join"):
        query(within=10, how="left").on_threads(strategy="celljoin", workers=2, order="none")
