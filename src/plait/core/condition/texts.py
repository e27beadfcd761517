"""Functions of text over whole columns, by Arrow; and where Arrow and Python differ, as Python has them.

Text is codes everywhere else (`columns`). Here it is text: what a condition says about it (`like`, `length`, `lower` ...) is
computed before pairs are made, of one side's rows, and becomes a column like any other. Only text that is put together of both
rows of a pair is computed pair by pair (`judge`).

Every function is tried against the reference on random texts, in every layout, in tests/core/condition/test_texts.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.condition.columns import Interner, column
from plait.core.condition.evaluate import Array, evaluate, truth
from plait.query.condition.expression import Case, Column, Concat, Expr, Literal, Text
from plait.query.condition.regular import extracting, re2

Strings = Callable[[Expr], Any]


class Texts:
    """Expressions over one set of rows, those of text among them.

    `strings` gives the Arrow column of an expression whose text or bytes are there already, None of others; `known` has the
    arrays of all columns. What is computed on the way is added to `known`. `rows` is how many rows there are.
    """

    def __init__(self, strings: Strings, known: dict[Expr, Array], interner: Interner, rows: int) -> None:
        self.strings, self.known, self.interner, self.rows = strings, known, interner, rows

    def value(self, expr: Expr) -> Array:
        """The values of an expression; those of text are codes."""
        return evaluate(expr, self._lookup, self.interner.code)

    def _lookup(self, expr: Expr) -> Array | None:
        found = self.known.get(expr)
        if found is None and isinstance(expr, (Text, Concat)):
            found = self.known[expr] = column(self.text(expr), self.interner, "text")
        return found

    def text(self, expr: Expr) -> pa.Array:
        """What an expression says, as Arrow has it: text, bytes, or the result of a function of text."""
        if (given := self.strings(expr)) is not None:
            return widened(given)
        match expr:
            case Literal(value):
                return pa.repeat(pa.scalar(value, pa.large_binary() if isinstance(value, bytes) else _WIDE), self.rows)
            case Text(op, arg, constants):
                return _FUNCTIONS[op](self.text(arg), *constants)
            case Concat(parts):
                return pc.binary_join_element_wise(*(self.text(part) for part in parts), pa.scalar("", _WIDE))
            case Case(branches, otherwise):
                return self._chosen([(truth(self.value(c)), self.text(v)) for c, v in branches], self.text(otherwise))
            case _:
                raise AssertionError(f"{expr} is no text")

    def _chosen(self, branches: list[tuple[np.ndarray, pa.Array]], found: pa.Array) -> pa.Array:
        """The value of the first branch whose condition is true. A NULL of no type takes that of the others."""
        kinds = {value.type for _, value in branches} | {found.type}
        kind = pa.large_binary() if pa.large_binary() in kinds else _WIDE
        found = _typed(found, kind)
        for true, value in reversed(branches):
            found = pc.if_else(pa.array(np.broadcast_to(true, self.rows)), _typed(value, kind), found)
        return found


def of_rows(rows: pa.RecordBatch | pa.Table) -> Strings:
    """The columns of a batch."""

    def strings(expr: Expr) -> Any:
        return rows.column(expr.name) if isinstance(expr, Column) else None

    return strings


_WIDE = pa.large_string()


def widened(values: Any) -> pa.Array:
    """Text or bytes in the one layout that every function here knows, its first byte at 0.

    Of text whose first offset is not 0 some of Arrow's functions give arrays that point beyond their bytes.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    kind = values.type
    raw = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    values = values.cast(pa.large_binary() if raw else _WIDE)
    return pa.concat_arrays([values]) if values.offset or _begins(values) else values


def _begins(values: pa.Array) -> bool:
    """Whether the first text does not begin with the first byte."""
    offsets = values.buffers()[1]
    return len(values) > 0 and offsets is not None and np.frombuffer(offsets, np.int64, 1)[0] != 0


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Only NULL has another type than the rest: types were checked when the query was bound.
    return values if values.type == kind else pa.nulls(len(values), kind)


def _cased(values: pa.Array, ascii: Any, python: Callable[[str], str]) -> pa.Array:
    """Letters of another case. Of ASCII Arrow's answer is everybody's; of the rest Python's is, each distinct text once."""
    if pc.all(pc.string_is_ascii(values), skip_nulls=True).as_py() is not False:
        return ascii(values)
    coded = values.dictionary_encode()
    mapped = pa.array([python(each) for each in coded.dictionary.to_pylist()], _WIDE)
    return mapped.take(coded.indices)


def _substring(values: pa.Array, start: int, length: int | None) -> pa.Array:
    first = start - 1 if start > 0 else start
    last = None if length is None else first + length
    # Counted from the end, a place at or after 0 is beyond the last character.
    last = None if start < 0 and last is not None and last >= 0 else last
    return pc.utf8_slice_codeunits(values, first, last)


def _split(values: pa.Array, separator: str, part: int, missing: str | None) -> pa.Array:
    """One part of each text, `part` counted from 0, or from the end below 0."""
    parts = pc.split_pattern(values, separator)
    offsets = np.asarray(parts.offsets)
    first, end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    at = (first if part >= 0 else end) + part
    there = (at >= first) & (at < end)
    found = parts.values.take(pa.array(at, mask=~there))
    if missing is not None:
        found = found.fill_null(missing)
    return pc.if_else(values.is_valid(), found.cast(_WIDE), pa.scalar(None, _WIDE))


def _extracted(values: pa.Array, pattern: str, group: int) -> pa.Array:
    found = pc.struct_field(pc.extract_regex(values, extracting(pattern, group)), [0]).cast(_WIDE)
    return pc.if_else(values.is_valid(), found.fill_null(""), pa.scalar(None, _WIDE))


_FUNCTIONS: dict[str, Callable[..., pa.Array]] = {
    "matches": lambda values, pattern: pc.match_substring_regex(values, re2("matches", pattern)),
    "like": lambda values, pattern: pc.match_substring_regex(values, re2("like", pattern)),
    "contains": pc.match_substring,
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "length": lambda values: pc.utf8_length(values).cast(pa.int64()),
    "ascii_lower": pc.ascii_lower,
    "lower": lambda values: _cased(values, pc.ascii_lower, str.lower),
    "upper": lambda values: _cased(values, pc.ascii_upper, str.upper),
    "trim": pc.utf8_trim,
    "ltrim": pc.utf8_ltrim,
    "rtrim": pc.utf8_rtrim,
    "substring": _substring,
    "split_part": lambda values, separator, part: _split(values, separator, part - (part > 0), ""),
    "split_at": lambda values, separator, part: _split(values, separator, part, None),
    "replace": lambda values, old, new: pc.replace_substring(values, old, new),
    "regexp_extract": _extracted,
}
