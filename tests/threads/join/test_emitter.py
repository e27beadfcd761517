"""DP-Join's Emitter: tuples sent to a row or column and handed on give the very sequence that «everyone reads all» gives.

Random data, ways of delivery and all plans are in tests/threads/test_sequences.py and test_against_definitions.py, of which these
plans are a part. Here is what only the Emitter has: marks, feeds that are full, the table of counts that goes round.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same
from tests.threads.test_sequences import CONDITIONS, TABLES, expected, outcome, query

import plait
from plait.errors import QueryError
from plait.threads.join.loop import grid
from plait.threads.join.loop import words as o

A, B = (plait.stream(name, unit="us") for name in ("a", "b"))


@pytest.mark.crossed
@pytest.mark.parametrize("gate", ["ring", "skiplist"])
@pytest.mark.parametrize("layout", [(2, 2), (3, 5), (5, 3), (1, 4)])
def test_gates_and_layouts(gate: str, layout: tuple[int, int]) -> None:
    """Batches of 3 tuples: feeds and marks by the hundred, each source pushed by its own thread."""
    got = outcome(query("band", "time"), TABLES, 5, 6, strategy="dpjoin", layout=layout, emitter=True, gate=gate, batch=3,
                  capacity=64, plain=True)  # fmt: skip
    assert_same(got, expected("band", "time", "inner", TABLES))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_every_kind_of_join(how: str) -> None:
    got = outcome(query("band", "time", how), TABLES, 7, 2, strategy="dpjoin", layout=(3, 1), emitter=True, batch=16,
                  plain=True)  # fmt: skip
    assert_same(got, expected("band", "time", how, TABLES))


def test_many_more_marks_than_the_table_has_rows_and_one_worker_that_waits_for_its_reader() -> None:
    """A tuple a batch: the table of counts goes round several times, though results are read late and rings are full."""
    rows = 3 * grid.MARKS
    table = pa.table({"ts": np.arange(rows) * 2, "k": np.arange(rows) % 3})
    made = plait.join(A, B, on="l.k = r.k", within=40)
    with made.on_threads(schemas={"a": table.schema, "b": table.schema}, strategy="dpjoin", layout=(2, 2), emitter=True,
                         batch=1, capacity=32, unread_results=1, keys=True, plain=True) as run:  # fmt: skip
        pushing = threading.Thread(target=lambda: (
            [run.push(name, None, table.slice(at, 5)) for at in range(0, rows, 5) for name in "ab"], run.drain()
        ))  # fmt: skip
        pushing.start()
        got = pa.Table.from_batches(list(run.results()), run.schema)
        pushing.join()
        assert int(run._engine._emitter.words[o.CUT_MARK]) > 2 * grid.MARKS
    assert_same(got.combine_chunks(), made.reference({"a": table, "b": table}, keys=True))


def test_a_heartbeat_alone_passes_time_at_every_worker() -> None:
    """No tuple comes through: a mark says how far time is, and an unmatched row comes out."""
    made = plait.join(A, B, on="l.k = r.k", within=10, how="left")
    columns = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    with made.on_threads(
        schemas={"a": columns, "b": columns}, strategy="dpjoin", layout=(3, 1), emitter=True, plain=True
    ) as run:
        run.push("a", None, pa.table({"ts": [1, 2], "k": [7, 8]}, columns))
        run.push("b", None, pa.table({"ts": [3], "k": [8]}, columns))
        for stream in "ab":
            run.heartbeat(stream, 0, 1000)
        found: list[tuple[Any, ...]] = []
        while len(found) < 2:
            found += [tuple(row.values()) for batch in run.results(timeout_s=0.05) for row in batch.to_pylist()]
        assert found == [(3, 2, 8, 3, 8), (11, 1, 7, None, None)]
        run.drain()
        assert run.table().num_rows == 0


def test_columns_widen_and_sources_turn_up_on_the_way() -> None:
    """All stand still, the Emitter among them, while a batch is half handed on; then a source comes that nobody knew."""
    chance = random.Random(3)
    values = [chance.choice((1, 2, 3, None, 2**40, 2**62)) for _ in range(200)]
    table = pa.table({"ts": range(200), "v": pa.array(values, pa.int64()), "src": ["x"] * 100 + ["y"] * 100})
    streams = [plait.stream(name, unit="us", source="src", disorder="0us") for name in "ab"]
    made = plait.join(*streams, on=lambda l, r: (l.v * r.v > 2**70) | (l.v == r.v), within=30)
    with made.on_threads(schemas=dict.fromkeys("ab", table.schema), keys=True, strategy="dpjoin", layout=(2, 3), emitter=True,
                         plain=True, batch=4) as run:  # fmt: skip
        for at in range(0, 200, 4):
            for name in "ab":
                if at == 100:
                    run.heartbeat(name, "y", 100)
                    run.close(name, "x")
                run.push(name, None, table.slice(at, 4))
        run.drain()
        assert_same(run.table(), made.reference({"a": table, "b": table}, keys=True))


def test_what_is_said_of_it() -> None:
    made = plait.join(A, B, on=CONDITIONS["band"], within=5)
    with made.on_threads(layout=(2, 3), emitter=True, plain=True) as run:
        assert (
            "dpjoin, 6 workers: a layout was asked for; 2 x 3, as asked; an Emitter sends left tuples" in run.explain()
        )
    with made.on_threads(workers=4, emitter=True, plain=True) as run:
        assert "dpjoin, 4 workers: an Emitter was asked for; 2 x 2" in run.explain()
    columns = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
    with made.on_threads(layout=(2, 3), emitter=True, plain=True, schemas=dict.fromkeys("ab", columns)) as run:
        run.push("a", None, pa.table({"ts": [1], "x": [1], "y": [1]}))
        run.push("b", None, pa.table({"ts": [1], "x": [1], "y": [1]}))
        run.drain()
        assert run.table().num_rows == 1
        assert len(run.stats().workers) == 6
        assert len(run.stats().threads_cpu_s) == 7  # the Emitter's is the last
        assert run._engine.threads[-1].name == "plait-dpjoin-emitter"


OPERATOR: dict[str, Any] = {
    "buckets": 2, "route": lambda t: 0, "state": list, "process": lambda state, t: None, "output": {"n": "int64"}
}  # fmt: skip
REFUSED: dict[str, tuple[plait.Query, dict[str, Any], str]] = {
    "another strategy": (plait.join(A, B, within=1), {"strategy": "scalejoin"}, "with strategy='scalejoin'.*are DP-Join's"),
    "no truth": (plait.join(A, B, within=1), {"emitter": 2}, "emitter=2 is no truth value"),
    "shares that change hands": (plait.join(A, B, within=1), {"elastic": 2}, "elastic=2 with emitter=True.*read all tuples"),
    "as-of": (plait.asof(A, B), {}, "emitter=True for an as-of join.*no rows and columns"),
    "an aggregate": (plait.aggregate(A, size="1s", compute={"n": plait.count()}), {}, "emitter=True for an aggregate"),
    "an operator": (plait.operator([A], **OPERATOR), {}, "for an operator"),
    "a left join of several columns": (plait.join(A, B, within=1, how="left"), {"layout": (1, 2)}, "found by one worker"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    made, options, words = REFUSED[case]
    with pytest.raises(QueryError, match=words):
        made.on_threads(**{"emitter": True} | options)


# --- layouts for streams of different rates ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "shape"), [((1000, 3000), "3 x 5"), ((3000, 1000), "5 x 3"), ((1000, 15_000), "1 x 15")]
)
@pytest.mark.parametrize("emitter", [False, True])
def test_fifteen_workers_by_rates(rates: tuple[float, float], shape: str, emitter: bool) -> None:
    """DP-Join's figure 9: X with 1,000 and Y with 3,000 tuples a second are best served by 3 x 5 workers. By the public plan."""
    made = plait.join(A, B, on="l.k = r.k", within="1s")
    with made.on_threads(strategy="dpjoin", workers=15, rates=rates, emitter=emitter, plain=True) as run:
        assert f"dpjoin, 15 workers: {shape}: rates {rates[0]:g} and {rates[1]:g} tuples/s" in run.explain()


@pytest.mark.parametrize("emitter", [False, True])
def test_fifteen_workers_find_what_the_reference_finds(emitter: bool) -> None:
    """Streams of one to three, as in figure 9: 3 x 5 workers compare each pair of the window once, and as many each."""
    dice = np.random.default_rng(9)
    tables = {
        name: pa.table({"ts": np.sort(dice.integers(0, 3000, rows)), "k": dice.integers(0, 4, rows)})
        for name, rows in (("a", 600), ("b", 1800))
    }
    made = plait.join(A, B, on="l.k = r.k", within=300)
    with made.on_threads(schemas={n: t.schema for n, t in tables.items()}, keys=True, strategy="dpjoin", workers=15,
                         rates=(1000, 3000), emitter=emitter, index="scan", plain=True) as run:  # fmt: skip
        for at in range(0, 600, 40):
            run.push("a", None, tables["a"].slice(at, 40))
            run.push("b", None, tables["b"].slice(3 * at, 120))
        run.drain()
        got, stats = run.table(), run.stats()
        segments = run._engine.windows.segments
    assert_same(got, made.reference(tables, keys=True))
    assert [len(side) for side in segments] == [3, 5]
    assert len(stats.workers) == 15
    assert stats.balance_cv_percent < 5
