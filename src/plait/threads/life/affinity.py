"""Threads bound to cores (DP-Join, section 5.1): worker k of a run stays on one core, so it finds its caches as it left them.

Linux only: elsewhere `affinity=` is refused, when it is given. Cores are handed out by turns over all operators of a run, so that
the workers of two joins do not all sit on the first ones. Bound are the threads of operators: workers, an Emitter, an
aggregate's output thread. Threads that push or read results are the user's, and are left alone.

Invariant: a thread binds itself, before it does anything else; no other thread's binding is touched.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from plait.errors import QueryError


def cores_of(affinity: Any) -> tuple[int, ...]:
    """The cores that `affinity=` names, in turn; none where threads are not to be bound.

    Raises:
        QueryError: It names no cores, ones that this process may not use, or threads can't be bound on this system.
    """
    if affinity is False:
        return ()
    if sys.platform != "linux":
        raise QueryError(
            f"affinity={affinity!r} on {sys.platform}",
            why="threads can be bound to cores on Linux only",
            do="Leave affinity= out",
        )
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    if affinity is True:
        return allowed
    if (
        not isinstance(affinity, (tuple, list))
        or not affinity
        or any(isinstance(core, bool) or not isinstance(core, int) for core in affinity)
    ):
        raise QueryError(
            f"affinity={affinity!r} names no cores", do="Pass True, or a list of core numbers such as [0, 1]"
        )
    unknown = [core for core in affinity if core not in allowed]
    if unknown:
        raise QueryError(
            f"affinity={affinity!r}: this process may not use {', '.join(map(str, unknown))}",
            why=f"it has cores {', '.join(map(str, allowed))}",
            do="Name some of these, or pass True for all",
        )
    return tuple(affinity)


def bind(core: int) -> None:
    """Bind the thread that calls this to a core."""
    if sys.platform == "linux":  # elsewhere no core was given
        os.sched_setaffinity(0, {core})


def described(affinity: Any) -> list[str]:
    """A line for `explain`, where threads are bound."""
    cores = cores_of(affinity)
    return [f"on threads: bound to cores {', '.join(map(str, cores))}, by turns"] if cores else []
