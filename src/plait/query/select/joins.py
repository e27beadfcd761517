"""FROM, JOIN and WHERE: from the names in a text to one stream or query with all their columns.

A join's condition is split into its parts. Those that bound the time between the two rows become the window (`bounds`), the
others stay the condition. Where all joins are inner, WHERE says no more than ON does: a part of it that reads one table only
filters that table before it is joined, any other part belongs to the first join that has all its columns. After an outer join
WHERE filters what the join gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, cast

from sqlglot import exp

from plait.query.arguments import How
from plait.query.condition.sql_functions import DIALECT
from plait.query.join import join
from plait.query.row_by_row import base
from plait.query.select import expressions
from plait.query.select.asof import as_of
from plait.query.select.bounds import Bounds, Reach, reach
from plait.query.select.relation import TS, Clock, Relation, named
from plait.query.select.sides import Sides, apart, pairs
from plait.query.select.source import Source, identifier
from plait.query.stream import Stream

_HOWS: Final = {
    ("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner",
    ("LEFT", ""): "left", ("LEFT", "OUTER"): "left", ("RIGHT", ""): "right", ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full", ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi", ("LEFT", "ANTI"): "anti", ("", "SEMI"): "semi", ("", "ANTI"): "anti",
}  # fmt: skip


def read(source: Source, select: exp.Select, table: Callable[[exp.Expr], Relation]) -> Relation:
    """What a SELECT reads, joined and filtered.

    Args:
        source: The text.
        select: The SELECT.
        table: Finds what stands after FROM or JOIN.
    """
    clauses = select.args.get("joins") or []
    tables = [table(select.args["from_"].this), *(table(each.this) for each in clauses)]
    _check_names(source, tables, [select.args["from_"].this, *(each.this for each in clauses)])
    if clauses:
        tables = [_closed(source, select, each, tables) for each in tables]
    where = select.args.get("where")
    parts = expressions.conjuncts(where.this if where else None)
    for part in parts:
        expressions.check(source, part, clause="WHERE")
    kinds = [how(source, each) for each in clauses]
    later: list[exp.Expr] = []
    beside: dict[int, list[exp.Expr]] = {}
    for part in parts:
        columns = expressions.columns(part)
        if set(kinds) - {"inner"} or any(_is_own(tables, column) for column in columns):
            later.append(part)
            continue
        read_by = sorted({_table_of(source, tables, column) for column in columns})
        if len(read_by) > 1:
            beside.setdefault(read_by[-1], []).append(part)
        elif clauses and read_by:
            tables[read_by[0]] = filtered(source, tables[read_by[0]], [part])
        else:
            later.append(part)
    found = tables[0]
    for at, (each, kind) in enumerate(zip(clauses, kinds, strict=True), 1):
        found = _joined(source, each, kind, (found, tables[at]), beside.get(at, []))
    return filtered(source, found, later)


def filtered(source: Source, relation: Relation, parts: list[exp.Expr], at: list[exp.Expr] | None = None) -> Relation:
    """A relation's rows for which all parts of a condition are true. `at`: where they stand, if they have been rewritten."""
    if not parts:
        return relation
    made = [own_words(source, relation, part) for part in parts]
    for part, place in zip(made, at or parts, strict=True):
        with source.at(place):
            source.bind(relation.node.where(part.sql(DIALECT, comments=False)))
    return replace(relation, node=relation.node.where(expressions.conjunction(made) or "true"))


def own_words(source: Source, relation: Relation, node: exp.Expr) -> exp.Expr:
    """An expression over a relation's rows with the node's own names for columns."""
    check_units(source, node, lambda column: relation.clocks.get(relation.find(source, column)))
    return expressions.rewritten(node, lambda column: exp.column(identifier(relation.find(source, column))))


def check_units(source: Source, node: exp.Expr, clock: Callable[[exp.Column], Clock | None]) -> None:
    """Refuse an INTERVAL beside a time column that counts something else than microseconds: the numbers would not fit."""
    interval = node.find(exp.Interval)
    for column in expressions.columns(node) if interval is not None else ():
        found = clock(column)
        if found is not None and found.scale != 1:
            raise source.refuse(
                node,
                f"an INTERVAL beside `{column.sql()}`, which is no timestamp",
                why="outside of a join's time bound a column is compared as the number that it is",
                do="Write the number in the column's own unit",
            )


def how(source: Source, clause: exp.Join) -> str:
    """The kind of a join, as plait calls it; "asof" for an as-of join."""
    side, kind = clause.args.get("side") or "", clause.args.get("kind") or ""
    method = clause.args.get("method") or ""
    word = source.word(("JOIN", "NATURAL"), clause.this)
    if clause.args.get("using"):
        raise source.refuse(
            source.word(("USING",)), "USING makes one column of two", do="Write ON a.column = b.column and a time bound"
        )
    if method == "ASOF" and side in ("", "LEFT") and not kind:
        return "asof"
    found = _HOWS.get((side, kind)) if not method else None
    if found is None:
        words = " ".join(each for each in (method, side, kind, "JOIN") if each)
        raise source.refuse(
            word,
            f"{words} is no join of plait's",
            do="Use JOIN, LEFT, RIGHT or FULL JOIN, LEFT SEMI JOIN, LEFT ANTI JOIN, ASOF JOIN, with ON",
        )
    return found


