"""What a worker of a partitioned join begins with, and what can be said of it: the block of `loop.stretches`, as Python has it.

Written before the worker starts; after that the worker alone changes it. Python reads it for `explain`: words that may be a
little old, and of two tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.core.join.encoded import EncodedRows
from plait.core.kernels.chains import mixed_array
from plait.core.machine.line import lines
from plait.errors import counted
from plait.query.join import HOWS
from plait.threads.join.loop import stretches as s
from plait.threads.join.strategies.plan import Parts

LINES = {"hash": s.HASHED, "range": s.RANGED, "keyed": s.KEYED}
NOTED_BITS = 3  # one tuple in eight is noted
LOOK_EVERY = 256
DECIDE_EVERY = 1 << 16


def owned(how: str) -> int:
    """The side whose tuples are one worker's each: of a join that asks for all partners of a row in one place, that row's."""
    return int(HOWS[how].whole == (1,))


def square(workers: int) -> tuple[int, int]:
    """Rows and columns of so many workers or fewer, in which one lays out least if both streams are alike.

    An example: seven workers are 2 x 3, and one of them has nothing: a worker takes 1/2 + 1/3 of a stream then, in 7 x 1 it
    would be 1/7 + 1.
    """
    shapes = [(m, n) for m in range(1, workers + 1) for n in range(m, workers // m + 1)]
    return min(shapes, key=lambda shape: (1 / shape[0] + 1 / shape[1], -shape[0] * shape[1]))


def block(parts: Parts, how: str, number: int, crew: int, encoder: Any) -> np.ndarray:
    """Of worker `number` of so many, and the table that it begins with: equal parts of all hashes, or by turns for ranges,
    since nothing is known of them before `begin`. Where the types that rows turn out to have leave no equality or no band, it
    stays by turns. For tests, an odd seed goes by ranges within keys, where the condition has both.
    """
    q, whole = lines(s.words(crew)), HOWS[how].whole
    line = LINES[parts.line]
    if line == s.HASHED and encoder.has_bands and parts.restless is not None and parts.restless[0] % 2:
        line = s.KEYED
    if (line != s.RANGED and not encoder.has_equality) or (line != s.HASHED and not encoder.has_bands):
        line = s.NOWHERE
    q[s.LINE], q[s.CREW], q[s.ME], q[s.OWNED] = line, crew, number, owned(how)
    q[s.WHOLE] = 0 if not whole else s.LAST if HOWS[how].alone else s.FIRST
    q[s.COUNTED] = int(len(HOWS[how].alone) == 2)
    q[s.GRID_ROWS], q[s.GRID_COLS] = (crew, 1) if whole else square(crew)
    q[s.SPARSE], q[s.LOOK_EVERY], q[s.DECIDE_EVERY], q[s.DECIDE_AT] = (
        NOTED_BITS,
        LOOK_EVERY,
        DECIDE_EVERY,
        s.FIRST_DECISION,
    )
    if parts.restless is not None:
        q[s.RESTLESS], q[s.DECIDE_EVERY] = parts.restless
        q[s.SPARSE], q[s.LOOK_EVERY], q[s.DECIDE_AT] = 0, 1, 1
    t, f = s.TABLES, q.view(np.float64)
    q[t + s.ROWS], q[t + s.COLS] = q[s.GRID_ROWS], q[s.GRID_COLS]
    q[t + s.KIND] = s.CUT if line in (s.HASHED, s.KEYED) else s.BY_TURNS
    f[t + s.FROM : t + s.FROM + crew + 1] = np.arange(crew + 1) * (2.0**52 / crew)
    return q


def begin(q: np.ndarray, side: int, rows: EncodedRows, band: np.ndarray | None) -> None:
    """The table to begin with, of the first rows of all: before any worker has taken a tuple, so that nothing is stored
    otherwise. By hash it may be by ranges within keys from here on, too.

    `band` is as `Encoder.bands` has it, None if the condition has none. Few rows say nothing; then it stays as `block` has it,
    until the run itself has seen enough.
    """
    usable = rows.usable != 0
    if q[s.RESTLESS] or np.count_nonzero(usable) < s.LEAST:
        return
    if q[s.LINE] == s.HASHED and rows.key is not None:
        if band is None or rows.coord is None or not _keyed(q, side, rows.key[usable], rows.coord[usable, 0], band):
            _hashes(q, rows.key[usable])
    elif q[s.LINE] == s.RANGED and rows.coord is not None and band is not None:
        _ranges(q, side, np.sort(rows.coord[usable, 0]), band)


def _hashes(q: np.ndarray, keys: np.ndarray) -> None:
    """Hot values are everybody's from the first tuple on; of the rest each worker has as much."""
    at = np.sort((mixed_array(keys) >> np.uint64(12)).astype(np.float64))
    values, counts = np.unique(at, return_counts=True)
    hot = values[counts * q[s.CREW] > len(at)][: s.MOST_HOT]
    rest = at[~np.isin(at, hot)]
    if len(rest) >= s.LEAST:
        _cut(q, rest, hot)
    elif len(hot):
        _cut(q, np.linspace(0, 2.0**52, s.LEAST), hot)


