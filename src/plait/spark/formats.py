"""Everything that plait on Spark stores or sends, and how it is written down.

**The rule.** What is stored or sent has a type here and bears `VERSION`. No other module knows a byte of it: they make these
objects and get them back. So whoever changes what is stored changes this file and nothing else, and raises `VERSION`. Things of
another version are refused by name before anything is touched (`another_version`). They are not guessed at: a checkpoint that a
newer plait half understands would give other rows and say nothing. `tests/spark/checkpoints` has a small checkpoint of each kind
of query; each later version resumes them or refuses them with those words.

What there is:

    files           Card (`plait.json` of a checkpoint), Note (`.plait` of a folder of results), Event and Announced (the folder
                    of control events), names of parts: JSON, with the version as a field
    state of cells  Manifest, Chunk, Bucket: bodies, in Spark's state store, by number (`MANIFEST`, chunks from 0 on,
                    `state_number`)
    packed rows     to a cell: StreamRows (with punctuation: Split), OperatorRows, Event, Tick, Passed
                    out of a cell: PairRows, KeyedRows, LateRows, CellReport; to a closing: LastTimer, Bucket; of a task
                    that publishes: Written

A **body** is a head and what follows it: the head's length (four bytes), a checksum (four bytes), the head as JSON, and an Arrow
stream, a pickle or nothing. The head says the version and the kind. One packed row stands for many tuples, because rows cost tens
of microseconds each on the way into a stateful Python operator, and bytes cost next to nothing.

**Checksums.** What is stored bears one of all its bytes (`sealed`), and the small files one of all their fields: a byte that
a disk or a copy has changed, or an end that is missing, is refused by name, and no result is computed from it. What is only
sent bears none (its checksum is 0): it lives as long as its batch. Version 1 had no checksums; what it has stored is read
without.

Records of which there may be thousands (splits, sources, steps, chunks) are written column by column: a list of values for each
field, under the field's name. A manifest is written in every batch, and so its names are there once and not for every record.

Pickles hold states of users' operators. What they hold of plait itself goes by a name from here (`reduced`), never by the
path of a module, so modules may move.
"""

from __future__ import annotations

import json
import pickle
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import accumulate, pairwise
from operator import attrgetter
from types import FunctionType, UnionType
from typing import Any, ClassVar, Final, Self, TypeVar, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

import plait
from plait.core.metrics import Counts, entries
from plait.core.operator.buckets import RowView, row_alone
from plait.errors import PlaitError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.operator import Timer

#: Of everything here. Raise it with any change that a reader of the old form would not understand, or would misread.
VERSION: Final = 2

#: The first version with checksums: what is of it or of a later one, and is stored, bears one.
CHECKED: Final = 2

#: The versions that are read.
READ: Final = (1, 2)


def another_version(what: str, found: Any, do: str) -> RunError:
    """The refusal of something that another version of plait has written. `found` is its version, None if it has none."""
    told = "has no version" if found is None else f"is of version {found}"
    why = f"this plait reads versions {' and '.join(map(str, READ))} of what is stored, and would misread another"
    return RunError(f"{what} {told}", why=why, do=do)


def damaged(what: str, why: str) -> RunError:
    """The refusal of something in a checkpoint's state whose bytes are not those that were stored."""
    do = "Bring back a copy of the checkpoint, and of its folder of results as it was then; or begin anew with both"
    return RunError(f"{what} is damaged", why=why, do=do)


_ANEW = "Go on with the plait that wrote it, or begin anew with another checkpoint and another folder of results"
_SAME_PLAIT = "Install the same plait for the driver and for every worker"

_ENCODER = json.JSONEncoder(separators=(",", ":"))


# --- records, column by column ------------------------------------------------------------------------------


T = TypeVar("T")


def _columns(kind: type, records: Iterable[Any]) -> dict[str, Any]:
    """Records of one kind: a list of values for each field."""
    names = _names(kind)
    found = list(zip(*map(attrgetter(*names), records), strict=True))
    return dict(zip(names, found, strict=True)) if found else dict.fromkeys(names, ())


def _records(kind: type[T], columns: dict[str, Any]) -> list[T]:
    found = [columns[name] for name in _names(kind)]
    if len(set(map(len, found))) != 1:
        raise ValueError(f"columns of {kind.__name__} are not of one length")
    return list(map(kind, *found))


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    """The fields of a kind of record, in order."""
    if kind not in _NAMES:
        _NAMES[kind] = tuple(each.name for each in fields(kind))
    return _NAMES[kind]


# --- bodies: a head, and what follows it --------------------------------------------------------------------

