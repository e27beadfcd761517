"""A query meets its streams' schemas: columns found, types checked, every operator's output schema known.

All executors bind before anything runs, so a missing column is found before the first row is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from plait.encodings import plain_schema
from plait.errors import QueryError
from plait.query.aggregate import Aggregate
from plait.query.base import Node, Query
from plait.query.condition.predicate import Predicate
from plait.query.condition.types import column_type, is_number
from plait.query.dedup import Dedup
from plait.query.join import HOWS, Asof, Join, side_names
from plait.query.operator import Operator
from plait.query.row_by_row import TS, BoundStep, Computed, Expressed, Kept, Made, RowByRow, Select, Union, computed
from plait.query.stream import Stream
from plait.schema import joint_time_type, time_kind


@dataclass(frozen=True)
class Bound:
    """A node of a query with its columns known: what executors start from.

    Attributes:
        node: The stream or query.
        inputs: Its inputs, bound.
        schema: Its output's columns. A query's begin with `ts`.
        time_kind: "zoned", "naive" or "count": what its ts looks like.
        predicate: Of a join the condition, with its columns found and its types checked. Else None.
        steps: What is done to each of its rows on their way to who reads them; `schema` is what they are after it.
        called: What who reads it calls it, where that is another name than the node's.
        own: The node's own columns, where steps have changed them; see `made`.

    Example:
        >>> import plait, pyarrow as pa
        >>> counts = plait.aggregate(plait.stream("s", unit="s"), size="1s", compute={"n": plait.count()})
        >>> plait.query.bind(counts, {"s": pa.schema([("ts", pa.int64())])}).time_kind
        'count'
    """

    node: Node
    inputs: tuple[Bound, ...]
    schema: pa.Schema
    time_kind: str
    predicate: Predicate | None = field(default=None)
    steps: tuple[BoundStep, ...] = ()
    own: pa.Schema | None = None
    called: str | None = None

    @property
    def made(self) -> pa.Schema:
        """The node's own columns."""
        return self.schema if self.own is None else self.own

    @property
    def bare(self) -> Bound:
        """The node alone, with its own columns."""
        return dataclasses.replace(self, schema=self.made, steps=(), own=None)


def label(bound: Bound, input: int) -> str:
    """What an operator calls an input of its own: its name, or which one it is."""
    return bound.called or bound.node.name or f"input {input}"


def then(bound: Bound, *steps: BoundStep) -> Bound:
    """The same node, of which each row goes through these steps, too."""
    schema = bound.schema
    for step in steps:
        schema = schema if isinstance(step, Kept) else step.schema
    return dataclasses.replace(bound, schema=schema, steps=(*bound.steps, *steps), own=bound.made)


def bind(node: Node, schemas: Mapping[str, pa.Schema]) -> Bound:
    """Bind a query to the columns of its streams.

    Args:
        node: A query or a stream.
        schemas: Arrow schemas by stream name.

    Returns:
        The node with its inputs and its output's columns, as a `Bound`.

    Raises:
        QueryError: A column is missing, has a type that can't serve, or two columns of a result would have one name.

    Example:
        >>> import plait, pyarrow as pa
        >>> counts = plait.aggregate(plait.stream("s", unit="s"), size="1s", compute={"n": plait.count()})
        >>> plait.query.bind(counts, {"s": pa.schema([("ts", pa.int64())])}).schema.names
        ['ts', 'window_start', 'window_end', 'n']
    """
    if isinstance(node, Stream):
        schema = plain_schema(schemas[node.name], f"Stream {node.name!r}")
        node.check(schema)
        _check_reserved(schema, f"Stream {node.name!r}")
        return Bound(node, (), schema, time_kind(schema.field(node.time).type))
    if isinstance(node, RowByRow):
        return _bind_rows(node, bind(node.input, schemas))
    inputs = tuple(bind(child, schemas) for child in node.inputs)
    ts_type = joint_time_type([i.time_kind for i in inputs])
    match node:
        case Join():
            return _bind_join(node, inputs, ts_type)
        case Asof():
            return _bind_asof(node, inputs, ts_type)
        case Aggregate():
            return _bind_aggregate(node, inputs, ts_type)
        case Union():
            return _bind_union(node, inputs, ts_type)
        case Dedup():
            return _bind_dedup(node, inputs, ts_type)
        case Operator():
            schema = pa.schema([pa.field("ts", ts_type), *node.output])
            _check_reserved(schema, "The output of an operator")
            return Bound(node, inputs, schema, time_kind(ts_type))
        case _:
            raise TypeError(f"unknown kind of query: {type(node).__name__}")


