"""Pairs put into result order: a counting sort by trigger, then each trigger's partners.

The result order is by the later tuple, the trigger, then by the earlier one, and row ids grow in total order. Most
triggers have their few partners in order already, or nearly, so an insertion sort ends at once; or from the newest to the
oldest, as a walk along a chain finds them: then they are turned round.
"""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry, inlined


@entry
def count_triggers(probes: np.ndarray, positions: np.ndarray, counts: np.ndarray) -> None:
    """Count pairs by trigger: `counts[t + 1]` grows by those of trigger t.

    `probes` is int64 by pair, `positions` a probe's place in the run; `counts` is one longer than the run.
    """
    for k in range(len(probes)):
        counts[positions[probes[k]] + 1] += 1


@entry
def sum_up(counts: np.ndarray) -> None:
    """What was counted by trigger becomes where each one's pairs begin; the last is how many there are."""
    for t in range(1, len(counts)):
        counts[t] += counts[t - 1]


@entry
def place(
    probes: np.ndarray,
    rows: np.ndarray,
    positions: np.ndarray,
    first_probe: int,
    first_row: int,
    starts: np.ndarray,
    out_trigger: np.ndarray,
    out_probe: np.ndarray,
    out_row: np.ndarray,
) -> None:
    """Copy pairs of one side's probes to their places: by trigger, in the order in which they are given. `starts` is used up.

    Ids are `first_probe` plus the probe, and `first_row` plus the row. After all pairs were placed, starts[t] is where trigger
    t's end.
    """
    for k in range(len(probes)):
        p = probes[k]
        t = positions[p]
        at = starts[t]
        starts[t] = at + 1
        out_trigger[at] = t
        out_probe[at] = first_probe + p
        out_row[at] = first_row + rows[k]


@inlined
def turn_round(rows: np.ndarray, first: int, last: int) -> None:
    """In place: the last one first."""
    while first < last - 1:
        last -= 1
        rows[first], rows[last] = rows[last], rows[first]
        first += 1


@inlined
def sort_rows(rows: np.ndarray, first: int, last: int) -> None:
    """Ascending, in place.

    What is in order costs one pass, what is in reverse order two. A long rest that is neither is sorted by NumPy, a short one by
    insertion.
    """
    i = first + 1
    while i < last and rows[i - 1] > rows[i]:
        i += 1
    if i == last:
        turn_round(rows, first, last)
        return
    i = first + 1
    while i < last and rows[i - 1] <= rows[i]:
        i += 1
    if last - i > 64:
        rows[first:last] = np.sort(rows[first:last])
        return
    while i < last:
        row = rows[i]
        j = i - 1
        while j >= first and rows[j] > row:
            rows[j + 1] = rows[j]
            j -= 1
        rows[j + 1] = row
        i += 1


@entry
def sort_partners(sides: np.ndarray, starts: np.ndarray, lefts: np.ndarray, rights: np.ndarray) -> None:
    """Sort each trigger's partners, once all pairs are placed.

    `sides` is uint8 by tuple of the run: partners of a right tuple (1) are left rows, those of a left one right rows.
    """
    first = 0
    for t in range(len(sides)):
        last = starts[t]
        if last - first > 1:
            if sides[t]:
                sort_rows(lefts, first, last)
            else:
                sort_rows(rights, first, last)
        first = last
