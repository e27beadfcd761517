"""Rows by number, held as long as something names them: against a plain list of all rows there ever were."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core.rings import _moved
from plait.core.rows import NumberedRows, crowded

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("v", pa.string_view()), ("l", pa.list_(pa.int8()))])


def drawn(chance: random.Random, n: int) -> pa.RecordBatch:
    def some(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    columns = [
        [some(chance.randrange(100)) for _ in range(n)],
        [some("é" * chance.randrange(9)) for _ in range(n)],
        [some("x" * chance.randrange(40)) for _ in range(n)],
        [some([1] * chance.randrange(3)) for _ in range(n)],
    ]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def expected(every: list[Any], numbers: np.ndarray, names: list[str]) -> list[dict[str, Any]]:
    return [{name: every[number][name] for name in names} for number in numbers.tolist()]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("rings", "merged", "apart"), [(False, 0, ""), (False, 50, ""), (True, 50, ""), (True, 1 << 16, ""), (True, 0, "s")]
)
def test_rows_that_go_from_the_oldest_on(rings: bool, merged: int, apart: str, seed: int) -> None:
    chance = random.Random(seed)
    held, every = NumberedRows(SCHEMA, rings=rings, merged=merged, apart=[apart]), []
    assert apart not in held._rings
    oldest = 0
    for step in range(60):
        batch = drawn(chance, chance.choice((1, 2, 30, 300)))
        if chance.random() < 0.5:
            held.append(pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]))
        else:
            assert held.add(batch.columns, batch.num_rows, last_ts=step) == len(every)
        every += batch.to_pylist()
        assert held.next == len(every)
        if chance.random() < 0.5:
            oldest = max(oldest, chance.randrange(len(every)))
            held.expire(oldest)
        assert held.oldest <= oldest
        assert held.rows == len(every) - held.oldest
        if merged == 0:
            assert held.rows < len(every) - oldest + 300
        names = chance.choice((["n"], ["s", "l"], ["v", "n"], SCHEMA.names))
        numbers = np.array([chance.randrange(oldest, len(every)) for _ in range(chance.randrange(40))], np.int64)
        taken = held.take(numbers, None if names == SCHEMA.names else names)
        assert taken.to_pylist() == expected(every, numbers, names)
        assert taken.schema.equals(pa.schema([SCHEMA.field(name) for name in names]))
    held.expire(len(every))
    assert (held.rows, held.oldest, held.oldest_stamp()) == (0, len(every), None)


@pytest.mark.parametrize("seed", range(4))
def test_single_old_rows_may_be_kept(seed: int) -> None:
    chance = random.Random(seed)
    held, every, last = NumberedRows(SCHEMA, merged=100), [], []
    named: set[int] = set()
    since = 0  # every row from here on is held
    for step in range(40):
        batch = drawn(chance, chance.choice((1, 5, 40)))
        held.add(batch.columns, batch.num_rows, last_ts=step, stamp=step)
        every += batch.to_pylist()
        last += [step] * batch.num_rows
        if chance.random() < 0.4:
            before = chance.randrange(step + 2)
            named = set(chance.sample(sorted(named | set(range(since, len(every)))), chance.randrange(1, 4)))
            held.keep(np.array(sorted(named)), before)
            since = max(since, sum(ts < before for ts in last))
        live = sorted(named | set(range(since, len(every))))
        held.expire_before(min(last[number] for number in live))  # nothing that is live lies below
        numbers = np.array([chance.choice(live) for _ in range(20)])
        assert held.take(numbers).to_pylist() == expected(every, numbers, SCHEMA.names)
    held.expire_before(40)
    assert held.rows == 0


def test_it_takes_as_many_dead_rows_as_live_ones_and_a_few() -> None:
    assert not crowded(2 * 100 + 7, 100, few=7)
    assert crowded(2 * 100 + 8, 100, few=7)


def test_text_that_moves_is_there_for_who_takes_it_meanwhile():
    """Results are made of rows by threads of their own, while others append: text moves to another array when its own is full."""
    held = NumberedRows(pa.schema([("t", pa.string())]), rings=True)
    text, seen = [f"{k}" * 50 for k in range(100)], set()
    held.append(pa.table({"t": text}))
    taker = held._rings["t"].taker()  # of the arrays as they are now
    for _ in range(400):
        held.append(pa.table({"t": ["y" * 50 + str(k) for k in range(100)]}))
        seen.add(id(held._rings["t"].data))
    assert len(seen) > 1, "it has not moved"
    assert taker(np.arange(100)).to_pylist() == text


@pytest.mark.parametrize("first", [0, 5, 63, 64, 1000, (1 << 40) + 61])
def test_rows_lie_at_their_numbers_in_a_longer_ring(first: int) -> None:
    """Wherever the old ring's end lies, and the new one's: a ring may be full, or hold a few."""
    chance = random.Random(first)
    for capacity in (64, 128, 1024):
        for count in (0, 1, 63, 64, chance.randrange(64)):
            numbers = np.arange(first, first + count)
            column = np.full(64, -1, np.int64)
            column[numbers & 63] = numbers
            moved = _moved(column, first, first + count, capacity)
            assert len(moved) == capacity
            assert (moved[numbers & (capacity - 1)] == numbers).all()


def test_a_ring_is_no_longer_than_twice_what_it_holds() -> None:
    """Its pages are new when it is written from end to end, and who pushes waits for each of them."""
    held = NumberedRows(pa.schema([("n", pa.int64())]), rings=True, merged=1 << 12)
    batch = pa.record_batch({"n": pa.array(np.arange(1000))})
    for _ in range(400):
        held.append(batch)
        held.expire(held.next - 100_000)
    live = held.rows
    assert held.rings().capacity <= 2 * live
