"""A statement: SELECT, UNION ALL, and what WITH calls by a name. Each gives a relation, of which the next one can read.

What a SELECT may have is listed here. Anything else that sqlglot has found in it is refused by name, so nothing in a text goes
unnoticed.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from plait.errors import QueryError
from plait.query.base import Query, check_name
from plait.query.row_by_row import union
from plait.query.select import grouping, items, joins
from plait.query.select.relation import OWN, TS, Clock, Relation
from plait.query.select.source import Source, Span

Tables = Mapping[str, Relation]

_SELECT: Final = ("expressions", "from_", "joins", "where", "group", "having", "with_")
_UNION: Final = ("this", "expression", "distinct", "with_")
_TABLE: Final = ("this", "alias")

_ORDER = "results come in plait's order: by event time, ties by total order"
_ENDLESS = "streams are endless, and which rows come first is no part of what a query means"
_AROUND = "rows before and after a row never end"
#: What is refused of a SELECT: the words for it, why, and what to write instead.
_REFUSED: Final[dict[str, tuple[tuple[str, ...], str, str]]] = {
    "order": (("ORDER BY",), _ORDER, "Leave it out, or sort what has been written"),
    "sort": (("SORT BY",), _ORDER, "Leave it out"),
    "cluster": (("CLUSTER BY",), "plait lays rows out itself", "Leave it out"),
    "distribute": (("DISTRIBUTE BY",), "plait lays rows out itself", "Leave it out"),
    "limit": (("LIMIT", "FETCH"), _ENDLESS, "Leave it out, or take the first rows of the result"),
    "offset": (("OFFSET",), _ENDLESS, "Leave it out"),
    "distinct": (
        ("DISTINCT",),
        "all rows that have ever been would have to be kept",
        "Group by the columns and a window, or use plait.dedup(by=, within=) in Python",
    ),
    "qualify": (("QUALIFY",), _AROUND, "Aggregate by GROUP BY window(...), with max_by or first"),
    "windows": (("WINDOW",), _AROUND, "Aggregate by GROUP BY window(...)"),
    "laterals": (("LATERAL", "LATERAL VIEW"), "one row would become many", "Use plait.operator in Python"),
    "pivots": (
        ("PIVOT", "UNPIVOT"),
        "its columns are not known before the data are",
        "Write sum(x) FILTER (WHERE y = ...) for each column",
    ),
    "hint": (("/*+",), "plait plans by itself", "Leave the hint out; on_threads and on_spark have options"),
    "sample": (("TABLESAMPLE",), "which rows are taken is another answer each time", "Write a condition on a column"),
}


class Statement:
    """Translates the statements of one text.

    Args:
        source: The text.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    def read(self, node: exp.Expr, tables: Tables) -> Relation:
        """What a statement gives, over the streams and queries that it may name."""
        tables = {**tables, **self._with(node, tables)}
        match node:
            case exp.Subquery():
                return self.read(node.this, tables)
            case exp.Select():
                return self._select(node, tables)
            case exp.Union():
                return self._union(node, tables)
            case exp.SetOperation():
                word = type(node).__name__.upper()
                raise self.source.refuse(
                    self.source.word((word, "MINUS"), node.expression),
                    f"{word} compares a row with all others that have ever been",
                    why="streams are endless",
                    do="Join with a time bound: LEFT SEMI JOIN for INTERSECT, LEFT ANTI JOIN for EXCEPT",
                )
            case _:
                raise self.source.refuse(
                    self.source.word((type(node).__name__.upper(),)),
                    f"{type(node).__name__.upper()} is no query",
                    why="results go where a run, `--output` or a sink puts them",
                    do="Write a SELECT",
                )

    def _with(self, node: exp.Expr, tables: Tables) -> dict[str, Relation]:
        """What WITH gives names to; each may read those before it."""
        clause = node.args.get("with_")
        found: dict[str, Relation] = {}
        if clause is None:
            return found
        if clause.args.get("recursive"):
            raise self.source.refuse(
                self.source.word(("RECURSIVE",)), "a recursive query never ends", do="Use plait.operator in Python"
            )
        for each in clause.expressions:
            self._check_alias(each)
            relation = self.read(each.this, {**tables, **found})
            found[each.alias] = self._named(each, relation, each.alias)
        return found

    # --- one SELECT ---

    def _select(self, select: exp.Select, tables: Tables) -> Relation:
        self._check_args(select, _SELECT)
        if select.args.get("from_") is None:
            raise self.source.refuse(
                self.source.word(("SELECT",), select.expressions[0] if select.expressions else None),
                "the SELECT reads nothing",
                do="Write FROM and a stream's name",
            )
        relation = joins.read(self.source, select, lambda node: self._table(node, tables))
        entries = items.listed(self.source, select, relation)
        if entries is None:
            if select.args.get("group") or select.args.get("having"):
                raise self.source.refuse(
                    select.expressions[0], "* beside GROUP BY", do="List the columns: keys, window.start, functions"
                )
            return items.renamed(relation, "")
        if grouping.asked(self.source, select, entries):
            relation, entries = grouping.grouped(self.source, select, relation, entries)
        return items.chosen(self.source, relation, entries)

    def _check_args(self, node: exp.Expr, known: tuple[str, ...]) -> None:
        """Refuse what sqlglot found in a clause and nothing here reads."""
        for arg, value in node.args.items():
            if not value or arg in known:
                continue
            words, why, do = _REFUSED.get(arg, ((arg.upper(),), "", "Leave it out"))
            near = value[0] if isinstance(value, list) else value
            raise self.source.refuse(self._clause(words, near, node), f"{words[0]} is refused", why=why, do=do)

    def _clause(self, words: tuple[str, ...], near: object, node: exp.Expr) -> Span:
        """The place of a clause's word. One that has no words of its own after it stands in front of the list."""
        place = near if isinstance(near, exp.Expr) and self.source.span(near) else None
        if place is None and isinstance(node, exp.Select) and node.expressions:
            place = node.expressions[0]
        return self.source.word(words, place)

    # --- what stands after FROM ---

    def _table(self, node: exp.Expr, tables: Tables) -> Relation:
        """A stream, a query that has a name, or a subquery."""
        self._check_alias(node)
        if isinstance(node, exp.Subquery):
            self._check_args(node, (*_TABLE, "with_"))
            return self._named(node, self.read(node.this, tables), node.alias)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.source.refuse(
                node,
                "this is neither a stream nor a subquery",
                why="windows stand in GROUP BY, and rows come from streams",
                do="Write a name of streams=, or (SELECT ...)",
            )
        self._check_args(node, _TABLE)
        for same in (str, str.lower):
            alike = [relation for name, relation in tables.items() if same(name) == same(node.name)]
            if len(alike) == 1:
                return items.renamed(alike[0], node.alias or node.name)
        near = difflib.get_close_matches(node.name, list(tables), n=1)
        raise self.source.refuse(
            node,
            f"there is no stream or query {node.name!r}",
            why=f"there are {', '.join(tables) or 'none'}",
            do=f"Did you mean {near[0]!r}?" if near else "Pass it in streams=",
        )

    def _check_alias(self, node: exp.Expr) -> None:
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
            raise self.source.refuse(alias, "columns are named after an alias", do="Name them in the subquery, with AS")

    def _named(self, node: exp.Expr, relation: Relation, name: str) -> Relation:
        """A query under the name that the text has for it, which plait puts before columns that both sides of a join have."""
        made = items.renamed(relation, name)
        if isinstance(made.node, Query) and name:
            try:
                return dataclasses.replace(made, node=made.node.named(check_name(name)))
            except QueryError:
                return made  # l, r, left and right are names in the text only
        return made

    # --- UNION ALL ---

    def _union(self, node: exp.Union, tables: Tables) -> Relation:
        """All rows of both, under the first one's names."""
        if node.args.get("distinct"):
            raise self.source.refuse(
                self.source.word(("UNION",), node.expression),
                "UNION leaves out rows that have been before",
                why="all rows that have ever been would have to be kept",
                do="Write UNION ALL",
            )
        self._check_args(node, _UNION)
        sides = [self.read(each, tables) for each in (node.this, node.expression)]
        word = self.source.word(("UNION",), node.expression)
        # Whether its ts is listed or not, every row has one.
        first, second = (None if s.columns is None else tuple(c for c in s.columns if c != TS) for s in sides)
        if first is None or second is None or len(first) != len(second):
            shown = " and ".join("unknown ones" if side is None else ", ".join(side) for side in (first, second))
            raise self.source.refuse(
                word, f"UNION ALL of other columns: {shown}", do="List the same number of columns in both"
            )
        right = sides[1].node
        with self.source.at(word):
            if first != second:
                right = right.rename(**{new: old for new, old in zip(first, second, strict=True) if new != old})
            made = union(sides[0].node, right)
            self.source.bind(made)
        return Relation(made, (TS, *first), (), _union_clocks(sides))


def _union_clocks(sides: list[Relation]) -> dict[str, Clock]:
    """Columns that are exact clocks of both, in the same way, are so of all rows."""
    left, right = (side.clocks for side in sides)
    return {name: clock for name, clock in left.items() if right.get(name) == clock} | {TS: OWN}
