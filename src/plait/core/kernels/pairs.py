"""Pairs put into result order: a counting sort by trigger, then each trigger's partners.

The result order is by the later tuple, the trigger, then by the earlier one, and row ids grow in total order. Most
triggers have their few partners in order already, or nearly, so an insertion sort ends at once.
"""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry, inlined


@entry
def count_triggers(triggers: np.ndarray, starts: np.ndarray) -> None:
    """`starts[t + 1]` becomes the number of pairs of triggers up to t.

    `triggers` is int64 by pair, a place in the run; `starts` is int64, zeroed, one more than tuples of the run.
    """
    for k in range(len(triggers)):
        starts[triggers[k] + 1] += 1
    for t in range(1, len(starts)):
        starts[t] += starts[t - 1]


@inlined
def sort_rows(rows: np.ndarray, first: int, last: int) -> None:
    """Ascending, in place.

    What is in order costs one pass. A long rest that is not is sorted by NumPy, a short one by insertion.
    """
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
def place(
    triggers: np.ndarray,
    lefts: np.ndarray,
    rights: np.ndarray,
    sides: np.ndarray,
    starts: np.ndarray,
    out_trigger: np.ndarray,
    out_left: np.ndarray,
    out_right: np.ndarray,
) -> None:
    """Copy pairs to their places in result order. `sides[t]` is the side of trigger t; `starts` is used up.

    `lefts` and `rights` are row ids by pair, int64. `sides` is uint8 by tuple of the run: if the trigger is a right tuple
    (1), partners are left rows, and those are sorted. After this starts[t] is where trigger t's pairs end.
    """
    for k in range(len(triggers)):
        t = triggers[k]
        at = starts[t]
        starts[t] = at + 1
        out_trigger[at] = t
        out_left[at] = lefts[k]
        out_right[at] = rights[k]
    first = 0
    for t in range(len(sides)):
        last = starts[t]
        if last - first > 1:
            if sides[t]:
                sort_rows(out_left, first, last)
            else:
                sort_rows(out_right, first, last)
        first = last
