"""What runs behind a `Run` of a user's operator: the gate, shares of its buckets, and the threads that serve them.

Sources, gate, errors, pauses and the end are every engine's (`engine`, `push`). Invariant: a share sees all tuples
in total order, and hands its buckets those that are routed to them; one thread at a time serves it (`threads.gate.epochs`). So
each bucket sees its tuples in total order, alone, whoever serves it.

At the end of input time passes to the last tuple of all; then the timers run that are pending anywhere, and those that
they set if they are not later than the last of these (`buckets`). For that each share says what it has pending before any of
them goes on. «All» are the streams of the whole query, not only those that come to this operator (`dag`).

Timers may set timers, so how many are due can't be known. They run some at a time; between, the thread serves its other
shares, what came out can be read, and the run can be stopped.

Where this departs from STRETCH (sections 4.2 and 5): users pass functions, not a class of buckets; there are timers; what the
paper's `filter` answers is asked once a tuple, of `route`, by the thread that pushes it, and every share reads every tuple all
the same.

An example of the end. Two shares; the last tuple of all has ts 50. Share 0 has a timer at 60, share 1 one at 90. Both
first pass time to 50. Then each says its last pending timer. When both have, time passes to 90 everywhere: the timers
at 60 and 90 run, and those that they set, if they are not later than 90. One set for 95 does not run. A share that
went on alone would stop at 60, and results would depend on how buckets were split.

Held by tests/threads/test_operators.py (the reference's bytes, however shares are served) and
tests/threads/test_timers.py (the end of input).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.machine.line import lines
from plait.core.metrics import Counts
from plait.core.operator.buckets import PlainBuckets, Rows, RowView, end_of_timers, pairs
from plait.core.operator.compiled import Made, made_for
from plait.errors import PlaitError, user_raised
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.query.stream import SourceName
from plait.threads import words as shared
from plait.threads.aggregate.results import OrderedResults, Placed
from plait.threads.aggregate.tuml import lay_out
from plait.threads.elastic.crew import BLOCKED, FINISHED, IDLE, WORKED, Crew, Taken, refused
from plait.threads.elastic.manager import Epochs
from plait.threads.engine import Engine
from plait.threads.gate import codes
from plait.threads.ground import Ground
from plait.threads.input.payload import Payload
from plait.threads.input.push import Pusher, one_type
from plait.threads.life.pause import Pauser, Stopped
from plait.threads.life.together import Together
from plait.threads.operator.route import SEVERAL, Router
from plait.threads.options import Options
from plait.threads.plan import Sharing
from plait.threads.results import full_key
from plait.threads.stats import Last

#: Tuples a thread takes of a share at once, unless batch= says otherwise. Each share reads every tuple, and a step has some
#: 0.4 ms of Python in it whatever it takes; functions in Python have to let others go on sooner.
BATCH, PLAIN_BATCH = 1 << 14, 1 << 12
TIMERS = 1 << 12  # timers that run in one step of a share


_NONE = np.empty(0, np.int64)


class Share:
    """One share's memory: its buckets, tuples taken for it, and its counters.

    `buckets` is the users' state: compiled or plain. `wide` holds a batch's routes (row 0) and the columns that
    compiled functions read. `passed`: time has passed so far here. `told`: what an operator behind this one was told.
    `rank`: tuples seen, `last` the last of them before a moment. At the end of input `at_last` is set first, then
    `pending`, then `ending`: other shares read `pending` once `ending` is true.
    """

    def __init__(self, number: int, buckets: Any, most: int) -> None:
        self.number, self.buckets = number, buckets
        self.words = lines(shared.WORKER_WORDS)
        self.taken = Taken(most)
        kinds = 1 + (0 if not buckets.compiled else buckets.width)
        self.kinds = np.ones(kinds, np.int64)
        self.wide, self.narrow = np.zeros((kinds, most), np.int64), np.zeros((1, 1), np.uint8)
        self.passed, self.told, self.rank = BEFORE_ALL, BEFORE_ALL, 0
        self.last = Last()
        self.until: int | None = None  # time has passed so far, and timers are still to run
        self.at_last = False  # the input has ended, and time has passed to the last tuple of all
        self.ending = False  # after that, it has said what is pending
        self.pending: int | None = None

    def progressed(self) -> int:
        return self.rank + int(self.words[shared.BATCHES])

    def counts(self) -> Counts:
        w = self.words
        made: Counts = self.buckets.counts
        return made + Counts(results=int(w[shared.RESULTS]), batches=int(w[shared.BATCHES]))


class Shares:
    """All shares, and how the user's functions are run in them: as machine code (`compiled`), or in Python, and then why."""

    def __init__(self, query: Operator, compiled: Made | None, why_plain: str, shares: int, most: int,
                 between: Callable[[], None]) -> None:  # fmt: skip
        self.compiled, self.why_plain = compiled, why_plain
        self.all = [
            Share(k, PlainBuckets(query, between) if compiled is None else compiled.buckets(k, shares, between), most)
            for k in range(shares)
        ]

    def go_plain(self, why: str) -> None:
        """From compiled functions to plain Python, which goes on with the same states; while nobody serves a share.

        Inside `Pauser.still`, by the thread whose rows the compiled functions can't read. States are carried over, so
        results do not change.
        """
        for share in self.all:
            share.buckets = share.buckets.plain()
        self.compiled, self.why_plain = None, why

    def describe(self) -> list[str]:
        if self.compiled is None:
            return [f"the operator's functions run in plain Python: {self.why_plain}"]
        redone = sum(share.buckets.redone for share in self.all)
        by_python = f"{redone} calls that machine code can't make as Python does were undone, and made by Python"
        return [*self.compiled.describe(), *([by_python] if redone else [])]


