"""The short way of a usual batch into the gate: the steps of `input.push` in one compiled call, and little Python around it;
three calls where rows are many and several sources push.

A batch is usual if its times are in order and neither late nor behind, nothing that is read or kept of it is NULL or NaN, and its
integers lie where others have lain before: then no step has anything to decide. `given.look` tries that, and changes nothing.
Whatever is not usual, or does not fit, goes the long way from its beginning; so the two ways can't differ in what they refuse.

Invariant: what the short way has done, once it has answered true, is what `Pusher._push` would have done: the same rows kept
under the same numbers, the same words in the arena, the same tuples at the gate. tests/threads/input/test_short.py pushes the
same rows by both and compares all three.

Some streams have no short way: sources named by a column, ties by a column or by content, disorder, rows that are changed on
their way, columns that are kept as they came (lists, decimals), times of another width than numbers have; and conditions that
read more than plain columns of numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from plait.core.rings import Write
from plait.order import TS_MAX
from plait.schema import TIME_UNITS
from plait.threads.input import given
from plait.threads.input.arenas import CHUNK, Arenas
from plait.threads.input.intake import QUERY, Inlet, StreamIntake
from plait.threads.parts import Encodes

FEW: Final = 1 << 13  # rows that are looked at while the GIL is kept: some microseconds
AT_ONCE: Final = 1 << 10  # rows that are judged, kept and laid out while it is kept

#: How Arrow stores a column, for the kinds that compiled code reads.
KINDS: Final[dict[pa.DataType, int]] = {
    pa.int8(): given.INT8, pa.int16(): given.INT16, pa.int32(): given.INT32, pa.int64(): given.INT64,
    pa.uint8(): given.UINT8, pa.uint16(): given.UINT16, pa.uint32(): given.UINT32,
    pa.float32(): given.FLOAT32, pa.float64(): given.FLOAT64,
}  # fmt: skip


def kind_of(kind: pa.DataType) -> int | None:
    """How a column is stored that is read as bits: moments, days and spans as the integers that Arrow stores. None: not here.

    Bits of unsigned numbers are those of signed ones.
    """
    if pa.types.is_boolean(kind):
        return given.BOOLS
    if pa.types.is_uint64(kind):
        return given.INT64
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return given.INT32
    return given.INT64 if pa.types.is_temporal(kind) and kind.bit_width == 64 else KINDS.get(kind)


#: The address in a capsule, by its name: Python's own function.
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class Reads(NamedTuple):
    """What the operator reads of an input's usual batches, for `given`: a row of READ_WORDS for each use of a column; limits."""

    table: np.ndarray
    limits: np.ndarray


class Entered(NamedTuple):
    """What the gate has yet to be told: times, the tuples' numbers in their source, and those that they are kept under."""

    ts: np.ndarray
    seq: np.ndarray
    refs: np.ndarray


class Exported(NamedTuple):
    """A batch by Arrow's C data interface: what has to be held, and where it lies."""

    held: Any
    struct: int


def exported(batch: pa.RecordBatch) -> Exported:
    _, held = batch.__arrow_c_array__()
    return Exported(held, _pointer(held, b"arrow_array"))


class _AtHand(NamedTuple):
    """A batch: what exports it, which has to be held, where it lies, what is read of it, scratch, and room for its times."""

    exported: Any
    struct: int
    reads: Reads
    words: np.ndarray
    ts: np.ndarray


#: What the operator reads now of an input's usual batches; None if there are none. While the source is `laying` it stays so.
ReadsOf = Callable[[int], Reads | None]


class Keeps(Protocol):
    """Where whole rows are kept, or at least counted: a `Payload` whose columns are rings, or what stands in its place."""

    def put(self, n: int, write: Write, ts: np.ndarray, pushed_ns: int, stamp: int, /) -> int: ...


