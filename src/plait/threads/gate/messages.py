"""What a gate says when it refuses: who, with which values, why, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.errors import DataError, LateError, PendingError, RunError
from plait.order import BEFORE_ALL
from plait.threads.gate import codes, layout

if TYPE_CHECKING:
    from plait.threads.gate.push import Sources


def inside(who: str) -> RunError:
    return RunError(
        f"Another thread is inside a call for {who}",
        why="one thread at a time pushes a source or reads as a reader: their order would be anybody's guess",
        do="Give each thread a source or reader of its own",
    )


def late(gate: Sources, source: int, row: int, ts: int, largest: int) -> LateError:
    return LateError(
        f"{gate.name(source)}, row {row} of the batch: ts {ts} after {largest}",
        why=f"the source may run back by {gate.disorder_us} us, and by its heartbeats not at all",
        do="Declare more disorder, or late='drop'",
    )


def stuck(gate: Sources, source: int, done: int, size: int) -> PendingError:
    held, holder = gate.frontier()
    at = "-infinity: it has not spoken" if held == BEFORE_ALL else f"ts {held}"
    return PendingError(
        f"{gate.name(source)} has {int(gate.words[layout.PENDING])} tuples that are not ready; {done} of {size} were added. "
        f"The frontier is held by {'nobody' if holder is None else gate.name(holder)}, at {at}",
        why="waiting here could be for ever, if the same thread feeds both",
        do="Push or send a heartbeat for that source, end it, or raise pending=; then push the rest",
    )


def stalled(gate: Sources, source: int, done: int, size: int, seconds: float) -> RunError:
    slowest = gate.lag()[0]
    return RunError(
        f"{gate.name(source)} waited {seconds:g} s with {done} of {size} tuples added: reader {slowest.reader} has not "
        f"read {slowest.unread} ready tuples",
        why=f"a source may have {int(gate.words[layout.CAPACITY])} ready tuples unread",
        do="Let that reader read, remove it, or raise capacity=",
    )


def of_source(gate: Sources, source: int, code: int, done: int = 0, size: int = 0) -> Exception:
    """The error for a code that a call for a source answered."""
    who = gate.name(source)
    if code == codes.STUCK:
        return stuck(gate, source, done, size)
    if code == codes.GONE:
        return RunError(f"{who} has ended or was removed; what it still brings is ignored")
    if code == codes.CLOSED_CODE:
        return RunError("The gate was closed")
    if code == codes.INSIDE:
        return inside(who)
    if code == codes.UNSORTED:
        return DataError(
            f"{who}: two tuples of one ts whose seq does not rise",
            why="seq is what orders the tuples of one source and ts",
        )
    return RunError(f"{who}: the gate answered {code}")


def of_reader(reader: int, code: int) -> RunError:
    if code == codes.GONE:
        return RunError(f"Reader {reader} was removed, or never announced")
    if code == codes.CLOSED_CODE:
        return RunError("The gate was closed")
    return inside(f"reader {reader}")
