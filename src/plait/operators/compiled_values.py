"""What a compiled operator may give out where a number is declared: as strict as the reference is, when it is compiled."""

from __future__ import annotations

from numba import float64, int64, types
from numba.core.errors import TypingError
from numba.extending import overload


def whole(value):
    """An integer, where one is declared."""
    return int(value)


def real(value):
    return float(value)


def truth(value):
    return bool(value)


def bucket_number(value):
    """A bucket's number; a negative one is none."""
    return -9 if value < 0 else int(value)


def _require(value, accepted, what):
    if not isinstance(value, accepted):
        raise TypingError(f"{value} where {what} is declared")


@overload(whole)
def _whole(value):
    _require(value, (types.Integer,), "an integer")
    return lambda value: int64(value)


@overload(real)
def _real(value):
    _require(value, (types.Float, types.Integer), "a float")
    return lambda value: float64(value)


@overload(truth)
def _truth(value):
    _require(value, (types.Boolean,), "a bool")
    return lambda value: value


@overload(bucket_number)
def _bucket_number(value):
    _require(value, (types.Integer,), "a bucket's number")
    return lambda value: -9 if value < 0 else int64(value)