def _keyed(q: np.ndarray, side: int, keys: np.ndarray, x: np.ndarray, band: np.ndarray) -> bool:
    """Ranges within keys, if some value is hot and what a band reaches is little of it; else false, and nothing is changed.

    By turns a tuple of a hot value goes to a row or a column of workers, here to its range and those that its band reaches.
    Without a hot value each key is one worker's anyway, and a coordinate would be read and mapped for nothing.
    """
    crew, (low, high) = int(q[s.CREW]), (band[0], band[1]) if q[s.OWNED] == 0 else (-band[1], -band[0])
    if (np.unique(keys, return_counts=True)[1] * crew <= len(keys)).all():
        return False
    if side != q[s.OWNED]:
        x = x + (low + high) / 2  # about where its partners are
    base, reach = _key_begins(keys), (high - low) / 2
    at = np.sort(base + _within(x))
    begins = _begins(crew, at)
    if (np.diff(begins) <= 0).any():
        return False  # much at one place
    ends = [np.searchsorted(begins, base + _within(x + off), "right") for off in (-reach, reach)]
    copies = float(np.mean(ends[1] - ends[0])) + 1
    if (1 + copies) / crew > 0.8 * (1 / q[s.GRID_ROWS] + 1 / q[s.GRID_COLS]):
        return False
    q[s.LINE] = s.KEYED
    _cut(q, at, at[:0])
    q[s.TABLES + s.ROWS], q[s.TABLES + s.COLS] = crew, 1
    return True


def _key_begins(keys: np.ndarray) -> np.ndarray:
    """`stretches.begins` of an array."""
    places = mixed_array(keys) >> np.uint64(12 + s.WITHIN_BITS)
    return places.astype(np.float64) * float(1 << s.WITHIN_BITS)


def _within(x: np.ndarray) -> np.ndarray:
    """`stretches.within` of an array."""
    bits = (x + 0.0).view(np.int64)
    ascending = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    return ((ascending >> (64 - s.WITHIN_BITS)) + (1 << (s.WITHIN_BITS - 1))).astype(np.float64)


def _ranges(q: np.ndarray, side: int, x: np.ndarray, band: np.ndarray) -> None:
    """Not where much lies at one place, or where a band reaches so far that rows and columns by turns are about as good."""
    crew = int(q[s.CREW])
    low, high = (band[0], band[1]) if q[s.OWNED] == 0 else (-band[1], -band[0])
    if side != q[s.OWNED]:
        x = x + (low + high) / 2  # about where its partners are
    begins = _begins(crew, x)
    if (np.diff(begins) <= 0).any():
        return
    # As if these were the other side's: how many stretches each reaches, in the mean.
    reach = (high - low) / 2
    ends = [np.searchsorted(begins, x + off, "right") for off in (-reach, reach)]
    copies = float(np.mean(ends[1] - ends[0])) + 1
    if (1 + copies) / crew <= 0.8 * (1 / q[s.GRID_ROWS] + 1 / q[s.GRID_COLS]):
        _cut(q, x, x[:0])
        q[s.TABLES + s.ROWS], q[s.TABLES + s.COLS] = crew, 1


def _cut(q: np.ndarray, at: np.ndarray, hot: np.ndarray) -> None:
    """The first table: stretches with as many of these places each, sorted, and hot points."""
    t, f, crew = s.TABLES, q.view(np.float64), int(q[s.CREW])
    q[t + s.KIND], q[t + s.HOT] = s.CUT, len(hot)
    f[t + s.HOTS : t + s.HOTS + len(hot)] = hot
    f[t + s.FROM : t + s.FROM + crew + 1] = _begins(crew, at)


def _begins(crew: int, at: np.ndarray) -> np.ndarray:
    return np.array([-np.inf, *(at[k * len(at) // crew] for k in range(1, crew)), np.inf])


def told(q: np.ndarray) -> str:
    """The table that holds, and why, in words."""
    t = s.TABLES + int(q[s.NOW]) * s.table_words(int(q[s.CREW]))
    rows, columns = int(q[t + s.ROWS]), int(q[t + s.COLS])
    what = {s.NOWHERE: "no value", s.HASHED: "the hash of the equality", s.RANGED: "the band's range",
            s.KEYED: "the hash of the equality and, within a value, the band's range"}[int(q[s.LINE])]  # fmt: skip
    if q[t + s.KIND] == s.BY_TURNS:
        why = "the columns' types leave neither equality nor band"
        if q[s.LINE] != s.NOWHERE:
            why = "ranges would do with little less, or more" if q[s.OF] else "little is known of ranges yet"
        found = f"by turns, {rows} x {columns}: {why}"
    else:
        found = f"by {what}"
        if hot := int(q[t + s.HOT]):
            found += f", and {counted(hot, 'hot value')} by turns among {rows} x {columns} workers"
    if q[s.CHANGES]:
        found += f"; table {int(q[s.CHANGES]) + 1} of the run, since tuple {int(q[s.CHANGED_AT]):,}"
    if q[s.OF]:
        found += (
            f"; of {int(q[s.OF]):,} noted tuples the busiest worker had {int(q[s.BUSIEST]):,}, by another table it would "
            f"have had {int(q[s.INSTEAD]):,}"
        )
    if q[s.STAGE] != s.SETTLED:
        found += "; another table is on its way"
    return found
