"""The kernels of `core.condition.native` in Python, behind the same C addresses. The GIL is taken for each call.

`ExactKernels` judge pairs where no kernel is proven to be exact (`core.condition.judge`). `PlainKernels` run the text of
the compiled kernels as it stands, without Numba: tests try hundreds of conditions that way.

A kernel gets one address: that of the block which `probe.fill_block` has written, int64 words named in
`core.condition.native`. Columns are views of the window's and the batch's own memory; nothing is copied, and nothing
may be kept after the call. An exception can't pass through compiled code: it is kept in `error`, the kernel answers
FAILED, and `engine.Windows` raises it in the worker's thread.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.core.condition import judge as judging
from plait.core.condition import native, source, store

if TYPE_CHECKING:
    from plait.threads.join.columns import Encoder

_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class _Called:
    """A Python function behind a C address.

    `_kept` must live as long as the address is used: ctypes frees the stub with it.
    """

    def __init__(self, function: Any) -> None:
        self._kept = _KERNEL(function)
        self.address = ctypes.cast(self._kept, ctypes.c_void_p).value


class _Kernels:
    """What both share: addresses, views of the block, and an error that a C caller can't be given."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.columns = encoder, [encoder.columns(0), encoder.columns(1)]
        self.signature = encoder.signature
        self.error: BaseException | None = None
        self.scans = (
            _Called(lambda at: self._safely(self.scan, 0, at)),
            _Called(lambda at: self._safely(self.scan, 1, at)),
        )
        self.verify = _Called(lambda at: self._safely(self.check, at))

    def _safely(self, function: Any, *arguments: int) -> int:
        try:
            return int(function(*arguments))
        except BaseException as error:  # all of them: what leaves a C callback is printed, and counts as «no pairs»
            self.error = error
            return native.FAILED

    def scan(self, side: int, address: int) -> int:
        """Of `N` probes every match among the rows LO to HI of each, into OUT_PROBE and OUT_ROW; STATE[3] says how
        many.

        0, 1 if ROOM was too small, or FAILED. `side` is the probes' side.
        """
        raise NotImplementedError

    def check(self, address: int) -> int:
        """Of `N` candidate pairs keep those that match, in their order, in place; how many are left, or FAILED."""
        raise NotImplementedError

    def block(self, address: int) -> np.ndarray:
        """The block as an array: the fixed words, and as many column addresses as there may be."""
        return _view(address, native.COLUMNS + 64, "int64")

    def arrays(self, b: np.ndarray, alive: int | None) -> tuple[list[dict[str, np.ndarray]], np.ndarray | None]:
        """Both sides' columns, and `alive` of the side asked for, if it has one."""
        at, found = native.COLUMNS, []
        for side in (0, 1):
            length, own = int(b[native.LENGTH_L + side]), {}
            for name, kind in self.columns[side]:
                if name != "alive":
                    own[name] = _view(b[at], length, kind)
                    at += 1
            found.append(own)
        if alive is None or not self.signature.alive[alive]:
            return found, None
        return found, _view(b[at], int(b[native.LENGTH_L + alive]), "uint8")


class ExactKernels(_Kernels):
    """Pairs judged by Python's own arithmetic, a block of pairs at a time: slow, and exact for values of any size."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self._judge = judging.Judge(encoder.shape, encoder.interner, encoder.exact.of)

    def scan(self, side: int, address: int) -> int:
        b = self.block(address)
        n, room, count = int(b[native.N]), int(b[native.ROOM]), 0
        lo, hi = _view(b[native.LO], n, "int64"), _view(b[native.HI], n, "int64")
        out = [_view(b[at], room, "int64") for at in (native.OUT_PROBE, native.OUT_ROW)]
        columns, living = self.arrays(b, 1 - side)
        for probe, row in judging.blocks(lo, hi):
            if living is not None:
                alive = living[row] != 0
                probe, row = probe[alive], row[alive]
            hit = self._hits(columns, (probe, row) if side == 0 else (row, probe))
            probe, row = probe[hit], row[hit]
            if count + len(probe) > room:
                return 1  # to be called again, from the start, with more room
            for found, array in zip((probe, row), out, strict=True):
                array[count : count + len(found)] = found
            count += len(probe)
        _view(b[native.STATE], 4, "int64")[3] = count
        return 0

    def check(self, address: int) -> int:
        b = self.block(address)
        n, kept = int(b[native.N]), 0
        arrays = [_view(b[at], n, "int64") for at in (native.LO, native.HI, native.STATE)]
        columns, _ = self.arrays(b, None)
        for first in range(0, n, judging.BLOCK):
            part = slice(first, first + judging.BLOCK)
            hit = self._hits(columns, (arrays[0][part], arrays[1][part]))
            count = int(hit.sum())
            for array in arrays:
                array[kept : kept + count] = array[part][hit]
            kept += count
        return kept

    def _hits(self, columns: list[dict[str, np.ndarray]], rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return self._judge.hits(self.signature.words, (columns[0], columns[1]), rows)


class PlainKernels(_Kernels):
    """The compiled kernels' text, run by Python: there is nothing to compile, so tests can try many conditions."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self._module = store.load_plain(source.module_text(encoder.shape, encoder.signature, plain=True))

    def scan(self, side: int, address: int) -> int:
        b = self.block(address)
        n, room = int(b[native.N]), int(b[native.ROOM])
        columns, living = self.arrays(b, 1 - side)
        given = [*columns[side].values(), *columns[1 - side].values(), *([] if living is None else [living])]
        call = self._module.scan_0 if side == 0 else self._module.scan_1
        with np.errstate(all="ignore"):
            return int(
                call(n, _view(b[native.LO], n, "int64"), _view(b[native.HI], n, "int64"), *given,
                     _view(b[native.STATE], 4, "int64"),
                     _view(b[native.OUT_PROBE], room, "int64"), _view(b[native.OUT_ROW], room, "int64"))
            )  # fmt: skip

    def check(self, address: int) -> int:
        b = self.block(address)
        n = int(b[native.N])
        columns, _ = self.arrays(b, None)
        with np.errstate(all="ignore"):
            return int(
                self._module.verify(n, *(_view(b[at], n, "int64") for at in (native.LO, native.HI, native.STATE)),
                                    *columns[0].values(), *columns[1].values())
            )  # fmt: skip


def _view(address: int, length: int, kind: str) -> np.ndarray:
    """An array over memory that somebody else owns."""
    size = length * np.dtype(kind).itemsize
    memory: Any = (ctypes.c_char * size).from_address(int(address))
    found: np.ndarray = np.frombuffer(memory, dtype=kind)
    return found
