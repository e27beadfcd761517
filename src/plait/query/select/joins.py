"""FROM, JOIN and WHERE: from the names in a text to one stream or query with all their columns.

A join's condition is split into its parts. Those that bound the time between the two rows become the window (`bounds`), the
others stay the condition. Where all joins are inner, WHERE says no more than ON does: a part of it that reads one table only
filters that table before it is joined, any other part belongs to the first join that has all its columns. After an outer join
WHERE filters what the join gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from plait.query.bind import pair_names
from plait.query.join import HOWS, Asof, Join, asof, join, side_names
from plait.query.row_by_row import base
from plait.query.select import expressions
from plait.query.select.bounds import Bound, Bounds, Placed, Reach, reach
from plait.query.select.relation import OWN, TS, Clock, Part, Relation, named
from plait.query.select.source import Source, identifier
from plait.query.sql import DIALECT
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
    if clauses and not isinstance(select.expressions[0], exp.Star):
        tables = [_closed(source, select, each, tables) for each in tables]
    where = select.args.get("where")
    parts = expressions.conjuncts(where.this if where else None)
    for part in parts:
        expressions.check(source, part, clause="WHERE")
    kinds = [how(source, each) for each in clauses]
    later: list[exp.Expr] = []
    beside: dict[int, list[exp.Expr]] = {}
    for part in parts:
        if set(kinds) - {"inner"}:
            later.append(part)
            continue
        read_by = sorted({_table_of(source, tables, column) for column in expressions.columns(part)})
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
    if table.columns is not None or not isinstance(base(table.node), Stream) or table.parts[0].hidden:
        return table
    known = {name.lower() for each in tables for name in each.columns or each.clocks}
    open_ = [each for each in tables if each.columns is None]
    aliases = {each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias)}
    own = base(table.node)
    assert isinstance(own, Stream)
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


def _mentioned(select: exp.Select) -> Iterator[tuple[exp.Column, str]]:
    """The columns that a SELECT names itself, and in which clause; those of its subqueries are theirs."""
    for clause in ("expressions", "joins", "where", "group", "having"):
        given = select.args.get(clause) or []
        for node in given if isinstance(given, list) else [given]:
            for each in node.walk(prune=lambda inner: isinstance(inner, (exp.Subquery, exp.Table))):
                if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star):
                    yield each, clause


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


class _Sides:
    """The two inputs of a join: which one a column is of, and what the join's condition calls it."""

    def __init__(self, source: Source, sides: tuple[Relation, Relation]) -> None:
        self.source, self.sides = source, sides
        names = side_names(sides[0].node, sides[1].node)
        self.names = ("l", "r") if names == ("left", "right") else names

    def placed(self, column: exp.Column) -> Placed:
        """Which side a column is of, its name there, and its clock."""
        parts = tuple(part for side in self.sides for part in side.parts)
        whole = Relation(self.sides[0].node, None, parts, {})
        if not column.table:
            whole.find(self.source, column)
        for at, side in enumerate(self.sides):
            known = [part.name.lower() for part in side.parts]
            if column.table.lower() in known if column.table else self._has(side, column):
                name = side.find(self.source, column)
                return at, name, side.clocks.get(name)
        whole.find(self.source, column)
        raise AssertionError("`find` refuses what no side has")

    def _has(self, side: Relation, column: exp.Column) -> bool:
        names = [name.lower() for part in side.parts for name in part.columns or ()]
        return any(part.columns is None for part in side.parts) or column.name.lower() in names

    def written(self, column: exp.Column) -> exp.Expr:
        """A column as the join's condition writes it."""
        at, name, _ = self.placed(column)
        return exp.column(identifier(name), table=identifier(self.names[at]))


def _joined(
    source: Source, clause: exp.Join, kind: str, sides: tuple[Relation, Relation], beside: list[exp.Expr]
) -> Relation:
    """The join of two relations. `beside` are parts of WHERE that belong to it."""
    parts = [*expressions.conjuncts(clause.args.get("on")), *beside]
    for part in parts:
        expressions.check(source, part, clause="ON")
    both = _Sides(source, sides)
    finder = Bounds(source, both.placed)
    read = [(part, finder.read(part)) for part in parts]
    bounds = [bound for _, bound in read if bound is not None]
    rest = [part for part, bound in read if bound is None]
    word = source.word(("JOIN", ","), clause.this)
    if kind == "asof":
        return _as_of(source, clause, both, bounds, rest)
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
        node = join(sides[0].node, sides[1].node, on=on, within=within, how=kind)
        source.bind(node)
    return _pairs(node, sides, _delays(kind, window))


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


