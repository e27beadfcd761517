"""The threads of a run whose shares are served from Python: aggregates and operators.

Each thread takes its shares by turns, a batch at a time, and sleeps when none of them has anything to do. Invariant: a
thread steps only a share that is its own (`threads.gate.epochs`), so `step` needs no lock for what belongs to the share.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from plait.errors import RunError
from plait.order import BEFORE_ALL
from plait.threads import words as shared
from plait.threads.atomics.native import made_ready
from plait.threads.gate import Gate, codes, epochs
from plait.threads.life.pause import Pauser, Stopped

WAIT_NS = 20_000_000
PARKED_NS = 1_000_000_000

#: What a step of a share answers.
IDLE, WORKED, BLOCKED, FINISHED = range(4)


class Taken:
    """A share's tuples, as its owner takes them from the gate: up to the next switch, what is behind it being kept."""

    def __init__(self, most: int) -> None:
        self.rows = np.zeros((4, most), np.int64)  # ts, origin, seq, ref
        self._words = np.zeros(4, np.int64)

    @property
    def epoch(self) -> int:
        """Of the switch that follows what was given last; 0: none."""
        return int(self._words[epochs.SWITCHING])

    def next(self, gate: Gate, e: np.ndarray, share: int, most: int) -> tuple[int, int]:
        """How many tuples there are in `rows`, or a code of the gate's; and how far time has passed."""
        w = self._words
        n = int(epochs.take(gate.words, e, share, most, *self.rows, w, 0))
        if w[epochs.AHEAD]:
            return n, int(self.rows[0, int(w[epochs.AHEAD_FROM])])
        if w[epochs.ALL]:
            return n, gate.frontier_of(share)
        # There may be more behind: of the tuples at the last ts some may be missing.
        return n, int(self.rows[0, n - 1]) if n > 0 else BEFORE_ALL


class Crew:
    """See the module. `words` is the memory of `threads.gate.epochs`."""

    def __init__(self, gate: np.ndarray, control: np.ndarray, words: np.ndarray, pauser: Pauser) -> None:
        self._gate, self._control, self._words, self._pauser = gate, control, words, pauser
        # As in `Epochs`: not when a share is to be handed on.
        made_ready(epochs.hand_on, gate, words, 0, 0, 1, 1)
        made_ready(epochs.park, control, shared.HALT, words, 0, PARKED_NS)
        made_ready(epochs.nears, words, 0)
        made_ready(epochs.prepare_at_gate, gate, words, 0)
        made_ready(epochs.sleep_at_gate, gate, words, 0, 0, WAIT_NS)
        made_ready(epochs.stay_awake, gate, words, 0)

    def serve(self, thread: int, step: Callable[[int], int]) -> None:
        """Until every share has come to its end. `step(share)` takes one batch of it, if there is one, and answers as above.

        `step` must not wait: other shares of this thread would. BLOCKED is slept off for half a millisecond, since
        nobody wakes a thread when results are read.
        """
        e, line = self._words, int(epochs.thread_at(self._words, thread))
        while e[epochs.ENDED] < e[epochs.SHARES]:
            self._pauser.pause()
            if not epochs.owns_any(e, thread):
                epochs.park(self._control, shared.HALT, e, thread, PARKED_NS)
                continue
            answers = self._turn(thread, line, step)
            if WORKED in answers:
                continue
            if BLOCKED in answers:
                time.sleep(0.0005)
                continue
            ticket = epochs.prepare_at_gate(self._gate, e, thread)
            answers = self._turn(thread, line, step)
            if answers and not {WORKED, BLOCKED} & set(answers) and e[epochs.ENDED] < e[epochs.SHARES]:
                epochs.sleep_at_gate(self._gate, e, thread, ticket, WAIT_NS)
            else:
                epochs.stay_awake(self._gate, e, thread)
        epochs.wake_threads(self._gate, e)

    def _turn(self, thread: int, line: int, step: Callable[[int], int]) -> list[int]:
        e, answers = self._words, []
        for share in range(int(e[epochs.SHARES])):
            if epochs.owner_of(e, share) != thread:
                continue
            began = time.monotonic_ns()
            epochs.take_up(e, share, began)
            at = int(epochs.share_at(e, share))
            answer = FINISHED if e[at + epochs.FINISHED] else step(share)
            # As in `join.serve.turn`: a share on its way to a switch goes there at once.
            while answer == WORKED and epochs.owner_of(e, share) == thread and epochs.nears(e, share):
                answer = step(share)
                if answer == IDLE:
                    answer = WORKED
                    break
            answers.append(answer)
            if answer == FINISHED and not e[at + epochs.FINISHED]:
                epochs.finish(e, share)
            if answer == WORKED:
                e[line + epochs.BUSY_NS] += time.monotonic_ns() - began
                e[line + epochs.TURNS] += 1
        return answers

    def hand_on(self, share: int, epoch: int) -> None:
        """By the owner, which has done all before the switch."""
        me = int(epochs.owner_of(self._words, share))
        epochs.hand_on(self._gate, self._words, me, share, epoch, time.monotonic_ns())


def refused(code: int, share: int, stopped: bool) -> None:
    """What a gate's answer below zero means to the thread that serves a share."""
    if stopped or code == codes.CLOSED_CODE:
        raise Stopped
    raise RunError(f"The gate answered {code} to the thread of share {share}", do="Report this")
