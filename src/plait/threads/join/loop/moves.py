"""Rows of a segment move into longer arrays, in one call without Python's lock.

Whoever grows a segment calls it while nobody else uses the segment. Fifteen workers' segments grow at about the same time, since
all have as much to keep: with the lock held, each would wait for all others, and so would whoever pushes.
"""

from __future__ import annotations

from typing import Any

from plait.threads.atomics.native import compiled, inner, ints, octets, short_ints


@compiled
def move_rows(moves: Any, first: Any, end: Any, old_cap: Any, cap: Any) -> None:
    """Rows of positions first to end, column by column, into arrays of `cap` places, without Python's lock.

    `moves`: a row a column: the old array's address, the new one's, bytes a row, and 1 if the column is written twice. By whoever
    grows a segment.
    """
    for m in range(len(moves)):
        source, target, size, twice = moves[m, 0], moves[m, 1], moves[m, 2], moves[m, 3]
        per = size // 8 if size >= 8 else 1
        if size >= 8:
            a, b = ints(source, old_cap * per), ints(target, cap * per * (1 + twice))
            move_column(a, b, first, end, old_cap, cap, per, twice)
        elif size == 4:
            c, d = short_ints(source, old_cap), short_ints(target, cap * (1 + twice))
            move_column(c, d, first, end, old_cap, cap, per, twice)
        else:
            e, f = octets(source, old_cap), octets(target, cap * (1 + twice))
            move_column(e, f, first, end, old_cap, cap, per, twice)


@inner
def move_column(source: Any, target: Any, first: Any, end: Any, old_cap: Any, cap: Any, per: Any, twice: Any) -> None:
    """`per` values a row."""
    for row in range(first, end):
        at, to = (row & (old_cap - 1)) * per, (row & (cap - 1)) * per
        for k in range(per):
            target[to + k] = source[at + k]
            if twice:
                target[to + cap * per + k] = source[at + k]
