"""Numbers written as text: what a column of floats makes of them.

The rule (`values` has it in full): *a value comes in as it is, or is refused.* Digits are rounded to the nearest float, as
Python's literals are: that is what a column of floats means. Two things are no rounding, and are refused:

- A number becomes infinite because it is beyond its column's type. (The words for infinity are infinite.)
- A whole number becomes another one in a column that nobody has declared: its first rows suggested floats, but text of digits
  alone may just as well be a name, and two of them would become one.

A parsed block shows which rows may be concerned (`suspects`); only their text is looked at.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import DataError

_WORDS = ("inf", "infinity", "nan")
_WHOLE = re.compile(r"[+-]?\d+")


def suspects(column: pa.Array, guessed: bool) -> np.ndarray:
    """The rows of a column of floats that may have been changed; `guessed`: nobody has declared its type."""
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        found = np.isinf(values)
        return np.flatnonzero(found | (np.abs(values) >= 2.0**53) if guessed else found)


def check(text: str, stored: float, kind: pa.DataType, guessed: bool, what: str) -> None:
    """Refuse a number that is another one in its column. `what` begins the error: file, row, line and column."""
    text = text.strip()
    if text.lower().lstrip("+-") in _WORDS:
        return
    if np.isinf(stored):
        raise DataError(
            f"{what} is {text}, which is beyond {kind}",
            why="it would become infinite, and nothing is converted silently",
            do="Mend the row, or declare a wider type (float64, a decimal) with schema=",
        )
    if guessed and _WHOLE.fullmatch(text) and int(text) != int(stored):
        raise DataError(
            f"{what} is {text}, a whole number that {kind} does not have",
            why=f"as its first rows show it, the column holds floats; it would become {int(stored)}",
            do="Declare the column with schema=, as decimal128(38, 0), uint64 or string, or as float64 to have it rounded",
        )
