"""Runs of a join with an index under the scheduler: chains of equal keys, boxes of a band, sorted chunks, in shared segments.

As `loop_scenarios`. What the condition brings is the product's, too: rows are encoded by `columns.Encoder`, lie in
`arenas.Arenas`, and are judged by the text of the compiled kernels. An index is laid out by `memory.Segment.build`. Tables have
few slots and chunks few rows, so that keys collide and places are used again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from tests.threads.join.loop_scenarios import GROWS, PROBE, SCAN, SEGMENT, VERIFY, Case, Patches, Tuple, through

import plait
from plait.core.condition import native, source, store
from plait.core.machine.line import LINE, address
from plait.query.bind import bind
from plait.threads.input.arenas import Arenas
from plait.threads.join import memory
from plait.threads.join.columns import Encoder
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.strategies.plan import Plan

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("n", pa.int64())])
#: Condition and definition of each index.
CONDITIONS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "hash": ("l.k = r.k", lambda left, right: left == right),
    "grid": ("abs(l.k - r.k) <= 1", lambda left, right: abs(left - right) <= 1),
    "sorted": ("l.k < r.k", lambda left, right: left < right),
    # Hash nodes, which make way for a grid at the first walk (`SWITCHES`).
    "auto": ("l.k = r.k and abs(l.k - r.k) <= 1", lambda left, right: left == right),
}
#: Any range is worth an index, and any chain is too long for hash nodes.
SWITCHES: Patches = {
    PROBE: [("total < SCAN_BELOW * probes", "total < probes"), ("steps > CHAIN_LONG * probes", "steps > 0")],
}
ARENA = 8  # rows of a source
CHUNK = 2  # rows of a sorted chunk


class IndexedCase(Case):
    """A plan, its tuples and their values, and an index that is forced upon probes of both sides.

    `built`: the index stands when the run begins; else the first worker that needs it has it built, while all others stand still.
    """

    def __init__(self, plan: Plan, index: str, tuples: tuple[Tuple, ...], values: tuple[int, ...], *, built: bool = True,
                 faults: Patches | None = None, **sizes: Any) -> None:  # fmt: skip
        self.index, self.built = index, built
        condition, self._holds = CONDITIONS[index]
        own = [[k for k, each in enumerate(tuples) if each.side == side] for side in (0, 1)]
        self.values = [[values[k] for k in own[side]] for side in (0, 1)]
        self.tables = [
            pa.table([[tuples[k].ts for k in own[side]], self.values[side], range(len(own[side]))], schema=SCHEMA)
            for side in (0, 1)
        ]
        self.query = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on=condition,
                                within=sizes.get("back_us", 4), how=sizes.get("how", "inner"))  # fmt: skip
        planted = {name: [*(SWITCHES if index == "auto" else {}).get(name, []), *(faults or {}).get(name, [])]
                   for name in {PROBE, *(faults or {})}}  # fmt: skip
        super().__init__(plan, tuples, faults=planted, **sizes)
        self.reference = self._referred()

    def _encoder(self) -> Encoder:
        predicate = bind(self.query, {"a": SCHEMA, "b": SCHEMA}).predicate
        assert predicate is not None
        self.encoder = encoder = Encoder(predicate, SCHEMA, SCHEMA, index=self.index, cache_dir=None, plain=True)
        self.encoded = [encoder.rows(side, each, each.column("ts").to_numpy()) for side, each in enumerate(self.tables)]
        for side in (0, 1):
            encoder.admit(side, self.encoded[side])
        encoder.widen()
        self.twin.kernels = dict(zip((*SCAN, VERIFY), self._kernels(encoder), strict=True))
        return encoder

    def _kernels(self, encoder: Encoder) -> tuple[Any, Any, Any]:
        """Both scans, and the check of candidates: the text that is compiled, over the twin's memory."""
        module = store.load_plain(source.module_text(encoder.shape, encoder.signature, plain=True))
        number = len(encoder.columns(0))

        def columns(space: Any, b: Any, side: int) -> list[Any]:
            return [space.at(b[native.COLUMNS + number * side + k]) for k in range(number)]

        def scan(side: int, space: Any, b: Any) -> int:
            lo, hi, state, probes, rows = (
                space.at(b[at]) for at in (native.LO, native.HI, native.STATE, native.OUT_PROBE, native.OUT_ROW)
            )
            both = (*columns(space, b, side), *columns(space, b, 1 - side))
            return int((module.scan_0, module.scan_1)[side](int(b[native.N]), lo, hi, *both, state, probes, rows))

        def check(space: Any, b: Any) -> int:
            pairs = (space.at(b[at]) for at in (native.LO, native.HI, native.STATE))
            return int(module.verify(int(b[native.N]), *pairs, *columns(space, b, 0), *columns(space, b, 1)))

        return functools.partial(scan, 0), functools.partial(scan, 1), check

    def _adopt(self) -> None:
        for segment in (*self.segments[0], *self.segments[1]):
            segment.build(seg.GRID if self.index == "auto" else memory.KINDS[self.index])
            if self.index == "sorted":
                self._chunk(segment)
            if not self.built or self.index == "auto":
                segment.block[seg.KIND] = seg.NONE
        super()._adopt()

    def _chunk(self, segment: memory.Segment) -> None:
        """Chunks of few rows, where the product has 1,024 at least; memory for all that the segment may grow to."""
        most = GROWS * self.rows
        segment.arrays |= {"sort_keys": np.zeros(most), "sort_order": np.zeros(most, np.int64)}
        segment.arrays["sort_sizes"] = np.full(most // CHUNK, -1, np.int64)
        block, arrays = segment.block, segment.arrays
        block[seg.SORT_KEYS], block[seg.SORT_ORDER] = address(arrays["sort_keys"]), address(arrays["sort_order"])
        block[seg.SORT_SIZES], block[seg.CHUNK] = address(arrays["sort_sizes"]), CHUNK

    def _lend_arena(self) -> None:
        """What was pushed: as `input.push` writes it."""
        self._arenas = Arenas(2, ARENA, len(self.encoder.columns(0)))
        for side, rows in enumerate(self.encoded):
            self._arenas.furnish(side, side, self.encoder)
            n, arena = len(rows), self._arenas.by_slot[side]
            if rows.key is not None:
                arena.fixed[0][:n] = rows.key
            if rows.coord is not None:
                for d in range(2):
                    arena.fixed[1 + d].view(np.float64)[:n] = rows.coord[:, d]
            arena.usable[:n] = rows.usable
            for column, values in zip(arena.columns.values(), self.encoder.encoded(side, rows), strict=True):
                column[:n] = values
            for array in (*arena.fixed, arena.usable, *arena.columns.values()):
                self.space.lend(array)
        self.arena = self._arenas.table

    # --- what Python does while all stand still: as `memory.Segment` has it ------------------------------------------------

    def _build(self, segment: memory.Segment, kind: int) -> None:
        block = self.view(segment.block)
        first = min(block[seg.FIRST + k * LINE] for k in range(block[seg.SHARERS]))
        block[seg.KIND], block[seg.BUILT], block[seg.COVERED] = kind, block[seg.END], first
        if kind == seg.SORTED:
            block[seg.COVERED] = first // CHUNK * CHUNK
        table = segment.arrays["sort_sizes" if kind == seg.SORTED else "head"]
        for at in range(len(table)):
            self.view(table)[at] = -1
        through(self.twin(SEGMENT)["cover"](block, block[seg.END]))

    def _widen(self, segment: memory.Segment, more: int) -> None:
        block = self.view(segment.block)
        old = block[seg.CAP]
        first = min(block[seg.FIRST + k * LINE] for k in range(block[seg.SHARERS]))
        rows = range(first, block[seg.END])
        node, usable = self.view(segment.arrays["node"]), self.view(segment.arrays["usable"])
        columns = [self.view(column) for column in segment.columns.values()]
        kept = [
            (
                [node[row & (old - 1), f] for f in range(4)],
                usable[row & (old - 1)],
                [c[row & (old - 1)] for c in columns],
            )
            for row in rows
        ]
        super()._widen(segment, more)
        for row, (fields, flag, values) in zip(rows, kept, strict=True):
            place = row & (2 * old - 1)
            for f in range(4):
                node[place, f] = fields[f]
            usable[place] = flag
            for column, value in zip(columns, values, strict=True):
                column[place] = column[place + 2 * old] = value
        if block[seg.KIND]:
            self._build(segment, block[seg.KIND])

    # --- what a run must give ----------------------------------------------------------------------------------------------

    def matches(self, left: int, right: int) -> bool:
        return self._holds(self.values[0][left], self.values[1][right])

    def _referred(self) -> bytes:
        """The reference's rows, by their numbers, in its order."""
        found = self.query.reference(dict(zip("ab", self.tables, strict=True)))
        return _numbers(zip(found.column("a_n").to_pylist(), found.column("b_n").to_pylist(), strict=True))

    def finish(self, reading: bool) -> None:
        super().finish(reading)
        served = {self.view(worker.words)[o.SERVED + side] for worker in self.workers for side in (0, 1)}
        assert served - {o.SCAN}, "no probe has used the index"
        pairs = [(entry[o.E_LEFT], entry[o.E_RIGHT]) for entry in self.taken]
        assert _numbers(pairs) == self.reference, f"{pairs} are not the reference's"


def _numbers(pairs: Iterable[tuple[int | None, int | None]]) -> bytes:
    """Pairs of rows as bytes. Whoever is alone has a pair with no row."""
    return np.array([[o.NO_ROW if n is None else n for n in pair] for pair in pairs], np.int64).tobytes()
