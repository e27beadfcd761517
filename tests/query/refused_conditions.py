"""What conditions refuse: as a function, as SQL text, and once they meet their columns."""

import functools
from collections.abc import Callable
from typing import Any

import pandas as pd
from tests.query.refusal import SCHEMAS, Refusal, quotes, trades

import plait
from plait import QueryError
from plait.query.bind import bind


def on(condition: Any) -> Callable[[], object]:
    return lambda: plait.join(quotes, trades, on=condition, within="1s")


def doubled(value: Any, times: int) -> Any:
    for _ in range(times):
        value = value + value
    return value


def bound(condition: Any) -> Callable[[], object]:
    return lambda: bind(plait.join(quotes, trades, on=condition, within="1s"), SCHEMAS)


def where(condition: Any) -> Callable[[], object]:
    query = plait.aggregate(quotes, size="1s", compute={"n": plait.count_where(condition)})
    return lambda: bind(query, SCHEMAS)


def opaque_missing(q: Any, t: Any) -> bool:
    return bool(q.nothing and t.a)


def opaque_list(q: Any, t: Any) -> bool:
    return len(q.tags) > 3


def row_escapes(q: Any, t: Any) -> bool:
    first = q
    return bool(first.x and t.a)


FUNCTIONS = {
    "nanoseconds that do not divide": Refusal(
        on(lambda q, t: q.ts - t.ts <= pd.Timedelta(1500, "ns")), QueryError, "Timedelta", "microseconds"
    ),
    "a condition that is a number": Refusal(on(5), QueryError, "on=5 is no condition", do="or SQL text"),
    "a condition on one row that is a number": Refusal(
        lambda: plait.first_where("x", 5), QueryError, "where=5 is no condition", do="a function of one row"
    ),
    "a condition of three rows": Refusal(
        on(lambda q, t, u: True), QueryError, "on='<lambda>' does not take 2 arguments", do="one row of each input"
    ),
    "a condition on one row of two": Refusal(
        lambda: plait.count_where(lambda q, t: True), QueryError, "does not take one argument (missing", do="one row"
    ),
    "a condition that returns no condition": Refusal(
        on(lambda q, t: 5), QueryError, "The condition of the join returns 5", "must compare columns", "abs(l.x - r.a)"
    ),
    "a condition that returns nothing": Refusal(
        on(lambda q, t: None),
        QueryError,
        "The condition of the join returns None",
        "must compare columns",
        "abs(l.x - r.a)",
    ),
    "a condition that returns its row": Refusal(
        on(lambda q, t: q),
        QueryError,
        "The condition of the join returns <row>",
        "must compare columns",
        "abs(l.x - r.a)",
    ),
    "a condition that returns a list": Refusal(
        on(lambda q, t: [q.x]),
        QueryError,
        "The condition of the join returns [<column>]",
        "must compare columns",
        "abs(l.x",
    ),
    "a comparison with None": Refusal(
        on(lambda q, t: q.x == None),  # noqa: E711
        QueryError,
        "compares a column with None",
        "unknown and never matches",
        ".is_null()",
    ),
    "a cast to an unknown type": Refusal(
        on(lambda q, t: q.x.cast("decimal") == 1), QueryError, "cast('decimal') names no type", do="bool, int8"
    ),
    "a name that does not exist": Refusal(
        on(lambda q, t: q.x == undefined),  # noqa: F821
        QueryError,
        "a name that does not exist: name 'undefined' is not defined",
        do="Define it",
    ),
    "an opaque callable that is no function": Refusal(
        on(functools.partial(lambda k, q, t: q.x > k or t.a > k, 3)),
        QueryError,
        "The condition of the join is a partial",
        "can't be seen from outside",
        "Wrap it in a `def`",
    ),
    "a row used as a whole": Refusal(
        on(row_escapes), QueryError, "uses its row 'q' as a whole (line ", "which columns it reads", "`q.column`"
    ),
    "an opaque function that reads a missing column": Refusal(
        bound(opaque_missing), QueryError, "reads column 'nothing' of quotes", "its columns are ts, x"
    ),
    "an opaque function that reads a list": Refusal(
        bound(opaque_list), QueryError, "reads quotes.tags, a column of type list", "read numbers", "Cast it before"
    ),
}

