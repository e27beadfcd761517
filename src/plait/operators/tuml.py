"""TuML: tuples merged into one list by a gate, then update threads (multiway-aggregation.txt, sections 4 and 5.4).

- *TuML-SC* (single consumer): one thread reads the ready tuples in total order, updates the windows and gives out results.
- *TuML-MC* (many): every update thread reads all ready tuples and keeps those of the groups that are its own, by a hash of the
  key; a winset is given out when all of them have passed its end. Each group's tuples are seen by one thread, in total order,
  so order-sensitive functions are served as well. Windows are each thread's own: nothing is shared but the gate.

A `Design` is what a strategy decides for an aggregate, as a `Plan` is for a join. What a tuple's functions read lies in its
source's arena (`threads.pushing`); `lay_out` brings a batch's columns together, in total order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait.atomics.native import compiled_over
from plait.errors import QueryError
from plait.operators import layout as o
from plait.query.aggregate import Aggregate
from plait.windows.ring_segment import ints, octets

#: Those that are built, and those that the paper has besides.
BUILT = ("tuml_sc", "tuml_mc", "wiml")
OTHERS = ("mq", "mq_lockfree")
STRATEGIES = BUILT + OTHERS


@dataclass(frozen=True)
class Design:
    """Who updates windows. `seats` are the gate's readers."""

    strategy: str
    workers: int
    why: str

    @property
    def seats(self) -> tuple[int, ...]:
        return tuple(range(self.workers))


def design(query: Aggregate, strategy: str, workers: int | None) -> Design:
    """The strategy for an aggregate, checked."""
    if strategy in OTHERS:
        raise QueryError(
            f"strategy={strategy!r} is not built yet",
            why="of the paper's designs there are TuML-SC and TuML-MC so far",
            do="Use 'tuml_sc', 'tuml_mc' or 'auto'",
        )
    if strategy not in (*BUILT, "auto"):
        raise QueryError(
            f"strategy={strategy!r} for an aggregate",
            why="it is one for joins",
            do="Use 'tuml_sc', 'tuml_mc' or 'auto'",
        )
    if strategy == "wiml":
        return Design("wiml", 1, "asked")
    if strategy == "tuml_mc":
        if not query.by:
            raise QueryError(
                "strategy='tuml_mc' without by=",
                why="update threads share the work by key, and there is none",
                do="Use 'tuml_sc', or group by a column",
            )
        return Design(strategy, workers or 2, "update threads split by key, as asked for")
    if workers is not None and workers > 1:
        if strategy == "tuml_sc":
            raise QueryError(
                f"workers={workers} with strategy='tuml_sc'", why="it has a single consumer", do="Use 'tuml_mc'"
            )
        if query.by:
            return Design("tuml_mc", workers, f"{workers} workers were asked for: update threads split by key")
    why = "as asked for" if strategy == "tuml_sc" else "one thread keeps up with several sources that push"
    return Design("tuml_sc", 1, why)


@compiled_over("windows")
def lay_out(n: Any, origin: Any, seq: Any, arena: Any, mask: Any, kinds: Any, wide: Any, narrow: Any) -> None:
    """Copy columns out of the sources' arenas: of 8 bytes (kinds[c] 1) into rows of `wide`, of 1 byte into `narrow`."""
    w, b = 0, 0
    for c in range(len(kinds)):
        at = o.A_COLUMNS + c
        if kinds[c] == 1:
            for k in range(n):
                wide[w, k] = ints(arena[origin[k] & o.SLOT_MASK, at], mask + 1)[seq[k] & mask]
            w += 1
        else:
            for k in range(n):
                narrow[b, k] = octets(arena[origin[k] & o.SLOT_MASK, at], mask + 1)[seq[k] & mask]
            b += 1
