"""Windows of time that slide over panes: which groups each one has, in order, and what their panes come to.

A window that follows another has most of its panes too: so panes that it has more are added, those that it has no more are taken
away, and what is not touched stays. Who is in the window (`slide`) is found once, for all functions; of that, `bounds` and
the rows are kept, and each function follows them by itself, over its own accumulators: sums and counts keep a running total
for each group, exact, so that taking away leaves nothing behind; the others walk along a group's slots.

Slots are numbered here as they come, for ever: what an array knows under s has the number s + `shift`. They and panes come in
order, so what is added or taken away is a stretch of slots. A group's slots are a list, from `head` to `tail` by `slot_next`, of
those in the window; -1 ends it. Row w of `bounds` says up to which slot panes have been taken away and added for window w (the
first is number 1), where its rows end, and which window it is (its k); row 0 is how things stood, the last one how they stand.

Example: size 30, advance 10, so panes of 10 and windows of 3 panes. Window [0, 30) has panes 0 1 2. For window [10, 40)
pane 0 leaves and pane 3 enters: two panes are looked at, not three; with 100 panes a window it would still be two. A
group whose last slot left is in the window no more: its `head` is -1, and it gets no row.

The cost of a window is the slots that came and went, and its rows. Held in tests/core/aggregate/test_sliding.py.

Arrays: `pane_id`, `pane_slot` by pane, `slot_group`, `slot_next` by slot, `head`, `tail` by group, all int64; `state` are
the words of `core.kernels.panes`.
"""

from __future__ import annotations

from plait.core.kernels.exact import COUNT, LIMBS, ODD
from plait.core.kernels.panes import ADDED, NEXT_WINDOW, PANE_END, PANE_FIRST, SHIFT, SLOT_END, SLOT_FIRST
from plait.core.machine.marks import entry, inlined

GONE, IN, ROWS, WINDOW = range(4)
BOUNDS = 4  # words of a row of `bounds`


@inlined
def first_slot(pane, state, pane_slot):
    """Where a pane's slots begin, of one that is still to come too."""
    return pane_slot[pane] if pane < state[PANE_END] else state[SLOT_END]


@inlined
def leave(state, pane_slot, slot_group, slot_next, head, tail):
    """Take the oldest pane away, from the lists too if it is in them.

    A slot leaves from the head of its group's list: lists are in the order of panes, and the oldest pane goes first. A
    pane that never entered a window (a gap, or windows that were skipped) is only passed over.
    """
    low, high = state[SLOT_FIRST], first_slot(state[PANE_FIRST] + 1, state, pane_slot)
    if state[PANE_FIRST] < state[ADDED]:
        for s in range(low, high):
            g = slot_group[s]
            head[g] = slot_next[s]
            if head[g] < 0:
                tail[g] = -1
    state[PANE_FIRST] += 1
    state[ADDED] = max(state[ADDED], state[PANE_FIRST])
    state[SLOT_FIRST] = high


@inlined
def enter(until, state, pane_id, pane_slot, slot_group, slot_next, head, tail):
    """Add the panes below `until` that are not in the lists yet.

    `until` is a pane's number: those from it on are not in the window.
    """
    shift = state[SHIFT]
    while state[ADDED] < state[PANE_END] and pane_id[state[ADDED]] < until:
        for s in range(pane_slot[state[ADDED]], first_slot(state[ADDED] + 1, state, pane_slot)):
            g = slot_group[s]
            slot_next[s] = -1
            if tail[g] < 0:
                head[g] = s + shift
            else:
                slot_next[tail[g] - shift] = s + shift
            tail[g] = s + shift
        state[ADDED] += 1


@entry
def slide(frontier, size, advance, state, pane_id, pane_slot, slot_group, slot_next, head, tail, ranked, row_group, row_head,
          bounds) -> int:  # fmt: skip
    """Windows that end at or before the frontier, in order: how many there are. Called again until it finds none.

    It stops before `bounds` is full, or rows might be. `ranked` are all groups in order of their keys: rows of a window are in
    this order. Where it is empty they are in none. Panes that no later window holds are given up, their contents not.

    `row_group` and `row_head` are int64 by row, `bounds` int64 of shape (windows + 2, BOUNDS). `ranked` is int64. The next
    window is the first that holds the oldest pane, or the one after the last that was closed, whichever is later: so
    stretches of time without tuples cost nothing, however many windows lie in them.
    """
    rest = size % advance
    split = 1 if rest > 0 else 0
    over = size // advance
    shift = state[SHIFT]
    number = state[SHIFT] - state[SHIFT]
    windows = number
    bounds[0, GONE] = state[SLOT_FIRST] + shift
    bounds[0, IN] = first_slot(state[ADDED], state, pane_slot) + shift
    bounds[0, ROWS] = 0
    while state[PANE_FIRST] < state[PANE_END]:
        oldest = pane_id[state[PANE_FIRST]]
        # The first window that holds it, `(its begin - size) // advance + 1`, without a difference beyond 64 bits.
        k = max(state[NEXT_WINDOW], (oldest >> split) - over + (1 if split == 0 or oldest & 1 == 1 else 0))
        if k > oldest >> split:
            # In no window that is still to come (or in none at all).
            leave(state, pane_slot, slot_group, slot_next, head, tail)
            continue
        if k * advance > frontier - size or windows + 2 == len(bounds):
            break
        until = ((k + over) << split) + split
        if number + state[SLOT_END] - state[SLOT_FIRST] >= len(row_group):
            break
        enter(until, state, pane_id, pane_slot, slot_group, slot_next, head, tail)
        high = first_slot(state[ADDED], state, pane_slot)
        # Written for every group, and kept for those that are in it: which these are is as good as random, and a branch that is
        # guessed wrong costs more. So there is room for one row more than there are.
        if len(ranked) > 0:
            for rank in range(len(ranked)):
                group = ranked[rank]
                row_group[number] = group
                row_head[number] = head[group]
                number += head[group] >= 0
        else:
            for s in range(state[SLOT_FIRST], high):
                group = slot_group[s]
                row_group[number] = group
                row_head[number] = head[group]
                number += head[group] == s + shift
        windows += 1
        bounds[windows, GONE] = state[SLOT_FIRST] + shift
        bounds[windows, IN] = high + shift
        bounds[windows, ROWS] = number
        bounds[windows, WINDOW] = k
        state[NEXT_WINDOW] = k + 1
    bounds[windows + 1, GONE] = state[SLOT_FIRST] + shift
    bounds[windows + 1, IN] = first_slot(state[ADDED], state, pane_slot) + shift
    bounds[windows + 1, ROWS] = number
    return windows


