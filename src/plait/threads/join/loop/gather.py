"""The rings of results, the gatherer's side: one sequence of all of them. SplitJoin's Mergers (section 5, algorithm 5).

Each worker says up to which trigger it is done: a punctuation. So of what the rings begin with the least is next, if no
worker whose ring is empty can still come with less: that is what its punctuation says. One whose ring has something can't,
done or not: so a worker that waits for room, in the midst of a trigger even, is never waited for.

Precision is the caller's, in two numbers (`Precision`). `every`: STRICT compares trigger and partner; k > 0 takes, between two
multiples of k triggers, what each worker has, worker by worker (k = 1: triggers in order, partners as they come); NEVER takes
whatever is there. `block`, with k = 1: within a trigger, the same between two multiples of so many tuples of the other stream.
Unmatched rows, which have no trigger, stand at their moment all the same. One that several workers compare is a result if all
of them have put it into their rings (`words.ALONE`): it stands at one place in each, so they come together. What is taken
between two cuts, a stretch, is taken from one ring without looking at the others again: that is what a lower precision saves
here.

Whoever reads results gathers from all workers; or from mergers, which gather from workers or other mergers, each in a thread
of its own (`work_merger`), and publish what they have as workers do: to whom it gathers for, a merger's memory is a
worker's. A merger says that it is done with a trigger when its rings are, and all that they had of it is in its own.

Whose ring is read by whom never changes, so one thread gathers from a ring at a time. It releases OUT_HEAD after it has
copied; workers and mergers that wait for room acquire it.

An example. Ring 0 begins with a result of trigger rank 5; ring 1 is empty, and worker 1 has said DONE_RANK 5: it may
still come with a result of rank 5 whose partner comes before, so nothing is given out. When it says 6, it can't. Had
ring 1 something of rank 7, that would be enough too: its ring is in order, so nothing of rank 5 follows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import fence, fetch_add, load_acquire, sched_yield, store_release, wake_all
from plait.threads.atomics.native import clock_ns, compiled, inner, ints
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.join.loop import words as o
from plait.threads.join.loop.out import publish_progress

SLICE_NS: Final = 1_000_000_000
SPINS: Final = 2  # looks at the rings before a merger sleeps

STRICT: Final = 0
NEVER: Final = -1
ENDED: Final = -1
FULL: Final = -2  # of a merger: its own ring has no room

# What is known of each worker: where its ring ends, and up to which rank and ts it is done. HEAD is scratch: the trigger that its
# ring begins with.
TAIL, RANK, TS, HEAD = range(4)
KNOWN: Final = 4
CLOCK: Final = 4  # of `seen`
FURTHEST: Final = 6
SETTLED: Final = 7
SEEN: Final = 8

# A merger's own words: with intervals of triggers, a rank and what was live on either side when its rings were done with it.
DUE_RANK: Final = o.OWN
DUE_LIVE: Final = o.OWN + 1


class Precision(NamedTuple):
    """How exactly results are ordered.

    `triggers`: STRICT, NEVER, or a cut every so many triggers. `comparisons`: with STRICT or one trigger, 0 or a mark and a cut
    every so many comparisons of each sub-window.
    """

    triggers: int
    comparisons: int = 0

    def block(self, sub_windows: int) -> int:
        """How many tuples of the other stream lie between two cuts within a trigger; 0: none."""
        return self.comparisons * sub_windows if self.triggers == 1 else 0


# --- a merger's thread, or whoever reads, gathers ------------------------------------------------------------------------


@compiled
def gather_waiting(c, rings, taken, known, every, block, most, dest, seen, nanoseconds):
    """As `gather`, but sleep up to `nanoseconds` where there is nothing.

    Returns early, with 0, when all workers have passed a later ts or the run is halted: the caller then tells the next
    operator of a query how far time has come.
    """
    number = gather(c, rings, taken, known, every, block, most, dest, seen)
    for _ in range(2):
        if number != 0:
            return number
        sched_yield()
        number = gather(c, rings, taken, known, every, block, most, dest, seen)
    if number != 0 or nanoseconds <= 0:
        return number
    ticket = prepare(c, o.OUT_EVENT)
    number = gather(c, rings, taken, known, every, block, most, dest, seen)
    if number != 0:
        cancel(c, o.OUT_EVENT)
        return number
    # Every worker that has done something wakes the gatherer, and only the last of them lets it take anything: the others
    # are no reason to go back to Python.
    until = clock_ns(seen, CLOCK) + nanoseconds
    ts = seen[3]
    while True:
        sleep(c, o.OUT_EVENT, ticket, nanoseconds)
        number = gather(c, rings, taken, known, every, block, most, dest, seen)
        if number != 0 or seen[3] > ts or load_acquire(c, shared.HALT) != 0:
            return number
        nanoseconds = until - clock_ns(seen, CLOCK)
        if nanoseconds <= 0:
            return number
        ticket = prepare(c, o.OUT_EVENT)
        number = gather(c, rings, taken, known, every, block, most, dest, seen)
        if number != 0 or seen[3] > ts or load_acquire(c, shared.HALT) != 0:
            cancel(c, o.OUT_EVENT)
            return number


@compiled
def gather(c, rings, taken, known, every, block, most, dest, seen):
    """Take the next results, up to `most`: how many; ENDED if there can't be any more.

    `known` is for what each worker says, `taken` for how much of its ring is taken. `seen` receives the least ts still live on
    either side, and the rank and the ts up to which all results are out; two more words of it are for the clock; then the rank
    that some worker is done with, and whether rings are `settled`.

    `rings`: addresses of the words of workers or mergers. `dest`: int64[5, most], one column a result, filled by this call; the
    caller copies it before the next. What the workers say is read before anything is taken, and only that is gone by.
    """
    n = len(rings)
    rank, ts = AFTER_ALL, AFTER_ALL
    seen[0], seen[1] = AFTER_ALL, AFTER_ALL
    for k in range(n):
        w = ints(rings[k], o.WORDS)
        # What is live first: it may be older than the rank, never newer, or payload would go before its results.
        for side in range(2):
            seen[side] = min(seen[side], load_acquire(w, o.LIVE_TS + side))
        # Then the ts, then the rank: whoever sees a ts sees the rank of all tuples below it. The other way round an unmatched
        # row could go before a result that is due earlier.
        known[TS, k] = load_acquire(w, o.DONE_TS)
        known[RANK, k] = load_acquire(w, o.DONE_RANK)
        # The ring after them: what it has is all there is below.
        known[TAIL, k] = load_acquire(w, o.OUT_TAIL)
        taken[k] = w[o.OUT_HEAD]
        ts, rank = min(ts, known[TS, k]), min(rank, known[RANK, k])
    seen[2], seen[3] = rank, ts
    count = merge(rings, taken, known, every, block, most, dest)
    seen[FURTHEST] = known[RANK, 0]
    for k in range(1, n):
        seen[FURTHEST] = max(seen[FURTHEST], known[RANK, k])
    seen[SETTLED] = 1 if settled(taken, known) else 0
    moved = False
    for k in range(n):
        w = ints(rings[k], o.WORDS)
        moved = moved or taken[k] != w[o.OUT_HEAD]
        store_release(w, o.OUT_HEAD, taken[k])
    if moved:
        fence()
        if load_acquire(c, o.ROOM_SLEEPERS) > 0:
            fetch_add(c, o.ROOM_EVENT, 1)
            wake_all(c, o.ROOM_EVENT)
    if count > 0:
        return count
    if ts == AFTER_ALL:
        for k in range(n):
            if taken[k] < known[TAIL, k]:
                return 0
        return ENDED
    return 0


@inner
def merge(rings, taken, known, every, block, most, dest):
    """The next results in order, as far as they are certain; how many.

    With one ring, or without any order, it is a copy.
    """
    n = len(rings)
    first = ints(rings[0], o.WORDS)  # what every worker's words say of the join
    unmatched = (first[o.ALONE] | first[o.ALONE + 1]) != 0
    count = merge_pairs(rings, taken, known, most, dest) if every == STRICT and n > 1 else 0
    while count < most:
        best = -1
        for k in range(n):
            if taken[k] == known[TAIL, k]:
                continue
            if every == NEVER:
                best = k
                break
            if best >= 0:
                v, w = ints(rings[best], o.WORDS), ints(rings[k], o.WORDS)
                mine, other = (taken[best] & v[o.OUT_MASK]) * o.E_WORDS, (taken[k] & w[o.OUT_MASK]) * o.E_WORDS
                if first_is_less(entries(v), mine, entries(w), other, every, block):
                    continue
            best = k
        if best < 0:
            break
        w = ints(rings[best], o.WORDS)
        a = entries(w)
        i = (taken[best] & w[o.OUT_MASK]) * o.E_WORDS
        # As long as one worker is the only one there is nothing to compare.
        alone = n == 1 or every == NEVER
        if not alone and held_back(best, a[i + o.E_TS], a[i + o.E_TRIGGER], taken, known, every, block, unmatched):
            return count
        if a[i + o.E_TRIGGER] >= o.UNMATCHED:
            side = a[i + o.E_TRIGGER] & 1
            asked = first[o.ALONE + side]
            if asked < 0:
                asked = -a[i + o.E_RIGHT - side]
            if first[o.ALONE + side] < 0 or asked > 1:
                if take_alike(rings, taken, known, a, i) == asked:
                    for word in range(o.E_WORDS):
                        dest[word, count] = a[i + word]
                    if first[o.ALONE + side] < 0:
                        dest[o.E_RIGHT - side, count] = o.NO_ROW
                    count += 1
                continue
        more = True
        while more:
            for word in range(o.E_WORDS):
                dest[word, count] = a[i + word]
            count += 1
            taken[best] += 1
            more = count < most and taken[best] < known[TAIL, best]
            if more and not alone:
                j = (taken[best] & w[o.OUT_MASK]) * o.E_WORDS
                more = every > 0 and same_stretch(a, i, j, every, block)
            i = (taken[best] & w[o.OUT_MASK]) * o.E_WORDS
    return count


@inner
def merge_pairs(rings, taken, known, most, dest):
    """As `merge`, in full order, until a ring begins with a row without partner: how many. It is what a reader of many workers
    waits for, since only one thread can do it.

    Triggers are ranks, so two numbers say how far a ring may be taken without a look at the others: the least trigger that
    another one begins with (`after`), and the rank from which on a worker whose ring is empty may still come with something
    (`limit`, by `held_back`). Where two rings begin with one trigger, partners are compared for each result.
    """
    n, limit, count, alone = len(rings), AFTER_ALL, 0, False
    for k in range(n):
        known[HEAD, k] = head_of(rings, taken, known, k)
        alone = alone or o.UNMATCHED <= known[HEAD, k] < AFTER_ALL
        if taken[k] == known[TAIL, k] and known[TS, k] != AFTER_ALL:
            limit = min(limit, known[RANK, k])
    while count < most and not alone:
        best, least, after = -1, AFTER_ALL, AFTER_ALL
        for k in range(n):
            head = known[HEAD, k]
            if head < least:
                best, least, after = k, head, least
            elif head < after:
                after = head
        if best < 0 or least >> 1 >= limit:
            break
        if least == after:
            best = least_partner(rings, taken, known, least)
        w = ints(rings[best], o.WORDS)
        a, mask, tail = entries(w), w[o.OUT_MASK], known[TAIL, best]
        at, end = taken[best], min(tail, taken[best] + most - count)
        more = True
        while more:
            i = (at & mask) * o.E_WORDS
            for word in range(o.E_WORDS):
                dest[word, count] = a[i + word]
            at, count = at + 1, count + 1
            more = at < end
            if more:
                trigger = a[(at & mask) * o.E_WORDS + o.E_TRIGGER]
                more = trigger < after and trigger >> 1 < limit and trigger < o.UNMATCHED
        taken[best] = at
        known[HEAD, best] = head_of(rings, taken, known, best)
        alone = o.UNMATCHED <= known[HEAD, best] < AFTER_ALL
        if at == tail and known[TS, best] != AFTER_ALL:
            limit = min(limit, known[RANK, best])
    return count


@inner
def head_of(rings, taken, known, k):
    """The trigger that ring k begins with; AFTER_ALL where it has nothing."""
    if taken[k] == known[TAIL, k]:
        return AFTER_ALL
    w = ints(rings[k], o.WORDS)
    return entries(w)[(taken[k] & w[o.OUT_MASK]) * o.E_WORDS + o.E_TRIGGER]


@inner
def least_partner(rings, taken, known, trigger):
    """Of the rings that begin with this trigger the one with the least partner; of equal ones the first."""
    best, least = -1, 0
    for k in range(len(rings)):
        if known[HEAD, k] == trigger:
            w = ints(rings[k], o.WORDS)
            partner = entries(w)[(taken[k] & w[o.OUT_MASK]) * o.E_WORDS + o.E_PARTNER]
            if best < 0 or partner < least:
                best, least = k, partner
    return best


@inner
def take_alike(rings, taken, known, a, i):
    """Take an unmatched row from every ring that begins with it: how many do. It is entry i of one of them.

    What a ring begins with is no less, since this is the least; and a worker whose ring is empty is past its moment.
    """
    number = 0
    for k in range(len(rings)):
        if taken[k] < known[TAIL, k]:
            w = ints(rings[k], o.WORDS)
            b, j = entries(w), (taken[k] & w[o.OUT_MASK]) * o.E_WORDS
            if (
                b[j + o.E_TS] == a[i + o.E_TS]
                and b[j + o.E_TRIGGER] == a[i + o.E_TRIGGER]
                and b[j + o.E_PARTNER] == a[i + o.E_PARTNER]
            ):
                taken[k] += 1
                number += 1
    return number


@inner
def same_stretch(a, i, j, every, block):
    """Whether entry j of a ring may follow entry i without a look at other rings: no cut lies between them.

    Whoever may still come with something of their stretch was looked at for i. An unmatched row is a stretch of its own.
    """
    mine, next_one = a[i + o.E_TRIGGER], a[j + o.E_TRIGGER]
    if next_one >= o.UNMATCHED or mine >= o.UNMATCHED or (mine >> 1) // every != (next_one >> 1) // every:
        return False
    return block == 0 or a[i + o.E_PARTNER] // block == a[j + o.E_PARTNER] // block


@inner
def first_is_less(a, i, b, j, every, block):
    """Whether entry i of worker a's ring goes before entry j of b's, b being the worker of the higher number.

    Entries are compared by ts, trigger, partner, which are their first three words. An unmatched row's trigger is
    above all others, so it stands after the pairs of its ts.
    """
    # An unmatched row has no trigger but its moment, whatever the precision: after the results at it, before all later ones.
    alone = a[i + o.E_TRIGGER] >= o.UNMATCHED or b[j + o.E_TRIGGER] >= o.UNMATCHED
    if every > 0 and not alone:
        mine, other = (a[i + o.E_TRIGGER] >> 1) // every, (b[j + o.E_TRIGGER] >> 1) // every
        if block > 0 and mine == other:
            mine, other = a[i + o.E_PARTNER] // block, b[j + o.E_PARTNER] // block
        return mine <= other
    for word in range(3):
        if a[i + word] != b[j + word]:
            return a[i + word] < b[j + word]
    return True


@inner
def held_back(k, entry_ts, trigger, taken, known, every, block, unmatched):
    """Whether a worker whose ring is empty may still have something that goes before this entry of worker k.

    `trigger` is 2 * rank + side; `k` the worker whose entry it is. With a punctuation interval, what counts is which
    interval an entry falls into; inside one the workers of lower numbers go first, unless one of the others may still come with
    an unmatched row that is due before. How far a worker is within a trigger nobody says: with cuts there, all must be done
    with it.
    """
    for j in range(len(taken)):
        if j == k or taken[j] < known[TAIL, j] or known[TS, j] == AFTER_ALL:
            continue
        if trigger >= o.UNMATCHED:
            if entry_ts >= known[TS, j]:
                return True
        elif every > 0 and block == 0:
            mine, theirs = (trigger >> 1) // every, known[RANK, j] // every
            if mine > theirs or (mine == theirs and (k > j or (unmatched and entry_ts > known[TS, j]))):
                return True
        elif trigger >> 1 >= known[RANK, j]:
            return True
    return False


@inner
def entries(w):
    return ints(w[o.OUT], (w[o.OUT_MASK] + 1) * o.E_WORDS)


@inner
def settled(taken, known):
    """Whether no result is left in the rings that may name a row which is live no more: all are empty, or all workers as far.

    A worker that is ahead of another may have such results, which wait for the other one; what it says is live is so after them.
    """
    empty, alike = True, True
    for k in range(len(taken)):
        empty = empty and taken[k] == known[TAIL, k]
        alike = alike and known[RANK, k] == known[RANK, 0]
    return empty or alike


# --- a merger passes on -------------------------------------------------------------------------------------------------


@inner
def pass_on(c, m, rings, taken, known, every, block, dest, seen):
    """Results and punctuation of a merger's rings into its own: how many, 1 if it only learnt how far they are, 0 if there is
    nothing new, FULL or ENDED.
    """
    tail = m[o.EMIT_TAIL]
    room = m[o.OUT_MASK] + 1 - (tail - load_acquire(m, o.OUT_HEAD))
    if room == 0:
        return FULL
    most = min(room, dest.shape[1])
    number = gather(c, rings, taken, known, every, block, most, dest, seen)
    out, mask = entries(m), m[o.OUT_MASK]
    for k in range(number):
        at = ((tail + k) & mask) * o.E_WORDS
        for word in range(o.E_WORDS):
            out[at + word] = dest[word, k]
    if number > 0:
        m[o.EMIT_TAIL] = tail + number
    news = number > 0
    left, right = m[o.LIVE_TS], m[o.LIVE_TS + 1]
    if number < most:
        # All that is certain is here. Of an interval that is not over, a ring may keep what its worker is done with.
        rank = seen[2] if every <= 1 else seen[2] // every * every
        if every <= 1:
            if settled(taken, known):
                left, right = seen[0], seen[1]
        elif rank >= m[DUE_RANK]:
            left, right = m[DUE_LIVE], m[DUE_LIVE + 1]
            m[DUE_RANK], m[DUE_LIVE], m[DUE_LIVE + 1] = seen[2], seen[0], seen[1]
        news = news or rank > m[o.RANK] or seen[3] > m[o.FRONTIER] or left > m[o.LIVE_TS] or right > m[o.LIVE_TS + 1]
        m[o.RANK], m[o.FRONTIER] = rank, seen[3]
    if news:
        publish_progress(c, m, m[o.FRONTIER], left, right)
    if number == ENDED:
        return ENDED
    return max(number, 1 if news else 0)


@compiled
def work_merger(c, m, rings, taken, known, every, block, dest, seen):
    """Run until there is a reason to return to Python: HALTED, STOPPED or FINISHED.

    `m` is the merger's memory, as a worker's; `rings` and what follows are as in `gather`. It sleeps where its rings have
    nothing, on the event that workers wake the gatherer by; and where its own is full, with workers that wait for room.
    """
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        number = pass_on(c, m, rings, taken, known, every, block, dest, seen)
        looks = 0
        while looks < SPINS and (number == 0 or number == FULL):
            sched_yield()
            number = pass_on(c, m, rings, taken, known, every, block, dest, seen)
            looks += 1
        if number == 0 or number == FULL:
            event, before = o.OUT_EVENT if number == 0 else o.ROOM_EVENT, number
            ticket = prepare(c, event)
            number = pass_on(c, m, rings, taken, known, every, block, dest, seen)
            if number == before and load_acquire(c, shared.HALT) == 0:
                sleep(c, event, ticket, SLICE_NS)
            else:
                cancel(c, event)
        if number == ENDED:
            return o.FINISHED


# --- samples of how long tuples took, for whoever asks ----------------------------------------------------------------------


@compiled
def take_samples(workers, dest):
    """Samples that these workers have noted, into `dest`, int64[most, S_WORDS]; how many."""
    count = 0
    for k in range(len(workers)):
        w = ints(workers[k], o.WORDS)
        tail, head = load_acquire(w, o.SAMPLE_TAIL), w[o.SAMPLE_HEAD]
        rows = ints(w[o.SAMPLES], o.SAMPLE_ROOM * o.S_WORDS)
        while head < tail and count < len(dest):
            at = (head & (o.SAMPLE_ROOM - 1)) * o.S_WORDS
            for word in range(o.S_WORDS):
                dest[count, word] = rows[at + word]
            head += 1
            count += 1
        store_release(w, o.SAMPLE_HEAD, head)
    return count
