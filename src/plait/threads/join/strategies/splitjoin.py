"""SplitJoin: storing and processing split, tuples handed down a tree, results gathered by punctuation.

M. Najafi, M. Sadoghi, H.-A. Jacobsen, «SplitJoin: A Scalable, Low-latency Stream Join Architecture with Adjustable
Ordering Precision», USENIX ATC 2016; algorithms 1 to 5.

- Distribution (section 4): a tree with fan-out b. The root alone merges the sources; a worker passes a batch on to
  its children before it works on it (`feed`), so the last one has it after log_b(workers) hand-offs.
- Sub-windows: tuples of a stream are stored round robin, and evicted in the same order, so nobody has to say whose
  turn it is. Each worker drops what the tuples it processes have outlived, by their ts or by their numbers; expiry
  messages are those tuples.
- Gathering (section 5): each worker's results come in order, and after each batch it says up to which trigger it is
  done: a punctuation. What belongs to one stretch of so many triggers is taken worker by worker. `punctuate=1` is the
  paper's outer ordering, `"comparison"` its inner one (the result order), a number k sorts only every k triggers apart,
  None lets results through as they come (`out.gather`).

Invariant: as ScaleJoin's, a pair is compared by the one worker that stored its earlier tuple; and the order of
results is exact as far as `punctuate` asks, because stretches are cut by triggers' numbers, which all workers count
alike, and one is begun only when no worker can still come with something of an earlier one. When a worker says how far
it is, its batches decide, and the others' need not end where its own do.

Where this departs from the paper: the inner nodes of the distribution tree are workers, not distributors of their own,
and its fan-out is the user's, so it deepens where the paper widens first. A worker stores and compares in one thread: the
two steps are not separate cores. Windows that count expire as those of time do; no slot is overwritten before all who
read it are past it. One thread gathers from all workers: there is no tree of mergers. A punctuation is a word, not a mark
in the stream, and no reader sees it. `punctuate=` counts triggers; marks within one trigger's comparisons (relaxed inner
ordering) are not there. Workers sort a trigger's partners whatever the precision, so a weaker one saves gathering only.
docs/papers.md has each beside its section.
"""

from __future__ import annotations

from dataclasses import replace

from plait.core.calibration import duration
from plait.errors import QueryError
from plait.models import splitjoin as equations
from plait.threads.join.strategies import scalejoin
from plait.threads.join.strategies.plan import Plan, Wish, refuse_kind


def plan(wish: Wish) -> Plan:
    n, b = wish.workers, wish.fan_out
    if n > 1 and wish.kind != "inner":
        raise refuse_kind("splitjoin", wish.kind)
    if isinstance(b, bool) or not isinstance(b, int) or b < 1:
        raise QueryError(f"fan_out={b!r} is no number of children", do="Pass a whole number of at least 1")
    seats = tuple(replace(s, parent=None if k == 0 else (k - 1) // b) for k, s in enumerate(scalejoin.plan(wish).seats))
    why = f"{n} sub-windows a stream; tuples handed down a tree of fan-out {b}{_latency(wish)}"
    return Plan("splitjoin", seats, (n, n), why, tree=n > 1)


def _latency(wish: Wish) -> str:
    """What SplitJoin's equation 6 says of it, in words; nothing where this machine or the windows are not known."""
    if wish.costs is None or wish.meets is None or wish.workers < 2 or wish.fan_out < 2:
        return ""
    sub_window = max(1, round(max(wish.meets) / wish.workers))
    mean = equations.visiting_latency(wish.workers, sub_window, wish.costs.hop_s, wish.costs.comparison_s, wish.fan_out)
    return (
        f"; two tuples meet after {duration(mean)} in the mean (SplitJoin's equation 6, a hop at "
        f"{duration(wish.costs.hop_s)}, a comparison at {duration(wish.costs.comparison_s)})"
    )
