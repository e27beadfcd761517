"""The SELECT list: names, and what stands behind each; and the columns that it leaves of a relation.

A query's rows always have `ts`, whether it is listed or not. So an entry that would be called `ts` has to be the rows' own time.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from sqlglot import exp

from plait.query.base import Node
from plait.query.condition.sql_functions import DIALECT
from plait.query.row_by_row import RowByRow, base
from plait.query.select import expressions, joins
from plait.query.select.relation import OWN, TS, Clock, Relation, named
from plait.query.select.source import Source, identifier
from plait.query.stream import Stream

#: Columns by name: the column that each is, or (the text of) how it is made.
Pairs = dict[str, str | tuple[str]]


@dataclass(frozen=True)
class Item:
    """An entry of a SELECT list.

    Attributes:
        node: The entry, for its place.
        name: What its column is called; None if the text does not say.
        value: What it computes.
        done: Whether `value` has the node's own names already.
    """

    node: exp.Expr
    name: str | None
    value: exp.Expr
    done: bool = False


def listed(source: Source, select: exp.Select, relation: Relation) -> list[Item] | None:
    """The entries of a SELECT list, stars written out; None for `*` alone, which leaves rows as they are."""
    if [type(each) for each in select.expressions] == [exp.Star] and not any(select.expressions[0].args.values()):
        return None
    found: list[Item] = []
    for each in select.expressions:
        star = each.this if isinstance(each, exp.Column) and isinstance(each.this, exp.Star) else each
        if isinstance(star, exp.Star):
            found += _starred(source, each, star, relation)
        elif isinstance(each, exp.Alias):
            found.append(Item(each, each.alias, each.this))
        else:
            dotted = isinstance(each, exp.Dot) and isinstance(each.expression, exp.Identifier)
            found.append(Item(each, each.name if isinstance(each, exp.Column) or dotted else None, each))
    return found


def _excepted(star: exp.Star) -> list[str]:
    return [each.name.lower() for each in star.args.get("except_") or ()]


def _starred(source: Source, each: exp.Expr, star: exp.Star, relation: Relation) -> list[Item]:
    """The columns of `*` under the node's names, or of `q.*` under the text's."""
    if any(value for arg, value in star.args.items() if arg != "except_"):
        raise source.refuse(each, "* with REPLACE or RENAME", do="List the columns, with AS")
    if isinstance(each, exp.Column):
        parts = [part for part in relation.parts if part.name.lower() == each.table.lower()]
        pairs = None if not parts or parts[0].columns is None or parts[0].hidden else dict(parts[0].columns)
    else:
        pairs = None if relation.columns is None else {name: name for name in relation.columns}
    if pairs is None:
        raise source.refuse(
            each,
            "nothing tells which columns * stands for",
            why="there is no such name in FROM, or its stream declares no columns",
            do="Declare them: plait.stream(..., schema={...}), pass schemas= to plait.sql, or list the columns",
        )
    out = _excepted(star)
    return [
        Item(each, name, exp.column(identifier(column)), done=True)
        for name, column in pairs.items()
        if name.lower() not in out
    ]


def chosen(source: Source, relation: Relation, items: list[Item]) -> Relation:
    """A relation with the columns of a SELECT list and no others."""
    pairs: Pairs = {}
    for item in items:
        expressions.check(source, item.value, clause="SELECT")
        value = item.value if item.done else joins.own_words(source, relation, item.value)
        name = item.name
        if not name:
            raise source.refuse(
                item.node,
                "the column has no name",
                why="a name that SQL makes up is no name to go on with",
                do="Write ... AS name",
            )
        if name in pairs:
            raise source.refuse(item.node, f"two columns are called {name!r}", do="Give one another name: ... AS other")
        plain = isinstance(value, exp.Column)
        pairs[name] = value.name if plain else (value.sql(DIALECT, comments=False),)
        if name == TS and not _is_own(relation, pairs[name]):
            raise source.refuse(
                item.node,
                "the column `ts` would not be the rows' event time",
                why="each row of a query has its own in `ts`; of a join it is the later one of the two",
                do="Give it another name: ... AS event_ts",
            )
    return _kept(source, relation, pairs, {item.name: item.node for item in items if item.name})


def _is_own(relation: Relation, value: str | tuple[str]) -> bool:
    """Whether a column is the rows' event time."""
    clock = relation.clocks.get(value) if isinstance(value, str) else None
    return clock is not None and clock.own


def _kept(source: Source, relation: Relation, pairs: Pairs, places: dict[str, exp.Expr]) -> Relation:
    """The relation with these columns; `places` is where each stands in the text."""
    of_stream = isinstance(base(relation.node), Stream)
    if not of_stream:
        pairs.pop(TS, None)  # it stays in front, whatever is selected
    columns = tuple(pairs) if of_stream else (TS, *pairs)
    same = relation.columns == columns and all(pairs[name] == name for name in pairs)
    node = relation.node
    if not same:
        for name, value in pairs.items():
            with source.at(places[name]):
                source.bind(_selected(node, {name: value}))
        node = _selected(node, pairs)
    clocks: dict[str, Clock] = {
        name: relation.clocks[value]
        for name, value in pairs.items()
        if isinstance(value, str) and value in relation.clocks
    }
    return named(node, "", columns, clocks if of_stream else clocks | {TS: OWN})


def _selected(node: Node, pairs: Pairs) -> RowByRow:
    """`select` as one would write it: columns that stay as they are by name, as long as none comes after another kind."""
    kept: list[str] = []
    made: dict[str, str] = {}
    for name, value in pairs.items():
        if value == name and not made:
            kept.append(name)
        else:
            made[name] = identifier(value).sql(DIALECT) if isinstance(value, str) else value[0]
    return node.select(*kept, **made)


def renamed(relation: Relation, name: str) -> Relation:
    """A relation under one name."""
    made = named(relation.node, name, relation.columns, relation.clocks)
    hidden = any(part.hidden for part in relation.parts)
    return dataclasses.replace(made, parts=(dataclasses.replace(made.parts[0], hidden=hidden),)) if hidden else made
