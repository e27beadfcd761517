"""Queries over queries against composed definitions, and the nested keys that carry the order from one to the next."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests import definitions as define
from tests import strategies
from tests.examples import examples
from tests.reference.dags import SHAPES, dags
from tests.reference.judge import Execute, judge, on_reference
from tests.reference.programs import operators
from tests.strategies import Case, batch

import plait
from plait import DataError, order
from plait.reference.run import Run


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_dag(data: st.DataObject, shape: Any, execute: Execute) -> None:
    judge(data.draw(dags(shapes=(shape,))), execute)


# --- keys of results ----------------------------------------------------------------------------------------

#: Not "content": equal rows can't be told apart, and have equal keys.
TOLD_APART = tuple(layout for layout in strategies.LAYOUTS if layout != "content")


def with_keys(**options: Any) -> st.SearchStrategy[Case]:
    options["layouts"] = TOLD_APART
    return st.one_of(dags(**options), strategies.time_joins(**options), strategies.asof_joins(**options),
                     strategies.span_aggregates(**options), operators(**options))  # fmt: skip


def rows_with_keys(case: Case) -> list[Any]:
    """The result's rows as the reference holds them, with their nested keys."""
    run = Run(case.query, case.schemas)
    for each in case.given:
        for source, rows in each.sources.items():
            run.push(each.stream.name, batch(each.schema, rows), source=None if each.by_column else source)
    run.close()
    return run.take()


@settings(max_examples=examples(60))
@given(case=with_keys())
def test_keys_increase_strictly_and_so_do_their_bytes(case: Case) -> None:
    keys = on_reference(case, keys=True)["_plait_key"].to_pylist()
    assert len(keys) == len(case.expected.tuples)
    assert all(a < b for a, b in itertools.pairwise(keys))


@settings(max_examples=examples(40))
@given(case=with_keys(declared=True))
def test_bytes_of_keys_are_those_of_the_nested_keys(case: Case) -> None:
    rows = rows_with_keys(case)
    keys = [(row.ts, row.key) for row in rows]
    assert keys == sorted(keys)
    assert [order.encode(row.key) for row in rows] == on_reference(case, keys=True)["_plait_key"].to_pylist()


PLAIN = pa.schema([("ts", pa.int64()), ("src", pa.string())])
A, B = (plait.stream(name, unit="us", source="src") for name in "ab")

#: Tuples of the two streams and their keys, in total order.
ROWS = {"a": [(5, "p"), (5, "q"), (7, "p")], "b": [(6, "r")]}
P, Q, R, P2 = (5, 0, b"p", 1), (5, 0, b"q", 1), (6, 1, b"r", 1), (7, 0, b"p", 2)


def _twice(state: list[Any], t: Any) -> list[Any]:
    return [("one",), plait.timer(t.ts + 2), ("two",)]


_WITH_TIMER = plait.operator([A, B], buckets=2, route=lambda t: 1 if t.ts == 5 else None, state=list, process=_twice,
                             on_timer=lambda state, at: [("ring",), ("ring",)], output={"v": "string"})  # fmt: skip
_COUNT = {"n": plait.count()}

#: As listed at the head of order.py; no worker, batch or partition number is part of any key.
SHAPES_OF_KEYS: dict[str, tuple[plait.Query, list[Any]]] = {
    "join result, unmatched row": (
        plait.join(A, B, within=(0, 1), on="l.src <> 'q'", how="left"),
        [(R, P), ((6, order.AFTER_INPUTS), Q), ((8, order.AFTER_INPUTS), P2)],
    ),
    "semi-join": (plait.join(A, B, within=1, how="semi"), [(R, P), (R, Q), (P2, R)]),
    "as-of": (plait.asof(A, B), [(P, ()), (Q, ()), (P2, R)]),
    "as-of, forward": (
        plait.asof(A, B, within=1, direction="forward"),
        [((6, order.AFTER_INPUTS), P), ((6, order.AFTER_INPUTS), Q), ((8, order.AFTER_INPUTS), P2)],
    ),
    "aggregate": (
        plait.aggregate(A, size="2us", by="src", compute=_COUNT), [(5, (0, b"p")), (5, (0, b"q")), (7, (0, b"p"))],
    ),
    "count window": (plait.aggregate(A, size=2, advance=1, compute=_COUNT), [(Q,), (P2,)]),
    "operator, timer": (
        _WITH_TIMER,
        [(P, 1, 0), (P, 1, 1), (Q, 1, 0), (Q, 1, 1), ((6, order.AFTER_INPUTS), 1, 0), ((6, order.AFTER_INPUTS), 1, 1)],
    ),
    "nested": (
        plait.join(plait.join(A, B, within=1), A, within=0, on="l.a_src = r.src"),
        [((7, 1, b"p", 2), (7, 0, P2, R))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES_OF_KEYS)
def test_keys_have_the_shapes_that_are_written_down(shape: str) -> None:
    query, keys = SHAPES_OF_KEYS[shape]
    read = query.streams()
    run = Run(query, dict.fromkeys(read, PLAIN))
    for name in read:
        run.push(name, batch(PLAIN, ROWS[name]))
    run.close()
    assert [row.key for row in run.take()] == keys


# --- any key as bytes ---------------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.one_of(
        st.integers(), st.sampled_from((0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 255, 256))
    ),
    "float": st.floats(),
    "text": st.text(alphabet=st.sampled_from("\x00\x01a\x7fé\uffff\U0001f600")),
    "bytes": st.binary(max_size=4),
    "bool": st.booleans(),
    "list": st.lists(st.one_of(st.none(), st.integers(-2, 2)), max_size=3),
}


