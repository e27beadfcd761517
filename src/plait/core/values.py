"""Keys of any type and any size as numbers: equal values get equal numbers, on both sides of a join.

The rule: *two values are equal if Python's are*: moments, days and spans are whole microseconds, however many bits these
need; where one side is of floats, both are; NULL and NaN equal nothing. Arrow's own casts refuse moments beyond 64 bits of
microseconds, which a second's type can hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.aggregate.columns import one_array, user_values


def distinct_values(column: Any, *, as_float: bool) -> tuple[np.ndarray, list[Any]]:
    """The place of each row's value among the different ones, and these. A NULL has the place after the last."""
    column = one_array(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    encoded = pc.dictionary_encode(column)
    values = user_values(encoded.dictionary)
    if as_float:
        values = [None if v is None else float(v) for v in values]
    return pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False), values


def key_codes(column: Any, known: dict[Any, int], *, as_float: bool) -> np.ndarray:
    """A number for each row's value, the same as `known` has for it, which learns new ones; -1 for NULL and NaN."""
    places, values = distinct_values(column, as_float=as_float)
    codes = [-1 if v is None or v != v else known.setdefault(v, len(known)) for v in values]
    found: np.ndarray = np.array([*codes, -1], np.int64)[places]
    return found
