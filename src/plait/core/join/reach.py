"""Which earlier tuples a tuple may meet: how far back a join's window reaches, a record for each kind of window.

A tuple meets earlier tuples of the other stream: all of them from a first place on. A place is a ts, or a tuple's number in its
stream, whichever the kind of window measures by. The first place that a tuple at `at` meets is

    (at - back) // step * step

    time       places are ts        back: `before` for a left tuple, `after` for a right one    step: 1
    tumbling   places are ts        back: 0                                                     step: the window's size
    count      places are numbers   back: the count                                             step: 1
    tumbling   places are numbers   back: 1, so that the window is that of the last tuple       step: the count
    count

For a window that counts, `at` is how many tuples of the other stream precede the tuple. The first place never falls as `at`
rises, so what one tuple no longer meets no later one does: by that windows are purged, on every executor.

`first_met` is that line. NumPy and Python's integers take it as it is, workers take it compiled (`first_met_compiled`). A kind
that queries know (`query.join`) and that has no record here fails this import, with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from plait.core.join.segment import Segment
from plait.core.machine.marks import inner
from plait.query.join import WINDOWS, CountWindow, TimeWindow, TumblingCountWindow, TumblingWindow, Window

#: What places are. Compiled code has them as words.
TS: Final = 0
NUMBER: Final = 1


def first_met(back: Any, step: Any, at: Any) -> Any:  # numbers, or arrays of them
    """The first place that a tuple at `at` meets.

    Example: a tumbling window of 10 us. A tuple at 27 meets those from (27 - 0) // 10 * 10 = 20 on; one at -3 those from
    -10 on. Which tuples come after the tuple itself is not asked here: a tuple only ever looks back.

    There is one text for NumPy, Python and Numba, so executors can't differ. // rounds down in all three.
    """
    first = at - back
    return first if step == 1 else first // step * step


first_met_compiled = inner(first_met)


@dataclass(frozen=True)
class Reach:
    """How far back one join's window reaches."""

    places: int  # TS or NUMBER
    back: tuple[int, int]  # by the side of the tuple that looks back, the later one
    step: int

    @property
    def counts(self) -> bool:
        """Whether places are numbers: then who knows a part of a stream only does not know who meets whom."""
        return self.places == NUMBER

    @property
    def longest(self) -> int:
        """How far behind a tuple the first one lies that it meets, at most."""
        return max(self.back) + self.step - 1

    def first(self, side: int, at: Any) -> Any:
        """The first place that tuples of a side at `at` meet: of numbers, or of an array of them."""
        return first_met(self.back[side], self.step, at)

    def first_row(self, segment: Segment, side: int, ts: np.ndarray, preceding: np.ndarray) -> np.ndarray:
        """Where in the other side's segment the first row lies that tuples of a side meet, as a position.

        `ts` are the tuples' times, `preceding` how many tuples of the other stream come before each.
        """
        if self.counts:
            return segment.position_of_id(self.first(side, preceding))
        return segment.position_of_ts(self.first(side, ts))


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one kind of window says of its reach.

    places  TS or NUMBER: what it measures by
    back    of a window: how far back a left tuple looks, and a right one
    step    of a window: where tuples' reaches begin, as multiples of this; 1: anywhere

    A kind that `ends` measures by ts and has the step 1: a left row waits for partners as long as right tuples look back.
    """

    places: int
    back: Callable[[Any], tuple[int, int]]
    step: Callable[[Any], int]


RECORDS: Mapping[type[Window], Record] = {
    TimeWindow: Record(places=TS, back=lambda window: (window.before_us, window.after_us), step=lambda window: 1),
    TumblingWindow: Record(places=TS, back=lambda window: (0, 0), step=lambda window: window.size_us),
    CountWindow: Record(places=NUMBER, back=lambda window: (window.count, window.count), step=lambda window: 1),
    TumblingCountWindow: Record(places=NUMBER, back=lambda window: (1, 1), step=lambda window: window.count),
}


def reach_of(window: Window) -> Reach:
    record = RECORDS[type(window)]
    return Reach(record.places, record.back(window), record.step(window))


def missing(records: Mapping[type[Window], Record], known: Iterable[type[Window]]) -> list[str]:
    """What is missing, a line each, if these are the records of the kinds of window that queries know."""
    found = [f"the kind of window {kind.__name__} has no record" for kind in known if kind not in records]
    for kind, record in records.items():
        if record.places not in (TS, NUMBER):
            found.append(f"the kind of window {kind.__name__} measures by {record.places!r}, which is no kind of place")
        if kind.ends and record.places != TS:
            found.append(f"the kind of window {kind.__name__} says when a row's time is up, but does not measure by ts")
    return found


for _line in missing(RECORDS, WINDOWS):
    raise ImportError(f"{_line}: see plait.core.join.reach")
