"""How a run ends: it is stopped, or dropped by whoever had it; and what has ended is cleared away.

Threads of a run hold its engine, and not the run: so a run that nobody has any more is seen by Python, and ended. What ended is
memory still, for a while. Held by tests/threads/test_broken_calls.py.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from plait.query.stream import Stream
from plait.threads.input.idle import Clock
from plait.threads.input.linger import Lingering
from plait.threads.parts import Running

if TYPE_CHECKING:
    from plait.threads.run import Run

#: Engines that have ended. Their parts refer to one another, so they are there until Python's collector comes by, which counts
#: objects and does not see that an engine is a few of them and many megabytes.
_ENDED: weakref.WeakSet[Running] = weakref.WeakSet()
#: Whichever comes first. The second is for short runs: they hold little, but each has some dozen mappings of a process's 65,530.
MOST_ENDED_BYTES, MOST_ENDED = 1 << 30, 200


def clear_away() -> None:
    """Have ended engines collected once they hold too much."""
    if len(_ENDED) > MOST_ENDED or sum(engine.nbytes for engine in _ENDED) > MOST_ENDED_BYTES:
        gc.collect()


class Begun(NamedTuple):
    """What runs, the thread that looks at the clock, pushes that wait for others, and what stops all when the run is dropped."""

    engine: Running
    clock: Clock
    lingering: Lingering | None
    dropped: weakref.finalize[..., Run]

    def stop(self) -> None:
        """End all threads now (`Run.stop`)."""
        self.dropped.detach()
        self.clock.stop()
        if self.lingering is not None:
            self.lingering.abandon()
        self.engine.stop()
        if self.lingering is not None:
            self.lingering.stop()
        _ENDED.add(self.engine)


def begun(run: Run, engine: Running, streams: Iterable[Stream], linger_us: int | None) -> Begun:
    """An engine whose threads have begun, with its clock; both end when nobody has the run any more."""
    try:
        clock = Clock(streams, engine.let_go, engine.fail)
    except BaseException:
        engine.abandon()
        raise
    lingering = Lingering(engine, linger_us) if linger_us else None
    # Its threads hold the engine, and not the run: a run that nobody has any more is stopped.
    dropped = weakref.finalize(run, _abandon, engine, clock, lingering)
    dropped.atexit = False
    return Begun(engine, clock, lingering, dropped)


def _abandon(engine: Running, clock: Clock, lingering: Lingering | None) -> None:
    """Nobody has the run any more. Called by the collector of garbage, in whatever thread: it waits for nobody."""
    clock.abandon()
    if lingering is not None:
        lingering.abandon()
    engine.abandon()
    _ENDED.add(engine)
