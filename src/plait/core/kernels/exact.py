"""Exact sums: a fixed-point superaccumulator for each group of a pane, as wide as the values it has met.

A sum is a row of int64: how many values, which of NaN and the infinities were among them, then *limbs*. Limb i has the
weight 2^(32 * (base + i)); `base` is one for all rows. A float is an integer of 53 bits times a power of two, so adding it
is three integer additions: nothing is ever rounded, and so no order, split or merge of the values can show. A limb takes
2^29 additions before it can overflow; `carry` moves what is above 32 bits on, and the topmost limb is kept free for it.

`rounded` divides by a count and rounds once, to nearest, ties to even: the only rounding there is.

Example: with base -2, limb 0 weighs 2^-64, limb 1 weighs 2^-32 and limb 2 weighs 2^0. 1.5 is 3 * 2^51 * 2^-52: adding it
adds 0 to limb 0, 2^31 to limb 1 and 1 to limb 2. Adding -1.5 adds 0, -2^31 and -1: limbs have signs of their own, and
only their weighted sum means anything. `carry` makes all but the topmost one lie in [0, 2^32) again.

A sum of doubles of every size needs 2098 bits, which is 66 limbs; usual data need a handful. So limbs are made for what
comes (`core.aggregate.sums`), and kernels say when a value lies outside.

Arrays: `sums` is int64 of shape (slots, 2 + limbs). `slot` is int64 by tuple. `bits` is int64 by tuple, the value's
pattern; `kind` says how to read it: SIGNED, UNSIGNED or FLOAT. `valid` is uint8 by tuple. `base` is in limbs, and 0 for
integers.
"""

from __future__ import annotations

import math

import numpy as np

from plait.core.machine.marks import entry, inlined

COUNT, ODD, LIMBS = 0, 1, 2
NAN, PLUS, MINUS = 1, 2, 4
SIGNED, UNSIGNED, FLOAT = 0, 1, 2
CARRY_AFTER = 1 << 28  # additions, after which limbs are carried

_LOW = np.uint64(0xFFFFFFFF)
_MANTISSA = np.uint64((1 << 52) - 1)
_HIDDEN = np.uint64(1 << 52)
_32 = np.uint64(32)


@inlined
def add_word(row, at, shift, word, sign):
    """Add sign * word * 2^shift to the limbs from `at` on; shift is below 32.

    `word` is a uint64; its two halves are shifted apart, so nothing is lost: three limbs get at most 2^33 each.
    """
    a = (word & _LOW) << shift
    b = (word >> _32) << shift
    row[at] += sign * np.int64(a & _LOW)
    row[at + 1] += sign * np.int64((a >> _32) + (b & _LOW))
    row[at + 2] += sign * np.int64(b >> _32)


@inlined
def parts(bits, kind):
    """A value as sign, integer and power of two. Not for NaN and infinities.

    A float is mantissa * 2^exponent with the hidden bit put in; subnormal numbers have none. The power is at least -1074.
    The least int64 has a magnitude of 2^63, which fits uint64.
    """
    if kind == FLOAT:
        word = np.uint64(bits)
        exponent = np.int64((word >> np.uint64(52)) & np.uint64(0x7FF))
        mantissa = word & _MANTISSA
        if exponent > 0:
            mantissa |= _HIDDEN
            exponent -= 1
        return np.int64(-1) if bits < 0 else np.int64(1), mantissa, exponent - 1074
    if kind == SIGNED and bits < 0:
        return np.int64(-1), np.uint64(0) - np.uint64(bits), np.int64(0)
    return np.int64(1), np.uint64(bits), np.int64(0)


@inlined
def odd(bits, kind):
    """Which of NaN and the infinities a value is; 0: none."""
    if kind != FLOAT or (bits >> 52) & 0x7FF != 0x7FF:
        return 0
    if np.uint64(bits) & _MANTISSA != np.uint64(0):
        return NAN
    return MINUS if bits < 0 else PLUS


