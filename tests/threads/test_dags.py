"""Queries over queries on threads: the definitions' rows and the reference's nested keys, however they are run."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import dags
from tests.reference.judge import assert_same
from tests.strategies import Case
from tests.threads.delivery import on_threads

import plait
from plait import BehindError, DataError, QueryError, RunError
from plait.query import bind

KEY = "_plait_key"
EXAMPLES = examples(8)

OPTIONS = st.sampled_from((
    {}, {"workers": 1}, {"workers": 3}, {"batch": 1}, {"workers": 2, "batch": 3, "capacity": 2, "unread_results": 1},
))  # fmt: skip


def held_against_all(case: Case, options: dict[str, Any], seed: int) -> None:
    got = on_threads(case, seed=seed, plain=True, **options)
    assert_same(got.drop_columns([KEY]), case.expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys: pa.Table = case.query.reference(case.data, keys=True)
    assert got.column(KEY).to_pylist() == keys.column(KEY).to_pylist()


@pytest.mark.parametrize("shape", dags.SHAPES, ids=lambda shape: shape.__name__)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), options=OPTIONS, seed=st.integers(0, 2**16))
def test_dag(shape: Any, data: st.DataObject, options: dict[str, Any], seed: int) -> None:
    held_against_all(data.draw(dags.dags(shapes=(shape,))), options, seed)


# --- longer streams, any composition ----------------------------------------------------------------------------

SOURCES = ("p", "q")
ROWS = 150


def table_of(seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    return pa.table({
        "ts": np.sort(dice.integers(0, 4 * ROWS, ROWS)), "src": [SOURCES[n] for n in dice.integers(0, 2, ROWS)],
        "k": pa.array(dice.integers(0, 4, ROWS), mask=dice.random(ROWS) < 0.1), "x": dice.standard_normal(ROWS),
    })  # fmt: skip


STREAMS = [plait.stream(name, unit="us", source="src", sources=SOURCES) for name in ("a", "b")]
TABLES = {name: table_of(seed) for seed, name in enumerate(("a", "b"))}
SCHEMAS = {name: table.schema for name, table in TABLES.items()}


def random_query(seed: int) -> plait.Query:
    """Three to five operators, each over streams and operators before it, often the same one twice."""
    dice = random.Random(seed)
    nodes: list[Any] = list(STREAMS)
    size = dice.randint(3, 5)
    while len(nodes) < len(STREAMS) + size:
        one, two = (nodes[-1] if dice.random() < 0.6 else dice.choice(nodes) for _ in range(2))
        with contextlib.suppress(QueryError):  # a column's name would stand twice
            made = random_operator(dice, one, two, f"n{len(nodes)}")
            bind(made, SCHEMAS)
            nodes.append(made)
    return nodes[-1]


def random_operator(dice: random.Random, one: Any, two: Any, name: str) -> plait.Query:
    keys = [next(c for c in bind(node, SCHEMAS).schema.names if c.endswith("k")) for node in (one, two)]
    kind = dice.choice(("span", "span", "count", "join", "join", "asof", "operator"))
    if kind == "operator":
        return running_count(one, keys[0], name)
    if kind in ("span", "count"):
        window = ("12us", "5us") if kind == "span" else (4, 3)
        compute = {"n": plait.count(), "k2": plait.last(keys[0]), "far": plait.max(bind(one, SCHEMAS).schema.names[0])}
        return plait.aggregate(one, size=window[0], advance=window[1], by=keys[0], compute=compute, name=name)
    if kind == "asof":
        return plait.asof(one, two, by=[(keys[0], keys[1])], within=dice.choice((None, 20)), name=name)
    how = dice.choice(("inner", "inner", "left", "semi", "anti"))
    window = {"within": dice.choice(((2, 1), (0, 4), 3))}
    if how == "inner" and dice.random() < 0.3:
        window = {"last": 3} if dice.random() < 0.5 else {"tumbling": 7}
    return plait.join(one, two, on=f"l.{keys[0]} = r.{keys[1]}", how=how, name=name, **window)


def running_count(node: Any, key: str, name: str) -> plait.Query:
    """Each key's tuples counted in three buckets; and 9 us after a bucket's first, a timer says how many there were."""

    def process(state: dict[Any, int], t: Any) -> Any:
        if not state:
            yield plait.timer(t.ts + 9)
        state[t[key]] = state.get(t[key], 0) + 1
        yield {"k": t[key], "n": state[t[key]]}

    def on_timer(state: dict[Any, int], at: int) -> Any:
        yield {"k": None, "n": sum(state.values())}
        state.clear()

    return plait.operator(
        node, buckets=3, route=lambda t: plait.ALL if t[key] is None else t[key] % 3, state=dict, process=process,
        on_timer=on_timer, output={"k": "int64", "n": "int64"}, name=name,
    )  # fmt: skip


def outcome(query: plait.Query, seed: int, **options: Any) -> pa.Table:
    """Every source by a thread of its own, in pieces of any size, while this one reads."""
    used = {name: SCHEMAS[name] for name in query.streams()}
    with query.on_threads(schemas=used, keys=True, **options) as run:

        def push(name: str, source: str, chance: random.Random) -> None:
            own = TABLES[name].filter(pc.equal(TABLES[name].column("src"), source))
            while own.num_rows:
                size = chance.choice((1, 7, 50))
                run.push(name, None, own.slice(0, size))
                own = own.slice(size)
            run.close(name, source)

        pushing = [
            threading.Thread(target=push, args=(name, source, random.Random(seed * 10 + k)))
            for k, (name, source) in enumerate(itertools.product(used, SOURCES))
        ]
        for thread in pushing:
            thread.start()
        batches = list(run.results())
        for thread in pushing:
            thread.join()
        return pa.Table.from_batches(batches, run.schema).combine_chunks()


def held_against_reference(seed: int, **options: Any) -> None:
    query = random_query(seed)
    want = query.reference({name: TABLES[name] for name in query.streams()}, keys=True)
    assert_same(outcome(query, seed, **options), want)


LOADS: tuple[dict[str, Any], ...] = (
    {}, {"workers": 2, "batch": 5}, {"capacity": 16, "pending": 128, "unread_results": 1024}, {"workers": 3},
    {"elastic": 3},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_random_compositions(seed: int) -> None:
    held_against_reference(seed, plain=True, **LOADS[seed % len(LOADS)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_compositions(seed: int) -> None:
    for options in LOADS:
        held_against_reference(seed, **options)


# --- what is behind, errors, flow -------------------------------------------------------------------------------

PLAIN = {name: pa.schema({"ts": pa.int64(), "k": pa.int64()}) for name in ("a", "b")}
A, B = (plait.stream(name, unit="us") for name in ("a", "b"))
WINDOWS = plait.aggregate(A, size="10us", by="k", compute={"n": plait.sum("k")}, name="w")
PEAKS = plait.join(WINDOWS, B, on="l.k = r.k", within=10)


def rows(*ts: int, k: int = 1) -> dict[str, list[int]]:
    return {"ts": list(ts), "k": [k] * len(ts)}


def test_a_source_is_behind_what_all_streams_have_come_to() -> None:
    """`a` alone has come to 50; the frontier of the query is held at 20 by `b`, and so a new source may begin at 30."""
    with PEAKS.on_threads(schemas=PLAIN, plain=True) as run:
        run.push("a", 0, rows(5, 50))
        run.push("b", 0, rows(20))
        assert run.frontier == 20
        run.push("a", 1, rows(30))
        assert run.holder() == ("b", 0)
        with pytest.raises(BehindError, match="ts 19 is behind the frontier 20"):
            run.push("a", 2, rows(19))
        with pytest.raises(BehindError, match="ts 19 is behind the frontier 20"):
            list(run.results())


def test_an_operator_says_how_far_it_is_even_if_it_gives_nothing() -> None:
    """The inner join never has a result: that it can't have one any more is what lets the other rows out."""
    query = plait.join(A, plait.join(A, B, on="l.k = r.k", within=0, name="j"), within=0, how="anti", on="l.k = r.a_k")
    with query.on_threads(schemas=PLAIN, plain=True) as run:
        run.push("a", 0, rows(1))
        run.push("b", 0, rows(1, k=2))
        for name in ("a", "b"):
            run.heartbeat(name, 0, 2)
        assert [batch.column("ts").to_pylist() for batch in run.results(timeout_s=1)] == [[1]]


