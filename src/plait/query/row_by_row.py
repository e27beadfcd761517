"""Row by row: `where`, `select` and their like, and `union`.

A row keeps its ts and its key: nothing moves, and nothing waits. So these are no operators of their own. What is done to each
row stands on the way between two nodes (`Bound.steps`), and every executor does it there: where rows are packed, where results
are carried on, where they are given out. What is given out has to come from an operator; of a stream alone that is a union of
one (`rooted`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from plait.errors import QueryError
from plait.query.arguments import by_name
from plait.query.base import Node, Query, check_name, check_node
from plait.query.condition.expression import Cast, Column
from plait.query.condition.predicate import Predicate, condition, value
from plait.query.condition.types import infer, is_int
from plait.query.stream import Stream
from plait.schema import arrow_type

TS = "ts"
_NONE = pa.schema([])


@dataclass(frozen=True)
class Computed:
    """A column's expression. `type` is what the user says that a function returns which plait can't read."""

    value: Predicate
    type: pa.DataType | None = None

    def bind(self, schema: pa.Schema, name: str) -> tuple[Computed, pa.Field]:
        """The same with its columns found, and the field that it makes."""
        bound = self.value.bind_value(schema)
        if bound.expr is None:
            if self.type is None:
                raise QueryError(
                    f"The column {name!r} is made by a function that does not trace: {bound.why_opaque}",
                    why="so nothing tells the type of what it returns",
                    do=f"Say it: {name}=(function, 'float64'), or write an expression without `if`",
                )
            return Computed(bound, self.type), pa.field(name, self.type)
        if isinstance(bound.expr, Column) and self.type is None:
            return Computed(bound), schema.field(bound.expr.name).with_name(name)
        kind = infer(bound.expr, (schema, _NONE), bound.names)
        if self.type is not None:
            raise QueryError(
                f"The column {name!r} is given a type, {self.type}, and an expression",
                why=f"an expression has its own type, here {kind}",
                do="Leave the type out, or cast in the expression",
            )
        return Computed(bound), pa.field(name, _type_of(bound, kind, name))

    def describe(self) -> str:
        return self.value.describe()

    def means(self, other: Computed) -> bool:
        """Whether two expressions are one. Functions that trace are what they compute; others are themselves."""
        if self.value.expr is None or other.value.expr is None:
            return self == other
        return self.value.expr == other.value.expr

    def is_column(self, name: str) -> bool:
        """Whether it is just this column."""
        return isinstance(self.value.expr, Column) and self.value.expr.name == name


def _type_of(bound: Predicate, kind: str, name: str) -> pa.DataType:
    """The Arrow type of an expression's values. Integers that were computed have 64 bits, whatever they are made of."""
    if isinstance(bound.expr, Cast):
        return pa.bool_() if kind == "bool" else arrow_type(kind, name)
    if is_int(kind):
        return pa.uint64() if kind == "uint64" else pa.int64()
    found = {
        "float32": pa.float32(), "float64": pa.float64(), "weakfloat": pa.float64(), "bool": pa.bool_(),
        "text": pa.string(), "bytes": pa.binary(),
    }.get(kind)  # fmt: skip
    if found is None:
        raise QueryError(f"The column {name!r} is always NULL", why="such a column has no type", do="Cast it")
    return found


class Expressed(str):
    """A column's name that also says how the column is made, for an input that does not have it.

    As a name it is its text. Beside another one it is what it makes, too: queries that compute other things are not equal.
    """

    computed: Computed

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expressed) and not self.computed.means(other.computed):
            return False
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __new__(cls, name: str, computed: Computed) -> Self:
        made = super().__new__(cls, name)
        made.computed = computed
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Expressed, (str(self), self.computed)


def expressed(given: Any, name: str | None = None) -> Expressed:
    """A function of one row, or text where a `name` is given, in the place of a column's name."""
    made = computed(given, name, "row")
    if name is None:
        own = getattr(made.value.source, "__name__", "function")
        name = made.describe() if made.value.expr is not None else f"{own}(row)"
    return Expressed(name, made)


# --- steps, as they were written ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Where:
    """Rows for which the condition is true."""

    condition: Predicate

    def bind(self, schema: pa.Schema, own: str | None) -> Kept:
        return Kept(self.condition.bind(schema, _NONE))

    def describe(self) -> str:
        return f"where {self.condition.describe()}"


