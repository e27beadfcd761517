"""Copying pieces of bytes: the texts of some rows, one after the other, from where they lie to where they are wanted."""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry


@entry
def copy_pieces(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """Piece k of `data`, from `starts[k]` on, becomes out[ends[k] : ends[k + 1]]."""
    for k in range(len(starts)):
        at = starts[k]
        for to in range(ends[k], ends[k + 1]):
            out[to] = data[at]
            at += 1
