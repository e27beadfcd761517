"""A worker's memory: one int64 array of words, and two-dimensional int64 arrays for the batch it is at.

Words of the first part are written by Python before the loop starts, or while it stands still. Those of the second part
are the loop's own. Those of the third are shared, a line each: who writes and who reads is said there.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE

# --- set by Python ----------------------------------------------------------------------------------------------
SEAT: Final = 0  # which of the gate's readers it is
MOST: Final = 1  # tuples it takes at once, at most
PLACES: Final = 2  # the window's reach (`core.join.reach`): what it measures by; BACK, by side; and STEP
BACK: Final = 3  # as-of: of the left side, how old a partner may be in us, -1 without bound
HOW: Final = 5  # INNER, LEFT, SEMI or ANTI
ARENA_MASK: Final = 6
BLOCK: Final = 7  # address of the kernels' argument block
VERIFY: Final = 8  # address of a kernel, see predicates.native
SCANS: Final = 9  # two
FORCED: Final = 11  # AUTO, or the index that was asked for (SCAN: none)
WANTED: Final = 12  # the index that auto would choose for probes into either window
HAS_NODE: Final = 13
OUT_MASK: Final = 14
OUT: Final = 15  # address of the results' ring
# By side, 0 left and 1 right:
SEGMENT: Final = 16  # address of the window segment it uses
SHARER: Final = 18  # which of the segment's sharers it is
WRITER: Final = 20  # 1 if it is the segment's writer
STORE_EVERY: Final = 22  # its segment holds the tuples whose number in their stream is STORE_AT modulo STORE_EVERY
STORE_AT: Final = 24
PROBE_EVERY: Final = 26  # and it compares those whose number is PROBE_AT modulo PROBE_EVERY
PROBE_AT: Final = 28
NCOLS: Final = 30
ALIVE: Final = 32  # which column says whether a row can match at all; -1: all can
SEEN: Final = 34  # windows that count: address of the last ts of the stream; SEEN_MASK beside it
SEEN_MASK: Final = 36
FEED: Final = (
    38  # distribution tree: address of the feed it reads from (0: the gate), and of the one it writes (0: none)
)
FEED_OUT: Final = 39
FEED_SEAT: Final = 40  # which of the feed's readers it is
# Bands, by dimension (2 x 6): low, high, eps, weight, limit; an unused one has 0 dimensions
DIMENSIONS: Final = 41
BANDS: Final = 42  # address of float64[2, 5]
BAND_TERMS: Final = 43  # 1 if the dimensions are bands, which a grid can serve
SHARED: Final = 44  # address of what a plan of its own loop shares among workers (Plan.shared); 0: nothing
CREW: Final = 45  # how many workers there are
SLICED: Final = (
    46  # address of the epochs' words (`threads.gate.epochs`), where threads serve shares by turns; 0: one each
)
ASOF: Final = 47  # sliced: 1 if the loop is `asof.work_asof`
LEFT_SIZES: Final = 48  # bytes a value, by column; then the right side's
MAX_COLS: Final = 24  # of one side
COLUMNS: Final = 96  # addresses of the batch's columns, MAX_COLS of the left side, then as many of the right
STEP: Final = 144

# --- the loop's own ---------------------------------------------------------------------------------------------
PHASE: Final = 160
COUNT: Final = 161  # tuples of the batch
RANK: Final = 162  # of the batch's first tuple among all
NEXT: Final = 163  # by side: tuples of the stream so far, at the end of the batch
ENDS: Final = 165  # by side: rows of its segment, at the end of the batch
LO: Final = 167  # by side: no later probe looks at rows of this segment below
PROBES: Final = 169  # by side: how many of the batch it compares
STORES: Final = 171
FROM: Final = 173  # the part of the batch that is being probed: from, to (batch positions)
TO: Final = 174
DONE_PROBES: Final = 175  # by side: probes below are done
PAIRS: Final = 177  # found, in order, and how many of them are out
EMITTED: Final = 178
AT: Final = 179  # the batch position whose results are being emitted
UNDECIDED: Final = 180  # left rows below have been decided: matched, or given out as unmatched
FRONTIER: Final = 181  # as far as time has passed
NEED: Final = 182  # what a GROW asks for: rows; and the side in NEED_SIDE
NEED_SIDE: Final = 183
STORED: Final = 184  # whether the batch's rows are in
REST: Final = 185  # by side: batches the index over that window rests; then how long next time
NEXT_REST: Final = 187
SERVED: Final = 189  # by side: the index that served the last probes into that window
CLOCK: Final = 193  # two words of scratch
STORE_TURN: Final = 196  # by side: the number of the next tuple, modulo
PROBE_TURN: Final = 198
LAST_TS: Final = 200
EMIT_TAIL: Final = 201
ENDED: Final = 202
FED: Final = 203  # tuples of the batch that were handed down
READ_COUNTS: Final = 204  # address of int64[slots]: distribution tree, tuples of each source taken
OWN: Final = 208  # to 255: words of a loop of a strategy's own; or, sliced, what `threads.gate.epochs.take` keeps

# --- shared -----------------------------------------------------------------------------------------------------
# The worker releases, the gatherer acquires: results below are in the ring.
OUT_TAIL: Final = 16 * LINE
# All results of triggers below this rank, and all unmatched rows due before this ts, are in the ring. Release after
# OUT_TAIL, the rank first: who sees a DONE_TS finds the rank of every tuple below it.
DONE_RANK: Final = 17 * LINE
DONE_TS: Final = 17 * LINE + 1
# By side: no row with a lower ts can be in a result that is not in the ring yet. Release after these two; the gatherer
# acquires it first, so that it finds the results of the rows given up.
LIVE_TS: Final = 17 * LINE + 2
# The gatherer releases, the worker acquires: results below were taken.
OUT_HEAD: Final = 18 * LINE
# Counters: the worker writes plainly, Python reads whenever it likes (a sum that is a little old).
TUPLES: Final = 19 * LINE
COMPARISONS: Final = 19 * LINE + 1
RESULTS: Final = 19 * LINE + 2
NS_READ: Final = 19 * LINE + 3  # taking tuples from the gate or feed and laying them out: distribution
NS_STORE: Final = 19 * LINE + 4  # storing and probing: execution
NS_PROBE: Final = 19 * LINE + 5
NS_EMIT: Final = 19 * LINE + 6  # writing results: gathering
NS_WAIT: Final = 19 * LINE + 7  # with nothing to do
BATCHES: Final = 19 * LINE + 8
NS_BLOCKED: Final = 19 * LINE + 9  # waiting for another worker or for the consumer
# What it waits for now, for the watchdog: one of the WAITS below.
WAITS: Final = 20 * LINE
WORDS: Final = 21 * LINE

NOTHING, FOR_TUPLES, FOR_CONSUMER, FOR_WRITER, FOR_SHARER, FOR_CHILD = range(6)

# --- values -----------------------------------------------------------------------------------------------------
INNER, LEFT, SEMI, ANTI = range(4)
AUTO: Final = -1
SCAN: Final = 0
READING, FEEDING, STORING, MEETING, PROBING, EMITTING, CLOSING = range(7)

# What the loop answers.
HALTED: Final = 1
FINISHED: Final = 2
GROW_SEGMENT: Final = 3
GROW_PAIRS: Final = 4
BUILD_INDEX: Final = 5
KERNEL_FAILED: Final = 6
STOPPED: Final = 7
# Sliced only: a batch is done; there was nothing to do; all before a switch is done.
SLICE: Final = 8
IDLE: Final = 9
SWITCH: Final = 10

# --- rows of the batch arrays -----------------------------------------------------------------------------------
B_TS, B_ORIGIN, B_SEQ, B_REF, B_PROBE, B_STARTS = range(6)  # B_PROBE: its number among its side's probes, or -1
B_ROWS: Final = 6
# A side's probes:
P_TS, P_REF, P_ID, P_BATCH, P_HI, P_LO, P_PRECEDING, P_KEY, P_X, P_Y, P_POSITION, P_SLOT, P_PLACE = range(13)
P_FROM, P_UNTIL, P_STORE, P_TAIL = range(
    13, 17
)  # physical ranges for scans; which probes are stored; unsorted from here
P_ROWS: Final = 17

# An entry of the results' ring: ts, 2 * rank + side of the trigger (UNMATCHED: a left row that found none), the
# partner's number in its stream, and both rows' references.
E_TS, E_TRIGGER, E_PARTNER, E_LEFT, E_RIGHT = range(5)
E_WORDS: Final = 5
UNMATCHED: Final = 2**62
NO_ROW: Final = -1

# --- what all workers of a run share ----------------------------------------------------------------------------
HALT: Final = 0  # released by whoever wants the workers to stand still (1) or to stop (2); acquired in every loop
EPOCHS: Final = 1  # address of an elastic run's epochs, whose threads park there; plain, written before they start
OUT_EVENT: Final = LINE  # slept on by the gatherer; SLEEPERS beside it
OUT_SLEEPERS: Final = LINE + 1
ROOM_EVENT: Final = 2 * LINE  # slept on by workers whose ring is full
ROOM_SLEEPERS: Final = 2 * LINE + 1
FEED_EVENT: Final = 3 * LINE  # slept on by workers of a distribution tree, for tuples or for room
FEED_SLEEPERS: Final = 3 * LINE + 1
CONTROL_WORDS: Final = 4 * LINE

SLOT_BITS: Final = 12  # of a source's position in its origin: its slot in the gate; the rest orders the sources
SLOT_MASK: Final = 2**SLOT_BITS - 1
A_KEY, A_X, A_Y, A_USABLE, A_COLUMNS = range(5)  # columns of a source's arena
A_WORDS: Final = 32