def _pairs(
    node: Join | Asof, sides: tuple[Relation, Relation], delays: tuple[tuple[int, int], tuple[int, int] | None]
) -> Relation:
    """What a join gives, with the names that the text has for both sides' columns. A side without a delay has no clocks."""
    how = HOWS[node.how]
    kept = [sides[at] for at in how.shown]
    known = [side.columns for side in kept]
    columns: tuple[str, ...] | None = None
    parts: list[Part] = []
    clocks: dict[str, Clock] = {}
    if all(names is not None for names in known):
        columns = tuple(pair_names(node, *(names or () for names in known)))
    at = 1
    for number, (side, delay) in enumerate(zip(kept, delays, strict=False)):
        if columns is None:
            parts += [Part(part.name, {}, hidden=True) for part in side.parts]
            continue
        own = side.columns or ()
        new = dict(zip(own, columns[at : at + len(own)], strict=True))
        at += len(own)
        parts += [Part(p.name, {text: new[name] for text, name in (p.columns or {}).items()}) for p in side.parts]
        if delay is not None:
            late = {new[name]: clock.later(*delay) for name, clock in side.clocks.items()}
            missing = number in how.nullable
            clocks |= {name: replace(clock, missing=clock.missing or missing) for name, clock in late.items()}
    return Relation(node, columns, tuple(parts), clocks | {TS: OWN})


# --- as-of ----------------------------------------------------------------------------------------------------


def _as_of(source: Source, clause: exp.Join, both: _Sides, bounds: list[Bound], rest: list[exp.Expr]) -> Relation:
    """An as-of join: MATCH_CONDITION says in which direction, ON which columns are equal and how old a partner may be."""
    direction, exact = _match(source, clause, both)
    within = _age(source, both, bounds, direction)
    by = [_equal(source, both, part) for part in rest]
    options: dict[str, Any] = {"by": by, "within": within, "exact": exact, "direction": direction}
    with source.at(source.word(("JOIN",), clause.this)):
        node = asof(both.sides[0].node, both.sides[1].node, **options)
        source.bind(node)
    late = within if within is not None else 0
    delays = {"backward": ((0, 0), None if within is None else (0, late)), "forward": ((0, late), (0, 0))}
    return _pairs(node, both.sides, delays[direction])


def _match(source: Source, clause: exp.Join, both: _Sides) -> tuple[str, bool]:
    """The direction of an as-of join, and whether a partner at the very same time will do."""
    given = clause.args.get("match_condition")
    word = source.word(("JOIN",), clause.this)
    if given is None:
        raise source.refuse(
            word,
            "the ASOF JOIN has no MATCH_CONDITION",
            do=f"Write ASOF JOIN {clause.this.sql()} MATCH_CONDITION (l.ts >= r.ts) ON l.key = r.key",
        )
    found = Bounds(source, both.placed).read(given)
    clocks = (
        [side.clocks[name] for side, name in zip(both.sides, (found.left, found.right), strict=True)] if found else []
    )
    own = bool(found) and all(clock.own for clock in clocks)
    limits = (found.low, found.high) if found else (None, None)
    known = {
        (None, 0): ("backward", True),
        (None, -1): ("backward", False),
        (0, None): ("forward", True),
        (1, None): ("forward", False),
    }
    if not own or limits not in known:
        raise source.refuse(
            given,
            "MATCH_CONDITION compares the two event times, and nothing else",
            do="Write (l.ts >= r.ts) for the last one before, (l.ts <= r.ts) for the first one after; > and < without equal ones",
        )
    return known[limits]


def _age(source: Source, both: _Sides, bounds: list[Bound], direction: str) -> int | None:
    """How far away an as-of join's partner may be, in microseconds."""
    ages = []
    for bound in bounds:
        clocks = [side.clocks[name] for side, name in zip(both.sides, (bound.left, bound.right), strict=True)]
        far = bound.low if direction == "backward" else bound.high
        near = bound.high if direction == "backward" else bound.low
        age = None if far is None else -far if direction == "backward" else far
        if age is None or age < 0 or near not in (None, 0) or not all(clock.own for clock in clocks):
            raise source.refuse(
                bound.node,
                f"this is no bound of an as-of join that looks {direction}",
                do="Write how far away the partner may be: l.ts - r.ts <= INTERVAL '5' SECOND, turned for one that comes after",
            )
        ages.append(age)
    return min(ages, default=None)


def _equal(source: Source, both: _Sides, part: exp.Expr) -> tuple[str, str]:
    """The two columns that an as-of join wants equal."""
    inner = part.unnest()
    ends = [end.unnest() for end in (inner.this, inner.expression)] if isinstance(inner, exp.EQ) else []
    found = [both.placed(end) for end in ends if isinstance(end, exp.Column)]
    if len(found) == 2 and {at for at, _, _ in found} == {0, 1}:
        (_, left, _), (_, right, _) = sorted(found, key=lambda each: each[0])
        return left, right
    raise source.refuse(
        part,
        "ON of an ASOF JOIN holds more than equal columns and a time bound",
        why="of the rows before a row the last one is taken, whatever else is true of it",
        do="Filter the right side in a subquery first, or what comes out in WHERE",
    )
