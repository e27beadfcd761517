"""Random conditions, types, NULLs, NaN, ties and windows: exactly the reference's pairs in exactly its order.

Thousands of conditions run as plain Python (the same text that Numba compiles), on every index that can serve them;
dozens are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.condition import trees
from tests.core.condition.trees import SCHEMA
from tests.core.join.brute import Run, expected, merged, processed
from tests.examples import examples

from plait.core.join.choice import possible
from plait.core.join.window import JoinWindow
from plait.query.condition.expression import Expr
from plait.query.condition.predicate import Predicate
from plait.query.join import CountWindow, TimeWindow, TumblingWindow, Window
from plait.reference.condition import condition
from plait.reference.rows import Row, values_of

WINDOWS: st.SearchStrategy[Window] = st.one_of(
    st.builds(TimeWindow, st.integers(0, 9), st.integers(0, 9)),
    st.builds(CountWindow, st.integers(1, 9)),
    st.builds(TumblingWindow, st.integers(3, 12)),
)


def judge(predicate: Predicate, run: Run) -> Callable[[int, int], bool]:
    """The reference's verdict on a pair of rows, remembered."""
    matches = condition(predicate, SCHEMA, SCHEMA)
    rows = [[Row(0, (), values) for values in values_of(batch)] for batch in run.batches]
    known: dict[tuple[int, int], bool] = {}

    def verdict(l: int, r: int) -> bool:
        if (l, r) not in known:
            known[l, r] = matches(rows[0][l], rows[1][r])
        return known[l, r]

    return verdict


@st.composite
def runs(draw: st.DrawFn, predicate: Predicate, *, most: int = 12) -> Run:
    tame, nulls = draw(st.booleans()), draw(st.booleans())
    times, batches = [], []
    for s in (0, 1):
        n = most - draw(st.integers(0, most))
        times.append(draw(st.lists(st.integers(-3, 6), min_size=n, max_size=n)))
        batches.append(draw(trees.batches(n, predicate.reads[s], tame=tame, nulls=nulls)))
    return merged(times[0], times[1], batches[0], batches[1])


def check(predicate: Predicate, run: Run, window: Window, cuts: list[int], **options: Any) -> None:
    truth = expected(run, window, judge(predicate, run))
    probe = JoinWindow(predicate, SCHEMA, SCHEMA, window, **options)
    for kind in ("auto", *possible(probe.shape)):
        join = JoinWindow(predicate, SCHEMA, SCHEMA, window, index=kind, **options)
        assert processed(join, run, cuts) == truth, kind


def _check_tree(data: st.DataObject, expr: Expr, *, sql: bool) -> None:
    predicate = trees.as_predicate(expr, sql=sql)
    run = data.draw(runs(predicate))
    cuts = data.draw(st.lists(st.integers(0, len(run.side)), max_size=3))
    check(predicate, run, data.draw(WINDOWS), cuts, plain=True)


@settings(max_examples=examples(250))
@given(st.data(), trees.conditions(2, sql=False))
def test_traced_conditions_give_the_references_pairs(data: st.DataObject, expr: Expr) -> None:
    _check_tree(data, expr, sql=False)


@settings(max_examples=examples(200))
@given(st.data(), trees.conditions(2, sql=True))
def test_sql_conditions_give_the_references_pairs(data: st.DataObject, expr: Expr) -> None:
    _check_tree(data, expr, sql=True)


@settings(max_examples=examples(200))
@given(st.data(), st.lists(trees.indexable(sql=False), min_size=1, max_size=3))
def test_conditions_that_serve_an_index_give_the_references_pairs(data: st.DataObject, parts: list[Expr]) -> None:
    expr = parts[0]
    for part in parts[1:]:
        expr = trees.Binary("and", expr, part)
    _check_tree(data, expr, sql=False)


def _compiled(sql: bool) -> list[Predicate]:
    """A few conditions, the same in every run: what is compiled must not cost minutes."""
    found: dict[Expr, Predicate] = {}

    @settings(max_examples=60, database=None, derandomize=True)
    @given(trees.conditions(2, sql=sql))
    def collect(expr: Expr) -> None:
        predicate = trees.as_predicate(expr, sql=sql)
        if len(predicate.reads[0]) and len(predicate.reads[1]):
            found[expr] = predicate

    collect()
    return list(found.values())[-6:]


@pytest.mark.parametrize("sql", [False, True], ids=["traced", "sql"])
def test_compiled_conditions_give_the_references_pairs(sql: bool) -> None:
    """Half of the rows are tame, half are not, and one batch holds both: one signature, hence few compilations."""
    random = np.random.default_rng(17)
    for predicate in _compiled(sql):
        batches = []
        for s in (0, 1):
            parts = [trees.rows(random, 20, predicate.reads[s], tame=tame, nulls=True) for tame in (True, False)]
            whole = pa.Table.from_batches(parts).unify_dictionaries().combine_chunks()
            batches.append(whole.to_batches()[0])
        # Left rows come first, so only the right ones probe: half as much to compile.
        run = merged([-1] * 40, list(range(40)), batches[0], batches[1])
        check(predicate, run, CountWindow(40), [], plain=False)
