"""Choices, functions of text and parts of times in SQL text, as Spark writes them: the part of the reader that has their names.

A node's class finds the method that reads it (`sql`). What stands beside a text is a constant, and checked in `textual`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from sqlglot import exp

from plait.errors import QueryError
from plait.query.condition import textual
from plait.query.condition.expression import Binary, Case, Concat, Expr, Literal, Text, Unary, coalesced

DIALECT = "spark"

#: `date_part` and `extract` know these words; Spark's SECOND has a fraction, and is not among them.
_PARTS = {
    "YEAR": "year", "YEARS": "year", "MONTH": "month", "MONTHS": "month", "DAY": "day", "DAYS": "day", "HOUR": "hour",
    "HOURS": "hour", "MINUTE": "minute", "MINUTES": "minute",
}  # fmt: skip


class Functions(ABC):
    """Reads functions. Whoever is one reads everything else, too."""

    @abstractmethod
    def read(self, node: exp.Expression) -> Expr:
        """The expression of a node."""

    @abstractmethod
    def _refuse(self, what: str) -> QueryError: ...

    def _like(self, node: exp.Expression) -> Expr:
        return self._text("like", node)

    def _regexplike(self, node: exp.Expression) -> Expr:
        return self._text("matches", node)

    def _contains(self, node: exp.Expression) -> Expr:
        return self._text("contains", node)

    def _startswith(self, node: exp.Expression) -> Expr:
        return self._text("starts_with", node)

    def _endswith(self, node: exp.Expression) -> Expr:
        return self._text("ends_with", node)

    def _length(self, node: exp.Expression) -> Expr:
        return Text("length", self.read(node.this))

    def _text(self, op: str, node: exp.Expression) -> Expr:
        """A condition on text: the pattern has to be a constant."""
        if node.args.get("flag"):
            raise self._refuse(f"uses {node.sql(DIALECT)!r}, with flags")
        made = Text(op, self.read(node.this), (textual.check(op, self._constant(node, node.expression)),))
        return Unary("not", made) if node.args.get("negate") else made

    def _constant(self, node: exp.Expression, given: exp.Expression | None, default: str | int | None = None) -> Any:
        """What a function is given beside its text: a constant."""
        if given is None:
            return default
        found = self.read(given)
        if not isinstance(found, Literal):
            raise self._refuse(f"uses {node.sql(DIALECT)!r} with {given.sql(DIALECT)!r}, which is no constant")
        return found.value

    def _lower(self, node: exp.Expression) -> Expr:
        return Text("lower", self.read(node.this))

    def _upper(self, node: exp.Expression) -> Expr:
        return Text("upper", self.read(node.this))

    def _trim(self, node: exp.Expression) -> Expr:
        op = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
        return Text(
            op, self.read(node.this), textual.trimmed(op, self._constant(node, node.args.get("expression"), " "))
        )

    def _substring(self, node: exp.Expression) -> Expr:
        start, length = (self._constant(node, node.args.get(each)) for each in ("start", "length"))
        return Text("substring", self.read(node.this), textual.substring(start, length))

    def _splitpart(self, node: exp.Expression) -> Expr:
        separator, part = (self._constant(node, node.args.get(each)) for each in ("delimiter", "part_index"))
        return Text("split_part", self.read(node.this), textual.split("split_part", separator, part))

    def _bracket(self, node: exp.Expression) -> Expr:
        """`split(x, '/')[2]`: parts are counted from 0, and one that is not there is NULL."""
        inner = node.this
        if not isinstance(inner, exp.RegexpSplit) or inner.args.get("limit") or node.args.get("offset"):
            raise self._refuse(f"uses {node.sql(DIALECT)!r} ({type(node).__name__})")
        separator, part = self._constant(node, inner.expression), self._constant(node, node.expressions[0])
        if (
            isinstance(separator, str)
            and re.escape(separator) != separator
            and re.search(r"[\\^$.|?*+()\[\]{}]", separator)
        ):
            raise self._refuse(
                f"splits by {separator!r}, which Spark takes for a regular expression (split_part does not)"
            )
        return Text("split_at", self.read(inner.this), textual.split("split_at", separator, part))

    def _replace(self, node: exp.Expression) -> Expr:
        old = self._constant(node, node.expression)
        return Text(
            "replace",
            self.read(node.this),
            textual.replaced(old, self._constant(node, node.args.get("replacement"), "")),
        )

    def _regexpextract(self, node: exp.Expression) -> Expr:
        if node.args.get("parameters") or node.args.get("position"):
            raise self._refuse(f"uses {node.sql(DIALECT)!r}, with more than a pattern and a group")
        pattern, group = self._constant(node, node.expression), self._constant(node, node.args.get("group"), 1)
        return Text("regexp_extract", self.read(node.this), textual.extracted(pattern, group))

    def _concat(self, node: exp.Expression) -> Expr:
        if not node.args.get("safe"):  # 'it''s': Spark reads two texts, and puts them together
            raise self._refuse(
                "has two texts one right after the other (a quote inside of a text is written with a backslash, or use ||)"
            )
        return Concat(tuple(self.read(part) for part in node.expressions))

    def _dpipe(self, node: exp.Expression) -> Expr:
        parts = [self.read(part) for part in (node.this, node.expression)]
        return Concat(tuple(each for part in parts for each in (part.parts if isinstance(part, Concat) else (part,))))

    def _case(self, node: exp.Expression) -> Expr:
        """Both forms: with conditions, and with values that one value is compared with."""
        asked = None if node.this is None else self.read(node.this)
        branches = []
        for branch in node.args["ifs"]:
            condition = self.read(branch.this)
            condition = condition if asked is None else Binary("eq", asked, condition)
            branches.append((condition, self.read(branch.args["true"])))
        return Case(tuple(branches), self._or_null(node.args.get("default")))

    def _if(self, node: exp.Expression) -> Expr:
        return Case(((self.read(node.this), self.read(node.args["true"])),), self._or_null(node.args.get("false")))

    def _or_null(self, node: exp.Expression | None) -> Expr:
        return Literal(None) if node is None else self.read(node)

    def _coalesce(self, node: exp.Expression) -> Expr:
        return coalesced([self.read(each) for each in (node.this, *node.expressions)])

    def _nullif(self, node: exp.Expression) -> Expr:
        first = self.read(node.this)
        return Case(((Binary("eq", first, self.read(node.expression)), Literal(None)),), first)

    def _extract(self, node: exp.Expression) -> Expr:
        part = _PARTS.get(str(node.this.name).upper())
        if part is None:
            raise self._refuse(f"extracts {str(node.this.name).upper()} of a time (second(ts) has whole seconds)")
        return Unary(part, self.read(node.expression))

    def _hour(self, node: exp.Expression) -> Expr:
        return self._part("hour", node)

    def _minute(self, node: exp.Expression) -> Expr:
        return self._part("minute", node)

    def _second(self, node: exp.Expression) -> Expr:
        return self._part("second", node)

    def _year(self, node: exp.Expression) -> Expr:
        return self._part("year", node)

    def _month(self, node: exp.Expression) -> Expr:
        return self._part("month", node)

    def _day(self, node: exp.Expression) -> Expr:
        return self._part("day", node)

    _dayofmonth = _day

    def _part(self, part: str, node: exp.Expression) -> Expr:
        """A part of a time. sqlglot writes a cast to a day around what `year` and its like are given."""
        inner = node.this
        return Unary(part, self.read(inner.this if isinstance(inner, exp.TsOrDsToDate) else inner))

    def _anonymous(self, node: exp.Expression) -> Expr:
        """Functions that sqlglot has no class for."""
        given, name = node.expressions, node.name.lower()
        if name == "iff" and len(given) == 3:
            return Case(((self.read(given[0]), self.read(given[1])),), self.read(given[2]))
        if name == "btrim" and len(given) in (1, 2):
            characters = self._constant(node, given[1] if len(given) == 2 else None, " ")
            return Text("trim", self.read(given[0]), textual.trimmed("trim", characters))
        if name == "weekday" and len(given) == 1:
            return Unary("weekday", self.read(given[0]))
        raise self._refuse(f"uses {node.sql(DIALECT)!r} ({type(node).__name__})")
