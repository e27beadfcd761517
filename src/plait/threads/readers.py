"""Several readers of one run's results: each sees every batch, in one order (STRETCH, algorithm 3: the readers of ESG_out).

No thread stands between a run and its readers. Whoever has read all that was taken takes the next batch from the engine, one
reader at a time; the others find it in `_kept`, where it stays until the last of them has read it. It is one Arrow batch for
all: nothing is copied.

Invariants, and why they hold:

- *One sequence.* Batches are taken under `_taking` and numbered before it is let go of, so their numbers are the order in which
  the engine gave them out. A reader reads the batch of its own number, and no other.
- *Nothing is missed.* A reader joins under `_taking`, at the number of the batch that is taken next, or where its parent stands:
  what lies from there on is kept until it has read it.
- *Bounded.* Nobody takes another batch while `room` rows or more wait for the slowest reader. So what is kept is less than `room`
  rows and one batch; the workers' own rings fill up behind it, and `push` waits, as with one reader.
- *Who leaves holds nothing.* Places are held weakly: a reader that was closed, or that nobody has any more, no longer counts.

An example. Readers A and B. A takes batches 0 and 1; both are kept for B. C joins: it begins with 2. B reads 0, which nobody
else needs: it goes. B reads 1, then takes 2, which is kept for A and C.

While a run has but the reader that `results()` is, none of this is there: it takes batches from the engine (`run`).

Held by tests/threads/test_readers.py.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

import pyarrow as pa

from plait.errors import RunError
from plait.threads.life.guard import guarded
from plait.threads.options import Options

Take = Callable[[int], pa.RecordBatch | bool | None]

SLICE_S = 0.1  # how often whoever waits for results looks whether the run has stopped


class Place:
    """Where a reader of an outlet stands: `at` is the number of the batch that it reads next; `left`: it reads no more."""

    def __init__(self, outlet: Outlet, name: str, at: int) -> None:
        self.outlet, self.name, self.at, self.left = outlet, name, at, False


class Outlet:
    """See the module. `room`: rows that may wait for a reader.

    Under `_guard`: `_kept`, batches that some reader has yet to read, `_first` the number of the first of them, `_rows` how many
    rows they have. `_guard` may be taken inside `_taking`, never the other way round.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._taking = threading.Lock()
        self._guard, self._changed = guarded()
        self._places: weakref.WeakSet[Place] = weakref.WeakSet()
        self._kept: deque[pa.RecordBatch] = deque()
        self._first = self._rows = 0
        self._made = 0
        self._own: Place | None = None

    # --- readers come and go ---

    def join(self, parent: Place | None = None) -> Place:
        """Another reader: it begins with the batch that is taken next, or where its parent stands."""
        with self._taking, self._guard:
            if parent is not None and parent.left:
                raise closed(parent)
            self._made += 1
            place = Place(self, f"reader {self._made}", self._end if parent is None else parent.at)
            self._places.add(place)
            return place

    def own(self) -> Place:
        """The one that `Run.results` reads for: a reader as all others from its first call on."""
        if self._own is None:
            with self._taking, self._guard:
                if self._own is None:
                    own = Place(self, "results()", self._end)
                    self._places.add(own)
                    self._own = own
        return self._own

    def leave(self, place: Place) -> None:
        """It holds nothing any more; who waits for its next batch is told that there is none."""
        with self._guard:
            place.left = True
            self._places.discard(place)
            self._let_go()
            self._changed.notify_all()

    # --- batches ---

    def next(self, place: Place, take: Take, wait_ns: int) -> pa.RecordBatch | bool | None:
        """A reader's next batch; None if there is none in time; False at the end. `take` is the engine's.

        It waits for a slower reader, for another that takes a batch, or takes one itself. If `take` raises, nothing has changed
        here; whoever called has to stop the run.
        """
        deadline = time.monotonic_ns() + wait_ns
        while True:
            with self._guard:
                if place.left:
                    return False
                if place.at < self._end:
                    return self._read(place)
                self._let_go()  # of what those had to read whom nobody has any more
                left = max(deadline - time.monotonic_ns(), 0)
                if self._rows >= self._room or self._taking.locked():
                    if left == 0:
                        return None
                    self._changed.wait(left / 1e9)
                    continue
            # Not held by anybody a moment ago: if it is by now, that one's wait is as short as this one's.
            with self._taking:
                with self._guard:
                    if place.at < self._end:
                        return self._read(place)
                batch = take(left)
                if isinstance(batch, pa.RecordBatch):
                    with self._guard:
                        self._kept.append(batch)
                        self._rows += batch.num_rows
                        batch = False if place.left else self._read(place)
            with self._guard:
                self._changed.notify_all()  # there is a batch, or somebody else may take one
            return batch

    def slowest(self, place: Place) -> tuple[str, int] | None:
        """Whom this reader waits for, by name, and where that one stands; None if it does not wait for a reader."""
        with self._guard:
            if place.at < self._end or self._rows < self._room:
                return None
            found = min(self._places, key=lambda each: each.at)
            return found.name, found.at

    @property
    def _end(self) -> int:
        """The number of the batch that is taken next."""
        return self._first + len(self._kept)

    def _read(self, place: Place) -> pa.RecordBatch:
        batch = self._kept[place.at - self._first]
        place.at += 1
        if place.at - 1 == self._first:
            self._let_go()
            self._changed.notify_all()  # there may be room
        return batch

    def _let_go(self) -> None:
        """Of batches that every reader has read."""
        least = min((each.at for each in self._places), default=self._end)
        while self._kept and self._first < least:
            self._rows -= self._kept.popleft().num_rows
            self._first += 1


