"""Kang's three-step procedure in both its orders (ScaleJoin, sections II and III): which tuples either compares.

A tuple that comes is compared with the window of the opposite stream. In the *original* order that window is as its own last
tuple has left it: compare, add, then purge the own window. In the *changed* order the tuple purges it first: purge, compare, add.
Tuples are processed in the order in which they are given; each stream's own are in order of ts.

Plait's joins are the changed order: a pair is a result iff it matches and lies in the window, whatever else has come. With the
original order that is not so: one more tuple of the earlier one's stream, which matches nothing itself, may take a pair away
(`tests/bench/test_kang.py`). Such a join can't be shared out: who sees a part of the tuples, by key or by what may match, would
compare others than who sees all. So no run of plait has the original order; it is here to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from plait_bench.band import BAND, LEFT, RIGHT

Order = Literal["original", "changed"]


class Tuple(NamedTuple):
    """A tuple of stream `side`, 0 (R) or 1 (S)."""

    side: int
    ts_us: int


class Met(NamedTuple):
    """A tuple, by its number in its stream, and the numbers of the opposite stream's tuples it is compared with."""

    side: int
    number: int
    others: range


def compared(tuples: Iterable[Tuple], size_us: int, *, order: Order) -> Iterator[Met]:
    """The procedure, tuple by tuple. A window is a range of numbers, since tuples leave it as they have come.

    Args:
        tuples: Both streams' tuples as they are processed.
        size_us: The window; a tuple that is just as old is still in it.
        order: Whether comparisons come before the purge or after it.

    Yields:
        For each tuple whom it is compared with.
    """
    times: tuple[list[int], list[int]] = ([], [])
    first = [0, 0]

    def purge(side: int, ts_us: int) -> None:
        while first[side] < len(times[side]) and times[side][first[side]] < ts_us - size_us:
            first[side] += 1

    for side, ts_us in tuples:
        if order == "changed":
            purge(1 - side, ts_us)
        yield Met(side, len(times[side]), range(first[1 - side], len(times[1 - side])))
        times[side].append(ts_us)
        if order == "original":
            purge(side, ts_us)


class Counted(NamedTuple):
    """What the procedure has done with a workload."""

    comparisons: int
    results: int


def band_join(data: dict[str, pa.Table], size_us: int, *, order: Order, band: float = BAND) -> Counted:
    """The papers' band join of `plait_bench.band.data` by the procedure, tuples in order of ts, R's first among equals."""
    times = [data[name]["ts"].cast(pa.int64()).to_numpy() for name in (LEFT, RIGHT)]
    sides = np.repeat([0, 1], [len(each) for each in times])
    together = np.concatenate(times)
    sequence = np.lexsort((sides, together))
    places = [
        [data[name][column].to_numpy().astype(np.float64) for column in columns]
        for name, columns in ((LEFT, ("x", "y")), (RIGHT, ("a", "b")))
    ]
    comparisons = results = 0
    tuples = (Tuple(int(sides[k]), int(together[k])) for k in sequence)
    for side, number, others in compared(tuples, size_us, order=order):
        near = np.ones(len(others), bool)
        for own, other in zip(places[side], places[1 - side], strict=True):
            near &= np.abs(other[others.start : others.stop] - own[number]) <= band
        comparisons += len(others)
        results += int(near.sum())
    return Counted(comparisons, results)
