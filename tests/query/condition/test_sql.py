"""SQL text becomes the tree that the same condition in Python becomes."""

import datetime as dt
from typing import Any

import pytest

import plait
from plait import QueryError
from plait.query.condition.expression import Binary, Cast, Column, Expr, Literal, Unary, text
from plait.query.condition.sql import parse
from plait.query.condition.trace import trace

SIDES = {"quotes": 0, "trades": 1, "left": 0, "right": 1, "l": 0, "r": 1}
LX, RA = Column(0, "x"), Column(1, "a")


@pytest.mark.parametrize(
    ("words", "function"),
    [
        ("l.x = r.a", lambda l, r: l.x == r.a),
        ("l.x == r.a", lambda l, r: l.x == r.a),
        ("l.x <> r.a", lambda l, r: l.x != r.a),
        ("l.x != r.a", lambda l, r: l.x != r.a),
        ("l.x < r.a", lambda l, r: l.x < r.a),
        ("l.x <= r.a", lambda l, r: l.x <= r.a),
        ("l.x > r.a", lambda l, r: l.x > r.a),
        ("l.x >= r.a", lambda l, r: l.x >= r.a),
        ("l.x + 1 = r.a - 2 * l.y", lambda l, r: l.x + 1 == r.a - 2 * l.y),
        ("- l.x = 5", lambda l, r: -l.x == 5),
        ("l.x = -5", lambda l, r: l.x == -5),
        ("l.x = - -5", lambda l, r: l.x == 5),
        ("l.x = +5", lambda l, r: l.x == +5),
        ("-(-l.x) = 1.5", lambda l, r: -(-l.x) == 1.5),  # noqa: B002
        ("abs(l.x - r.a) <= 10", lambda l, r: abs(l.x - r.a) <= 10),
        ("ABS(l.x - r.a) <= 1e1", lambda l, r: abs(l.x - r.a) <= 10.0),
        ("l.x = .5", lambda l, r: l.x == 0.5),
        ("l.x = 99999999999999999999", lambda l, r: l.x == 99999999999999999999),
        ("l.x = 1e999", lambda l, r: l.x == float("inf")),
        ("least(l.x, r.a) = 1", lambda l, r: plait.minimum(l.x, r.a) == 1),
        ("greatest(l.x, r.a, 3) = 1", lambda l, r: plait.maximum(plait.maximum(l.x, r.a), 3) == 1),
        ("l.d AND NOT r.d OR l.x = 1", lambda l, r: l.d & ~r.d | (l.x == 1)),
        ("l.d and (r.d or true)", lambda l, r: l.d & (r.d | True)),
        ("l.d = false", lambda l, r: l.d == False),  # noqa: E712
        ("l.x BETWEEN 1 AND r.a", lambda l, r: l.x.between(1, r.a)),
        ("l.x NOT BETWEEN 1 AND r.a", lambda l, r: ~l.x.between(1, r.a)),
        ("l.x IN (1, 2, r.a)", lambda l, r: (l.x == 1) | (l.x == 2) | (l.x == r.a)),
        ("l.x NOT IN (1)", lambda l, r: ~(l.x == 1)),
        ("l.x IS NULL", lambda l, r: l.x.is_null()),
        ("l.x IS NOT NULL", lambda l, r: ~l.x.is_null()),
        ("l.s = 'it\\'s'", lambda l, r: l.s == "it's"),
        ('l.s = "abc"', lambda l, r: l.s == "abc"),
        ("l.s = ''", lambda l, r: l.s == ""),
        ("l.s = 'é\\n'", lambda l, r: l.s == "é\n"),
        ("CAST(l.x AS INT) = 1", lambda l, r: l.x.cast("int32") == 1),
        ("l.x::double = 1", lambda l, r: l.x.cast("float64") == 1),
        ("TRY_CAST(l.x AS tinyint) = 1", lambda l, r: l.x.cast("int8") == 1),
        ("l.t > TIMESTAMP '2024-01-31 12:00:00'", lambda l, r: l.t > dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)),
        ("l.t > TIMESTAMP '2024-01-31T12:00:00.5+01:00'",
         lambda l, r: l.t > dt.datetime(2024, 1, 31, 11, 0, 0, 500_000, tzinfo=dt.UTC)),
        ("l.t > DATE '2024-01-31'", lambda l, r: l.t > dt.date(2024, 1, 31)),
        ("l.t - r.t < INTERVAL '5' MINUTE", lambda l, r: l.t - r.t < dt.timedelta(minutes=5)),
        ("l.t - r.t < INTERVAL 5 MINUTES", lambda l, r: l.t - r.t < dt.timedelta(minutes=5)),
        ("l.t - r.t < INTERVAL '1 day 2 hours'", lambda l, r: l.t - r.t < dt.timedelta(days=1, hours=2)),
        ("l.t - r.t < INTERVAL '1.5' SECOND", lambda l, r: l.t - r.t < dt.timedelta(seconds=1.5)),
        ("/* a comment */ l.x = 1 -- and another", lambda l, r: l.x == 1),
    ],
)  # fmt: skip
def test_sql_and_python_make_one_tree(words: str, function: Any) -> None:
    assert parse(words, SIDES) == trace(function)