def columns_of(kind: str) -> st.SearchStrategy[tuple[Any, ...]]:
    """Parts of a key that a column's value makes: all of one kind, some NULL."""
    return st.one_of(st.none(), VALUES[kind]).map(order.key_value)


@st.composite
def two_keys(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """Two keys of one shape, as keys that meet are: each part drawn twice, or the same in both."""
    if depth == 0 or draw(st.booleans()):
        part = columns_of(draw(st.sampled_from(list(VALUES))))
        a = draw(part)
        return a, draw(st.one_of(st.just(a), part))
    parts = [draw(two_keys(depth - 1)) for _ in range(draw(st.integers(0, 3)))]
    a, b = tuple(p[0] for p in parts), tuple(p[1] for p in parts)
    # One may end where the other goes on: an as-of result without a partner.
    return (a, b[: draw(st.integers(0, len(b)))]) if draw(st.booleans()) else (a, b)


def sign(a: Any, b: Any) -> int:
    return (a > b) - (a < b)


@given(keys=two_keys(depth=3))
@example(keys=((-(2**63), 1), (-(2**63) - 1, 2)))
@example(keys=((b"a", 1), (b"a\x00", 0)))
@example(keys=(((), 1), (((),), 0)))
def test_bytes_compare_as_keys_do(keys: tuple[Any, Any]) -> None:
    a, b = (key if isinstance(key, tuple) else (key,) for key in keys)
    assert sign(order.encode(a), order.encode(b)) == sign(a, b)


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind != "list"])
@given(data=st.data())
def test_values_in_keys_are_ordered_as_defined(data: st.DataObject, kind: str) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), VALUES[kind]), max_size=8))
    for a in values:
        for b in values:
            by_definition = sign(define.sortable(a), define.sortable(b))
            assert sign(order.key_value(a), order.key_value(b)) == by_definition
            assert sign(order.encode(order.key_value(a)), order.encode(order.key_value(b))) == by_definition


def test_zeros_are_one_value_and_so_are_nans() -> None:
    assert order.encode(order.key_value(0.0)) == order.encode(order.key_value(-0.0))
    assert order.encode(order.key_value(math.nan)) == order.encode(order.key_value(-math.nan))
    ordered = sorted([None, math.nan, math.inf, -math.inf], key=order.key_value)
    assert [str(value) for value in ordered] == ["-inf", "inf", "nan", "None"]


# --- rows by content have keys too --------------------------------------------------------------------------

CONTENT: dict[str, Any] = {
    "decimal": pa.array([None, 2, 1], pa.decimal128(9, 2)),
    "list of moments": pa.array([[2], None, [1]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us"))),
    "list of dates": pa.array([[2], None, [1]], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
    "struct": pa.array([{"v": 2}, None, {"v": 1}]),
    "map": pa.array([[("k", 2)], None, [("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "time": pa.array([2, None, 1], pa.int64()).cast(pa.time64("us")),
    "span": pa.array([2, None, 1], pa.int64()).cast(pa.duration("s")),
    "half": pa.array([2.0, None, 1.0], pa.float32()).cast(pa.float16()),
    "bytes": pa.array([b"2", None, b"1"]),
    "flag": pa.array([True, None, False]),
}


@pytest.mark.parametrize("kind", CONTENT)
def test_rows_of_any_type_are_ordered_by_content(kind: str) -> None:
    """Three rows at one moment: by value, NULL last. A type that can't be ordered is refused in words."""
    values = CONTENT[kind]
    stream = plait.stream("a", unit="us", seq="content")
    query = plait.aggregate(stream, size=1, compute={"v": plait.first("v")})
    try:
        table = query.reference({"a": pa.table({"ts": [0, 0, 0], "v": values})})
    except DataError:
        return
    at = {"decimal": [2, 1, 0]}.get(kind, [2, 0, 1])
    assert table["v"].to_pylist() == values.take(pa.array(at)).to_pylist()
