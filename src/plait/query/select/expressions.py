"""Scalar expressions of a SELECT: what may stand in them, and their text with plait's own names for columns.

What an expression means is said where conditions are read (`query.condition.sql`). Here is only refused what no row by row
reading has an answer for: a subquery, a function over other rows, a function whose answer is another one each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from sqlglot import exp

from plait.query.condition.sql_functions import DIALECT
from plait.query.select.source import Source
from plait.schema import duration_us

#: Functions whose answer is another one each time, or depends on who runs them. sqlglot has classes for some of them only.
_UNSTEADY: Final = (
    exp.Rand, exp.Randn, exp.Uuid, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentUser, exp.SessionUser,
)  # fmt: skip
_UNSTEADY_NAMES: Final = (
    "now", "uuid", "random", "rand", "randn", "shuffle", "curdate", "localtimestamp", "current_timezone", "input_file_name",
    "monotonically_increasing_id", "spark_partition_id", "unix_timestamp", "current_database", "version", "user",
)  # fmt: skip


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that all have to be true."""
    if node is None or (isinstance(node, exp.Boolean) and node.this):
        return []
    if isinstance(node, exp.And):
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    if isinstance(node, exp.Paren):
        return conjuncts(node.this) if isinstance(node.this, (exp.And, exp.Paren)) else [node]
    return [node]


def conjunction(parts: Iterable[exp.Expr]) -> str | None:
    """The text of a condition whose parts all have to be true; None if there are none."""
    listed = list(parts)
    return exp.and_(*listed).sql(DIALECT, comments=False) if listed else None


def columns(node: exp.Expr) -> list[exp.Column]:
    """The columns that an expression reads, in the order of the tree."""
    return list(node.find_all(exp.Column))


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node computes over rows: SQL's aggregate functions, and what may be written around them."""
    return isinstance(node, (exp.AggFunc, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls))


def check(source: Source, node: exp.Expr, *, clause: str, aggregates: bool = False) -> None:
    """Refuse what has no deterministic answer row by row.

    Args:
        source: The text.
        node: An expression of it.
        clause: Where it stands, for messages.
        aggregates: Whether aggregate functions may stand there.
    """
    for each in node.walk():
        if isinstance(each, (exp.Query, exp.Exists)):
            raise source.refuse(
                each,
                f"a subquery in {clause}",
                why="it would be asked anew for each row, over rows that are still to come",
                do="Join with it: LEFT SEMI JOIN for IN and EXISTS, LEFT ANTI JOIN for NOT EXISTS, with a time bound in ON",
            )
        if isinstance(each, exp.Window):
            raise source.refuse(
                source.word(("OVER",), None) if source.span(each) is None else each,
                "OVER computes over rows that have no window",
                why="rows before and after a row never end, so nothing tells when its value is final",
                do="Aggregate by GROUP BY window(...), and join with the result; max_by, first and last pick one row of a window",
            )
        name = each.name.lower() if isinstance(each, exp.Anonymous) else ""
        if isinstance(each, _UNSTEADY) or name in _UNSTEADY_NAMES:
            raise source.refuse(
                each if source.span(each) else source.word((type(each).key.upper(), *_spellings(each))),
                f"{name or each.sql(DIALECT).lower()} has another answer each time",
                why="a query gives the same rows on every run",
                do="Use the rows' own time, or bring the value in as a column",
            )
        if not aggregates and is_aggregate(each):
            raise source.refuse(
                each,
                f"an aggregate function in {clause}",
                why=f"{clause} looks at one row at a time",
                do="Aggregate in a subquery with GROUP BY window(...), or write the condition in HAVING",
            )


def _spellings(node: exp.Expr) -> tuple[str, ...]:
    """What the text may have called a function that sqlglot does not tell the place of."""
    return ("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_USER", "SESSION_USER", "NOW", "RAND", "UUID")


def rewritten(node: exp.Expr, name: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    """The same expression with other columns; the one that is given stays as it is."""
    made = node.copy().transform(lambda each: name(each) if isinstance(each, exp.Column) else each)
    return made.unnest()


def interval_us(source: Source, node: exp.Interval) -> int:
    """A span of time, in microseconds; it may be negative."""
    unit = node.args.get("unit")
    amount = node.this.name if isinstance(node.this, exp.Literal) else ""
    if not amount or isinstance(unit, exp.IntervalSpan):
        raise source.refuse(
            node, "this INTERVAL is no length of time", do="Write it like INTERVAL '5' SECOND or INTERVAL 90 MINUTES"
        )
    words = f"{amount.lstrip('+-')} {unit.name if unit else ''}".strip().lower()
    with source.at(node):
        length = duration_us(words, "INTERVAL")
    return -length if amount.startswith("-") else length


def literal_duration(source: Source, node: exp.Expr) -> str:
    """The text of a duration as `window` and `session_window` take it: a text, or an INTERVAL."""
    if isinstance(node, exp.Literal) and node.is_string:
        words = node.name.strip()
        return words[9:] if words.lower().startswith("interval ") else words
    if isinstance(node, exp.Interval):
        return f"{interval_us(source, node)} us"
    raise source.refuse(node, "a window's duration is a constant", do="Write it as a text, such as '30 seconds'")
