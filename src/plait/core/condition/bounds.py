"""Where an integer can lie: exact intervals, from the minima and maxima of the data.

Integer arithmetic is exact, machine words are not. An expression may be computed in a word of 32 or 64 bits if, and
only if, the interval of every one of its nodes fits that word. Intervals are pairs of Python integers, so computing
them can't overflow; they may be wider than what the data reaches, never narrower.

Example: x in (0, 100) and y in (-5, 5) give x - y in (-5, 105), which fits every word from int8 on. x * y gives (-500,
500): int8 would wrap, int32 holds it. tests/core/condition/test_proof.py tries that no interval is too narrow.
"""

from __future__ import annotations

from typing import Final

import numpy as np

Interval = tuple[int, int]

WORDS: Final[dict[str, Interval]] = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
}
INT32: Final = WORDS["int32"]
INT64: Final = WORDS["int64"]


def fits(interval: Interval, word: Interval) -> bool:
    """Whether a word holds every integer of an interval."""
    return word[0] <= interval[0] and interval[1] <= word[1]


def union(a: Interval | None, b: Interval | None) -> Interval | None:
    """The least interval that holds both. None stands for nothing at all, not for everything."""
    if a is None or b is None:
        return b if a is None else a
    return joined(a, b)


def joined(a: Interval, b: Interval) -> Interval:
    """The least interval that holds both: where a choice between the two can lie."""
    return min(a[0], b[0]), max(a[1], b[1])


def rounded(interval: Interval) -> Interval:
    """A wider interval that seldom changes as data grow: its ends are one off powers of two. It fits the same words.

    (3, 100) becomes (0, 127). If intervals were exact, each larger value would be a reason to choose kernels again; so
    that happens at most once a bit.
    """
    low, high = interval
    return (-(1 << (-1 - low).bit_length()) if low < 0 else 0), ((1 << high.bit_length()) - 1 if high > 0 else 0)


def of_array(values: np.ndarray) -> Interval:
    """The interval of an integer array (any width, or Python integers); nothing lies in (0, 0)."""
    if len(values) == 0:
        return 0, 0
    return int(values.min()), int(values.max())


def unary(op: str, a: Interval) -> Interval:
    """The interval of -x or of abs(x). `op` is "neg" or "abs". -2^63 has no positive partner in 64 bits: the interval
    says so, since it has no ends of its own.
    """
    if op == "neg":
        return -a[1], -a[0]
    if a[0] >= 0:
        return a
    return (0 if a[1] >= 0 else -a[1]), max(-a[0], a[1])


def binary(op: str, a: Interval, b: Interval) -> Interval:
    """The interval of an integer operation; division by zero gives NULL, so a zero divisor adds nothing."""
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    if op in ("least", "greatest"):
        return joined(a, b)  # not min of maxima: NULL gives way to the other operand
    widest = max(abs(a[0]), abs(a[1]))
    if op == "floordiv":
        return -widest, widest
    divisor = max(abs(b[0]), abs(b[1]), 1)
    if op == "mod":  # the sign of the divisor
        return (0 if b[0] >= 0 else 1 - divisor), (0 if b[1] <= 0 else divisor - 1)
    reach = min(widest, divisor - 1)  # sqlmod: the sign of the dividend
    return (0 if a[0] >= 0 else -reach), (0 if a[1] <= 0 else reach)


def cast(a: Interval | None, to: str) -> Interval:
    """What does not fit becomes NULL, so the result lies in the target, whatever the source (None: a float)."""
    word = WORDS[to]
    if a is None:
        return word
    low, high = max(a[0], word[0]), min(a[1], word[1])
    return (low, high) if low <= high else (0, 0)
