"""Words that threads share: how far apart they lie if different threads write them, and where they lie at all.

Two cache lines apart, since processors fetch lines in pairs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

LINE: Final = 16  # words of 64 bits


def lines(words: int) -> np.ndarray:
    """Zeroed words that begin on a line's border; the system gives pages for them when they are first written."""
    raw = np.zeros(words + LINE, np.int64)
    skip = (-raw.ctypes.data % (8 * LINE)) // 8
    return raw[skip : skip + words]


def address(array: np.ndarray) -> int:
    """Where an array lies, for compiled code to find it; whoever takes it keeps the array alive."""
    return int(array.ctypes.data)