READS = "plait reads + - * / %"

SQL = {
    "text that is no SQL": Refusal(
        on("quotes.x = = 1"),
        QueryError,
        "('quotes.x = = 1') is not SQL at line 1, column 12",
        do="Write one SQL expression",
    ),
    "SQL that lacks an operand": Refusal(
        on("quotes.x ="), QueryError, "('quotes.x =') is not SQL at line 1, column 10: an operand is", do="Write one"
    ),
    "SQL that is empty": Refusal(
        on(""), QueryError, "The condition of the join ('') is not SQL", do="Write one SQL expression"
    ),
    "a query for a condition": Refusal(
        on("SELECT 1"), QueryError, "uses 'SELECT 1' (Select)", READS, "or pass a Python function"
    ),
    "two conditions": Refusal(
        on("quotes.x = 1; quotes.x = 2"), QueryError, "('quotes.x = 1; quotes.x = 2') uses", READS, "Rewrite it"
    ),
    "a function that SQL has and plait does not": Refusal(
        on("sqrt(quotes.y) = 1"), QueryError, "uses 'SQRT(quotes.y)' (Sqrt)", READS, "Rewrite it"
    ),
    "BETWEEN the other way round": Refusal(
        on("quotes.x BETWEEN SYMMETRIC 5 AND 1"), QueryError, "uses BETWEEN SYMMETRIC", READS, "Rewrite it"
    ),
    "IN a query": Refusal(
        on("quotes.x IN (SELECT 1)"), QueryError, "uses IN without a list of values", READS, "Rewrite it"
    ),
    "IS of a truth": Refusal(on("quotes.d IS TRUE"), QueryError, "uses 'quotes.d IS TRUE'", READS, "Rewrite it"),
    "a cast to an unknown type in SQL": Refusal(
        on("CAST(quotes.x AS DECIMAL) = 1"), QueryError, "casts to DECIMAL", READS, "Rewrite it"
    ),
    "a moment that is none": Refusal(
        on("quotes.ts > TIMESTAMP '2024-13-01'"),
        QueryError,
        "'2024-13-01', which is no datetime",
        "time is counted",
        "TIMESTAMP",
    ),
    "a moment finer than a microsecond": Refusal(
        on("quotes.ts > TIMESTAMP '2024-01-01 00:00:00.1234567'"),
        QueryError,
        ".1234567', which is",
        "whole",
        "TIMESTAMP",
    ),
    "a date with an hour": Refusal(
        on("quotes.ts > DATE '2024-01-01 12:00'"),
        QueryError,
        "'2024-01-01 12:00', which is no date",
        "no hour",
        "DATE '2024",
    ),
    "an interval in months": Refusal(
        on("quotes.ts > INTERVAL 1 MONTH"),
        QueryError,
        "INTERVAL='1 month'",
        "'month' is no unit of time",
        "'5 minutes'",
    ),
    "an unknown input": Refusal(
        on("quote.x = 1"), QueryError, "names `quote.x`, and no input is called 'quote'", do="`quotes.`, `trades.`"
    ),
    "a column of a column": Refusal(
        on("quotes.x.y = 1"), QueryError, "names `quotes.x.y`, and no input is called 'x'", do="Qualify columns"
    ),
}

COMPARE = "numbers go with numbers"

