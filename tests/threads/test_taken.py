"""A few results' rows by one compiled call: the same columns as those that are taken one by one, and as rows were pushed."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.threads.input.test_payload import KINDS

import plait
from plait.threads import results, taken
from plait.threads.input.payload import Payload

FIXED = {name: made for name, made in KINDS.items() if name not in ("list", "decimal")} | {
    "int16": (pa.int16(), lambda c: c.randrange(-(2**15), 2**15)),
    "double": (pa.float64(), lambda c: c.random()),
    "large": (pa.large_string(), lambda c: "x" * c.choice((0, 1, 15, 16, 17, 40))),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in FIXED.items()])


@pytest.mark.parametrize("seed", range(4))
def test_columns_are_those_that_were_pushed(seed: int) -> None:
    chance, rows = random.Random(seed), []
    payload, nulls = Payload(SCHEMA), (0.0, 0.3)[seed % 2]
    for push in range(25):
        n = chance.choice((1, 7, 300, 4000))
        columns = [
            pa.array([None if push > 3 and chance.random() < nulls else make(chance) for _ in range(n)], kind)
            for kind, make in FIXED.values()
        ]
        rows.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        payload.append(rows[-1], np.full(n, push), 0, np.arange(n), push, push)
        held = payload.rings()  # as whoever takes rows has it, while others push
        whole = pa.Table.from_batches(rows).combine_chunks()
        for few in (1, 8, 9, 500):
            refs = np.array([chance.randrange(whole.num_rows) for _ in range(few)])
            found = taken.columns(payload, refs)
            assert found is not None
            made = pa.RecordBatch.from_arrays(found, schema=SCHEMA)
            made.validate(full=True)
            assert made.equals(whole.take(pa.array(refs)).combine_chunks().to_batches()[0])
            assert made.equals(payload.take(refs, extra=False).combine_chunks().to_batches()[0])
            onward = Payload(SCHEMA)  # another operator may read it
            onward.append(made, np.zeros(few, np.int64), 0, np.arange(few), 0, 0)
            assert onward.take(np.arange(few), extra=False).combine_chunks().equals(pa.Table.from_batches([made]))
    assert held.capacity == payload.rings().capacity >= whole.num_rows


def test_text_that_one_array_cannot_count_is_left_to_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = Payload(pa.schema([("s", pa.string())]))
    payload.append(pa.record_batch({"s": ["four", "five!"]}), np.zeros(2, np.int64), 0, np.arange(2), 0, 0)
    monkeypatch.setitem(taken.MOST_TEXT, 4, 8)
    assert taken.columns(payload, np.array([0, 1])) is None
    assert taken.columns(payload, np.array([0])) is not None


def joined(how: str, **options: object) -> pa.Table:
    query = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="a.k = b.k", within=5, how=how)
    rows = {"ts": list(range(200)), "k": [i % 7 for i in range(200)], "s": [f"text {i}" for i in range(200)]}
    with query.on_threads(workers=2, **options) as run:
        for name in ("a", "b"):
            run.push(name, None, rows)
        run.drain()
        return run.table()


@pytest.mark.parametrize(("how", "options", "short"), [
    ("inner", {}, True), ("inner", {"keys": True}, False), ("left", {}, False),
])  # fmt: skip
def test_who_goes_the_short_way_and_that_it_does_not_show(
    how: str, options: dict[str, object], short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    usual = taken.columns
    monkeypatch.setattr(taken, "columns", lambda *given: calls.append(1) or usual(*given))
    found = joined(how, **options)
    assert bool(calls) == short
    monkeypatch.setattr(results, "FEW", 0)
    calls.clear()
    assert joined(how, **options).equals(found)
    assert found.num_rows == 200
    assert not calls