@entry
def take(shift, row_head, own, into) -> None:
    """What the first slot of each row holds: all there is of it, where every window is one pane."""
    width = own.shape[1]
    for row in range(len(row_head)):
        for k in range(width):
            into[row, k] = own[row_head[row] - shift, k]


@entry
def counts(bounds, shift, slot_group, row_group, own, running, into) -> None:
    """Counts of rows; `running` has those of groups.

    `own` are the slots' counts, `running` those of groups, `into` the rows': all int64 of one column. What left before it
    was ever added is neither added nor taken away: that is why both loops look at `come` and `gone`.
    """
    gone, come = bounds[0, GONE], bounds[0, IN]
    for w in range(1, len(bounds)):
        for s in range(gone - shift, min(bounds[w, GONE], come) - shift):
            running[slot_group[s], 0] -= own[s, 0]
        gone = bounds[w, GONE]
        for s in range(max(come, gone) - shift, bounds[w, IN] - shift):
            running[slot_group[s], 0] += own[s, 0]
        come = bounds[w, IN]
        for row in range(bounds[w - 1, ROWS], bounds[w, ROWS]):
            into[row, 0] = running[row_group[row], 0]


@entry
def sums(bounds, shift, slot_group, slot_next, row_group, row_head, own, running, into) -> None:
    """As `counts`, for exact sums. In `running`, ODD is how many slots have odd values: which, is asked of these.

    Limbs are added and taken away one by one; `own`, `running` and `into` have the same limbs. Odd values can't be taken
    away from a mask (was another NaN there?), so `running` counts slots that have any, and the mask is made anew from the
    slots of the row.
    """
    width = own.shape[1]
    gone, come = bounds[0, GONE], bounds[0, IN]
    for w in range(1, len(bounds)):
        for s in range(gone - shift, min(bounds[w, GONE], come) - shift):
            total, part = running[slot_group[s]], own[s]
            total[COUNT] -= part[COUNT]
            total[ODD] -= part[ODD] != 0
            for k in range(LIMBS, width):
                total[k] -= part[k]
        gone = bounds[w, GONE]
        for s in range(max(come, gone) - shift, bounds[w, IN] - shift):
            total, part = running[slot_group[s]], own[s]
            total[COUNT] += part[COUNT]
            total[ODD] += part[ODD] != 0
            for k in range(LIMBS, width):
                total[k] += part[k]
        come = bounds[w, IN]
        for row in range(bounds[w - 1, ROWS], bounds[w, ROWS]):
            total, found = running[row_group[row]], into[row]
            for k in range(width):
                found[k] = total[k]
            if total[ODD] != 0:
                found[ODD] = 0
                s = row_head[row]
                while s >= 0 and s < come:
                    found[ODD] |= own[s - shift, ODD]
                    s = slot_next[s - shift]


@entry
def edges(bounds, shift, slot_next, row_head, last, own, into) -> None:
    """The first (or last) slot of each row that holds one: `core.kernels.panes.edge`.

    For `first` the walk ends at the first slot that has a tuple; for `last` it goes through the group's slots of the
    window.
    """
    for w in range(1, len(bounds)):
        come = bounds[w, IN]
        for row in range(bounds[w - 1, ROWS], bounds[w, ROWS]):
            into[row, 0] = 0
            into[row, 1] = 0
            s = row_head[row]
            while s >= 0 and s < come:
                if own[s - shift, 0] != 0:
                    into[row, 0] = own[s - shift, 0]
                    into[row, 1] = own[s - shift, 1]
                    if not last:
                        break
                s = slot_next[s - shift]


@entry
def list_pairs(bounds, shift, slot_next, row_head, targets, slots) -> int:
    """Each row's slots, in the order of panes; gives how many there are, of which those that have room are written.

    Called twice: with empty arrays it only counts. `targets` are rows, `slots` places of slots now; int64.
    """
    number = shift - shift
    for w in range(1, len(bounds)):
        come = bounds[w, IN]
        for row in range(bounds[w - 1, ROWS], bounds[w, ROWS]):
            s = row_head[row]
            while s >= 0 and s < come:
                if number < len(targets):
                    targets[number] = row
                    slots[number] = s - shift
                number += 1
                s = slot_next[s - shift]
    return number
