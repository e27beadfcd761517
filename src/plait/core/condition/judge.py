"""Judging pairs without a kernel: trees on Python's integers, functions by calling them.

This is the slow path, and always right: whatever machine words can't hold, or `proof` can't prove, is judged here, on
threads and on Spark alike. A function is called with the values that the reference gives it: Python's own int, float,
bool, str and bytes, made anew for each row (text is no number here), and only on pairs of rows that are both alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.condition import opaque
from plait.core.condition.columns import Interner, column
from plait.core.condition.evaluate import Array, evaluate, truth
from plait.core.condition.leaves import Shape
from plait.core.condition.texts import Texts
from plait.errors import PlaitError, RunError
from plait.query.condition.expression import Expr

BLOCK = 1 << 16  # pairs judged at once

Columns = dict[str, np.ndarray]
Words = Any  # of both sides, each leaf's word; see `words.Signature`


@dataclass(frozen=True)
class Judge:
    """`wide` turns what is stored of a leaf of word `object` into an array of Python's integers.

    Much slower than a kernel: NumPy over blocks of pairs, or a call of Python's a pair. So it serves what no kernel may:
    integers beyond 64 bits, and functions that are not proven.
    """

    shape: Shape
    interner: Interner
    wide: Callable[[np.ndarray], np.ndarray] = lambda values: values

    def hits(self, words: Words, sides: tuple[Columns, Columns], rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Which pairs match: the k-th is left row `rows[0][k]` with right row `rows[1][k]`. All of them are alive.

        `words[side][k]` is how leaf k is stored; `sides[side]` are stored columns by name (`leaf0`, `mask0`, ...);
        `rows[side]` are int64 positions in them, one a pair. Gives booleans, one a pair. An empty list of pairs gives an
        empty array.
        """
        if self.shape.opaque:
            return self._called(words, sides, rows)
        known: dict[Expr, Array] = {}
        for side in (0, 1):
            for k, leaf in enumerate(self.shape.leaves[side]):
                data, mask = sides[side][f"leaf{k}"][rows[side]], sides[side].get(f"mask{k}")
                valid = None if mask is None else mask[rows[side]] != 0
                if words[side][k] == "tri":
                    data, valid = data == 1, data != 2
                elif words[side][k] == "object":
                    data = self.wide(data)
                known[leaf.expr] = Array(leaf.kind, data, valid)
        hit = np.ones(len(rows[0]), bool)
        values = self._of_text(known, len(hit)) if self.shape.joins_text else self._of_numbers(known)
        for part in self.shape.terms.pair:
            hit = hit & truth(values(part))
        return hit

    def _of_text(self, known: dict[Expr, Array], pairs: int) -> Callable[[Expr], Array]:
        """Expressions that put text of both rows together. Codes are of these pairs alone: the window's interner has its own
        thread, and what is made of two rows is no row's.
        """
        own, strings = Interner(self.shape.literals), {}
        for expr, array in known.items():
            if array.kind in ("text", "bytes"):
                there = np.ones(pairs, bool) if array.valid is None else array.valid
                found = [
                    self.interner.value(c) if ok else None for c, ok in zip(array.data.tolist(), there, strict=True)
                ]
                strings[expr] = pa.array(found, pa.large_string() if array.kind == "text" else pa.large_binary())
                known[expr] = column(strings[expr], own, "text")
        return Texts(strings.get, known, own, pairs).value

    def _of_numbers(self, known: dict[Expr, Array]) -> Callable[[Expr], Array]:
        return lambda expr: evaluate(expr, known.get, self.interner.code)

    def _called(self, words: Words, sides: tuple[Columns, Columns], rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The verdicts of the user's function. A row's values are made once for all its pairs. An error of the user's
        function stops the run, with the function's name.
        """
        function = opaque.function_of(self.shape)
        given, which = [], []
        for side in (0, 1):
            own, back = np.unique(rows[side], return_inverse=True)
            names = [leaf.expr.name for leaf in self.shape.leaves[side]]  # type: ignore[union-attr]  # columns, all of them
            values = [self._values(words[side][k], sides[side][f"leaf{k}"][own]) for k in range(len(names))]
            tuples = zip(*values, strict=True) if values else iter([()] * len(own))
            given.append([GivenRow(dict(zip(names, row, strict=True))) for row in tuples])
            which.append(back.reshape(-1).tolist())
        left, right = given
        try:
            verdicts = [bool(function(left[i], right[j])) for i, j in zip(*which, strict=True)]
        except PlaitError:
            raise
        except Exception as error:
            raise failed(self.shape, error) from error
        return np.array(verdicts, bool)

    def _values(self, word: str, data: np.ndarray) -> list[Any]:
        if word == "tri":
            return (data == 1).tolist()  # type: ignore[no-any-return]
        if word == "code":
            return [self.interner.value(code) for code in data.tolist()]
        return (self.wide(data) if word == "object" else data).tolist()  # type: ignore[no-any-return]


class GivenRow:
    """A row for a user's function: `row.column`, `row["column"]`; as `reference.rows.View`, of the columns it reads."""

    __slots__ = ("__values",)  # mangled: a column may be called anything else

    def __init__(self, values: dict[str, Any]) -> None:
        self.__values = values

    def __getitem__(self, name: str) -> Any:
        return self.__values[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__values[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}") from None


def failed(shape: Shape, error: BaseException | None) -> RunError:
    """What a run says when a user's function raised on a pair."""
    function = opaque.function_of(shape)
    said = "an error" if error is None else f"{type(error).__name__}: {error}"
    return RunError(
        f"The condition {function.__name__!r} ({opaque.place(function.__code__)}) raised {said}, on a pair of rows",
        why="a pair whose condition fails has no answer, so the run stops",
        do="Make the function return False, or True, for such a pair; `reference` shows which one it is",
    )


def blocks(lo: np.ndarray, hi: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All (probe, row) with lo[probe] <= row < hi[probe], by probe, then by row, at most BLOCK of them at a time.

    `lo` and `hi` are int64 by probe. Two arrays of int64 come each time. An empty range (lo >= hi) has no pair.
    """
    sizes = np.maximum(hi - lo, 0)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, BLOCK):
        at = np.arange(first, min(first + BLOCK, total))
        probe = np.searchsorted(ends, at, "right")
        yield probe, at - (ends - sizes)[probe] + lo[probe]
