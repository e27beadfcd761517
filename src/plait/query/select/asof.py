"""ASOF JOIN, as Snowflake has it: MATCH_CONDITION says in which direction a partner is looked for, ON what has to be equal.

ON may also say how far away in time the partner may be. Nothing else can stand there: of the rows before a row the last one is
taken, whatever else is true of it.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from plait.query.join import asof
from plait.query.select.bounds import Bound, Bounds
from plait.query.select.relation import Relation
from plait.query.select.sides import Sides, pairs
from plait.query.select.source import Source


def as_of(source: Source, clause: exp.Join, both: Sides, bounds: list[Bound], rest: list[exp.Expr]) -> Relation:
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
    return pairs(node, both.sides, delays[direction])


def _match(source: Source, clause: exp.Join, both: Sides) -> tuple[str, bool]:
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


def _age(source: Source, both: Sides, bounds: list[Bound], direction: str) -> int | None:
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


def _equal(source: Source, both: Sides, part: exp.Expr) -> tuple[str, str]:
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
