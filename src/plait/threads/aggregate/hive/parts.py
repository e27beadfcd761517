"""What sources' tallies hold, brought together: the taker's side of `merging`, which does the work.

A source's tallies lie in rings of its own, so compiled code is given the rings' addresses. These are good while Python holds the
arrays: who calls has them from `Tallies.parts`, and keeps them until the call is done. For complete panes they no longer change.

Held by tests/threads/aggregate/test_merging.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from plait.core.aggregate.accumulators import MERGE_SIZE, MERGE_SLOTS, MERGE_WORDS, RING_WORDS, Accumulator
from plait.core.aggregate.groups import Groups
from plait.core.kernels.groups import look_up_missed
from plait.core.machine.line import LINE, address, lines
from plait.core.machine.marks import entry
from plait.threads import words as shared
from plait.threads.aggregate.hive import merging, team
from plait.threads.aggregate.hive.tallies import Parts

FEW = 1 << 12  # parts of a portion, at least: a helper that is called for less comes too late
#: Portions a thread. Parts are found by stretches, of which any number costs the same; of slots every portion passes over all
# parts.
FIND_PORTIONS, MERGE_PORTIONS = 4, 1


class Stretches(NamedTuple):
    """Of each source that has a part: its tallies from `first` to before `end`; they are the parts from number `at` on.

    `total` is the number of parts. All arrays are int64, by source.
    """

    first: np.ndarray
    end: np.ndarray
    at: np.ndarray
    total: int


def stretches(first: np.ndarray, end: np.ndarray) -> Stretches:
    """Of sources in their order: the first of each one's tallies, and the one after the last."""
    until = np.cumsum(end - first)
    return Stretches(first, end, until - (end - first), int(until[-1]))


