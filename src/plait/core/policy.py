"""When to change the number of threads, or of executors: thresholds over measured load, as the paper has them, or a user's own
function.

Load is what comes, as a part of what the workers could do at most (on threads `threads.elastic.meter` measures it, on Spark
`spark.publish.scaling`): it can be above 100 percent. The paper has three thresholds of it, *upper*, *target* and *bottom*
(STRETCH, section 9.3: 90, 70 and 45 percent; here `lower` is the bottom one). Above `upper`, as few workers as bring the average
to `target` or below are added. Below `lower`, workers are let go until each of those that stay has the target's work, or more:
its table 2 has it so, 5 threads at 30 percent become 2 at 75. (Its text says that the average then is below the target, which
none of the table's five is.) One worker more stays where the average would be above `upper`, or it would have to be added again;
in the paper's table none would.

A change has to be called for by `patience` looks in a row, and none is made until the last one is done and
`patience` looks have seen its effect: between `lower` and `upper` nothing happens, so a load that swings about one
threshold does not make workers come and go. Nor does one that has to catch up first, or comes in bursts: workers that
were added are kept for `KEEP` times as many looks, and twice as long whenever some had been let go too early, that is, had
to be added again. Adding workers is never put off by this (`Calls`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait.errors import QueryError

PATIENCE = 3
KEEP = 4
LONGEST = 1 << 10  # times `patience`: on threads about three minutes
_EPSILON = 1e-9  # 9 threads at 30 percent are 3 at 90, and not a little more


@dataclass(frozen=True)
class Load:
    """What a policy is asked with. Parts of 1: of the time that a thread, or an executor, has.

    Attributes:
        workers: Threads that serve shares now; on Spark executors.
        most: As many as there may be.
        busy: Of each of them the part of the last interval that it has had a processor, 0 to 1.
        seconds: How long that interval was.
        backlog: Of each of them what came in the interval and was not done, as a part of it: more than 0 where more comes
            than it can do.
        shares: Of each share what came for it, in the same unit: a thread's load is its shares' together.
        owners: The thread of each share.

    Example:
        >>> from plait.core.policy import Load
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
        >>> from plait.core.policy import Load, Thresholds
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


class Calls:
    """Which of a policy's answers are acted on: those that enough looks in a row have called for.

    Attributes:
        calm: Whether nobody has called for another number at the last look.
    """

    def __init__(self, policy: Policy, patience: int = PATIENCE) -> None:
        self._policy, self._patience = policy, patience
        self._called: tuple[int, int] = (0, 0)  # for how many workers, and how many looks in a row
        self._rest = patience  # looks that are not acted on, after a change
        self._keep = KEEP * patience  # looks in a row that call for fewer before what was added is let go
        self._rising: bool | None = None  # whether the last change was to more workers; None: there was none
        self.calm = False

    def rest(self) -> None:
        """A change is done, or has been held up: `patience` looks see the load before one can be called for."""
        self._called, self._rest = (0, 0), self._patience

    def look(self, load: Load) -> tuple[int, str] | None:
        """One look: the number of workers to change to now, and why."""
        self.calm = False
        if self._rest > 0:
            self._rest -= 1
            return None
        answer = self._policy(load)
        workers, reason = answer if isinstance(answer, tuple) else (answer, "the policy's function")
        if workers is None or workers == load.workers:
            self._called, self.calm = (0, 0), True
            return None
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
        return workers, reason
