"""When to change the number of threads: thresholds over measured load, as the paper has them, or a user's own function.

Load is what comes, as a part of what the threads could do at most (`elastic.meter`): it can be above 100 percent. The paper
has three thresholds of it, *upper*, *target* and *bottom* (section 9.3: 90, 70 and 45 percent; here `lower` is the bottom one).
Above `upper`, as few threads as bring the average to `target` or below are added. Below `lower`, threads are let go until each
of those that stay has the target's work, or more: its table 2 has it so, 5 threads at 30 percent become 2 at 75. (Its text says
that the average then is below the target, which none of the table's five is.) One thread more stays where the average would be
above `upper`, or it would have to be added again; in the paper's table none would.

A change has to be called for by `patience` looks in a row, and none is made until the last one is done and
`patience` looks have seen its effect: between `lower` and `upper` nothing happens, so a load that swings about one
threshold does not make threads come and go. Nor does one that has to catch up first, or comes in bursts: threads that
were added are kept for `KEEP` times as many looks, and twice as long whenever some had been let go too early, that is, had
to be added again. Adding threads is never put off by this.

Where there are more shares than threads, what is found of the shares' loads is used to keep the threads' even: a change of their
number makes a map by load (`manager.evened`), and while the number stays, threads whose loads deviate by more than 2 percent over
a while are given other shares. The while is `patience` looks after a change of number; it doubles each time that shares are
moved, so that what is only chance moves few, and halves each time that there is no need.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait.errors import QueryError
from plait.threads.elastic.manager import DEVIATION, DONE, REFUSED, SUPERSEDED, Change, Epochs, deviation, evened

EVERY_S = 0.05
PATIENCE = 3
KEEP = 4
LONGEST = 1 << 10  # times `patience`: about three minutes
LONGEST_EVEN = 1 << 6  # times `patience`: about ten seconds
IDLE = 0.05  # threads with less to do need not be even
_EPSILON = 1e-9  # 9 threads at 30 percent are 3 at 90, and not a little more


@dataclass(frozen=True)
class Load:
    """What a policy is asked with. Parts of 1: of the time that a thread has.

    Attributes:
        workers: Threads that serve shares now.
        most: As many as there may be.
        busy: Of each of them the part of the last interval that it has had a processor, 0 to 1.
        seconds: How long that interval was.
        backlog: Of each of them what came in the interval and was not done, as a part of it: more than 0 where more comes
            than it can do.
        shares: Of each share what came for it, in the same unit: a thread's load is its shares' together.
        owners: The thread of each share.

    Example:
        >>> from plait.threads.elastic.policy import Load
        >>> Load(workers=2, most=8, busy=(0.5, 1.0), seconds=1.0).average
        0.75
        >>> Load(workers=2, most=8, busy=(1.0, 1.0), seconds=1.0, backlog=(0.2, 0.2)).average
        1.2
    """

    workers: int
    most: int
    busy: tuple[float, ...]
    seconds: float
    backlog: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    owners: tuple[int, ...] = ()

    @property
    def average(self) -> float:
        """The load: the mean of `busy` and `backlog` together. Above 1 where more comes than the threads can do."""
        return (sum(self.busy) + sum(self.backlog)) / max(len(self.busy), 1)


Policy = Callable[[Load], "int | tuple[int, str] | None"]


@dataclass(frozen=True)
class Thresholds:
    """The paper's policy: above and below these loads, as many threads as bring it to the target.

    4 threads with a load of 95 percent do the work of 4 * 0.95 / 0.70 = 5.4 at the target, so 6 are asked for. Of 9 with 30
    percent the work is that of 3.9, and 3 stay.

    Attributes:
        upper: The load above which threads are added. Parts of 1, or percent.
        target: The load to come to.
        lower: The load below which threads are let go; the paper's bottom threshold.

    Example:
        >>> from plait.threads.elastic.policy import Load, Thresholds
        >>> Thresholds()(Load(workers=4, most=8, busy=(0.95,) * 4, seconds=1.0))
        (6, 'load 95% above 90%')
        >>> Thresholds()(Load(workers=9, most=9, busy=(0.30,) * 9, seconds=1.0))
        (3, 'load 30% below 45%')
    """

    upper: float = 0.90
    target: float = 0.70
    lower: float = 0.45

    def __post_init__(self) -> None:
        for name, value in (("upper", self.upper), ("target", self.target), ("lower", self.lower)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise QueryError(f"policy: {name}={value!r} is no number")
            if value > 1:
                object.__setattr__(self, name, value / 100)
        if not 0 < self.lower < self.target < self.upper <= 1:
            raise QueryError(
                f"policy: upper={self.upper:g}, target={self.target:g}, lower={self.lower:g}",
                why="threads are added above the upper one and let go below the lower one, to come to the target in between",
                do="Pass 0 < lower < target < upper <= 1, or the same in percent",
            )

    def __call__(self, load: Load) -> tuple[int, str] | None:
        work = load.average * load.workers
        if load.average > self.upper + _EPSILON and load.workers < load.most:
            needed = math.ceil(work / self.target - _EPSILON)
            return min(max(needed, load.workers + 1), load.most), f"load {load.average:.0%} above {self.upper:.0%}"
        if load.average < self.lower:
            stay = max(1, math.floor(work / self.target + _EPSILON))
            stay += work / stay > self.upper + _EPSILON
            if stay < load.workers:
                return stay, f"load {load.average:.0%} below {self.lower:.0%}"
        return None


def policy_of(given: Any) -> Policy | None:
    """What `policy=` may be: True or 'load', (upper, target, lower), Thresholds, or a function of a Load."""
    if given is None or isinstance(given, Thresholds):
        return given
    if given is True or given == "load":
        return Thresholds()
    if isinstance(given, (tuple, list)) and len(given) == 3:
        return Thresholds(*given)
    if callable(given):
        return given  # type: ignore[no-any-return]
    raise QueryError(
        f"policy={given!r} is no policy",
        do="Pass True (90, 70 and 45 percent), three thresholds (upper, target, lower), or a function of a Load",
    )


class Watch:
    """Asks the policy every so often, in a thread of its own, and has its answers carried out.

    Its thread looks every `every_s` seconds; `measure` gives what it sees. `_called`: for how many threads, and how many
    looks in a row have called.
    `_rest`: looks that are not acted on, after a change. `_last`: the change under way. `_loads`: what shares had to do, look by
    look, with `_owners` for their map; `_while`: how many looks make a judgment. An error in a user's policy fails the run.
    """

    def __init__(self, policy: Policy, epochs: Epochs, fail: Callable[[BaseException], None], measure: Callable[[], Load], *,
                 every_s: float = EVERY_S, patience: int = PATIENCE) -> None:  # fmt: skip
        self._policy, self._epochs, self._fail, self._measure = policy, epochs, fail, measure
        self._every, self._patience = every_s, patience
        self._stop = threading.Event()
        self._called: tuple[int, int] = (0, 0)  # for how many threads, and how many looks in a row
        self._rest = patience
        self._last: int | None = None  # the change that is under way
        self._held = False
        self._keep = KEEP * patience  # looks in a row that call for fewer before what was added is let go
        self._rising: bool | None = None  # whether the last change was to more threads; None: there was none
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
        self._called, self._rest, self._loads = (0, 0), self._patience, []

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
            self._last, self._rest = None, self._patience
        if self._rest > 0:
            self._rest -= 1
            return None
        answer = self._policy(load)
        workers, reason = answer if isinstance(answer, tuple) else (answer, "the policy's function")
        if workers is None or workers == load.workers:
            self._called = (0, 0)
            return self._even(load)
        workers = max(1, min(int(workers), load.most))
        # What is called for may vary from look to look; that more, or fewer, are needed must not.
        same = (workers > load.workers) == (self._called[0] > load.workers) and self._called[1] > 0
        self._called = (workers, self._called[1] + 1 if same else 1)
        rising = workers > load.workers
        if self._called[1] < (self._keep if self._rising and not rising else self._patience):
            return None
        if self._rising is False:
            # Let go too early; or rightly, since still fewer will do.
            self._keep = min(2 * self._keep, LONGEST * self._patience) if rising else KEEP * self._patience
        self._called, self._rising = (0, 0), rising
        self._loads, self._while = [], self._patience
        return self._asked(self._epochs.resize(workers, reason, load.shares))

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
