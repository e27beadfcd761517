"""A condition's kernels behind C addresses: what a compiled loop that knows nothing of the condition can call.

A worker's loop is compiled once for all queries. What depends on the condition are its scans and its check of
candidates; they are called once for a batch of tuples, through an address, as `int64 kernel(int64 block)`. The block
is an array of int64 words:

    N  LO  HI  STATE  OUT_PROBE  OUT_ROW  ROOM  LENGTHS(2)  columns ...

N is a count, ROOM the length of both output arrays, LENGTHS those of the probes' and the window's columns; the others
are addresses of int64 arrays. For `verify`, LO, HI and STATE are the candidates' left rows, right rows, and what
travels along with them. Columns stand in the order of `columns`: left leaves with their masks, right leaves with
theirs, then the window's `alive`, if it has one. A kernel answers what `source` says, or FAILED if an opaque function
raised.

The text is `source.module_text` with one function a kernel behind it; Numba's cache keeps each of them.
"""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any, Final

from plait.core.condition import opaque, source, store
from plait.core.condition.leaves import Shape
from plait.core.condition.words import Signature

N, LO, HI, STATE, OUT_PROBE, OUT_ROW, ROOM, LENGTH_L, LENGTH_R, COLUMNS = range(10)
FAILED: Final = -1000

_WORDS = {
    "tri": "uint8",
    "code": "int64",
    "object": "int64",
    "int32": "int32",
    "int64": "int64",
    "uint64": "uint64",
    "float32": "float32",
    "float64": "float64",
}

_HEAD = """

from llvmlite import ir as _ir
from numba import carray, types as _types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic


@_intrinsic
def pointer_at(typing_context, address):
    def emit(context, builder, signature, args):
        return builder.inttoptr(args[0], _cgutils.voidptr_t)

    return _types.voidptr(_types.int64), emit

"""


def columns(signature: Signature, side: int) -> list[tuple[str, str]]:
    """One side's columns, as (name, NumPy type), in the order of the block; `alive` comes last of all.

    An `object` leaf is listed as int64, for what stands in the place of the integer (`judge.Judge.wide`): no kernel reads
    it, since Python judges where there is one.
    """
    found = []
    for k, (word, nullable) in enumerate(zip(signature.words[side], signature.nullable[side], strict=True)):
        found.append((f"leaf{k}", _WORDS[word]))
        if nullable:
            found.append((f"mask{k}", "uint8"))
    return found


def native_text(shape: Shape, signature: Signature) -> store.KernelText:
    """The module of `source`, and three functions behind it that can be called through a C address."""
    tail = _HEAD + "\n\n".join(_wrapper(shape, signature, k) for k in range(3))
    identity = source.module_text(shape, signature, named=True) + tail if shape.opaque else None
    return store.kernel_text(source.module_text(shape, signature) + tail, identity=identity)


def _wrapper(shape: Shape, signature: Signature, which: int) -> str:
    """`scan_0_at`, `scan_1_at` and `verify_at`: from the block to the kernel's arguments.

    `which` is 0 or 1 for the scan by probes of that side, 2 for `verify`. The text reads addresses and lengths from the
    block and makes arrays of them without copying: who calls keeps the memory alive.
    """
    arrays, at = [], COLUMNS
    sides: list[list[str]] = [[], []]
    for side in (0, 1):
        length = f"b[{LENGTH_L + side}]"
        for _, kind in columns(signature, side):
            sides[side].append(f"carray(pointer_at(b[{at}]), {length}, dtype=np.{kind})")
            at += 1
    alive = []
    if which < 2 and signature.alive[1 - which]:
        alive = [f"carray(pointer_at(b[{at}]), b[{LENGTH_L + 1 - which}], dtype=np.uint8)"]

    def ints(word: int, length: str) -> str:
        return f"carray(pointer_at(b[{word}]), {length}, dtype=np.int64)"

    n = f"b[{N}]"
    if which == 2:
        arrays = [n, ints(LO, n), ints(HI, n), ints(STATE, n), *sides[0], *sides[1]]
        name, function = "verify_at", "verify"
    else:
        own, other = sides[which], sides[1 - which]
        room = f"b[{ROOM}]"
        arrays = [n, ints(LO, n), ints(HI, n), *own, *other, *alive, ints(STATE, "4"), ints(OUT_PROBE, room),
                  ints(OUT_ROW, room)]  # fmt: skip
        name, function = f"scan_{which}_at", f"scan_{which}"
    body = f"return {function}(\n        " + ",\n        ".join(arrays) + ",\n    )"
    if shape.opaque and not opaque.cannot_fail(shape):
        inner = body.replace("\n", "\n    ")
        body = f"try:\n        {inner}\n    except Exception:\n        return {FAILED}"
    return f"def {name}(address):\n    b = carray(pointer_at(address), {COLUMNS + 64}, dtype=np.int64)\n    {body}\n"


class Native:
    """A condition's kernels for one signature, compiled when first asked for; keep it as long as its addresses.

    `scans[side]` and `verify` have an `.address`. Machine code is kept on disk, so another process loads it. An address
    is valid as long as this object is.
    """

    error: BaseException | None = None  # machine code answers FAILED, and keeps nothing of what was raised

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    @functools.cached_property
    def scans(self) -> tuple[Any, Any]:
        return self._compiled("scan_0_at"), self._compiled("scan_1_at")

    @functools.cached_property
    def verify(self) -> Any:
        return self._compiled("verify_at")

    def _compiled(self, name: str) -> Any:
        from plait.core.machine.kept import kept_callback

        options: dict[str, Any] = {"nopython": True, "boundscheck": False, "error_model": "numpy"}
        return kept_callback(getattr(self.module, name), "int64(int64)", **options)


_loaded: dict[ModuleType, Native] = {}


def load(shape: Shape, signature: Signature, cache_dir: str | os.PathLike[str] | None = None) -> Native:
    """One `Native` a module and process: two queries with the same condition and signature share it."""
    module = store.load(native_text(shape, signature), cache_dir)
    return _loaded.setdefault(module, Native(module))
