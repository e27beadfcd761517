"""A gate's calls for code that carries a run on whichever gate it is given: the header tells which one it is.

A branch a batch is all that this costs. Both gates promise the same (`threads.gate`), so the tuples are the same, in the same
order; who does the work is not: with the skip list sources sort as they insert, with the ring every reader merges for itself.

Not a function value handed to the loop: the loop would lose its cache (`flow`).
"""

from __future__ import annotations

from plait.threads.atomics import compiled
from plait.threads.gate.ring import add as add_to_ring
from plait.threads.gate.ring import read as read_ring
from plait.threads.gate.skiplist import add as add_to_list
from plait.threads.gate.skiplist import read as read_list
from plait.threads.gate.words import LEVELS


@compiled
def add(g, slot, ts, seq, ref, low, high, progress):
    if g[LEVELS] > 0:
        return add_to_list(g, slot, ts, seq, ref, low, high, progress)
    return add_to_ring(g, slot, ts, seq, ref, low, high, progress)


@compiled
def read(g, reader, most, ts, origin, seq, ref):
    if g[LEVELS] > 0:
        return read_list(g, reader, most, ts, origin, seq, ref)
    return read_ring(g, reader, most, ts, origin, seq, ref)
