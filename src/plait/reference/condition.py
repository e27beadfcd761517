"""Conditions judged as they were written: a traced function is called, SQL text is interpreted from its own parse.

Nothing of `plait.query`'s trees is used, so a slip in the tracer or the parser shows up as a difference.

A condition becomes a function of two rows that says whether the pair matches: unknown is not a match.
tests/reference/test_conditions.py holds it against the rules of values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from plait.errors import DataError, RunError
from plait.query.condition.predicate import Predicate
from plait.reference.rows import Row, View, condition_value
from plait.reference.values import Value, arithmetic, cast, choose, coalesce, compare, concat, pick, value_of
from plait.schema import duration_us

Condition = Callable[[Row, Row], bool]
Term = Callable[["ValueRow", "ValueRow"], Value]

EMPTY = Row(0, (), ())


class ValueRow:
    """A row whose columns are `Value`s.

    What a column is read as is kept in the row itself (`Row.read`): a row meets many others. Names are mangled, so a
    column may have any name that does not begin with two underscores, and any at all in brackets.
    """

    __slots__ = ("__row", "__schema")

    def __init__(self, row: Row, schema: pa.Schema) -> None:
        self.__row, self.__schema = row, schema

    def __getitem__(self, name: str) -> Value:
        value = self.__row.read.get(name)
        if value is None:
            at = self.__schema.get_field_index(name)
            value = self.__row.read[name] = condition_value(self.__row.values[at], self.__schema.field(at).type)
        return value

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


_NOTHING = ValueRow(EMPTY, pa.schema([]))


def condition(predicate: Predicate, left: pa.Schema, right: pa.Schema, rows: int = 2) -> Condition:
    """Whether a pair matches. With `rows=1` only the left row is there, as in `first_where`.

    `predicate` is bound to the two schemas. Four kinds: always true; opaque (called with Python's values); SQL text
    (interpreted here); and a traced function, which is called with `Value`s for every pair. The tracer called the same
    function once with symbols.
    """
    match predicate.kind:
        case "always":
            return lambda l, r: True
        case "opaque":
            return _opaque(predicate, left, right, rows)
        case "sql":
            tree: Any = sqlglot.parse_one(str(predicate.source), read="spark")
            term = _Sql(predicate, left, right).term(tree)
            return lambda l, r: term(ValueRow(l, left), ValueRow(r, right)).v is True
        case _:
            function: Any = predicate.source

            def called(l: Row, r: Row) -> bool:
                arguments = (ValueRow(l, left), ValueRow(r, right))[:rows]
                return value_of(function(*arguments)).v is True

            return called


def value(predicate: Predicate, schema: pa.Schema) -> Callable[[Row], Value]:
    """What an expression of one row comes to: SQL text is interpreted, a traced function is called with `Value`s."""
    if predicate.kind == "sql":
        tree: Any = sqlglot.parse_one(str(predicate.source), read="spark")
        none = pa.schema([])
        term = _Sql(predicate, schema, none).term(tree)
        nothing = ValueRow(EMPTY, none)
        return lambda row: term(ValueRow(row, schema), nothing)
    function: Any = predicate.source
    return lambda row: value_of(function(ValueRow(row, schema)))


def _opaque(predicate: Predicate, left: pa.Schema, right: pa.Schema, rows: int) -> Condition:
    """The function is not called on a pair in which a column that it reads is NULL: that is no match. What it returns is
    asked for its truth. An error becomes a `RunError` that names the tuples.
    """
    function: Any = predicate.source
    left_at = [left.get_field_index(name) for name in predicate.reads[0]]
    right_at = [right.get_field_index(name) for name in predicate.reads[1]]

    def called(l: Row, r: Row) -> bool:
        if any(l.values[i] is None for i in left_at) or any(r.values[i] is None for i in right_at):
            return False
        try:
            return bool(function(*(View(l, left), View(r, right))[:rows]))
        except DataError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", "condition")
            raise RunError(
                f"The condition {name!r} raised {type(error).__name__}: {error}",
                why=f"it was called with the tuple{f's at ts {l.ts} and {r.ts}' if rows == 2 else f' at ts {l.ts}'}",
            ) from error

    return called


class _Sql:
    """Builds a closure for each node of sqlglot's tree.

    `qualifiers` are the names before the dot in `left.x`, with the side that each means.
    """

    def __init__(self, predicate: Predicate, left: pa.Schema, right: pa.Schema) -> None:
        self.qualifiers = predicate.qualifiers
        self.schemas = (left, right)

    def term(self, node: exp.Expression) -> Term:
        """A closure of two rows for each node. What is not listed raises, but never reaches a user: `plait.query` has
        refused it when the query was built, by a list of its own.
        """
        match node:
            case exp.Paren():
                return self.term(node.this)
            case exp.And():
                return self._two(node, lambda a, b: a & b)
            case exp.Or():
                return self._two(node, lambda a, b: a | b)
            case exp.Not():
                return self._one(node, lambda a: ~a)
            case exp.Neg():
                return self._one(node, lambda a: -a)
            case exp.Abs():
                return self._one(node, abs)
            case exp.Is():
                return self._one(node, lambda a: a.is_null())
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                op = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "sql/", exp.Mod: "sql%"}[type(node)]
                return self._two(node, lambda a, b: arithmetic(op, a, b))
            case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                signs = {exp.EQ: "==", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
                sign = signs[type(node)]
                return self._two(node, lambda a, b: compare(sign, a, b))
            case exp.Column():
                return self._column(node)
            case exp.Length():
                return self._one(node, lambda a: a.length())
            case exp.Like() | exp.RegexpLike() | exp.Contains() | exp.StartsWith() | exp.EndsWith():
                return self._text(node)
            case _:
                return self._other(node)

    def _text(self, node: exp.Expression) -> Term:
        """LIKE and other functions of text with a pattern. The pattern is a constant. `NOT LIKE` is the negation of
        `LIKE`: unknown stays unknown.
        """
        methods: dict[Any, Any] = {
            exp.Like: Value.like, exp.RegexpLike: Value.matches, exp.Contains: Value.contains,
            exp.StartsWith: Value.starts_with, exp.EndsWith: Value.ends_with,
        }  # fmt: skip
        method = methods[type(node)]
        pattern, negated = self.term(node.expression)(_NOTHING, _NOTHING).v, bool(node.args.get("negate"))
        return self._one(node, lambda a: ~method(a, pattern) if negated else method(a, pattern))

    def _other(self, node: exp.Expression) -> Term:
        """`x BETWEEN a AND b` is (x >= a) & (x <= b), `x IN (a, b)` is (x == a) | (x == b), each in three-valued logic: so
        `1 IN (2, NULL)` is unknown. A number with a point or an exponent is a float, any other an integer.
        """
        match node:
            case exp.Between():
                value, low, high = (self.term(n) for n in (node.this, node.args["low"], node.args["high"]))
                return lambda l, r: (value(l, r) >= low(l, r)) & (value(l, r) <= high(l, r))
            case exp.In():
                value, options = self.term(node.this), [self.term(n) for n in node.expressions]

                def among(l: ValueRow, r: ValueRow) -> Value:
                    found = Value("bool", False)
                    for option in options:
                        found = found | (value(l, r) == option(l, r))
                    return found

                return among
            case exp.Case() | exp.If() | exp.Coalesce() | exp.Nullif() | exp.Concat() | exp.DPipe():
                return self._of_several(node)
            case exp.Least() | exp.Greatest():
                parts = [self.term(n) for n in (node.this, *node.expressions)]
                return lambda l, r: _fold(parts, l, r, larger=isinstance(node, exp.Greatest))
            case exp.Cast():
                return self._cast(node)
            case exp.Interval():
                unit = node.args.get("unit")
                span = duration_us(f"{node.this.this} {unit.name if unit else ''}".strip().lower(), "INTERVAL")
                return self._constant(span)
            case exp.Null():
                return self._constant(None)
            case exp.Boolean():
                return self._constant(bool(node.this))
            case exp.Literal() if node.is_string:
                return self._constant(node.this)
            case exp.Literal():
                number = node.this
                return self._constant(int(number) if number.isdigit() else float(number))
            case _:
                return self._function(node)

    def _of_several(self, node: exp.Expression) -> Term:
        """CASE and its like. `CASE x WHEN 1` compares x with 1; `nullif(a, b)` is NULL where a = b is true, else a."""
        match node:
            case exp.Case():
                asked = None if node.this is None else self.term(node.this)
                ifs = [(self.term(each.this), self.term(each.args["true"])) for each in node.args["ifs"]]
                last = self.term(node.args.get("default") or exp.Null())

                def case(l: ValueRow, r: ValueRow) -> Value:
                    tests = [c(l, r) if asked is None else asked(l, r) == c(l, r) for c, _ in ifs]
                    return choose([(test, v(l, r)) for test, (_, v) in zip(tests, ifs, strict=True)], last(l, r))

                return case
            case exp.If():
                given = [self.term(n or exp.Null()) for n in (node.this, node.args["true"], node.args.get("false"))]
                condition, yes, no = given
                return lambda l, r: choose([(condition(l, r), yes(l, r))], no(l, r))
            case exp.Nullif():
                return self._two(node, lambda a, b: choose([(a == b, Value("null", None))], a))
            case exp.Coalesce():
                parts = [self.term(n) for n in (node.this, *node.expressions)]
                return lambda l, r: coalesce([part(l, r) for part in parts])
            case exp.DPipe():
                return self._two(node, lambda a, b: concat([a, b]))
            case _:
                parts = [self.term(n) for n in node.expressions]
                return lambda l, r: concat([part(l, r) for part in parts])

    def _function(self, node: exp.Expression) -> Term:
        """A function of one text or moment, by its name and its constants, which stand in the text as they are."""
        name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__.lower()
        args, subject = node.args, node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        if name == "iff":
            return self._of_several(exp.If(this=subject, true=node.expressions[1], false=node.expressions[2]))
        given: list[Any] = []
        if name in ("lower", "upper", "hour", "minute", "second", "weekday"):
            method = name
        elif name in ("year", "month", "day", "dayofmonth"):
            method, subject = {"dayofmonth": "day"}.get(name, name), subject.this
        elif name == "extract":
            method, subject = node.this.name.lower().removesuffix("s"), node.expression
        elif name == "trim":
            method = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(args.get("position")), "trim")
            given = [args.get("expression")]
        elif name == "btrim":
            method, given = "trim", node.expressions[1:]
        elif name == "bracket":
            method, subject, given = "split_at", node.this.this, [node.this.expression, node.expressions[0]]
        else:
            method, keys = {
                "substring": ("substring", ("start", "length")), "splitpart": ("split_part", ("delimiter", "part_index")),
                "replace": ("replace", ("expression", "replacement")),
                "regexpextract": ("regexp_extract", ("expression", "group")),
            }[name]  # fmt: skip
            given = [args.get(key) for key in keys]
        constants = [self.term(each)(_NOTHING, _NOTHING).v for each in given if each is not None]
        if name == "replace" and len(constants) == 1:
            constants.append("")
        inner = self.term(subject)
        return lambda l, r: getattr(inner(l, r), method)(*constants)

    def _cast(self, node: exp.Cast) -> Term:
        """CAST, and typed constants. A cast of a text constant is a moment: `TIMESTAMP '2024-01-01'`. Everything else
        goes to `reference.values.cast`.
        """
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            return self._constant(dt.datetime.fromisoformat(node.this.this))
        words = {
            "BOOLEAN": "bool", "TINYINT": "int8", "SMALLINT": "int16", "INT": "int32", "BIGINT": "int64",
            "UTINYINT": "uint8", "USMALLINT": "uint16", "UINT": "uint32", "UBIGINT": "uint64",
            "FLOAT": "float32", "DOUBLE": "float64",
        }  # fmt: skip
        to = words[node.args["to"].this.value]
        return self._one(node, lambda a: cast(a, to))

    def _column(self, node: exp.Column) -> Term:
        """A column by its name. As SQL does: the exact spelling first, then one that differs in case only. Without a
        qualifier both sides are looked through.
        """
        exact = {s for name, s in self.qualifiers if name == node.table}
        named = exact or {s for name, s in self.qualifiers if not node.table or name.lower() == node.table.lower()}
        same = [(s, c) for s in sorted(named) for c in self.schemas[s].names if c == node.name]
        alike = [(s, c) for s in sorted(named) for c in self.schemas[s].names if c.lower() == node.name.lower()]
        side, column = (same or alike)[0]
        return lambda l, r: (l, r)[side][column]

    def _constant(self, value: Any) -> Term:
        constant = value_of(value)
        return lambda l, r: constant

    def _one(self, node: exp.Expression, function: Callable[[Value], Value]) -> Term:
        """A function of the node's one operand."""
        inner = self.term(node.this)
        return lambda l, r: function(inner(l, r))

    def _two(self, node: exp.Expression, function: Callable[[Value, Value], Value]) -> Term:
        """A function of the node's two operands, both computed for every pair."""
        a, b = self.term(node.this), self.term(node.expression)
        return lambda l, r: function(a(l, r), b(l, r))


def _fold(parts: list[Term], l: ValueRow, r: ValueRow, *, larger: bool) -> Value:
    """LEAST and GREATEST of two or more, from left to right."""
    result = parts[0](l, r)
    for part in parts[1:]:
        result = pick(result, part(l, r), larger=larger)
    return result