#: Keys repeat a file's path in every row; compressed they hardly weigh on the sockets and the state store between.
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

#: Arrow can press and unpack columns on threads of its own. For a few kilobytes the handing over takes six times as long as the
#: work, and a cell reads and writes several such bodies a step. Reading gained nothing from threads with 1.3 MB either; writing
#: that took 1.0 to 1.2 ms with them and 1.8 to 2.0 without, so rows from here on have them. The bytes are the same.
THREADS_PAY_BYTES = 1 << 17
_PACKED_ON_THREADS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=True)
_READ = pa.ipc.IpcReadOptions(use_threads=False)

_HEADS: dict[str, type[Head]] = {}


class Head:
    """What a body begins with: a kind of its own, and named fields."""

    kind: ClassVar[str]

    def __init_subclass__(cls, *, kind: str) -> None:
        assert kind not in _HEADS, f"two heads of kind {kind!r}"
        cls.kind = kind
        _HEADS[kind] = cls

    def fields(self) -> dict[str, Any]:
        """As JSON has them."""
        return vars(self)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        return cls(**found)


def _framed(head: Head) -> bytes:
    text = _ENCODER.encode({"version": VERSION, "kind": head.kind, **head.fields()}).encode()
    text += b" " * (-len(text) % 8)  # what follows lies at a multiple of eight bytes, as Arrow would have it
    return len(text).to_bytes(4, "little") + bytes(4) + text


def sealed(data: bytes) -> bytes:
    """A body as it is stored: with a checksum of all its other bytes."""
    return b"".join((data[:4], _check_of(data).to_bytes(4, "little"), memoryview(data)[8:]))


def _check_of(data: bytes | pa.Buffer) -> int:
    """The checksum of a body: never 0, which says that there is none."""
    view = memoryview(data)
    return zlib.crc32(view[8:], zlib.crc32(view[:4])) or 1


def is_whole(data: bytes | pa.Buffer) -> bool:
    """Whether a body that was stored has the bytes that it was stored with, as far as a checksum tells: version 1 had none."""
    return not any(memoryview(data)[4:8]) or is_sealed(data)


def is_sealed(data: bytes | pa.Buffer) -> bool:
    """Whether a body bears a checksum, and that of its bytes: what this version has stored, and nothing has changed."""
    check = int.from_bytes(memoryview(data)[4:8], "little")
    return check != 0 and check == _check_of(data)


def body(head: Head, rest: bytes | pa.Table | pa.RecordBatch | None = None) -> bytes:
    """A head with rows, a pickle, another body or nothing behind it."""
    return next(bodies(head, [rest]))


def bodies(head: Head, rests: Iterable[bytes | pa.Table | pa.RecordBatch | None]) -> Iterator[bytes]:
    """The same head with each of these behind it. A table without rows counts as nothing."""
    begins = _framed(head)
    for rest in rests:
        if rest is None or isinstance(rest, bytes):
            yield begins + (rest or b"")
        elif rest.num_rows == 0:
            yield begins
        else:
            yield _with_tables(begins, rest)


