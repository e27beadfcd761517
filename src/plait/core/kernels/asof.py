"""As-of over whole stretches: of each left tuple the right one behind it, or ahead of it, in one pass over both sides.

Both sides are in total order. A pass keeps in `last`, by code, the place of the right tuple that it met last, and in `other` that
of the one before; a code below 0 equals nothing. So a tuple costs a look-up in a table of as many words as there are codes.
"""

from __future__ import annotations

from plait.core.machine.marks import entry

NONE = -1


@entry
def look_back(left_ts, left_code, own, right_ts, right_code, exact, within, last, other, out) -> None:  # type: ignore[no-untyped-def]
    """Into `out` the place of the last right tuple at or before each left one (before it, unless `exact`); NONE if there is none.

    `own` is the place of the left tuple itself on the right side, which is no candidate; NONE if it is not there. `within`: how
    far away it may be, below 0 if it does not matter. `last` and `other` are NONE at first; at the end `last` has the last right
    tuple of each code: all of them were passed.
    """
    r, n = 0, len(right_ts)
    for i in range(len(left_ts)):
        ts = left_ts[i]
        while r < n and (right_ts[r] < ts or (exact and right_ts[r] == ts)):
            code = right_code[r]
            if code >= 0:
                other[code] = last[code]
                last[code] = r
            r += 1
        found, code = NONE, left_code[i]
        if code >= 0:
            found = last[code]
            if found != NONE and found == own[i]:
                found = other[code]
            # Not the distance, which may be more than 63 bits hold. If the nearest one is too far away, all beyond it are.
            if found != NONE and within >= 0 and right_ts[found] < ts - within:
                found = NONE
        out[i] = found
    while r < n:
        code = right_code[r]
        if code >= 0:
            last[code] = r
        r += 1


@entry
def look_ahead(left_ts, left_code, own, right_ts, right_code, exact, within, last, other, out) -> None:  # type: ignore[no-untyped-def]
    """The same of the first right tuple at or after each left one (after it, unless `exact`), from the end backwards."""
    r = len(right_ts) - 1
    for k in range(len(left_ts)):
        i = len(left_ts) - 1 - k
        ts = left_ts[i]
        while r >= 0 and (right_ts[r] > ts or (exact and right_ts[r] == ts)):
            code = right_code[r]
            if code >= 0:
                other[code] = last[code]
                last[code] = r
            r -= 1
        found, code = NONE, left_code[i]
        if code >= 0:
            found = last[code]
            if found != NONE and found == own[i]:
                found = other[code]
            if found != NONE and within >= 0 and right_ts[found] - within > ts:
                found = NONE
        out[i] = found
