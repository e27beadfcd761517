"""As-of over slabs: a pass over both sides finds partners (`core.join.asof`), other threads make rows of them.

Between two slabs there are kept the right rows that a left one to come may name, and the left rows that wait; a `by` value has
one number for the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from plait.core.join.asof import Sides, decided
from plait.core.key_numbers import KeyNumbers
from plait.core.values import compared_as
from plait.query.bind import Bound
from plait.query.join import Asof
from plait.threads.bounded.intake import Rows, joined, one_after_another
from plait.threads.bounded.results import MOST, Shown
from plait.threads.bounded.side_by_side import Job

#: Results that one job makes: enough for its start not to count.
_JOB = 4 * MOST
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class _Coded:
    """Rows, the number of each one's `by` values, and its own number in its stream, where both sides are one."""

    rows: Rows
    codes: np.ndarray
    numbers: np.ndarray

    def at(self, places: np.ndarray) -> _Coded:
        return _Coded(
            self.rows.at(places), self.codes[places], self.numbers[places] if len(self.numbers) else self.numbers
        )


class AsofSlabs:
    """An as-of join's slabs. `latest` and `undecided` are what is kept of the right and the left side."""

    def __init__(self, bound: Bound, shown: Shown, empty: tuple[Rows, Rows]) -> None:
        assert isinstance(bound.node, Asof)
        self.node, self._shown = bound.node, shown
        schemas = [i.schema for i in bound.inputs]
        self._numbers = KeyNumbers([compared_as(*(s.field(c).type for s, c in zip(schemas, pair, strict=True)))
                                    for pair in self.node.by])  # fmt: skip
        self.undecided, self.latest = (_Coded(rows, _NONE, _NONE) for rows in empty)
        self._came, self._codes = [0, 0], 0 if self.node.by else 1

    @property
    def held(self) -> int:
        """Rows that are kept from slab to slab: a slab should not be shorter, or they would be copied too often."""
        return len(self.undecided.rows) + len(self.latest.rows)

    def jobs(self, ready: tuple[Rows, Rows], frontier: int) -> Iterator[Job]:
        """What makes the results of a slab, in order."""
        left, right = (self._with(side, kept, rows) for side, (kept, rows) in
                       enumerate(zip((self.undecided, self.latest), ready, strict=True)))  # fmt: skip
        own = _places(right.numbers, left.numbers) if self.node.one_stream else None
        sides = Sides(left.rows.ts, left.codes, right.rows.ts, right.codes, self._codes, own)
        found = decided(self.node, sides, frontier)
        self.undecided, self.latest = left.at(found.waiting), right.at(found.kept)
        whole = not self.node.waits and len(found.done) == len(left.rows)
        for first in range(0, len(found.done), _JOB):
            part = slice(first, min(first + _JOB, len(found.done)))
            places: Any = (part if whole else found.done[part], found.partner[part])
            yield partial(self._shown.makers, found.ts[part], (left.rows, right.rows), places)

    def _with(self, side: int, kept: _Coded, rows: Rows) -> _Coded:
        """What was kept of a side, and then what has come."""
        codes = self._numbers.of([rows.table.column(pair[side]) for pair in self.node.by], len(rows))
        self._codes = max(self._codes, 1 + int(codes.max(initial=-1)))
        numbers = np.arange(self._came[side], self._came[side] + len(rows)) if self.node.one_stream else _NONE
        self._came[side] += len(rows)
        # Left rows that are all results, one after another, may stay in their pieces: nobody takes them by their places.
        taken = side == 1 or self.node.waits or self.node.how == "inner"
        whole = joined([kept.rows, rows]) if taken else one_after_another([kept.rows, rows])
        if len(kept.rows):
            codes, numbers = np.concatenate([kept.codes, codes]), np.concatenate([kept.numbers, numbers])
        return _Coded(whole, codes, numbers)


def _places(among: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Where each of these numbers stands among others, which rise; -1 where it does not."""
    at = np.searchsorted(among, numbers)
    there = at < len(among)
    there[there] = among[at[there]] == numbers[there]
    return np.where(there, at, -1)
