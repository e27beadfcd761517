"""Sources' tallies brought together: every source's stretch of its own ring, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from plait.threads.aggregate.hive import parts


@pytest.mark.parametrize("seed", range(5))
def test_all_stretches_in_the_order_of_sources(seed: int) -> None:
    dice = np.random.default_rng(seed)
    sources = int(dice.integers(1, 6))
    sizes = 1 << dice.integers(2, 7, sources)  # rings of different lengths
    first = dice.integers(0, 1000, sources)
    end = first + dice.integers(1, sizes + 1)  # some go over the end of their ring
    where = parts.stretches(first, end)
    assert where.total == (end - first).sum()

    kept = [dice.integers(0, 99, (3, size)) for size in sizes]
    words = np.zeros((3, where.total), np.int64)
    parts.keys(kept, where, words)
    numbers = [np.arange(low, high) & (size - 1) for low, high, size in zip(first, end, sizes, strict=True)]
    assert (words == np.concatenate([ring[:, at] for ring, at in zip(kept, numbers, strict=True)], axis=1)).all()

    slots = [dice.integers(0, 99, (size, 2)) for size in sizes]
    rows = np.zeros((where.total + 3, 2), np.int64)  # room for more, which stays as it is
    parts.rows(slots, where, rows)
    expected = np.concatenate([ring[at] for ring, at in zip(slots, numbers, strict=True)])
    assert (rows[: where.total] == expected).all()
    assert (rows[where.total :] == 0).all()
