"""How many tuples a source sends, second by second: constant, sinusoidal, with peaks.

A rate says how many tuples come *before* the start of any second (an integer, never falling). That makes the time of
any row a matter of arithmetic, so a block of rows needs none of the blocks before it, and the same rows come out
whatever the size of the batches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from plait.errors import QueryError
from plait.schema import is_number

Ints = NDArray[np.int64]
MIN_PER_SECOND: Final = 0.01


@dataclass(frozen=True)
class Constant:
    """So many tuples in every second.

    The examples of its methods go on from this one.

    Attributes:
        per_second: Tuples a second.

    Example:
        >>> import numpy as np
        >>> from plait.connectors import synthetic
        >>> rate = synthetic.Constant(2.5)
    """

    per_second: float

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check(self, self.per_second)

    def before(self, second: Ints) -> Ints:
        """How many tuples come before the start of each second.

        Args:
            second: Numbers of seconds, as an int64 array.

        Returns:
            As many whole numbers, which never fall.

        Raises:
            TypeError: `second` is no array of numbers.

        Example:
            >>> rate.before(np.array([0, 1, 2]))
            array([0, 2, 5])
        """
        return _floor(second * float(self.per_second))


@dataclass(frozen=True)
class Sinusoid:
    """`mean + amplitude * sin(2 pi (t / period_s + phase))` tuples a second at time t.

    The examples of its methods go on from this one.

    Attributes:
        mean: Tuples a second on average.
        amplitude: How far the rate swings from the mean; at most the mean.
        period_s: Seconds from one peak to the next.
        phase: Where in a period it begins, in parts of one.

    Example:
        >>> import numpy as np
        >>> from plait.connectors import synthetic
        >>> rate = synthetic.Sinusoid(mean=100, amplitude=50, period_s=60)
    """

    mean: float
    amplitude: float
    period_s: float
    phase: float = 0.0

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check(self, self.mean, amplitude=self.amplitude <= self.mean, period_s=self.period_s > 0)

    def before(self, second: Ints) -> Ints:
        """How many tuples come before the start of each second.

        Args:
            second: Numbers of seconds, as an int64 array.

        Returns:
            As many whole numbers, which never fall.

        Raises:
            TypeError: `second` is no array of numbers.

        Example:
            >>> rate.before(np.array([0, 30, 60]))
            array([   0, 3954, 6000])
        """
        turn = 2 * math.pi
        swing = math.cos(turn * self.phase) - np.cos(turn * (second / self.period_s + self.phase))
        return _floor(self.mean * second + self.amplitude * self.period_s / turn * swing)


@dataclass(frozen=True)
class Peaks:
    """A steady rate with peaks at regular times.

    The examples of its methods go on from this one.

    Attributes:
        base: Tuples a second outside peaks.
        peak: Tuples a second in a peak.
        every_s: Seconds from one peak's beginning to the next one's.
        lasting_s: Seconds that a peak lasts.
        first_s: When the first one begins.

    Example:
        >>> import numpy as np
        >>> from plait.connectors import synthetic
        >>> rate = synthetic.Peaks(base=10, peak=100, every_s=60, lasting_s=1, first_s=1)
    """

    base: float
    peak: float
    every_s: int
    lasting_s: int
    first_s: int = 0

    def __post_init__(self) -> None:
        _check_numbers(self)
        mean = self.base + (self.peak - self.base) * self.lasting_s / max(self.every_s, 1)
        _check(self, mean, base=self.base >= 0, peak=self.peak >= 0, lasting_s=0 < self.lasting_s <= self.every_s)

    def before(self, second: Ints) -> Ints:
        """How many tuples come before the start of each second.

        Args:
            second: Numbers of seconds, as an int64 array.

        Returns:
            As many whole numbers, which never fall.

        Raises:
            TypeError: `second` is no array of numbers.

        Example:
            >>> rate.before(np.array([1, 2, 3]))
            array([ 10, 110, 120])
        """
        since = np.maximum(second - self.first_s, 0)
        whole, part = np.divmod(since, self.every_s)
        peaking = whole * self.lasting_s + np.minimum(part, self.lasting_s)
        return _floor(self.base * (second - peaking) + self.peak * peaking)


#: How many tuples a source sends, second by second.
Rate = Constant | Sinusoid | Peaks
Rates = float | Rate | Sequence[float | Rate]


def _floor(tuples: Any) -> Ints:
    whole: Ints = np.floor(tuples).astype(np.int64)
    return whole


def _check_numbers(rate: Rate) -> None:
    for field in dataclasses.fields(rate):
        if not is_number(getattr(rate, field.name)):
            raise QueryError(f"{rate}: {field.name} is no number", do="Pass tuples a second, or seconds")


def _check(rate: Rate, mean: float, **conditions: bool) -> None:
    if not (MIN_PER_SECOND <= mean < 1e9):
        raise QueryError(
            f"{rate} sends {mean:g} tuples a second", why=f"a rate lies between {MIN_PER_SECOND} and 1e9 on average"
        )
    for name, holds in conditions.items():
        if not holds:
            raise QueryError(
                f"{rate}: {name} does not fit",
                why="a rate is never negative, and a period or peak has a length",
                do="Keep amplitude <= mean, period_s > 0 and 0 < lasting_s <= every_s",
            )


def as_rates(rates: Rates, name: str) -> tuple[Rate, ...]:
    """One rate for each source: a number is constant, a sequence is several sources."""
    several: Sequence[Any] = rates if isinstance(rates, Sequence) else [rates]
    if not several:
        raise QueryError(f"{name}=[] gives no source a rate", do="Pass a number, a rate, or one for each source")
    for rate in several:
        if isinstance(rate, bool) or not isinstance(rate, (int, float, Constant, Sinusoid, Peaks)):
            raise QueryError(f"{name}={rate!r} is no rate", do="Pass tuples a second, Constant, Sinusoid or Peaks")
    return tuple(Constant(rate) if isinstance(rate, (int, float)) else rate for rate in several)


def before(rate: Rate, second: int) -> int:
    """Tuples sent before the start of a second."""
    return int(rate.before(np.array([second], dtype=np.int64))[0])


def second_of(rate: Rate, row: int) -> int:
    """The second in which a row is sent."""
    high = 1
    while before(rate, high) <= row:
        high *= 2
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if before(rate, middle) <= row else (low, middle)
    return low


def row_counts(rates: Sequence[Rate], seconds: int | None, rows: int | None) -> list[int]:
    """How many rows each source sends: those of `seconds`, or `rows` in all, shared out as the rates have it."""
    if (seconds is None) == (rows is None):
        raise QueryError(f"seconds={seconds!r} and rows={rows!r}", why="one of the two says how long the workload is")
    size = seconds if rows is None else rows
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise QueryError(f"A workload of size {size!r}", why="seconds= and rows= are whole numbers, not negative")
    if rows is None:
        return [before(rate, size) for rate in rates]
    end = 0
    while sum(before(rate, end) for rate in rates) < size:
        end = max(1, end * 2)
    low = 0  # the last second that is needed only in part
    while end - low > 1:
        middle = (low + end) // 2
        low, end = (middle, end) if sum(before(rate, middle) for rate in rates) < size else (low, middle)
    counts = [before(rate, low) for rate in rates]
    room = [before(rate, end) - count for rate, count in zip(rates, counts, strict=True)]
    missing, total = size - sum(counts), max(sum(room), 1)
    shares = [space * missing // total for space in room]
    for at, space in enumerate(room):  # what rounding down has left over
        extra = min(space - shares[at], missing - sum(shares))
        shares[at] += extra
    return [count + share for count, share in zip(counts, shares, strict=True)]
