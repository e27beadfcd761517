"""The state manager of an elastic run: maps of shares to threads, requests for other maps, and what each change has cost.

One switch is under way at a time (`threads.gate.epochs` says why). A request that comes meanwhile waits for it; of several that
wait only the last is carried out, as the paper discards all but the most recent: the others are logged as superseded.
Nobody blocks here: a request is carried out by whoever calls `poll` next, which every push and every look for results
does.

An example. resize(4) at 2 threads: `spread` makes a map, it is logged as number 0, and the switch enters the gate at
once. resize(3) comes before all shares have met it: number 1 waits. resize(2) comes: number 1 is superseded, number 2
waits. The next push polls, finds that every share has met the first switch, and inserts the one of number 2.

Held by tests/threads/test_elastic.py: a run that switches gives the bytes of one that never did, and changes are
logged.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.core.machine.line import address, lines
from plait.errors import RunError
from plait.threads import words as shared
from plait.threads.atomics.native import made_ready
from plait.threads.gate import Gate, codes, epochs

#: What a map is content with: the paper's threads deviate by 2 percent at most (section 9.3).
DEVIATION = 0.02

PENDING, DONE, SUPERSEDED, REFUSED = "pending", "done", "superseded", "refused"


@dataclass(frozen=True)
class Change:
    """One request for another map of shares to threads, and what became of it. `Run.resize` and `Run.rebalance` give one.

    Attributes:
        number: Its place among the run's requests, from 0 on.
        kind: `"provision"`, `"decommission"` or `"rebalance"`.
        before: Threads that served shares before.
        after: Threads that are to serve them.
        moved: How many shares change hands.
        reason: Why it was asked for: the caller's words, or the policy's.
        at_s: When it was asked for, in seconds of the run.
        state: `"pending"`, `"done"`, `"superseded"` (by a later request) or `"refused"`.
        epoch: The number of the epoch that it began; 0 until it is done.
        event_time: Tuples from this ts on belong to the new epoch. None until that is known.
        reconfiguration_ms: The paper's: from the command to the moment that every share is served by the thread of the new map.
        switch_ms: The part of it between the first share that met the switch and the last that was taken up.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()}, by="meter")
        >>> with query.on_threads(workers=1, elastic=2) as run:
        ...     run.push("readings", None, {"ts": [1, 2], "meter": [7, 8]})
        ...     change = run.resize(2)
        ...     change.kind, change.before, change.after
        ('provision', 1, 2)
    """

    number: int
    kind: str
    before: int
    after: int
    moved: int
    reason: str
    at_s: float
    state: str = PENDING
    epoch: int = 0
    event_time: int | None = None
    reconfiguration_ms: float | None = None
    switch_ms: float | None = None


class Epochs:
    """See the module. `words` is the memory of `threads.gate.epochs`, which the run's control words name.

    `_owners`: the map of the newest epoch in the gate. `_wanted`: what waits. `_current`: the number of the request
    whose switch is in the gate and not settled. `_log`: all changes, by number.
    """

    def __init__(self, gate: Gate, control: np.ndarray, shares: int, workers: int, threads: int) -> None:
        """Of a run that begins: its shares go to the first `workers` of its threads. The gate's last slot is for switches."""
        owners = spread([0] * shares, min(workers, shares))
        self.gate, self.words, self.threads = gate, lines(epochs.words(shares, threads)), threads
        control[shared.EPOCHS] = address(self.words)
        slot = gate.slots - 1
        self.lock = threading.Lock()
        self._slots, self._origins = np.array([slot], np.int64), np.array([epochs.SWITCH_ORIGIN], np.int64)
        self._tuple = tuple(np.zeros(1, np.int64) for _ in range(3))
        self._map = np.array(owners, np.int64)
        self._owners = owners  # of the newest epoch in the gate
        self.epoch = 0
        self._began = time.monotonic_ns()
        self._log: list[Change] = []
        self._asked_ns: dict[int, int] = {}
        self._wanted: tuple[int, list[int]] | None = None  # a request that waits: its number and map
        self._current: int | None = None  # the request whose switch is in the gate
        epochs.prepare(self.words, owners, threads)
        self._make_ready()

    def _make_ready(self) -> None:
        """What a switch calls is compiled, or loaded, now: in the middle of the first one it would take two seconds."""
        for function in (epochs.all_passed, epochs.all_taken):
            made_ready(function, self.words, 1)
        made_ready(epochs.share_at, self.words, 0)
        made_ready(epochs.switch_to, *self._switching(1))

    def _switching(self, epoch: int) -> tuple[Any, ...]:
        return self.gate.words, self.words, self._slots, self._origins, self._map, epoch, *self._tuple

    @property
    def shares(self) -> int:
        return len(self._owners)

    @property
    def owners(self) -> list[int]:
        """The map that was asked for last and not refused."""
        with self.lock:
            return list(self._owners if self._wanted is None else self._wanted[1])

    @property
    def active(self) -> int:
        return len(set(self.owners))

    def resize(self, workers: int, reason: str, loads: Sequence[float] = ()) -> Change:
        """Let so many threads serve the shares: equally many each, or as evenly as the shares' loads allow, if they are given."""
        self.check_size(workers)
        owners = spread(self.owners, min(workers, self.shares))
        return self.request(evened(loads, owners) if loads else owners, reason)

    def check_size(self, workers: int) -> None:
        """Refuse what is no number of threads that there may be."""
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= self.threads:
            raise RunError(
                f"resize({workers!r})",
                why=f"the state is in {self.shares} shares, and 1 to {self.threads} threads can serve it",
                do="Ask for a number in between, or raise elastic= in on_threads",
            )

    def request(self, owners: Sequence[int], reason: str) -> Change:
        """Ask for a map; says what is known now, `changes` has the rest later."""
        owners = self._checked(owners)
        with self.lock:
            before = self._owners if self._wanted is None else self._wanted[1]
            old, new = len(set(before)), len(set(owners))
            kind = "provision" if new > old else "decommission" if new < old else "rebalance"
            number = len(self._log)
            now = time.monotonic_ns()
            moved = sum(a != b for a, b in zip(self._owners, owners, strict=True))
            self._log.append(
                Change(number, kind, len(set(self._owners)), new, moved, reason, (now - self._began) / 1e9)
            )
            self._asked_ns[number] = now
            if self._wanted is not None:
                self._note(self._wanted[0], state=SUPERSEDED)
            self._wanted = (number, owners)
            self._advance()
            return self._log[number]

    def _checked(self, owners: Sequence[int]) -> list[int]:
        owners = [int(owner) for owner in owners]
        if len(owners) != self.shares or not all(0 <= owner < self.threads for owner in owners):
            raise RunError(
                f"A map of shares to threads is {owners}",
                why=f"it names one of the threads 0 to {self.threads - 1} for each of the {self.shares} shares",
                do="Pass one number a share; elastic= in on_threads sets how many there are",
            )
        return owners

    def poll(self) -> None:
        """Carry out what waits, and note what is done. Cheap while there is neither."""
        if (self._wanted is None and self._current is None) or self.lock.locked():
            return
        with self.lock:
            self._advance()

    def _advance(self) -> None:
        """Settle the switch in the gate if it is done, and insert the one that is wanted; under `lock`.

        DRAINING is no failure: some reader has yet to read the last switch's tuple; the next poll tries again.
        """
        if self._current is not None:
            # If every share has met it and some have not been served since, the next one can come all the same.
            done = epochs.all_taken if self._wanted is None else epochs.all_passed
            if not done(self.words, self.epoch):
                return
            self._settle()
        if self._wanted is None:
            return
        number, owners = self._wanted
        epoch = self.epoch + 1
        self._map[:] = owners
        code = int(epochs.switch_to(*self._switching(epoch)))
        if code == codes.DRAINING:
            return  # some reader has not read the last switch's tuple yet, though its share has passed it
        self._wanted = None
        if code != 0:
            self._note(number, state=REFUSED)
            if code not in (codes.DONE, codes.CLOSED_CODE):
                raise RunError(f"The gate answered {code} to a switch of epochs", do="Report this")
            return
        self.epoch, self._owners, self._current = epoch, owners, number
        self._note(number, epoch=epoch, event_time=int(self._tuple[0][0]))

    def _settle(self) -> None:
        number, self._current = self._current, None
        assert number is not None
        lines = [int(epochs.share_at(self.words, share)) for share in range(self.shares)]
        met = [int(self.words[at + epochs.PASSED_NS]) for at in lines]
        served = [
            int(self.words[at + epochs.TAKEN_NS])
            for at in lines
            if int(self.words[at + epochs.TAKEN]) == int(self.words[at + epochs.PASSED])
        ]
        last = max([*met, *served])
        self._note(
            number,
            state=DONE,
            reconfiguration_ms=(last - self._asked_ns.pop(number)) / 1e6,
            switch_ms=(last - min(met)) / 1e6,
        )

    def _note(self, number: int, **found: object) -> None:
        self._log[number] = dataclasses.replace(self._log[number], **found)  # type: ignore[arg-type]

    def changes(self) -> tuple[Change, ...]:
        self.poll()
        with self.lock:
            return tuple(self._log)

    def tuples(self) -> tuple[int, np.ndarray]:
        """Tuples that have come, and how many of them each share has read. Switches are none."""
        return self.gate.tuples(self.gate.slots - 1)

    def busy_ns(self) -> list[int]:
        """By thread: time spent serving shares."""
        return [int(self.words[int(epochs.thread_at(self.words, t)) + epochs.BUSY_NS]) for t in range(self.threads)]