def _with_tables(begins: bytes, *tables: pa.Table | pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    sink.write(begins)
    for each in tables:
        options = _PACKED if each.nbytes < THREADS_PAY_BYTES else _PACKED_ON_THREADS
        with pa.ipc.new_stream(sink, each.schema, options=options) as writer:
            writer.write(each)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _lay(out: pa.NativeFile, rows: pa.Table) -> None:
    """Rows as they are in memory, so that who maps the file copies nothing."""
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write(rows)


def parse(data: bytes | pa.Buffer, *, stored: str = "") -> tuple[Any, pa.Buffer]:
    """A body's head and what follows it. `stored`: what it is, if it comes from a checkpoint and not from another task.

    The head is small, and the rest is not copied. A kind that is not known can't come with these versions. Of what was stored the
    checksum is looked at before anything else: Arrow and pickle are not made for bytes that nobody has written.
    """
    whole = pa.py_buffer(data)
    what = stored or "A packed row"
    # JSON alone, from before there were versions: a head's length is no such number.
    bare = whole[:1].to_pybytes() == b"{"
    if stored and not bare and not is_whole(whole):
        raise damaged(what, f"its checksum is not that of its {whole.size} bytes")
    cut = 8 + int.from_bytes(whole[:4].to_pybytes(), "little")
    found = _head_of(whole[8:cut].to_pybytes()) if 8 < cut <= whole.size else {}
    version = found.pop("version", None)
    if version not in (READ if stored else (VERSION,)):
        raise another_version(what, version, _ANEW if stored else _SAME_PLAIT)
    if stored and version >= CHECKED and not any(whole[4:8].to_pybytes()):
        raise damaged(what, "its checksum is gone")
    try:
        return _HEADS[found.pop("kind")].of(found), whole[cut:]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(what, f"its head says what no head says: {type(error).__name__}: {error}") from None


def _head_of(text: bytes) -> dict[str, Any]:
    """A head's fields; none if it is no head. What has another form, or was damaged, may begin with anything."""
    try:
        found = json.loads(text.decode())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def rows(rest: pa.Buffer) -> pa.Table | None:
    """The rows behind a head; None if there are none."""
    return None if rest.size == 0 else table(rest)


def table(rest: pa.Buffer) -> pa.Table:
    """The rows behind a head that does not come without any."""
    try:
        return pa.ipc.open_stream(rest, options=_READ).read_all()
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise damaged("A packed row or a chunk", f"{type(error).__name__}: {error}") from None


# --- columns of rows ----------------------------------------------------------------------------------------

#: Of packed tuples: event time, key in the total order, which split it is of, whether it is late within that, and a hash of its
#: own key for layouts that need one.
TS, KEY, SPLIT, LATE_FLAG, HASH = "_plait_ts", "_plait_key", "_plait_split", "_plait_late", "_plait_hash"

#: Of a dropped tuple, whether it was behind and not late.
BEHIND = "_plait_behind"

#: Whether a cell is the one that shows a tuple, should it be dropped, where that is told tuple by tuple.
OWN = "_plait_own"

#: A tuple's buckets: a list; NULL for all of them; [UNCLEAR] where `route` has raised.
ROUTE, ROUTE_TYPE, UNCLEAR = "_plait_route", pa.list_(pa.int32()), -1

#: A tuple's number in its group, from 0 on, where windows are counted; NULL until it has been taken.
RANK = "_plait_rank"

#: Of a dedup's tuple, true where it is known to have been kept; NULL where that follows from those before it.
KEPT = "_plait_kept"

#: Of a pair, its trigger and its partner: places in the list of keys that goes along.
FIRST, SECOND = "_plait_first", "_plait_second"


def rows_schema(schema: pa.Schema, *, hashes: bool = False) -> pa.Schema:
    """Columns of tuples as cells keep them: those of the stream (for aggregates those that are read), then TS, then KEY, for
    "see_all" also HASH. Partial panes have TS and no KEY.
    """
    extra = [pa.field(TS, pa.int64()), pa.field(KEY, pa.binary())]
    return pa.schema([*schema, *extra, *([pa.field(HASH, pa.uint64())] if hashes else [])])


def times(table: pa.Table) -> np.ndarray:
    """The event times of rows, without a copy."""
    found: np.ndarray = table.column(TS).to_numpy()
    return found


def slabs(table: pa.Table, most: int) -> Iterator[tuple[int, pa.Table]]:
    """Rows in the order of time, in stretches of at most so many, each with its least ts. Rows of one ts keep their order."""
    if table.num_rows and ((ts := times(table))[1:] < ts[:-1]).any():
        table = table.take(pa.array(np.argsort(ts, kind="stable")))
    for begin in range(0, table.num_rows, most):
        slab = table.slice(begin, most)
        yield int(times(slab)[0]), slab


#: Rows between Spark's operators: to a cell, and out of the last one. The same for Arrow.
PACKED, OUTPUT = "cell int, body binary", "kind int, body binary"
PACKED_ROWS = pa.schema([("cell", pa.int32()), ("body", pa.binary())])
#: To a cell in a batch run, which takes them in the order of time: `at` is the least ts of a body's rows.
SLABS = "cell int, at long, body binary"
SLAB_ROWS = pa.schema([("cell", pa.int32()), ("at", pa.int64()), ("body", pa.binary())])
#: Results in a batch run on their way to who merges those of a stretch of time, from `at` on; of no stretch (-1) is what passes.
MERGING = "slice int, at long, cell int, no int, kind int, body binary"
MERGING_ROWS = pa.schema([
    ("slice", pa.int32()), ("at", pa.int64()), ("cell", pa.int32()), ("no", pa.int32()), ("kind", pa.int32()),
    ("body", pa.binary()),
])  # fmt: skip
OUTPUT_ROWS = pa.schema([("kind", pa.int32()), ("body", pa.binary())])

#: Kinds of rows out of the last cell.
RESULTS, LATE, PROGRESS, WRITTEN, HANDED = 0, 1, 2, 3, 4


def columns(onward: bool) -> list[str]:
    """The columns of what a cell puts out: packed rows for the next operator's cells, or for the user."""
    return ["cell" if onward else "kind", "body"]


# --- to a cell ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offence:
    """The first tuple of a split that ran back too far: its ts, the largest before it, its seq as hexadecimal."""

    ts: int
    largest: int
    seq: str


@dataclass(frozen=True)
class Split:
    """A task's run of positions of one source, with no other task's in between. Seqs are hexadecimal, and sort as they are."""

    source: Any
    first: str  # seq; "" where rows have no order among those of their batch
    last: str
    largest: int  # ts, of those that are not late within the split
    ended: bool  # the source is a file, and ends with it
    least: int  # the least ts, and a tuple that has it: all there is to judge partial panes by
    least_seq: str
    offence: Offence | None = None
    rows: int = 0  # how many tuples it has, late ones among them


@dataclass(frozen=True)
class StreamRows(Head, kind="stream"):
    """A task's tuples of a stream for one input of a cell, and its punctuation, which comes also without any tuple."""

    stream: str
    input: int | None  # None: the operator hears how far the stream is, and reads none of it
    splits: list[Split]
    tells: bool  # the splits count as punctuation; of several inputs of one stream the first one's do
    panes: bool  # rows are partial panes
    slab: bool = False  # a stretch of a task's tuples: its punctuation has come by itself

    def fields(self) -> dict[str, Any]:
        told = _columns(Split, self.splits)
        return vars(self) | {"splits": told | {"offence": [o and vars(o) for o in told["offence"]]}}

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        told = found["splits"]
        told["offence"] = [o and Offence(**o) for o in told["offence"]]
        return cls(**found | {"splits": _records(Split, told)})


@dataclass(frozen=True)
class OperatorRows(Head, kind="operator"):
    """Results of an operator on their way into the next one, from one cell to another."""

    number: int  # of the operator
    input: int  # of the next one
    frontier: int  # the cell gives nothing below it any more


@dataclass(frozen=True)
class Tick(Head, kind="tick"):
    """So much time has passed."""

    elapsed_us: int


@dataclass(frozen=True)
class Passed(Head, kind="passed"):
    """What a cell has for the user, on its way through the next operator's cells. A body follows."""

    output: int  # LATE or PROGRESS


@dataclass(frozen=True)
class Event(Head, kind="event"):
    """A control event, as a packed row and as a file of the control folder.

    drain      everything ends
    end        a source ends, or with no source the stream
    heartbeat  the source gives nothing below `ts` any more
    """

    no: int
    do: str
    stream: str | None = None
    source: Any = None
    ts: int | None = None

    def text(self) -> str:
        return _text({name: v for name, v in vars(self).items() if v is not None}, indent=None)

    @classmethod
    def read(cls, text: str, file: str = "") -> Self | None:
        """A file's event; None if it was never a whole one: its end is missing, or it says nothing of plait's.

        One that was whole and is not what was written is refused. It may say another time, and results would follow from it.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            if text.rstrip().endswith("}") and ('"version"' in text or f'"{_CHECK}"' in text):
                raise _damaged_event(file or repr(text[:80])) from None
            return None
        if not isinstance(found, dict) or not (_CHECK in found or _says_something(found)):
            return None
        what = file or str(found.get("no"))
        if found.get("version") not in READ:
            do = "Write it with the plait that runs the query, and remove this one"
            raise another_version(f"Control event {what}", found.get("version"), do)
        try:
            _checked(found)
        except ValueError:
            raise _damaged_event(what) from None
        if not _says_something(found):
            return None
        event = cls(**{name: value for name, value in found.items() if name in _names(cls)})
        return event if event._is_one() else None

    def _is_one(self) -> bool:
        """Whether its fields have the types of an event's: a file that was written by hand may have anything there."""
        if self.do == "drain":
            return True
        named = isinstance(self.stream, str) and (self.source is None or type(self.source) in (str, int))
        return named and (self.do == "end" or (self.do == "heartbeat" and type(self.ts) is int))


def _says_something(found: dict[str, Any]) -> bool:
    return isinstance(found.get("no"), int) and isinstance(found.get("do"), str)


def _damaged_event(what: str) -> RunError:
    why = "its checksum is not that of what it says, and results would follow from another time or source"
    return RunError(
        f"Control event {what} is damaged", why=why, do="Bring it back as it was: batches done again read it again"
    )


# --- out of a cell ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairRows(Head, kind="pairs"):
    """Results of a join: the columns with FIRST and SECOND, and behind them, from byte `keys` on, a table of keys."""

    keys: int

    @staticmethod
    def body(found: pa.Table, keys: pa.Array) -> bytes:
        first = _with_tables(b"", found)
        return body(PairRows(len(first)), first + _with_tables(b"", pa.table({KEY: keys})))

    @staticmethod
    def lay(out: pa.NativeFile, found: pa.Table, keys: pa.Array) -> None:
        """The same body, written as the columns are in memory."""
        size = pa.MockOutputStream()
        _lay(size, found)
        out.write(_framed(PairRows(size.size())))
        _lay(out, found)
        _lay(out, pa.table({KEY: keys}))

    def tables(self, rest: pa.Buffer) -> tuple[pa.Table, pa.Table]:
        if not isinstance(self.keys, int):
            raise damaged("A packed row", f"keys={self.keys!r}")
        return table(rest[: self.keys]), table(rest[self.keys :])


@dataclass(frozen=True)
class KeyedRows(Head, kind="keyed"):
    """Results of an aggregate or a user's operator: the key is a column of its own, or time and the columns `by`."""

    by: list[str]
    spelled: bool  # the key is a column of its own

    def lay(self, out: pa.NativeFile, found: pa.Table) -> None:
        """A body with these rows, written as the columns are in memory."""
        out.write(_framed(self))
        _lay(out, found)


@dataclass(frozen=True)
class Handed(Head, kind="handed"):
    """Where a cell has laid its results, for the driver: a file of shared memory that holds a body of pairs or keyed rows."""

    file: str


@dataclass(frozen=True)
class LateRows(Head, kind="late"):
    """Rows of a stream that a cell has dropped."""

    stream: str
    cell: int


@dataclass(frozen=True)
class SourceReport:
    """How far a source of a stream is after a batch, and what this batch has brought of it."""

    stream: str
    source: Any
    progress: int
    newest: int | None = None
    rows: int = 0
    late: int = 0
    behind: int = 0
    idle: bool = False
    ended: bool = False


@dataclass(frozen=True)
class CellReport(Head, kind="report"):
    """How a cell stands after a batch, or what a closing has added at the end of input: all that `core.metrics` has of it."""

    operator: int
    cell: int  # of a closing its own place, which is below 0
    frontier: int
    pending: int = 0
    newest: int | None = None  # the largest ts seen so far
    holder: tuple[str | None, Any] = (None, None)
    counts: Counts = field(default_factory=Counts)
    span: tuple[int, int] = (BEFORE_ALL, AFTER_ALL)  # where this batch's results lie in time: the same in all cells
    stages: dict[str, int] = field(default_factory=dict)  # nanoseconds that this batch took, by stage
    batch: Counts = field(default_factory=Counts)  # what this batch has added to the counts
    executor: str = ""  # that ran it
    held: int = 0  # rows that the state has after it
    held_bytes: int = 0
    missed: bool = False  # its contents were read from the state
    waiting: dict[str, int] = field(default_factory=dict)  # by stream, of tuples that this cell is the one to count
    sources: list[SourceReport] = field(default_factory=list)  # as far as this cell is the one to tell of them

    def fields(self) -> dict[str, Any]:
        told = {
            "counts": self.counts.told(),
            "batch": self.batch.told(),
            "sources": _columns(SourceReport, self.sources),
        }
        return vars(self) | told

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        sources = _records(SourceReport, found["sources"])
        told = {"holder": tuple(found["holder"]), "span": tuple(found["span"]), "sources": sources}
        return cls(**found | told | {name: Counts.heard(found[name]) for name in ("counts", "batch")})

    @staticmethod
    def counts_of(body: Any) -> dict[str, Any]:
        """The same for Spark, of a column of these bodies: a column for each count, over all streams."""
        from pyspark.sql import functions as F

        head = F.substring(body, 9, 1 << 30).cast("string")  # behind the length
        found = {}
        for name, entry in entries(Counts).items():
            told = F.get_json_object(head, f"$.counts.{name}")
            if entry.by_stream:
                each = F.map_values(F.from_json(told, "map<string, bigint>"))
                told = F.aggregate(each, F.lit(0).cast("long"), lambda sum, one: sum + one)
            found[name] = told.cast("long")
        return found


@dataclass(frozen=True)
class Written(Head, kind="written"):
    """What a task has written of a batch, where tasks publish (`publish.gather`): its part's name, "" if it has no rows."""

    rows: int
    part: str = ""


@dataclass(frozen=True)
class LastTimer(Head, kind="last timer"):
    """To a closing: the last timer that a cell has pending at the end of input."""

    ts: int


# --- state of a cell ----------------------------------------------------------------------------------------

#: The one state variable of an operator of Spark's: a map from a number to a body, and as rows (see `relayout`).
STATE, STATE_KEY, STATE_VALUE = "cell", "no", "body"
STATE_ROWS = "cell int, no long, body binary"

#: The manifest's number. Chunks have numbers from 0 on, states of buckets those below this one.
MANIFEST: Final = -1


def state_number(bucket: int) -> int:
    """Where the state of a bucket lies."""
    return MANIFEST - 1 - bucket


@dataclass(frozen=True)
class Bucket(Head, kind="bucket"):
    """The state of one bucket of a user's operator, and its timers. The state follows as a pickle.

    Stored under `state_number`, and sent to a closing at the end of input.
    """

    bucket: int
    timers: list[int]


@dataclass(frozen=True)
class ChunkRows(Head, kind="chunk"):
    """Rows that a cell holds."""


def chunk_body(found: pa.Table) -> bytes:
    return sealed(_with_tables(_framed(ChunkRows()), found))


def chunk_table(data: bytes | pa.Buffer, what: str = "A chunk of the checkpoint") -> pa.Table:
    return table(parse(data, stored=what)[1])


@dataclass(slots=True)
class SourceState:
    """How far a source is."""

    largest: int | None = None  # ts
    ended: bool = False
    heartbeat: int = BEFORE_ALL
    last: str = ""  # the last position delivered, as hexadecimal of its key: compares as the positions do
    silent_us: int = 0  # how long it has said nothing, as ticks tell it
    idle: bool = False  # silent for longer than idle_after=: it does not hold the frontier until it speaks


@dataclass
class StreamState:
    """How far a stream is: its sources by name."""

    ended: bool
    silent_us: int
    sources: dict[Any, SourceState]

    def fields(self) -> dict[str, Any]:
        told = {"name": list(self.sources)} | _columns(SourceState, self.sources.values())
        return vars(self) | {"sources": told}

    @staticmethod
    def of(found: dict[str, Any]) -> StreamState:
        told = found["sources"]
        return StreamState(
            found["ended"], found["silent_us"], dict(zip(told["name"], _records(SourceState, told), strict=True))
        )


@dataclass(slots=True)
class Chunk:
    """A chunk as the manifest has it."""

    number: int
    input: int
    rows: int
    last_ts: int
    size: int = 0  # in bytes; 0 of one that an earlier plait has stored, which did not note it


@dataclass(slots=True)
class Step:
    """One batch as the manifest has it, with those of its chunks that are still alive.

    Attributes:
        id: Of the attempt that wrote it, random. A cache that has applied this very attempt is up to date.
        released: For windows that count tuples.
    """

    id: str
    frontier: int
    chunks: list[Chunk] = field(default_factory=list)
    released: list[int] = field(default_factory=lambda: [0, 0])  # rows of each input


@dataclass
class Manifest(Head, kind="manifest"):
    """What a cell knows and holds; small, and written in each batch.

    Attributes:
        fingerprint, shape, functions: Of the plan that wrote it; compared before anything else (`resume.check_state`).
        frontier: That of the last batch. Rows of chunks below it have been released.
        steps: Batches that have a chunk which is still needed, and all after them.
        progress: How far each stream is, the same in every cell.
        drained: The end of input is reached; rows are refused from then on.
        came: Of a join whose windows of tuples begin at every n-th: how many tuples of each input were released. It is written
            there alone, so that other queries' states are what they were.
    """

    fingerprint: str
    frontier: int = BEFORE_ALL
    next_chunk: int = 0
    drained: bool = False
    counts: Counts = field(default_factory=Counts)  # so far
    events: int = -1  # the largest number of a control event applied
    steps: list[Step] = field(default_factory=list)
    progress: dict[str, StreamState] = field(default_factory=dict)
    upstreams: dict[int, int] = field(default_factory=dict)  # how far the operators before this one are, by number
    states: list[int] = field(default_factory=list)  # buckets whose states are stored
    operator: int = 0  # its number in the query
    shape: str = ""  # as the plan that wrote it had them: see `resume`
    functions: str = ""
    came: list[int] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        steps, chunks = self.steps, [chunk for step in self.steps for chunk in step.chunks]
        told = {name: value for name, value in vars(self).items() if name != "came" or value}
        return told | {
            "steps": {
                "id": [step.id for step in steps],
                "frontier": [step.frontier for step in steps],
                "released": [step.released for step in steps],
                "chunks": [len(step.chunks) for step in steps],
            },
            "chunks": _columns(Chunk, chunks),
            "progress": {name: stream.fields() for name, stream in self.progress.items()},
            "counts": self.counts.told(),
        }

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        columns = found.pop("chunks")
        columns.setdefault("size", [0] * len(columns["number"]))
        told, chunks = found["steps"], _records(Chunk, columns)
        ends = list(accumulate(told["chunks"], initial=0))
        held = [chunks[begin:end] for begin, end in pairwise(ends)]
        found["steps"] = list(map(Step, told["id"], told["frontier"], held, told["released"]))
        found["progress"] = {name: StreamState.of(stream) for name, stream in found["progress"].items()}
        found["upstreams"] = {int(number): frontier for number, frontier in found["upstreams"].items()}
        # The one count that there was before they had names: it said neither of what nor of which stream. So counts of an
        # older checkpoint begin at 0 where it goes on.
        found.pop("late", None)
        found["counts"] = Counts.heard(found.get("counts", {}))
        return cls(**found)

    @property
    def chunks(self) -> Iterator[Chunk]:
        """Those that are still needed."""
        return (chunk for step in self.steps for chunk in step.chunks)

    @property
    def held(self) -> int:
        """Rows that the state has, those that wait among them."""
        return sum(chunk.rows for chunk in self.chunks)

    def dump(self) -> bytes:
        return sealed(body(self))

    @staticmethod
    def load(data: bytes, what: str = "The state of a cell in the checkpoint") -> Manifest:
        found, _ = parse(data, stored=what)
        assert isinstance(found, Manifest)
        return found


# --- pickles ------------------------------------------------------------------------------------------------


def kept_tuple(names: list[str], values: list[Any], ts: int, stream: str) -> RowView:
    """A tuple that a state holds. Stored under this name."""
    return row_alone(names, values, ts, stream)


def kept_error(name: str, fact: str, why: str, do: str) -> PlaitError:
    """One of plait's errors that a state holds. Stored under this name."""
    made: PlaitError = named(name)(fact, why=why, do=do)
    return made


def named(name: str) -> Any:
    """What plait has under a public name. Stored under this name."""
    return Timer if name == "Timer" else vars(plait)[name]


def reduced(value: Any) -> Any:
    """How a pickler stores something of plait's, as `Pickler.reducer_override` has it: by public names, or by those above.

    Anything else of plait's can't be stored: its module may be another one tomorrow.
    """
    if isinstance(value, RowView):
        return kept_tuple, value.__reduce__()[1]
    if isinstance(value, PlaitError) and type(value).__name__ in plait.__all__:
        return kept_error, (type(value).__name__, value.fact, value.why, value.do)
    for each in (value, type(value)):
        if not _is_plaits(each) or each in (kept_tuple, kept_error, named):
            continue
        if (name := _public_name(value)) is not None:
            return named, (name,)
        if each is value:
            raise pickle.PicklingError(f"it holds {value.__module__}.{value.__qualname__}, which is plait's own")
    return NotImplemented


def _is_plaits(value: Any) -> bool:
    """A class or function of plait's."""
    return isinstance(value, (type, FunctionType)) and value.__module__.partition(".")[0] == "plait"


def _public_name(value: Any) -> str | None:
    if value is Timer:
        return "Timer"
    return next((name for name in plait.__all__ if vars(plait)[name] is value), None)


# --- files of a checkpoint and of a folder of results -------------------------------------------------------


def _file(text: str, what: str, do: str) -> dict[str, Any]:
    """A small file's fields; ValueError if it is not whole, or not what was written."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it holds no JSON object")
    if found.get("version") not in READ:
        raise another_version(what, found.get("version"), do)
    _checked(found)
    return found


def _text(found: dict[str, Any], indent: int | None = 1) -> str:
    """A small file: its version, its fields, and a checksum of these, which stands last."""
    found = json.loads(json.dumps({"version": VERSION, **found}))  # as it will be read: keys are text there
    return json.dumps({**found, _CHECK: _fields_check(found)}, indent=indent) + "\n"


def _checked(found: dict[str, Any]) -> None:
    """Take version and checksum out of a small file's fields; ValueError if they are not what was written."""
    check = found.pop(_CHECK, None)
    if check is None and found["version"] < CHECKED:
        found.pop("version")
        return
    if check != _fields_check(found):
        raise ValueError("it is damaged: its checksum is not that of what it says")
    found.pop("version")


def _fields_check(found: dict[str, Any]) -> int:
    """Of fields in any order, and however the file spaces them."""
    return zlib.crc32(json.dumps(found, sort_keys=True).encode())


_CHECK: Final = "check"


def _typed(record: T) -> T:
    """A record of a small file, whose fields are of the types that they say; TypeError names one that is not."""
    hints = get_type_hints(type(record))
    for name, value in vars(record).items():
        if not _is_of(value, hints[name]):
            raise TypeError(f"its {name!r} is {value!r}")
    return record


def _is_of(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_is_of(value, each) for each in kind.__args__)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is_of(each, kind.__args__[0]) for each in value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, get_origin(kind) or kind)


