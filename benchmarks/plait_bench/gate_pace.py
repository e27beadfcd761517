"""Sources that push at a rate, and readers that write down when they had a tuple: what latency through a gate is made of.

A tuple is due at a moment that was set before the run, whatever happens in it. So a source that falls behind does not hide
that: what its tuples waited for it counts too. Arrays of no length turn either off, for runs that go flat out.
"""

from __future__ import annotations

import numpy as np

from plait.threads.atomics import compiled
from plait.threads.atomics.sleep import clock_ns, nap

NEVER = np.empty(0, np.int64)
NOWHERE = np.empty((0, 0), np.int64)
NAP_US = 20


@compiled
def await_due(due_ns, last):
    """Until the last tuple of a batch is due."""
    if len(due_ns) == 0:
        return
    scratch = np.empty(2, np.int64)
    moment = due_ns[min(last, len(due_ns) - 1)]
    while clock_ns(scratch, 0) < moment:
        nap(NAP_US)


@compiled
def stamp(read_ns, origin, seq, number):
    """These tuples have been read now: `read_ns` has a row a source, a column a tuple."""
    if read_ns.shape[0] == 0 or number <= 0:
        return
    scratch = np.empty(2, np.int64)
    now = clock_ns(scratch, 0)
    for i in range(number):
        read_ns[origin[i], seq[i]] = now
