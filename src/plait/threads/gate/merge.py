"""Merging the ready prefixes of the rings: plain arithmetic on memory that no other thread writes meanwhile.

A leaf is a source with ready tuples; leaves stand in order of origin, so that on equal ts the lower leaf goes first and
the total order is exact without comparing anything but ts. (Within a leaf the ring's order is that of (ts, seq).)
None of the loops has a branch that depends on the data: which source comes next is as good as random, and a wrong guess
costs more than the merge.

A reader's merge lies behind its counts in its private words, WIDTH words a part:
leaves' slots | ends of their ready prefixes | origins | next ts | losers | winners (two parts, while the tree is built)

An example of the tournament. WIDTH is 4 and three leaves have next ts 1, 2, 3; the fourth place is empty, AFTER_ALL.
Matches: leaf 0 beats 1 (node 2 keeps the loser, 1), leaf 2 beats 3 (node 3 keeps 3), leaf 0 beats 2 (node 1 keeps 2).
Leaf 0 is the winner and is taken. Say its next ts is 4. Only the matches on its way up are replayed: at node 2 leaf 1
(ts 2) beats it and goes on, at node 1 leaf 1 beats leaf 2 (ts 3). The next winner is leaf 1, after log2(4) = 2
comparisons.

Losers are kept, not winners: on the way up the path's own loser is then the only rival to look at, one load a level.
"""

from __future__ import annotations

from plait.order import AFTER_ALL
from plait.threads.atomics import pure, unsigned
from plait.threads.gate.words import COLUMNS, RING, RING_MASK, STORE_AT, WIDTH, scratch_at


@pure
def ring_at(g, slot):
    """Where the ring of this source begins: ts, then seq, then ref, each RING words."""
    return g[STORE_AT] + slot * g[RING] * 3


@pure
def merge_one(g, reader, leaf, done, most, ts, origin, seq, ref):
    """Copy from one leaf; gives how many tuples are in the arrays then.

    `leaf` is a place among the leaves, `done` how many tuples the arrays hold, `most` how many they may. The reader's
    count of the source moves along; it is private until `calls.tell` publishes it.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    slot = g[leaves + leaf]
    ring = ring_at(g, slot)
    size = g[RING]
    number = min(most - done, g[leaves + g[WIDTH] + leaf] - g[counts + slot])
    rank = g[leaves + 2 * g[WIDTH] + leaf]
    while number > 0:
        at = g[counts + slot] & g[RING_MASK]
        part = min(number, size - at)
        first = unsigned(ring + at)
        to = unsigned(done)
        for i in range(unsigned(part)):
            ts[to + i] = g[first + i]
            origin[to + i] = rank
            seq[to + i] = g[first + unsigned(size) + i]
            ref[to + i] = g[first + unsigned(2 * size) + i]
        g[counts + slot] += part
        done += part
        number -= part
    return done


@pure
def merge_two(g, reader, done, most, ts, origin, seq, ref):
    """Merge two leaves; gives how many tuples are in the arrays then.

    Leaf 0 has the lower origin. It goes first unless the other's ts is strictly lower, which settles ties. As many
    steps as neither side can run out in are made without looking at an end; then the bound is found again. What is
    left of one leaf is copied.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    wide = g[WIDTH]
    left, right = g[leaves], g[leaves + 1]
    left_end, right_end = g[leaves + wide], g[leaves + wide + 1]
    left_at, right_at = g[counts + left], g[counts + right]
    left_ring, right_ring = ring_at(g, left), ring_at(g, right)
    left_rank, right_rank = g[leaves + 2 * wide], g[leaves + 2 * wide + 1]
    mask, size = g[RING_MASK], g[RING]
    while True:
        # So many steps can't run past either end or the arrays.
        safe = min(most - done, min(left_end - left_at, right_end - right_at))
        if safe <= 0:
            break
        for i in range(done, done + safe):
            first = left_ring + (left_at & mask)
            second = right_ring + (right_at & mask)
            one, two = g[first], g[second]
            other = 1 if two < one else 0
            at = second if two < one else first
            ts[i] = min(one, two)
            origin[i] = right_rank if two < one else left_rank
            seq[i] = g[at + size]
            ref[i] = g[at + 2 * size]
            right_at += other
            left_at += 1 - other
        done += safe
    g[counts + left], g[counts + right] = left_at, right_at
    if done < most:
        done = merge_one(g, reader, 0 if left_at < left_end else 1, done, most, ts, origin, seq, ref)
    return done


@pure
def build(g, reader, number):
    """A tournament over the leaves: every inner node holds the loser of its match, node 0 the winner of all.

    A leaf whose ready prefix is used up, and a place without a leaf, has the key AFTER_ALL, which no tuple has.
    `winners` is scratch: it is needed only while the tree is built.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    wide = g[WIDTH]
    ends, keys, losers, winners = leaves + wide, leaves + 3 * wide, leaves + 4 * wide, leaves + 5 * wide
    for leaf in range(wide):
        key = AFTER_ALL
        if leaf < number:
            slot = g[leaves + leaf]
            if g[counts + slot] < g[ends + leaf]:
                key = g[ring_at(g, slot) + (g[counts + slot] & g[RING_MASK])]
        g[keys + leaf] = key
        g[winners + wide + leaf] = leaf
    for node in range(wide - 1, 0, -1):
        one, two = g[winners + 2 * node], g[winners + 2 * node + 1]
        second = g[keys + two] < g[keys + one]
        g[winners + node] = two if second else one
        g[losers + node] = one if second else two
    g[losers] = g[winners + 1]


@pure
def merge_many(g, reader, done, most, ts, origin, seq, ref):
    """Take the winner of the tournament, put that leaf's next tuple in its place and replay its matches.

    Ends with `done == most`, or with AFTER_ALL as the winner's key: then every ready prefix is used up. `losers[0]`
    keeps the winner for the next call.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    wide = g[WIDTH]
    ends, ranks, keys, losers = leaves + wide, leaves + 2 * wide, leaves + 3 * wide, leaves + 4 * wide
    mask, size = g[RING_MASK], g[RING]
    winner = g[losers]
    while done < most and g[keys + winner] != AFTER_ALL:
        slot = g[leaves + winner]
        ring = ring_at(g, slot)
        count = g[counts + slot]
        at = ring + (count & mask)
        ts[done] = g[at]
        origin[done] = g[ranks + winner]
        seq[done] = g[at + size]
        ref[done] = g[at + 2 * size]
        done += 1
        count += 1
        g[counts + slot] = count
        end = g[ends + winner]
        # Where there is no next one the last is read again: the word behind it may be its source's by now.
        following = g[ring + (min(count, end - 1) & mask)]
        key = following if count < end else AFTER_ALL
        g[keys + winner] = key
        node = (winner + wide) >> 1
        while node > 0:
            loser = g[losers + node]
            rival = g[keys + loser]
            # All ones if the rival goes first, else zero: with masks instead of choices there is no branch to guess.
            beaten = -(int(rival < key) | (int(rival == key) & int(loser < winner)))
            swapped = (winner ^ loser) & beaten
            g[losers + node] = loser ^ swapped
            winner ^= swapped
            key ^= (key ^ rival) & beaten
            node >>= 1
    g[losers] = winner
    return done
