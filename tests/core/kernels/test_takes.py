"""Columns of some rows by their places, against NumPy and plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from plait.core.kernels import takes


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8"])
def test_words(kind: str) -> None:
    dice = np.random.default_rng(1)
    values = dice.integers(0, 256, 100).astype(kind)
    for n in (0, 1, 7, 1000):
        places, out = dice.integers(0, 100, n), np.zeros(n, kind)
        takes.take_words(values, places, out)
        assert (out == values[places]).all()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1001])
def test_flags_become_bits(n: int) -> None:
    dice = np.random.default_rng(2)
    flags, places = dice.integers(0, 2, 50).astype(np.uint8), dice.integers(0, 50, n)
    out = np.full((n + 7) // 8, 255, np.uint8)
    assert takes.take_flags(flags, places, out) == flags[places].sum()
    assert (out == np.packbits(flags[places], bitorder="little")).all()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_texts(seed: int, kind: type) -> None:
    """Of any length, also those at the very end of either array; what lies behind them is not touched."""
    dice = np.random.default_rng(seed)
    sizes = dice.choice([0, 1, 2, 15, 16, 17, 31, 32, 33, 100], 20).astype(np.int64)
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    room = 1 << int(sizes.sum() - 1).bit_length()
    begins += 7 * room - int(sizes.sum())  # counted from the run's first byte; the last one ends where a round does
    data = dice.integers(0, 256, room).astype(np.uint8)
    places = dice.integers(0, 20, int(dice.choice([1, 2, 5, 200])))
    ends = np.zeros(len(places) + 1, kind)
    total = takes.take_ends(sizes, places, ends)
    out = np.full(total + 64, 77, np.uint8)
    takes.take_texts(data, begins, places, ends, out[:total])
    expected = [data[begins[p] % room : begins[p] % room + sizes[p]].tobytes() for p in places]
    assert [out[a:b].tobytes() for a, b in pairwise(ends)] == expected
    assert (out[total:] == 77).all()
