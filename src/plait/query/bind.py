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
from plait.query.join import HOWS, Asof, Join, side_names
from plait.query.operator import Operator
from plait.query.predicate import Predicate
from plait.query.row_by_row import TS, BoundStep, Expressed, Kept, RowByRow, Select, Union, computed
from plait.query.stream import Stream
from plait.query.types import column_type, is_number
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

    @property
    def made(self) -> pa.Schema:
        """See the class."""
        return self.schema if self.own is None else self.own

    @property
    def bare(self) -> Bound:
        """The node alone, with its own columns."""
        return dataclasses.replace(self, schema=self.made, steps=(), own=None)

    def then(self, *steps: BoundStep) -> Bound:
        """The same node, of which each row goes through these steps too."""
        schema = self.schema
        for step in steps:
            schema = schema if isinstance(step, Kept) else step.schema
        return dataclasses.replace(self, schema=schema, steps=(*self.steps, *steps), own=self.made)


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
        found = found.then(step.bind(found.schema, own))
    _check_reserved(found.schema, "What is selected")
    return found


def _bind_union(node: Union, inputs: tuple[Bound, ...], ts_type: pa.DataType) -> Bound:
    """`ts`, then the columns that all inputs have."""
    columns = [_columns(each) for each in inputs]
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


def _columns(input: Bound) -> list[pa.Field]:
    """An input's columns but for its time: of a query `ts`, of a stream its time column if that is called so."""
    time = input.node.time if isinstance(input.node, Stream) else TS
    return [field for field in input.schema if field.name != TS or field.name != time]


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
    prefixes = side_names(node.left, node.right)
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
    label = f"stream {node.input.name!r}" if isinstance(node.input, Stream) else "the input"
    keys = []
    for column in node.by:
        if column not in source.schema.names:
            raise QueryError(
                f"by= names column {column!r}, which {label} does not have",
                why=f"its columns are {', '.join(source.schema.names)}",
            )
        kind = source.schema.field(column).type
        if column_type(kind) is None:
            raise QueryError(f"by= names column {column!r} of type {kind}", why="it can't be a key", do="Cast it")
        keys.append(source.schema.field(column))
    edge = node.window.edge_type(ts_type)
    computed = [pa.field(name, f.result_type(source.schema, label)) for name, f in node.compute]
    schema = pa.schema(
        [pa.field("ts", ts_type), pa.field("window_start", edge), pa.field("window_end", edge), *keys, *computed]
    )
    _check_reserved(schema, "The result of an aggregate")
    return Bound(node, inputs, schema, time_kind(ts_type))


def _with_expressions(node: Aggregate, source: Bound) -> Bound:
    """The input with a column more for each expression that `by=` or a function names in a column's place."""
    made = {name: expression for _, function in node.compute for name, expression in function.made}
    made |= {name: name.computed for name in node.by if isinstance(name, Expressed)}
    named = [*node.by, *(name for _, function in node.compute for name in function.columns)]
    new = [
        (name, made[name] if name in made else computed(name, name, node.input.name or "row"))
        for name in dict.fromkeys(named)
        if name not in source.schema.names and (name in made or not name.isidentifier())
    ]
    if not new:
        return source
    own = None if isinstance(source.node, Stream) else TS
    return source.then(Select(tuple(new), adds=True).bind(source.schema, own))
