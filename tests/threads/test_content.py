"""Rows that content can't tell apart: each is a tuple, and a key is one tuple's, on every executor."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.query.identical import KEY

SCHEMA = pa.schema([("ts", pa.int64()), ("w", pa.string()), ("x", pa.float64())])


def rows(dice: random.Random, n: int) -> pa.Table:
    """Many of them equal, in ts order."""
    ts = sorted(dice.randrange(6) for _ in range(n))
    return pa.table(
        {"ts": ts, "w": [dice.choice("ab") for _ in ts], "x": [dice.choice([0.0, -0.0, None]) for _ in ts]}, SCHEMA
    )


def query(kind: str) -> Any:
    a, b = (plait.stream(name, unit="us", seq="content", sources=2) for name in "ab")
    match kind:
        case "join" | "left" | "semi" | "anti":
            return plait.join(a, b, on="l.w = r.w", within=2, how="inner" if kind == "join" else kind)
        case "counted":
            return plait.aggregate(a, size=3, advance=2, by="w", compute={"n": plait.count(), "x": plait.collect("x")})
        case _:
            inner = plait.join(a, b, within=1)
            return plait.join(inner, plait.stream("c", unit="us", seq="content"), on="l.a_w = r.w", last=3)


@pytest.mark.parametrize("kind", ["join", "left", "semi", "anti", "counted", "dag"])
def test_every_result_has_a_key_of_its_own(kind: str) -> None:
    dice = random.Random(f"content {kind} 3")
    made = query(kind)
    for _ in range(6):
        data = {
            name: ({k: rows(dice, 8) for k in (0, 1)} if name != "c" else {0: rows(dice, 9)}) for name in made.streams()
        }
        expected = made.reference(data, keys=True)
        keys = expected.column(KEY).to_pylist()
        assert all(one < next_ for one, next_ in pairwise(keys))
        with made.on_threads(workers=dice.choice([1, 2]) if kind != "counted" else None, keys=True, plain=kind != "counted",
                             schemas=dict.fromkeys(data, SCHEMA)) as run:  # fmt: skip
            for name, tables in data.items():
                for source, table in tables.items():
                    cut = dice.randrange(table.num_rows)
                    # In any order within a ts: content has no first and second.
                    for part in (table.slice(0, cut), table.slice(cut)):
                        run.push(name, source, shuffled(dice, part))
            run.drain()
            assert run.table().equals(expected)


def shuffled(dice: random.Random, table: pa.Table) -> pa.Table:
    order = sorted(range(table.num_rows), key=lambda k: (table.column("ts")[k].as_py(), dice.random()))
    return table.take(pa.array(order, pa.int64()))
