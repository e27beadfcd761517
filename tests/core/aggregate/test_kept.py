"""Rows that are named one by one, held as long as something names them: against a plain list of all rows there ever were."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.core.test_rows import SCHEMA, drawn, expected

from plait.core import rings
from plait.core.aggregate import kept
from plait.core.aggregate.kept import KeptRows
from plait.errors import DataError


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_named_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FEW", 20)
    chance = random.Random(seed)
    held, every, named, needed = KeptRows(SCHEMA), [], set(), 0
    for _ in range(80):
        batch = drawn(chance, chance.choice((1, 3, 40)))
        assert held.append(pa.Table.from_batches([batch])) == len(every)
        named |= {len(every) + k for k in range(batch.num_rows) if chance.random() < 0.5}
        every += batch.to_pylist()
        named = {number for number in named if chance.random() < 0.9}
        if held.crowded:
            held.keep(np.array(chance.sample(sorted(named), len(named)), np.int64))
            needed = len(named)
            assert held.rows == needed
        assert held.rows <= 2 * needed + 20, "within a constant factor of what was named"
        numbers = np.array([chance.choice(sorted(named)) for _ in range(9 if named else 0)], np.int64)
        for name in SCHEMA.names:
            assert held.take(numbers, name).to_pylist() == [row[name] for row in expected(every, numbers, [name])]


def test_text_that_no_array_can_count_is_refused(monkeypatch):
    held = KeptRows(pa.schema([("t", pa.string())]))
    held.append(pa.table({"t": ["ab", "cd", None]}))
    monkeypatch.setitem(rings.MOST_TEXT, 4, 3)
    assert held.take(np.array([2, 0]), "t").to_pylist() == [None, "ab"]
    with pytest.raises(DataError, match=r"^4 bytes of text in one batch of rows\. .*counts them up to 3.*large_string"):
        held.take(np.array([0, 1]), "t")
