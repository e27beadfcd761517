"""Sources' tallies brought together: every source's stretch of its own ring, one after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.aggregate.groups import Groups
from plait.threads.aggregate.hive import parts


def groups() -> Groups:
    node = plait.aggregate(plait.stream("s", unit="us"), size=10, by="k", compute={"n": plait.count()})
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    return Groups(node, schema, lambda number: np.ones(number, bool))


@pytest.mark.parametrize("seed", range(5))
def test_groups_by_the_keys_of_all_stretches(seed: int) -> None:
    dice = np.random.default_rng(seed)
    sources = int(dice.integers(1, 6))
    sizes = 1 << dice.integers(2, 7, sources)  # rings of different lengths
    first = dice.integers(0, 1000, sources)
    end = first + dice.integers(1, sizes + 1)  # some go over the end of their ring
    where = parts.stretches(first, end)
    assert where.total == (end - first).sum()

    numbers = [np.arange(low, high) & (size - 1) for low, high, size in zip(first, end, sizes, strict=True)]
    kept = [
        np.stack((dice.integers(0, 9, size), dice.integers(0, 3, size) // 2)) for size in sizes
    ]  # a key, and whether it is NULL
    for ring in kept:
        ring[0][ring[1] != 0] = 0
    found, other = groups(), groups()
    given = np.concatenate([ring[:, at] for ring, at in zip(kept, numbers, strict=True)], axis=1)
    for repeated in range(2):  # all are known the second time
        out = np.zeros(where.total, np.int64)
        parts.groups(found, kept, where, out)
        assert (out == other.numbers(given)).all()
        assert found.number == len(np.unique(given, axis=1).T), repeated


@pytest.mark.parametrize("first", [7, 4090])  # the second goes over the end of its ring
def test_groups_that_need_more_room_than_there_is(first: int) -> None:
    kept = np.stack((np.arange(4096), np.zeros(4096, np.int64)))
    found, where = groups(), parts.stretches(np.array([first]), np.array([first + 4000]))
    assert found.capacity < where.total
    out = np.zeros(where.total, np.int64)
    parts.groups(found, [kept], where, out)
    assert (found.words[0][out] == np.arange(first, first + 4000) % 4096).all()


@pytest.mark.parametrize("seed", range(5))
def test_rows_in_the_order_of_sources(seed: int) -> None:
    dice = np.random.default_rng(seed)
    sizes = 1 << dice.integers(2, 7, 4)
    first = dice.integers(0, 1000, 4)
    end = first + dice.integers(1, sizes + 1)
    where = parts.stretches(first, end)
    numbers = [np.arange(low, high) & (size - 1) for low, high, size in zip(first, end, sizes, strict=True)]
    slots = [dice.integers(0, 99, (size, 2)) for size in sizes]
    rows = np.zeros((where.total + 3, 2), np.int64)  # room for more, which stays as it is
    parts.rows(slots, where, rows)
    expected = np.concatenate([ring[at] for ring, at in zip(slots, numbers, strict=True)])
    assert (rows[: where.total] == expected).all()
    assert (rows[where.total :] == 0).all()
