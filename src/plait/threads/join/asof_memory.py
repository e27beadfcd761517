"""What a worker of an as-of join keeps: the last right tuples of each value, and left tuples that wait for later ones.

Everything lies in arrays of int64 words, which the worker's loop finds by a block of their addresses (`loop.words.ASOF`).

    table   a line for each value's number, or each of this worker's: its last right tuple, one before it, and the newest left
            tuple that waits for it
    ring    left tuples that wait, by their places: the n-th that came lies at n modulo the ring's size
    heap    places of those that wait, the next to be decided first

Only the worker itself changes them. Python grows them while the worker is outside of its loop; what they hold stays.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plait.core.machine.line import address, pages
from plait.query.join import DIRECTIONS, Asof
from plait.threads.join.loop import words as o

# --- the block: what is asked for, set before the worker starts; then addresses and counts ---------------------------
DIRECTION: Final = 0  # a place in `DIRECTIONS`
EXACT: Final = 1
ONE_STREAM: Final = 2  # 1 if both sides are one stream: a tuple is no candidate for itself
RIGHT_FIRST: Final = 3  # 1 if at one ts the gate has right tuples before left ones
KEEPS_OTHER: Final = 4  # 1 if the last right tuple of a value may be none for a left one, and another then is
TABLE: Final = 5
CODES: Final = 6  # how many values the table has lines for
RING: Final = 7
MASK: Final = 8
HEAD: Final = 9  # places of left tuples that may wait: from HEAD up to TAIL; those below HEAD are out
TAIL: Final = 10
HEAP: Final = 11
HEAPED: Final = 12
BY_VALUE: Final = 13  # 1 if values are shared among workers, each one's lines its own
BLOCK_WORDS: Final = 16

BACKWARD, FORWARD, NEAREST = (DIRECTIONS.index(word) for word in ("backward", "forward", "nearest"))

# --- a line of the table: ts, reference, and number in its stream plus one (0: none yet), of two right tuples --------
T_TS, T_REF, T_ID, T_OTHER, T_OTHER_REF, T_OTHER_ID, T_LIST = range(7)
T_WORDS: Final = 8  # T_LIST: the place of the newest left tuple that waits, plus one; 0: none

# --- a left tuple in the ring ------------------------------------------------------------------------------------
# R_DUE: when it is decided, as far as is known; R_RIGHT: by which right tuple (NO_ROW: none); R_PREV: the one that waits for
# the same value and came before it, plus one; R_PLACE: where it is in the heap, OUT once it was given out.
R_TS, R_REF, R_ID, R_DUE, R_RIGHT, R_PREV, R_PLACE = range(7)
R_WORDS: Final = 8
OUT: Final = -1

FIRST_CODES = 1 << 12
FIRST_WAITING = 1 << 10


def right_first(node: Asof) -> bool:
    """Whether at one ts right tuples come before left ones, inside of the executor.

    A left tuple then finds those of its own ts behind it, and none of them ahead. That is what `exact` asks for when looking
    back, and what the lack of it asks for when looking ahead.
    """
    return node.direction == "nearest" or node.exact == (node.direction == "backward")


class AsofMemory:
    """One worker's. `block` is what compiled code gets; the arrays are kept alive here."""

    def __init__(self, node: Asof, *, by_value: bool = False) -> None:
        self.one_stream = node.one_stream
        self.block = b = np.zeros(BLOCK_WORDS, np.int64)
        b[DIRECTION], b[EXACT], b[ONE_STREAM] = DIRECTIONS.index(node.direction), node.exact, node.one_stream
        b[RIGHT_FIRST], b[BY_VALUE] = right_first(node), by_value
        # The last one may be the left tuple itself; or, looking both ways, one of its own ts that is not wanted.
        b[KEEPS_OTHER] = b[RIGHT_FIRST] and (node.one_stream or not node.exact)
        self.table = pages((FIRST_CODES, T_WORDS))
        waiting = FIRST_WAITING if node.waits else 1
        self.ring = pages((waiting, R_WORDS))
        self.heap = pages(waiting)
        self._name()

    def _name(self) -> None:
        b = self.block
        b[TABLE], b[CODES] = address(self.table), len(self.table)
        b[RING], b[MASK], b[HEAP] = address(self.ring), len(self.ring) - 1, address(self.heap)

    def grow(self, code: int) -> None:
        """Room for this line; or, if it is -1, for more left tuples that wait."""
        if code >= 0:
            codes = len(self.table)
            while codes <= code:
                codes *= 2
            table = np.zeros((codes, T_WORDS), np.int64)
            table[: len(self.table)] = self.table
            self.table = table
        else:
            size = len(self.ring)
            places = np.arange(int(self.block[HEAD]), int(self.block[TAIL]))
            ring = np.zeros((2 * size, R_WORDS), np.int64)
            ring[places & (2 * size - 1)] = self.ring[places & (size - 1)]
            heap = np.zeros(2 * size, np.int64)
            heap[:size] = self.heap
            self.ring, self.heap = ring, heap
        self._name()

    def named(self, side: int) -> np.ndarray:
        """References of the rows of a side that a later result may name: those in the table, and what waits."""
        places = np.arange(int(self.block[HEAD]), int(self.block[TAIL])) & (len(self.ring) - 1)
        waiting: np.ndarray = self.ring[places][:, R_REF if side == 0 else R_RIGHT]
        if side == 0:
            return waiting
        found = [self.table[self.table[:, own] > 0, ref] for own, ref in ((T_ID, T_REF), (T_OTHER_ID, T_OTHER_REF))]
        return np.concatenate([waiting[waiting != o.NO_ROW], *found])

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.ring.nbytes + self.heap.nbytes