@entry
def add(low, high, slot, bits, valid, kind, square, sums, base) -> int:
    """Add values (their squares) to the sums of their slots; gives the first that lies outside of the limbs, or `high`.

    A slot below zero is nobody's; a value that is not valid is skipped.

    A square of a 64-bit word is added as three products of its halves: small^2 + 2^33 * small * large + 2^64 * large^2.
    It touches five limbs, a plain value three; one more is kept free above for carries. Zeros only count.
    """
    limbs = sums.shape[1] - LIMBS
    reach = 5 if square else 3
    for i in range(low, high):
        s = slot[i]
        if s < 0 or valid[i] == 0:
            continue
        row = sums[s]
        which = odd(bits[i], kind)
        if which != 0:
            row[ODD] |= which
            row[COUNT] += 1
            continue
        sign, word, power = parts(bits[i], kind)
        if word != np.uint64(0):
            power = (2 * power if square else power) - 32 * base
            at = power >> 5
            if at < 0 or at + reach >= limbs:
                return i
            shift = np.uint64(power & 31)
            if square:
                small, large = word & _LOW, word >> _32
                add_word(row, LIMBS + at, shift, small * small, np.int64(1))
                add_word(row, LIMBS + at + 1, shift, small * large, np.int64(2))
                add_word(row, LIMBS + at + 2, shift, large * large, np.int64(1))
            else:
                add_word(row, LIMBS + at, shift, word, sign)
        row[COUNT] += 1
    return high


@entry
def range_of(low, high, slot, bits, valid, kind, square, found) -> None:
    """The limbs that values need, as `found`: the first, and the one after the last; weights in limbs, from 2^0.

    `found` is int64 of two, with a start that any value moves: [large, -large]. It stays so if no value asks for limbs.
    """
    for i in range(low, high):
        if slot[i] < 0 or valid[i] == 0 or odd(bits[i], kind) != 0:
            continue
        _, word, power = parts(bits[i], kind)
        if word != np.uint64(0):
            at = (2 * power if square else power) >> 5
            found[0] = min(found[0], at)
            found[1] = max(found[1], at + (6 if square else 4))


@entry
def add_products(low, high, slot, bits, kind, other_bits, other_kind, valid, sums, base) -> int:
    """As `add`, of the products of two columns. A product with a NaN or an infinity in it counts as NaN.

    Two words of 64 bits are multiplied by their halves, as a square is: small * small', then both mixed products, then
    large * large'.
    """
    limbs = sums.shape[1] - LIMBS
    for i in range(low, high):
        s = slot[i]
        if s < 0 or valid[i] == 0:
            continue
        row = sums[s]
        if odd(bits[i], kind) != 0 or odd(other_bits[i], other_kind) != 0:
            row[ODD] |= NAN
            row[COUNT] += 1
            continue
        sign, word, power = parts(bits[i], kind)
        other_sign, other_word, other_power = parts(other_bits[i], other_kind)
        if word != np.uint64(0) and other_word != np.uint64(0):
            power += other_power - 32 * base
            at = power >> 5
            if at < 0 or at + 5 >= limbs:
                return i
            sign *= other_sign
            shift = np.uint64(power & 31)
            small, large = word & _LOW, word >> _32
            other_small, other_large = other_word & _LOW, other_word >> _32
            add_word(row, LIMBS + at, shift, small * other_small, sign)
            add_word(row, LIMBS + at + 1, shift, small * other_large, sign)
            add_word(row, LIMBS + at + 1, shift, large * other_small, sign)
            add_word(row, LIMBS + at + 2, shift, large * other_large, sign)
        row[COUNT] += 1
    return high


