"""Random streams and queries as cases: a query, its data, and the result that the definitions give for them.

A case knows nothing of executors. Streams are small and nasty: few moments and few values, so that nearly everything is
a tie; NULL and NaN in every column; one to four sources, named in every way a stream can name them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from tests import definitions as define
from tests.definitions import Relation
from tests.reference.conditions import CONDITIONS, Condition

import plait
from plait import Query, Stream

#: What every stream's rows hold; `extra` is there on one side only, so that a name stands once in a join's result.
COLUMNS = (("ts", pa.int64()), ("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("p", pa.int8()),
           ("q", pa.float32()))  # fmt: skip

#: First and last moments of the domain are 6 us apart, at zero and at both ends of time.
ORIGINS = (0, 0, 0, -3, -(2**62), 2**62 - 6)

#: By size -7 < 2 < 10, by bytes B < a < é; neither is the order in which they are first drawn.
INTEGER_NAMES = (2, 10, -7, 3)
TEXT_NAMES = ("a", "B", "é", "aa")


@dataclass(frozen=True)
class Given:
    """A stream with its rows: `data` as a query takes it, `relation` and `late` as the definition sees it.

    `sources` maps each source's name to its rows in order; in `arrival` order (source names) they interleave.
    """

    stream: Stream
    schema: pa.Schema
    sources: dict[Any, list[tuple[Any, ...]]]
    arrival: tuple[Any, ...]
    relation: Relation
    late: list[tuple[Any, ...]]
    data: Any

    def __repr__(self) -> str:
        options = [f"{f.name}={getattr(self.stream, f.name)!r}" for f in fields(self.stream)]
        return f"\n  {', '.join(options)}\n  {self.schema.names}\n  {self.sources}, delivered as {self.arrival}"

    @property
    def by_column(self) -> bool:
        return self.stream.source is not None


@dataclass(frozen=True)
class Case:
    """A query, the streams it reads, and its result by definition."""

    query: Query
    given: tuple[Given, ...]
    expected: Relation

    def __repr__(self) -> str:
        rows = "".join(f"\n  {t.values}" for t in self.expected.tuples)
        return f"\n{self.query.explain()}\ngiven {self.given}\nexpected{rows}\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # else hypothesis prints every field of every field

    @property
    def data(self) -> dict[str, Any]:
        return {each.stream.name: each.data for each in self.given}

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {each.stream.name: each.schema for each in self.given}


# --- values and rows ----------------------------------------------------------------------------------------

_VALUES: dict[str, tuple[Any, ...]] = {
    "k": (0, 1, 2, None, -1),
    "x": (0.0, 0.5, 1.0, None, math.nan, -0.0, 1.25, math.inf, 0.1, 0.7, 1e17, -1e17),
    "s": ("a", "b", None, "", "é", "a\x00", "B"),
    "p": (0, 1, None, 127, -128),
    "q": (0.5, None, math.nan, float(np.float32(0.1)), 1.25),
}


@st.composite
def sequences(draw: st.DrawFn, length: int, *, disorder: int, late: bool) -> list[int]:
    """One source's times: in order, or running back; by more than the disorder only if `late` tuples are wanted."""
    times = draw(st.lists(st.integers(0, 6), min_size=length, max_size=length))
    shape = draw(st.sampled_from(("in order", "all equal", "any")))
    if shape == "in order":
        return sorted(times)
    if shape == "all equal":
        return times[:1] * length
    if late:
        return times
    highest, allowed = -disorder, []
    for ts in times:
        allowed.append(max(ts, highest - disorder))
        highest = max(highest, ts)
    return allowed