def test_the_first_error_of_any_operator_stops_all() -> None:
    with PEAKS.on_threads(schemas=PLAIN, plain=True) as run:
        run.push("a", 0, rows(1, 2, 30, k=2**62))
        run.push("b", 0, rows(30))
        with pytest.raises(DataError, match="beyond 64 bits"):
            list(run.results())
        for call in (lambda: run.push("b", 0, rows(40)), lambda: run.heartbeat("a", 0, 50), run.drain):
            with pytest.raises(DataError, match="beyond 64 bits"):
                call()


def test_a_diamond_flows_through_narrow_gates() -> None:
    """One thread pushes far more than gates and results have room for; the two sides of the diamond take turns all the same."""
    every = plait.aggregate(A, size=1, by="k", compute={"m": plait.max("ts")}, name="e")
    query = plait.join(every, plait.join(A, A, on="l.k = r.k", within=3, name="j"), on="l.m = r.left_ts", within=3)
    table = pa.table({"ts": np.arange(3_000), "k": np.arange(3_000) % 2})
    want = query.reference({"a": table.slice(0, 300)}).num_rows
    with query.on_threads(schemas={"a": table.schema}, capacity=64, pending=256, unread_results=1, plain=True) as run:
        pushing = threading.Thread(target=lambda: (run.push("a", 0, table), run.drain()))
        pushing.start()
        got = sum(batch.num_rows for batch in run.results())
        pushing.join()
        stats = run.stats()
    assert got == stats.results > 9 * want
    assert (stats.tuples, stats.strategy.count(",")) == (3_000, 2)
    assert "j: probes into" in run.explain()


