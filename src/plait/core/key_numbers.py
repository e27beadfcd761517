"""Numbers for keys as they come, batch after batch: equal keys have equal numbers, and no others do.

What is equal is said in `core.values`.

Two compiled tables serve all types. Text and bytes are compared as bytes, all else as two 64-bit words: an integer of up to 128
bits, since moments may need more than 64 bits of microseconds, or a float's normal bits. Keys of several columns are their
columns' numbers, as words again.

    ByteNumbers   numbers for strings of bytes
    WordNumbers   numbers for rows of words
    KeyNumbers    numbers for keys of one or several columns, of any types

What Arrow has no cheap way to words for goes by Python's values, each different one of a batch once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.kernels import groups, texts
from plait.core.values import Form, distinct_values, normal_bits, one_array
from plait.encodings import one_piece, recast
from plait.schema import takeable

_FIRST = 1 << 10  # numbers that there is room for, at first
_BY_VALUE = np.empty(0, np.int64)  # no key is looked up by its value


class ByteNumbers:
    """Numbers from 0 on, in the order in which strings of bytes come for the first time. All are kept.

    `_table` is twice as long as `_hashes`, which has room for as many numbers as there may be before it grows.
    """

    def __init__(self) -> None:
        self._hashes = np.zeros(_FIRST, np.uint64)
        self._table = np.zeros(2 * _FIRST, np.int64)
        self._ends = np.zeros(_FIRST + 1, np.int64)
        self._kept = np.zeros(16 * _FIRST, np.uint8)
        self._count = np.zeros(1, np.int64)

    def of(self, column: pa.Array) -> np.ndarray:
        """The numbers of a column of text or bytes, -1 for NULL."""
        n, (_, offsets, data) = len(column), column.buffers()
        out, done = np.empty(n, np.int64), 0
        if n == 0:
            return out
        wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        ends = np.frombuffer(offsets, np.int64 if wide else np.int32)[column.offset : column.offset + n + 1].astype(
            np.int64
        )
        raw, there = np.frombuffer(data or b"\0", np.uint8), _there(column).astype(np.uint8)
        while True:
            done = int(texts.number_pieces(
                raw, ends, there, done, self._table, self._hashes, self._kept, self._ends, self._count, out
            ))  # fmt: skip
            if done == n:
                return out
            self._grow(int(ends[done + 1] - ends[done]))

    def _grow(self, size: int) -> None:
        """Room for another one of so many bytes."""
        known = int(self._count[0])
        if known == len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.zeros(known, np.uint64)])
            self._ends = np.concatenate([self._ends, np.zeros(known, np.int64)])
            self._table = np.zeros(4 * known, np.int64)
            texts.enter_pieces(self._hashes, known, self._table)
        taken = int(self._ends[known])
        if taken + size > len(self._kept):
            kept = np.zeros(2 * (taken + size), np.uint8)
            kept[:taken] = self._kept[:taken]
            self._kept = kept


class WordNumbers:
    """The same for rows of so many 64-bit words, by the table that groups of aggregates have (`core.kernels.groups`)."""

    def __init__(self, words: int) -> None:
        self._kept = np.zeros((words, _FIRST), np.int64)
        self._table = np.zeros(2 * _FIRST, np.int64)
        self._known = 0

    def of(self, words: np.ndarray, there: np.ndarray) -> np.ndarray:
        """The numbers of rows, each a column of `words`; -1 where `there` is false."""
        every = bool(there.all())
        asked = words if every else np.ascontiguousarray(words[:, there])
        n = asked.shape[1]
        self._make_room(n)
        # Numbers that nobody has, the least one last, since the last is taken first.
        free = np.arange(self._known, self._known + n)[::-1].copy()
        found = np.empty(n, np.int64)
        self._known += n - int(groups.look_up(asked, 0, n, 0, self._table, self._kept, free, n, _BY_VALUE, found))
        if every:
            return found
        out = np.full(len(there), -1)
        out[there] = found
        return out

    def _make_room(self, n: int) -> None:
        """Each of n rows may be new."""
        capacity = self._kept.shape[1]
        while capacity - self._known < n:
            capacity *= 2
        if capacity == self._kept.shape[1]:
            return
        kept = np.zeros((len(self._kept), capacity), np.int64)
        kept[:, : self._known] = self._kept[:, : self._known]
        self._kept, self._table = kept, np.zeros(2 * capacity, np.int64)
        groups.rebuild(kept, (np.arange(capacity) < self._known).astype(np.uint8), self._table)


class KeyNumbers:
    """Numbers for keys of several columns; -1 where NULL or NaN keeps a key from equalling any.

    For batches that come one after another (as-of joins): a key has the same number in every batch. `forms` are by
    column. It keeps every key it has seen.
    """

    def __init__(self, forms: Sequence[Form]) -> None:
        self._columns = [_Column(form) for form in forms]
        self._keys = WordNumbers(max(len(forms), 1))

    def of(self, columns: Sequence[Any], n: int) -> np.ndarray:
        """The numbers of `n` rows, of which these are the columns.

        int64 by row. Without columns all rows have the key 0: they are all equal.
        """
        if not columns:
            return np.zeros(n, np.int64)
        parts = [known.of(one_piece(column)) for known, column in zip(self._columns, columns, strict=True)]
        if len(parts) == 1:
            return parts[0]
        found = np.stack(parts)
        return self._keys.of(found, np.asarray((found >= 0).all(axis=0)))


class _Column:
    """Numbers for one column's values; -1 for NULL and NaN. Both sides' types are of one form (`values.compared_as`)."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._texts, self._words = ByteNumbers(), WordNumbers(2)

    def of(self, column: pa.Array) -> np.ndarray:
        kind = column.type
        if pa.types.is_dictionary(kind):
            # Each entry once. Two entries may be equal, and some NULL: their numbers say so.
            entries, codes = np.append(self.of(column.dictionary), -1), column.indices
            if codes.null_count:
                codes = pc.fill_null(codes.cast(pa.int64()), -1)
            found: np.ndarray = entries.take(codes.to_numpy(zero_copy_only=False))
            return found
        if pa.types.is_null(kind):
            return np.full(len(column), -1)
        if self._form == "value" and not pa.types.is_boolean(kind):
            return self._texts.of(recast(column, takeable(kind)))
        if self._form == "float" and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            values = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)
            return self._words.of(_wide(normal_bits(values)), ~np.isnan(values))
        if self._form == "int" and pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
            values = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            return self._words.of(_wide(values), _there(column))
        return self._by_value(column)

    def _by_value(self, column: pa.Array) -> np.ndarray:
        """The same by Python's values, as the words that a quicker way would have."""
        as_float = self._form == "float"
        places, values = distinct_values(one_array(column), as_float=as_float)
        there = np.array([v is not None and v == v for v in values], bool)
        if as_float:
            words = _wide(
                normal_bits(np.array([v if ok else 0.0 for v, ok in zip(values, there, strict=True)], np.float64))
            )
        else:
            whole = [int(v) if ok else 0 for v, ok in zip(values, there, strict=True)]
            low = np.array([v & (2**64 - 1) for v in whole], np.uint64).view(np.int64)
            words = np.stack([low, np.array([v >> 64 for v in whole], np.int64)])
        found: np.ndarray = np.append(self._words.of(words, there), -1)[places]
        return found


def _wide(values: np.ndarray) -> np.ndarray:
    """64-bit integers as two words: the number, and what stands above it."""
    return np.stack([values, values >> 63])


def _there(column: pa.Array) -> np.ndarray:
    """Which values are not NULL."""
    if column.null_count == 0:
        return np.ones(len(column), bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
