"""The gate: many sources in, one totally ordered stream out, the same to every reader. See `contract`.

contract      what is promised                messages   what is said when it refuses
layout        the memory, word by word        codes      what compiled calls answer
frontier      progress and who holds it       calls      entering and leaving a call, heartbeats, ends
elastic       announcing and removing         flow       limits, memory, sleeping
nodes, skiplist                               merge, ring
either        whichever of the two a run has
queues        the papers' multi-queues
sorter        disorder, in front of the gate  payload    Arrow batches, referenced by row
gates, push   the Python objects
epochs        shares of an operator's state, and the tuples that switch their map
"""

from plait.threads.gate.contract import Gate, Lag, Origin
from plait.threads.gate.gates import LockFreeQueueGate, QueueGate, Ready, RingGate, SkipListGate

#: Those that carry a run, by their name in `on_threads(gate=...)`; `auto` is the ring.
GATES = {"auto": RingGate, "ring": RingGate, "skiplist": SkipListGate}

__all__ = ["GATES", "Gate", "Lag", "LockFreeQueueGate", "Origin", "QueueGate", "Ready", "RingGate", "SkipListGate"]
