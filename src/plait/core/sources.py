"""Sources: how far each has come, which of its tuples are late or behind, who holds the frontier, and what a user is told of it.

Threads and Spark take all of this from here; the reference says it again in its own words (`reference/intake.py`). A change of
these rules is a change of this file, and of `query/stream.py` where it has an option. The definitions:

- A source may run back by its stream's **slack** (`disorder=`). A tuple is **late** iff its ts is below the largest ts before it,
  by seq, in its own source, less the slack. That is a fact of the data: no clock and no batch has a part in it.
- A **heartbeat** promises no ts below its own, and the slack does not lower it. A tuple that is not late and lies below its
  source's heartbeat **breaks a promise**: an error, whatever the options say.
- A tuple that is neither of these and lies below the **released** frontier, up to which results are out, is **behind**. Its
  source did not hold the frontier when that moved on. Behind and late tuples are dropped or refused, as the stream says. A
  tuple that is behind still counts as the largest before those that follow it.
- A source's **progress** is its largest ts less the slack, or its heartbeat if that is more. It is BEFORE_ALL before the source
  has spoken, and AFTER_ALL once it has ended.
- The **frontier** is the least progress of all that may hold it, and the one with the least is its **holder**. A tuple is
  **ready** when its ts is below the frontier: a source at progress F may still give tuples of ts F.
- A source that has been silent for `idle_after=` is **idle**, and does not hold the frontier. If only idle ones are left, the
  frontier is the furthest that any source has come to: nothing is promised beyond what has been seen.

`threads/gate/frontier.py` takes the least progress once more, in compiled code, over words that many threads write. It knows
nothing else of these rules: progress comes to it from here.

Times are int64 numbers of microseconds within +-2^62, alone or in arrays. BEFORE_ALL and AFTER_ALL lie outside of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from plait.core.kernels.runs import out_of_order
from plait.errors import BehindError, DataError, LateError, PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName, Stream

# --- progress -----------------------------------------------------------------------------------------------


def slack_us(stream: Stream) -> int:
    """How far a source of the stream may run back."""
    return stream.disorder_us


def come_to(stream: Stream, largest: int, heartbeat: int) -> int:
    """The progress of a source that has not ended. `largest`: of the ts it has given; BEFORE_ALL if none.

    Example: disorder 5, largest 100, heartbeat 97 gives 97; with heartbeat 90 it gives 95. In microseconds.
    """
    # A heartbeat is BEFORE_ALL at least, so who has not spoken is not taken below that.
    return max(largest - slack_us(stream), heartbeat)


def is_idle(stream: Stream, silent_us: int) -> bool:
    """Whether who has been silent for so long, by the executor's clock, lets go of the frontier."""
    return stream.idle_after_us is not None and silent_us >= stream.idle_after_us


def may_be_behind(stream: Stream) -> bool:
    """Whether any source of it can turn up below the frontier: nobody waited for it, or it was idle."""
    return stream.declared() is None or stream.idle_after_us is not None


# --- late and behind ----------------------------------------------------------------------------------------


class Offence(NamedTuple):
    """A tuple that its stream refuses."""

    kind: str  # "late", "broken" (a promise), "behind"
    row: int  # its place in the arrays that were judged
    ts: int
    limit: int  # what it should not be below: the largest ts before it, the heartbeat, the released frontier


class Judgement(NamedTuple):
    """Masks over tuples, and the first tuple that is refused. A tuple is late or behind or neither, never both.

    Arrays of booleans, one a tuple. `offence` is the first in the order of the arrays, None if all that is wrong may be
    dropped.
    """

    late: np.ndarray
    behind: np.ndarray
    offence: Offence | None


def largest_before(ts: np.ndarray, largest: int) -> np.ndarray:
    """Of one source's tuples, in the order of seq, the largest ts before each. `largest`: of those before them all."""
    return np.maximum.accumulate(np.concatenate((np.array([largest], np.int64), ts)))[:-1]


