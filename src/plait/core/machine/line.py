"""Words that threads share: how far apart they lie if different threads write them, and where they lie at all.

Two cache lines apart, since processors fetch lines in pairs.
"""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any, Final

import numpy as np

LINE: Final = 16  # words of 64 bits
_OWN_PAGES = 1 << 17  # bytes from which on an array has pages of its own


def pages(shape: int | tuple[int, ...], kind: Any = np.int64) -> np.ndarray:
    """A zeroed array for room that may never be used: the system gives its pages when they are first written.

    NumPy's zeros promise that only as long as no large array was freed: what malloc has had back it gives again, and writes
    zeros over all of it. A run has tens of megabytes of such room, and a short one touches little of it.
    """
    dtype = np.dtype(kind)
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    if count * dtype.itemsize < _OWN_PAGES or dtype.hasobject or sys.platform == "win32":
        return np.zeros(shape, dtype)
    own = mmap.mmap(-1, count * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(own, dtype, count).reshape(shape)


def lines(words: int) -> np.ndarray:
    """Zeroed words that begin on a line's border; the system gives pages for them when they are first written."""
    raw = pages(words + LINE)
    skip = (-raw.ctypes.data % (8 * LINE)) // 8
    return raw[skip : skip + words]


def address(array: np.ndarray) -> int:
    """Where an array lies, for compiled code to find it; whoever takes it keeps the array alive."""
    return int(array.ctypes.data)
