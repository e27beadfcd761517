"""Numba's compiler, out of reach of interrupts.

The rule: *an interrupt strikes who waits for machine code, never who makes it.* Numba is written in Python, so Ctrl-C raises
between any two of its instructions, and what it was changing stays half changed: later compilations of the process fail
(«generator raised StopIteration»), or it dies inside LLVM, which 40 seconds of signals were enough to show. So each
compilation runs in a thread of its own, which signals never reach, and the caller waits for it. Who was interrupted finds
the function compiled when it asks again; a program that ends waits for the compiler, as for any thread.

What compiled code gives back to Python is Numba's to wrap, and for an array it calls a function of Python, `_numba_unpickle`,
without a look at whether that raised: an interrupt there came out as `SystemError` (a third of all strikes,
tests/core/operator/test_struck.py). A cache written in C stands before that function, which no interrupt strikes; where it
has nothing yet, `struck` finds the interrupt in the `SystemError`. Numba's lists do worse, and lose interrupts: they never
cross to Python in plait.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
from numba.core import serialize
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

serialize._numba_unpickle = lru_cache(maxsize=None)(serialize._numba_unpickle)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As `numba.njit`, with a compiler that no interrupt strikes."""

    def mark(function: Callable[..., Any]) -> Any:
        made = numba.njit(**options)(function)
        made.__class__ = _Dispatcher
        return made

    return mark


class _Dispatcher(CPUDispatcher):
    """The class of a function after `njit`: Numba's dispatcher, whose `compile` runs in a thread of its own."""

    #: The same function for kernels that call it, without what only Python needs to call one.
    within: Any = None
    #: Held while it is compiled: see `plait.core.machine.kept`.
    alone: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(args, kws) if self.within is None else self.within.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return super().get_overload(sig) if self.within is None else self.within.get_overload(sig)

    def compile(self, sig: Any) -> Any:
        """A type that was compiled before costs a look-up and no thread."""
        found: Any = self.overloads.get(sig) if isinstance(sig, tuple) else None
        return found.entry_point if found is not None else out_of_reach(self._made, sig)

    def _made(self, sig: Any) -> Any:
        # Numba's lock first: a thread that had the other one and waited for this would be waited for by who has this.
        with global_compiler_lock, self.alone():
            return super().compile(sig)


def out_of_reach(compile: Callable[..., Any], *arguments: Any) -> Any:
    """Call it in a thread of its own, and wait. The thread that compiles already calls it itself: it holds Numba's lock."""
    if global_compiler_lock.is_locked():  # type: ignore[no-untyped-call]  # by this thread
        return compile(*arguments)
    made: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            made.append(compile(*arguments))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="plait-compiler")
    try:
        thread.start()
    except RuntimeError:  # no threads any more: the interpreter is ending
        return compile(*arguments)
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def struck(error: BaseException) -> BaseException:
    """The interrupt that Numba has made a `SystemError` of; any other error as it is."""
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error
