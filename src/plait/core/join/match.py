"""Judging pairs: the compiled kernel where it is proven to be exact, Python where it is not.

`Matcher` knows how each leaf is stored on either side and what its values can be. When rows bring a value that does
not fit, or the first NULL, the stored columns are widened and the kernel is chosen again; nothing is ever computed in a
word that the minima and maxima do not prove wide enough. Which pairs Python judges: see `core.condition.judge`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from plait.core.condition import bounds, judge, source, store
from plait.core.condition.bounds import Interval
from plait.core.condition.columns import Interner
from plait.core.condition.leaves import Shape
from plait.core.condition.words import Signature, choose, storage, widened
from plait.core.join.encoded import EncodedRows, leaf_interval, stored
from plait.core.join.segment import Segment
from plait.errors import PlaitError

Pairs = tuple[np.ndarray, np.ndarray]


class Matcher:
    """The condition over stored leaves. `plain` runs the kernels' text in Python (tests).

    - `words[side][k]`: how leaf k is stored. `intervals[side][k]`: where its integers lie, rounded; None for none seen,
      or no integer.
    - `nullable[side][k]`: whether it has a mask. `alive[side]`: whether the side has dead rows.
    - `_stale`: something of these has changed since the kernel was chosen.
    - `_modules`: by signature, what was loaded. Words that come back find their kernel again.
    - `_probe`, `_row`: where a scan writes pairs; grown as needed, and given back after a burst.
    """

    def __init__(self, shape: Shape, interner: Interner, *, cache_dir: str | os.PathLike[str] | None = None,
                 plain: bool = False) -> None:  # fmt: skip
        self.shape, self.interner, self.cache_dir, self.plain = shape, interner, cache_dir, plain
        self.words = [[storage(leaf) for leaf in shape.leaves[side]] for side in (0, 1)]
        self.intervals: list[list[Interval | None]] = [[None] * len(w) for w in self.words]
        self.nullable = [[False] * len(w) for w in self.words]
        self.alive = [False, False]
        self._modules: dict[Signature, ModuleType] = {}
        self._chosen: Signature | None = None
        self._uncompiled = ""  # why what should compile did not
        self._judge = judge.Judge(shape, interner)
        self._stale = True
        self._probe = np.empty(1 << 15, np.int64)
        self._row = np.empty(1 << 15, np.int64)

    # --- how leaves are stored ---

    def admit(self, side: int, rows: EncodedRows, segment: Segment) -> None:
        """Widen what is stored so that these rows fit in.

        Called for all rows of a run, also those that only probe: they are held against the window in the same words.
        Costs a minimum and a maximum a leaf; a kernel is chosen again only if a rounded interval has grown, or the first
        NULL or dead row has come.
        """
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

    def fits(self, side: int, rows: EncodedRows) -> bool:
        """Whether these rows fit into what is stored as it is: `admit` would change nothing. Any thread may ask."""
        for k, array in enumerate(rows.leaves):
            interval, known = leaf_interval(array), self.intervals[side][k]
            if interval is not None and (known is None or not bounds.fits(interval, known)):
                return False
            if array.valid is not None and self._needs_mask(side, k) and not self.nullable[side][k]:
                return False
        return rows.alive is None or self.alive[side]

    def review(self, side: int, segment: Segment) -> None:
        """Forget what only expired rows asked for; called when a segment has moved its live rows.

        A single huge value makes kernels wide, or Python judge. When it has left the window this narrows them again.
        Values are looked at only when the segment moves: seldom, so a row is looked at a constant number of times.
        """
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

    def columns(self, side: int, rows: EncodedRows) -> dict[str, np.ndarray]:
        """Rows as the columns of a segment.

        Called after `admit`, for the same rows: what is stored has the words that were found there.
        """
        out: dict[str, np.ndarray] = {"usable": rows.usable}
        for k, array in enumerate(rows.leaves):
            out[f"leaf{k}"] = stored(array, self.words[side][k])
            if self.nullable[side][k]:
                out[f"mask{k}"] = _bytes(array.valid, len(rows))
        if self.alive[side]:
            out["alive"] = _bytes(rows.alive, len(rows))
        return out

    # --- kernels ---

    def signature(self) -> Signature:
        """How pairs are judged, after what has been admitted so far.

        The text of kernels depends on the shape and on this, and on nothing else.
        """
        if self._stale or self._chosen is None:
            signature = Signature(
                (tuple(self.words[0]), tuple(self.words[1])),
                (tuple(self.nullable[0]), tuple(self.nullable[1])),
                (self.alive[0], self.alive[1]),
            )
            found = choose(self.shape, signature, (tuple(self.intervals[0]), tuple(self.intervals[1])))
            if self._uncompiled and not found.in_python:
                found = replace(found, in_python=True, why=self._uncompiled)
            self._chosen, self._stale = found, False
        return self._chosen

    def give_up(self, error: BaseException) -> None:
        """What was proven does not compile: Python judges from now on."""
        self._uncompiled = f"Numba does not compile the condition ({type(error).__name__})"
        self._stale = True

    def _kernel(self) -> tuple[Signature, ModuleType] | None:
        """The module for the present words, or None where Python judges."""
        signature = self.signature()
        if signature.in_python or (self.plain and self.shape.opaque):
            return None
        module = self._modules.get(signature)
        if module is None:
            module = self._modules[signature] = self._load(signature)
        return signature, module

    def _load(self, signature: Signature) -> ModuleType:
        if self.plain:
            return store.load_plain(source.module_text(self.shape, signature, plain=True))
        return store.load(kernel_text(self.shape, signature), self.cache_dir)

    def arrays(
        self, side: int, columns: dict[str, np.ndarray], signature: Signature, *, alive: bool = False
    ) -> list[np.ndarray]:
        """One side's arguments of a kernel.

        In the order in which `source` names them: each leaf, its mask if it has one, and `alive` at last if it is asked
        for.
        """
        out = []
        for k in range(len(self.shape.leaves[side])):
            out.append(columns[f"leaf{k}"])
            if signature.nullable[side][k]:
                out.append(columns[f"mask{k}"])
        if alive and signature.alive[side]:
            out.append(columns["alive"])
        return out

    def scan(self, side: int, probes: dict[str, np.ndarray], lo: np.ndarray, hi: np.ndarray, segment: Segment) -> Pairs:
        """All pairs of probes with their ranges, by probe, rows ascending within one (probes may interleave).

        `side` is the probes'. `lo` and `hi` are positions in `segment`, by probe. Two int64 arrays come back, the
        caller's own: probes and rows.
        """
        kernel = self._kernel()
        if kernel is None:
            return self._without_kernel(side, probes, segment, judge.blocks(lo, hi))
        signature, module = kernel
        call = module.scan_0 if side == 0 else module.scan_1
        window = self._window_columns(1 - side, segment, signature)
        arrays = self.arrays(side, probes, signature) + self.arrays(1 - side, window, signature, alive=True)
        state = np.array([-1, 0, 0, 0], np.int64)
        try:
            while self._run(call, len(lo), lo, hi, *arrays, state, self._probe, self._row):
                self._grow(int(state[3]))
        except _Uncompiled:
            return self._without_kernel(side, probes, segment, judge.blocks(lo, hi))
        count = int(state[3])
        found = self._probe[:count].copy(), self._row[:count].copy()
        if len(self._probe) > 1 << 20:
            self._probe, self._row = np.empty(1 << 15, np.int64), np.empty(1 << 15, np.int64)  # one burst is no habit
        return found

    def verify(
        self, side: int, probes: dict[str, np.ndarray], segment: Segment, probe: np.ndarray, row: np.ndarray
    ) -> Pairs:
        """The candidates that match, in their order.

        `probe` and `row` are candidates, and are written over. Two new arrays come back. Costs one judgement a candidate.
        """
        kernel = self._kernel()
        if kernel is None:
            return self._without_kernel(side, probes, segment, _cut(probe, row))
        signature, module = kernel
        window = self._window_columns(1 - side, segment, signature)
        sides = (probes, window) if side == 0 else (window, probes)
        arrays = self.arrays(0, sides[0], signature) + self.arrays(1, sides[1], signature)
        left, right = (probe, row) if side == 0 else (row, probe)
        try:
            kept = self._run(module.verify, len(probe), left, right, probe, *arrays)
        except _Uncompiled:
            return self._without_kernel(side, probes, segment, _cut(probe, row))
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
        """Call a kernel. An error of a user's function becomes plait's, with its name. An error of Numba's, before
        anything has run, leaves the condition to Python for the rest of the run.
        """
        if not self.shape.opaque:
            return call(*args)
        from numba.core.errors import NumbaError

        try:
            return call(*args)
        except PlaitError:
            raise
        except NumbaError as error:  # before anything has run
            self.give_up(error)
            raise _Uncompiled from error
        except Exception as error:
            raise judge.failed(self.shape, error) from error

    def _without_kernel(
        self, side: int, probes: dict[str, np.ndarray], segment: Segment, candidates: Iterable[Pairs]
    ) -> Pairs:
        """What `scan` and `verify` do where Python judges. The same pairs, by `judge`. Rows that are not alive are left
        out first: a function is never called on them.
        """
        kept = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for p, r in candidates:
            if "alive" in segment.columns:
                living = segment.columns["alive"][r] != 0
                p, r = p[living], r[living]
            sides = (probes, segment.columns) if side == 0 else (segment.columns, probes)
            hit = self._judge.hits(self.words, sides, (p, r) if side == 0 else (r, p))
            kept[0].append(p[hit])
            kept[1].append(r[hit])
        return np.concatenate(kept[0]), np.concatenate(kept[1])


class _Uncompiled(Exception):
    """Numba refused a kernel."""


def kernel_text(shape: Shape, signature: Signature) -> store.KernelText:
    """A condition's module as text and name: all that a worker on another machine needs. A tree's is written once a process."""
    if shape.spelled is None:
        identity = source.module_text(shape, signature, named=True) if shape.opaque else None
        return store.kernel_text(source.module_text(shape, signature), identity=identity)
    asked = (shape.spelled, signature)
    text = _texts.get(asked)
    if text is None:
        if len(_texts) > _MOST_TEXTS:
            _texts.clear()
        text = _texts[asked] = source.module_text(shape, signature)
    return store.kernel_text(text)


#: Texts of trees' modules by all that they are written from.
_texts: dict[Any, str] = {}
_MOST_TEXTS = 1024


def _bytes(mask: np.ndarray | None, n: int) -> np.ndarray:
    return np.ones(n, np.uint8) if mask is None else mask.astype(np.uint8)


def _cut(probe: np.ndarray, row: np.ndarray) -> Iterator[Pairs]:
    for at in range(0, len(probe), judge.BLOCK):
        yield probe[at : at + judge.BLOCK], row[at : at + judge.BLOCK]
