"""Exact sums against fractions: any values, any split, any order of merging, rounded once."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from plait.core.kernels import exact

SEED = 5
ONE = np.ones(64, np.uint8)


def drawn(dice: random.Random, mode: str) -> float:
    match mode:
        case "near":
            return dice.uniform(-1000, 1000)
        case "any exponent":
            return math.ldexp(dice.uniform(-1, 1), dice.randint(-1074, 1023))
        case "subnormal":
            return dice.randint(-5, 5) * 5e-324
        case _:
            return dice.choice((1e308, -1e308, 1.7976931348623157e308, 5e-324, -0.0, 0.0, 1.0, 2.0**-53))


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def summed(
    bits: np.ndarray, slot: np.ndarray, slots: int, kind: int, *, square: bool = False
) -> tuple[np.ndarray, int]:
    """Sums of all slots, and their base."""
    found = np.array([1 << 40, -(1 << 40)])
    exact.range_of(0, len(bits), slot, bits, ONE, kind, square, found)
    if found[1] < found[0]:
        found[:] = 0, 4
    sums = np.zeros((slots, exact.LIMBS + int(found[1] - found[0])), np.int64)
    assert exact.add(0, len(bits), slot, bits, ONE, kind, square, sums, int(found[0])) == len(bits)
    return sums, int(found[0])


@pytest.mark.parametrize("mode", ["near", "any exponent", "subnormal", "extreme"])
def test_sums_and_means_in_any_split(mode: str) -> None:
    dice = random.Random(SEED)
    for _ in range(300):
        values = [drawn(dice, mode) for _ in range(dice.randint(1, 12))]
        n, slots = len(values), dice.randint(1, 4)
        slot = np.array([dice.randrange(slots) for _ in values])
        sums, base = summed(np.array(values).view(np.int64), slot, slots, exact.FLOAT)
        if dice.random() < 0.5:
            exact.carry(0, slots, sums)
        order = np.array(dice.sample(range(slots), slots))
        merged = np.zeros((1, sums.shape[1]), np.int64)
        exact.merge(0, slots, np.zeros(slots, np.int64), order, merged, sums)
        total = sum(map(Fraction, values), Fraction(0))
        for mean, wanted in ((False, total), (True, total / n)):
            out = np.zeros(1)
            exact.rounded(merged, base, mean, out)
            assert out[0].hex() == rounded(wanted).hex(), values


def test_squares() -> None:
    dice = random.Random(SEED)
    for mode in ("near", "any exponent", "subnormal"):
        values = [drawn(dice, mode) for _ in range(40)]
        sums, base = summed(np.array(values).view(np.int64), np.zeros(40, np.int64), 1, exact.FLOAT, square=True)
        found = Fraction(exact.whole(sums[0])) * Fraction(2) ** (32 * base)
        assert found == sum(Fraction(v) ** 2 for v in values)


@pytest.mark.parametrize("values", [[2**63 - 1, -1], [-(2**63), 1, -1], [2**62, 2**62 - 1], [5, -7], [0]])
def test_integers_that_fit(values: list[int]) -> None:
    sums, _ = summed(np.array(values), np.zeros(len(values), np.int64), 1, exact.SIGNED)
    out = np.zeros(1, np.int64)
    assert exact.integers(sums, out) == -1
    assert out[0] == sum(values)


@pytest.mark.parametrize("values", [[2**63 - 1, 1], [-(2**63), -1], [2**62, 2**62]])
def test_integers_that_do_not(values: list[int]) -> None:
    sums, _ = summed(np.array(values), np.zeros(len(values), np.int64), 1, exact.SIGNED)
    assert exact.integers(sums, np.zeros(1, np.int64)) == 0
    assert exact.whole(sums[0]) == sum(values)


def test_carrying_keeps_the_sum() -> None:
    """Limbs that hold all they may are brought back to 32 bits, above and below zero."""
    for sign in (1, -1):
        sums = np.zeros((1, exact.LIMBS + 5), np.int64)
        sums[0, exact.LIMBS : exact.LIMBS + 3] = sign * 2**61, -sign * 2**60, sign * 3
        before = exact.whole(sums[0])
        exact.carry(0, 1, sums)
        assert exact.whole(sums[0]) == before
        assert (sums[0, exact.LIMBS : -1] >= 0).all()
        assert (sums[0, exact.LIMBS : -1] < 2**32).all()