def _bind_rows(node: RowByRow, found: Bound) -> Bound:
    """What a node's rows become, step by step. A query's keep their ts in front."""
    own = None if isinstance(found.node, Stream) else TS
    for step in node.steps:
        made = step.bind(found.schema, own)
        if isinstance(made, Made) and any(field.name == TS and given != TS for field, given in made.columns):
            raise QueryError(
                "Another column of a stream's rows would be called 'ts'",
                why="given out they have their time under that name",
                do="Name it otherwise",
            )
        found = then(found, made)
    _check_reserved(found.schema, "What is selected")
    return dataclasses.replace(found, called=node.name)


def _bind_union(node: Union, inputs: tuple[Bound, ...], ts_type: pa.DataType) -> Bound:
    """`ts`, then the columns that all inputs have."""
    columns = [[each.schema.field(at) for at in passed_on(each)] for each in inputs]
    first = columns[0]
    for place, other in enumerate(columns[1:], 2):
        if [(f.name, f.type) for f in other] != [(f.name, f.type) for f in first]:
            raise QueryError(
                f"Inputs 1 and {place} of the union have different columns",
                why=f"one has {_listed(first)}, the other {_listed(other)}",
                do="Bring them to the same names and types, in the same order, with select",
            )
    fields = [
        pa.field(field.name, field.type, any(other[at].nullable for other in columns))
        for at, field in enumerate(first)
    ]  # fmt: skip
    if any(field.name == TS for field in fields):
        raise QueryError("Two columns of the union's rows would be called 'ts'", do="Rename the column in the input")
    return Bound(node, inputs, pa.schema([pa.field(TS, ts_type), *fields]), time_kind(ts_type))


def _listed(fields: list[pa.Field]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields)


#: What plait's own columns begin with: a result's key, and what rows carry on their way. Spark asks for no capitals.
RESERVED = "_plait_"


def _check_reserved(schema: pa.Schema, what: str) -> None:
    """Refuse columns whose names are plait's own."""
    for name in schema.names:
        if name.lower().startswith(RESERVED):
            raise QueryError(
                f"{what} has a column {name!r}",
                why=f"plait's own columns have names that begin with {RESERVED!r}; each result has one, `_plait_key`",
                do="Drop it, or rename it: a result that is read again has its order from its position or its ts",
            )


def check_data(query: Query, given: Mapping[str, object]) -> None:
    """Refuse data for streams that are not there, and streams without data."""
    streams = query.streams()
    for name in given:
        if name not in streams:
            raise QueryError(
                f"Data is given for {name!r}, and the query has no such stream", why=f"it reads {', '.join(streams)}"
            )
    for name in streams:
        if name not in given:
            raise QueryError(
                f"No data is given for stream {name!r}", why=f"there is data for {', '.join(given) or 'nothing'}"
            )


def _bind_join(node: Join, inputs: tuple[Bound, ...], ts_type: pa.DataType) -> Bound:
    """A join's columns; its condition, resolved and checked."""
    left, right = inputs
    predicate = node.predicate.bind(left.schema, right.schema)
    how = HOWS[node.how]
    schema = _pair_schema(node, left.schema, right.schema if 1 in how.shown else None, ts_type, nullable=how.nullable)
    return Bound(node, inputs, schema, time_kind(ts_type), predicate)