@dataclass(frozen=True)
class Select:
    """These columns: a name, and the column that it is, or how it is made."""

    columns: tuple[tuple[str, str | Computed], ...]
    #: Whether all other columns stay, in front of these.
    adds: bool = False

    def bind(self, schema: pa.Schema, own: str | None) -> Made:
        """`own`: the column that rows keep in front, whatever is selected."""
        front = list(schema.names) if self.adds else [] if own is None else [own]
        made = [(schema.field(name), name) for name in front]
        for name, given in self.columns:
            if isinstance(given, str):
                made.append((_field(schema, given).with_name(name), given))
            else:
                computed, field = given.bind(schema, name)
                expr = computed.value.expr
                made.append((field, expr.name if isinstance(expr, Column) else computed))
        return Made(tuple(made)).checked()

    def describe(self) -> str:
        said = (
            name if given == name else f"{name} = {given if isinstance(given, str) else given.describe()}"
            for name, given in self.columns
        )  # fmt: skip
        return f"{'with' if self.adds else 'select'} {', '.join(said)}"


@dataclass(frozen=True)
class Drop:
    """All columns but these."""

    names: tuple[str, ...]

    def bind(self, schema: pa.Schema, own: str | None) -> Made:
        for name in self.names:
            _field(schema, name)
        if own in self.names:
            raise QueryError("drop('ts') of a query's rows", why="it is their time", do="Leave it")
        return Made(tuple((field, field.name) for field in schema if field.name not in self.names))

    def describe(self) -> str:
        return f"drop {', '.join(self.names)}"


@dataclass(frozen=True)
class Rename:
    """New names and old ones."""

    columns: tuple[tuple[str, str], ...]

    def bind(self, schema: pa.Schema, own: str | None) -> Made:
        for _, old in self.columns:
            _field(schema, old)
        if own is not None and any(own in pair for pair in self.columns):
            raise QueryError("rename of or to 'ts' in a query's rows", why="it is their time", do="Leave it")
        new = {old: name for name, old in self.columns}
        return Made(tuple((field.with_name(new.get(field.name, field.name)), field.name) for field in schema)).checked()

    def describe(self) -> str:
        return f"rename {', '.join(f'{old} to {name}' for name, old in self.columns)}"


Step = Where | Select | Drop | Rename


def _field(schema: pa.Schema, name: str) -> pa.Field:
    if name not in schema.names:
        raise QueryError(f"There is no column {name!r}", why=f"there are {', '.join(schema.names)}")
    return schema.field(name)


# --- steps, as executors take them ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Rows for which a condition is true; its columns are found."""

    condition: Predicate

    def values(self) -> list[Predicate]:
        """The expressions that are computed."""
        return [self.condition]


@dataclass(frozen=True)
class Made:
    """The columns that rows have from here on: each a field, and the column that it was or how it is computed."""

    columns: tuple[tuple[pa.Field, str | Computed], ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field for field, _ in self.columns])

    def values(self) -> list[Predicate]:
        """The expressions that are computed."""
        return [given.value for _, given in self.columns if not isinstance(given, str)]

    def checked(self) -> Self:
        names = self.schema.names
        for name in names:
            if names.count(name) > 1:
                raise QueryError(f"Two columns would be called {name!r}", do="Name one of them otherwise")
        return self


BoundStep = Kept | Made


def reads(steps: Iterable[BoundStep], after: Iterable[str], schema: pa.Schema) -> list[str]:
    """The columns of `schema` that it takes to come to the columns `after` the steps, in the schema's order."""
    needed = set(after)
    for step in reversed(list(steps)):
        if isinstance(step, Kept):
            needed |= _read_by(step.condition, schema)
        else:
            needed = {given for _, given in step.columns if isinstance(given, str)}
            needed |= {name for value in step.values() for name in _read_by(value, schema)}
    return [name for name in schema.names if name in needed]


def _read_by(value: Predicate, schema: pa.Schema) -> set[str]:
    """A function that was not traced may look at any column."""
    return set(value.reads[0]) if value.expr is not None else set(schema.names)


# --- queries --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RowByRow(Query):
    """Rows of a stream or query, changed one by one. It is built by `where`, `select`, `keep`, `drop` and `rename`.

    Attributes:
        name: That of what it reads, unless it was given another.
        input: The stream or query that it reads.
        steps: What is done to each row, in order.

    Example:
        >>> import plait
        >>> print(plait.stream("quotes").where("bid > 0").keep("bid").explain())
        where (bid > 0), select bid
          stream quotes: time ts, as delivered
    """

    input: Node
    steps: tuple[Step, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)