class OperatorEngine(Engine[Share]):
    """A user's operator.

    Always with epochs, also where `elastic=` was not said: a share is then served by one thread for good. `_reached`
    is how far this operator's gate had come before the end of input.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Sharing, options: Options,
                 together: Together) -> None:  # fmt: skip
        query = bound.node
        assert isinstance(query, Operator)
        compiled, why_plain = (None, "plain=True") if options.plain else made_for(bound, options.cache_dir)
        count, self.most = made.shares, options.batch or (PLAIN_BATCH if compiled is None else BATCH)
        ground = Ground(bound, schemas, options, together, readers=count, most=self.most, switches=True,
                        columns=2 + (0 if compiled is None else len(compiled.layout())))  # fmt: skip
        self.shares = Shares(query, compiled, why_plain, count, self.most, together.unless_over)
        pauser = ground.pauser(self.shares.all)
        epochs = Epochs(ground.gate, ground.control, count, made.workers, max(count, options.elastic or 0))
        self.router = Router(bound, compiled, _plainly(self.shares, pauser))
        payloads = {name: Payload(schemas[name]) for name in ground.intakes}
        pusher = Pusher(ground, pauser, payloads, self.router, widen=one_type, epochs=epochs)
        self.results = OrderedResults(bound, count, ground.latency, keys=options.keys, room=options.unread_results)
        super().__init__(ground, made, workers=self.shares.all, encoder=self.router, payloads=payloads, pauser=pauser,
                         pusher=pusher, gatherer=self.results, epochs=epochs)  # fmt: skip
        self._buckets, self._words = query.buckets, epochs.words
        self._of_input = [payloads[name] for name in ground.names]
        self._intake_of_input = [ground.intakes[name] for name in ground.names]
        self._reached = BEFORE_ALL  # the last frontier before the end of input
        self._crew = Crew(ground.gate.words, ground.control, epochs.words, pauser)

    # --- calls of Run ---

    def push(self, stream: str, source: SourceName | None, batches: list[pa.RecordBatch]) -> None:
        super().push(stream, source, batches)
        self._note_frontier()

    def heartbeat(self, stream: str, source: SourceName, ts: int) -> None:
        super().heartbeat(stream, source, ts)
        self._note_frontier()

    def close(self, stream: str, source: SourceName | None) -> None:
        super().close(stream, source)
        self._note_frontier()

    def _note_frontier(self) -> None:
        """After each call that may move it.

        At the end of input all sources are at AFTER_ALL, and the last real frontier would be lost.
        """
        frontier = self.gate.frontier()[0]
        if frontier < AFTER_ALL:
            self._reached = max(self._reached, frontier)

    # --- threads ---

    def _serve(self, thread: int) -> None:
        self._crew.serve(thread, self._step)

    def _step(self, number: int) -> int:
        """Take ready tuples of a share, hand them to their buckets, and what comes out to the reader of results.

        Whoever serves the share calls this; nothing in it waits. Timers that were left over go before new tuples.
        """
        share = self.workers[number]
        w = share.words
        if self.results.crowded(number):
            w[shared.WAITS] = shared.FOR_CONSUMER
            return BLOCKED
        if share.until is not None:
            self._pass_time(share, share.until)
            return WORKED
        began = time.monotonic_ns()
        n, frontier = share.taken.next(self.gate, self._words, number, self.most)
        w[shared.WAITS] = shared.FOR_TUPLES if n == 0 else shared.NOTHING
        if n == codes.DONE:
            return self._end(share)
        if n < 0:
            refused(n, number, self.together.over)
        if frontier == AFTER_ALL:  # the input's end has a rule of its own: here time passes to what is there
            frontier = max(share.passed, int(share.taken.rows[0, n - 1]) if n else BEFORE_ALL)
        worked = n > 0 or frontier > share.passed
        if worked:
            read = time.monotonic_ns()
            w[shared.NS_READ] += read - began
            self._update(share, n, frontier)
            w[shared.NS_STORE] += time.monotonic_ns() - read
        epoch = share.taken.epoch
        if epoch:
            self._crew.hand_on(number, epoch)  # from here on the share is another's
        return WORKED if worked or epoch else IDLE

    def _update(self, share: Share, n: int, frontier: int) -> None:
        """Hand a batch's tuples to the share's buckets, then let time pass to the frontier.

        `pairs` gives (tuple, bucket), in total order; only buckets of this share.
        """
        ts, origin, seq, ref = (column[:n] for column in share.taken.rows)
        lay_out(n, origin, seq, self.arenas.table, self.arenas.size - 1, share.kinds, share.wide, share.narrow)
        which, buckets = pairs(
            share.wide[0, :n],
            lambda i: self._several(int(origin[i]), int(seq[i])),
            share.number,
            len(self.workers),
            self._buckets,
        )
        with self._calling(share, ts, origin):
            if len(which) and not share.buckets.compiled:
                share.buckets.take(ts, share.rank, which, buckets, self._views(ts, origin, ref, np.unique(which)))
            elif len(which):
                view = lambda i: self._views(ts, origin, ref, np.array([i]))(i)  # noqa: E731  # for a call that Python makes
                share.buckets.take(ts, origin >> 32, share.rank, which, buckets, share.wide[1:, :n], view)
        w = share.words
        w[shared.TUPLES] += n
        share.last.took(ts, lambda at: self._pushed_ns(origin[at], ref[at]))
        self._pass_time(share, frontier, origin, ref)
        share.rank += n
        least = min(s.passed for s in self.workers)
        for payload in self.payloads.values():
            payload.expire(least)

    def _pass_time(self, share: Share, until: int, origin: np.ndarray = _NONE, ref: np.ndarray = _NONE) -> None:
        """Run timers up to `until`, or some of them: then the share's next step goes on. Hands over what has come out."""
        with self._calling(share, _NONE, _NONE):
            done = share.buckets.pass_time(until, TIMERS)
        share.until = None if done else until
        rows = self._rows(
            share, origin, ref
        )  # before it has passed them: others then let go of what they were made from
        # A timer at T gives rows of T - 1.
        share.passed = max(share.passed, until if done else share.buckets.next_timer() - 1)
        if not share.ending:
            # Later an operator that reads these results hears of the rows alone: for it, time passes to the last of them.
            share.told = share.passed
        share.words[shared.BATCHES] += 1
        self.results.offer(share.number, rows, share.passed, share.told)

    @contextmanager
    def _calling(self, share: Share, ts: np.ndarray, origin: np.ndarray) -> Iterator[None]:
        """What a user's function raises is told with what it was called with."""
        try:
            yield
        except (PlaitError, Stopped):
            raise
        except Exception as error:
            function, at, bucket = share.buckets.calling
            match function:
                case "on_timer":
                    why = f"it was called with a timer at {at}"
                case "state":
                    why = "it makes what the bucket begins with"
                case _:
                    stream = self.router.names[int(origin[at]) >> 32]
                    why = f"it was called with the tuple of {stream!r} at ts {int(ts[at])}"
            raise user_raised(error, f"The operator's {function} of bucket {bucket}", why) from error

    def _several(self, origin: int, seq: int) -> tuple[int, ...]:
        """The buckets of a tuple that was routed to more than one; they lie beside its route in the arena."""
        found: tuple[int, ...] = self.arenas.by_slot[origin & shared.SLOT_MASK].columns[SEVERAL][
            seq & (self.arenas.size - 1)
        ]
        return found

    def _views(self, ts: np.ndarray, origin: np.ndarray, ref: np.ndarray, own: np.ndarray) -> Any:
        """A tuple by its place in the batch, for those in `own`.

        Rows are taken from the payload for all of `own` at once, a stream at a time; a view is made when a function
        asks.
        """
        by_input: dict[int, tuple[Rows, dict[int, int]]] = {}
        of = origin[own] >> 32
        for side in np.unique(of).tolist():
            places = own[of == side]
            table = self._of_input[side].take(ref[places], extra=False)
            rows = Rows(table, ts[places], self.router.names[side])
            by_input[side] = (rows, {place: k for k, place in enumerate(places.tolist())})

        def view(i: int) -> RowView:
            rows, at = by_input[int(origin[i]) >> 32]
            return rows.view(at[i])

        return view

    def _pushed_ns(self, origin: np.ndarray, ref: np.ndarray) -> np.ndarray:
        """When tuples were pushed."""
        found, sides = np.empty(len(ref), np.int64), origin >> 32
        for side in np.unique(sides).tolist():
            found[sides == side] = self._of_input[side].pushed_ns(ref[sides == side])
        return found

    def _rows(self, share: Share, origin: np.ndarray, ref: np.ndarray) -> list[Placed]:
        """What has come out, as rows with their places, and when their tuples were pushed; for a timer's the last one before it.

        Places are (ts, rank of the tuple, bucket): what orders results between shares. A bucket is in one share, so
        equal places come from one thread.
        """
        out, columns = share.buckets.taken_out()
        if not len(out.ts):
            share.last.moved_on()
            return []
        share.words[shared.RESULTS] += len(out.ts)
        places = np.array([out.ts, out.rank, out.bucket], np.int64)
        arrays = [pa.array(places[0]).cast(self.bound.schema.field(0).type), *columns]
        if self.options.keys:
            arrays.append(self._keys(out, places, origin, ref))
        cause = np.array(out.cause, np.int64)
        pushed, called = np.empty(len(cause), np.int64), cause >= 0
        if called.any():
            pushed[called] = self._pushed_ns(origin[cause[called]], ref[cause[called]])
        if not called.all():
            pushed[~called] = share.last.pushed_ns(places[0, ~called])
        share.last.moved_on()
        return [(pa.RecordBatch.from_arrays(arrays, schema=self.results.schema), places, pushed)]

    def _keys(self, out: Any, places: np.ndarray, origin: np.ndarray, ref: np.ndarray) -> pa.Array:
        """((the tuple's key), bucket, index), or ((ts, AFTER_INPUTS), bucket, index) for a timer's."""
        cause = np.array(out.cause, np.int64)
        causes = np.full(len(cause), None, object)
        timed = cause < 0
        if timed.any():
            causes[timed] = keys.at_last(places[0][timed]).to_pylist()
        sides = np.where(timed, -1, (origin[cause] if len(origin) else cause) >> 32)
        for side in np.unique(sides[~timed]).tolist():
            at = np.flatnonzero(sides == side)
            rows = self._of_input[side].take(ref[cause[at]])
            causes[at] = full_key(self._intake_of_input[side], side, rows, len(at)).to_pylist()
        n = len(cause)
        nested = keys.nest(pa.array(causes.tolist(), pa.binary()), n=n)
        return keys.join(nested, keys.ints(places[2]), keys.ints(np.array(out.index, np.int64)), n=n)

    def _end(self, share: Share) -> int:
        """The input has ended: see the module."""
        if not share.at_last:
            share.at_last = True
            self._pass_time(share, max(self._reached, self.together.last_ts()))
            return WORKED
        if not share.ending:
            share.pending, share.ending = share.buckets.last_timer(), True
            return WORKED
        if not all(s.ending for s in self.workers):
            return BLOCKED
        last = end_of_timers(s.pending for s in self.workers)
        if last is not None and last > share.passed:
            self._pass_time(share, last)
            return WORKED
        self.results.offer(share.number, [], AFTER_ALL, AFTER_ALL)
        return FINISHED

    # --- what is going on ---

    def describe(self) -> list[str]:
        return self.shares.describe()

    def _served(self, side: int) -> str:
        return "buckets"

    def _loads(self) -> list[float]:
        return [float(w.words[shared.NS_STORE] + w.words[shared.NS_READ]) for w in self.workers]


def _plainly(shares: Shares, pauser: Pauser) -> Callable[[str], None]:
    """What gives compiled functions up while threads serve shares."""

    def go_plain(why: str) -> None:
        with pauser.still():
            shares.go_plain(why)

    return go_plain
