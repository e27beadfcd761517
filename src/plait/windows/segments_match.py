"""Judging pairs: the compiled kernel where machine words suffice, Python's integers where they don't.

`Matcher` knows how each leaf is stored on either side and what its values can be. When rows bring a value that does
not fit, or the first NULL, the stored columns are widened and the kernel is chosen again; nothing is ever computed in a
word that the minima and maxima do not prove wide enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from plait.errors import PlaitError, RunError
from plait.predicates import bounds, opaque, source, store
from plait.predicates.bounds import Interval
from plait.predicates.columns import Interner
from plait.predicates.evaluate import Array, evaluate, truth
from plait.predicates.leaves import Shape
from plait.predicates.words import Signature, choose, storage, widened
from plait.query.expression import Expr
from plait.windows.segments import Segment
from plait.windows.segments_rows import Rows, leaf_interval, stored

Pairs = tuple[np.ndarray, np.ndarray]
_BLOCK = 1 << 16  # pairs judged at once without a kernel


class Matcher:
    """The condition over stored leaves. `plain` runs the kernels' text in Python (tests)."""

    def __init__(self, shape: Shape, interner: Interner, *, cache_dir: str | os.PathLike[str] | None = None,
                 plain: bool = False) -> None:  # fmt: skip
        self.shape, self.interner, self.cache_dir, self.plain = shape, interner, cache_dir, plain
        self.words = [[storage(leaf) for leaf in shape.leaves[side]] for side in (0, 1)]
        self.intervals: list[list[Interval | None]] = [[None] * len(w) for w in self.words]
        self.nullable = [[False] * len(w) for w in self.words]
        self.alive = [False, False]
        self._modules: dict[Signature, ModuleType] = {}
        self._chosen: Signature | None = None
        self._stale = True
        self._probe = np.empty(1 << 15, np.int64)
        self._row = np.empty(1 << 15, np.int64)

    # --- how leaves are stored ---

    def admit(self, side: int, rows: Rows, segment: Segment) -> None:
        """Widen what is stored so that these rows fit in."""
        for k, array in enumerate(rows.leaves):
            interval = leaf_interval(array)
            if interval is not None:
                joint = bounds.union(self.intervals[side][k], bounds.rounded(interval)) or interval
                if joint != self.intervals[side][k]:
                    self.intervals[side][k], self._stale = joint, True
                    word = widened(self.words[side][k], joint)
                    if word != self.words[side][k]:
                        self.words[side][k] = word
                        segment.retype(f"leaf{k}", np.dtype(object if word == "object" else word))
            if array.valid is not None and self._needs_mask(side, k) and not self.nullable[side][k]:
                self.nullable[side][k], self._stale = True, True
        if rows.alive is not None and not self.alive[side]:
            self.alive[side], self._stale = True, True

    def review(self, side: int, segment: Segment) -> None:
        """Forget what only expired rows asked for; called when a segment has moved its live rows."""
        live = slice(segment.start, segment.end)
        for k, leaf in enumerate(self.shape.leaves[side]):
            if self.intervals[side][k] is None or f"leaf{k}" not in segment.columns:
                continue
            interval = bounds.rounded(bounds.of_array(segment.columns[f"leaf{k}"][live]))
            word = widened(storage(leaf), interval)
            self.intervals[side][k] = interval if segment.live else None
            if word != self.words[side][k]:
                self.words[side][k] = word
                segment.retype(f"leaf{k}", np.dtype(object if word == "object" else word))
        self._stale = True

    def _needs_mask(self, side: int, k: int) -> bool:
        leaf = self.shape.leaves[side][k]
        return not leaf.needed and leaf.kind != "bool"

    def columns(self, side: int, rows: Rows) -> dict[str, np.ndarray]:
        """Rows as the columns of a segment."""
        out: dict[str, np.ndarray] = {"usable": rows.usable}
        for k, array in enumerate(rows.leaves):
            out[f"leaf{k}"] = stored(array, self.words[side][k])
            if self.nullable[side][k]:
                out[f"mask{k}"] = _bytes(array.valid, len(rows))
        if self.alive[side]:
            out["alive"] = _bytes(rows.alive, len(rows))
        return out

    # --- kernels ---

    def _kernel(self) -> tuple[Signature, ModuleType] | None:
        """The module for the present words, or None where only Python's integers are wide enough."""
        if self._stale:
            signature = Signature(
                (tuple(self.words[0]), tuple(self.words[1])),
                (tuple(self.nullable[0]), tuple(self.nullable[1])),
                (self.alive[0], self.alive[1]),
            )
            intervals = (tuple(self.intervals[0]), tuple(self.intervals[1]))
            self._chosen, self._stale = choose(self.shape, signature, intervals), False
        if self._chosen is None:
            return None
        module = self._modules.get(self._chosen)
        if module is None:
            module = self._modules[self._chosen] = self._load(self._chosen)
        return self._chosen, module

    def _load(self, signature: Signature) -> ModuleType:
        if self.plain:
            return store.load_plain(source.module_text(self.shape, signature, plain=True))
        return store.load(kernel_text(self.shape, signature), self.cache_dir)

    def arrays(
        self, side: int, columns: dict[str, np.ndarray], signature: Signature, *, alive: bool = False
    ) -> list[np.ndarray]:
        """One side's arguments of a kernel."""
        out = []
        for k in range(len(self.shape.leaves[side])):
            out.append(columns[f"leaf{k}"])
            if signature.nullable[side][k]:
                out.append(columns[f"mask{k}"])
        if alive and signature.alive[side]:
            out.append(columns["alive"])
        return out

    def scan(self, side: int, probes: dict[str, np.ndarray], lo: np.ndarray, hi: np.ndarray, segment: Segment) -> Pairs:
        """All pairs of probes with their ranges, by probe, rows ascending within one (probes may interleave)."""
        kernel = self._kernel()
        if kernel is None:
            return self._without_kernel(side, probes, segment, *_all_pairs(lo, hi, segment))
        signature, module = kernel
        call = module.scan_0 if side == 0 else module.scan_1
        window = self._window_columns(1 - side, segment, signature)
        arrays = self.arrays(side, probes, signature) + self.arrays(1 - side, window, signature, alive=True)
        state = np.array([-1, 0, 0, 0], np.int64)
        while self._run(call, len(lo), lo, hi, *arrays, state, self._probe, self._row):
            self._grow(int(state[3]))
        count = int(state[3])
        found = self._probe[:count].copy(), self._row[:count].copy()
        if len(self._probe) > 1 << 20:
            self._probe, self._row = np.empty(1 << 15, np.int64), np.empty(1 << 15, np.int64)  # one burst is no habit
        return found

    def verify(
        self, side: int, probes: dict[str, np.ndarray], segment: Segment, probe: np.ndarray, row: np.ndarray
    ) -> Pairs:
        """The candidates that match, in their order."""
        kernel = self._kernel()
        if kernel is None:
            return self._without_kernel(side, probes, segment, probe, row)
        signature, module = kernel
        window = self._window_columns(1 - side, segment, signature)
        sides = (probes, window) if side == 0 else (window, probes)
        arrays = self.arrays(0, sides[0], signature) + self.arrays(1, sides[1], signature)
        left, right = (probe, row) if side == 0 else (row, probe)
        kept = self._run(module.verify, len(probe), left, right, probe, *arrays)
        return probe[:kept].copy(), row[:kept].copy()

    def _window_columns(self, side: int, segment: Segment, signature: Signature) -> dict[str, np.ndarray]:
        """The segment's columns; a mask the probes asked for first is made on the way."""
        for k, nullable in enumerate(signature.nullable[side]):
            if nullable and f"mask{k}" not in segment.columns:
                segment.add_column(f"mask{k}", np.dtype(np.uint8))
        if signature.alive[side] and "alive" not in segment.columns:
            segment.add_column("alive", np.dtype(np.uint8))
        return segment.columns

    def _grow(self, used: int) -> None:
        for name in ("_probe", "_row"):
            old = getattr(self, name)
            new = np.empty(2 * len(old), np.int64)
            new[:used] = old[:used]
            setattr(self, name, new)

    def _run(self, call: Callable[..., int], *args: Any) -> int:
        if self.plain:
            # Machine code divides by zero in silence; NumPy's scalars must too.
            with np.errstate(all="ignore"):
                return self._raising(call, *args)
        return self._raising(call, *args)

    def _raising(self, call: Callable[..., int], *args: Any) -> int:
        if not self.shape.opaque:
            return call(*args)
        try:
            return call(*args)
        except PlaitError:
            raise
        except Exception as error:
            function = opaque.function_of(self.shape)
            code = function.__code__
            raise RunError(
                f"The condition {function.__name__!r} ({code.co_filename}, line {code.co_firstlineno}) raised "
                f"{type(error).__name__}: {error}",
                why="a pair whose condition fails has no answer, so the run stops",
                do="Make the function return False, or True, for such a pair",
            ) from error

    def _without_kernel(
        self, side: int, probes: dict[str, np.ndarray], segment: Segment, probe: np.ndarray, row: np.ndarray
    ) -> Pairs:
        kept = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for at in range(0, len(probe), _BLOCK):
            p, r = probe[at : at + _BLOCK], row[at : at + _BLOCK]
            if "alive" in segment.columns:
                living = segment.columns["alive"][r] != 0
                p, r = p[living], r[living]
            hit = self._judge(side, probes, p, segment.columns, r)
            kept[0].append(p[hit])
            kept[1].append(r[hit])
        return np.concatenate(kept[0]), np.concatenate(kept[1])

    def _judge(
        self, side: int, probes: dict[str, np.ndarray], p: np.ndarray, window: dict[str, np.ndarray], r: np.ndarray
    ) -> np.ndarray:
        sides = ((probes, p), (window, r)) if side == 0 else ((window, r), (probes, p))
        known: dict[Expr, Array] = {}
        for s, (columns, at) in enumerate(sides):
            for k, leaf in enumerate(self.shape.leaves[s]):
                data = columns[f"leaf{k}"][at]
                mask = columns[f"mask{k}"][at] != 0 if f"mask{k}" in columns else None
                if self.words[s][k] == "tri":
                    data, mask = data == 1, data != 2
                known[leaf.expr] = Array(leaf.kind, data, mask)
        hit = np.ones(len(p), bool)
        for part in self.shape.terms.pair:
            hit = hit & truth(evaluate(part, known.get, self.interner.code))
        return hit


def kernel_text(shape: Shape, signature: Signature) -> store.KernelText:
    """A condition's module as text and name: all that a worker on another machine needs."""
    text = source.module_text(shape, signature)
    identity = None
    if shape.opaque:
        # marshal spells equal functions differently, so the text can't name itself.
        stripped = source.module_text(shape, signature, plain=True).splitlines()
        identity = "\n".join(line for line in stripped if "_function(" not in line)
        identity += opaque.digest_all(shape)
    return store.kernel_text(text, identity=identity)


def _bytes(mask: np.ndarray | None, n: int) -> np.ndarray:
    return np.ones(n, np.uint8) if mask is None else mask.astype(np.uint8)


def _all_pairs(lo: np.ndarray, hi: np.ndarray, segment: Segment) -> Pairs:
    sizes = np.maximum(hi - lo, 0)
    probe = np.repeat(np.arange(len(lo)), sizes)
    starts = np.cumsum(sizes) - sizes
    return probe, np.arange(len(probe)) - np.repeat(starts - lo, sizes)
