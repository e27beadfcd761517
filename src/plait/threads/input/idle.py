"""`idle_after=`: a source that has been silent for so long by the wall clock does not hold the frontier.

At the gate it is promised for, up to where the frontier is without it (`core.sources.frontier`). So what is promised for it
lies never above the frontier, and when it comes back it is judged by that alone: a tuple below the frontier is behind, the
others are welcome. What is behind then depends on when tuples arrived: this gives up determinism, as the documentation says.

Held by tests/threads/test_idle.py, where hours pass at a word: the clock is handed in as `now_ns`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from plait.core.sources import frontier
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import Stream
from plait.threads.input.push import Pusher


def let_go(pushers: Sequence[Pusher], now_ns: int) -> None:
    """Promise for every source that has been silent for too long.

    `pushers`: of all operators of the query. All places at all gates count, so a source is promised for up to the
    least of those that are not idle; if all are, up to where the furthest has come.
    """
    found = [(pusher, each) for pusher in pushers for each in pusher.holding(now_ns)]
    idle = [(pusher, each) for pusher, each in found if each.idle]
    if not idle:
        return
    at, _ = frontier((each for _, each in found), max(pusher.reached() for pusher in pushers))
    if BEFORE_ALL < at < AFTER_ALL:
        for pusher, each in idle:
            pusher.promise_for(each.who, at)


class Clock:
    """The thread that looks at the clock, a few times in the shortest `idle_after=` there is."""

    def __init__(
        self, streams: Iterable[Stream], tick: Callable[[int], None], fail: Callable[[BaseException], None]
    ) -> None:
        shortest_us = min((s.idle_after_us for s in streams if s.idle_after_us is not None), default=None)
        self._tick, self._fail, self._over = tick, fail, threading.Event()
        self._thread: threading.Thread | None = None
        if shortest_us is not None:
            self._every_s = min(max(shortest_us / 4e6, 0.001), 1.0)
            self._thread = threading.Thread(target=self._run, name="plait-clock", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._tick(time.monotonic_ns())
            except BaseException as error:
                self._fail(error)
                return

    def abandon(self) -> None:
        self._over.set()

    def stop(self) -> None:
        self.abandon()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
