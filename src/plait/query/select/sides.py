"""The two sides of a join: which one a column is of, and what is known of the columns that the join gives."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from plait.query.base import Query
from plait.query.bind import pair_names, prefixed_names
from plait.query.join import HOWS, Asof, Join, side_names
from plait.query.select.bounds import Placed
from plait.query.select.relation import OWN, TS, Clock, Part, Relation
from plait.query.select.source import Source, identifier


class Sides:
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


def apart(sides: tuple[Relation, Relation]) -> tuple[Relation, Relation]:
    """The two sides, one of them under a name of its own where two columns of the join would have one name.

    plait puts a side's name in front of columns that both have, and of a join without a name `left`: of three tables there would
    be two `left_ts`. The text calls columns by its own names for tables, so it does not matter to it.
    """
    for at in (0, 1):
        node, word = sides[at].node, "_".join(part.name for part in sides[at].parts)
        if _clash(sides):
            node = node if isinstance(node, Query) else node.select(*(sides[at].columns or ()))
            word = f"{word}_" if word.lower() in ("l", "r", "left", "right") else word
            named = replace(sides[at], node=node.named(word))
            sides = (named, sides[1]) if at == 0 else (sides[0], named)
    return sides


def _clash(sides: tuple[Relation, Relation]) -> bool:
    """Whether two columns of a join would have one name; of one that shows the left columns alone, too."""
    if sides[0].columns is None or sides[1].columns is None:
        return False
    prefixes = side_names(sides[0].node, sides[1].node)
    found = (prefixed_names(prefixes, sides[0].columns, sides[1].columns), prefixed_names(prefixes, sides[0].columns))
    return any(len(set(names)) < len(names) for names in found)


def pairs(
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
