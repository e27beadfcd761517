"""What was kept last of each key: against a plain loop, and how much of it is remembered."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.dedup import LastKept

KINDS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "k": (pa.int64(), (None, 0, 1, -1, 2**63 - 1, -(2**63))),
    "u": (pa.uint64(), (None, 0, 2**64 - 1, 2**63)),
    "x": (pa.float64(), (None, math.nan, 0.0, -0.0, math.inf, 0.5)),
    "q": (pa.float32(), (None, math.nan, 0.0, -0.0, 0.5)),
    "b": (pa.bool_(), (None, True, False)),
    "s": (pa.string(), (None, "", "a", "é")),
    "d": (pa.date32(), (None, 0, 7)),
}


def told(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key by which Python finds equal ones: NaN is one value, -0.0 is 0.0."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def by_a_loop(keys: list[tuple[Any, ...]], ts: list[int], within: int) -> list[bool]:
    last: dict[tuple[Any, ...], int] = {}
    out = []
    for key, at in zip(map(told, keys), ts, strict=True):
        out.append(key not in last or last[key] < at - within)
        if out[-1]:
            last[key] = at
    return out


@pytest.mark.parametrize("by", [("k",), ("u",), ("x",), ("s",), ("d",), ("b", "q"), ("s", "x", "k")])
def test_as_a_loop_has_it_however_runs_are_cut(by: tuple[str, ...]) -> None:
    chance = random.Random(f"dedup {by}")
    for within in (0, 1, 5, 2**62):
        rows = pa.table(
            {name: pa.array([chance.choice(KINDS[name][1]) for _ in range(400)], KINDS[name][0]) for name in by}
        )
        ts = sorted(chance.randrange(-30, 60) for _ in range(400))
        keys = list(zip(*(rows.column(name).to_pylist() for name in by), strict=True))
        last = LastKept(plait.dedup(plait.stream("a"), by=by, within=within), rows.schema)
        got: list[bool] = []
        while len(got) < 400:
            n = chance.choice((0, 1, 7, 100))
            part = slice(len(got), len(got) + n)
            got += last.judged_rows(np.array(ts[part], np.int64), rows.slice(part.start, n)).tolist()
        assert got == by_a_loop(keys, ts, within)


def test_the_ends_of_time_are_further_apart_than_64_bits_hold() -> None:
    rows = pa.table({"k": pa.array([1, 1, 1], pa.int64())})
    ts = np.array([-(2**62), 0, 2**62], np.int64)
    for within, expected in ((2**62, [True, False, True]), (2**62 - 1, [True, True, True])):
        last = LastKept(plait.dedup(plait.stream("a"), by="k", within=within), rows.schema)
        assert last.judged_rows(ts, rows).tolist() == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_keys_that_can_drop_nothing_any_more_are_forgotten_and_no_others(kind: pa.DataType) -> None:
    """Two hundred thousand keys, each met now and then for nine hundred tuples: some thousands are remembered at a time."""
    last = LastKept(plait.dedup(plait.stream("a"), by="k", within=1000), pa.schema([("k", kind)]))
    dice = np.random.default_rng(5)
    ts = np.arange(1 << 18)
    keys = ts - dice.integers(0, 900, len(ts)) + 20_000
    got: list[bool] = []
    for at in range(0, len(ts), 1 << 12):
        part = slice(at, at + (1 << 12))
        got += last.judged_rows(ts[part], pa.table({"k": pa.array(keys[part]).cast(kind)})).tolist()
    assert got == by_a_loop([(key,) for key in keys.tolist()], ts.tolist(), 1000)
    assert last.groups.capacity <= 1 << 15
    assert last.nbytes <= 1 << 20
