"""What compiled functions of a user's operator reckon with: machine code that does as Python does, or raises.

The rule: *a compiled call gives what Python would give, or it is undone and Python does it.* Each function here does one of
Python's steps on int64 and float64, and raises `Beyond` wherever a machine word is not what Python has: an integer that
would leave 64 bits, a zero divisor, an integer beyond 2^53 that meets a float, a float without an integer. It may raise too
often, never too seldom. `rewrite` puts these in the place of the operators in the user's text; `drive` undoes the call.
What Python itself does then (a NumPy integer of the state wraps and warns, Python's own grows, an error is raised) is no
concern of this module.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float64, int64

from plait.core.machine.shield import njit

_MOST, _LEAST = 9223372036854775807, -9223372036854775808
_PRODUCT = 9.2e18  # below 2^63 by more than two roundings
_EXACT = 9007199254740992  # 2^53: integers up to here are floats as they stand


class Beyond(ArithmeticError):
    """Machine code can't do what Python does here."""


_step = njit(nogil=True, error_model="python", boundscheck=True)


# --- integers ---

# Each function takes and gives machine words: int64 for «int», float64 for «float». Comparisons, & | ^ and ~ of integers
# and + - * of floats need no step, since they are the same in both.


@_step
def add_ints(a, b):
    if (b > 0 and a > _MOST - b) or (b < 0 and a < _LEAST - b):
        raise Beyond
    return a + b


@_step
def sub_ints(a, b):
    if (b < 0 and a > _MOST + b) or (b > 0 and a < _LEAST + b):
        raise Beyond
    return a - b


# The product is formed as a float first. It is within a few roundings of the true one, so below _PRODUCT no true product
# leaves 64 bits.
@_step
def mul_ints(a, b):
    if math.fabs(float64(a) * float64(b)) >= _PRODUCT:
        raise Beyond
    return a * b


# The least integer is refused as a dividend: divided by -1 it has no word.
@_step
def floordiv_ints(a, b):
    if b == 0 or a == _LEAST:
        raise Beyond
    return a // b


@_step
def mod_ints(a, b):
    if b == 0 or a == _LEAST:
        raise Beyond
    return a % b


# Python divides integers exactly and rounds once. Up to 2^53 both are floats as they stand, and one division of floats is
# just that.
@_step
def div_ints(a, b):
    if b == 0 or a > _EXACT or a < -_EXACT or b > _EXACT or b < -_EXACT:
        raise Beyond
    return float64(a) / float64(b)


# By multiplication, at most 64 times, each one checked. A negative exponent gives a float in Python, and is left to it.
@_step
def pow_ints(a, b):
    if b < 0 or b > 64:
        raise Beyond
    made = int64(1)
    for _ in range(b):
        made = mul_ints(made, a)
    return made


@_step
def lshift_ints(a, b):
    if b < 0 or b > 62:
        raise Beyond
    return mul_ints(a, int64(1) << b)


@_step
def rshift_ints(a, b):
    if b < 0 or b > 63:
        raise Beyond
    return a >> b


@_step
def neg_int(a):
    if a == _LEAST:
        raise Beyond
    return -a


@_step
def abs_int(a):
    if a == _LEAST:
        raise Beyond
    return -a if a < 0 else a


@_step
def in_float(a):
    """An integer as the float that it is: to be compared with floats, or given out as one."""
    if a > _EXACT or a < -_EXACT:
        raise Beyond
    return float64(a)


@_step
def in_range(a):
    """What `range` is given: no sum of two can leave 64 bits."""
    if a > _MOST // 4 or a < _LEAST // 4:
        raise Beyond
    return int64(a)


@_step
def in_step(a):
    if a == 0:
        raise Beyond
    return in_range(a)


# --- floats ---


@_step
def div_floats(a, b):
    if b == 0.0:
        raise Beyond
    return a / b


# Towards zero, as Python's `int`. NaN and infinities raise in Python, and fail the test here.
@_step
def int_of(a):
    if not math.fabs(a) < _PRODUCT:  # nor is NaN
        raise Beyond
    return int64(a)


@_step
def floor(a):
    made = int_of(a)
    return made - 1 if float64(made) > a else made


@_step
def ceil(a):
    made = int_of(a)
    return made + 1 if float64(made) < a else made


@_step
def sqrt(a):
    if a < 0.0:
        raise Beyond
    return math.sqrt(a)


# --- both ---


# Python's `min` of two: the first one if they tie, or if NaN makes the comparison false.
@_step
def least(a, b):
    return b if b < a else a


@_step
def greatest(a, b):
    return b if b > a else a


# --- columns, states, buckets ---


@_step
def present(value, side, inputs):
    """A column that only some of the inputs have: bits of `inputs`."""
    if not (inputs >> side) & 1:
        raise Beyond
    return value


@_step
def put(state, log, at, value):
    """A number into the state; what was there is kept in the log, from which a call is undone."""
    log.append((at, state[at]))
    state[at] = value


@_step
def bucket_number(value):
    """A bucket's number; a negative one is none."""
    return -9 if value < 0 else int64(value)


# --- timers: rows (at, bucket) of an array, a heap from row 1 on; row 0 says how many there are ---


def no_timers() -> np.ndarray:
    return np.zeros((16, 2), np.int64)


@_step
def with_timer(timers, at, bucket):
    """The array with one timer more: a larger one where it was full."""
    k = timers[0, 0] + 1
    if k == len(timers):
        more = np.empty((2 * k, 2), np.int64)
        more[:k] = timers
        timers = more
    timers[0, 0] = k
    while k > 1 and not _before(timers[k >> 1, 0], timers[k >> 1, 1], at, bucket):
        timers[k] = timers[k >> 1]
        k >>= 1
    timers[k, 0], timers[k, 1] = at, bucket
    return timers


@_step
def take_timer(timers):
    """The first timer, which is then gone."""
    first = timers[1, 0], timers[1, 1]
    count = timers[0, 0]
    at, bucket = timers[count, 0], timers[count, 1]
    timers[0, 0] = count - 1
    k = 1
    while 2 * k < count:
        child = 2 * k
        if child + 1 < count and _before(
            timers[child + 1, 0], timers[child + 1, 1], timers[child, 0], timers[child, 1]
        ):
            child += 1
        if not _before(timers[child, 0], timers[child, 1], at, bucket):
            break
        timers[k] = timers[child]
        k = child
    timers[k, 0], timers[k, 1] = at, bucket
    return first


@_step
def _before(at, bucket, other_at, other_bucket):
    return at < other_at or (at == other_at and bucket < other_bucket)
