"""What a strategy decides, in data: who stores which tuples where, who compares them, and how results are gathered.

The seam for a new strategy. A strategy is a function `(Wish) -> Plan`; the worker's loop, the memory, flow control
and gathering are the same for all. In a plan each worker has a `Seat`. Sides are 0 (left, the papers' R or X) and 1
(right, S or Y); a tuple's *number* is its place in its own stream, which every worker counts alike because all see
the same sequence.

- A worker *compares* (probes with) the tuples of a side whose number is `probe_at` modulo `probe_every`.
- It uses one *segment* of each side's window. A segment holds the tuples whose number is `store_at` modulo
  `store_every`; it has one writer, and all workers that name it share it. Who writes a segment must compare the
  tuples it stores.
- A pair is compared where its earlier tuple lies in the segment of a worker that compares the later one. What every
  plan has to keep: for each pair there is exactly one such worker. `Plan.check` tries it for all numbers, in both
  orders.

A strategy that does not fit the common loop (other flows, other windows) names one of its own in `Plan.loop`, as
`asof` does: it gets the same memory, and answers with the same codes (`join.loop.words`). What it puts into its ring with
`out.put`, and publishes with `out.publish_progress`, is gathered like everybody's.

Held by tests/threads/join/test_plans.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lcm
from typing import Any

from plait.core.calibration import Costs
from plait.errors import QueryError
from plait.query.join import HOWS

Two = tuple[int, int]


@dataclass(frozen=True)
class Wish:
    """What is asked of a strategy. `kind` is one of `query.join.HOWS`, or asof; `rates` are tuples a second, where known.

    For what is said of a plan, and nothing else: `meets`, how many tuples of the other stream a left tuple looks back at, and a
    right one, where known; `costs`, this machine's, where it is calibrated.
    """

    workers: int
    kind: str = "inner"
    layout: Two | str = "auto"
    fan_out: int | None = None
    fan_in: int | None = None
    split_storing: bool = False
    emitter: bool = False
    line: str | None = (
        None  # what tuples can go by, by the condition (`Parts.line`); None: it has no equality and no band
    )
    rates: tuple[float, float] | None = None
    meets: tuple[float, float] | None = None
    costs: Costs | None = None


@dataclass(frozen=True)
class Parts:
    """Tuples go by their values (`loop.stretches`), not by their numbers: seats say no more than who there is.

    `line`: what they go by, "hash" (of an equality's value) or "range" (of a band's coordinate). `restless`, for tests: a seed,
    and every how many tuples another table is drawn by chance.
    """

    line: str
    restless: tuple[int, int] | None = None


@dataclass(frozen=True)
class Seat:
    """One worker's part; pairs are (left, right)."""

    segment: Two
    store_every: Two
    store_at: Two
    probe_every: Two
    probe_at: Two
    writer: tuple[bool, bool]
    parent: int | None = None  # in a distribution tree: who hands tuples down to it
    compares: bool = True  # False: it stores, for others that share its segments, and finds no pairs


@dataclass(frozen=True)
class Plan:
    """`layout` is (rows, columns), told to the user.

    `tree`: tuples are handed down by `Seat.parent`, and only the root reads the gate. `why` is what `Run.explain()`
    says of it.
    """

    strategy: str
    seats: tuple[Seat, ...]
    layout: Two
    why: str
    tree: bool = field(default=False)
    # Of a tree of mergers each one's inputs: workers by number, then mergers, counted on behind them. Inputs come first.
    mergers: tuple[tuple[int, ...], ...] = ()
    emitter: bool = field(default=False)  # sends tuples to the first worker of a row or column (`loop.grid`)
    parts: Parts | None = field(default=None)  # tuples go by their values
    loop: Any = field(
        default=None, compare=False
    )  # a compiled function with the arguments of `worker.work`; None: that one
    # Of a loop that shares work in another way than by seats: how many words all workers share, from (workers, batch).
    shared: Any = field(default=None, compare=False)

    @property
    def roots(self) -> tuple[int, ...]:
        """From whom whoever reads results gathers: workers and mergers that no merger gathers from.

        In the order of the workers behind them, which is the order of what is gathered worker by worker.
        """
        first = list(range(len(self.seats)))  # the first worker behind each
        for inputs in self.mergers:
            first.append(min(first[k] for k in inputs))
        merged = {number for inputs in self.mergers for number in inputs}
        return tuple(sorted((n for n in range(len(first)) if n not in merged), key=lambda n: first[n]))

    @property
    def segments(self) -> Two:
        """How many segments each side's window is cut into."""
        return (1 + max(s.segment[0] for s in self.seats), 1 + max(s.segment[1] for s in self.seats))

    def sharers(self, side: int, segment: int) -> list[int]:
        """The workers that use a segment, by number.

        A worker's place in this list says which FIRST word of the segment is its own.
        """
        return [k for k, seat in enumerate(self.seats) if seat.segment[side] == segment]

    def check(self) -> None:
        """Every pair is compared by exactly one worker, whichever of its tuples is the later one."""
        numbers = () if self.shared or self.parts else (0, 1)  # else its own flows see to that, and its module says how
        left, right = (lcm(*(lcm(s.store_every[side], s.probe_every[side]) for s in self.seats)) for side in (0, 1))
        for side in numbers:
            for number in range((left, right)[side]):
                for other in range((left, right)[1 - side]):
                    met = [
                        s
                        for s in self.seats
                        if s.compares
                        and number % s.probe_every[side] == s.probe_at[side]
                        and other % s.store_every[1 - side] == s.store_at[1 - side]
                    ]
                    assert len(met) == 1, f"{self.strategy}: a pair is compared {len(met)} times"
        for side in (0, 1):
            for segment in range(self.segments[side]):
                assert sum(self.seats[k].writer[side] for k in self.sharers(side, segment)) == 1
        for number, inputs in enumerate(self.mergers):
            assert all(k < len(self.seats) + number for k in inputs), f"{self.strategy}: a merger waits for a later one"
        merged = [k for inputs in (*self.mergers, self.roots) for k in inputs]
        assert sorted(merged) == list(range(len(self.seats) + len(self.mergers))), (
            f"{self.strategy}: a ring is read twice"
        )


def refuse_kind(strategy: str, kind: str) -> QueryError:
    side, layout = ("right", "1 x n") if HOWS[kind].whole == (1,) else ("left", "m x 1")
    why = f"a {side} row's partners would be found by several workers, none of which knows whether it is the first"
    keeps = f"which keeps a {side} row's partners with one worker: layout {layout}"
    if len(HOWS[kind].whole) == 2:
        why = "a row is held by one worker and compared by all, none of which knows whether it has found a partner"
        keeps = "where all workers that compare a row hold it, and say whether it is alone"
    return QueryError(
        f"strategy={strategy!r} with more than one worker can't serve a {kind} join",
        why=why,
        do=f"Use strategy='dpjoin' (or 'auto'), {keeps}",
    )
