"""Small trees of mergers under the scheduler: the text of `loop.out` and `loop.gather` itself, and what every run must keep to.

Workers are a few lines of their own here: they put the results that a case gives them, say how far they are after each batch, and
come to an end. All that they share with mergers, and these with whoever reads, is the product's code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from tests.explore import races
from tests.explore.schedule import Clock, Scenario
from tests.explore.twin import Patches, Twin

from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.join.loop import gather as real
from plait.threads.join.loop import words as o
from plait.threads.words import CONTROL_WORDS

Steps = Generator[Any, None, Any]
#: Of a worker its batches: of each the results (rank of the trigger, number of the partner; None: a row without any that is due
#: at the ts of this rank; -1 - n: the n-th right row, which all workers compare, and this one has found none for), and the rank
#: behind the batch.
Batches = list[tuple[list[tuple[int, int | None]], int]]

OUT, GATHER = "plait.threads.join.loop.out", "plait.threads.join.loop.gather"


class Table:
    """A ring as its writer sees it: rows of E_WORDS words."""

    def __init__(self, flat: Any) -> None:
        self.flat = flat

    def __setitem__(self, at: tuple[int, int], value: int) -> None:
        self.flat[at[0] * o.E_WORDS + at[1]] = value


class Tree:
    """Rings of workers and mergers, and who reads: what one run shares. An address is a number in `memory`."""

    def __init__(self, case: Case, clock: Clock) -> None:
        self.case, self.memory = case, {}
        self.clock, self._next = clock, 1
        self.control = self._array(CONTROL_WORDS + 16 * o.EVENTS)[1]
        self.workers = [self._ring() for _ in case.workers]
        gathered = list(self.workers)
        self.mergers = []
        for inputs in case.mergers:
            made = self._ring()
            self.mergers.append((made, [gathered[k] for k in inputs]))
            gathered.append(made)
        merged = {k for inputs in case.mergers for k in inputs}
        # The first merger of a case has the first workers: what nobody merges comes after it.
        roots = sorted((k for k in range(len(gathered)) if k not in merged), key=lambda k: k < len(case.workers))
        self.roots = [gathered[k] for k in roots]
        self.taken: list[tuple[int, ...]] = []

    def _array(self, size: int) -> tuple[int, Any]:
        words = [0] * size
        made = races.Memory(words, self.clock, self.case.threads)
        if self.memory:
            made.known = self.memory[1].known  # what threads know of one another they know of all arrays
        self.memory[self._next] = made
        self._next += 1
        return self._next - 1, made

    def _ring(self) -> int:
        at, w = self._array(o.WORDS)
        out, _ = self._array(self.case.room * o.E_WORDS)
        w.words[o.OUT], w.words[o.OUT_MASK] = out, self.case.room - 1
        w.words[o.ALONE], w.words[o.ALONE + 1] = int(self.case.unmatched), len(self.case.workers) * self.case.counted
        for word in (o.FRONTIER, o.DONE_TS, o.LIVE_TS, o.LIVE_TS + 1, real.DUE_LIVE, real.DUE_LIVE + 1):
            w.words[word] = BEFORE_ALL
        return at

    def work(self, number: int) -> Steps:
        """A worker: results of a trigger name a row of its rank, and one of ts rank - 2, which is live that long."""
        w, call = self.memory[self.workers[number]], self.case.out
        out = Table(self.memory[w.words[o.OUT]])
        for results, until in self.case.workers[number]:
            for rank, partner in results:
                w[o.AT_RANK] = rank
                w[o.PHASE] = o.EMITTING
                yield from call["room"](self.control, w)
                if partner is None:
                    yield from call["put"](w, out, rank, o.UNMATCHED, 0, AFTER_ALL, AFTER_ALL)  # rows that stay
                elif partner < 0:
                    yield from call["put"](w, out, rank, o.UNMATCHED + 1, -1 - partner, AFTER_ALL, AFTER_ALL)
                else:
                    yield from call["put"](w, out, rank, 2 * rank, partner, rank, max(0, rank - 2))
            w[o.RANK], w[o.PHASE] = until, o.CLOSING
            yield from call["publish_progress"](self.control, w, until - 1, until, until - 2)
        yield from call["publish_progress"](self.control, w, AFTER_ALL, AFTER_ALL, AFTER_ALL)

    def _scratch(self, rings: list[int], most: int) -> tuple[Any, ...]:
        n = len(rings)
        return (np.zeros(n, np.int64), np.zeros((real.KNOWN, n), np.int64), self.case.every, self.case.block), (
            np.zeros((o.E_WORDS, most), np.int64), np.zeros(real.SEEN, np.int64),
        )  # fmt: skip

    def merge(self, number: int) -> Steps:
        own, rings = self.mergers[number]
        known, scratch = self._scratch(rings, self.case.most)
        answer = yield from self.case.gather["work_merger"](self.control, self.memory[own], rings, *known, *scratch)
        assert answer == o.FINISHED

    def read(self) -> Steps:
        """Whoever reads: as `threads.results.Gatherer`, which lets go of rows that no later result names."""
        known, (dest, seen) = self._scratch(self.roots, self.case.most)
        every, gone, due = self.case.every, (BEFORE_ALL, BEFORE_ALL), (0, BEFORE_ALL, BEFORE_ALL)
        while True:
            number = yield from self.case.gather["gather_waiting"](
                self.control, self.roots, *known, self.case.most, dest, seen, 1
            )
            for k in range(number):
                entry = tuple(int(word) for word in dest[:, k])
                there = entry[o.E_LEFT] >= gone[0] and entry[o.E_RIGHT] >= gone[1]
                assert there, f"{entry} names a row that was let go of"
                self.taken.append(entry[:3])
            if number < self.case.most:
                rank = int(seen[2])
                if (rank if every <= 1 else rank // every * every) >= due[0]:
                    gone = (int(seen[0]), int(seen[1])) if every <= 1 else due[1:]
                    due = (rank, int(seen[0]), int(seen[1]))
            if number == real.ENDED:
                return


class Case:
    """Workers, mergers and a precision, from which runs start."""

    def __init__(self, workers: list[Batches], *, mergers: tuple[tuple[int, ...], ...] = ((0, 1),), every: int = real.STRICT,
                 block: int = 0, room: int = 2, most: int = 2, patches: Patches | None = None) -> None:  # fmt: skip
        self.workers, self.mergers, self.every, self.block = workers, mergers, every, block
        put = [partner for batches in workers for results, _ in batches for _, partner in results]
        self.unmatched, self.counted = None in put, any(partner is not None and partner < 0 for partner in put)
        self.room, self.most, self.threads = room, most, len(workers) + len(mergers) + 1
        self._tree: Tree | None = None
        native = {
            "ints": lambda address, n: self._tree.memory[int(address)],
            "octets": None,
            "clock_ns": lambda words, at: 0,
        }
        twin = Twin(("plait.threads.gate", OUT, GATHER), patches=patches, steps=races, native=native)
        self.gather, self.out = twin(GATHER), twin(OUT)

    def scenario(self) -> Scenario:
        def start(clock: Clock) -> tuple[list[Steps], Callable[[], None]]:
            tree = self._tree = Tree(self, clock)
            threads = [tree.work(k) for k in range(len(self.workers))]
            threads += [tree.merge(k) for k in range(len(self.mergers))]
            return [*threads, tree.read()], lambda: self.finish(tree)

        return start

    def finish(self, tree: Tree) -> None:
        """Nothing is lost or repeated, nothing is out of the order that the precision asks for, and nobody is left asleep."""
        worker: dict[tuple[int, ...], int] = {}
        said: dict[tuple[int, ...], int] = {}
        for k, batches in enumerate(self.workers):
            for rank, partner in [result for results, _ in batches for result in results]:
                if partner is not None and partner < 0:
                    entry = (rank, o.UNMATCHED + 1, -1 - partner)
                    said[entry] = said.get(entry, 0) + 1
                else:
                    worker[(rank, o.UNMATCHED, 0) if partner is None else (rank, 2 * rank, partner)] = k
        worker |= {entry: 0 for entry, times in said.items() if times == len(self.workers)}
        assert sorted(tree.taken) == sorted(worker)
        if self.every == real.STRICT:
            assert tree.taken == sorted(worker)
        elif self.unmatched or self.counted:
            assert [entry[:2] for entry in tree.taken] == [entry[:2] for entry in sorted(worker)]
        elif self.every > 0:
            cut = [(e[1] // 2 // self.every, e[2] // self.block if self.block else 0, worker[e]) for e in tree.taken]
            assert cut == sorted(cut)
        assert all(tree.control.words[event] == 0 for event in (o.OUT_SLEEPERS, o.ROOM_SLEEPERS))
        assert tree.control.words[shared.HALT] == 0
