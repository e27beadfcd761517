"""The skip list's nodes: keys, towers, seeking and linking.

Invariants, and why they hold:

- Level 0 holds every tuple once, in the total order (ts, origin, seq). A node is linked by one CAS on the node before
  it; the CAS fails if anything was linked there meanwhile, and then the place is sought again. Keys differ, so there is
  one right place, whichever source comes first: ties between sources are settled by origin, not by a race.
- Higher levels are in that order too, but may lack a node: they are shortcuts. A source that has no node to link from
  at some level starts a new run there.
- A thread only follows links from a node that can't be freed (its own last read one, or a pinned one) to greater keys,
  which are freed later: it never reaches freed memory. So no link it has read can come back with another meaning,
  and CAS has no ABA problem.
- Heights come from the tuple's count (a multiple of 8**l has level l), so every 8**l tuples of a source there is one:
  no run of bad luck makes a list without shortcuts, and two runs of a program build the same towers.

An example. The list holds (ts 3, A), (5, B). Source A adds 4 and 6. For 4 it seeks from its handle and finds 3 before
and 5 after; 6 does not belong before 5, so 4 is linked alone, by a CAS on 3's link. Then it goes on from 4, walks to
5, and links 6 behind it. If C links its own 4 behind 3 first, A's CAS fails; it seeks again, and goes before or after
C's by their origins.

The cost of a tuple is the distance from the source's last node, some nodes if sources are abreast. One that is far
behind the others pays for towers, a logarithm to the base of eight.
"""

from __future__ import annotations

from typing import Final

from plait.threads.atomics import cas, compiled, load_acquire, pure, store_release, trailing_zeros
from plait.threads.gate.words import (
    HANDLES,
    HANDLES_TS,
    LEVELS,
    NEXT,
    NIL,
    NO_PLACE,
    NODE_WORDS,
    ORIGIN,
    PLACE,
    PLACE_BITS,
    REF,
    RING_LOG,
    RING_MASK,
    SEQ,
    STORE_AT,
    TS,
    UNLINKED,
    source_at,
)

#: Nodes to walk along level 0 before the towers are used; in a list of up to so many sources that is nearly always enough.
WALK: Final = 8


@pure
def node_at(g, place):
    """Where the node of this place lies."""
    return g[STORE_AT] + (((place >> PLACE_BITS) << g[RING_LOG]) + (place & g[RING_MASK])) * NODE_WORDS