COLUMNS = {
    "a column that is not there": Refusal(
        bound(lambda q, t: q.z == t.a), QueryError, "reads column 'z'", "there are quotes.ts, quotes.x"
    ),
    "a column on neither side": Refusal(
        bound("z = 1"), QueryError, "reads column 'z', which is not there", "quotes.y, quotes.s"
    ),
    "a column on both sides": Refusal(
        bound("x = 1"), QueryError, "column 'x', which could be any of quotes.x, trades.x", do="the stream's name"
    ),
    "a column that conditions can't read": Refusal(
        bound("quotes.tags = 1"),
        QueryError,
        "reads quotes.tags, a column of type list",
        "read numbers",
        "Cast it before",
    ),
    "a column that conditions on one row can't read": Refusal(
        where(lambda row: row.tags == 1), QueryError, "reads row.tags, a column of type list", "numbers", "Cast it"
    ),
    "a cast of text": Refusal(
        bound("CAST(quotes.s AS INT) = 1"),
        QueryError,
        "a cast of text to int32: cast(quotes.s as int32)",
        COMPARE,
        "Cast",
    ),
    "not of a number": Refusal(
        bound(lambda q, t: ~q.x), QueryError, "`not` of int32: (not quotes.x)", COMPARE, "Cast one side"
    ),
    "the negative of a truth": Refusal(
        bound("- true = 1"), QueryError, "the negative of bool: (-True)", COMPARE, "Cast one side"
    ),
    "the size of text": Refusal(
        bound(lambda q, t: abs(q.s) > 1),
        QueryError,
        "the absolute value of text: abs(quotes.s)",
        COMPARE,
        "Cast one side",
    ),
    "numbers joined by and": Refusal(
        bound(lambda q, t: q.x & t.a), QueryError, "`and` of int32 and int32: (quotes.x and trades.a)", COMPARE, "Cast"
    ),
    "a comparison of text and number": Refusal(
        bound("quotes.s = 1"), QueryError, "a comparison of text and an integer: (quotes.s = 1)", COMPARE, "Cast one"
    ),
    "an order of text": Refusal(
        bound("quotes.s < trades.s"), QueryError, "a comparison of text and text", "only by equality", "Cast one side"
    ),
    "arithmetic on text": Refusal(
        bound(lambda q, t: q.s + t.s == "ab"),
        QueryError,
        "arithmetic on text and text: (quotes.s + trades.s)",
        COMPARE,
        "Cast",
    ),
    "arithmetic on a truth": Refusal(
        bound("quotes.d + 1.5 = 2"), QueryError, "arithmetic on bool and a float", COMPARE, "Cast one side"
    ),
    "a condition that is a number when bound": Refusal(
        bound(lambda q, t: q.x - t.a), QueryError, "(quotes.x - trades.a), is int32, not a truth value", do="Compare it"
    ),
    "a condition that is a literal": Refusal(
        bound("1"), QueryError, "The condition of the join, 1, is an integer, not a truth value", do="Compare it"
    ),
}


TEXTS = {
    "a pattern that is a number": Refusal(
        on(lambda q, t: q.s.matches(5)), QueryError, "matches(5) takes a text", "a constant", "Pass a str"
    ),
    "a pattern that RE2 can't hold": Refusal(
        on(lambda q, t: q.s.matches(r"(\w{900}){900}")), QueryError, "is too much for RE2", do="Repeat less"
    ),
    "a pattern that is none": Refusal(
        on(lambda q, t: q.s.matches("(")), QueryError, "matches('(') is no regular expression", do="Escape"
    ),
    "a pattern with flags": Refusal(
        on(lambda q, t: q.s.matches("(?i)a")),
        QueryError,
        "matches('(?i)a') uses flags",
        "could differ",
        "ascii_lower()",
    ),
    "a pattern that repeats often": Refusal(
        on(lambda q, t: q.s.matches("a{2000}")), QueryError, "uses a repetition of more than 1000", "could differ"
    ),
    "a pattern that looks ahead": Refusal(
        on(lambda q, t: q.s.matches("(?=a)")), QueryError, "matches('(?=a)') uses assert", "could differ"
    ),
    "LIKE with a backslash at nothing": Refusal(
        on(lambda q, t: q.s.like("a\\b")), QueryError, "escapes nothing", do="write it twice"
    ),
    "a text of no column": Refusal(lambda: plait.text(""), QueryError, "text('') names no column", do="plait.text("),
    "a pattern that is a column": Refusal(
        on("quotes.s like trades.s"), QueryError, "with 'trades.s', which is no constant", do="Rewrite it"
    ),
    "a match of a number": Refusal(
        bound(lambda q, t: q.x.contains("a")), QueryError, "`contains` of int32", do="Cast one side"
    ),
}

