"""TuML: tuples merged into one list by a gate, then update threads (multiway-aggregation.txt, sections 4 and 5.4).

- *TuML-SC* (single consumer): one thread reads the ready tuples in total order, updates the windows and gives out results.
- *TuML-MC* (many): every update thread reads all ready tuples and keeps those of the groups that are its own, by a hash of the
  key; a winset is given out when all of them have passed its end. Each group's tuples are seen by one thread, in total order,
  so order-sensitive functions are served as well. Windows are each thread's own: nothing is shared but the gate.

What a tuple's functions read lies in its source's arena (`threads.input.push`); `lay_out` brings a batch's columns together, in
total order.
"""

from __future__ import annotations

from typing import Any

from plait.threads import words as shared
from plait.threads.atomics.native import compiled, ints, octets


@compiled
def lay_out(n: Any, origin: Any, seq: Any, arena: Any, mask: Any, kinds: Any, wide: Any, narrow: Any) -> None:
    """Copy columns out of the sources' arenas: of 8 bytes (kinds[c] 1) into rows of `wide`, of 1 byte into `narrow`.

    `n` tuples; `origin` and `seq` say where each one's columns lie: arena of the slot, place `seq & mask`. `arena` is
    the table of addresses, a row a slot. `wide` is int64[columns, most], `narrow` uint8; both are the caller's own
    memory. Column by column, so that the inner loop touches one array of each source.
    """
    w, b = 0, 0
    for c in range(len(kinds)):
        at = shared.A_COLUMNS + c
        if kinds[c] == 1:
            for k in range(n):
                wide[w, k] = ints(arena[origin[k] & shared.SLOT_MASK, at], mask + 1)[seq[k] & mask]
            w += 1
        else:
            for k in range(n):
                narrow[b, k] = octets(arena[origin[k] & shared.SLOT_MASK, at], mask + 1)[seq[k] & mask]
            b += 1
