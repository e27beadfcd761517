"""Functions that need all of a window's rows: collect, distinct, extremes of text, and users' own.

Every slot has a list of row numbers, in total order, one for all these functions that have the same condition; a window's list is
its panes' lists one after another. The rows lie in `KeptRows`. What is computed from a window's list is computed when the
window closes, for all windows of a batch at once where Arrow or compiled code can, else in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from plait import order
from plait.connectors.values import first_changed
from plait.core.aggregate import custom as users
from plait.core.aggregate.accumulators import Accumulator
from plait.core.aggregate.closed import Pairs
from plait.core.aggregate.columns import Read, plain
from plait.core.aggregate.kept import KeptRows
from plait.core.kernels import panes
from plait.core.values import one_array, user_values
from plait.encodings import stored
from plait.errors import DataError, user_raised
from plait.query.functions import Function
from plait.schema import takeable


class Lists(Accumulator):
    """Lists of row numbers: in a slot's row how many, the first node and the last.

    `slots` is an array of int64 with a row a slot: how many rows it lists, its first node and its last. Nodes are in
    three arrays of int64: `_ref`, the number of a row; `_next`, the node after it; `_free[:_left]`, nodes that nobody
    uses.

    A list is extended at its end in one step, and a tuple costs one node of 24 bytes besides its row in `KeptRows`. A
    slot of -1 (a tuple in no window) gets no node.
    """

    width = 3

    def __init__(self, condition: int | None = None) -> None:
        super().__init__()
        self.condition = condition
        self._ref = np.zeros(0, np.int64)
        self._next = np.zeros(0, np.int64)
        self._free = np.zeros(0, np.int64)
        self._left = 0

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        self.extend(low, high, self.seen(slot, read), refs)

    def extend(self, low: int, high: int, slot: np.ndarray, refs: np.ndarray) -> None:
        """Rows low to high, whose condition has been looked at, at the end of their slots' lists."""
        if self._left < high - low:
            self._grow(high - low)
        self._left = int(panes.chain(low, high, slot, refs, self._free, self._left, self._ref, self._next, self.slots))

    def _grow(self, n: int) -> None:
        old, capacity = len(self._ref), max(2 * len(self._ref), 4096)
        while self._left + capacity - old < n:
            capacity *= 2
        self._ref, self._next = (
            np.concatenate((a, np.zeros(capacity - old, np.int64))) for a in (self._ref, self._next)
        )
        free = np.zeros(capacity, np.int64)
        free[: self._left] = self._free[: self._left]
        free[self._left : self._left + capacity - old] = np.arange(old, capacity)
        self._free, self._left = free, self._left + capacity - old

    def clear(self, slots: np.ndarray) -> None:
        """Slots that came back into use: their lists were dropped already."""
        self.slots[slots] = 0

    def drop(self, slots: np.ndarray) -> None:
        """Slots that are in no window any more give their nodes back."""
        self._left = int(panes.unchain(len(slots), slots, self._next, self.slots, self._free, self._left))

    def listed(self, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """For each row of closed windows where its numbers begin (and at last where they end), and the numbers.

        `offsets` has one entry more than rows; the numbers of row k are out[offsets[k] : offsets[k + 1]], in total order.
        That holds because the pairs of a row list its slots in the order of panes, and a slot's own list is in total
        order.
        """
        sizes = np.bincount(pairs.targets, weights=self.slots[pairs.slots, 0], minlength=pairs.number).astype(np.int64)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        out = np.empty(int(offsets[-1]), np.int64)
        panes.list_chains(
            len(pairs), pairs.targets, pairs.slots, self._ref, self._next, self.slots, offsets[:-1].copy(), out
        )
        return offsets, out

    def refs(self, slots: np.ndarray) -> np.ndarray | None:
        """The rows of all nodes in use, whichever slots are asked about: nodes of dropped slots are free."""
        used = np.ones(len(self._ref), bool)
        used[self._free[: self._left]] = False
        return self._ref[used]

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes + self._ref.nbytes + self._next.nbytes + self._free.nbytes)


class Fold(Protocol):
    """Turns windows' lists (offsets, row numbers) into a column of results, text of views in its takeable type.

    `offsets` and `refs` are what `Lists.listed` gives; rows are taken from `rows` by number. One value a window comes
    back. A fold sees NULLs as they are, and decides by itself what they mean.
    """

    @property
    def how(self) -> str:
        """How it is computed, for `explain`."""

    def __call__(self, offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array: ...


@dataclass(frozen=True)
class Listed:
    """A fold, and the lists that it is given."""

    fold: Fold
    lists: Lists

    @property
    def how(self) -> str:
        return self.fold.how


@dataclass(frozen=True)
class Batched:
    """A fold of plait's own."""

    fold: Callable[[np.ndarray, np.ndarray, KeptRows], pa.Array]
    how = "over a window's rows when it closes, in batches"

    def __call__(self, offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        return self.fold(offsets, refs, rows)


def collect(column: str) -> Fold:
    """A list of all values, NULL among them, in total order. A list column has offsets of 32 bits: one batch of rows can
    hold 2^31 values.
    """

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), rows.take(refs, column))

    return Batched(folded)


