"""How shared-memory code is compiled: without the GIL, cached, and never from a stale cache.

Numba's cache looks at the file a function stands in, not at the files of the functions it calls: after an edit
elsewhere it would go on running old code. So the stamp of every function compiled here is a hash of all source
files of the packages that hold such code, the caller's own among them.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import typeof, uint64
from numba.core import event

from plait.kept import keep
from plait.shield import njit

#: In compiled code an index of this type lets LLVM vectorise a loop. Mixing it with int64 gives a float: cast both.
unsigned = uint64


@cache
def _stamp(folder: Path) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for place in sorted({Path(__file__).parent, folder}):
        for file in sorted(place.glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def compiled(function: Callable[..., Any]) -> Any:
    """Mark a function that takes atomic steps, or calls one that does: in the twin it becomes a generator."""
    return _cached(njit(nogil=True, error_model="numpy", boundscheck=False)(function), function)


def pure(function: Callable[..., Any]) -> Any:
    """Mark a function without atomic steps: in the twin it stays a plain function."""
    return _cached(njit(nogil=True, error_model="numpy", boundscheck=False)(function), function)


def compiled_over(*packages: str, inner: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """As `compiled`, for code that calls compiled functions of other packages of plait: their edits count too.

    `inner`: Python never calls it, so there is no need for what Numba adds for that, a third of its compile time.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True} if inner else {}

    def mark(function: Callable[..., Any]) -> Any:
        root = Path(__file__).parent.parent
        own = Path(function.__code__.co_filename).parent
        stamp = "".join(_stamp(folder) for folder in (own, *(root / package for package in packages)))
        return _cached(njit(nogil=True, error_model="numpy", boundscheck=False, **options)(function), function, stamp)

    return mark


class _Compiling(event.Listener):
    """Counts the threads that compile, or wait for another to let them."""

    def __init__(self) -> None:
        self._lock, self.threads = threading.Lock(), 0

    def on_start(self, event: Any) -> None:
        with self._lock:
            self.threads += 1

    def on_end(self, event: Any) -> None:
        with self._lock:
            self.threads -= 1


_COMPILING = _Compiling()
event.register("numba:compiler_lock", _COMPILING)


def compiling() -> bool:
    """Whether any thread is compiling: a first run on a busy machine takes its time, and nobody is stuck."""
    return _COMPILING.threads > 0


def made_ready(function: Any, *arguments: Any) -> None:
    """Have a function compiled for such arguments, or loaded from the cache, before the call that must not wait for it."""
    function.compile(tuple(typeof(argument) for argument in arguments))


def _cached(dispatcher: Any, function: Callable[..., Any], stamp: str | None = None) -> Any:
    return keep(dispatcher, stamp or _stamp(Path(function.__code__.co_filename).parent))