@entry
def range_of_products(low, high, slot, bits, kind, other_bits, other_kind, valid, found) -> None:
    """As `range_of`, of the products of two columns."""
    for i in range(low, high):
        if slot[i] < 0 or valid[i] == 0 or odd(bits[i], kind) != 0 or odd(other_bits[i], other_kind) != 0:
            continue
        _, word, power = parts(bits[i], kind)
        _, other_word, other_power = parts(other_bits[i], other_kind)
        if word != np.uint64(0) and other_word != np.uint64(0):
            at = (power + other_power) >> 5
            found[0] = min(found[0], at)
            found[1] = max(found[1], at + 6)


@entry
def merge(low, high, target, slot, into, sums) -> None:
    """Add the sums of slots to those of their targets, which have the same limbs."""
    width = sums.shape[1]
    for i in range(low, high):
        row, other = into[target[i]], sums[slot[i]]
        row[COUNT] += other[COUNT]
        row[ODD] |= other[ODD]
        for k in range(LIMBS, width):
            row[k] += other[k]


@entry
def merge_tallies(number, target, tally, into, sums, at) -> None:
    """As `merge`, of tallies in a ring (`core.kernels.panes`); their limbs are those of `into` from the one numbered `at` on."""
    limbs, mask = sums.shape[1] - LIMBS, len(sums) - 1
    for i in range(number):
        row, other = into[target[i]], sums[tally[i] & mask]
        row[COUNT] += other[COUNT]
        row[ODD] |= other[ODD]
        for k in range(limbs):
            row[LIMBS + at + k] += other[LIMBS + k]


@entry
def carry(low, high, sums) -> None:
    """Bring every limb but the topmost back to 32 bits; the sums stay what they are.

    Python's shift of a negative number rounds down, and so does this one: a limb of -1 becomes 2^32 - 1 and takes 1 from
    the next.
    """
    for s in range(low, high):
        row = sums[s]
        for k in range(LIMBS, sums.shape[1] - 1):
            row[k + 1] += row[k] >> 32
            row[k] &= 0xFFFFFFFF


@inlined
def carried(row, digits, at):
    """The sum as digits of 32 bits in two's complement, lowest first, from digits[at] on, two more than limbs; gives its sign.

    `digits` is uint64. What is above the topmost limb goes into the two further digits, so the sign is known whatever
    limbs hold.
    """
    limbs = len(row) - LIMBS
    over = np.int64(0)
    for k in range(limbs):
        total = row[LIMBS + k] + over
        digits[at + k] = np.uint64(total & 0xFFFFFFFF)
        over = total >> 32
    digits[at + limbs] = np.uint64(over & 0xFFFFFFFF)
    digits[at + limbs + 1] = np.uint64((over >> 32) & 0xFFFFFFFF)
    return over


@inlined
def magnitude(row, digits):
    """The sum as digits of 32 bits, lowest first, from digits[3] on; gives its sign. `digits` has room for 5 more than limbs.

    The three digits below are zeros, which `divided` fills with what a division leaves.
    """
    limbs = len(row) - LIMBS
    digits[0] = digits[1] = digits[2] = np.uint64(0)
    if carried(row, digits, 3) >= 0:
        return np.int64(1)
    borrow = np.uint64(1)
    for k in range(3, 5 + limbs):
        digit = ((~digits[k]) & _LOW) + borrow
        digits[k] = digit & _LOW
        borrow = digit >> _32
    return np.int64(-1)


@inlined
def divided(digits, count):
    """Divide in place by a number below 2^32, as far as a float needs it; gives whether anything is left over or below.

    Four digits from the topmost one on, divided, have 64 bits at the least: more than are kept. What is below is set to 0.

    `count` is uint64. Only the four topmost digits are divided: a float keeps 53 bits, and of what is below only whether
    there is any.
    """
    top = len(digits) - 1
    while top > 3 and digits[top] == np.uint64(0):
        top -= 1
    rest = np.uint64(0)
    for k in range(top, top - 4, -1):
        whole = rest << _32 | digits[k]
        digits[k] = whole // count
        rest = whole % count
    left = rest != np.uint64(0)
    for k in range(top - 3):
        left = left or digits[k] != np.uint64(0)
        digits[k] = np.uint64(0)
    return left


