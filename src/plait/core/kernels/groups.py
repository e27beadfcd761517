"""Group numbers: a row's key columns as int64 words, looked up in an open-addressing table of group numbers.

Equal words mean the same group, by comparison and not by hash alone. A group's words are kept under its number in
`words`; the table holds number + 1, 0 where a place is free. It is at most half full, so a search ends. Groups leave only
when the table is built anew (`rebuild`), so a search never has to look past a place that was given up.

`words` is int64 of shape (words a key, rows of the batch); `kept` the same by group. `table` is int64, a power of two of
entries. `free` is int64, a stack of which `left` are there.
"""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry, inlined


# A hash of column i of `words`. Equal words have equal hashes; nothing else is promised, so `same` compares.
@inlined
def mixed(words, i):
    h = np.uint64(0x9E3779B97F4A7C15)
    for k in range(words.shape[0]):
        h ^= np.uint64(words[k, i])
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
    return h


# Whether column i of `words` is what the group has.
@inlined
def same(words, i, kept, group):
    for k in range(words.shape[0]):  # noqa: SIM110 (a generator would not compile)
        if kept[k, group] != words[k, i]:
            return False
    return True


@entry
def look_up(words, first, n, at, table, kept, free, left, direct, out) -> int:
    """The group of each row from the `first` on; a new one takes the last of the `left` numbers in `free`. Gives what is left.

    `out` is int64 by row, and has the first one's at place `at`. There must be a free number for every row, since each may
    be a new group: the caller sees to it. `direct` knows the groups of small keys, a place for each, -1 where it does not
    yet; it is empty where keys are not one integer.
    """
    return look_up_missed(words, first, n, at, table, kept, free, left, direct, out, False)


@entry
def known(words, first, n, at, table, kept, direct, out) -> int:
    """As `look_up`, but nothing is changed: -1 for a row whose group is not known, or not where it is looked for first. Gives how
    many these are. Any number of threads may be here at once.
    """
    mask = np.uint64(len(table) - 1)
    last, missed = words.shape[0] - 1, 0
    for i in range(first, n):
        if words[0, i] >= 0 and words[0, i] < len(direct) and words[last, i] == 0:
            group = direct[words[0, i]]
        else:
            place = mixed(words, i) & mask
            group = table[place] - 1
            while group >= 0 and not same(words, i, kept, group):
                place = (place + np.uint64(1)) & mask
                group = table[place] - 1
        out[at + i - first] = group
        missed += group < 0
    return missed


@entry
def look_up_missed(words, first, n, at, table, kept, free, left, direct, out, missed) -> int:
    """`look_up`; if `missed`, of those rows only of which `out` has no group."""
    mask = np.uint64(len(table) - 1)
    last = words.shape[0] - 1
    for i in range(first, n):
        if missed and out[at + i - first] >= 0:
            continue
        small = words[0, i] >= 0 and words[0, i] < len(direct) and words[last, i] == 0
        if small and direct[words[0, i]] >= 0:
            out[at + i - first] = direct[words[0, i]]
            continue
        place = mixed(words, i) & mask
        while True:
            group = table[place] - 1
            if group < 0:
                left -= 1
                group = free[left]
                table[place] = group + 1
                for k in range(words.shape[0]):
                    kept[k, group] = words[k, i]
                break
            if same(words, i, kept, group):
                break
            place = (place + np.uint64(1)) & mask
        out[at + i - first] = group
        if small:
            direct[words[0, i]] = group
    return left


@entry
def look_up_small(keys, n, direct, out) -> int:
    """Groups of keys that `direct` knows, a place for each small number; gives the first row that has none, or n.

    `keys` is int64 by row, `direct` int64 by key, -1 where it is not known. Stops at the first unknown key: `look_up` goes on
    from there.
    """
    for i in range(n):
        key = keys[i]
        if key < 0 or key >= len(direct) or direct[key] < 0:
            return i
        out[i] = direct[key]
    return n


@entry
def take_words(words, groups, column, out) -> int:
    """One word of each of these groups, into `out`; gives how many of them are NULL there."""
    nulls, last = 0, words.shape[0] - 1
    for i in range(len(groups)):
        out[i] = words[column, groups[i]]
        nulls += (words[last, groups[i]] >> column) & 1
    return nulls


@entry
def insert(ranked, known, groups, words) -> None:
    """Put groups, which stand in the order of their words, between the first `known` of `ranked`, in place.

    `ranked` is int64 of two rows: groups, and what they are ordered by. Equal words: those that were there come first.
    """
    at, to = known - 1, known + len(groups) - 1
    for new in range(len(groups) - 1, -1, -1):
        while at >= 0 and ranked[1, at] > words[new]:
            ranked[0, to], ranked[1, to] = ranked[0, at], ranked[1, at]
            at, to = at - 1, to - 1
        ranked[0, to], ranked[1, to] = groups[new], words[new]
        to -= 1


@entry
def rebuild(kept, live, table) -> None:
    """Enter the groups that are `live` into an empty table."""
    mask = np.uint64(len(table) - 1)
    for group in range(len(live)):
        if live[group] != 0:
            at = mixed(kept, group) & mask
            while table[at] != 0:
                at = (at + np.uint64(1)) & mask
            table[at] = group + 1


@entry
def owners(words, n, crew, out) -> None:
    """A number below `crew` for each row, after its words alone; by other bits of the hash than the table's places.

    The result must not change with the table's size or with which groups are known: threads decide alike by it.
    """
    for i in range(n):
        out[i] = np.int64((mixed(words, i) >> np.uint64(32)) % np.uint64(crew))
