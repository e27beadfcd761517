"""What the condition reads of a row, as typed columns, and the kernel that fits their types.

Rows are encoded once, by the thread that pushes them, several at once: what they share is the codes of text (and of integers
beyond 64 bits), whose table has a lock of its own (`Codes`), and how columns are stored, which changes only while nobody
writes rows (`input.push`). How a leaf is stored depends on the values seen so far
(`core.condition.words`): a value that does not fit, or the first NULL, widens its column. Then every worker stands still,
all columns are rewritten, and another kernel takes over; nothing is ever computed in a word that is not proved wide
enough. Where only Python is exact, the kernel is Python's too: slow, and right. Which kernel judges is a part of the
signature, so that a change of it alone, with every column stored as before, is a change like any other.

An example. No row so far has a NULL in a column that the condition reads, so no NULLs are stored and the kernel does
not ask for any. A push brings one. `admit` answers true before that row is written anywhere. `engine.Windows.widen`
then lets all workers stand still, rewrites what is stored, and takes another kernel; a column that is new has the
neutral value for rows that are there. Pairs that were compared before are not compared again: they were judged
exactly.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from plait.core.condition import native
from plait.core.condition.columns import Interner
from plait.core.condition.leaves import Shape
from plait.core.condition.leaves import shape as shape_of
from plait.core.condition.words import Signature
from plait.core.join.choice import check_index, dimensions, possible
from plait.core.join.encoded import LARGEST, EncodedRows, RowEncoder
from plait.core.join.match import Matcher
from plait.errors import QueryError
from plait.query.condition.predicate import Predicate
from plait.threads.input.short import Reads
from plait.threads.join.loop.words import MAX_COLS
from plait.threads.join.reads import reads_of

Column = tuple[str, str]  # name, NumPy type


class Kernels(Protocol):
    """A condition's kernels: `scans`, by side, and `verify`, each with an `address`."""

    @property
    def scans(self) -> tuple[Any, Any]: ...

    @property
    def verify(self) -> Any: ...

    @property
    def error(self) -> BaseException | None:
        """What was raised in a call that answered FAILED, where that is known."""


