"""A segment that grows keeps every row: each column, by position, wherever the ring's end lies."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.threads.join.loop_scenarios import NoColumns

from plait.threads.join import memory
from plait.threads.join.loop import segment as seg

KINDS = [("a", np.float64), ("b", np.int64), ("c", np.int32), ("d", np.uint8), ("e", np.float32)]


class Encoder(NoColumns):
    def __init__(self, nodes: bool) -> None:
        self.has_node = nodes

    def columns(self, side: int) -> list[tuple[str, type]]:
        return KINDS


def rows_of(segment: memory.Segment, first: int, end: int) -> dict[str, bytes]:
    """The bytes of all live rows, in order; of columns both copies."""
    cap = int(segment.block[seg.CAP])
    at = np.arange(first, end) & (cap - 1)
    found = {name: array[at].tobytes() for name, array in segment.arrays.items() if name != "matched"}
    if segment.matched:
        found["matched"] = segment.arrays["matched"][:, at].tobytes()
    for name, column in segment.columns.items():
        found[f"column {name}"] = column[at].tobytes()
        found[f"column {name} again"] = column[at + cap].tobytes()
    return found


@pytest.mark.parametrize("nodes", [False, True], ids=["no nodes", "nodes"])
@pytest.mark.parametrize("matched", [False, True], ids=["unmatched", "matched"])
@pytest.mark.parametrize("parted", [False, True], ids=["shared", "parted"])
def test_rows_stay_where_their_positions_say(nodes: bool, matched: bool, parted: bool) -> None:
    chance, made = random.Random(f"{nodes} {matched} {parted}"), np.random.default_rng(7)
    for _ in range(12):
        sharers, cap = chance.choice((1, 3)), 64
        segment = memory.Segment(0, sharers, Encoder(nodes), matched=matched, parted=parted, rows=cap)
        for array in (*segment.arrays.values(), *segment.columns.values()):
            array.view(np.uint8).reshape(-1)[:] = made.integers(0, 256, array.nbytes, np.uint8)
        for column in segment.columns.values():
            column[cap:] = column[:cap]
        first = chance.choice((0, 3, 64, 1000, (1 << 40) + 61))
        end = first + chance.choice((0, 1, 63, 64))
        segment.block[seg.END] = end
        for sharer in range(sharers):
            segment.block[seg.FIRST + sharer * memory.LINE] = first + sharer
        before = rows_of(segment, first, end)
        segment.grow(chance.choice((65, 500)))
        assert int(segment.block[seg.CAP]) > cap
        assert rows_of(segment, first, end) == before
