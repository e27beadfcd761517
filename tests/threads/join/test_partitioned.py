"""Joins whose tuples go by their values: the same bytes whatever the tables, their changes, workers and kinds of join.

`restless` strategies draw another table by chance every few tuples, from recorded seeds: stretches that are empty, hot points
that are not, all by turns. So every change falls at every place, in the middle of windows and batches.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.threads import test_sequences as sequences
from tests.threads.join.restless import restless

import plait
from plait.errors import QueryError
from plait.query.join import HOWS

# What the reference says is the same for many tests.
pytestmark = pytest.mark.xdist_group("partitioned")

WINDOWS = sequences.WINDOWS
KINDS = [("inner", window) for window in WINDOWS] + [(how, "time") for how in HOWS if how != "inner"]


@pytest.mark.crossed
@pytest.mark.parametrize("condition", ["band", "equality"])
@pytest.mark.parametrize(("how", "window"), KINDS)
def test_any_kind_of_join(how: str, window: str, condition: str) -> None:
    made = sequences.query(condition, window, how)
    wanted = sequences.expected(condition, window, how, sequences.TABLES)
    for workers in (1, 2, 5):
        found = sequences.outcome(made, sequences.TABLES, workers, 2, strategy="partitioned", workers=workers)
        assert_same(found, wanted)


@pytest.mark.crossed
@pytest.mark.sampled
@pytest.mark.parametrize("condition", ["band", "equality"])
@pytest.mark.parametrize(("how", "window"), KINDS)
def test_tables_change_at_any_place(how: str, window: str, condition: str) -> None:
    made = sequences.query(condition, window, how)
    wanted = sequences.expected(condition, window, how, sequences.TABLES)
    for seed in range(examples(12) // 2):
        chance = random.Random(f"{how} {window} {condition} {seed}")
        name = restless(seed + 1, chance.choice((1, 3, 20, 90)))
        found = sequences.outcome(
            made, sequences.TABLES, seed, chance.choice((1, 3)), strategy=name, workers=chance.choice((2, 3, 4, 5)),
            batch=chance.choice((1, 7, 64, 2048)), index=chance.choice(("auto", *sequences.INDEXES[condition])),
        )  # fmt: skip
        assert_same(found, wanted)


@pytest.mark.parametrize("order", ["trigger", "none"])
@pytest.mark.parametrize("how", HOWS)
def test_other_precisions_have_the_same_rows(how: str, order: str) -> None:
    wanted = sequences.expected("band", "time", how, sequences.TABLES)
    found = sequences.outcome(
        sequences.query("band", "time", how), sequences.TABLES, 3, 2, strategy=restless(5, 20), workers=3, order=order
    )
    by_key = [(name, "ascending") for name in ("_plait_key",)]
    assert_same(found.sort_by(by_key), wanted.sort_by(by_key))


@pytest.mark.parametrize("how", HOWS)
def test_elastic(how: str) -> None:
    """Shares change hands while tables change."""
    made = sequences.query("band", "time", how)
    tables = sequences.TABLES
    with made.on_threads(
        schemas={n: t.schema for n, t in tables.items()},
        keys=True,
        strategy="partitioned",
        elastic=4,
        workers=1,
        batch=16,
    ) as run:
        pushing = threading.Thread(target=sequences.deliver, args=(run, tables, 1, 2))
        pushing.start()
        for threads in (3, 1, 4, 2):
            run.resize(threads)
        batches = list(run.results())
        pushing.join()
        assert "4 shares in the place of workers" in run.explain()
        found = pa.Table.from_batches(batches, run.schema).combine_chunks()
    assert_same(found, sequences.expected("band", "time", how, tables))


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [1, 2, -(2**63), 2**63 - 1, None]),
    "small": (pa.int8(), [1, 2, -128, None]),
    "unsigned": (pa.uint64(), [0, 2**64 - 1, 2**63, None]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), None]),
    "single": (pa.float32(), [0.0, -0.0, 0.1, float("nan"), None]),
    "text": (pa.string(), ["", "a", "b", "é", None]),
    "bytes": (pa.binary(), [b"", b"a", None]),
    "bool": (pa.bool_(), [True, False, None]),
    "moment": (pa.timestamp("us"), [0, 1, 10**15, None]),
}


@pytest.mark.crossed
@pytest.mark.parametrize("how", ["inner", "full", "anti"])
@pytest.mark.parametrize("kind", VALUES)
def test_keys_of_any_type(kind: str, how: str) -> None:
    type_, values = VALUES[kind]
    chance = random.Random(kind)

    def rows(n: int) -> pa.Table:
        ts = sorted(chance.randrange(60) for _ in range(n))
        return pa.table({"ts": pa.array(ts), "v": pa.array([chance.choice(values) for _ in range(n)], type_)})

    tables = {"a": rows(60), "b": rows(50)}
    made = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="a.v = b.v", within=9, how=how)
    wanted = made.reference(tables, keys=True)
    for name in ("partitioned", restless(3, 4)):
        assert_same(_run(made, tables, strategy=name, workers=3, plain=True), wanted)


@pytest.mark.crossed
@pytest.mark.parametrize("how", ["inner", "full", "semi"])
@pytest.mark.parametrize("kind", ["int", "small", "unsigned", "float", "single"])
def test_bands_over_any_number(kind: str, how: str) -> None:
    type_, values = VALUES[kind]
    chance = random.Random(kind)
    near = [v for v in values if v is None or abs(v) < 2**60] + [0, 1, 2, 3]

    def rows(n: int) -> pa.Table:
        ts = sorted(chance.randrange(60) for _ in range(n))
        return pa.table({"ts": pa.array(ts), "v": pa.array([chance.choice(near) for _ in range(n)], type_)})

    tables = {"a": rows(60), "b": rows(50)}
    made = plait.join(
        plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="a.v - b.v between -1 and 2", within=9, how=how
    )
    wanted = made.reference(tables, keys=True)
    for name in ("partitioned", restless(4, 4)):
        assert_same(_run(made, tables, strategy=name, workers=3, plain=True), wanted)


@pytest.mark.crossed
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["int", "small", "unsigned", "float", "single"])
def test_ranges_within_values(kind: str, how: str) -> None:
    """An equality and a band: by hash, and by ranges within each hash, which odd seeds ask for."""
    type_, values = VALUES[kind]
    chance = random.Random(f"{kind} {how}")
    near = [v for v in values if v is None or abs(v) < 2**60] + [
        0,
        1,
        2,
        3,
        *([] if kind == "unsigned" else [-1, -2, -3]),
    ]

    def rows(n: int) -> pa.Table:
        ts = sorted(chance.randrange(60) for _ in range(n))
        k = [chance.choice((1, 1, 1, 2, None)) for _ in range(n)]
        return pa.table(
            {"ts": pa.array(ts), "k": pa.array(k), "v": pa.array([chance.choice(near) for _ in range(n)], type_)}
        )

    tables = {"a": rows(60), "b": rows(50)}
    made = plait.join(
        plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="a.k = b.k AND a.v - b.v between -1 and 2", within=9,
        how=how,
    )  # fmt: skip
    wanted = made.reference(tables, keys=True)
    for name in ("partitioned", restless(4, 4), restless(5, 4), restless(7, 1)):
        assert_same(_run(made, tables, strategy=name, workers=3, plain=True), wanted)


@pytest.mark.parametrize("how", ["inner", "right", "full"])
def test_a_hot_value_is_cut_by_its_bands_range(how: str) -> None:
    """Where the first rows show one: a tuple goes to its range's worker and its neighbours then, and not to a row or a column."""
    dice = np.random.default_rng(9)

    def rows(n: int, *, alike: float) -> pa.Table:
        k = np.where(dice.random(n) < alike, 7, dice.integers(0, 1000, n))
        return pa.table({"ts": np.arange(n), "k": k, "v": np.round(dice.normal(0, 500, n), 1)})

    made = plait.join(
        plait.stream("a", unit="us"),
        plait.stream("b", unit="us"),
        on="a.k = b.k AND abs(a.v - b.v) <= 3",
        within=200,
        how=how,
    )
    told = "by the hash of the equality and, within a value, the band's range"
    for alike, is_cut in ((0.9, True), (0.0, False)):
        tables = {"a": rows(900, alike=alike), "b": rows(900, alike=alike)}
        with made.on_threads(
            schemas={n: t.schema for n, t in tables.items()}, keys=True, strategy="partitioned", workers=6
        ) as run:
            for at in range(0, 900, 300):
                for name, table in tables.items():
                    run.push(name, None, table.slice(at, 300))
            run.drain()
            found = run.table()
            assert (told in run.explain()) == is_cut
            copies = sum(worker.tuples for worker in run.stats().workers) / 1800
        assert_same(found, made.reference(tables, keys=True))
        assert copies < 1.3, "by turns each goes to two or three"


