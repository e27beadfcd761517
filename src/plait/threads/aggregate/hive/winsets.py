"""The W-Hive's list of winsets: a skip list by pane, from which one thread takes the first and to which sources add.

Invariants, and why they hold:

- Level 0 holds every winset once, in the order of panes. A node is linked by one CAS on the node before it. Two sources that want
  the same pane compete for the same link: the second finds the first one's node when it looks again, and uses that.
- Higher levels are in that order too, but may lack a node: they are shortcuts. Towers are as high as the pane's number says, so
  that whoever comes first builds the same one.
- A source inserts only at panes that it has not written past, and nothing is taken but panes that all have written past: so
  it links behind the node taken last, or a later one. Nothing is ever unlinked; the taker just moves on.
- A thread follows links only from a pinned node, or from the one taken last, to greater panes, which are freed later:
  it never reaches freed memory.

An example of two sources that want pane 9 at once, in a list 7 -> 8. Both seek, find 8 before and nothing after, and
make a node of their own. A's CAS on 8's link succeeds. B's fails: it seeks again, finds a node of pane 9, uses that,
and its own node stays unused for the next pane (NODES_END did not move). So a pane has one winset, whoever comes
first.
"""

from __future__ import annotations

from typing import Final

from plait.threads.aggregate.hive.words import (
    FIRST,
    HANDLES,
    HANDLES_PANE,
    HEAD,
    HEAD_PANE,
    HEIGHT,
    LAST,
    LEVELS,
    MEMBERS,
    NEXT,
    NIL,
    NODES_END,
    NODES_FREED,
    NODES_MASK,
    PANE,
    PIN,
    PLACE,
    PLACE_BITS,
    ROOT,
    SLOTS,
    UNLINKED,
    node_at,
    source_at,
)
from plait.threads.atomics import cas, compiled, fence, load_acquire, pure, store_release, trailing_zeros

#: Nodes to walk along level 0 before the towers are used: the next pane is nearly always the next node.
WALK: Final = 4


