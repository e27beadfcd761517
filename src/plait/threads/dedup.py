"""What runs behind a `Run` of a dedup: the gate, shares of the keys, and the threads that serve them.

Sources, gate, errors, pauses and the end are every engine's (`engine`, `push`). Every share sees all tuples in total order and
judges those whose key is its own, by a hash of it (`core.dedup`). So each key is judged in total order by one share, whoever
serves it (`threads.gate.epochs`). What is kept is given out by its rank among all tuples, which all shares count alike.

Key columns of fixed width go through the sources' arenas. Text is taken from the rows, which are kept until all shares have
passed them. Held by tests/threads/test_dedup.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.columns import Read
from plait.core.aggregate.reads import Columns
from plait.core.dedup import LastKept
from plait.core.machine.line import lines
from plait.core.metrics import Counts
from plait.encodings import as_array
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import Bound, passed_on
from plait.query.dedup import Dedup
from plait.threads import words as shared
from plait.threads.aggregate.engine import Laid, PaneEncoder
from plait.threads.aggregate.results import OrderedResults, Placed
from plait.threads.aggregate.tuml import lay_out
from plait.threads.elastic.crew import BLOCKED, FINISHED, IDLE, WORKED, Crew, Taken, refused
from plait.threads.elastic.manager import Epochs
from plait.threads.engine import Engine
from plait.threads.gate import codes
from plait.threads.ground import Ground
from plait.threads.input.payload import Payload
from plait.threads.input.push import Pusher, one_type
from plait.threads.life.together import Together
from plait.threads.options import Options
from plait.threads.plan import Sharing
from plait.threads.results import full_key

BATCH = 1 << 14  # tuples a thread takes of a share at once, unless batch= says otherwise


class Keeper(Laid):
    """One share's memory: what was kept of its keys, tuples taken for it, and its counters.

    `passed`: time has passed so far here. `rank`: how many tuples it has seen, of all keys.
    """

    def __init__(self, number: int, last: LastKept, columns: Columns, most: int) -> None:
        super().__init__(columns, most)
        self.number, self.last = number, last
        self.words = lines(shared.WORKER_WORDS)
        self.taken = Taken(most)
        self.passed, self.rank = BEFORE_ALL, 0

    def progressed(self) -> int:
        return self.rank + int(self.words[shared.BATCHES])

    def counts(self) -> Counts:
        w = self.words
        return self.last.counts + Counts(results=int(w[shared.RESULTS]), batches=int(w[shared.BATCHES]))


class DedupEngine(Engine[Keeper]):
    """A dedup. Always with epochs, also where `elastic=` was not said: a share is then served by one thread for good."""

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Sharing, options: Options,
                 together: Together) -> None:  # fmt: skip
        node, (source,) = bound.node, bound.inputs
        assert isinstance(node, Dedup)
        count, self.most = made.shares, options.batch or BATCH
        self._columns = Columns(node, source.schema)
        keepers = [Keeper(k, LastKept(node, source.schema), self._columns, self.most) for k in range(count)]
        ground = Ground(bound, schemas, options, together, readers=count, most=self.most, switches=True,
                        columns=len(keepers[0].kinds))  # fmt: skip
        (name,) = ground.intakes
        pauser = ground.pauser(keepers)
        epochs = Epochs(ground.gate, ground.control, count, made.workers, max(count, options.elastic or 0))
        encoder = PaneEncoder(self._columns, name)
        self.payload, self._intake = Payload(schemas[name]), ground.intakes[name]
        pusher = Pusher(ground, pauser, {name: self.payload}, encoder, widen=one_type, epochs=epochs)
        self.results = OrderedResults(bound, count, ground.latency, keys=options.keys, room=options.unread_results)
        super().__init__(ground, made, workers=keepers, encoder=encoder, payloads={name: self.payload}, pauser=pauser,
                         pusher=pusher, gatherer=self.results, epochs=epochs)  # fmt: skip
        self._shown, self._words = passed_on(source), epochs.words
        self._crew = Crew(ground.gate.words, ground.control, epochs.words, pauser)

    # --- threads ---

    def _serve(self, thread: int) -> None:
        self._crew.serve(thread, self._step)

    def _step(self, number: int) -> int:
        """A batch of a share, up to the next switch of epochs; nothing in it waits."""
        keeper = self.workers[number]
        w = keeper.words
        if self.results.crowded(number):
            w[shared.WAITS] = shared.FOR_CONSUMER
            return BLOCKED
        began = time.monotonic_ns()
        n, frontier = keeper.taken.next(self.gate, self._words, number, self.most)
        w[shared.WAITS] = shared.FOR_TUPLES if n == 0 else shared.NOTHING
        if n == codes.DONE:
            n, frontier = 0, AFTER_ALL
        elif n < 0:
            refused(n, number, self.together.over)
        worked, frontier = n > 0 or frontier > keeper.passed, max(frontier, keeper.passed)
        if worked:
            read = time.monotonic_ns()
            w[shared.NS_READ] += read - began
            self._update(keeper, n, frontier)
            w[shared.NS_STORE] += time.monotonic_ns() - read
        epoch = keeper.taken.epoch
        if epoch:
            self._crew.hand_on(number, epoch)  # from here on the share is another's
        return FINISHED if frontier == AFTER_ALL else WORKED if worked or epoch else IDLE

    def _update(self, keeper: Keeper, n: int, frontier: int) -> None:
        """Judge a batch's tuples, and hand over those that are kept."""
        rows = self._kept(keeper, n) if n else []
        keeper.rank += n
        keeper.passed = frontier
        w = keeper.words
        w[shared.TUPLES] += n
        w[shared.BATCHES] += 1
        w[shared.RESULTS] += sum(batch.num_rows for batch, *_ in rows)
        self.results.offer(keeper.number, rows, AFTER_ALL if frontier == AFTER_ALL else keeper.rank, frontier)
        self.payload.expire(min(each.passed for each in self.workers))

    def _kept(self, keeper: Keeper, n: int) -> list[Placed]:
        ts, origin, seq, ref = (column[:n] for column in keeper.taken.rows)
        arenas = self.arenas
        lay_out(n, origin, seq, arenas.table, arenas.size - 1, keeper.kinds, keeper.wide, keeper.narrow)
        read = self._columns.read(keeper.arrays(n), n)
        rows = self.payload.take(ref, extra=False).select(list(self._columns.varied)) if self._columns.varied else None
        own = np.arange(n)
        if len(self.workers) > 1:
            own = np.flatnonzero(keeper.last.groups.owner(read, rows, n, len(self.workers)) == keeper.number)
            bits = {name: (bits[own], valid[own]) for name, (bits, valid) in read.bits.items()}
            read, rows = Read(bits, [], read.ones[own]), None if rows is None else rows.take(pa.array(own))
        at = own[keeper.last.judged(ts[own], read, rows)]
        return [self._rows(ts[at], ref[at], keeper.rank + at)] if len(at) else []

    def _rows(self, ts: np.ndarray, ref: np.ndarray, places: np.ndarray) -> Placed:
        """Tuples that are kept as rows of results, with what places them among others' and when they were pushed."""
        n, table = len(ts), self.payload.take(ref, extra=self.options.keys)
        columns = [pa.array(ts), *(table.column(at) for at in self._shown)]
        arrays = [as_array(c, f.type) for c, f in zip(columns, self.bound.schema, strict=True)]
        if self.options.keys:
            arrays.append(keys.nest(full_key(self._intake, 0, table, n), n=n))
        made = pa.RecordBatch.from_arrays(arrays, schema=self.results.schema)
        return made, places, self.payload.pushed_ns(ref)

    # --- what is going on ---

    def describe(self) -> list[str]:
        return ["keys: compiled, a look-up and a comparison a tuple"]

    def _served(self, side: int) -> str:
        return "keys"

    def _loads(self) -> list[float]:
        return [float(w.words[shared.NS_STORE]) for w in self.workers]

    def _windows_nbytes(self) -> int:
        return sum(w.last.nbytes for w in self.workers)