def is_late(stream: Stream, ts: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Which tuples are late. `before`: the largest ts before each in its own source; BEFORE_ALL if there is none."""
    slack = slack_us(stream)
    bound = before if slack == 0 else np.maximum(before, BEFORE_ALL + slack) - slack
    late: np.ndarray = ts < bound
    return late


def judge(stream: Stream, ts: np.ndarray, before: np.ndarray, heartbeat: int | np.ndarray, released: int,
          known_late: np.ndarray | None = None) -> Judgement:  # fmt: skip
    """Tuples of any sources of a stream: for each the largest ts before it, and its source's heartbeat.

    `known_late` are late for a reason that `before` does not hold: who has it has seen more of the source.

    `ts`, `before` and, if it is an array, `heartbeat` are int64 by tuple; `released` is one for all. A tuple that is late
    is not judged further: it is not behind, and breaks no promise.
    """
    late = is_late(stream, ts, before)
    if known_late is not None:
        late |= known_late
    broken = (ts < heartbeat) & ~late
    behind = (ts < released) & ~late & ~broken
    refused = broken.copy()
    if stream.late == "error":
        refused |= late
    if stream.behind == "error":
        refused |= behind
    offence = None
    if refused.any():
        row = int(refused.argmax())
        kind, limits = ("late", before) if late[row] else ("broken", heartbeat) if broken[row] else ("behind", released)
        offence = Offence(kind, row, int(ts[row]), int(limits[row] if isinstance(limits, np.ndarray) else limits))
    return Judgement(late, behind, offence)


def judge_next(stream: Stream, ts: np.ndarray, largest: int, heartbeat: int,
               released: int) -> tuple[int, Judgement | None]:  # fmt: skip
    """The next tuples of one source, in the order of seq: its largest ts after them, and what is wrong with them, if anything.

    `largest` and `heartbeat` are the source's before them.

    The usual batch is in order and costs one pass. Gives None for the judgement then: there is nothing to drop.
    """
    if not len(ts):
        return largest, None
    if not out_of_order(ts, max(largest, heartbeat, released)):
        return int(ts[-1]), None  # neither late nor behind, nor below a promise: what is usual, found in one pass
    found = judge(stream, ts, largest_before(ts, largest), heartbeat, released)
    wrong = found.offence is not None or found.late.any() or found.behind.any()
    return max(largest, int(ts.max())), found if wrong else None


# --- the frontier -------------------------------------------------------------------------------------------

Who = TypeVar("Who")


class Holding(NamedTuple, Generic[Who]):
    """One that may hold the frontier: a source that has not ended, a stream of which more sources may come, an operator."""

    progress: int
    who: Who
    idle: bool = False


def frontier(holdings: Iterable[Holding[Who]], reached: int) -> tuple[int, Holding[Who] | None]:
    """The frontier, and who holds it. With nobody left to hold it nothing can come any more, so everything is ready.

    `reached`: the furthest that any source has come to, those that have ended among them.
    """
    holder, idle = None, False
    for each in holdings:
        if each.idle:
            idle = True
        elif holder is None or each.progress < holder.progress:
            holder = each
    if holder is not None:
        return holder.progress, holder
    return reached if idle else AFTER_ALL, None


# --- in words -----------------------------------------------------------------------------------------------


def refusal(stream: Stream, source: SourceName, at: str, offence: Offence, *, idle: bool = False,
            resumes: bool = False) -> DataError:  # fmt: skip
    """The error for a tuple. `at`: its place in its source, in words, if it is known.

    `idle`: its source was, when the frontier moved on. `resumes`: the run goes on from a checkpoint, which keeps disorder=.
    """
    kind, _, ts, limit = offence
    place = f"Stream {stream.name!r}, source {source!r}{f', {at}' if at else ''}"
    if kind == "late":
        back = limit - ts
        return LateError(
            f"{place}: ts {ts} is late, {back} us behind {limit} before it",
            why=f"the source may run back by {slack_us(stream)} us",
            do=f"Restart with late='drop' to skip such rows, or begin anew with disorder= of at least {back} us"
            if resumes
            else f"Raise disorder= to at least {back} us, or set late='drop'",
        )
    if kind == "broken":
        return DataError(
            f"{place}: ts {ts} is below the source's heartbeat {limit}", why="a heartbeat promises no ts below its own"
        )
    drop = (
        "restart with behind='drop', which gives up determinism"
        if resumes
        else "give up determinism with behind='drop'"
    )
    return BehindError(
        f"{place}: ts {ts} is behind the frontier {limit}, up to which results are out",
        why="the source had been silent for longer than idle_after= when it moved on"
        if idle
        else "the source was not known to hold the frontier when it moved on",
        do=f"Raise idle_after=, send heartbeats, or {drop}"
        if idle
        else f"Declare the sources with sources=[...], or {drop}",
    )


def not_declared(stream: Stream, source: SourceName, declared: Iterable[SourceName], at: str = "") -> DataError:
    """A source that is none of those the stream has."""
    return DataError(
        f"Stream {stream.name!r}{f', {at}' if at else ''}: source {source!r} is not declared",
        why=f"declared are {', '.join(map(repr, declared))}",
        do="Add it to sources=, or name one of these",
    )


def has_ended(stream: Stream, source: SourceName | None = None, *, came: str = "rows", at: str = "") -> RunError:
    """What came for a source (None: for any of the stream) after its end."""
    who = f"Stream {stream.name!r}" if source is None else f"Stream {stream.name!r}: source {source!r}"
    return RunError(f"{who} has ended", why=f"{came} came after its end{f' ({at})' if at else ''}")


def told(stream: str, source: SourceName | None, *, known: bool = False) -> str:
    """Who holds the frontier. `source` is None for a stream that waits for one to come; `known`: it has had others."""
    if source is not None:
        return f"source {source!r} of stream {stream!r}"
    return f"stream {stream!r}, of which {'more sources may come' if known else 'no source is known'}"


def stuck(waiting: str, holder: str, progress: int) -> PendingError:
    """So much waits for the frontier that no more may; who pushes it must not wait, for it might be the one to move that."""
    return PendingError(
        f"{waiting} that wait for the frontier, which is held by {holder}: "
        + ("it has not spoken" if progress == BEFORE_ALL else f"it is at ts {progress}"),
        why="waiting could be for ever, if the same thread feeds both",
        do="Push sources by turns, send heartbeats for a silent one, close it, or raise pending=",
    )


def too_many_wait(waiting: str, most: int, holder: str, progress: int) -> PendingError:
    """The same where batches come by themselves."""
    return PendingError(
        f"{waiting}, more than max_pending={most}",
        why=f"{holder} holds it at {'no ts yet' if progress == BEFORE_ALL else f'ts {progress}'}",
        do="Feed or end that source, send it heartbeats, or raise max_pending",
    )