def _run(made: plait.Query, tables: dict[str, pa.Table], **options: Any) -> pa.Table:
    with made.on_threads(schemas={n: t.schema for n, t in tables.items()}, keys=True, **options) as run:
        for name, table in tables.items():
            run.push(name, None, table)
        run.drain()
        return run.table()


# --- what a worker takes, and what is said of it ---------------------------------------------------------------------


def _many(rows: int, seed: int, *, hot: float = 0.0, narrow: bool = False) -> dict[str, pa.Table]:
    """Two streams; so many of a hundred tuples have one value, or (`narrow`) lie in one ten-thousandth of the range."""
    dice = np.random.default_rng(seed)
    found = {}
    for name in ("a", "b"):
        k, x = dice.integers(0, 100_000, rows), dice.random(rows) * 1e6
        crowded = dice.random(rows) < hot
        k[crowded] = 7
        x[crowded] = x[crowded] / 1e4 + 5e5 if narrow else 5e5
        found[name] = pa.table({"ts": np.arange(rows), "k": k, "x": x})
    return found


def _spread(condition: str, tables: dict[str, pa.Table], workers: int, how: str = "inner", first: int = 1
            ) -> tuple[list[int], str]:  # fmt: skip
    """Tuples by worker, and what is said. `first` rows are the first push."""
    made = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on=condition, within=500, how=how)
    with made.on_threads(workers=workers, schemas={n: t.schema for n, t in tables.items()}) as run:
        for name, table in tables.items():
            run.push(name, None, table.slice(0, first))
        for at in range(first, tables["a"].num_rows, 4096):
            for name, table in tables.items():
                run.push(name, None, table.slice(at, 4096))
            for _ in run.results(timeout_s=0):
                pass
        run.drain()
        for _ in run.results():
            pass
        return [w.tuples for w in run.stats().workers], run.explain()