@dataclass(frozen=True)
class Pins:
    """What a checkpoint was started with, and is resumed with."""

    fingerprint: str
    query: str  # in words
    rows: int  # of the grid of cells
    columns: int
    partitions: int
    shape: str  # the fingerprint but for users' functions
    functions: str  # of users' operators, which the fingerprint leaves out
    loose: tuple[str, ...] = ()  # what users' functions depend on and nobody can compare
    layout: dict[str, Any] | None = None  # in full, where rows and columns don't say it: `Layout.told`


@dataclass(frozen=True)
class Card:
    """`plait.json` of a checkpoint: what it pins, who it is, and where its results go."""

    NAME: ClassVar = "plait.json"

    pins: Pins
    id: str  # its identity, made with it
    runs: tuple[str, ...]  # tokens of its last starts
    target: str  # its folder of results
    first: int = 0  # the batches that earlier checkpoints of the query had: see `relayout`
    left: str | None = None  # where its state went: see `relayout`

    def text(self) -> str:
        pins = dict(vars(self.pins))
        if self.pins.layout is None:  # an older plait has no such field, and reads a card that has none
            del pins["layout"]
        return _text(vars(self) | {"pins": pins})

    @staticmethod
    def read(text: str, checkpoint: str) -> Card:
        found = _file(text, f"The checkpoint {checkpoint!r}", _ANEW)
        try:
            pins = found.pop("pins")
            pins["loose"], found["runs"] = tuple(pins["loose"]), tuple(found["runs"])
            made = _typed(Card(_typed(Pins(**pins)), **found))
            if min(made.pins.rows, made.pins.columns, made.pins.partitions) < 1:
                raise ValueError("its layout has no cells")
            if not made.runs or made.first < 0:
                raise ValueError("its starts are none, or its first batch lies below 0")
            return made
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class Note:
    """`.plait` of a folder of results, or of dropped rows: whose parts stand there."""

    NAME: ClassVar = ".plait"

    id: str  # of the checkpoint
    run: str  # the token of the start that has the folder
    checkpoint: str  # where it was then
    query: str
    holds: str
    form: str
    # Of a batch run: earlier ones that had the folder and came to nothing. Written only if there are some, so that other notes
    # are what they were.
    instead: tuple[str, ...] = ()

    def text(self) -> str:
        return _text({name: value for name, value in vars(self).items() if name != "instead" or value})

    @staticmethod
    def read(text: str, file: str) -> Note:
        found = _file(text, repr(file), "Go on with the plait that wrote it, or name another folder")
        try:
            return _typed(Note(**found | {"instead": tuple(found.get("instead", ()))}))
        except TypeError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class Sources:
    """Of a stream that a query reads, what control events may name."""

    declared: list[Any] | None  # None: any
    named: str  # "text" or "integers"


