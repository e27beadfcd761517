"""Usual batches by one compiled call, which stops in the midst: memory is short, a sum has too few limbs, too much waits."""

from __future__ import annotations

import collections

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.query.identical import difference
from plait.threads.aggregate.hive import memory, tallies, usual
from plait.threads.aggregate.hive import words as y

SOURCES, ROWS, PUSH = 3, 1_600, 160
FUNCTIONS = {
    "n": plait.count(),
    "sum": plait.sum("x"),
    "var": plait.var("v"),
    "covar": plait.covar("v", "x"),
    "corr": plait.corr("v", "x"),
    "least": plait.min("v"),
    "most": plait.max("x"),
    "first": plait.first("v"),
    "last": plait.last("x"),
}


def data(seed: int) -> pa.RecordBatch:
    """Keys small and large, below zero too; the later a value, the more limbs it takes."""
    dice = np.random.default_rng(seed)
    late = np.arange(ROWS) / ROWS
    return pa.record_batch({
        "ts": np.cumsum(dice.integers(0, 3, ROWS)),
        "k": dice.integers(-9, 200, ROWS) * dice.choice([1, 1 << 20], ROWS),
        "x": (dice.integers(-9, 9, ROWS) * 2.0 ** (40 * late)).astype(np.int64),
        "v": dice.normal(size=ROWS) * 2.0 ** (dice.integers(-30, 30, ROWS) * late),
    })  # fmt: skip


def query() -> plait.Aggregate:
    return plait.aggregate(
        plait.stream("a", unit="us", sources=SOURCES), size="300us", advance="70us", by="k", compute=FUNCTIONS
    )


@pytest.mark.parametrize("strategy", ["wiml", "wiml_shared"])
def test_what_stops_in_the_midst_is_gone_on_with(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: collections.Counter[object] = collections.Counter()
    finish, room = tallies.Tallies.finish, tallies.Tallies._make_room

    def finished(self: tallies.Tallies, found: int, n: int, sheet: np.ndarray) -> None:
        short = self.told[usual.T_HIGH] < n
        stopped["short" if found == usual.PLACED and short else "limbs" if found == usual.PLACED else "crowded"] += 1
        finish(self, found, n, sheet)

    def made_room(self: tallies.Tallies, n: int) -> None:
        stopped[int(self._own[y.NEED])] += 1
        room(self, n)

    monkeypatch.setattr(tallies.Tallies, "finish", finished)
    monkeypatch.setattr(tallies.Tallies, "_make_room", made_room)
    for name, least in (("FIRST_TALLIES", 64), ("FIRST_TABLE", 16), ("FIRST_PANES", 2)):
        monkeypatch.setattr(tallies, name, least)
    monkeypatch.setattr(memory.Hive.__init__, "__kwdefaults__", {"nodes": 2, "words": 64})
    sources = [data(seed) for seed in range(SOURCES)]
    wanted = query().reference({"a": {k: pa.table(source) for k, source in enumerate(sources)}})
    with query().on_threads(strategy=strategy, schemas={"a": sources[0].schema}, capacity=4) as run:
        for first in range(0, ROWS, PUSH):
            for k, source in enumerate(sources):
                run.push("a", k, source.slice(first, PUSH))
        run.drain()
        assert difference(wanted, run.table()) is None
    assert all(stopped[each] for each in ("short", "limbs", y.TALLIES, y.PANES, y.TABLE, y.ARENA, y.NODES)), stopped