@pure
def height(g, place):
    """How many levels the node of a place has, 1 to LEVELS: one, and another for every factor of eight in its count."""
    return min(trailing_zeros(place) // 3 + 1, g[LEVELS])


@pure
def tallest(g, first, count):
    """The greatest height among `count` tuples of a source from its `first` on."""
    level = 0
    while level + 1 < g[LEVELS] and (first + count - 1) >> (3 * level + 3) != (first - 1) >> (3 * level + 3):
        level += 1
    return level + 1


@pure
def before(g, node, ts, origin, seq):
    """Whether the node's key is below (ts, origin, seq).

    The order of the whole gate in one place. ORIGIN of a slot may be read plainly: it changes only while the slot has
    no unread tuple.
    """
    if g[node + TS] != ts:
        return g[node + TS] < ts
    rank = g[source_at(g[node + PLACE] >> PLACE_BITS) + ORIGIN]
    if rank != origin:
        return rank < origin
    return g[node + SEQ] < seq


@compiled
def remember(g, s, node):
    """Keep a node that was passed on the way as the source's handle on every level at which it is linked."""
    place = g[node + PLACE]
    for level in range(1, height(g, place)):
        if load_acquire(g, node + NEXT + level) != UNLINKED:
            g[s + HANDLES + level] = place
            g[s + HANDLES_TS + level] = g[node + TS]


@compiled
def seek(g, s, node, ts, origin, seq):
    """From `node`, whose key is below, go to the last node below the key; gives it and the one after it.

    The place is usually a few nodes on, one or two a source: first walk, then climb.
    """
    for _ in range(WALK):
        ahead = load_acquire(g, node + NEXT)
        if ahead == NIL or g[ahead + TS] > ts:
            return node, ahead
        if g[ahead + TS] == ts and not before(g, ahead, ts, origin, seq):
            return node, ahead
        node = ahead
    return climb(g, s, node, ts, origin, seq)


@compiled
def climb(g, s, node, ts, origin, seq):
    """As `seek`, over any distance: the highest link that does not lead too far is taken first."""
    while True:
        ahead = NIL
        level = height(g, g[node + PLACE]) - 1
        while level >= 0:
            ahead = load_acquire(g, node + NEXT + level)
            if ahead > NIL and before(g, ahead, ts, origin, seq):
                break
            level -= 1
        if level < 0:
            return node, ahead
        node = ahead
        if height(g, g[node + PLACE]) > 1:
            remember(g, s, node)


@compiled
def link(g, s, node, first, count):
    """Link this source's tuples `first`, `first + 1` ..., already written, from `node` on; gives the last one's node.

    Tuples between which no other source has any are chained privately and enter the list by one CAS.

    `s` is the source's block, `node` the index of a node whose key is below the first tuple's. The written nodes are
    this source's alone until the CAS; after it they are everybody's, so their level-0 links are never written plainly
    again.
    """
    origin = g[s + ORIGIN]
    done = 0
    while done < count:
        new = node_at(g, first + done)
        node, ahead = seek(g, s, node, g[new + TS], origin, g[new + SEQ])
        last = new
        size = 1
        while done + size < count:
            following = node_at(g, first + done + size)
            if ahead != NIL and before(g, ahead, g[following + TS], origin, g[following + SEQ]):
                break
            g[last + NEXT] = following
            last = following
            size += 1
        g[last + NEXT] = ahead
        if cas(g, node + NEXT, ahead, new):
            raise_towers(g, s, first + done, size)
            node = last
            done += size
    return node


@compiled
def raise_towers(g, s, first, count):
    """Link the tall ones among these tuples, which level 0 holds by now, on their higher levels."""
    if g[LEVELS] == 1:
        return
    place = first + (-first & 7)  # only multiples of eight are tall
    while place < first + count:
        node = node_at(g, place)
        for level in range(1, height(g, place)):
            link_level(g, s, node, level)
            g[s + HANDLES + level] = place
            g[s + HANDLES_TS + level] = g[node + TS]
        place += 8


@compiled
def link_level(g, s, node, level):
    """Link a node of this source, which level 0 holds by now, on a higher level, from the source's handle there on."""
    origin = g[s + ORIGIN]
    if g[s + HANDLES + level] == NO_PLACE:
        # No node of this height between the readers and this one: it starts the level.
        store_release(g, node + NEXT + level, NIL)
        return
    at = node_at(g, g[s + HANDLES + level])
    while True:
        ahead = load_acquire(g, at + NEXT + level)
        if ahead > NIL and before(g, ahead, g[node + TS], origin, g[node + SEQ]):
            at = ahead
            continue
        # Until this store others pass the node by on this level; after it they may link behind it, so a second
        # attempt only moves the link nearer, and loses no node that another source has linked there.
        mine = load_acquire(g, node + NEXT + level)
        if mine == UNLINKED:
            store_release(g, node + NEXT + level, ahead)
        elif ahead > NIL and (mine == NIL or nearer(g, ahead, mine)):
            cas(g, node + NEXT + level, mine, ahead)
        if cas(g, at + NEXT + level, ahead, node):
            return


@pure
def nearer(g, node, other):
    """Whether the first node's key is below the second's."""
    rank = g[source_at(g[other + PLACE] >> PLACE_BITS) + ORIGIN]
    return before(g, node, g[other + TS], rank, g[other + SEQ])


@pure
def give(g, node, counts, number, ts, origin, seq, ref):
    """Copy a node's tuple to place `number` of a reader's arrays, and count it for its source."""
    slot = g[node + PLACE] >> PLACE_BITS
    ts[number] = g[node + TS]
    origin[number] = g[source_at(slot) + ORIGIN]
    seq[number] = g[node + SEQ]
    ref[number] = g[node + REF]
    g[counts + slot] += 1