def _bind_asof(node: Asof, inputs: tuple[Bound, ...], ts_type: pa.DataType) -> Bound:
    """An as-of join's columns. The columns of `by=` must be there, and be able to be equal."""
    left, right = inputs
    names = side_names(node.left, node.right)
    for pair in node.by:
        kinds = []
        for side, column in enumerate(pair):
            schema = inputs[side].schema
            if column not in schema.names:
                raise QueryError(
                    f"asof: by= names column {column!r}, which {names[side]} does not have",
                    why=f"its columns are {', '.join(schema.names)}",
                )
            kinds.append((schema.field(column).type, column_type(schema.field(column).type)))
        (left_type, a), (right_type, b) = kinds
        if a is None or b is None or not (a == b or (is_number(a) and is_number(b))):
            raise QueryError(
                f"asof: by= compares {names[0]}.{pair[0]} ({left_type}) with {names[1]}.{pair[1]} ({right_type})",
                why="they can't be equal",
                do="Cast one of the columns",
            )
    schema = _pair_schema(node, left.schema, right.schema, ts_type, nullable=(1,) if node.how == "left" else ())
    return Bound(node, inputs, schema, time_kind(ts_type))


def pair_names(node: Join | Asof, *sides: Sequence[str]) -> list[str]:
    """The names of a join's columns: `ts`, the left ones, then the right ones; one that stands twice has its stream's in front.

    Args:
        node: The join.
        sides: The columns of the left input, and of the right one unless a result has none of them.
    """
    return prefixed_names(side_names(node.left, node.right), *sides)


def prefixed_names(prefixes: tuple[str, str], *sides: Sequence[str]) -> list[str]:
    """`pair_names` of inputs that are called so."""
    names = ["ts", *(name for side in sides for name in side)]
    return ["ts"] + [
        f"{prefixes[at]}_{name}" if names.count(name) > 1 else name for at, side in enumerate(sides) for name in side
    ]


def _pair_schema(node: Join | Asof, left: pa.Schema, right: pa.Schema | None, ts_type: pa.DataType, *,
                 nullable: tuple[int, ...] = ()) -> pa.Schema:  # fmt: skip
    """`ts`, then the left row's columns, then the right row's. `nullable`: the sides that may be missing in a result."""
    sides = (left,) if right is None else (left, right)
    names = iter(pair_names(node, *(side.names for side in sides)))
    fields = [pa.field(next(names), ts_type)]
    for side, schema in enumerate(sides):
        for column in schema:
            fields.append(pa.field(next(names), column.type, column.nullable or side in nullable))
    result = pa.schema(fields)
    for name in result.names:
        if result.names.count(name) > 1:
            raise QueryError(
                f"Two columns of the join's result would be called {name!r}",
                why="columns that both inputs have (and 'ts') get their stream's name in front, and this one is taken",
                do="Rename the column in the input, or the stream",
            )
    return result


def _bind_aggregate(node: Aggregate, inputs: tuple[Bound, ...], ts_type: pa.DataType) -> Bound:
    """An aggregate's columns: `ts`, the window's edges, the key, and the functions' results."""
    (source,) = inputs = (_with_expressions(node, inputs[0]),)
    label = _label(node)
    keys = _keys(node, source.schema)
    edge = node.window.edge_type(ts_type)
    computed = [pa.field(name, f.result_type(source.schema, label)) for name, f in node.compute]
    inputs = (_without_unread(node, source),)
    schema = pa.schema(
        [pa.field("ts", ts_type), pa.field("window_start", edge), pa.field("window_end", edge), *keys, *computed]
    )
    _check_reserved(schema, "The result of an aggregate")
    return Bound(node, inputs, schema, time_kind(ts_type))


def _with_expressions(node: Aggregate, source: Bound) -> Bound:
    """The input with a column more for each expression that `by=` or a function names in a column's place."""
    made = _expressions(node, source.schema)
    named = [*node.by, *(name for _, function in node.compute for name in function.columns)]
    new = [
        (name, made[name] if name in made else computed(name, name, node.input.name or "row"))
        for name in dict.fromkeys(named)
        if name not in source.schema.names and (name in made or not name.isidentifier())
    ]
    if not new:
        return source
    own = None if isinstance(source.node, Stream) else TS
    return then(source, Select(tuple(new), adds=True).bind(source.schema, own))


