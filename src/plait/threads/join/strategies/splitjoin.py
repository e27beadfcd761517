"""SplitJoin: storing and processing split, tuples handed down a tree, results gathered by punctuation.

M. Najafi, M. Sadoghi, H.-A. Jacobsen, «SplitJoin: A Scalable, Low-latency Stream Join Architecture with Adjustable
Ordering Precision», USENIX ATC 2016; algorithms 1 to 5.

- Distribution (section 4): a tree. The root alone merges the sources; a worker passes a batch on to its children before
  it works on it (`feed`), so the last one has it after as many hand-offs as the tree is deep. It is widened before it is
  deepened: as shallow as WIDEST children a worker allow, then as narrow as that depth allows; or as `fan_out=` says.
- Sub-windows: tuples of a stream are stored round robin, and evicted in the same order, so nobody has to say whose
  turn it is. Each worker drops what the tuples it processes have outlived, by their ts or by their numbers; expiry
  messages are those tuples.
- Storing and processing (section 3): steps of one worker's loop; with `split_storing=` workers of their own, two a
  sub-window, of which one stores and the other compares.
- Gathering (section 5): after each batch a worker says up to which trigger it is done: a punctuation. What lies between two
  cuts is taken worker by worker (`gather.merge`), and no worker sorts more than that. `punctuate=1` is the paper's strict outer
  ordering, a number k its relaxed one, `"j comparisons"` its relaxed inner ordering, `"comparison"` its strict one (the result
  order), None lets results through as they come. With `fan_in=` results come through a tree of mergers. `marks=True` shows
  the punctuation to whoever reads.

Invariant: as ScaleJoin's, a pair is compared by the one worker that stored its earlier tuple, or that shares the segment with
who did; and the order of results is exact as far as `punctuate` asks, because stretches are cut by numbers, of triggers and of
the other stream's tuples, which all workers count alike, and one is begun only when no worker can still come with something of
an earlier one. When a worker says how far it is, its batches decide, and the others' need not end where its own do. Since
tuples are stored round robin, taking worker by worker what they have of one tuple each is result order.

Where this departs from the paper: the inner nodes of the distribution tree are workers, not distributors of their own. Windows
that count expire as those of time do; no slot is overwritten before all who read it are past it. A punctuation is a word;
only where a reader wants marks does one worker, the last to be gathered from, put them into its ring. Marks within a trigger
stand at multiples of the other stream's numbers, not of comparisons from its window's oldest tuple on, so that all workers
cut alike. docs/papers.md has each beside its section.
"""

from __future__ import annotations

from dataclasses import replace

from plait.core.calibration import duration
from plait.errors import QueryError, counted
from plait.models import splitjoin as equations
from plait.threads.join.strategies import scalejoin
from plait.threads.join.strategies.plan import Plan, Seat, Wish, refuse_kind

WIDEST = 8  # children of a worker, before the tree becomes deeper


def plan(wish: Wish) -> Plan:
    n = wish.workers
    b = widened(n) if wish.fan_out is None else wish.fan_out
    if n > 1 and wish.kind != "inner":
        raise refuse_kind("splitjoin", wish.kind)
    if isinstance(b, bool) or not isinstance(b, int) or b < 1:
        raise QueryError(f"fan_out={b!r} is no number of children", do="Pass a whole number of at least 1")
    parts, windows = _seats(wish)
    seats = tuple(replace(s, parent=None if k == 0 else (k - 1) // b) for k, s in enumerate(parts))
    mergers = () if wish.fan_in is None else mergers_of(n, wish.fan_in)
    why = f"{windows} sub-windows a stream{', each with a worker that stores and one that compares' * wish.split_storing}; "
    why += f"tuples handed down a tree of fan-out {b}{_latency(wish, b)}"
    if mergers:
        why += f"; results gathered by {counted(len(mergers), 'merger')} of fan-in {wish.fan_in}, each in a thread of its own"
    elif wish.fan_in is not None:
        why += f"; results gathered by whoever reads them: {counted(n, 'worker')}, and fan_in={wish.fan_in}"
    return Plan("splitjoin", seats, (windows, windows), why, tree=n > 1, mergers=mergers)


def widened(workers: int, widest: int = WIDEST) -> int:
    """The fan-out of a tree of so many workers that is widened before it is deepened."""

    def holds(fan_out: int, depth: int) -> int:
        return sum(fan_out**level for level in range(depth + 1))

    depth = next(d for d in range(workers) if holds(widest, d) >= workers)
    return next(b for b in range(1, widest + 1) if holds(b, depth) >= workers)


def mergers_of(workers: int, fan_in: int) -> tuple[tuple[int, ...], ...]:
    """The mergers of a tree in which nobody gathers from more than `fan_in`, whoever reads included (figure 8).

    Neighbours are merged, so that what is taken ring by ring comes worker by worker. Five workers and a fan-in of 2: merger 5 has
    workers 0 and 1, merger 6 has 2 and 3, merger 7 has mergers 5 and 6; who reads has merger 7 and worker 4.
    """
    made: list[tuple[int, ...]] = []
    level = list(range(workers))
    while len(level) > fan_in:
        above = []
        for at in range(0, len(level), fan_in):
            inputs = tuple(level[at : at + fan_in])
            if len(inputs) > 1:
                made.append(inputs)
            above.append(inputs[0] if len(inputs) == 1 else workers + len(made) - 1)
        level = above
    return tuple(made)


def _seats(wish: Wish) -> tuple[tuple[Seat, ...], int]:
    """Who stores and compares what, and how many sub-windows there are.

    Apart, those who store come first: who compares waits until they have stored, and the root of the tree has a batch first.
    """
    if not wish.split_storing:
        return scalejoin.plan(wish).seats, wish.workers
    if wish.workers % 2:
        raise QueryError(
            f"split_storing=True with workers={wish.workers}",
            why="each sub-window has a worker that stores and one that compares",
            do="Pass an even number of workers",
        )
    windows = wish.workers // 2
    both = scalejoin.plan(replace(wish, workers=windows)).seats
    stores = (replace(seat, compares=False) for seat in both)
    return (*stores, *(replace(seat, writer=(False, False)) for seat in both)), windows


def _latency(wish: Wish, fan_out: int) -> str:
    """What SplitJoin's equation 6 says of it, in words; nothing where this machine or the windows are not known."""
    if wish.costs is None or wish.meets is None or wish.workers < 2 or fan_out < 2:
        return ""
    sub_window = max(1, round(max(wish.meets) / wish.workers))
    mean = equations.visiting_latency(wish.workers, sub_window, wish.costs.hop_s, wish.costs.comparison_s, fan_out)
    return (
        f"; two tuples meet after {duration(mean)} in the mean (SplitJoin's equation 6, a hop at "
        f"{duration(wish.costs.hop_s)}, a comparison at {duration(wish.costs.comparison_s)})"
    )