def test_each_worker_takes_its_part_by_hash() -> None:
    tuples, told = _spread("a.k = b.k and a.x < b.x", _many(40_000, 1), 5)
    assert max(tuples) < 1.3 * sum(tuples) / 5
    assert sum(tuples) == 80_000  # none is taken twice
    assert "partitioned: by the hash of the equality; of" in told


def test_each_worker_takes_its_part_by_range() -> None:
    """By turns, until the run has seen enough: some 5,000 tuples, of which each is taken by two workers or three."""
    tuples, told = _spread("abs(a.x - b.x) <= 10", _many(40_000, 2), 5)
    assert max(tuples) < 1.3 * sum(tuples) / 5
    assert 80_000 < sum(tuples) < 95_000
    assert "by the band's range; table 2 of the run, since tuple" in told


def test_the_first_rows_say_where_ranges_begin() -> None:
    tuples, told = _spread("abs(a.x - b.x) <= 10", _many(40_000, 2), 5, first=1000)
    assert max(tuples) < 1.3 * sum(tuples) / 5
    assert 80_000 <= sum(tuples) < 81_000  # a band reaches beyond a stretch in one case of ten thousand
    assert "partitioned: by the band's range; of" in told


def test_a_crowded_range_is_cut_finer() -> None:
    tuples, told = _spread("abs(a.x - b.x) <= 0.1", _many(40_000, 3, hot=0.9, narrow=True), 5)
    assert max(tuples) < 1.3 * sum(tuples) / 5
    assert sum(tuples) < 95_000
    assert "hot value" not in told


def test_a_hot_value_is_shared_by_turns() -> None:
    """2 x 2 of five workers: each takes half of either stream's hot tuples."""
    tuples, told = _spread("a.k = b.k and a.x < b.x - 999000", _many(40_000, 4, hot=0.9), 5)
    assert "1 hot value by turns among 2 x 2 workers" in told
    assert max(tuples) < 0.65 * 80_000  # before that, one worker had nine in ten


