"""Looking along a batch: is it in order?"""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.core.machine.kept import keep
from plait.core.machine.shield import njit


@keep
@njit(boundscheck=False)  # type: ignore[untyped-decorator]  # Numba's own; with the GIL: it takes microseconds
def out_of_order(ts: Any, low: Any) -> Any:
    """Whether any ts lies below `low` or below the one before it.

    `ts` is int64 and not empty; `low` an int64. One pass without a branch, which is the whole cost of judging a batch
    that is in order (`core.sources.judge_next`).
    """
    back = ts[0] < low
    for i in range(np.uint64(len(ts) - 1)):
        back |= ts[i + np.uint64(1)] < ts[i]
    return back