@inlined
def nearest(digits, sticky, base):
    """The float nearest to digits * 2^(32 * (base - 3)), ties to even; `sticky`: there is something below them.

    `lowest` is the last bit that a float of this size keeps: 53 bits below the first, or 2^-1074 for subnormal numbers.
    Then half a unit is looked at, and what is below it: more than half rounds up, exactly half rounds to even. Beyond the
    largest float `ldexp` gives infinity.
    """
    top = len(digits) - 1
    while top >= 0 and digits[top] == np.uint64(0):
        top -= 1
    if top < 0:
        return 0.0
    length = 0
    word = digits[top]
    while word != np.uint64(0):
        word >>= np.uint64(1)
        length += 1
    msb = 32 * top + length - 1
    origin = 32 * (base - 3)
    lowest = max(msb - 52, -1074 - origin)  # the lowest bit that is kept
    mantissa = np.uint64(0)
    for bit in range(msb, lowest - 1, -32):
        take = min(32, bit - lowest + 1)
        mantissa = mantissa << np.uint64(take) | bits_at(digits, bit - take + 1, take)
    half = bits_at(digits, lowest - 1, 1)
    if half != np.uint64(0):
        rest = sticky
        below = lowest - 1
        for k in range((below + 31) >> 5):
            part = digits[k]
            if 32 * (k + 1) > below:
                part &= (np.uint64(1) << np.uint64(below - 32 * k)) - np.uint64(1)
            rest = rest or part != np.uint64(0)
        if rest or mantissa & np.uint64(1) != np.uint64(0):
            mantissa += np.uint64(1)
    return math.ldexp(np.float64(mantissa), lowest + origin)


@inlined
def bits_at(digits, first, number):
    """`number` (at most 32) bits from bit `first` on; what lies outside is 0."""
    if first < 0:
        return np.uint64(0)
    k = first >> 5
    if k >= len(digits):
        return np.uint64(0)
    word = digits[k]
    if k + 1 < len(digits):
        word |= digits[k + 1] << _32
    return (word >> np.uint64(first & 31)) & ((np.uint64(1) << np.uint64(number)) - np.uint64(1))


@entry
def rounded(sums, base, mean, out) -> None:
    """Sums, or means, as floats. A row without values gives NaN; a count must be below 2^32.

    `out` is float64 by row. A sum whose value is 0 gives 0.0 with a plus sign, whatever signs the zeros had.
    """
    digits = np.zeros(sums.shape[1] - LIMBS + 5, np.uint64)
    for s in range(sums.shape[0]):
        row = sums[s]
        if row[ODD] != 0 or row[COUNT] == 0:
            out[s] = math.inf if row[ODD] == PLUS else -math.inf if row[ODD] == MINUS else math.nan
            continue
        sign = magnitude(row, digits)
        sticky = divided(digits, np.uint64(row[COUNT])) if mean and row[COUNT] > 1 else False
        value = nearest(digits, sticky, base)
        out[s] = -value if sign < 0 else value


@entry
def integers(sums, out) -> int:
    """Sums of integers (base 0) as int64; gives the first row that does not fit, or -1.

    `out` is int64 by row. The caller raises for the row that is given: kernels don't.
    """
    digits = np.zeros(sums.shape[1] - LIMBS + 5, np.uint64)
    for s in range(sums.shape[0]):
        sign = magnitude(sums[s], digits)
        for k in range(5, len(digits)):
            if digits[k] != np.uint64(0):
                return s
        word = digits[3] | digits[4] << _32
        if word > np.uint64(1 << 63) or (word == np.uint64(1 << 63) and sign > 0):
            return s
        out[s] = -np.int64(word) if sign < 0 else np.int64(word)
    return -1


def whole(row: np.ndarray) -> int:
    """The limbs of one row as Python's integer, to be multiplied by 2^(32 * base)."""
    return sum(int(limb) << (32 * k) for k, limb in enumerate(row[LIMBS:]))