class Reader:
    """One of several readers of a run's results. It is made by `run.reader()`.

    All readers of a run see the same batches in the same order, each at its own pace; one thread at a time reads as one reader.
    A reader that is behind by `unread_results` rows holds the others back, and with them the run. So read each in a thread of its
    own, and close those that are no longer read: leaving its `with` block does, and so does dropping it.

    Attributes:
        name: What errors call it: `"reader 1"`, `"reader 2"` ...
        place: Where it stands among the run's readers.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
        ...     screen, archive = run.reader(), run.reader()
        ...     run.push("readings", None, {"ts": [1, 2, 15]})
        ...     run.drain()
        ...     sum(batch.num_rows for batch in screen), archive.table()["n"].to_pylist()
        (2, [2, 1])
    """

    def __init__(self, place: Place, read: Callable[[Place, float | None], Iterator[pa.RecordBatch]],
                 schema: Callable[[], pa.Schema]) -> None:  # fmt: skip
        self.place, self.name, self._read, self._schema = place, place.name, read, schema

    def results(self, *, timeout_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """This reader's next batches, as `Run.results` gives them: until the input has ended and all are out.

        Args:
            timeout_s: End also when nothing has come for so many seconds. 0 gives what is there. None waits for ever.

        Yields:
            Arrow record batches in result order.

        Raises:
            PlaitError: Whatever has stopped the run.
            RunError: The reader was closed, or waited for another one longer than `stall_after_s`; the latter stops the run.

        Example:
            >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
            ...     reader = run.reader()
            ...     list(reader.results(timeout_s=0))
            []
        """
        if self.place.left:
            raise closed(self.place)
        return self._read(self.place, timeout_s)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.results()

    def table(self) -> pa.Table:
        """Everything that this reader has still to come, as one table. It waits until the input has ended.

        Returns:
            An Arrow table in result order.

        Raises:
            PlaitError: Whatever has stopped the run.

        Example:
            >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
            ...     reader = run.reader()
            ...     run.push("readings", None, {"ts": [1, 2]})
            ...     run.drain()
            ...     reader.table().num_rows
            1
        """
        batches = list(self.results())
        return pa.Table.from_batches(batches, self._schema()).combine_chunks()

    def close(self) -> None:
        """Read no more: nothing is kept for this reader, and it holds nobody back. A second call does nothing.

        A thread that waits in its `results` comes to the end.

        Example:
            >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
            ...     run.reader().close()
        """
        self.place.outlet.leave(self.place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.close()


def closed(place: Place) -> RunError:
    return RunError(
        f"{place.name} was closed", do="Call reader() of the run for another one, before it reads what you need"
    )


def waited(place: Place, slowest: str, seconds: float, room: int) -> RunError:
    """A reader that does not read holds the others back for too long."""
    return RunError(
        f"{place.name} waited {seconds:g} s for {slowest}, which has not read",
        why=f"{room} rows or more are kept for it: unread_results={room}",
        do="Read each reader in a thread of its own, close those that are not read, or raise unread_results=",
    )


class Patience:
    """How long somebody still waits for results; None: for ever."""

    def __init__(self, timeout_s: float | None) -> None:
        self._until = None if timeout_s is None else time.monotonic() + timeout_s

    def slice_s(self) -> float:
        """So long at once at most, so that who waits hears of an error."""
        return SLICE_S if self._until is None else max(0.0, min(self._until - time.monotonic(), SLICE_S))

    def over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until


class Held:
    """How long a reader has waited for one that does not move."""

    def __init__(self, options: Options) -> None:
        self._stall, self._room = options.stall_after_s, options.unread_results
        self._by: tuple[str, int] | None = None
        self._since = self._looked = 0.0

    def look(self, outlet: Outlet, place: Place) -> None:
        """After a wait in vain. Raise if there were too many: the other one may be this very thread's to read."""
        by, now = outlet.slowest(place), time.monotonic()
        if by is None or by != self._by or now - self._looked > 10 * SLICE_S:  # else it has waited all the time
            self._by, self._since = by, now
        elif now - self._since > self._stall:
            raise waited(place, by[0], self._stall, self._room)
        self._looked = now
