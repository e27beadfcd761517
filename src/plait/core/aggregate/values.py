"""Partial panes of functions that compare values: how many different ones there are, the least or the greatest of text.

Their part of a pane is a list of values, no NULL among them: those that differ, the one that is ahead, or all. A window's list is
its panes' lists one after another, of which `lists` computes what it does of a window's rows.

Why lists: the number of different values of two panes is not the sum of the panes' numbers, and text has no fixed width
for a slot. The list of a pane is as short as the function allows: `min` keeps one value, `distinct` each value once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.aggregate.columns import is_fixed, plain
from plait.core.values import one_array
from plait.encodings import recast
from plait.schema import takeable

#: Of values by their slot and their code, a place in a dictionary of which no two are equal: those that are kept. The last number
#: is how many slots there are.
Chosen = Callable[[np.ndarray, np.ndarray, pa.Array, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Values:
    """The part of a pane that a function keeps as a list of values.

    serves  whether it can be so for a column of a type
    chosen  which of a slot's values are kept, in order of slots
    """

    serves: Callable[[pa.DataType], bool]
    chosen: Chosen

    def type(self, kind: pa.DataType) -> pa.DataType | None:
        """The type of its column in partial panes; None where it has none."""
        kind = takeable(plain(kind))
        return pa.list_(kind) if self.serves(kind) else None

    def lists(self, slot: np.ndarray, values: pa.Array, slots: int) -> pa.Array:
        """For each slot a list, of its values. A slot below zero is nobody's.

        `slot` is the slot of each value, `slots` how many there are. Out comes a list column with one entry a slot, empty
        where the slot has no value. NULLs are left out; 0.0 stands for -0.0 and one NaN for all.
        """
        values = one_array(values)
        values = recast(values, takeable(values.type))
        there = np.flatnonzero(np.asarray(values.is_valid()) & (slot >= 0))
        slot, values = slot[there], _normal(values.take(pa.array(there)))
        encoded = pc.dictionary_encode(values)
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        slot, codes = self.chosen(slot, codes, encoded.dictionary, slots)
        offsets = np.concatenate(([0], np.cumsum(np.bincount(slot, minlength=slots))))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), encoded.dictionary.take(pa.array(codes)))


def _is_text(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _different(slot: np.ndarray, codes: np.ndarray, known: pa.Array, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of a slot and a code once, by slot and then by code."""
    number = max(len(known), 1)
    pairs = np.unique(slot * number + codes)
    return pairs // number, pairs % number


def _every(slot: np.ndarray, codes: np.ndarray, known: pa.Array, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """All of them, by slot: who sorts them later asks for no order here."""
    by_slot = np.argsort(slot, kind="stable")
    return slot[by_slot], codes[by_slot]


def _ahead(order: str) -> Chosen:
    """The one that is first in Arrow's order, which of text is that of its bytes."""

    def chosen(slot: np.ndarray, codes: np.ndarray, known: pa.Array, slots: int) -> tuple[np.ndarray, np.ndarray]:
        ahead = pc.array_sort_indices(known, order=order).to_numpy()
        rank = np.empty(len(known), np.int64)
        rank[ahead] = np.arange(len(known))
        best = np.full(slots, len(known))
        np.minimum.at(best, slot, rank[codes])
        slot = np.flatnonzero(best < len(known))
        return slot, ahead[best[slot]]

    return chosen


def _is_comparable(kind: pa.DataType) -> bool:
    return is_fixed(kind) or _is_text(kind)


DIFFERENT = Values(_is_comparable, _different)
EVERY = Values(_is_comparable, _every)
LEAST, GREATEST = Values(_is_text, _ahead("ascending")), Values(_is_text, _ahead("descending"))


def spread(slot: np.ndarray, part: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """The values of all lists, and the slot of each."""
    part = one_array(part)
    sizes = pc.fill_null(pc.list_value_length(part), 0).to_numpy(zero_copy_only=False)
    return np.repeat(slot, sizes), part.flatten()


def _normal(values: pa.Array) -> pa.Array:
    """Values that count as one are one: 0.0 and -0.0, and all that are no number."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.to_numpy(zero_copy_only=False) + values.type.to_pandas_dtype()(0)
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers, values.type)