def test_division_means_two_things() -> None:
    assert parse("l.x / r.a", SIDES) == Binary("sqldiv", LX, RA)
    assert parse("l.x % r.a", SIDES) == parse("mod(l.x, r.a)", SIDES) == Binary("sqlmod", LX, RA)
    assert trace(lambda l, r: l.x / r.a) == Binary("div", LX, RA)
    assert trace(lambda l, r: l.x % r.a) == Binary("mod", LX, RA)


def test_null_is_a_literal_in_sql_alone() -> None:
    assert parse("l.x = NULL", SIDES) == Binary("eq", LX, Literal(None))


def test_typed_literals() -> None:
    assert parse("5Y", SIDES) == Cast(Literal(5), "int8")
    assert parse("5S", SIDES) == Cast(Literal(5), "int16")
    assert parse("5L", SIDES) == Cast(Literal(5), "int64")
    assert parse("1.5D", SIDES) == Cast(Literal(1.5), "float64")
    assert parse("1.5F", SIDES) == Cast(Literal(1.5), "float32")


@pytest.mark.parametrize(
    ("word", "to"),
    [
        ("boolean", "bool"), ("tinyint", "int8"), ("byte", "int8"), ("smallint", "int16"), ("short", "int16"),
        ("int", "int32"), ("integer", "int32"), ("bigint", "int64"), ("long", "int64"), ("float", "float32"),
        ("real", "float32"), ("double", "float64"), ("int8", "int8"), ("int16", "int16"),
        ("int32", "int32"), ("int64", "int64"),
    ],
)  # fmt: skip
def test_words_for_types(word: str, to: str) -> None:
    assert parse(f"CAST(l.x AS {word})", SIDES) == Cast(LX, to)


@pytest.mark.parametrize("word", ["decimal", "decimal(10, 2)", "string", "binary", "timestamp", "date", "array<int>"])
def test_words_for_types_that_casts_do_not_know(word: str) -> None:
    with pytest.raises(QueryError, match="casts to"):
        parse(f"CAST(l.x AS {word}) = 1", SIDES)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("quotes.x = trades.a", Binary("eq", LX, RA)),
        ("QUOTES.x = Trades.a", Binary("eq", LX, RA)),
        ("`quotes`.`x` = `trades`.`a`", Binary("eq", LX, RA)),
        ("l.`a b` = 1", Binary("eq", Column(0, "a b"), Literal(1))),
        ("x = a", Binary("eq", Column(None, "x"), Column(None, "a"))),
        ("l.`select` = 1", Binary("eq", Column(0, "select"), Literal(1))),
        ("l.X = 1", Binary("eq", Column(0, "X"), Literal(1))),
        ("l.ts > r.date", Binary("gt", Column(0, "ts"), Column(1, "date"))),
    ],
)
def test_names(words: str, expected: Expr) -> None:
    assert parse(words, SIDES) == expected


@pytest.mark.parametrize(
    "words",
    [
        "l.x DIV 2 = 1", "l.s ILIKE 'a%'", "l.s LIKE r.s", "l.x <=> r.a", "l.x IS TRUE", "l.x IS DISTINCT FROM r.a",
        "sqrt(l.x) = 1",
        "nvl2(l.x, 1, 2) = 1", "l.x & 1 = 1", "l.x ^ 1 = 1", "~l.x = 1",
        "concat_ws('-', l.s) = 'b'", "split(l.s, '[a-z]')[0] = 'a'", "date_format(l.t, 'yyyy') = '2024'", "l.x = (SELECT 1)",
        "extract(SECOND FROM l.t) = 1", "element_at(split(l.s, '/'), 1) = 'a'",
        "regexp_extract(l.s, l.s, 1) = 'a'",
        "l.x IN (SELECT 1)", "l.x IN ()", "EXISTS (SELECT 1)", "l.x = ?",
        "current_timestamp() > l.t", "l.x = :p", "l.x = 0x1F", "x'1F' = l.y", "l.s = 'it''s'", "rand() < 0.5",
        "l.x BETWEEN SYMMETRIC 2 AND 1", "count(*) > 1", "l.x = 1; l.x = 2", "SELECT 1", "l.x AS y", "", "  ", "l.x =",
        "(l.x = 1", "l.x = 1)", "l.x = 'a", "l.x ! = 1", "1 l.x", "INTERVAL -5 MINUTE > l.t", "INTERVAL 1 YEAR > l.t",
        "INTERVAL l.x MINUTE > l.t", "TIMESTAMP 'now' > l.t", "DATE '2024-02-30' > l.t", "other.x = 1", "l.a[0] = 1",
        "quotes.trades.x = 1", "l.m['k'] = 1", "l.x = 1.5BD",
    ],
)  # fmt: skip
def test_refused(words: str) -> None:
    with pytest.raises(QueryError):
        parse(words, SIDES)


def test_the_text_of_a_tree_reads_back() -> None:
    """What `explain` prints of a tree, with the exception of `//` and of Python's `/` and `%`, is SQL again."""
    words = "abs(l.x - 1) <= 10 AND (l.s = 'a' OR NOT l.d) AND cast(r.a as int8) IS NULL AND least(l.x, -r.a) <> 2.5"
    tree = parse(words, SIDES)
    assert parse(text(tree), SIDES) == tree
    assert text(Unary("not", Binary("eq", LX, Literal(None))), ("a", "b")) == "(not (a.x = NULL))"
    assert text(Binary("floordiv", Column(None, "x"), Literal(True))) == "(x // True)"