def distinct(column: str) -> Fold:
    """How many different values there are that are not NULL. -0.0 counts as 0.0, and all NaN as one."""

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        values = one_array(rows.take(refs, column))
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        there = np.asarray(values.is_valid())
        codes = _codes(values)
        pairs = np.unique(np.stack((row[there], codes[there])), axis=1)
        return pa.array(np.bincount(pairs[0], minlength=len(offsets) - 1))

    return Batched(folded)


def _codes(values: pa.Array) -> np.ndarray:
    """Equal numbers for values that count as one.

    Floats by their bits after normalizing; everything else by `order.key_value`, which is what groups are told apart by.
    """
    kind = values.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        bits: np.ndarray = numbers.view(np.int64)
        return bits
    known: dict[Any, int] = {}
    return np.array([known.setdefault(order.key_value(v), len(known)) for v in stored(values).to_pylist()], np.int64)


def extreme(column: str, kind: pa.DataType, *, largest: bool) -> Fold:
    """The least or greatest text, by bytes, or None of none. Numbers never come here: they have `accumulators.Extreme`."""
    best = max if largest else min

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        values = one_array(rows.take(refs, column)).to_pylist()
        cuts = offsets.tolist()
        out = []
        for low, high in pairwise(cuts):
            own = [v for v in values[low:high] if v is not None]
            out.append(best(own, key=order.key_value) if own else None)
        made = pa.array(out, takeable(plain(kind)))
        return made.cast(kind) if pa.types.is_dictionary(kind) else made

    return Batched(folded)


class CustomFold:
    """A user's function. Compiled where that can't be seen in the result (`core.aggregate.custom`); `why` not, else.

    `compiled` is None where Python has to call `add` for every tuple; `why` is then the reason that `explain` shows.
    """

    def __init__(self, function: Function, schema: pa.Schema, name: str) -> None:
        assert function.custom is not None
        custom = function.custom
        self._function, self._custom, self._name = function, custom, name
        kinds = tuple(str(plain(schema.field(column).type)) for column in function.columns)
        made = users.fold(custom.init, custom.add, kinds)
        self.compiled = None if isinstance(made, str) else made
        self.why = made if isinstance(made, str) else ""

    @property
    def how(self) -> str:
        how = "compiled" if self.compiled is not None else f"in plain Python ({self.why})"
        return f"{how}, over a window's rows when it closes"

    def __call__(self, offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        """A NULL in any column leaves this batch of windows to Python: machine words have no NULL. The next batch may be
        compiled again; the result is the same bits either way. `result` is called by Python, once a window.
        """
        custom = self._custom
        columns = [one_array(rows.take(refs, column)) for column in self._function.columns]
        states = None
        if self.compiled is not None and not any(column.null_count for column in columns):
            given = [column.to_numpy(zero_copy_only=False) for column in columns]
            states = self.compiled.states(custom.init, offsets, given)
        if states is None:
            states = self._in_python(offsets, [user_values(column) for column in columns])
        if custom.result is not None:
            sizes = np.diff(offsets).tolist()
            states = [self._called(n, custom.result, s) for n, s in zip(sizes, states, strict=True)]
        return checked(states, custom.type, f"The custom function's result in column {self._name!r}")

    def _in_python(self, offsets: np.ndarray, columns: list[list[Any]]) -> list[Any]:
        def folded(low: int, high: int) -> Any:
            state = self._custom.init()
            for k in range(low, high):
                state = self._custom.add(state, *(values[k] for values in columns))
            return state

        return [self._called(high - low, folded, low, high) for low, high in pairwise(offsets.tolist())]

    def _called(self, rows: int, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except DataError:
            raise
        except Exception as error:
            called = f"The custom function in column {self._name!r}"
            raise user_raised(error, called, f"it was called with the {rows} rows of a window") from error


def checked(values: list[Any], kind: pa.DataType, what: str) -> pa.Array:
    """What a user's function returned, as its column; refuses what is not of the declared type.

    Nothing is converted silently: a float for an integer column, an integer beyond its ends, or text for a number is a
    `DataError` that names the value. `values` is one value a row; None is NULL.
    """
    try:
        made = pa.array(values, kind)
        changed = first_changed(values, made, kind)
        if changed is None:
            return made
        row, stored = changed
        why = f"it would become {stored!r}, and nothing is converted silently"
        raise DataError(f"{what} is {values[row]!r}, which is no {kind}", why=why)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError):
        for value in values:
            try:
                pa.scalar(value, type=kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError) as error:
                raise DataError(f"{what} is {value!r}, which is no {kind}", why=str(error)) from error
        raise
