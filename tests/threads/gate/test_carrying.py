"""Runs on either gate: the same rows, in the same order, with the same keys."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.query.identical import difference
from plait.threads.engine import Engine
from plait.threads.gate import GATES, RingGate, SkipListGate

SEED = 20261116


def rows(chance: random.Random, count: int) -> pa.Table:
    ts = sorted(chance.randrange(300) for _ in range(count))
    return pa.table({"ts": pa.array(ts, pa.int64()), "x": [chance.randrange(9) for _ in ts]})


def queries() -> dict[str, tuple[plait.Query, dict[str, Any]]]:
    a, b = plait.stream("a", unit="us", sources=2), plait.stream("b", unit="us", sources=2)
    sums = plait.aggregate(
        a, size="20us", advance="10us", by="x", compute={"n": plait.count(), "all": plait.collect("ts")}
    )

    def process(state: list[int], t: Any) -> Any:
        state.append(t.ts)
        yield (len(state), t.ts)
        if len(state) % 3 == 0:
            yield plait.timer(t.ts + 7)

    operator = plait.operator(
        [a, b], buckets=4, route=lambda t: t.x % 4, state=list, process=process,
        on_timer=lambda state, at: [(-len(state), at)], output=pa.schema([("n", pa.int64()), ("at", pa.int64())]),
    )  # fmt: skip
    near = plait.join(a, b, on=lambda l, r: abs(l.x - r.x) <= 1, within=6)
    return {
        "scalejoin": (near, {"strategy": "scalejoin", "workers": 2}),
        "splitjoin": (near, {"strategy": "splitjoin", "workers": 3}),
        "dpjoin": (plait.join(a, b, on="a.x = b.x", within=9, how="left"), {"workers": 2}),
        "count": (plait.join(a, b, on="a.x = b.x", last=8), {"workers": 2}),
        "asof": (plait.asof(a, b, by="x", within=40), {"workers": 2}),
        "elastic": (near, {"elastic": 3, "workers": 1}),
        "tuml_sc": (sums, {"strategy": "tuml_sc"}),
        "tuml_mc": (sums, {"strategy": "tuml_mc", "workers": 2}),
        "elastic tuml": (sums, {"elastic": 2, "workers": 1}),
        "operator": (operator, {"workers": 2}),
        "dag": (plait.join(sums.named("s"), b, within=15), {"workers": 2}),
    }


def ran(query: plait.Query, data: dict[str, dict[int, pa.Table]], gate: str, options: dict[str, Any]) -> pa.Table:
    chance = random.Random(SEED)
    schemas = {name: tables[0].schema for name, tables in data.items()}
    with query.on_threads(gate=gate, keys=True, schemas=schemas, **options) as run:
        left = [(name, source, table) for name, tables in data.items() for source, table in tables.items()]
        resizes = list(range(1, options.get("elastic", 0) + 1))
        while left:
            at = chance.randrange(len(left))
            name, source, table = left.pop(at)
            size = chance.choice((1, 3, 20))
            run.push(name, source, table.slice(0, size))
            if table.num_rows > size:
                left.append((name, source, table.slice(size)))
            if resizes and chance.random() < 0.2:
                run.resize(resizes.pop())
        run.drain()
        if isinstance(run._engine, Engine):
            assert isinstance(run._engine.gate, GATES[gate])
        words = "one skip list" if gate == "skiplist" else "rings"
        assert f"sources meet in {words}, " in run.explain()
        return run.table()


@pytest.mark.parametrize("kind", queries())
def test_the_same_sequence_on_either_gate(kind: str) -> None:
    query, options = queries()[kind]
    chance = random.Random(SEED)
    names = list(query.streams())
    data = {name: {source: rows(chance, 60) for source in range(2)} for name in names}
    expected = query.reference({name: list(tables.values()) for name, tables in data.items()}, keys=True)
    assert len(expected) > 20
    for gate in ("ring", "skiplist"):
        assert difference(expected, ran(query, data, gate, options)) is None, gate


def test_names() -> None:
    assert {"auto": RingGate, "ring": RingGate, "skiplist": SkipListGate} == GATES
    query = plait.join(plait.stream("a"), plait.stream("b"), within=1)
    with pytest.raises(plait.QueryError, match=r"gate='list' is not known.*'ring', 'skiplist'"):
        query.on_threads(gate="list")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("strategy", ["scalejoin", "splitjoin"])
def test_a_source_that_was_silent_for_rounds_of_the_memory(strategy: str, gate: str) -> None:
    """Its first tuple comes when the other's first node has been used again, by a tuple that is not ready yet. In a distribution
    tree only the root reads the gate: the workers below must not vouch for a node that is gone."""
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
    a, b = plait.stream("a", unit="us", sources=1), plait.stream("b", unit="us", sources=1)
    query = plait.join(a, b, on=None, within=15)

    def row(ts: int) -> pa.Table:
        return pa.table({"ts": [ts], "x": [ts]}, schema)

    with query.on_threads(gate=gate, strategy=strategy, workers=3, capacity=4, pending=8, batch=2, plain=True, keys=True,
                          schemas={"a": schema, "b": schema}) as run:  # fmt: skip
        engine = run._engine
        assert isinstance(engine, Engine)
        rounds = 2 * engine.gate.ring
        for ts in range(rounds):
            run.push("b", None, row(10 * ts))
            run.heartbeat("a", 0, 10 * ts)
            list(run.results(timeout_s=0))
        for ts in range(rounds, rounds + 3):
            run.push("b", None, row(10 * ts))
        run.push("a", None, row(10 * rounds - 5))
        run.drain()
        got = run.table()
    data = {"a": row(10 * rounds - 5), "b": pa.concat_tables([row(10 * ts) for ts in range(rounds + 3)])}
    assert len(got) == 4
    assert difference(query.reference(data, keys=True), got) is None
