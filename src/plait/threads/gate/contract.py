"""What a gate promises, to whom, and what it does not.

A gate takes tuples from sources and gives every reader the same sequence. There are two, behind one interface:
`SkipListGate` (ScaleGate and T-Gate, elastic as ESG) and `RingGate`. Each promise is a test, and each is argued in the
module that keeps it.

1. **One total order, exact.** Readers see tuples by (ts, input, source, seq). Ties between sources are settled by their
   declared rank, never by who came first. Kept by: `nodes.before` (one right place for every key), `merge` (leaves by rank).
2. **Every reader the same sequence.** A reader's next tuple depends on the tuples alone; threads decide only when.
3. **Nothing before it is ready.** ts < frontier, strictly; the frontier is the least progress of all sources. A declared
   source that has not spoken holds it at -infinity, an ended or removed one lets go. Kept by `frontier.settle`.
4. **Nothing lost, nothing twice.** A tuple is in the store before the promise that covers it; memory is used again only
   when nobody can reach it (`flow.free`, `skiplist.pin`).
5. **Progress.** No call waits inside for another thread: a failed CAS means that another call has succeeded, and the
   second looks at versions repeat only if the set of sources or readers has changed. What one thread can do by
   stopping: a source holds the frontier; a reader holds memory, until the sources are full; a source stopped inside `add`
   holds the memory of what stands after its pin. Each of these is named in the error that a blocked caller gets.
   A source is held back only while something is ready to be read, so waiting ends if readers read.
6. **Bounded.** Memory is fixed when the gate is made. Ready and unread tuples beyond `capacity` hold their source back (block
   or refuse, the caller's choice); unready ones beyond `pending` raise, naming the source that holds the frontier.
   Both are per source. Never drops, never grows.
7. **Elastic.** Sources and readers come and go while the gate runs; of concurrent calls for the same ids, or with the
   same `change` number, exactly one takes effect. A source is announced with the least ts it may bring, which must not be below
   what a reader has been promised: else BehindError, and nothing has changed.

What it does not promise: when a tuple becomes ready (only that it does, once the frontier has passed it); that two
readers are at the same place; that a read gives all that is ready (it gives some, if there was some when it began); fairness
between threads that compete for a core; anything at all to two threads that push one source at once, but an error.

Disorder is settled in front of the gate (`sorter`): a source may run back by D, and its tuples enter sorted.
The rules by which compiled code calls a gate are those of `skiplist` and `ring`: `add`, `read` and their waiting forms take
the memory, slots and seats as numbers, int64 columns, and answer with counts or `codes`; `calls` and `elastic` serve both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa


class Origin(NamedTuple):
    """Where a source stands in the total order: its input, then its position among that input's sources."""

    input: int
    position: int

    @property
    def rank(self) -> int:
        return self.input << 32 | self.position


class Lag(NamedTuple):
    """How far a reader is behind."""

    reader: int
    unread: int  # ready tuples that it has not read


class Tuples(Protocol):
    """What a read gives: int64 columns of one length, in total order."""

    ts: np.ndarray
    origin: np.ndarray
    seq: np.ndarray
    ref: np.ndarray

    def __len__(self) -> int: ...


class Gate(Protocol):
    """The interface that both gates have."""

    def add(self, source: int, batch: pa.RecordBatch, *, timeout_s: float | None = None) -> int: ...
    def read(self, reader: int = 0, most: int = 4096, *, timeout_s: float = 0.0) -> Tuples | None: ...
    def heartbeat(self, source: int, ts: int) -> None: ...
    def end(self, source: int) -> None: ...
    def announce_sources(
        self, sources: Sequence[int], *, origins: Sequence[Origin], min_ts: int, change: int = 0
    ) -> bool: ...
    def remove_sources(self, sources: Sequence[int], *, change: int = 0) -> bool: ...
    def announce_readers(self, readers: Sequence[int], *, parent: int, change: int = 0) -> bool: ...
    def remove_readers(self, readers: Sequence[int], *, change: int = 0) -> bool: ...
    def close(self) -> None: ...
