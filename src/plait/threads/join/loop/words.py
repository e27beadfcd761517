"""A join worker's memory: one int64 array of words, and two-dimensional int64 arrays for the batch it is at.

The first two lines are every worker's (`threads.words`); the join's own begin behind them. Words of the first part are written
by Python before the loop starts, or while it stands still. Those of the second part are the loop's own. Those of the third are
shared, a line each: who writes and who reads is said there.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE
from plait.threads.words import CONTROL_WORDS

# --- set by Python ----------------------------------------------------------------------------------------------
SEAT: Final = 32  # which of the gate's readers it is
MOST: Final = 33  # tuples it takes at once, at most
PLACES: Final = 34  # the window's reach (`core.join.reach`): what it measures by; BACK, by side; and STEP
BACK: Final = 35  # as-of: of the left side, how old a partner may be in us, -1 without bound
HOW: Final = 37  # INNER, LEFT, RIGHT, FULL, SEMI or ANTI
ARENA_MASK: Final = 38
BLOCK: Final = 39  # address of the kernels' argument block
VERIFY: Final = 40  # address of a kernel, see `core.condition.native`
SCANS: Final = 41  # two
FORCED: Final = 43  # AUTO, or the index that was asked for (SCAN: none)
WANTED: Final = 44  # the index that auto would choose for probes into either window
HAS_NODE: Final = 45
OUT_MASK: Final = 46
OUT: Final = 47  # address of the results' ring
# By side, 0 left and 1 right:
SEGMENT: Final = 48  # address of the window segment it uses
SHARER: Final = 50  # which of the segment's sharers it is
WRITER: Final = 52  # 1 if it is the segment's writer
STORE_EVERY: Final = 54  # its segment holds the tuples whose number in their stream is STORE_AT modulo STORE_EVERY
STORE_AT: Final = 56
PROBE_EVERY: Final = 58  # and it compares those whose number is PROBE_AT modulo PROBE_EVERY
PROBE_AT: Final = 60
NCOLS: Final = 62
ALIVE: Final = 64  # which column says whether a row can match at all; -1: all can
NOTED: Final = 66  # 1 if it is noted which rows of this side have found a partner
# 0, or rows of this side that have found no partner are results, if so many workers say it: all that compare them.
# Below 0: that is said by each row (`stretches`).
ALONE: Final = 68
FEED: Final = (
    70  # distribution tree: address of the feed it reads from (0: the gate), and of the one it writes (0: none)
)
FEED_OUT: Final = 71
FEED_SEAT: Final = 72  # which of the feed's readers it is
# Bands, by dimension (2 x 5): low, high, eps, weight, limit; an unused one has 0 dimensions
DIMENSIONS: Final = 73
BANDS: Final = 74  # address of float64[2, 5]
BAND_TERMS: Final = 75  # 1 if the dimensions are bands, which a grid can serve
SHARED: Final = 76  # address of what a plan of its own loop shares among workers (Plan.shared); 0: nothing
CREW: Final = 77  # how many workers there are
SLICED: Final = (
    78  # address of the epochs' words (`threads.gate.epochs`), where threads serve shares by turns; 0: one each
)
ASOF: Final = (
    79  # address of what an as-of join's worker keeps (`asof_memory`), whose loop is `asof.work_asof`; 0: no such join
)
LEFT_SIZES: Final = 80  # bytes a value, by column; then the right side's
MAX_COLS: Final = 24  # of one side
COLUMNS: Final = 128  # addresses of the batch's columns, MAX_COLS of the left side, then as many of the right
STEP: Final = 176
# With an Emitter (`grid`), by side: the feed that its tuples come by (0: no Emitter), and the one it hands them on by (0: it is
# the last of its row or column).
GRID_IN: Final = 177
GRID_OUT: Final = 179
GRID_COUNTS: Final = 181  # address of the Emitter's table; GRID_SLOTS sources have a place in its rows
GRID_SLOTS: Final = 182
SORTS: Final = (
    183  # how far its results are put in order before they enter the ring: BY_PARTNER, BY_BLOCK, BY_TRIGGER, AS_FOUND
)
BLOCK_ROWS: Final = 184  # BY_BLOCK: so many rows of its sub-window, counted from the stream's first, are one block
MARK_EVERY: Final = 185  # 0, or this worker marks the end of every so many triggers, for a reader who asked for marks
MARK_ROWS: Final = 186  # 0, or it marks the end of every so many rows of its sub-window, too
STORES_ONLY: Final = 187  # 1 if it stores and compares nothing
SAMPLES: Final = 188  # address of what it notes of how long tuples took, SAMPLE_ROOM entries of S_WORDS

# Tuples go by their values: address of which are this worker's (`stretches`); 0: by their numbers.
PARTED: Final = 189
MET: Final = (
    190  # the loop's own, by side: rows of its segment that precede the batch position TO, all of which are stored
)

# --- the loop's own ---------------------------------------------------------------------------------------------
PHASE: Final = 192
COUNT: Final = 193  # tuples of the batch
RANK: Final = 194  # of the batch's first tuple among all
NEXT: Final = 195  # by side: tuples of the stream so far, at the end of the batch
ENDS: Final = 197  # by side: rows of its segment, at the end of the batch
LO: Final = 199  # by side: no later probe looks at rows of this segment below
PROBES: Final = 201  # by side: how many of the batch it compares
STORES: Final = 203
FROM: Final = 205  # the part of the batch that is being probed: from, to (batch positions)
TO: Final = 206
DONE_PROBES: Final = 207  # by side: probes below are done
PAIRS: Final = 209  # found, in order, and how many of them are out
EMITTED: Final = 210
AT: Final = 211  # the batch position whose results are being emitted
FRONTIER: Final = 213  # as far as time has passed
NEED: Final = 214  # what a GROW asks for: rows; and the side in NEED_SIDE
NEED_SIDE: Final = 215
STORED_NS: Final = 216  # when it began to store the batch
REST: Final = 217  # by side: batches the index over that window rests; then how long next time
NEXT_REST: Final = 219
SERVED: Final = 221  # by side: the index that served the last probes into that window
SPLIT: Final = 224  # of the pairs that were found, how many are the left side's; those come first
MARKED: Final = 223  # how many blocks of the trigger being emitted were marked, -1 if it has not begun
CLOCK: Final = 225  # two words of scratch
STORE_TURN: Final = 228  # by side: the number of the next tuple, modulo
PROBE_TURN: Final = 230
LAST_TS: Final = 232
EMIT_TAIL: Final = 233
ENDED: Final = 234
FED: Final = 235  # tuples of the batch that were handed down
READ_COUNTS: Final = 236  # address of int64[slots]: distribution tree, tuples of each source taken
AT_RANK: Final = 237  # the rank of the tuple at AT
UNDECIDED: Final = 238  # by side, where ALONE asks for it: rows below are decided: matched, or given out as unmatched
OWN: Final = 240  # to 287: words of a loop of a strategy's own; or, sliced, what `threads.gate.epochs.take` keeps
# Or, with an Emitter, by side: the rank below which a feed brings nothing more, how many left tuples lie below it, the last ts.
HEARD_RANK: Final = 240
HEARD_LEFT: Final = 242
HEARD_TS: Final = 244
HEARD_END: Final = 246  # by side: 1 when its feed has come to its end
# With an Emitter, or by values: where the batch ends: its rank, left tuples below, the last ts below, the last mark taken.
CUT_RANK: Final = 248  # beyond what `epochs.take` keeps
CUT_LEFT: Final = 249
CUT_TS: Final = 250
CUT_MARK: Final = 251
SENT: Final = 252  # by side: how much of the batch is handed on; of the Emitter: how many have the mark
LAST_SLOT: Final = 254  # the Emitter's: of the last tuple, -1 before there is one

# --- shared -----------------------------------------------------------------------------------------------------
# The worker releases, the gatherer acquires: results below are in the ring.
OUT_TAIL: Final = 18 * LINE
# All results of triggers below this rank, and all unmatched rows due before this ts, are in the ring. Release after
# OUT_TAIL, the rank first: who sees a DONE_TS finds the rank of every tuple below it.
DONE_RANK: Final = 19 * LINE
DONE_TS: Final = 19 * LINE + 1
# By side: no row with a lower ts can be in a result that is not in the ring yet. Release after these two; the gatherer
# acquires it first, so that it finds the results of the rows given up.
LIVE_TS: Final = 19 * LINE + 2
# The gatherer releases, the worker acquires: results below were taken.
OUT_HEAD: Final = 20 * LINE
# With an Emitter: the last mark whose counts this worker has told the gate. Released by it, acquired by the Emitter.
TOLD: Final = 21 * LINE
# The worker releases, whoever asks for latencies acquires: samples below are there. And the other way round: were taken.
SAMPLE_TAIL: Final = 22 * LINE
SAMPLE_HEAD: Final = 23 * LINE
WORDS: Final = 24 * LINE

# --- values -----------------------------------------------------------------------------------------------------
INNER, LEFT, RIGHT, FULL, SEMI, ANTI = range(6)
AUTO: Final = -1
SCAN: Final = 0
BY_PARTNER, BY_BLOCK, BY_TRIGGER, AS_FOUND = range(4)
READING, FEEDING, STORING, MEETING, PROBING, EMITTING, CLOSING, HANDING_ON = range(8)

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
B_NUMBER, B_RANK = 6, 7  # its number in its stream (with an Emitter), its place among all (by values, too)
B_ENDS: Final = 8  # by side: rows of its segment, before this tuple
B_ROWS: Final = 10
# A side's probes:
P_TS, P_REF, P_ID, P_BATCH, P_HI, P_LO, P_PRECEDING, P_KEY, P_X, P_Y, P_POSITION, P_SLOT, P_PLACE = range(13)
P_FROM, P_UNTIL, P_STORE, P_TAIL = range(
    13, 17
)  # physical ranges for scans; which probes are stored; unsorted from here
# By values: a row's word (`stretches`), and the bit of the table that holds for its own results, 0 if it has none here.
P_WORD, P_HOLDS = 17, 18
P_ROWS: Final = 19

# An entry of the results' ring: ts, 2 * rank + side of the trigger, the partner's number in its stream, and both rows'
# references. A row that found none has UNMATCHED + side in the place of a trigger, and its own number; where each row says by how
# many workers that has to be said (ALONE), this number, negative, is in the place of the other reference. A mark has no rows; its
# partner is the last number of the other stream that the trigger was compared with, or WHOLE: with all.
E_TS, E_TRIGGER, E_PARTNER, E_LEFT, E_RIGHT = range(5)
E_WORDS: Final = 5
UNMATCHED: Final = 2**62
NO_ROW: Final = -1
WHOLE: Final = 2**61

# A sample: a tuple's rank, its side and reference, when the worker began to store it and had found its pairs; and one pair
# that was found at that moment, the side of its later tuple and both references (NO_ROW if none was).
S_RANK, S_SIDE, S_REF, S_BEGAN, S_FOUND, S_PAIR_SIDE, S_PAIR_REF, S_PARTNER = range(8)
S_WORDS: Final = 8
SAMPLE_ROOM: Final = 1024

# --- control words of a join's run: a line an event, behind those that every run has ---------------------------------
OUT_EVENT: Final = CONTROL_WORDS  # slept on by the gatherer; SLEEPERS beside it
OUT_SLEEPERS: Final = OUT_EVENT + 1
ROOM_EVENT: Final = CONTROL_WORDS + LINE  # slept on by workers whose ring is full
ROOM_SLEEPERS: Final = ROOM_EVENT + 1
FEED_EVENT: Final = CONTROL_WORDS + 2 * LINE  # slept on by workers of a distribution tree, for tuples or for room
FEED_SLEEPERS: Final = FEED_EVENT + 1
EVENTS: Final = 3
