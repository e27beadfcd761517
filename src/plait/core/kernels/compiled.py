"""How kernels are compiled: without the GIL, without bounds checks, divisions as the machine does them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from plait.core.machine.kept import keep
from plait.core.machine.shield import njit

F = TypeVar("F", bound=Callable[..., Any])


def entry(function: F) -> F:
    """A kernel that Python calls: kept in Numba's cache, beside this package or in the user's cache folder."""
    return cast(F, keep(njit(nogil=True, boundscheck=False, error_model="numpy")(function)))


def inlined(function: F) -> F:
    """A part of other kernels, compiled into them."""
    return cast(F, njit(nogil=True, boundscheck=False, error_model="numpy")(function))
