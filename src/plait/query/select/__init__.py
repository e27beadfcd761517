"""`plait.sql`: one SELECT of Spark's dialect becomes a frozen query, the same that Python calls build.

source       the text, parsed; where in it each part stands; every refusal
relation     what a name in the text stands for: a stream or query, its columns, its clocks
expressions  what may stand in an expression, and its text with plait's names
bounds       which comparisons are a join's time bound
sides, asof  the two inputs of a join; ASOF JOIN
joins        FROM, JOIN and WHERE            calls     which aggregate function a call is
grouping     GROUP BY, HAVING                items     the SELECT list
statement    SELECT, UNION ALL, WITH
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from plait.errors import QueryError
from plait.query.arguments import by_name
from plait.query.base import Node, Query, check_node
from plait.query.bind import bind
from plait.query.row_by_row import union
from plait.query.select.relation import Relation, clocks_of, named
from plait.query.select.source import Source
from plait.query.select.statement import Statement
from plait.query.stream import Stream
from plait.schema import arrow_schema

__all__ = ["named_in", "sql"]


@by_name
def sql(
    text: str,
    *,
    streams: Mapping[str, Node] | Iterable[Node],
    schemas: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Query:
    """Read a query from SQL: one SELECT in Spark's dialect. docs/sql.md says what may stand in it, and what it means.

    The query is the one that `join`, `asof`, `aggregate`, `where`, `select` and `union` build, with the same results and order.
    What has no answer that is the same on every run is refused with its place in the text and with what to write instead.

    Args:
        text: The SELECT. Joins need a time bound, aggregates a window: `GROUP BY window(ts, '30 seconds', '3 seconds')`.
        streams: The streams and queries that it may name: a dict by name, or a list of them, each under its own name.
        schemas: Columns of streams that declare no `schema`, by the stream's name: Arrow schemas, or dicts of names to types.
        name: What other queries call this one.

    Returns:
        A `Query`. Its rows have `ts`, then the columns of the SELECT list.

    Raises:
        QueryError: The text is no SQL, names something that is not there, or asks for what has no deterministic answer.

    Example:
        >>> import plait
        >>> bids = plait.stream("bids", unit="s", schema={"ts": "int64", "item": "string", "price": "float64"})
        >>> best = plait.sql('''
        ...     SELECT window.start AS opened, item, max(price) AS best
        ...     FROM bids WHERE price > 1 GROUP BY window(ts, '10 seconds'), item HAVING count(*) > 1
        ... ''', streams=[bids])
        >>> rows = {"ts": [1, 2, 3, 14], "item": ["hat", "hat", "cap", "hat"], "price": [2.0, 3.0, 9.0, 4.0]}
        >>> best.run({"bids": rows}).to_pylist()
        [{'ts': 9999999, 'opened': 0, 'item': 'hat', 'best': 3.0}]
    """
    if not isinstance(text, str):
        raise QueryError(f"plait.sql({text!r}) is no text", do="Pass one SELECT as a str")
    nodes = _nodes(streams)
    known = _known(nodes, schemas)
    source = Source(text, known)
    tables = {each: _table(node, each, known) for each, node in nodes.items()}
    node = Statement(source).read(source.tree, tables).node
    query = union(node) if isinstance(node, Stream) else node
    return query if name is None else query.named(name)


def named_in(text: str) -> set[str]:
    """The names in an SQL text that a stream or query may have, in small letters: SQL's names know no case."""
    return {table.name.lower() for table in Source(text, {}).tree.find_all(exp.Table)}


def _nodes(streams: Mapping[str, Node] | Iterable[Node]) -> dict[str, Node]:
    """What the text may name, by name."""
    if isinstance(streams, (Stream, Query)):
        streams = [streams]
    if isinstance(streams, str) or not isinstance(streams, Iterable):
        raise QueryError(
            f"streams={streams!r} are no streams", do="Pass a dict by name, or a list of streams and queries"
        )
    given = (
        streams.items() if isinstance(streams, Mapping) else ((getattr(each, "name", None), each) for each in streams)
    )
    found: dict[str, Node] = {}
    for at, (name, node) in enumerate(given):
        check_node(node, f"entry {at + 1} of streams=")
        if not isinstance(name, str) or not name:
            raise QueryError(
                f"Entry {at + 1} of streams= has no name", do="Pass a dict by name, or name it: query.named('near')"
            )
        if found.setdefault(name, node) is not node:
            raise QueryError(f"Two entries of streams= are called {name!r}", do="Pass a dict with two names")
    return found


def _known(nodes: Mapping[str, Node], schemas: Mapping[str, Any] | None) -> dict[str, pa.Schema]:
    """The columns of all streams that are known, by the stream's name."""
    schemas = {} if schemas is None else schemas
    if not isinstance(schemas, Mapping):
        raise QueryError(f"schemas={schemas!r} gives no columns", do="Pass a dict of stream names to Arrow schemas")
    declared: dict[str, Stream] = {}
    for node in nodes.values():
        leaves = {node.name: node} if isinstance(node, Stream) else node.streams()
        declared |= {each.name: each for each in leaves.values()}
    for name in schemas:
        if name not in declared:
            raise QueryError(
                f"schemas= names {name!r}, which is no stream here", why=f"there are {', '.join(declared)}"
            )
    found = {name: each.schema for name, each in declared.items() if each.schema is not None}
    return found | {name: arrow_schema(given, f"schemas[{name!r}]") for name, given in schemas.items()}


def _table(node: Node, name: str, known: Mapping[str, pa.Schema]) -> Relation:
    """A stream or query of the user's, as the text sees it."""
    leaves = [node] if isinstance(node, Stream) else list(node.streams().values())
    bound = bind(node, known) if all(leaf.name in known for leaf in leaves) else None
    columns = None if bound is None else tuple(bound.schema.names)
    return named(node, name, columns, clocks_of(node, None if bound is None else bound.schema))