@pure
def height(h, pane):
    """How many levels the node of a pane has: one, and another for every factor of four in its number, up to LEVELS."""
    return min(trailing_zeros(pane) // 2 + 1, h[LEVELS])


@compiled
def open_winset(h, slot, pane):
    """The place of this pane's winset, which is made if it is not there; NIL if there is no memory for it.

    The source has not written past the pane: so the winset stays until it does.

    By the source's thread. `slot` is its own, `pane` a number of `core.kernels.panes`. Gives a place. The pin is let
    go of before it returns: the node stays all the same, as the source has not written past it.
    """
    s = source_at(slot)
    node = pin(h, slot, height(h, pane))
    made = NIL
    while True:
        node, found = seek(h, s, node, pane)
        if found != NIL and h[node_at(h, found) + PANE] == pane:
            break
        if made == NIL:
            made = new_node(h, slot, pane)
            if made == NIL:
                found = NIL
                break
        new = node_at(h, made)
        h[new + NEXT] = found
        if cas(h, node + NEXT, found, made):
            h[s + NODES_END] += 1
            for level in range(1, h[new + HEIGHT]):
                link_level(h, s, new, level)
            found = made
            break
    if found != NIL:
        h[s + HANDLES], h[s + HANDLES_PANE] = found, pane
        remember(h, s, node_at(h, found))
    store_release(h, s + PIN, LAST)
    return found


@compiled
def pin(h, slot, levels):
    """A node to start from, with handles up to `levels`; it and all after it are kept until the pin is let go of.

    Handles that the head has passed are dropped; without any it starts at the head, which the taker keeps. PIN is set
    to FIRST while the head is looked up, so that nothing can be freed under the look.
    """
    s = source_at(slot)
    level = h[LEVELS] - 1
    while level >= 0:
        # A higher level's handle is the older one: if it is kept, the lower ones are.
        place = h[s + HANDLES + level]
        if place != NIL:
            store_release(h, s + PIN, h[s + HANDLES_PANE + level])
            # The pin must be seen before the head is read: see PIN.
            fence()
            if load_acquire(h, HEAD_PANE) <= h[s + HANDLES_PANE + level]:
                break
            h[s + HANDLES + level] = NIL
        level -= 1
    if level + 1 >= levels:
        return node_at(h, h[s + HANDLES])
    for each in range(h[LEVELS]):
        h[s + HANDLES + each] = NIL
    store_release(h, s + PIN, FIRST)
    fence()
    node = node_at(h, load_acquire(h, HEAD))
    store_release(h, s + PIN, h[node + PANE])
    remember(h, s, node)
    return node


@compiled
def remember(h, s, node):
    """Keep a node that was passed on the way as the source's handle on every level at which it is linked."""
    for level in range(1, h[node + HEIGHT]):
        if load_acquire(h, node + NEXT + level) != UNLINKED:
            h[s + HANDLES + level] = h[node + PLACE]
            h[s + HANDLES_PANE + level] = h[node + PANE]


@compiled
def seek(h, s, node, pane):
    """From `node`, whose pane is not above, to the last node below the pane; gives it and the place after it."""
    if h[node + PANE] == pane:
        return node, h[node + PLACE]
    for _ in range(WALK):
        ahead = load_acquire(h, node + NEXT)
        if ahead == NIL or h[node_at(h, ahead) + PANE] >= pane:
            return node, ahead
        node = node_at(h, ahead)
    return climb(h, s, node, pane)


@compiled
def climb(h, s, node, pane):
    """As `seek`, over any distance: the highest link that does not lead too far is taken first."""
    while True:
        ahead = NIL
        level = h[node + HEIGHT] - 1
        while level >= 0:
            ahead = load_acquire(h, node + NEXT + level)
            if ahead > NIL and h[node_at(h, ahead) + PANE] < pane:
                break
            level -= 1
        if level < 0:
            return node, ahead
        node = node_at(h, ahead)
        remember(h, s, node)


@compiled
def link_level(h, s, node, level):
    """Link a node, which level 0 holds by now, on a higher level."""
    if h[s + HANDLES + level] == NIL:
        # No node of this height between the head and this one: it starts the level.
        store_release(h, node + NEXT + level, NIL)
        return
    at = node_at(h, h[s + HANDLES + level])
    while True:
        ahead = load_acquire(h, at + NEXT + level)
        if ahead > NIL and h[node_at(h, ahead) + PANE] < h[node + PANE]:
            at = node_at(h, ahead)
            continue
        # Until this store others pass the node by on this level; after it they may link behind it, so a second
        # attempt only moves the link nearer, and loses no node that another source has linked there.
        mine = load_acquire(h, node + NEXT + level)
        if mine == UNLINKED:
            store_release(h, node + NEXT + level, ahead)
        elif ahead > NIL and (mine == NIL or h[node_at(h, ahead) + PANE] < h[node_at(h, mine) + PANE]):
            cas(h, node + NEXT + level, mine, ahead)
        if cas(h, at + NEXT + level, ahead, h[node + PLACE]):
            return


@compiled
def new_node(h, slot, pane):
    """A node that nobody sees yet, or NIL. It is given out for good when NODES_END moves on.

    NODES_END moves on only when the node is linked: one that lost its race is used for the next pane.
    """
    s = source_at(slot)
    if h[s + NODES_END] - h[s + NODES_FREED] > h[s + NODES_MASK]:
        free_nodes(h, slot)
        if h[s + NODES_END] - h[s + NODES_FREED] > h[s + NODES_MASK]:
            return NIL
    place = (slot << PLACE_BITS) + h[s + NODES_END]
    node = node_at(h, place)
    h[node + PANE] = pane
    h[node + PLACE] = place
    h[node + HEIGHT] = height(h, pane)
    h[node + ROOT] = NIL
    h[node + MEMBERS] = NIL
    for level in range(1, h[node + HEIGHT]):
        h[node + NEXT + level] = UNLINKED
    return place


@compiled
def free_nodes(h, slot):
    """Let the nodes below the one taken last, and below every pin, be used again; a source's nodes are in order of panes.

    By the source's own thread, when it is out of nodes. The head's node itself is not below HEAD_PANE, and stays.
    """
    s = source_at(slot)
    bound = load_acquire(h, HEAD_PANE)
    fence()
    for other in range(h[SLOTS]):
        bound = min(bound, load_acquire(h, source_at(other) + PIN))
    while h[s + NODES_FREED] < h[s + NODES_END] and (
        h[node_at(h, (slot << PLACE_BITS) + h[s + NODES_FREED]) + PANE] < bound
    ):
        h[s + NODES_FREED] += 1