def test_a_hot_value_of_the_first_rows_is_shared_from_the_first_tuple_on() -> None:
    tuples, told = _spread("a.k = b.k and a.x < b.x - 999000", _many(40_000, 4, hot=0.9), 5, first=1000)
    assert "partitioned: by the hash of the equality, and 1 hot value by turns among 2 x 2 workers; of" in told
    assert max(tuples) < 0.5 * 80_000


def test_a_hot_place_of_a_band_is_shared_by_turns() -> None:
    """Of an outer join: owned tuples by turns; those of the other side reach the place, and are everybody's."""
    tuples, told = _spread("abs(a.x - b.x) <= 10 and a.k + b.k = 20000000", _many(40_000, 5, hot=0.6), 5, how="left")
    assert "1 hot value by turns among 5 x 1 workers" in told
    assert max(tuples) < 0.55 * 80_000


def test_rows_and_columns_stay_where_ranges_would_take_more() -> None:
    """Of an inner join 2 x 2 is less: half of either stream."""
    tuples, told = _spread("abs(a.x - b.x) <= 10 and a.k + b.k = 20000000", _many(40_000, 5, hot=0.9), 4)
    assert "by turns, 2 x 2: ranges would do with little less, or more" in told
    assert tuples == [40_000] * 4


def test_auto_takes_it_for_equalities_and_bands() -> None:
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    for on, wanted in (("a.k = b.k", "partitioned"), ("abs(a.x - b.x) <= 1", "partitioned"), ("a.x < b.x", "scalejoin"),
                       ("a.x - b.x < 3", "scalejoin"), ("a.x - b.x between 0 and 3", "partitioned"),
                       (lambda l, r: bool(l.x == r.x), "scalejoin")):  # fmt: skip
        with plait.join(a, b, on=on, within=5).on_threads(workers=2) as run:
            assert f"on threads: {wanted}, 2 workers" in run.explain(), on
    with plait.join(a, b, on="a.k = b.k", within=5, how="full").on_threads(workers=3) as run:
        assert "the condition has an equality, so that a worker need not see every tuple" in run.explain()


def test_a_condition_without_either_is_refused() -> None:
    made = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="a.x < b.x", within=5)
    with pytest.raises(QueryError, match="for a condition without an equality or a band"):
        made.on_threads(workers=2, strategy="partitioned")


def test_columns_without_a_stream_are_known_by_the_schemas() -> None:
    schemas = {"a": pa.schema({"ts": pa.int64(), "k": pa.int64()}), "b": pa.schema({"ts": pa.int64(), "m": pa.int64()})}
    made = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="k = m", within=5)
    with made.on_threads(workers=2, schemas=schemas) as run:
        assert "on threads: partitioned" in run.explain()
    with made.on_threads(workers=2) as run:
        assert "on threads: scalejoin" in run.explain()


# --- as-of -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_asof_by_values(direction: str, how: str) -> None:
    chance = random.Random(direction)

    def rows(n: int) -> pa.Table:
        ts = sorted(chance.randrange(400) for _ in range(n))
        keys = [chance.choice((*range(9), None)) for _ in range(n)]
        return pa.table({"ts": pa.array(ts), "k": pa.array(keys, pa.int64())})

    tables = {"a": rows(300), "b": rows(200)}
    made = plait.asof(
        plait.stream("a", unit="us"), plait.stream("b", unit="us"), by="k", within=40, how=how, direction=direction
    )
    wanted = made.reference(tables, keys=True)
    for options in ({"workers": 1}, {"workers": 2}, {"workers": 5, "batch": 3}, {"workers": 3, "strategy": "dpjoin"},
                    {"workers": 2, "elastic": 4}, {"workers": 3, "strategy": "partitioned"}):  # fmt: skip
        assert_same(_run(made, tables, **options), wanted)


def test_asof_says_who_has_which_values() -> None:
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    with plait.asof(a, b, by="k").on_threads(workers=2) as run:
        assert "on threads: partitioned, 2 workers: 2 workers by values" in run.explain()
    with plait.asof(a, b, by="k").on_threads(workers=2, strategy="dpjoin") as run:
        assert "2 x 1: left tuples by turns" in run.explain()
    with pytest.raises(QueryError, match="for an as-of join without by="):
        plait.asof(a, b).on_threads(workers=2, strategy="partitioned")
