"""Partial panes of functions that compare values: how many different ones there are, the least or the greatest of text.

Their part of a pane is a list of values, no NULL among them: those that differ, or the one that is ahead. A window's list is
its panes' lists one after another, of which `lists` computes what it does of a window's rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.aggregate.columns import is_fixed, one_array, plain
from plait.layouts import recast
from plait.query.functions import Function
from plait.schema import takeable


def part_type(function: Function, schema: pa.Schema) -> pa.DataType | None:
    """The type of a function's column in partial panes; None if it is none of these functions."""
    if function.kind not in ("distinct", "min", "max"):
        return None
    kind = takeable(plain(schema.field(function.columns[0]).type))
    if function.kind == "distinct" and is_fixed(kind):
        return pa.list_(kind)
    return pa.list_(kind) if _is_text(kind) else None


def _is_text(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def lists(function: Function, slot: np.ndarray, values: pa.Array, slots: int) -> pa.Array:
    """For each slot a list: of its values, those that differ or the one that is ahead. A slot below zero is nobody's."""
    values = one_array(values)
    values = recast(values, takeable(values.type))
    there = np.flatnonzero(np.asarray(values.is_valid()) & (slot >= 0))
    slot, values = slot[there], _normal(values.take(pa.array(there)))
    encoded = pc.dictionary_encode(values)
    codes, known = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)
    if function.kind == "distinct":
        pairs = np.unique(slot * max(known, 1) + codes)
        slot, codes = pairs // max(known, 1), pairs % max(known, 1)
    else:
        # Arrow's order of text is that of its bytes.
        order = "ascending" if function.kind == "min" else "descending"
        ahead = pc.array_sort_indices(encoded.dictionary, order=order).to_numpy()
        rank = np.empty(known, np.int64)
        rank[ahead] = np.arange(known)
        best = np.full(slots, known)
        np.minimum.at(best, slot, rank[codes])
        slot = np.flatnonzero(best < known)
        codes = ahead[best[slot]]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(slot, minlength=slots))))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), encoded.dictionary.take(pa.array(codes)))


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