def test_a_run_that_nobody_reads_says_who_waits() -> None:
    def push_on(run: Any) -> None:
        for at in range(100_000):
            run.push("a", 0, rows(*range(10 * at, 10 * at + 10)))
            run.push("b", 0, rows(*[10 * at + 9] * 64))

    said = pytest.raises(RunError, match=r"waited 0.3 s for the workers; w: worker 0")
    with PEAKS.on_threads(schemas=PLAIN, capacity=8, unread_results=1, stall_after_s=0.3, plain=True) as run, said:
        push_on(run)


def test_what_is_late_is_dropped_once() -> None:
    late = plait.stream("a", unit="us", late="drop")
    query = plait.join(plait.aggregate(late, size="10us", compute={"n": plait.count()}), late, within=20)
    with query.on_threads(schemas={"a": PLAIN["a"]}, plain=True) as run:
        run.push("a", 0, rows(5, 3, 20))
        run.drain()
        assert run.table().num_rows == 3
        assert run.late("a").column("ts").to_pylist() == [3]
        assert (run.stats().late, run.behind("a").num_rows) == ({"a": 1}, 0)


@pytest.mark.parametrize("options", [{"strategy": "scalejoin"}, {"index": "hash"}, {"layout": (2, 1)}])
def test_options_that_no_operator_has_are_refused(options: dict[str, Any]) -> None:
    query = plait.aggregate(WINDOWS, size=2, compute={"n": plait.count()})
    with pytest.raises(QueryError, match="No operator of it has such an option"):
        query.on_threads(**options)