def _rows(chance: random.Random, times: list[int], values: dict[str, tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows at these times. Their values come from a seed: more of them in less time, and there are as few as before."""
    return [(ts, *(chance.choice(choices) for choices in values.values())) for ts in times]


# --- streams ------------------------------------------------------------------------------------------------

#: How a stream's sources are told apart, and its ties inside one source.
LAYOUTS = ("one", "integer column", "text column", "positions", "names", "seq column", "content")


@st.composite
def streams(draw: st.DrawFn, name: str, *, extra: str = "", max_rows: int = 9, late: str | None = None,
            layouts: tuple[str, ...] = LAYOUTS, origin: int | None = None, declared: bool | None = None,
            behind: str = "error", values: dict[str, tuple[Any, ...]] | None = None) -> Given:  # fmt: skip
    """A stream called `name`. `extra` names one more column; `late`, `origin` and `declared` are drawn if not given.

    `values` says what some columns hold, instead of what they hold else.
    """
    layout = draw(st.sampled_from(layouts))
    disorder = draw(st.sampled_from((0, 0, 1, 3)))
    policy = "error" if layout == "content" else late or draw(st.sampled_from(("error", "drop")))
    names = _source_names(draw, layout)
    origin = draw(st.sampled_from(ORIGINS)) if origin is None else origin
    columns = [(n, kind) for n, kind in COLUMNS] + ([(extra, pa.int64())] if extra else [])
    lengths = st.sampled_from((0, 1, *(max_rows * part // (3 * len(names)) + 1 for part in (1, 2, 2, 3, 3))))
    chance = random.Random(draw(st.integers(0, 2**32 - 1)))
    sources = {}
    for source in names:
        length = draw(lengths)
        times = draw(sequences(length, disorder=disorder, late=policy == "drop"))
        rows = _rows(chance, [min(origin + ts, 2**62) for ts in times], _VALUES | (values or {}))
        sources[source] = [(*row, at) for at, row in enumerate(rows)] if extra else rows
    declared = draw(st.booleans()) if declared is None else declared
    options = {"unit": "us", "disorder": disorder, "late": policy, "behind": behind}
    return _given(draw, name, layout, columns, sources, declared, options)


def _source_names(draw: st.DrawFn, layout: str) -> tuple[Any, ...]:
    if layout == "one":
        return (0,)
    count = draw(st.integers(1, 4))
    if layout == "positions":
        return tuple(range(count))
    names = INTEGER_NAMES if layout in ("integer column", "seq column") else TEXT_NAMES
    return tuple(draw(st.permutations(names))[:count])


def _given(draw: st.DrawFn, name: str, layout: str, columns: list[tuple[str, pa.DataType]],
           sources: dict[Any, list[tuple[Any, ...]]], declared: bool, options: dict[str, Any]) -> Given:  # fmt: skip
    by_column = layout not in ("one", "positions", "names")
    names = tuple(sources)
    if by_column:
        columns = [*columns, ("src", pa.string() if isinstance(names[0], str) else pa.int64())]
        sources = {source: [(*row, source) for row in rows] for source, rows in sources.items()}
        options["source"] = "src"
    if layout == "seq column":
        columns = [*columns, ("n", pa.int64())]
        sources = {source: [(*row, 10 * at - 5) for at, row in enumerate(rows)] for source, rows in sources.items()}
    if layout in ("seq column", "content"):
        options["seq"] = "n" if layout == "seq column" else "content"
    if declared:
        options["sources"] = len(names) if layout in ("one", "positions") else names
    schema = pa.schema(columns)
    # By declared position, else by name: that is by size for integers and by bytes for text.
    places = {s: names.index(s) if declared and not by_column else define.sortable(s) for s in names}
    relation, dropped = define.stream(schema, {places[s]: rows for s, rows in sources.items()},
                                      disorder=options["disorder"], seq=options.get("seq", "position"))  # fmt: skip
    arrival = tuple(draw(st.permutations([s for s, rows in sources.items() for _ in rows])))
    data = _data(draw, schema, sources, arrival, layout)
    return Given(plait.stream(name, **options), schema, sources, arrival, relation, dropped, data)


def _data(draw: st.DrawFn, schema: pa.Schema, sources: dict[Any, list[tuple[Any, ...]]], arrival: tuple[Any, ...],
          layout: str) -> Any:  # fmt: skip
    """The rows as `Query.reference` takes them: a table for each source, or one in which they interleave."""
    if layout == "positions":
        return [table(schema, rows) for rows in sources.values()]
    if layout == "names":
        return {source: table(schema, rows) for source, rows in sources.items()}
    rows = interleaved(sources, arrival)
    if layout == "seq column":
        rows = draw(st.permutations(rows))
    return table(schema, rows)


def interleaved(sources: dict[Any, list[tuple[Any, ...]]], arrival: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """All rows, the next of each source as often as `arrival` names it."""
    rest = {source: iter(rows) for source, rows in sources.items()}
    return [next(rest[source]) for source in arrival]


def batch(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns: Any = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_batches([batch(schema, rows)])


# --- joins --------------------------------------------------------------------------------------------------

_SPANS = st.sampled_from((0, 1, 2, 5))


@st.composite
def pairs_of_streams(draw: st.DrawFn, **options: Any) -> tuple[Given, Given]:
    """Two streams at one end of time; now and then the same one twice."""
    origin = options.pop("origin", None)
    origin = draw(st.sampled_from(ORIGINS)) if origin is None else origin
    left = draw(streams("a", extra="k2", origin=origin, **options))
    if draw(st.integers(0, 5)) == 5:
        return left, left
    return left, draw(streams("b", origin=origin, **options))


def side_names(left: Given, right: Given) -> tuple[str, str]:
    return ("left", "right") if left is right else (left.stream.name, right.stream.name)


def distinct(*given: Given) -> tuple[Given, ...]:
    return tuple({each.stream.name: each for each in given}.values())


def conditions(forms: tuple[str, ...] = ("sql", "traced", "opaque")) -> st.SearchStrategy[tuple[Condition, str]]:
    return st.sampled_from([(c, form) for c in CONDITIONS for form in forms if c.has(form)])


def make_join(left: Given, right: Given, how: str, window: tuple[str, Any], condition: Condition, form: str) -> Case:
    """The case of one join; `window` is the option's name and value as `plait.join` takes it."""
    option, value = window
    before, after = value if isinstance(value, tuple) else (value, value)
    fits = {
        "within": lambda: define.within(before, after),
        "last": lambda: define.last(value, left.relation, right.relation),
        "tumbling": lambda: define.tumbling(value),
        "tumbling_count": lambda: define.tumbling_count(value, left.relation, right.relation),
    }[option]()
    query = plait.join(left.stream, right.stream, on=condition.written(form), how=how, **{option: value})
    expected = define.join(left.relation, right.relation, fits, condition.truth(form), how=how, before=before, after=after,
                           names=side_names(left, right))  # fmt: skip
    return Case(query, distinct(left, right), expected)


HOWS = ("inner", "left", "right", "full", "semi", "anti")


@st.composite
def time_joins(draw: st.DrawFn, hows: tuple[str, ...] = HOWS, **options: Any) -> Case:
    left, right = draw(pairs_of_streams(**options))
    value = draw(st.one_of(_SPANS, st.tuples(_SPANS, _SPANS)))
    return make_join(left, right, draw(st.sampled_from(hows)), ("within", value), *draw(conditions()))


@st.composite
def count_joins(draw: st.DrawFn, **options: Any) -> Case:
    left, right = draw(pairs_of_streams(**options))
    return make_join(left, right, "inner", ("last", draw(st.integers(1, 4))), *draw(conditions()))


@st.composite
def tumbling_joins(draw: st.DrawFn, **options: Any) -> Case:
    left, right = draw(pairs_of_streams(**options))
    return make_join(left, right, "inner", ("tumbling", draw(st.sampled_from((1, 2, 3, 2**62)))), *draw(conditions()))


@st.composite
def tumbling_count_joins(draw: st.DrawFn, **options: Any) -> Case:
    left, right = draw(pairs_of_streams(**options))
    return make_join(left, right, "inner", ("tumbling_count", draw(st.integers(1, 4))), *draw(conditions()))


@st.composite
def asof_joins(draw: st.DrawFn, **options: Any) -> Case:
    left, right = draw(pairs_of_streams(**options))
    by = draw(st.sampled_from(((), (("k", "k"),), (("s", "s"),), (("x", "q"),), (("p", "k"), ("s", "s")))))
    direction = draw(st.sampled_from(("backward", "backward", "forward", "nearest")))
    age = draw(st.sampled_from((None, 0, 1, 3) if direction == "backward" else (0, 1, 3, 5)))
    how, exact = draw(st.sampled_from(("left", "inner"))), draw(st.booleans())
    query = plait.asof(left.stream, right.stream, by=list(by), within=age, how=how, exact=exact, direction=direction)
    expected = define.asof(left.relation, right.relation, by=by, age=age, how=how, exact=exact, direction=direction,
                           names=side_names(left, right))  # fmt: skip
    return Case(query, distinct(left, right), expected)


# --- aggregates ---------------------------------------------------------------------------------------------


def _distinct_values(rows: list[dict[str, Any]], column: str) -> int:
    return len({define.sortable(v) for v in define.present(rows, column)})


def _polynomial(rows: list[dict[str, Any]]) -> int:
    """Order-sensitive: what the custom function of the same name computes."""
    state = 1
    for row in rows:
        state = 3 * state + (7 if row["k"] is None else row["k"])
    return state


#: Output column -> (the function as a query has it, its type, its definition).
FUNCTIONS: dict[str, tuple[Any, pa.DataType, Any]] = {
    "n": (plait.count(), pa.int64(), len),
    "sum_k": (plait.sum("k"), pa.int64(), lambda rows: define.total(define.present(rows, "k"))),
    "sum_p": (plait.sum("p"), pa.int64(), lambda rows: define.total(define.present(rows, "p"))),
    "sum_x": (plait.sum("x"), pa.float64(), lambda rows: define.total(define.present(rows, "x"))),
    "mean_k": (plait.mean("k"), pa.float64(), lambda rows: define.mean(define.present(rows, "k"))),
    "mean_q": (plait.mean("q"), pa.float64(), lambda rows: define.mean(define.present(rows, "q"))),
    "var_x": (plait.var("x"), pa.float64(), lambda rows: define.variance(define.present(rows, "x"))),
    "var_k": (plait.var("k"), pa.float64(), lambda rows: define.variance(define.present(rows, "k"))),
    "min_x": (plait.min("x"), pa.float64(), lambda rows: define.extreme(define.present(rows, "x"), largest=False)),
    "max_x": (plait.max("x"), pa.float64(), lambda rows: define.extreme(define.present(rows, "x"), largest=True)),
    "min_s": (plait.min("s"), pa.string(), lambda rows: define.extreme(define.present(rows, "s"), largest=False)),
    "max_k": (plait.max("k"), pa.int64(), lambda rows: define.extreme(define.present(rows, "k"), largest=True)),
    "first_x": (plait.first("x"), pa.float64(), lambda rows: rows[0]["x"]),
    "last_s": (plait.last("s"), pa.string(), lambda rows: rows[-1]["s"]),
    "last_k": (plait.last("k"), pa.int64(), lambda rows: rows[-1]["k"]),
    "first_k_where": (
        plait.first_where("k", "row.x >= 0.5"), pa.int64(),
        lambda rows: next((r["k"] for r in rows if r["x"] is not None and r["x"] >= 0.5), None),
    ),
    "first_where": (
        plait.first_where("s", "row.k >= 1"), pa.string(),
        lambda rows: next((r["s"] for r in rows if r["k"] is not None and r["k"] >= 1), None),
    ),
    "count_where": (
        plait.count_where(lambda row: ~(row.x < 1)), pa.int64(),
        lambda rows: sum(1 for r in rows if r["x"] is not None and r["x"] >= 1),
    ),
    "collect_k": (plait.collect("k"), pa.list_(pa.int64()), lambda rows: [r["k"] for r in rows]),
    "distinct_x": (plait.distinct("x"), pa.int64(), lambda rows: _distinct_values(rows, "x")),
    "polynomial": (
        plait.custom("k", init=lambda: 1, add=lambda state, k: 3 * state + (7 if k is None else k), type="int64"),
        pa.int64(), _polynomial,
    ),
    "merged": (
        plait.custom(["k", "s"], init=int, add=lambda n, k, s: n + (k is None) + (s is None), merge=int.__add__,
                     result=lambda n: n / 2, type="float64"),
        pa.float64(), lambda rows: sum((r["k"] is None) + (r["s"] is None) for r in rows) / 2,
    ),
}  # fmt: skip

KEYS = ((), ("k",), ("x",), ("s",), ("q", "p"))


@st.composite
def span_aggregates(draw: st.DrawFn, *, functions: Sequence[str] | None = None, **options: Any) -> Case:
    given = draw(streams("a", **options))
    size, advance = draw(st.sampled_from(((1, 1), (2, 1), (3, 3), (4, 3), (5, 2), (2, 5), (2**61, 2**61))))
    by, chosen = draw(st.sampled_from(KEYS)), functions or draw(_some_functions())
    query = plait.aggregate(given.stream, size=f"{size}us", advance=f"{advance}us", by=by,
                            compute={n: FUNCTIONS[n][0] for n in chosen})  # fmt: skip
    compute = {n: FUNCTIONS[n][1:] for n in chosen}
    return Case(query, (given,), define.aggregate_spans(given.relation, size, advance, by, compute))


@st.composite
def count_aggregates(draw: st.DrawFn, *, functions: Sequence[str] | None = None, **options: Any) -> Case:
    given = draw(streams("a", **options))
    size, advance = draw(st.sampled_from(((1, 1), (2, 1), (3, 3), (3, 2), (1, 3), (2, 4))))
    by, chosen = draw(st.sampled_from(KEYS)), functions or draw(_some_functions())
    query = plait.aggregate(given.stream, size=size, advance=advance, by=by,
                            compute={n: FUNCTIONS[n][0] for n in chosen})  # fmt: skip
    compute = {n: FUNCTIONS[n][1:] for n in chosen}
    return Case(query, (given,), define.aggregate_counts(given.relation, size, advance, by, compute))


@st.composite
def dedups(draw: st.DrawFn, **options: Any) -> Case:
    given = draw(streams("a", **options))
    by, within = draw(st.sampled_from(KEYS[1:])), draw(st.sampled_from((0, 1, 2, 3, 2**62)))
    query = plait.dedup(given.stream, by=by, within=within)
    return Case(query, (given,), define.dedup(given.relation, by, within))


def _some_functions() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(list(FUNCTIONS)), min_size=1, max_size=6, unique=True)