class ShortWay:
    """Of one stream that has one. One thread at a time enters for a source; several sources' threads may at once."""

    def __init__(self, intake: StreamIntake, payload: Keeps, reads: ReadsOf, stamps: Encodes,
                 arenas: Arenas, input: int) -> None:  # fmt: skip
        stream, schema = intake.stream, intake.schema
        column = schema.get_field_index(stream.time)
        found = _time(schema.field(column).type, stream.unit)
        assert found is not None
        kind, scale = found
        self.time = (column, kind, scale, TS_MAX // scale)  # as `given.look` takes it
        self._intake, self._payload, self._reads, self._stamps = intake, payload, reads, stamps
        self._arenas, self._input = arenas, input
        self._words: dict[int, np.ndarray] = {}  # by source: room for a column's values

    def enter(self, inlet: Inlet, slot: int, batch: pa.RecordBatch, low: int, pushed_ns: int) -> Entered | None:
        """Keep a batch and lay it out; None, and nothing is changed, if it is not usual.

        Tuples below `low` would be late or behind. By the thread that pushes the source, while the source is `laying`.
        """
        at_hand = self._at_hand(inlet, batch, CHUNK)
        if at_hand is None:
            return None
        together = len(at_hand.ts) <= AT_ONCE or self._alone()
        entered = (self._at_once if together else self._many)(inlet, slot, at_hand, low, pushed_ns)
        if entered is not None:
            self._arenas.by_slot[slot].written = True
        return entered

    def _at_once(self, inlet: Inlet, slot: int, at_hand: _AtHand, low: int, pushed_ns: int) -> Entered | None:
        """All steps in one call, while the rows' payload waits: some microseconds; or there is no other source that wants it.

        Every call that gives the GIL away may have to wait for it: one call instead of five of a stream's large batches.
        """
        _, struct, reads, words, ts = at_hand
        rows, arenas, n = np.empty((3, len(ts)), np.int64), self._arenas, len(ts)
        enter = given.enter_few if n <= AT_ONCE else given.enter

        def write(kept: np.ndarray, first: int, oldest: int, capacity: int) -> bool:
            entry = (kept, first, oldest, capacity, inlet.number, inlet.delivered + 1)
            laid = (arenas.table[slot], inlet.added, arenas.size)
            return bool(enter(struct, n, *self.time, low, *reads, words, rows, *entry, *laid))

        entered = Entered(*rows)
        first = self._payload.put(n, write, entered.ts, pushed_ns, self._stamps.stamp + 1)
        return None if first < 0 else entered

    def _many(self, inlet: Inlet, slot: int, at_hand: _AtHand, low: int, pushed_ns: int) -> Entered | None:
        """Step by step, and only what keeps them while their payload waits: other sources' threads may want it."""
        _, struct, reads, words, ts = at_hand
        n = len(ts)
        if not given.look(struct, n, *self.time, low, reads.table, words, ts):
            return None

        def write(kept: np.ndarray, first: int, oldest: int, capacity: int) -> bool:
            return bool(given.keep(struct, n, kept, first, oldest, capacity, ts, inlet.number, inlet.delivered + 1))

        first = self._payload.put(n, write, ts, pushed_ns, self._stamps.stamp + 1)
        if first < 0:
            return None
        arenas = self._arenas
        given.lay(struct, n, reads.table, reads.limits, words, arenas.table[slot], inlet.added, arenas.size)
        return Entered(ts, np.arange(inlet.added, inlet.added + n), np.arange(first, first + n))

    def _alone(self) -> bool:
        """Whether there is one source so far."""
        return len(self._intake.inlets) <= 1

    def looked_at(self, struct: int, n: int, low: int, sheet: np.ndarray) -> int | None:
        """The last ts of a usual batch; None if it is not usual. `sheet` is scratch, of 2 * n words at least."""
        reads = self._reads(self._input)
        assert reads is not None
        look = given.look_few if n <= FEW else given.look
        return int(sheet[n - 1]) if look(struct, n, *self.time, low, reads.table, sheet[n : 2 * n], sheet[:n]) else None

    def exported(self, batch: pa.RecordBatch) -> Exported | None:
        """A batch as compiled code finds it; None if there are no rows, or nobody reads them so."""
        if self._reads(self._input) is None or batch.num_rows == 0:
            return None
        return exported(batch)

    def _at_hand(self, inlet: Inlet, batch: pa.RecordBatch, most: int) -> _AtHand | None:
        """A batch as compiled code reads it; None if there are no rows, or more than `most`, or nobody reads them so."""
        n = batch.num_rows
        reads = self._reads(self._input)
        if reads is None or not 0 < n <= most:
            return None
        words = self._words.get(inlet.number)
        if words is None or len(words) < n:
            words = self._words[inlet.number] = np.empty(max(n, CHUNK), np.int64)
        held, struct = exported(batch)
        return _AtHand(held, struct, reads, words, np.empty(n, np.int64))


def short_way(intake: StreamIntake, payload: Any, reads: ReadsOf, stamps: Encodes, arenas: Arenas,
              inputs: tuple[int, ...]) -> ShortWay | None:  # fmt: skip
    """A stream's short way, if it has one whatever its rows hold."""
    stream = intake.stream
    plain = stream.source_column is None and stream.seq_column is None and not intake.reorders and not intake.steps
    plain = plain and stream.source != QUERY and stream.time in intake.schema.names
    if not plain or len(inputs) != 1 or not payload.all_rings:
        return None
    if _time(intake.schema.field(stream.time).type, stream.unit) is None:
        return None
    return ShortWay(intake, payload, reads, stamps, arenas, inputs[0])


def _time(kind: pa.DataType, unit: str | None) -> tuple[int, int] | None:
    """How a time column is stored, and how many microseconds one count is; None if it has to be divided, or is a date."""
    size_ns = TIME_UNITS[kind.unit if pa.types.is_timestamp(kind) else unit or "us"]
    stored = given.INT64 if pa.types.is_timestamp(kind) else KINDS.get(kind)
    if stored is None or stored >= given.FLOAT32 or size_ns < 1_000:
        return None
    return stored, size_ns // 1_000