@dataclass(frozen=True)
class Announced:
    """`streams.card` of a control folder: the streams of the query that reads it."""

    NAME: ClassVar = "streams.card"

    streams: dict[str, Sources]

    def text(self) -> str:
        return _text({"streams": {n: vars(s) for n, s in self.streams.items()}}, indent=None)

    @staticmethod
    def read(text: str, folder: str) -> Announced:
        do = "Use the plait that runs the query, or another folder of control events"
        found = _file(text, f"The folder of control events {folder!r}", do)
        try:
            return Announced({name: _typed(Sources(**each)) for name, each in found["streams"].items()})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(str(error)) from None


def event_name(number: int) -> str:
    return f"{number:012d}.json"


def part_name(batch: int, ending: str, cell: int | None = None) -> str:
    """A batch's file of results, or a cell's of dropped rows."""
    return f"part-{batch:012d}{'' if cell is None else f'-{cell}'}{ending}"


def batch_name(batch: int) -> str:
    """A batch's folder of results that executors have written."""
    return f"batch-{batch:012d}"


def batch_of(name: str) -> int | None:
    """The batch that a part is of, by its name."""
    found = _PART.match(name)
    return None if found is None else int(found[1])


def is_left_over(name: str) -> bool:
    """Whether a killed run has left this, under a temporary name."""
    return _LEFT_OVER.fullmatch(name) is not None


_PART = re.compile(r"(?:part|batch)-(\d{12})")
_LEFT_OVER = re.compile(r"\.(?:part-\d{12}.*\.[0-9a-f]{8}|batch-\d{12}|plait\.[0-9a-f]{16})\.tmp")
