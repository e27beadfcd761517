"""Queries over queries, each beside the same composition of definitions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests import definitions as define
from tests.definitions import Relation
from tests.reference.conditions import compare
from tests.reference.programs import Program
from tests.strategies import ORIGINS, Case, Given, distinct, streams

import plait

Draw = Callable[[Any], Any]


def same(left: str, right: str) -> define.Truth:
    return lambda l, r: compare(operator.eq, l[left], r[right])


def every_pair(l: dict[str, Any], r: dict[str, Any]) -> bool:
    return True


def summary(column: str) -> tuple[dict[str, Any], define.Compute]:
    """Functions over a column as a query has them, and by definition."""
    return (
        {"n": plait.count(), "total": plait.sum(column), "first": plait.first(column), "all": plait.collect(column)},
        {
            "n": (pa.int64(), len),
            "total": (pa.int64(), lambda rows: define.total(define.present(rows, column))),
            "first": (pa.int64(), lambda rows: rows[0][column]),
            "all": (pa.list_(pa.int64()), lambda rows: [row[column] for row in rows]),
        },
    )


def aggregate_of_join(draw: Draw, a: Given, b: Given, c: Given) -> tuple[Any, Relation]:
    how = draw(st.sampled_from(("left", "inner")))
    on, holds = draw(st.sampled_from(((None, every_pair), ("l.k = r.k", same("k", "k")))))
    join = plait.join(a.stream, b.stream, on=on, within=(1, 2), how=how)
    joined = define.join(
        a.relation, b.relation, define.within(1, 2), holds, how=how, before=1, after=2, names=("a", "b")
    )
    query, by_definition = summary("b_k")
    by = draw(st.sampled_from(((), ("a_s",), ("b_x",))))
    if draw(st.booleans()):
        expected = define.aggregate_spans(joined, 3, 2, by, by_definition)
        return plait.aggregate(join, size="3us", advance="2us", by=by, compute=query), expected
    expected = define.aggregate_counts(joined, 3, 2, by, by_definition)
    return plait.aggregate(join, size=3, advance=2, by=by, compute=query), expected


def join_of_aggregate(draw: Draw, a: Given, b: Given, c: Given) -> tuple[Any, Relation]:
    """The aggregate stands left or right, with a partner that may be its own input (a diamond)."""
    query, by_definition = summary("k")
    windows = plait.aggregate(a.stream, size="2us", by="k", compute=query, name="w")
    by_k = define.aggregate_spans(a.relation, 2, 2, ("k",), by_definition)
    other = draw(st.sampled_from((a, b)))
    how = draw(st.sampled_from(("inner", "left", "right", "full", "semi", "anti")))
    if draw(st.booleans()):
        join = plait.join(windows, other.stream, on=lambda w, o: w.k == o.k, within=(2, 1), how=how)
        return join, define.join(by_k, other.relation, define.within(2, 1), same("k", "k"), how=how, before=2, after=1,
                                 names=("w", other.stream.name))  # fmt: skip
    join = plait.join(other.stream, windows, on="r.k = l.k", within=(2, 1), how=how)
    return join, define.join(other.relation, by_k, define.within(2, 1), same("k", "k"), how=how, before=2, after=1,
                             names=(other.stream.name, "w"))  # fmt: skip


def join_of_joins(draw: Draw, a: Given, b: Given, c: Given) -> tuple[Any, Relation]:
    """Three streams; the inner join stands left or right and has unmatched rows, or is a count window."""
    how = draw(st.sampled_from(("inner", "left", "right", "full", "semi", "anti")))
    inner = plait.join(a.stream, b.stream, on="l.s = r.s", within=(2, 1), how=how, name="j")
    j = define.join(a.relation, b.relation, define.within(2, 1), same("s", "s"), how=how, before=2, after=1,
                    names=("a", "b"))  # fmt: skip
    if draw(st.booleans()):
        fits = define.last(2, j, c.relation)
        return plait.join(inner, c.stream, last=2), define.join(j, c.relation, fits, every_pair, names=("j", "c"))
    fits = define.within(2, 0)
    expected = define.join(c.relation, j, fits, every_pair, how="left", after=0, names=("c", "j"))
    return plait.join(c.stream, inner, within=(2, 0), how="left"), expected


def asof_of_aggregate(draw: Draw, a: Given, b: Given, c: Given) -> tuple[Any, Relation]:
    query, by_definition = summary("k")
    windows = plait.aggregate(b.stream, size=2, advance=1, by="k", compute=query)
    counted = define.aggregate_counts(b.relation, 2, 1, ("k",), by_definition)
    by = draw(st.sampled_from(((), (("k", "k"),))))
    left = draw(st.sampled_from((a, b)))
    expected = define.asof(left.relation, counted, by=by, age=3)
    return plait.asof(left.stream, windows, by=by, within=3), expected


def _remember(state: list[Any], t: Any) -> list[Any]:
    state.append(t.a_k)
    return [plait.timer(t.ts + 1), (len(state), t.b_k)]


def _report(state: list[Any], at: int) -> list[Any]:
    return [(len(state), at % 10)]


_OVER_JOIN = Program("over a join", 2, lambda t: None if t.a_k is None else t.a_k % 2, list, _remember,
                     pa.schema([("u", pa.int64()), ("v", pa.int64())]), _report)  # fmt: skip


def operator_over_join(draw: Draw, a: Given, b: Given, c: Given) -> tuple[Any, Relation]:
    """An operator over a left join; then counted, since its outputs are a stream too."""
    join = plait.join(a.stream, b.stream, on=lambda a, b: a.k == b.k, within=1, how="left", name="j")
    j = define.join(a.relation, b.relation, define.within(1, 1), same("k", "k"), how="left", after=1, names=("a", "b"))
    run = _OVER_JOIN.expected([("j", j)])
    if draw(st.booleans()):
        return _OVER_JOIN.query(join), run
    query, by_definition = summary("v")
    counts = define.aggregate_counts(run, 2, 1, ("u",), by_definition)
    return plait.aggregate(_OVER_JOIN.query(join), size=2, advance=1, by="u", compute=query), counts


def diamond(draw: Draw, a: Given, b: Given, c: Given) -> tuple[Any, Relation]:
    """One stream, two aggregates of it, joined: the very same query twice, an equal one, or another."""
    query, by_definition = summary("k")
    one = plait.aggregate(a.stream, size="2us", by="s", compute=query)
    by_s = define.aggregate_spans(a.relation, 2, 2, ("s",), by_definition)
    other, by_other = draw(
        st.sampled_from((
            (one, by_s),
            (plait.aggregate(a.stream, size="2us", by="s", compute=query), by_s),
            (plait.aggregate(a.stream, size=2, by="s", compute=query),
             define.aggregate_counts(a.relation, 2, 2, ("s",), by_definition)),
        ))
    )  # fmt: skip
    if draw(st.booleans()):
        fits = define.last(2, by_s, by_other)
        return plait.join(one, other, last=2, on="l.s = r.s"), define.join(by_s, by_other, fits, same("s", "s"))
    expected = define.join(by_s, by_other, define.within(2, 3), same("s", "s"), how="left", after=3)
    return plait.join(one, other, within=(2, 3), on="l.s = r.s", how="left"), expected


SHAPES = (
    aggregate_of_join,
    join_of_aggregate,
    join_of_joins,
    asof_of_aggregate,
    operator_over_join,
    diamond,
)


@st.composite
def dags(draw: st.DrawFn, shapes: tuple[Any, ...] = SHAPES, **options: Any) -> Case:
    origin = draw(st.sampled_from(ORIGINS))
    a, b, c = (draw(streams(name, origin=origin, max_rows=6, **options)) for name in "abc")
    query, expected = draw(st.sampled_from(shapes))(draw, a, b, c)
    read = query.streams()
    return Case(query, tuple(each for each in distinct(a, b, c) if each.stream.name in read), expected)