def _check_names(source: Source, tables: list[Relation], nodes: list[exp.Expr]) -> None:
    """Two tables of one FROM need two names."""
    seen: set[str] = set()
    for relation, node in zip(tables, nodes, strict=True):
        name = relation.parts[0].name
        if name.lower() in seen:
            raise source.refuse(
                node, f"two tables of one FROM are called {name!r}", do=f"Give one another name: {name} AS other"
            )
        seen.add(name.lower())


def _closed(source: Source, select: exp.Select, table: Relation, tables: list[Relation]) -> Relation:
    """A stream that declares no columns has those that the text names, and its time. So a join can tell what it calls them."""
    own = base(table.node)
    starred = any(_is_star(each, table.parts[0].name) for each in select.expressions)
    if table.columns is not None or not isinstance(own, Stream) or table.parts[0].hidden or starred:
        return table
    known = {name.lower() for each in tables for name in each.columns or each.clocks}
    open_ = [each for each in tables if each.columns is None]
    aliases = {each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias)}
    names = {own.time: own.time}
    for column, clause in _mentioned(select):
        name = column.name.lower()
        if column.table.lower() == table.parts[0].name.lower():
            names.setdefault(column.name, column.name)
        elif not column.table and name not in known and not (clause in ("group", "having") and name in aliases):
            if len(open_) > 1:
                raise source.refuse(
                    column,
                    f"nothing tells which table has the column {column.name!r}",
                    why=f"{' and '.join(each.parts[0].name for each in open_)} declare no columns",
                    do="Write which one, or declare them: plait.stream(..., schema={...})",
                )
            names.setdefault(column.name, column.name)
    return named(table.node.select(*names), table.parts[0].name, tuple(names), table.clocks)


def _is_star(item: exp.Expr, name: str) -> bool:
    """Whether an entry of a SELECT list stands for all columns of a table, whatever they are."""
    named_star = isinstance(item, exp.Column) and isinstance(item.this, exp.Star) and item.table.lower() == name.lower()
    return isinstance(item, exp.Star) or named_star


def _mentioned(select: exp.Select) -> Iterator[tuple[exp.Column, str]]:
    """The columns that a SELECT names itself, and in which clause; those of its subqueries are theirs."""
    for clause in ("expressions", "joins", "where", "group", "having"):
        given = select.args.get(clause) or []
        for node in given if isinstance(given, list) else [given]:
            for each in node.walk(prune=lambda inner: isinstance(inner, (exp.Subquery, exp.Table))):
                if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star):
                    yield each, clause


def _is_own(tables: list[Relation], column: exp.Column) -> bool:
    """Whether a column is `ts` of a join's rows: `ts` alone, where it is not just one table's."""
    having = [each for each in tables if TS in (each.columns or ())]
    return len(tables) > 1 and not column.table and column.name.lower() == TS and len(having) != 1


def _table_of(source: Source, tables: list[Relation], column: exp.Column) -> int:
    """The table that a column of WHERE is of."""
    whole = Relation(tables[0].node, None, tuple(part for each in tables for part in each.parts), {})
    whole.find(source, column)
    for at, each in enumerate(tables):
        if column.table:
            if each.parts[0].name.lower() == column.table.lower():
                return at
        elif each.columns is None or column.name.lower() in [name.lower() for name in each.columns]:
            return at
    raise AssertionError("`find` has found it")


# --- one join -------------------------------------------------------------------------------------------------


def _joined(
    source: Source, clause: exp.Join, kind: str, sides: tuple[Relation, Relation], beside: list[exp.Expr]
) -> Relation:
    """The join of two relations. `beside` are parts of WHERE that belong to it."""
    parts = [*expressions.conjuncts(clause.args.get("on")), *beside]
    for part in parts:
        expressions.check(source, part, clause="ON")
    sides = apart(sides)
    both = Sides(source, sides)
    finder = Bounds(source, both.placed)
    read = [(part, finder.read(part)) for part in parts]
    bounds = [bound for _, bound in read if bound is not None]
    rest = [part for part, bound in read if bound is None]
    word = source.word(("JOIN", ","), clause.this)
    if kind == "asof":
        return as_of(source, clause, both, bounds, rest)
    window = reach(source, bounds, sides, both.names)
    if window is None:
        raise source.refuse(
            word,
            "the join has no time bound on both sides",
            why="streams are endless: a row has to know when no partner can come any more",
            do=f"Add one to ON, such as {_advice(sides)}",
        )
    for part in rest:
        check_units(source, part, lambda column: both.placed(column)[2])
    on = expressions.conjunction([*(expressions.rewritten(part, both.written) for part in rest), *window.rest])
    within = (window.before_us, window.after_us)
    with source.at(word):
        node = join(sides[0].node, sides[1].node, on=on, within=within, how=cast(How, kind))
        source.bind(node)
    return pairs(node, sides, _delays(kind, window))


def _advice(sides: tuple[Relation, Relation]) -> str:
    """A time bound that would do, in the text's own names."""
    left, right = (
        f"{side.parts[0].name}.{next((name for name, clock in side.clocks.items() if clock.exact), TS)}"
        for side in sides
    )
    return f"{right} BETWEEN {left} - INTERVAL '5' SECOND AND {left} + INTERVAL '5' SECOND"


def _delays(kind: str, window: Reach) -> tuple[tuple[int, int], tuple[int, int]]:
    """How much later than a side's row a result can be: its ts is that of the later row, or of the end of a wait in vain."""
    if kind == "anti":
        return (window.after_us, window.after_us), (0, 0)
    return (0, window.after_us), (0, window.before_us)