@dataclass(frozen=True, kw_only=True)
class Union(Query):
    """All rows of several inputs, in one order. It is built by `plait.union`.

    Attributes:
        name: See `Query`.
        nodes: The inputs, in the order that breaks ties between them.

    Example:
        >>> import plait
        >>> [node.name for node in plait.union(plait.stream("a"), plait.stream("b")).nodes]
        ['a', 'b']
    """

    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs, in the order that breaks ties between them."""
        return self.nodes


@by_name
def union(*inputs: Node, name: str | None = None) -> Union:
    """All rows of several streams or queries with the same columns, in one order.

    Args:
        *inputs: Streams or queries. Their columns have the same names and types, in the same order, but for the time.
        name: What other queries call this one.

    Returns:
        A `Union`, which is a `Query`. Its rows have `ts`, then the inputs' columns. They come by ts, then by input in the order
        given here, then as their input has them. A stream's time column that is called `ts` is the rows' `ts`.

    Raises:
        QueryError: There is no input, or one is neither a stream nor a query.

    Example:
        >>> import plait
        >>> home, away = plait.stream("home", unit="s"), plait.stream("away", unit="s")
        >>> rows = {"home": {"ts": [1, 3], "n": [1, 3]}, "away": {"ts": [2, 3], "n": [2, 4]}}
        >>> plait.union(home, away).run(rows)["n"].to_pylist()
        [1, 2, 3, 4]
    """
    if not inputs:
        raise QueryError("A union of nothing", do="Pass streams or queries: plait.union(a, b)")
    for place, each in enumerate(inputs):
        check_node(each, f"input {place + 1} of union")
    query = Union(name=None if name is None else check_name(name), nodes=tuple(inputs))
    query.streams()
    return query


def rooted(query: Query) -> Query:
    """The query whose results are given out: of a stream's rows, changed or not, a union of one."""
    return Union(name=query.name, nodes=(query,)) if isinstance(base(query), Stream) else query


def base(node: Node) -> Node:
    """What a node's rows come from: the node itself, unless it changes rows one by one."""
    while isinstance(node, RowByRow):
        node = node.input
    return node


def _made(node: Any, step: Step) -> RowByRow:
    check_node(node, "input of where or select")
    return RowByRow(name=node.name, input=node, steps=(step,)) if not isinstance(node, RowByRow) else RowByRow(
        name=node.name, input=node.input, steps=(*node.steps, step)
    )  # fmt: skip


def where(node: Any, given: Any) -> RowByRow:
    """`RowCalls.where`."""
    return _made(node, Where(condition(given, node.name or "row")))


def computed(given: Any, name: str | None, row: str) -> Computed:
    """A column's expression as it was written: text, a function, or a function with its type."""
    kind = None
    about = "The expression" if name is None else f"The column {name!r}"
    if isinstance(given, tuple):
        if len(given) != 2 or not callable(given[0]):
            raise QueryError(f"{about} is {given!r}", do="Pass an expression, or a pair of a function and its type")
        given, kind = given[0], arrow_type(given[1], about)
    return Computed(value(given, row, name), kind)


def select(node: Any, names: tuple[str, ...], columns: Mapping[str, Any]) -> RowByRow:
    """`RowCalls.select`."""
    _check_names("select", names, *columns)
    row = node.name or "row"
    made: list[tuple[str, str | Computed]] = [(name, name) for name in names]
    made += [(name, computed(given, name, row)) for name, given in columns.items()]
    return _made(node, Select(tuple(made)))


def drop(node: Any, names: tuple[str, ...]) -> RowByRow:
    """`RowCalls.drop`."""
    _check_names("drop", names)
    return _made(node, Drop(names))


def rename(node: Any, columns: Mapping[str, str]) -> RowByRow:
    """`RowCalls.rename`."""
    _check_names("rename", tuple(columns.values()), *columns)
    for new, old in columns.items():
        if list(columns.values()).count(old) > 1:
            others = [name for name, other in columns.items() if other == old and name != new]
            raise QueryError(
                f"rename calls {old!r} both {new!r} and {others[0]!r}",
                why="it gives columns other names, and makes none",
                do=f"Use select: select(..., {new}={old!r}, {others[0]}={old!r})",
            )
    return _made(node, Rename(tuple(columns.items())))


def _check_names(call: str, names: tuple[Any, ...], *more: str) -> None:
    if not names and not more:
        raise QueryError(f"{call}() names no column", do="Name at least one")
    for name in names:
        if not isinstance(name, str) or not name:
            raise QueryError(f"{call}({name!r}) names no column", do="Pass a column's name")
    for name in (*names, *more) if call == "select" else names:
        if (*names, *more).count(name) > 1 and call != "rename":
            raise QueryError(f"{call} names {name!r} twice", do="Name it once")