class Encoder:
    """One condition. `rows`, `fits` and `encoded` by any thread; `admit` and `widen` by one, while none writes rows.
    `plain` runs kernels in Python: nothing to compile, for tests.

    By side 0 and 1. `signature` is how columns are stored now; `_matcher.signature()` how the values seen so far ask for it.
    Where the two differ, `widen` has to be called before rows are written. `interner` gives text its codes, `exact` gives codes
    to integers beyond 64 bits. `first`: what came first, until `widen` is done with it. `has_node`: rows carry a key or
    coordinates for an index.
    """

    def __init__(self, predicate: Predicate, left: pa.Schema, right: pa.Schema, *, index: str,
                 cache_dir: str | os.PathLike[str] | None, plain: bool = False) -> None:  # fmt: skip
        self.shape: Shape = shape_of(predicate, left, right)
        check_index(index, self.shape)
        self.index, self.cache_dir, self.plain = index, cache_dir, plain
        self.dimensions = dimensions(self.shape)
        self.interner = Codes(self.shape.literals)
        self.encoder = RowEncoder(self.shape, self.dimensions, self.interner)
        self._matcher = Matcher(self.shape, self.interner, cache_dir=cache_dir)
        self.has_node = bool(self.dimensions or self.shape.terms.equalities)
        self.exact = Exact(self.interner)
        self._natives: dict[Signature, native.Native] = {}
        self.first: tuple[int, EncodedRows] | None = None  # the first rows of all, and their side
        self.signature = self._before = self._matcher.signature()
        self._check_room(self.signature)
        self._reads: dict[int, Reads | None] = {}  # until other values are seen

    @property
    def usual_index(self) -> str:
        """The index that `auto` takes where the window is large enough to be worth one."""
        return possible(self.shape)[0]

    @property
    def has_equality(self) -> bool:
        return bool(self.shape.terms.equalities)

    @property
    def has_bands(self) -> bool:
        return bool(self.shape.terms.bands)

    @property
    def names(self) -> tuple[str, str]:
        return self.shape.predicate.names[:2]

    @property
    def stamp(self) -> int:
        return self.interner.stamp

    def describe(self) -> list[str]:
        return self.shape.terms.describe() + self.signature.describe()

    def rows(self, side: int, batch: pa.RecordBatch, ts: np.ndarray) -> EncodedRows:
        """A batch's rows as the condition reads them, not yet as columns.

        The stamp is not below the one that the rows were kept with: whoever forgets by that finds their text in use.
        """
        self.interner.new_stamp()
        return self.encoder.rows(side, batch, ts)

    def fits(self, side: int, rows: EncodedRows) -> bool:
        return self._matcher.fits(side, rows)

    def admit(self, side: int, rows: EncodedRows) -> bool:
        """Take note of these rows' values; true if columns have to be stored in another way than before."""
        self.first = self.first or (side, rows)
        self._matcher.admit(side, rows, _NOWHERE)  # type: ignore[arg-type]
        self._reads.clear()
        signature = self._matcher.signature()
        self._check_room(signature)
        return signature != self.signature

    def _check_room(self, signature: Signature) -> None:
        """Refuse a condition that reads more of a row than a worker's memory has places for."""
        for side in (0, 1):
            wanted = len(native.columns(signature, side)) + signature.alive[side]
            if wanted > MAX_COLS:
                raise QueryError(
                    f"The condition reads {wanted} columns of {self.names[side]}",
                    why=f"on threads a join reads {MAX_COLS} of a row at most; one in which there is a NULL counts twice",
                    do="Compute a part of it before the join with select, or use query.run, Spark or the reference",
                )

    def columns(self, side: int) -> list[Column]:
        """The columns of a side, in the order of a kernel's block; `alive`, if it is there, comes last."""
        found = native.columns(self.signature, side)
        return [*found, ("alive", "uint8")] if self.signature.alive[side] else found

    def encoded(self, side: int, rows: EncodedRows) -> list[np.ndarray]:
        """Rows as those columns."""
        made = self._matcher.columns(side, rows)
        return [
            self.exact.codes(made[name]) if made[name].dtype == object else made[name] for name, _ in self.columns(side)
        ]

    def reads(self, side: int) -> Reads | None:
        """What the condition reads of a side's usual rows; by who writes rows, so that nothing is admitted meanwhile."""
        if side not in self._reads:
            self._reads[side] = reads_of(
                self.shape, self.dimensions, self.signature, self._matcher.intervals[side], side
            )
        return self._reads[side]

    def widen(self) -> tuple[list[list[Column]], list[list[Column]]]:
        """Adopt the new way; gives both sides' columns before and after."""
        self._reads.clear()
        before = [self.columns(0), self.columns(1)]
        self._before, self.signature = self.signature, self._matcher.signature()
        return before, [self.columns(0), self.columns(1)]

    def converted(self, old: np.ndarray | None, new: Column, side: int) -> np.ndarray | None:
        """A column's values in its new type; None if it did not exist: its rows have the neutral value, one."""
        if old is None:
            return None
        if new[0].startswith("leaf"):
            k = int(new[0][4:])
            if self.signature.words[side][k] == "object" != self._before.words[side][k]:
                return self.exact.codes(old)
        return old.astype(new[1])

    def preload(self) -> None:
        """Compile the kernels of what columns will be, if they are not on disk."""
        signature = self._matcher.signature()
        if self._called(signature) or self.plain:
            return
        try:
            found = self._native(signature)
            assert found.scans
            assert found.verify
        except Exception as error:  # whatever Numba has against it: nothing of the user's has run yet
            if not self.shape.opaque:
                raise
            self._matcher.give_up(error)

    def _called(self, signature: Signature) -> bool:
        """Whether Python judges: a function is called as it is where nothing is compiled."""
        return signature.in_python or (self.plain and self.shape.opaque)

    def kernels(self) -> Kernels:
        """To be kept as long as their addresses are used."""
        from plait.threads.join.python_kernels import ExactKernels, PlainKernels

        if self._called(self.signature):
            return ExactKernels(self)
        return PlainKernels(self) if self.plain else self._native(self.signature)

    def _native(self, signature: Signature) -> native.Native:
        if signature not in self._natives:
            self._natives[signature] = native.load(self.shape, signature, self.cache_dir)
        return self._natives[signature]

    def bands(self) -> np.ndarray:
        """Each dimension as `core.kernels.chains.probe_ranges` takes it: low, high, eps, weight, limit."""
        out = np.zeros((2, 5))
        for at, band in enumerate(self.dimensions):
            finite = sum(abs(b) for b in (band.low, band.high) if np.isfinite(b))
            out[at] = (band.low, band.high, band.eps, band.weight + finite, LARGEST[band.kind])
        return out

    def forget(self, stamp: int) -> None:
        """Give up the codes of text, and of integers beyond 64 bits, that only rows pushed before `stamp` hold."""
        self.interner.forget(stamp)
        self.exact.forget(stamp)


class _Nowhere:
    """Stands where a segment stands: the columns here are converted elsewhere."""

    def retype(self, name: str, kind: np.dtype) -> None:
        return


_NOWHERE = _Nowhere()


class Codes(Interner):
    """An interner that threads use at once: its table is changed by one at a time, and its stamp never falls."""

    def __init__(self, constants: Iterable[str | bytes] = ()) -> None:
        super().__init__(constants)
        self._table = threading.Lock()

    def new_stamp(self) -> int:
        with self._table:
            return super().new_stamp()

    def encode(self, values: list[Any]) -> np.ndarray:
        with self._table:
            return super().encode(values)

    def forget(self, stamp: int) -> None:
        with self._table:
            super().forget(stamp)


class Exact(Codes):
    """Integers beyond 64 bits as codes, for columns of machine words; kept as long as a row of the windows holds them.

    `clock` has the stamp of both: rows are kept with one.
    """

    def __init__(self, clock: Interner) -> None:
        super().__init__()
        self._clock = clock

    def encode(self, values: list[Any]) -> np.ndarray:
        with self._table:
            self.stamp = self._clock.stamp  # read in here, so that it never falls
            return Interner.encode(self, values)

    @property
    def values(self) -> dict[int, int]:
        return self._values

    def codes(self, values: np.ndarray) -> np.ndarray:
        """Of integers, which may repeat: a column that was made for many rows and has none yet is one value."""
        if values.dtype == object:
            return self.encode(values.tolist())
        distinct, at = np.unique(values, return_inverse=True)
        return self.encode(distinct.tolist())[at]

    def of(self, codes: np.ndarray) -> np.ndarray:
        found = np.empty(len(codes), object)
        found[:] = [self._values[code] for code in codes.tolist()]
        return found
