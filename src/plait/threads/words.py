"""The words that engines of every kind share: what a worker tells of itself, how a run is halted, where a source's rows lie.

A worker's memory begins with the two lines below; what follows, if anything does, is its engine's own (of a join:
`threads.join.loop.words`). The control words are one array a run: all its workers look at them.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE

# --- a worker's first line: counters. It writes plainly, Python reads whenever it likes (a sum that is a little old). ----
TUPLES: Final = 0
COMPARISONS: Final = 1
RESULTS: Final = 2
NS_READ: Final = 3  # taking tuples from the gate or feed and laying them out: distribution
NS_STORE: Final = 4  # storing and probing: execution
NS_PROBE: Final = 5
NS_EMIT: Final = 6  # writing results: gathering
NS_WAIT: Final = 7  # with nothing to do
BATCHES: Final = 8
NS_BLOCKED: Final = 9  # waiting for another worker or for the consumer

# --- its second line: what it waits for now, for the watchdog; one of the values below -------------------------------
WAITS: Final = LINE
WORKER_WORDS: Final = 2 * LINE

NOTHING, FOR_TUPLES, FOR_CONSUMER, FOR_WRITER, FOR_SHARER, FOR_CHILD = range(6)

# --- control: what all workers of a run share -------------------------------------------------------------------
HALT: Final = 0  # RUNNING; released by whoever wants the workers to stand still or to stop; acquired in every loop
EPOCHS: Final = (
    1  # address of an elastic run's epochs, whose threads park there; 0: none. Plain, written before they start
)
EVENTS: Final = 2  # how many events the engine's workers and readers sleep on besides the gate's; plain, as EPOCHS
CONTROL_WORDS: Final = LINE  # then a line an event, its sleepers beside it

RUNNING, STILL, STOPPING = range(3)

# --- a source's row of the arenas: addresses of its columns --------------------------------------------------------
SLOT_BITS: Final = 12  # of a source's position in its origin: its slot in the gate; the rest orders the sources
SLOT_MASK: Final = 2**SLOT_BITS - 1
A_KEY, A_X, A_Y, A_USABLE, A_COLUMNS = range(5)
A_WORDS: Final = 32
