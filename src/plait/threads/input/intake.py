"""A stream's sources: who they are, how far each has come, and what of each waits or was dropped. What happens to their rows
is `push`'s to say.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from plait import order
from plait.core.sources import come_to, not_declared, slack_us, told
from plait.errors import DataError
from plait.order import BEFORE_ALL
from plait.query.row_by_row import BoundStep, Made
from plait.query.stream import SourceName, Stream
from plait.threads.gate.gates import inside

EMPTY = np.empty(0, np.int64)
NO_TIES: list[bytes] = []

#: `source` of a stream that is another operator's output: one source, ordered by push (`dag`).
QUERY: Final = "@query"


@dataclass
class Waiting:
    """Rows that wait for others of their source, in the order of their coming: ts, what orders ties, where the payload is."""

    ts: np.ndarray = field(default_factory=lambda: EMPTY)
    ref: np.ndarray = field(default_factory=lambda: EMPTY)
    tie: list[bytes] | None = None  # by content
    rows: pa.Table | None = None


class Steps:
    """How many tuples of a source had come by which ts: what tells how many lie ahead of the frontier where no gate has them.

    One thread notes, others look: `_steps` is replaced, or grows, and never changes otherwise. It is thinned out as it grows, so
    what is told may have some of a push too many.
    """

    MOST = 256

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = [(BEFORE_ALL, 0)]

    def note(self, largest: int, taken: int) -> None:
        steps = self._steps
        if len(steps) >= self.MOST:
            self._steps = steps = [*steps[::2], steps[-1]]
        steps.append((largest, taken))

    def ahead(self, ts: int) -> int:
        """Tuples that do not lie below a ts."""
        steps = list(self._steps)
        at = bisect_left(steps, ts, key=lambda step: step[0])
        return steps[-1][1] - steps[max(at - 1, 0)][1]


@dataclass(eq=False)
class Inlet:
    """The way in of one source. `slots` are its places at the gate: one for each input of the join that reads the stream."""

    name: SourceName
    rank: Any
    number: int  # among the stream's sources, in order of first sight
    place: int = 0  # among those that are at the gate, in order of rank: what settles ties there (`inlets`)
    slots: dict[int, int] = field(default_factory=dict)
    #: Held by who pushes: a second thread is an error.
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Held by who moves it on: a push, or the clock, shortly.
    turn: threading.Lock = field(default_factory=threading.Lock)
    largest: int = BEFORE_ALL  # ts delivered
    heartbeat: int = BEFORE_ALL
    ended: bool = False
    delivered: int = 0  # tuples, those that were dropped among them
    last_seq: Any = None
    added: int = 0  # tuples handed to the gate
    taken: int = 0  # tuples that entered, or wait to
    laying: bool = False  # its columns are being written (`push`)
    waiting: Waiting = field(default_factory=Waiting)
    #: By content: rows that wait, by ts and what they hold.
    equals: dict[tuple[int, bytes], int] = field(default_factory=dict)
    late: int = 0  # tuples that were dropped
    behind: int = 0
    steps: Steps | None = None  # where the gate has no tuples to count (WiML)
    spoke_ns: int = field(default_factory=time.monotonic_ns)  # when it last did
    let_go: int = BEFORE_ALL  # promised for it while it was silent (`idle`)

    @property
    def spoken(self) -> bool:
        """Whether anything was heard of it. A heartbeat that promises nothing only makes it known."""
        return self.delivered > 0 or self.heartbeat > BEFORE_ALL

    def progress(self, stream: Stream) -> int:
        """How far it has come, or is promised for."""
        return max(come_to(stream, self.largest, self.heartbeat), self.let_go)


class Inside:
    """One thread at a time pushes a source; a second one is told so at once.

    The clock may be there for a moment: it is waited for.
    """

    def __init__(self, inlet: Inlet, stream: str) -> None:
        self._inlet, self._stream = inlet, stream

    def __enter__(self) -> None:
        if not self._inlet.lock.acquire(blocking=False):
            raise inside(told(self._stream, self._inlet.name))
        self._inlet.turn.acquire()

    def __exit__(self, *_: object) -> None:
        self._inlet.turn.release()
        self._inlet.lock.release()


class StreamIntake:
    """One stream. Calls for different sources may come from different threads.

    Invariant: a source is in `inlets` once it is whole, that is, let in at the gate; and `inlets` is never changed but
    replaced, so that whoever goes through it, in any thread, sees it as it was at one moment.

    A source that has ended stays there until another one is given its place at the gate (`forget`). Then its name is left, in
    `gone`, since rows that come after its end are refused, and its rank, which the keys of its rows begin with.
    """

    def __init__(
        self, stream: Stream, schema: pa.Schema, *, positions: bool = True, steps: Sequence[BoundStep] = ()
    ) -> None:
        """`positions`: whether anybody wants to know where a row stood in its source; `steps`: what is done to each row."""
        self.stream, self.schema, self.positions, self.steps = stream, schema, positions, steps
        made = [step.schema for step in steps if isinstance(step, Made)]
        self.entering = made[-1] if made else schema  # what rows have when they enter
        self.inlets: dict[SourceName, Inlet] = {}
        self.gone: set[SourceName] = set()
        self.largest = self.reached = BEFORE_ALL  # of those that are gone: the last ts, and how far they had come
        self._taken = 0  # by them
        self._rank_pieces: list[bytes] = []  # by number
        self._rank_keys = pa.array([], pa.binary())
        self.ended = False
        self.late: list[pa.RecordBatch] = []
        self.behind: list[pa.RecordBatch] = []
        declared = stream.declared()
        for position, name in enumerate(declared or ()):
            self.add(self.made(name, position))

    def made(self, name: SourceName, position: int | None = None) -> Inlet:
        """For a source that is not known yet."""
        rank: Any = name.encode() if isinstance(name, str) else name
        if position is not None and self.stream.source is None:
            rank = position
        return Inlet(name, rank, len(self._rank_pieces))

    def add(self, inlet: Inlet) -> None:
        """From here on the source is known; one thread at a time (`inlets.Inlets`)."""
        self._rank_pieces.append(order.encode((inlet.rank,)))
        self.inlets = {**self.inlets, inlet.name: inlet}

    def forget(self, inlet: Inlet) -> None:
        """An ended source has no place at the gate any more; one thread at a time, as `add`."""
        self.largest = max(self.largest, inlet.largest)
        self.reached = max(self.reached, inlet.progress(self.stream))
        self.gone.add(inlet.name)
        self.inlets = {name: each for name, each in self.inlets.items() if each is not inlet}
        self._taken += inlet.taken

    def has_ended(self, name: SourceName | None) -> bool:
        """Whether a source has; of one that is not known, no."""
        found = None if name is None else self.inlets.get(name)
        return name in self.gone if found is None else found.ended

    def rank_keys(self) -> pa.Array:
        """Of every source that there ever was, by its number: its rank, as a part of a key."""
        found = self._rank_keys
        if len(found) < len(self._rank_pieces):
            self._rank_keys = found = pa.array(self._rank_pieces, pa.binary())
        return found  # and not what another thread may have put there meanwhile

    @property
    def taken(self) -> int:
        """Tuples that were neither late nor behind: those of each source, which one thread at a time counts."""
        return self._taken + sum(inlet.taken for inlet in self.inlets.values())

    @property
    def by_content(self) -> bool:
        return self.stream.seq == "content"

    @property
    def reorders(self) -> bool:
        """Whether tuples may have to wait for others of their source."""
        return slack_us(self.stream) > 0 or self.by_content

    # --- which source ---

    def named(self, name: SourceName | None, at: str = "") -> SourceName:
        """A name that may push: the declared one, 0 for a stream that has but one. `at`: the row that has it, in words."""
        stream = self.stream
        if name is None:
            name = 0
        if isinstance(name, bool) or not isinstance(name, (int, str)):
            raise DataError(
                f"Stream {stream.name!r}{f', {at}' if at else ''}: {name!r} can't name a source",
                why="names are integers or text",
            )
        declared = stream.declared()
        if declared is not None and name not in declared:
            raise not_declared(stream, name, declared, at)
        return name
