"""What compiled loops need besides atomic steps, and the twin has no word for: addresses, calls through them, the clock.

Code that uses these is not explored by the scheduler; what it shares with other threads it still shares through atomic steps.
"""

import numpy as np
from numba import carray

from plait.core.machine.marks import compiled, inner, made_ready
from plait.threads.atomics.intrinsics import address_of, call_at, pointer_at
from plait.threads.atomics.sleep import clock_ns, nap


@inner
def ints(address, n):
    """The array of n words at an address; Python keeps it alive."""
    return carray(pointer_at(address), n, dtype=np.int64)


@inner
def floats(address, n):
    return carray(pointer_at(address), n, dtype=np.float64)


@inner
def octets(address, n):
    return carray(pointer_at(address), n, dtype=np.uint8)


__all__ = [
    "address_of",
    "call_at",
    "clock_ns",
    "compiled",
    "floats",
    "inner",
    "ints",
    "made_ready",
    "nap",
    "octets",
    "pointer_at",
]