class Team:
    """Helpers of one taker, if any; `event` is where they sleep, among the control words."""

    def __init__(self, helpers: int, control: np.ndarray, event: int) -> None:
        self.helpers, self._control, self._event = helpers, control, shared.CONTROL_WORDS + event * LINE
        self._words = lines(team.TEAM_WORDS)

    def portions(self, parts: int, each: int) -> int:
        """In how many portions a job goes: so many for each thread, but for small ones."""
        return 1 if self.helpers == 0 else max(1, min(parts // FEW, each * (self.helpers + 1)))

    @property
    def at(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Where compiled code finds it."""
        return self._words, self._control, self._event

    def serve(self, pause: Callable[[], None]) -> None:
        """A helper's thread; `pause` raises at the end."""
        while True:
            merging.serve(*self.at)
            pause()


class Together:
    """One time's parts of all sources, in their order: their groups are found, then they are merged into slots.

    `held` are the sources' `parts`. `room` gives words to be used again.
    """

    def __init__(
        self, held: Sequence[Parts], where: Stretches, team: Team, room: Callable[[str, int], np.ndarray]
    ) -> None:
        self._held, self._where, self._team, self._room = held, where, team, room
        span = np.stack((where.first, where.end, where.at), axis=1)
        self._table = np.concatenate((span, np.array([own.words for own in held], np.int64)), axis=1)
        self._job = job = np.zeros(merging.JOB_WORDS, np.int64)
        job[merging.J_SOURCES], job[merging.J_FUNCTIONS] = len(held), len(held[0].slots)
        job[merging.J_TABLE], job[merging.J_PARTS] = address(self._table), where.total
        job[merging.J_MERGE] = team.portions(where.total, MERGE_PORTIONS)
        self._blocks = room("blocks", int(job[merging.J_MERGE]) * 2 * merging.BLOCK)
        job[merging.J_ROOM] = address(self._blocks)

    def look_in(self, known: Groups, out: np.ndarray, marks: np.ndarray | None) -> np.ndarray:
        """Where groups are to be looked up, by the keys that tallies have, and told: int64 by part in `out`; those of one large
        pane are marked. Gives room for how many are not known.
        """
        job, (table, kept, direct) = self._job, known.tables
        job[merging.J_FIND] = self._team.portions(self._where.total, FIND_PORTIONS)
        missed = np.empty((int(job[merging.J_FIND]), len(self._held)), np.int64)
        job[merging.J_GROUP], job[merging.J_KEYS], job[merging.J_MISSED] = address(out), len(kept), address(missed)
        job[merging.J_HASH], job[merging.J_HASHES] = address(table), len(table)
        job[merging.J_KEPT], job[merging.J_KEPTS] = address(kept), kept.shape[1]
        job[merging.J_DIRECT], job[merging.J_DIRECTS] = address(direct), len(direct)
        job[merging.J_MARK], job[merging.J_MARKS] = marks is not None, 0 if marks is None else address(marks)
        return missed

    def go_into(
        self, into: Sequence[Accumulator], slot: np.ndarray, most: int, *, apart: bool = False
    ) -> list[np.ndarray]:
        """Every function's tallies are to go into its slots, of which at most so many are new; `slot` says which. `apart`: into
        slots that are nobody's yet. Gives the slots.
        """
        job, total, rings = self._job, self._where.total, self._table[:, merging.P_RINGS :]
        self._times = [each.times(most) for each in into]
        steps = [
            each.merge(rings[:, RING_WORDS * k : RING_WORDS * (k + 1)], total, self._times[k])
            for k, each in enumerate(into)
        ]
        self._steps = np.array(steps, np.int64).reshape(-1, MERGE_WORDS)
        slots = [each.slots for each in into]
        if apart:
            slots = [np.zeros((most + 1, own.shape[1]), np.int64) for own in slots]
            self._steps[:, MERGE_SLOTS] = [address(own) for own in slots]
            self._steps[:, MERGE_SIZE] = most + 1
        job[merging.J_SLOT], job[merging.J_STEPS] = address(slot), address(self._steps)
        return slots

    def merge_parts(self, *given: Any) -> bool:
        """All of it, in panes that come whole: see `merging.whole`. False if groups are not known."""
        return int(merging.whole(*self._team.at, self._job, *given)) == 0

    def merge(self, first: int, number: int) -> None:
        """Into slots that parts have been given."""
        merging.merge_all(*self._team.at, self._job, first, number)

    def add(self, known: Groups, missed: np.ndarray, out: np.ndarray) -> None:
        """Have numbers for groups that were not known; of each source, how many these are. `out`: see `look_in`."""
        if known.swept(int(missed.sum()), self._keys):
            out[:] = -1
            missed = self._where.end - self._where.first
        for source in np.flatnonzero(missed).tolist():
            self._add(known, source, int(missed[source]), out)

    def _add(self, known: Groups, source: int, missed: int, out: np.ndarray) -> None:
        ring, (first, end, at) = self._held[source].kept, (int(each[source]) for each in self._where[:3])

        def added(table: np.ndarray, kept: np.ndarray, free: np.ndarray, left: int, direct: np.ndarray) -> int:
            return int(add_missed(ring, first, end, at, table, kept, free, left, direct, out))

        known.numbers_by(added, missed)

    def _keys(self) -> np.ndarray:
        """All parts' keys, a row for each word of a key."""
        found = []
        for own, first, end in zip(self._held, self._where.first, self._where.end, strict=True):
            found.append(own.kept[:, np.arange(first, end) & (own.kept.shape[1] - 1)])
        return np.concatenate(found, axis=1)


@entry
def add_missed(ring: Any, first: Any, end: Any, at: Any, table: Any, kept: Any, free: Any, left: Any, direct: Any,
               out: Any) -> Any:  # fmt: skip
    """Groups for one source's parts that have none yet. Gives how many numbers are left."""
    size, tally = ring.shape[1], first
    while tally < end:  # two runs, where it goes over the end of the ring
        low = tally & (size - 1)
        high = min(size, low + end - tally)
        left = look_up_missed(ring, low, high, at + tally - first, table, kept, free, left, direct, out, True)
        tally += high - low
    return left
