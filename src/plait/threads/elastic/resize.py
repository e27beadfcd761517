"""Changing who serves an engine's shares while it runs: by hand, or by a policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plait.errors import RunError
from plait.threads.elastic.crew import Crew
from plait.threads.elastic.manager import Change, Epochs, balanced, spread
from plait.threads.elastic.policy import Watch, policy_of
from plait.threads.gate import RingGate, epochs
from plait.threads.input.push import Pusher
from plait.threads.join.loop import halt
from plait.threads.join.loop import layout as o
from plait.threads.memory import address, lines
from plait.threads.options import Options
from plait.threads.pause import Pauser, Stopped


class Resizing:
    """What all engines have of it. `epochs` is None in a run whose workers are fixed."""

    gate: RingGate
    pusher: Pusher
    options: Options
    epochs: Epochs | None = None
    crew: Crew  # of a run whose shares are served from Python
    watch: Watch | None = None
    crew_size: int  # threads
    control: np.ndarray
    pauser: Pauser

    def _share_out(self, shares: int, workers: int) -> np.ndarray:
        """Give the shares of a run that begins to its first threads."""
        slot = self.gate.slots - 1  # the gate has one more than there may be sources
        memory = lines(epochs.words(shares, self.crew_size))
        self.control[o.EPOCHS] = address(memory)
        owners = spread([0] * shares, min(workers, shares))
        self.epochs = self.pusher.epochs = Epochs(self.gate, memory, slot, owners, self.crew_size)
        policy = policy_of(self.options.policy)
        if policy is not None:
            self.watch = Watch(policy, self.epochs, self.resize, self.fail)
        return memory

    def resize(self, workers: int, reason: str = "asked for") -> Change:
        found = self._elastic("resize")
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= found.threads:
            raise RunError(
                f"resize({workers!r})",
                why=f"the state is in {found.shares} shares, and 1 to {found.threads} threads can serve it",
                do="Ask for a number in between, or raise elastic= in on_threads",
            )
        return found.request(spread(found.owners, min(workers, found.shares)), reason)

    def rebalance(self, owners: Sequence[int] | None = None, reason: str = "asked for") -> Change:
        found = self._elastic("rebalance")
        if owners is None:
            owners = balanced(self._loads(), found.active)
        return found.request(owners, reason)

    def owners(self) -> list[int]:
        """The thread of each share, as asked for last."""
        return self._elastic("owners").owners

    def hold_policy(self, held: bool) -> None:
        if self.watch is not None:
            self.watch.hold(held)

    def _elastic(self, call: str) -> Epochs:
        if self.epochs is None or self.options.elastic is None:
            raise RunError(
                f"{call} of a run whose workers are fixed",
                why="the state is in as many parts as there are workers",
                do="Say on_threads(workers=2, elastic=8): as many shares as there may be threads, at most",
            )
        return self.epochs

    def _serve_crew(self, thread: int) -> None:
        """A thread whose shares are served from Python."""
        self.crew.serve(thread)

    def _pause(self) -> None:
        """Stand still while others change shared memory; end if the run is being stopped."""
        halted = int(self.control[o.HALT])
        if halted == halt.STILL:
            self.pauser.stand()
        elif halted == halt.STOPPING:
            raise Stopped

    def fail(self, error: BaseException) -> None:
        raise NotImplementedError

    def _loads(self) -> list[float]:
        """Work done so far, by share."""
        raise NotImplementedError