KINDS = "numbers go with numbers"

EXPRESSIONS = {
    "coalesce of nothing": Refusal(lambda: plait.coalesce(), QueryError, "coalesce() of nothing", do="at least one"),
    "concat of nothing": Refusal(lambda: plait.concat(), QueryError, "concat() of nothing", do="at least one"),
    "a choice without an end": Refusal(
        on(lambda q, t: plait.when(q.x > t.a, True)),
        QueryError,
        "The condition of the join has a plait.when(...)",
        do=".otherwise(",
    ),
    "a choice without an end in another": Refusal(
        on(lambda q, t: plait.when(q.x > t.a, plait.when(True, 1)).otherwise(2) == 1),
        QueryError,
        "has a plait.when",
        do=".otherwise(",
    ),
    "a choice whose condition is a number": Refusal(
        bound("CASE WHEN quotes.x THEN true END"), QueryError, "a CASE whose condition is int32", KINDS, "Cast"
    ),
    "a choice of several kinds": Refusal(
        bound("CASE WHEN quotes.x > 1 THEN quotes.s ELSE 1 END = 'a'"),
        QueryError,
        "a CASE of text and an integer",
        KINDS,
        "Cast",
    ),
    "text put together with a number": Refusal(
        bound("quotes.s || quotes.x = 'a'"), QueryError, "`concat` of int32", KINDS, "Cast"
    ),
    "the hour of a number": Refusal(
        bound("hour(quotes.x) = 1"),
        QueryError,
        "`hour` of a column of type int32: hour(quotes.x)",
        "which moment",
        "ts // 3600 % 24",
    ),
    "the second with its fraction": Refusal(
        on("extract(SECOND FROM quotes.ts) = 1"),
        QueryError,
        "extracts SECOND of a time (second(ts) has whole",
        do="Rewrite",
    ),
    "a regular expression with flags": Refusal(
        on("regexp_like(quotes.s, 'a', 'i')"), QueryError, "with flags", do="Rewrite"
    ),
    "a part of an array": Refusal(on("quotes.s[1] = 'a'"), QueryError, "uses 'quotes.s[1]' (Bracket)", do="Rewrite"),
    "a split by a regular expression": Refusal(
        on("split(quotes.s, '[ab]')[0] = 'a'"),
        QueryError,
        "splits by '[ab]', which Spark takes for a regular",
        do="Rewrite",
    ),
    "a split counted from the end": Refusal(
        on("split(quotes.s, '/')[-1] = 'a'"), QueryError, "split(...)[-1]", "counted from 0", "Use split_part"
    ),
    "a split by nothing": Refusal(
        on(lambda q, t: q.s.split_part("", 1) == "a"),
        QueryError,
        "split_part with an empty separator",
        "stands everywhere",
        "Use",
    ),
    "part 0": Refusal(
        on("split_part(quotes.s, '/', 0) = 'a'"), QueryError, "split_part(..., 0)", "counted from 1", "Pass 1"
    ),
    "two texts in a row": Refusal(
        on("quotes.s = 'it''s'"), QueryError, "two texts one right after the other", do="Rewrite"
    ),
    "a function that plait does not have": Refusal(
        on("soundex(quotes.s) = 'a'"), QueryError, "uses 'SOUNDEX(quotes.s)'", do="Rewrite"
    ),
    "a function that nobody has": Refusal(
        on("quack(quotes.s) = 'a'"), QueryError, "uses 'QUACK(quotes.s)' (Anonymous)", do="Rewrite"
    ),
    "a place that is no number": Refusal(
        on(lambda q, t: q.s.substring("1") == "a"),
        QueryError,
        "substring is given '1' as its start",
        "the same for all rows",
        "int",
    ),
    "a length below nothing": Refusal(
        on("substring(quotes.s, 1, -1) = 'a'"), QueryError, "substring of length -1", "that short", "from 0 on"
    ),
    "a replacement of nothing": Refusal(
        on("replace(quotes.s, '', 'a') = 'a'"), QueryError, "replace of an empty text", "stands everywhere", "Name what"
    ),
    "more than a group": Refusal(
        on("regexp_extract(quotes.s, 'a', 0, 1) = 'a'"),
        QueryError,
        "with more than a pattern and a group",
        do="Rewrite",
    ),
    "a group below 0": Refusal(
        on("regexp_extract(quotes.s, 'a', -1) = 'a'"), QueryError, "regexp_extract with group -1", do="counted from 1"
    ),
    "a group that is not there": Refusal(
        on("regexp_extract(quotes.s, '(a)', 2) = 'a'"),
        QueryError,
        "asks for group 2",
        "the pattern has 1 group",
        "Number groups",
    ),
    "a repetition of what may be empty": Refusal(
        on("regexp_extract(quotes.s, '(a*)*', 1) = 'a'"),
        QueryError,
        "uses a repetition of what may be empty",
        "could differ",
    ),
}

