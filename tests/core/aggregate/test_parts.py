"""Partial panes against the reference: tuples dealt out to tasks and batches at random, folded, joined, made into windows."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.core.aggregate.test_panes import FUNCTIONS, KEYS, SPANS, STREAM, table

import plait
from plait.core import keys
from plait.core.aggregate.parts import TS, PaneFold, PartPanes, layout
from plait.core.aggregate.sums import Sum
from plait.query.bind import bind
from plait.query.identical import difference

SCHEMA = table(1, 1, 9).schema
MERGING = [
    n for n in FUNCTIONS if layout(bind(plait.aggregate(STREAM, size="9us", compute={"x": FUNCTIONS[n]}), {"s": SCHEMA}))
]  # fmt: skip


def computed(query: plait.Query, rows: pa.Table, chance: random.Random) -> pa.Table:
    bound = bind(query, {"s": rows.schema})
    parts = layout(bound)
    assert parts is not None
    windows = PartPanes(bound, parts)
    ts, at, out = rows["ts"].to_numpy(), 0, []
    waiting = parts.schema.empty_table()
    while at < len(ts):
        end = min(len(ts), at + chance.choice((1, 2, 17, 200)))
        of_task = np.array([chance.randrange(3) for _ in range(at, end)])
        for task in range(3):
            own = at + np.flatnonzero(of_task == task)
            part = PaneFold(bound, parts).folded(
                rows.take(pa.array(own)), ts[own], lambda n, own=own: keys.ints(own[n])
            )
            waiting = pa.concat_tables([waiting, part])
        if chance.random() < 0.4:
            waiting = PaneFold(bound, parts).combined(waiting)
        frontier = int(ts[end] if end < len(ts) else ts[end - 1])
        ready = np.asarray(waiting[TS]) < frontier
        out += windows.absorb(PaneFold(bound, parts).combined(waiting.filter(pa.array(ready))), frontier)
        waiting = waiting.filter(pa.array(~ready))
        at = end
    out += windows.absorb(PaneFold(bound, parts).combined(waiting), 2**63 - 1)
    return pa.Table.from_batches([closed.rows for closed in out], windows.schema)


def test_which_functions_have_partial_panes() -> None:
    whole = {"collect", "custom", "list", "mode", "arg_min", "arg_max", "top"}
    assert {name for name in FUNCTIONS if name not in MERGING} == {n for n in FUNCTIONS if n.split()[0] in whole}


@pytest.mark.parametrize("seed", range(40))
def test_everything_with_everything(seed: int) -> None:
    chance = random.Random(seed)
    rows = table(chance.choice((1, 60, 300)), seed, chance.choice((50, 2000)))
    compute = {name: FUNCTIONS[name] for name in chance.sample(sorted(MERGING), chance.choice((1, 3, 8)))}
    size, advance = (f"{us}us" for us in chance.choice(SPANS))
    query = plait.aggregate(STREAM, size=size, advance=advance, by=chance.choice(KEYS), compute=compute)
    assert difference(query.reference({"s": rows}), computed(query, rows, chance)) is None


def test_an_odd_value_of_either_column_is_told_of_a_part() -> None:
    compute = {"covar": plait.covar("g", "f"), "corr": plait.corr("f", "g")}
    query = plait.aggregate(STREAM, size="9us", compute=compute)
    rows = pa.table({"ts": [1, 2, 3], "g": [1.0, 2.0, 4.0], "f": [1.0, float("inf"), 2.0]})
    for _ in range(9):
        assert difference(query.reference({"s": rows}), computed(query, rows, random.Random(3))) is None


def test_sums_of_all_sizes_survive_as_bytes() -> None:
    """Whatever was added, in whichever order: what is read back is the same number, and in as few bytes as can be."""
    dice = random.Random(5)
    for _ in range(200):
        values: list[Any] = [dice.choice((-1, 1)) * dice.random() * 10.0 ** dice.randrange(-300, 300) for _ in range(4)]
        values += [-v for v in values if dice.random() < 0.3]
        made, again = Sum("x", pa.float64()), Sum("x", pa.float64())
        for one in (made, again):
            one.reserve(1)
        bits = np.array(values).view(np.int64)
        read: Any = type("Read", (), {"bits": {"x": (bits, np.ones(len(bits), np.uint8))}})
        made.update(0, len(bits), np.zeros(len(bits), np.int64), read, bits)
        parts = made.parts(np.array([0]))
        again.absorb(np.array([0]), parts)
        assert again.parts(np.array([0])) == parts
        exact = sum((Fraction(v) for v in values), Fraction(0))
        raw = parts[2][0].as_py()
        found = int.from_bytes(raw[2:], "little", signed=True) * Fraction(2) ** (
            32 * int.from_bytes(raw[:2], "little", signed=True)
        )
        assert found == exact
        assert raw == b"" or raw[2:6] != bytes(4)
        assert again.column(again.slots, "x").to_pylist() == [float(exact)]
