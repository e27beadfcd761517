"""Whole joins: the reference's result table, row by row, from runs, indexes and payload put together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.condition import trees
from tests.core.join.brute import merged
from tests.examples import examples
from tests.reference.conditions import CONDITIONS, Condition

import plait
from plait.core.join.choice import possible
from plait.core.join.window import JoinWindow
from plait.core.rows import NumberedRows
from plait.query.bind import bind
from plait.query.join import Join

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("k", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("p", pa.int8()),
        ("q", pa.float32()),
    ]
)
FORMS = [(c, form) for c in CONDITIONS for form in ("sql", "traced", "opaque") if c.has(form)]


def table(random: np.random.Generator, n: int) -> pa.RecordBatch:
    pools: dict[str, list[Any]] = {
        "k": [0, 1, 2, None, -1], "x": [0.0, 0.5, 1.0, None, float("nan"), -0.0, 1.25, float("inf"), 0.1],
        "s": ["a", "b", None, "", "é", "a\x00", "B"], "p": [0, 1, None, 127, -128],
        "q": [0.5, None, float("nan"), 0.1, 1.25],
    }  # fmt: skip
    columns: dict[str, list[Any]] = {"ts": sorted(random.integers(0, 12, n).tolist())}
    for name, pool in pools.items():
        columns[name] = [pool[i] for i in random.integers(0, len(pool), n)]
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)


def joined(query: Join, left: pa.RecordBatch, right: pa.RecordBatch, batch: int, **options: Any) -> list[list[Any]]:
    """The rows of a join as an executor would make them: merge, process run by run, take payload."""
    bound = bind(query, {"quotes": left.schema, "trades": right.schema})
    assert bound.predicate is not None
    window = JoinWindow(bound.predicate, left.schema, right.schema, query.window, **options)
    run = merged(left.column("ts").to_pylist(), right.column("ts").to_pylist(), left, right)
    payloads = (NumberedRows(left.schema), NumberedRows(right.schema))
    done, out = [0, 0], []
    for at in range(0, len(run.side), batch):
        side = run.side[at : at + batch]
        n = [int((side == s).sum()) for s in (0, 1)]
        parts = [run.batches[s].slice(done[s], n[s]) for s in (0, 1)]
        pairs = window.process(side, (parts[0], parts[1]), tuple(run.ts[s][done[s] : done[s] + n[s]] for s in (0, 1)))  # type: ignore[arg-type]
        done = [done[0] + n[0], done[1] + n[1]]
        for s in (0, 1):
            payloads[s].append(parts[s])
        taken = [payloads[0].take(pairs.left), payloads[1].take(pairs.right)]
        ts = np.maximum(taken[0].column("ts").to_numpy(), taken[1].column("ts").to_numpy())
        columns = [ts.tolist(), *(c.to_pylist() for t in taken for c in t.columns)]
        out += [list(row) for row in zip(*columns, strict=True)]
        for s in (0, 1):
            payloads[s].expire(window.live_from(s))
    return out


def rows_of(result: pa.Table) -> list[list[Any]]:
    return [list(row) for row in zip(*(c.to_pylist() for c in result.columns), strict=True)] if len(result) else []


@pytest.mark.crossed
@pytest.mark.parametrize(("condition", "form"), FORMS, ids=lambda v: str(v))
def test_the_references_result(condition: Condition, form: str) -> None:
    streams = (plait.stream("quotes", time="ts", unit="us"), plait.stream("trades", time="ts", unit="us"))
    for seed, window in enumerate(({"within": (3, 2)}, {"last": 4}, {"tumbling": 5})):
        random = np.random.default_rng(seed)
        left, right = table(random, 25), table(random, 20)
        query = plait.join(*streams, on=condition.written(form), **window)  # type: ignore[arg-type]
        expected = rows_of(query.reference({"quotes": left, "trades": right}))
        shape = JoinWindow(
            bind(query, {"quotes": SCHEMA, "trades": SCHEMA}).predicate, SCHEMA, SCHEMA, query.window
        ).shape  # type: ignore[arg-type]
        for kind in possible(shape):
            assert repr(joined(query, left, right, 7, index=kind, plain=True)) == repr(expected), (window, kind)


@settings(max_examples=examples(40))
@given(trees.conditions(2, sql=False), st.integers(0, 2**32), st.sampled_from(["within", "last", "tumbling"]))
def test_the_references_result_for_random_conditions(expr: Any, seed: int, window: str) -> None:
    schema = trees.SCHEMA.append(pa.field("ts", pa.int64()))
    random = np.random.default_rng(seed)
    tables = []
    for _ in (0, 1):
        rows = trees.rows(random, 12, tuple(trees.SCHEMA.names), tame=bool(seed % 2), nulls=True)
        tables.append(pa.record_batch([*rows.columns, pa.array(np.sort(random.integers(0, 9, 12)))], schema=schema))
    streams = (plait.stream("quotes", time="ts", unit="us"), plait.stream("trades", time="ts", unit="us"))
    query = plait.join(*streams, on=lambda l, r: trees.python_value(expr, l, r), **{window: 5})  # type: ignore[arg-type]
    expected = rows_of(query.reference({"quotes": tables[0], "trades": tables[1]}))
    assert repr(joined(query, tables[0], tables[1], 5, plain=True)) == repr(expected)


def test_a_conjunction_may_be_false_whatever_its_other_part_is() -> None:
    """NULL and false is false, which may equal something: a row with a NULL there can match."""
    streams = (plait.stream("quotes", unit="us"), plait.stream("trades", unit="us"))
    left = pa.record_batch({"ts": [1, 1], "k": pa.array([-7, 5], pa.int8()), "m": pa.array([None, 5], pa.int32())})
    right = pa.record_batch({"ts": [1, 1], "k": pa.array([3, 5], pa.int8())})
    for on in (
        lambda l, r: ((l.k == l.m) & (l.k == r.k)) == (l.k == r.k),
        lambda l, r: ~(((l.k == l.m) & (l.k == r.k)) != (l.k == r.k)),
        lambda l, r: ((l.m > 0) & (l.k == r.k)) == (l.k > 100),
    ):
        query = plait.join(*streams, on=on, within=5)
        expected = rows_of(query.reference({"quotes": left, "trades": right}))
        assert len(expected) > 1
        assert repr(joined(query, left, right, 5, plain=True)) == repr(expected)