DEEP = {
    "parentheses by the thousand": Refusal(
        on("(" * 5000 + "quotes.x = trades.a" + ")" * 5000), QueryError, "nested too deeply", "250 levels", "Join with"
    ),
    "a list of thousands": Refusal(
        on(f"quotes.x IN ({', '.join(map(str, range(2000)))})"), QueryError, "nested too deeply", "a list of IN", "Join"
    ),
    "comparisons by the thousand": Refusal(
        on(" AND ".join(["quotes.x = trades.a"] * 300)), QueryError, "nested too deeply", "250 levels", "Join with"
    ),
    "more comparisons than a parser's tree can be walked": Refusal(
        on(" AND ".join(["quotes.x = trades.a"] * 3000)), QueryError, "nested too deeply", "250 levels", "Join with"
    ),
    "groups in groups": Refusal(
        on(lambda q, t: q.s.matches("(" * 300 + "a" + ")" * 300)),
        QueryError,
        "groups in groups",
        "RE2",
        "Use characters",
    ),
    "a text without end": Refusal(
        on("quotes.x = 1" + " " * 100_000),
        QueryError,
        "has 100,012 characters",
        "100,000 are read at most",
        "Join with",
    ),
    "half of a character": Refusal(
        on("quotes.\ud800 = 1"), QueryError, "holds '\\ud800' as its character 8", "half of one", "Mend the text"
    ),
    "lists of lists": Refusal(
        on("quotes.x" + " IN (1, 2, 5)" * 12),
        QueryError,
        "is too large",
        "more than 20,000 parts",
        "a column with select",
    ),
    "a value that is doubled by a function": Refusal(
        on(lambda q, t: doubled(q.x, 60) == t.a),
        QueryError,
        "is too large",
        "more than 20,000 parts",
        "a column with select",
    ),
    "no number": Refusal(on("quotes.x > 1e3-257"), QueryError, "holds '1e3-257', which is no number", do="exponent"),
    "a number of thousands of digits": Refusal(
        on("quotes.x > " + "9" * 5000), QueryError, "which is no number", do="Write digits"
    ),
    "a function without its arguments": Refusal(
        on("year() = 1"), QueryError, "lacks an argument", do="what the function is given"
    ),
}

REFUSALS = DEEP | FUNCTIONS | SQL | COLUMNS | TEXTS | EXPRESSIONS
