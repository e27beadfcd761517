"""What sources' tallies hold, brought together: one compiled call for all sources, outside of Python's lock.

A source's tallies lie in rings of its own, so a call is given the rings' addresses. These are good while Python holds the arrays:
who calls has them from `Tallies.parts`, and keeps them until the call is done. For complete panes they no longer change.

Held by tests/threads/aggregate/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from plait.core.aggregate.groups import Groups
from plait.core.kernels.groups import look_up
from plait.core.machine.marks import entry
from plait.threads.atomics.native import ints


class Stretches(NamedTuple):
    """Of each source that has a part: its tallies from `first` to before `end`; they are the parts from number `at` on.

    `total` is the number of parts. All arrays are int64, by source.
    """

    first: np.ndarray
    end: np.ndarray
    at: np.ndarray
    total: int


def stretches(first: np.ndarray, end: np.ndarray) -> Stretches:
    """Of sources in their order: the first of each one's tallies, and the one after the last."""
    until = np.cumsum(end - first)
    return Stretches(first, end, until - (end - first), int(until[-1]))


def groups(known: Groups, rings: Sequence[np.ndarray], parts: Stretches, out: np.ndarray) -> None:
    """The groups of all parts, int64, by the keys that their tallies have. Nothing is copied, unless groups need more room."""
    where, sizes = addresses(rings), np.array([ring.shape[1] for ring in rings])

    def found(table: np.ndarray, kept: np.ndarray, free: np.ndarray, left: int, direct: np.ndarray) -> int:
        span = (where, sizes, parts.first, parts.end, parts.at)
        return int(look_up_parts(*span, table, kept, free, left, direct, out))

    def words() -> np.ndarray:
        copied = np.empty((len(rings[0]), parts.total), np.int64)
        copy_keys(where, sizes, parts.first, parts.end, parts.at, copied)
        return copied

    known.numbers_by(found, parts.total, words)


def rows(rings: Sequence[np.ndarray], parts: Stretches, out: np.ndarray) -> None:
    """What a function keeps of all parts: of rings int64[tallies, width], into int64[parts, width]."""
    copy_rows(addresses(rings), np.array([len(ring) for ring in rings]), parts.first, parts.end, parts.at, out)


def addresses(rings: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([ring.__array_interface__["data"][0] for ring in rings], np.int64)


@entry
def copy_keys(rings: Any, sizes: Any, first: Any, end: Any, at: Any, out: Any) -> None:
    """A row of the ring after the other; `sizes` are powers of two."""
    for source in range(len(rings)):
        size = sizes[source]
        ring = ints(rings[source], size * out.shape[0])
        for k in range(out.shape[0]):
            for tally in range(first[source], end[source]):
                out[k, at[source] + tally - first[source]] = ring[k * size + (tally & (size - 1))]


@entry
def look_up_parts(rings: Any, sizes: Any, first: Any, end: Any, at: Any, table: Any, kept: Any, free: Any, left: Any, direct: Any,
                  out: Any) -> Any:  # fmt: skip
    """The group of every part. Gives how many numbers are left."""
    for source in range(len(rings)):
        size = sizes[source]
        words = ints(rings[source], kept.shape[0] * size).reshape((kept.shape[0], size))
        tally = first[source]
        while tally < end[source]:  # two runs, where it goes over the end of the ring
            low = tally & (size - 1)
            high = min(size, low + end[source] - tally)
            left = look_up(words, low, high, at[source] + tally - first[source], table, kept, free, left, direct, out)
            tally += high - low
    return left


@entry
def copy_rows(rings: Any, sizes: Any, first: Any, end: Any, at: Any, out: Any) -> None:
    width = out.shape[1]
    for source in range(len(rings)):
        size = sizes[source]
        ring = ints(rings[source], size * width)
        for tally in range(first[source], end[source]):
            for k in range(width):
                out[at[source] + tally - first[source], k] = ring[(tally & (size - 1)) * width + k]
