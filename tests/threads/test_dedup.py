"""Dedup on threads: against the definition, by any number of threads; and what it keeps in memory."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.strategies import Case
from tests.threads.delivery import on_threads

import plait
from plait import QueryError
from plait.query.identical import KEY

WAYS: dict[str, dict[str, Any]] = {"one": {}, "three": {"workers": 3}, "elastic": {"elastic": 4, "workers": 2}}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(60))
@given(case=strategies.dedups(), batch=st.sampled_from((1, 3, 2048)), seed=st.integers(0, 2**16))
def test_as_it_is_defined(way: str, case: Case, batch: int, seed: int) -> None:
    got = on_threads(case, seed=seed, batch=batch, **WAYS[way])
    assert_same(got.drop_columns([KEY]), case.expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys: pa.Table = case.query.reference(case.data, keys=True)
    assert got.column(KEY).to_pylist() == keys.column(KEY).to_pylist()


A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")


def rows(seed: int, n: int = 3000) -> pa.Table:
    dice = np.random.default_rng(seed)
    texts = [("red", "green", None)[k] for k in dice.integers(0, 3, n).tolist()]
    return pa.table({"ts": np.cumsum(dice.integers(0, 3, n)), "k": dice.integers(0, 40, n), "s": pa.array(texts)})


FIRST = plait.dedup(A, by="k", within=90, name="first")
CHAINS = {
    "of a join": plait.dedup(plait.join(A, B, on="l.k = r.k", within=20), by=["a_k", "b_s"], within=30),
    "of a full join": plait.dedup(plait.join(A, B, on="l.k = r.k", within=9, how="full"), by="b_k", within=30),
    "of itself": plait.dedup(FIRST, by="s", within=5),
    "joined": plait.join(FIRST, B, on="l.k = r.k", within=20, how="right"),
    "with itself": plait.join(FIRST, FIRST, on="l.s = r.s", within=20),
    "counted": plait.aggregate(
        FIRST, size=5, advance=2, by="s", compute={"n": plait.count(), "all": plait.collect("k")}
    ),
    "of windows": plait.dedup(
        plait.aggregate(A, size="50us", by="k", compute={"n": plait.count()}), by="n", within="200us"
    ),
    "before": plait.asof(B, FIRST, by="k", within=60),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_chained_in_any_way(chain: str) -> None:
    query = CHAINS[chain]
    data = {name: rows(ord(name)) for name in query.streams()}
    expected = query.reference(data, keys=True)
    for options in ({"workers": 2}, {"elastic": 3, "workers": 1}):
        with query.on_threads(schemas={n: t.schema for n, t in data.items()}, keys=True, **options) as run:
            for at in range(0, 3000, 700):
                for name, table in data.items():
                    run.push(name, None, table.slice(at, 700))
            run.drain()
            got = run.table()
        assert_same(got, expected)


def test_memory_follows_the_keys_of_one_span() -> None:
    """Two hundred thousand keys, some hundreds a span: neither they nor rows that were given out or dropped are held."""
    query = plait.dedup(A, by="k", within=1000)
    with query.on_threads(schemas={"a": pa.schema([("ts", pa.int64()), ("k", pa.int64())])}, batch=1000) as run:
        kept = 0
        for at in range(0, 400_000, 1000):
            ts = np.arange(at, at + 1000)
            run.push("a", None, pa.table({"ts": ts, "k": ts // 2}))
            while kept < at // 2:  # what was pushed before is through: rows that wait for a worker are held, too
                kept += next(run.results()).num_rows
        run.drain()
        kept += sum(batch.num_rows for batch in run.results())
        assert kept == 200_000
        assert run.stats().memory["windows"] <= 1 << 20
        assert run.stats().memory["payload"] <= 1 << 23  # all rows would be twice as much


def test_it_says_how_it_is_run_and_refuses_what_joins_have() -> None:
    assert (
        "on threads: dedup, 2 workers: keys by hash in 2 shares, served by 2 threads"
        in FIRST.on_threads(workers=2).explain()
    )
    assert "in 4 shares, served by 1 thread" in FIRST.on_threads(elastic=4).explain()
    with pytest.raises(QueryError, match=r"strategy='scalejoin' for a dedup. These are options of joins"):
        FIRST.on_threads(strategy="scalejoin")
    with pytest.raises(QueryError, match="index='hash' for a dedup"):
        FIRST.on_threads(index="hash")
