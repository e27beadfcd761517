"""Turn SQL text into an expression. sqlglot parses; what this module does not list is refused by name.

The dialect is Spark's, since that is where the text comes from. ``/`` is division of floats and ``%`` takes the
sign of the dividend; both are NULL for a zero divisor, as in Spark without ANSI mode. Columns are written
``stream.column``; ``l.`` and ``r.`` name the two sides of a self-join, or of anything. Functions of text take their constants as
Spark's do; docs/semantics.md says what they mean.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import sqlglot
from sqlglot import exp

from plait.errors import QueryError
from plait.query.condition.expression import Binary, Cast, Column, Expr, Literal, Unary, check_text, too_deep
from plait.query.condition.sql_functions import DIALECT, Functions
from plait.query.condition.trace import as_expr

_BINARY: dict[type[exp.Expression], str] = {
    exp.And: "and", exp.Or: "or",
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
    exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.Div: "sqldiv", exp.Mod: "sqlmod",
}  # fmt: skip

_TYPES = {
    "BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64",
    "UTINYINT": "uint8", "USMALLINT": "uint16", "UINT": "uint32", "UBIGINT": "uint64",
    "FLOAT": "float32", "DOUBLE": "float64",
}  # fmt: skip

_MOMENTS = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATETIME", "DATE")


def parse(text: str, sides: dict[str, int], about: str = "The condition") -> Expr:
    """The expression of a condition.

    Args:
        text: One SQL condition in Spark's dialect.
        sides: Which row each qualifier means; names that differ only in case are told apart if both are there.
        about: What it is, for messages.

    Raises:
        QueryError: The text is no SQL, uses something that plait does not read, or names an input that is not there.

    >>> parse("abs(l.x - r.a) <= 10", {"l": 0, "r": 1}).op
    'le'
    """
    check_text(text, about)
    try:
        tree: Any = sqlglot.parse_one(text, read=DIALECT)
    except sqlglot.errors.SqlglotError as error:
        details = getattr(error, "errors", None)
        first = details[0] if details else {}
        where = f" at line {first['line']}, column {first['col']}" if first.get("line") else ""
        reason = first.get("description") or str(error).split("\n")[0]
        reason = "an operand is missing" if "Required keyword" in reason else reason
        raise QueryError(
            f"{about} ({text!r}) is not SQL{where}: {reason}",
            do="Write one SQL expression, such as `abs(quotes.x - trades.a) <= 10`",
        ) from error
    except RecursionError:
        raise too_deep(f"{about} ({text!r})") from None
    try:
        return _Reader(text, sides, about).read(tree)
    except RecursionError:
        raise too_deep(f"{about} ({text!r})") from None


class _Reader(Functions):
    """Walks sqlglot's tree. A node's class finds the method that reads it; a class without one is refused by name."""

    def __init__(self, text: str, sides: dict[str, int], about: str) -> None:
        self.text = text
        self.sides = sides
        self.what = f"{about} ({text!r})"

    def read(self, node: exp.Expression | None) -> Expr:
        """The expression of a node."""
        if node is None:  # sqlglot does not miss an argument of every function
            raise QueryError(f"{self.what} lacks an argument", do="Write what the function is given")
        op = _BINARY.get(type(node))
        if op is not None:
            return Binary(op, self.read(node.this), self.read(node.expression))
        handler: Callable[[exp.Expression], Expr] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            raise self._refuse(f"uses {node.sql(DIALECT)!r} ({type(node).__name__})")
        return handler(node)

    def _refuse(self, what: str) -> QueryError:
        """The error for something that plait does not read, with all that it does."""
        return QueryError(
            f"{self.what} {what}",
            why="plait reads + - * / %, comparisons, BETWEEN, IN, IS NULL, AND, OR, NOT, abs, least, greatest, CAST, CASE, if, "
            "coalesce, nullif; of text LIKE, RLIKE, contains, startswith, endswith, length, lower, upper, trim, substring, "
            "split_part, replace, concat, || and regexp_extract; of timestamps year, month, day, hour, minute, second, weekday",
            do="Rewrite it with these, or pass a Python function",
        )

    def _paren(self, node: exp.Expression) -> Expr:
        return self.read(node.this)

    def _not(self, node: exp.Expression) -> Expr:
        return Unary("not", self.read(node.this))

    def _neg(self, node: exp.Expression) -> Expr:
        inner = self.read(node.this)
        if isinstance(inner, Literal) and isinstance(inner.value, (int, float)) and not isinstance(inner.value, bool):
            return Literal(-inner.value)
        return Unary("neg", inner)

    def _abs(self, node: exp.Expression) -> Expr:
        return Unary("abs", self.read(node.this))

    def _between(self, node: exp.Expression) -> Expr:
        value = self.read(node.this)
        if node.args.get("symmetric"):
            raise self._refuse("uses BETWEEN SYMMETRIC")
        low, high = self.read(node.args["low"]), self.read(node.args["high"])
        return Binary("and", Binary("ge", value, low), Binary("le", value, high))

    def _in(self, node: exp.Expression) -> Expr:
        if not node.expressions:
            raise self._refuse("uses IN without a list of values")
        value = self.read(node.this)
        return reduce(lambda a, b: Binary("or", a, b), (Binary("eq", value, self.read(e)) for e in node.expressions))

    def _is(self, node: exp.Expression) -> Expr:
        if isinstance(node.expression, exp.Null):
            return Unary("is_null", self.read(node.this))
        raise self._refuse(f"uses {node.sql(DIALECT)!r}")

    def _least(self, node: exp.Expression) -> Expr:
        return self._fold("least", node)

    def _greatest(self, node: exp.Expression) -> Expr:
        return self._fold("greatest", node)

    def _fold(self, op: str, node: exp.Expression) -> Expr:
        """`least` and `greatest` of several values, two at a time."""
        parts = [self.read(part) for part in (node.this, *node.expressions)]
        return reduce(lambda a, b: Binary(op, a, b), parts)

    def _cast(self, node: exp.Expression) -> Expr:
        """A cast to a number, or a moment that is written as text: TIMESTAMP '...' parses as a cast."""
        kind = str(node.args["to"].this.value)
        if kind in _MOMENTS and isinstance(node.this, exp.Literal) and node.this.is_string:
            return self._moment(node.this.this, dt.date if kind == "DATE" else dt.datetime)
        if kind not in _TYPES:
            raise self._refuse(f"casts to {kind}")
        return Cast(self.read(node.this), _TYPES[kind])

    _trycast = _cast

    def _moment(self, words: str, kind: type[dt.date]) -> Expr:
        """A moment or a day as microseconds; refused if it is finer than that."""
        try:
            moment = kind.fromisoformat(words)
        except ValueError:
            moment = None
        # Python drops what is finer than a microsecond; nothing is rounded silently.
        if moment is None or re.search(r"[.,]\d{7}", words):
            raise QueryError(
                f"{self.what} holds {words!r}, which is no {kind.__name__}",
                why="time is counted in whole microseconds, and a date has no hour",
                do="Write it like TIMESTAMP '2024-01-31 12:00:00.5+00:00' or DATE '2024-01-31'",
            )
        return as_expr(moment)

    def _interval(self, node: exp.Expression) -> Expr:
        """A span of time as microseconds."""
        from plait.schema import duration_us

        unit = node.args.get("unit")
        words = f"{node.this.this} {unit.name if unit else ''}".strip()
        return Literal(duration_us(words.lower(), "INTERVAL"))

    def _literal(self, node: exp.Expression) -> Expr:
        if node.is_string:
            return Literal(node.this)
        digits = node.this.isdigit()
        try:
            return Literal(int(node.this) if digits else float(node.this))
        except ValueError:  # 1e3-5 is one word to sqlglot; Python reads no int of more than 4,300 digits
            raise QueryError(
                f"{self.what} holds {node.this!r}, which is no number", do="Write digits, a point and an exponent"
            ) from None

    def _boolean(self, node: exp.Expression) -> Expr:
        return Literal(bool(node.this))

    def _null(self, node: exp.Expression) -> Expr:
        return Literal(None)

    def _column(self, node: exp.Expression) -> Expr:
        """A column of the row that its qualifier means; without one, bound later by its name alone."""
        assert isinstance(node, exp.Column)
        if not node.table:
            return Column(None, node.name)
        side = self.sides.get(node.table)
        if side is None:  # SQL's names know no case
            alike = {s for name, s in self.sides.items() if name.lower() == node.table.lower()}
            side = alike.pop() if len(alike) == 1 else None
        if side is None or node.args.get("db"):
            known = ", ".join(f"`{name}.`" for name in self.sides)
            raise QueryError(
                f"{self.what} names `{node.sql(DIALECT)}`, and no input is called {node.table!r}",
                do=f"Qualify columns by one of {known}",
            )
        return Column(side, node.name)
