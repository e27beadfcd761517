"""WiML: windows merged in one list, updated by the threads that push (multiway-aggregation.txt, sections 4 and 5.7).

Every source updates its own part of the windows its tuples fall into, in the thread that pushes it, and in no order between
sources; one output thread takes the winsets that all sources have written past out of the W-Hive (`hive.hive`), merges
the parts and closes windows. Tuples are never sorted, copied or handed to another thread: so functions must merge. First and last
do, by the ts and the source of their tuple; what keeps rows in total order does not, and is refused (`hive.functions`).

The frontier is the gate's: sources speak, come, go and end there as in every design, but add no tuples to it.
"""

from __future__ import annotations

from plait.threads.atomics.native import compiled
from plait.threads.gate.calls import enter_reader, leave_reader
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.gate.frontier import settle
from plait.threads.gate.words import READY_EVENT


@compiled
def look(g, reader, out):
    """The frontier as this reader has settled it, into out[0]: 0, or a code."""
    code = enter_reader(g, reader)
    if code < 0:
        return code
    out[0] = settle(g, reader)
    leave_reader(g, reader, False)
    return 0


@compiled
def await_frontier(g, reader, known, nanoseconds, out):
    """As `look`, but sleep up to `nanoseconds` while the frontier is not above `known`.

    `known` is the frontier the caller has worked up to, `out` one word of its own. After `prepare` it looks once more,
    so a promise in between is not slept through.
    """
    code = look(g, reader, out)
    if code < 0 or out[0] > known:
        return code
    ticket = prepare(g, READY_EVENT)
    code = look(g, reader, out)
    if code < 0 or out[0] > known:
        cancel(g, READY_EVENT)
        return code
    sleep(g, READY_EVENT, ticket, nanoseconds)
    return look(g, reader, out)