def _expressions(node: Aggregate, schema: pa.Schema) -> dict[str, Computed]:
    """Columns by name that are made, and how. A name means one thing: no other expression, and no column of the input."""
    named = [*node.by, *(name for _, function in node.compute for name in function.columns)]
    made: dict[str, Computed] = {}
    for name in named:
        if not isinstance(name, Expressed):
            continue
        if not made.setdefault(str(name), name.computed).means(name.computed):
            raise QueryError(
                f"Two expressions of the aggregate are called {str(name)!r}",
                why="a function that does not trace goes by its name",
                do="Name the functions apart, or select what they make before: input.select(a=..., b=...)",
            )
        if name in schema.names and not name.computed.is_column(name):
            raise QueryError(
                f"by= makes a column {str(name)!r} of {name.computed.describe()}, and {_label(node)} has one of that name",
                do="Name it otherwise",
            )
    return made


def _without_unread(node: Aggregate, source: Bound) -> Bound:
    """The input without computed columns that the aggregate does not read. They are computed nowhere, and read nowhere."""
    conditions = [f.where.bind_value(source.schema) for _, f in node.compute if f.where is not None]
    every = conditions + [value for step in source.steps for value in step.values()]
    if not any(isinstance(step, Made) for step in source.steps) or any(each.expr is None for each in every):
        return source  # a function that was not traced may look at any column
    wanted = {*node.by, *(name for _, function in node.compute for name in function.columns)}
    wanted |= {name for each in conditions for name in each.reads[0]}
    wanted |= set() if isinstance(source.node, Stream) else {TS}
    steps: list[BoundStep] = []
    for step in reversed(source.steps):
        if isinstance(step, Made):
            # A table without columns would not know how many rows it has.
            step = Made(tuple(c for c in step.columns if c[0].name in wanted) or step.columns[:1])
            wanted = {given for _, given in step.columns if isinstance(given, str)}
        wanted |= {name for value in step.values() for name in value.reads[0]}
        steps.insert(0, step)
    return then(source.bare, *steps)


def _bind_dedup(node: Dedup, inputs: tuple[Bound, ...], ts_type: pa.DataType) -> Bound:
    """`ts`, then the input's columns."""
    (source,) = inputs
    _keys(node, source.schema)
    fields = [source.schema.field(at) for at in passed_on(source)]
    if any(field.name == "ts" for field in fields):
        raise QueryError(
            "Two columns of the dedup's rows would be called 'ts'",
            why="the first one is their time, and the input has another column of that name",
            do="Rename the column in the input",
        )
    return Bound(node, inputs, pa.schema([pa.field("ts", ts_type), *fields]), time_kind(ts_type))


def passed_on(input: Bound) -> list[int]:
    """The places of an input's columns that rows have after their `ts`: all but the time, if it is called so, too."""
    time = input.node.time if isinstance(input.node, Stream) else "ts"
    return [at for at, name in enumerate(input.schema.names) if not (name == "ts" and time == "ts")]


def _keys(node: Aggregate | Dedup, schema: pa.Schema) -> list[pa.Field]:
    """The columns of `by=`, which must be there, and be able to be a key."""
    keys = []
    for column in node.by:
        if column not in schema.names:
            raise QueryError(
                f"by= names column {column!r}, which {_label(node)} does not have",
                why=f"its columns are {', '.join(schema.names)}",
            )
        kind = schema.field(column).type
        if column_type(kind) is None:
            raise QueryError(f"by= names column {column!r} of type {kind}", why="it can't be a key", do="Cast it")
        keys.append(schema.field(column))
    return keys


def _label(node: Aggregate | Dedup) -> str:
    return f"stream {node.input.name!r}" if isinstance(node.input, Stream) else "the input"
