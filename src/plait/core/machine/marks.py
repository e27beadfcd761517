"""How all of plait is compiled: without the GIL, cached, and never from a stale cache (`plait.core.machine.stamp`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import typeof, uint64
from numba.core import event

from plait.core.machine.kept import keep
from plait.core.machine.shield import njit

#: In compiled code an index of this type lets LLVM vectorise a loop. Mixing it with int64 gives a float: cast both.
unsigned = uint64

#: Divisions as the machine does them, no checks of bounds: kernels are given arrays that fit.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: Callable[..., Any]) -> Any:
    """Mark a function that takes atomic steps, or calls one that does: in the twin it becomes a generator.

    Of a hundred kernels that a run compiles, Python calls a few: what it needs for that is made when it does.
    """
    made = keep(njit(**_OPTIONS)(function))
    made.within = inner(function)
    return made


def pure(function: Callable[..., Any]) -> Any:
    """Mark a function without atomic steps: in the twin it stays a plain function."""
    return compiled(function)


def inner(function: Callable[..., Any]) -> Any:
    """As `compiled`, for what Python never calls: without what Numba adds for that, a third of its compile time."""
    return keep(njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def entry(function: F) -> F:
    """A kernel that Python calls, no part of the twin: it keeps its types for those who read and check the calls."""
    return cast(F, compiled(function))


def brief(function: F) -> F:
    """As `entry`, for what takes a few microseconds and waits for nothing: it keeps the GIL.

    To give it away and to have it back takes longer where other threads want it too: each of them is woken for it.
    """
    return cast(F, keep(njit(**{**_OPTIONS, "nogil": False})(function)))


def inlined(function: F) -> F:
    """A part of other kernels, compiled into them, and kept with them."""
    return cast(F, njit(**_OPTIONS)(function))


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
event.register("numba:compiler_lock", _COMPILING)  # type: ignore[no-untyped-call]  # Numba's own


def compiling() -> bool:
    """Whether any thread is compiling: a first run on a busy machine takes its time, and nobody is stuck."""
    return _COMPILING.threads > 0


def made_ready(function: Any, *arguments: Any) -> None:
    """Have a function compiled for such arguments, or loaded from the cache, before the call that must not wait for it."""
    function.compile(tuple(typeof(argument) for argument in arguments))  # type: ignore[no-untyped-call]  # Numba's own
