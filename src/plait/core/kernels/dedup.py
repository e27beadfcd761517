"""Which tuples of a run repeat none: a look at when the last one of the same key was kept."""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry
from plait.order import BEFORE_ALL

#: Of a key of which nothing was kept. No tuple has this ts.
NONE = BEFORE_ALL


@entry
def keep_first(ts, group, within, last, out) -> None:
    """Mark in `out` the tuples that are kept, and note their ts in `last`, by group. `ts` rise; `within` is uint64.

    The age of what was kept is taken as uint64: the two ends of time are further apart than int64 holds.
    """
    for i in range(len(ts)):
        before = last[group[i]]
        kept = before == NONE or np.uint64(ts[i] - before) > within
        out[i] = kept
        if kept:
            last[group[i]] = ts[i]
