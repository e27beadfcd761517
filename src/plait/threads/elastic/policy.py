"""Who asks the policy of an elastic run (`core.policy`), and has its answers carried out.

Where there are more shares than threads, what is found of the shares' loads is used to keep the threads' even: a change of their
number makes a map by load (`manager.evened`), and while the number stays, threads whose loads deviate by more than 2 percent over
a while are given other shares. The while is `patience` looks after a change of number; it doubles each time that shares are
moved, so that what is only chance moves few, and halves each time that there is no need.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from plait.core.policy import PATIENCE, Calls, Load, Policy
from plait.threads.elastic.manager import DEVIATION, DONE, REFUSED, SUPERSEDED, Change, Epochs, deviation, evened

EVERY_S = 0.05
LONGEST_EVEN = 1 << 6  # times `patience`: about ten seconds
IDLE = 0.05  # threads with less to do need not be even


class Watch:
    """Asks the policy every so often, in a thread of its own, and has its answers carried out.

    Its thread looks every `every_s` seconds; `measure` gives what it sees. `_calls`: which answers are acted on. `_last`: the
    change under way. `_loads`: what shares had to do, look by look, with `_owners` for their map; `_while`: how many looks make
    a judgment. An error in a user's policy fails the run.
    """

    def __init__(self, policy: Policy, epochs: Epochs, fail: Callable[[BaseException], None], measure: Callable[[], Load], *,
                 every_s: float = EVERY_S, patience: int = PATIENCE) -> None:  # fmt: skip
        self._epochs, self._fail, self._measure = epochs, fail, measure
        self._every, self._patience = every_s, patience
        self._calls = Calls(policy, patience)
        self._stop = threading.Event()
        self._last: int | None = None  # the change that is under way
        self._held = False
        self._loads: list[tuple[float, ...]] = []
        self._owners: tuple[int, ...] = ()
        self._while = patience
        self.thread = threading.Thread(target=self._watch, name="plait-policy", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self._stop.set()

    def hold(self, held: bool) -> None:
        """Ask for no change while held; afterwards `patience` looks see the load before one can be called for."""
        self._held = held
        self._calls.rest()
        self._loads = []

    def _watch(self) -> None:
        try:
            while not self._stop.wait(self._every):
                self.look(self._measure())
        except BaseException as error:
            self._fail(error)

    def look(self, load: Load) -> Change | None:
        """One look: the change that was asked for, if any."""
        if self._held:
            return None
        if self._last is not None:
            if self._epochs.changes()[self._last].state not in (DONE, REFUSED, SUPERSEDED):
                return None
            self._last = None
            self._calls.rest()
        change = self._calls.look(load)
        if change is None:
            return self._even(load) if self._calls.calm else None
        self._loads, self._while = [], self._patience
        return self._asked(self._epochs.resize(*change, load.shares))

    def _even(self, load: Load) -> Change | None:
        """One look at how even the threads' loads are: the change that was asked for, if any."""
        if load.workers < 2 or load.workers >= len(load.shares) or load.average < IDLE:
            return None
        if load.owners != self._owners:
            self._owners, self._loads = load.owners, []
        self._loads.append(load.shares)
        if len(self._loads) < self._while:
            return None
        loads, self._loads = [sum(each) for each in zip(*self._loads, strict=True)], []
        found = deviation(loads, load.owners)
        owners = evened(loads, load.owners)
        # Shares are not moved for less than can be told from chance.
        if found <= DEVIATION or deviation(loads, owners) > max(DEVIATION, found - DEVIATION / 2):
            self._while = max(self._while // 2, self._patience)
            return None
        self._while = min(2 * self._while, LONGEST_EVEN * self._patience)
        return self._asked(self._epochs.request(owners, f"threads' loads deviate by {found:.0%}"))

    def _asked(self, made: Change) -> Change:
        self._last = made.number
        if made.state == REFUSED:
            self._stop.set()  # the input has ended: there is nothing left to switch for
        return made