def spread(owners: Sequence[int], workers: int) -> list[int]:
    """A map for the first `workers` threads that moves as few shares as will do; their numbers differ by one at most.

    An example: four shares at thread 0, two threads wanted: [0, 0, 0, 0] becomes [0, 0, 1, 1]. A third thread: [0, 0,
    1, 2]; one share moves.
    """
    shares = len(owners)
    fair = [shares // workers + (t < shares % workers) for t in range(workers)]
    # Who has more than the others keeps the larger part, so that as few as possible move.
    held = [sum(owner == t for owner in owners) for t in range(workers)]
    sizes = sorted(fair, reverse=True)
    room = [0] * workers
    for place, t in enumerate(sorted(range(workers), key=lambda t: (-held[t], t))):
        room[t] = sizes[place]
    made = []
    for owner in owners:
        if owner < workers and room[owner] > 0:
            room[owner] -= 1
            made.append(owner)
        else:
            made.append(-1)
    free = [t for t in range(workers) for _ in range(room[t])]
    return [free.pop(0) if owner < 0 else owner for owner in made]


def balanced(loads: Sequence[float], threads: Sequence[int]) -> list[int]:
    """A map by measured load: the heaviest share first, each to the thread that has the least.

    An example: loads 5, 4, 3, 3 on two threads: 5 to thread 0, 4 to 1, 3 to 1 (7), 3 to 0 (8). This is the greedy
    rule, not the best map, and it does not try to keep shares where they are.
    """
    totals, made = dict.fromkeys(threads, 0.0), [0] * len(loads)
    counts = dict.fromkeys(threads, 0)
    for share in sorted(range(len(loads)), key=lambda s: (-loads[s], s)):
        to = min(threads, key=lambda t: (totals[t], counts[t], t))
        made[share] = to
        totals[to] += loads[share]
        counts[to] += 1
    return made


def deviation(loads: Sequence[float], owners: Sequence[int]) -> float:
    """How unlike the threads' loads are by a map: their standard deviation, as a part of their mean (STRETCH, figure 5)."""
    totals = np.bincount(owners, loads)[sorted(set(owners))]
    mean = float(totals.mean())
    return float(totals.std()) / mean if mean > 0 else 0.0


def evened(loads: Sequence[float], owners: Sequence[int]) -> list[int]:
    """A map for the same threads whose loads deviate by `DEVIATION` at most, or that no single move or swap of shares betters.

    From the map that there is, so that few shares change hands; if that does not do, from the greedy one, where it ends better.
    Every thread keeps a share.

    An example: loads 4, 3, 2, 1, the first two at thread 0: 7 and 3. Swapping 4 and 2, or 3 and 1, makes it 5 and 5.
    """
    made = _descended(loads, owners)
    if deviation(loads, made) <= DEVIATION:
        return made
    other = _descended(loads, balanced(loads, sorted(set(owners))))
    return min(made, other, key=lambda each: deviation(loads, each))


def _descended(loads: Sequence[float], owners: Sequence[int]) -> list[int]:
    """The best single move or swap, again and again.

    Moving d of load from a thread with A to one with B takes 2 d (A - B - d) from the sum of squares, which, the mean being
    what it is, is the deviation. A swap moves the difference of two shares. What is less than rounding is no betterment.
    """
    load, owner = np.array(loads, float), np.array(owners)
    totals = np.bincount(owner, load)
    threads = np.array(sorted(set(owners)))
    least = 1e-12 * float(load.sum()) ** 2
    while deviation(loads, owner.tolist()) > DEVIATION:
        has = totals[owner]
        move = load[:, None] * (has[:, None] - totals[threads] - load[:, None])
        between = load[:, None] - load
        swap = between * (has[:, None] - has - between)
        if max(move.max(), swap.max()) <= least:
            break
        if move.max() >= swap.max():
            share, to = np.unravel_index(move.argmax(), move.shape)
            changed = {share: threads[to]}
        else:
            one, two = np.unravel_index(swap.argmax(), swap.shape)
            changed = {one: owner[two], two: owner[one]}
        for share, to in changed.items():
            owner[share] = to
        totals = np.bincount(owner, load, minlength=len(totals))
    return [int(each) for each in owner]
