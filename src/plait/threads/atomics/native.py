"""What compiled loops need besides atomic steps, and the twin has no word for: addresses, calls through them, the clock.

The scheduler explores code that uses these in a memory of its own, in which addresses are places (`tests/explore/addresses.py`).

An address is an int64 word in somebody's memory. It is good as long as Python keeps the array: each owner says where
(`join.memory`, `input.arenas`). Arrays made from addresses know no bounds; an index past the end reads what lies
there.
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
    """As `ints`, of float64."""
    return carray(pointer_at(address), n, dtype=np.float64)


@inner
def short_ints(address, n):
    """As `ints`, of 4 bytes each."""
    return carray(pointer_at(address), n, dtype=np.int32)


@inner
def halves(address, n):
    """As `short_ints`, without a sign."""
    return carray(pointer_at(address), n, dtype=np.uint32)


@inner
def quarters(address, n):
    """As `halves`, of 2 bytes each."""
    return carray(pointer_at(address), n, dtype=np.uint16)


@inner
def octets(address, n):
    """As `ints`, of bytes: flags, one a row."""
    return carray(pointer_at(address), n, dtype=np.uint8)


__all__ = [
    "address_of",
    "call_at",
    "clock_ns",
    "compiled",
    "floats",
    "halves",
    "inner",
    "ints",
    "made_ready",
    "nap",
    "octets",
    "pointer_at",
    "quarters",
    "short_ints",
]
