"""What `plait.sql` refuses: each with its place in the text, and with what to write instead."""

from collections.abc import Callable
from typing import Any

from tests.query.refusal import Refusal

import plait
from plait import QueryError

SCHEMA = {"ts": "timestamp", "k": "string", "x": "float64", "n": "int64"}
quotes = plait.stream("quotes", schema=SCHEMA)
trades = plait.stream("trades", schema=SCHEMA)
ticks = plait.stream("ticks", time="at", unit="s", schema={"at": "int64", "v": "int64"})
bare = plait.stream("bare", unit="ms")


def sql(text: Any, **options: Any) -> Callable[[], object]:
    return lambda: plait.sql(text, **({"streams": [quotes, trades, ticks, bare]} | options))


def joined(condition: str, kind: str = "JOIN", columns: str = "*") -> Callable[[], object]:
    return sql(f"SELECT {columns} FROM quotes q {kind} trades t ON {condition}")


def grouped(columns: str, by: str = "window(ts, '1 s')", more: str = "") -> Callable[[], object]:
    return sql(f"SELECT {columns} FROM quotes GROUP BY {by} {more}")


def refused(build: Callable[[], object], fact: str, *, why: str = "", do: str = "") -> Refusal:
    return Refusal(build, QueryError, fact, why, do)


NEAR = "q.ts - t.ts BETWEEN INTERVAL 0 SECONDS AND INTERVAL 5 SECONDS"

ARGUMENTS = {
    "no text": refused(sql(5), "plait.sql(5) is no text", do="one SELECT"),
    "no node": refused(sql("SELECT 1", streams=[5]), "entry 1 of streams= is 5", do="plait.stream"),
    "a query without a name": refused(
        sql("SELECT 1", streams=[plait.join(quotes, trades, last=1)]),
        "Entry 1 of streams= has no name",
        do="query.named",
    ),
    "streams that are none": refused(sql("SELECT 1", streams=5), "streams=5 are no streams", do="a dict by name"),
    "columns that are none": refused(sql("SELECT 1", schemas=5), "schemas=5 gives no columns", do="Arrow schemas"),
    "two of one name": refused(
        sql("SELECT 1", streams=[quotes, plait.stream("quotes")]), "called 'quotes'", do="a dict with two names"
    ),
    "columns of another stream": refused(
        sql("SELECT 1", schemas={"quote": SCHEMA}),
        "schemas= names 'quote'",
        why="there are quotes, trades, ticks, bare",
    ),
}

TEXTS = {
    "parentheses by the thousand": refused(
        sql("SELECT k FROM quotes WHERE " + "(" * 5000 + "x" + ")" * 5000),
        "The SQL text is nested too deeply",
        why="250",
    ),
    "subqueries by the hundred": refused(
        sql("SELECT k FROM " + "(SELECT k FROM " * 120 + "quotes" + ") AS q" * 120),
        "The SQL text is nested too deeply",
        why="250",
    ),
    "no SQL": refused(
        sql("SELECT k FROM quotes WHERE x >"),
        "not SQL at line 1, column 30, `SELECT k FROM quotes WHERE x «>»`",
        do="one SELECT",
    ),
    "no table": refused(
        sql("SELECT k\nFROM"), "not SQL at line 2, column 1, `«FROM»`: Expected table name", do="one SELECT"
    ),
    "an open quote": refused(sql("SELECT 'a"), "The text is not SQL", do="one SELECT"),
    "two statements": refused(sql("SELECT 1; SELECT 2"), "2 statements", why="one SELECT", do="WITH name AS"),
    "nothing": refused(sql("-- only words"), "0 statements", why="one SELECT", do="WITH name AS"),
    "another statement": refused(
        sql("INSERT INTO t SELECT k FROM quotes"), "column 1, `«INSERT» INTO", do="Write a SELECT"
    ),
    "a SELECT of nothing": refused(
        sql("SELECT 1 AS one"), "`«SELECT» 1 AS one`: the SELECT reads nothing", do="Write FROM"
    ),
    "ORDER BY": refused(
        sql("SELECT k FROM quotes\n  ORDER BY k"),
        "line 2, column 3, `«ORDER BY» k`",
        why="plait's order",
        do="Leave it out",
    ),
    "SORT BY": refused(
        sql("SELECT k FROM quotes SORT BY k"), "`SELECT k FROM quotes «SORT BY» k`", why="plait's order"
    ),
    "CLUSTER BY": refused(sql("SELECT k FROM quotes CLUSTER BY k"), "«CLUSTER BY»", why="itself"),
    "DISTRIBUTE BY": refused(sql("SELECT k FROM quotes DISTRIBUTE BY k"), "«DISTRIBUTE BY»", why="itself"),
    "LIMIT": refused(
        sql("SELECT k FROM quotes LIMIT 5"), "line 1, column 22, `SELECT k FROM quotes «LIMIT» 5`", why="endless"
    ),
    "OFFSET": refused(sql("SELECT k FROM quotes OFFSET 5"), "«OFFSET»", why="endless"),
    "DISTINCT": refused(
        sql("SELECT count(DISTINCT k) AS c, y FROM (SELECT DISTINCT k FROM quotes)"),
        "FROM (SELECT «DISTINCT» k FROM",
        do="plait.dedup",
    ),
    "QUALIFY": refused(
        sql("SELECT k FROM quotes QUALIFY row_number() OVER (ORDER BY x) = 1"), "«QUALIFY»", why="never end"
    ),
    "a named window": refused(sql("SELECT k FROM quotes WINDOW w AS (PARTITION BY k)"), "«WINDOW»", why="never end"),
    "LATERAL": refused(sql("SELECT k FROM quotes LATERAL VIEW explode(k) t AS y"), "«LATERAL»", do="plait.operator"),
    "PIVOT": refused(sql("SELECT k FROM quotes PIVOT (sum(x) FOR k IN ('a'))"), "«PIVOT»", do="FILTER"),
    "a hint": refused(
        sql("SELECT /*+ BROADCAST(quotes) */ k FROM quotes"), "SELECT «/*+» BROADCAST", do="Leave the hint out"
    ),
    "a sample": refused(sql("SELECT k FROM quotes TABLESAMPLE (10 PERCENT)"), "«TABLESAMPLE»", why="another answer"),
    "UNION": refused(
        sql("SELECT k FROM quotes UNION SELECT k FROM trades"), "`SELECT k FROM quotes «UNION» SELECT", do="UNION ALL"
    ),
    "UNION ALL of other columns": refused(
        sql("SELECT k FROM quotes UNION ALL SELECT k, n FROM trades"), "«UNION»", do="the same number"
    ),
    "UNION ALL of other types": refused(
        sql("SELECT k FROM quotes UNION ALL SELECT n FROM trades"),
        "«UNION» ALL SELECT n FROM trades`: Inputs 1 and 2",
        why="k string",
        do="with select",
    ),
    "UNION ALL of two streams with one name": refused(
        sql(
            "SELECT * FROM a UNION ALL SELECT * FROM b",
            streams={"a": quotes, "b": plait.stream("quotes", schema=SCHEMA, seq="n")},
        ),
        "a «UNION» ALL",
        do="Rename one",
    ),
    "INTERSECT": refused(
        sql("SELECT k FROM quotes INTERSECT SELECT k FROM trades"), "«INTERSECT»", do="LEFT SEMI JOIN"
    ),
    "EXCEPT": refused(sql("SELECT k FROM quotes EXCEPT SELECT k FROM trades"), "«EXCEPT»", do="LEFT ANTI JOIN"),
    "recursion": refused(
        sql("WITH RECURSIVE a AS (SELECT k FROM quotes) SELECT k FROM a"), "WITH «RECURSIVE» a", do="plait.operator"
    ),
    "columns after an alias": refused(sql("SELECT a FROM (SELECT k FROM quotes) AS t(a)"), "AS «t(a)»", do="with AS"),
    "columns after WITH's name": refused(
        sql("WITH t(a) AS (SELECT k FROM quotes) SELECT a FROM t"), "«t(a)»", do="with AS"
    ),
    "no stream": refused(
        sql("SELECT k FROM quots"), "`SELECT k FROM «quots»`: there is no stream", do="Did you mean 'quotes'?"
    ),
    "a stream like no other": refused(sql("SELECT k FROM zzz"), "«zzz»", why="quotes, trades", do="in streams="),
    "no table at all": refused(
        sql("SELECT id FROM range(10)"), "«range", why="windows stand in GROUP BY", do="streams="
    ),
}

COLUMNS = {
    "no column": refused(
        sql("SELECT kk FROM quotes"), "`SELECT «kk» FROM quotes`: there is no column", why="ts, k, x, n", do="'k'"
    ),
    "no column of a side": refused(joined(f"q.y = t.k AND {NEAR}"), "«q.y»", why="there are ts, k, x, n"),
    "no such name in FROM": refused(sql("SELECT q.k FROM quotes"), "is called 'q'", do="`quotes.`"),
    "a name of three parts": refused(sql("SELECT a.quotes.k FROM quotes"), "more than two parts", do="stream.column"),
    "a name of both sides": refused(joined(NEAR, columns="k"), "`k` could be any of q.k, t.k", do="Write which one"),
    "a name of both sides in ON": refused(joined(f"k = 'a' AND {NEAR}"), "`k` could be any of q.k, t.k", do="which"),
    "two tables of one name": refused(
        sql("SELECT 1 AS a FROM quotes JOIN quotes ON true"),
        "two tables of one FROM are called 'quotes'",
        do="AS other",
    ),
    "a column of a join that nothing tells": refused(
        sql("SELECT y FROM (SELECT * FROM bare b JOIN quotes q ON b.ts = q.ts)"),
        "what a join calls the column 'y'",
        do="schema={...}",
    ),
    "a column of which nothing tells whose it is": refused(
        sql("SELECT y FROM bare a JOIN bare b ON a.ts = b.ts"),
        "SELECT «y» FROM bare a JOIN bare b ON a.`: nothing tells which table has the column 'y'",
        why="a and b declare no columns",
        do="Write which one",
    ),
    "* of one side that is not declared": refused(
        sql("SELECT q.k, b.* FROM bare b JOIN quotes q ON b.ts = q.ts"), "which columns * stands for", do="schema"
    ),
    "* of both sides, one of them not declared": refused(
        sql("SELECT q.k AS key, * FROM bare b JOIN quotes q ON b.ts = q.ts"),
        "which columns * stands for",
        do="schema",
    ),
    "* of what is not declared": refused(
        sql("SELECT *, 1 AS one FROM bare"), "which columns * stands for", do="schema"
    ),
    "* of a name that is not there": refused(sql("SELECT z.* FROM quotes"), "which columns * stands for", do="list"),
    "* with REPLACE": refused(sql("SELECT * REPLACE (1 AS k) FROM quotes"), "* with REPLACE", do="with AS"),
    "* beside GROUP BY": refused(sql("SELECT * FROM quotes GROUP BY k"), "* beside GROUP BY", do="List the columns"),
    "an expression without a name": refused(sql("SELECT x + 1 FROM quotes"), "«x + 1»", do="AS name"),
    "two columns of one name": refused(sql("SELECT k, n AS k FROM quotes"), "k, «n AS k» FROM", do="AS other"),
    "another ts": refused(joined(NEAR, columns="t.ts"), "«t.ts»", why="the later one", do="AS event_ts"),
    "a ts that is computed": refused(sql("SELECT n AS ts FROM quotes"), "the column `ts`", do="AS event_ts"),
    "types that do not go together": refused(
        sql("SELECT n, k + 1 AS y FROM quotes"),
        "n, «k + 1 AS y» FROM quotes`: The column 'y' holds arithmetic",
        do="Cast",
    ),
    "what conditions do not read": refused(
        sql("SELECT soundex(k) AS u FROM quotes"), "«soundex(k) AS u»", do="Rewrite"
    ),
    "what conditions do not read in WHERE": refused(
        sql("SELECT k FROM quotes WHERE soundex(k) = 'A'"), "«soundex(k) = 'A'»", do="Rewrite"
    ),
    "an INTERVAL beside a number": refused(
        sql("SELECT v FROM ticks WHERE at > INTERVAL 5 SECONDS"),
        "an INTERVAL beside `at`",
        do="in the column's own unit",
    ),
    "an INTERVAL beside a number in ON": refused(
        sql("SELECT v FROM ticks a JOIN quotes q ON a.at = q.ts AND (a.at > INTERVAL 5 DAYS OR q.n = 1)"),
        "an INTERVAL beside `a.at`",
        do="in the column's own unit",
    ),
}

ANSWERS = {
    "rand": refused(
        sql("SELECT rand() AS r FROM quotes"), "SELECT «rand»() AS r", why="on every run", do="as a column"
    ),
    "now": refused(sql("SELECT k FROM quotes WHERE ts < now()"), "«now»()", why="on every run", do="own time"),
    "current_timestamp": refused(
        sql("SELECT k FROM quotes WHERE ts < current_timestamp"), "< «current_timestamp»", why="on every run"
    ),
    "uuid": refused(sql("SELECT uuid() AS id FROM quotes"), "«uuid»()", why="on every run"),
    "IN a subquery": refused(
        sql("SELECT k FROM quotes WHERE k IN (SELECT k FROM trades)"), "a subquery in WHERE", do="LEFT SEMI JOIN"
    ),
    "EXISTS": refused(
        sql("SELECT k FROM quotes q WHERE EXISTS (SELECT 1 FROM trades t WHERE t.k = q.k)"),
        "a subquery in WHERE",
        do="SEMI",
    ),
    "a subquery as a value": refused(
        sql("SELECT (SELECT max(x) FROM trades) AS m FROM quotes"), "a subquery in SELECT", do="Join"
    ),
    "OVER": refused(
        sql("SELECT sum(x) OVER (PARTITION BY k) AS s FROM quotes"),
        "«sum(x) OVER (PARTITION BY k)»",
        why="final",
        do="GROUP BY",
    ),
    "an aggregate in WHERE": refused(
        sql("SELECT k FROM quotes WHERE count(*) > 1"), "WHERE «count(*)» > 1", do="HAVING"
    ),
    "an aggregate in an aggregate": refused(grouped("sum(max(x)) AS s"), "«max(x)»", do="in a subquery"),
}

JOINS = {
    "no bound": refused(
        joined("q.k = t.k"), "quotes q «JOIN» trades", why="endless", do="t.ts BETWEEN q.ts - INTERVAL '5' SECOND"
    ),
    "a bound on one side": refused(
        joined("q.k = t.k AND q.ts >= t.ts"), "no time bound on both sides", why="endless", do="BETWEEN"
    ),
    "a bound on another column": refused(joined("q.n BETWEEN t.n - 5 AND t.n + 5"), "no time bound", why="endless"),
    "a bound that nothing meets": refused(
        joined("t.ts > q.ts + INTERVAL 5 SECONDS AND t.ts < q.ts"),
        "no two rows can be so far apart",
        why="at most -1 us",
    ),
    "a rest of an unknown unit": refused(
        sql("SELECT * FROM quotes q JOIN bare b ON b.ts > q.ts AND b.ts < q.ts + INTERVAL 9 SECONDS"),
        "what the column 'ts' counts",
        do="schema={...}",
    ),
    "an INTERVAL that is none": refused(
        joined("abs(q.ts - t.ts) < INTERVAL '1:30' MINUTE TO SECOND"), "INTERVAL", do="90 MINUTES"
    ),
    "an INTERVAL in months": refused(
        joined("abs(q.ts - t.ts) < INTERVAL 2 MONTHS"),
        "«abs(q.ts - t.ts)» < INTERVAL 2 MONTHS`: INTERVAL='2 months'",
        why="no unit",
    ),
    "NATURAL": refused(sql("SELECT 1 AS a FROM quotes NATURAL JOIN trades"), "NATURAL JOIN is no join", do="with ON"),
    "USING": refused(
        sql("SELECT 1 AS a FROM quotes JOIN trades USING (k)"), "trades «USING» (k)", do="a.column = b.column"
    ),
    "a condition that is none": refused(joined(f"soundex(q.k) = t.k AND {NEAR}"), "SOUNDEX", do="Rewrite"),
}

ASOF = {
    "no MATCH_CONDITION": refused(
        joined("q.k = t.k", "ASOF JOIN"), "ASOF «JOIN» trades", do="MATCH_CONDITION (l.ts >= r.ts)"
    ),
    "another MATCH_CONDITION": refused(
        sql("SELECT * FROM quotes q ASOF JOIN trades t MATCH_CONDITION (q.n >= t.n) ON q.k = t.k"),
        "(«q.n >= t.n»)",
        do="(l.ts >= r.ts)",
    ),
    "a bound the wrong way": refused(
        sql(
            "SELECT * FROM quotes q ASOF JOIN trades t MATCH_CONDITION (q.ts >= t.ts) ON t.ts - q.ts <= INTERVAL 5 SECONDS"
        ),
        "that looks backward",
        do="how far away",
    ),
    "more than equal columns": refused(
        sql("SELECT * FROM quotes q ASOF JOIN trades t MATCH_CONDITION (q.ts >= t.ts) ON q.n < t.n"),
        "«q.n < t.n»",
        do="in WHERE",
    ),
    "forward without a bound": refused(
        sql("SELECT * FROM quotes q ASOF JOIN trades t MATCH_CONDITION (q.ts <= t.ts) ON q.k = t.k"),
        "«JOIN»",
        do="within=",
    ),
}

GROUPS = {
    "no window": refused(
        grouped("k, count(*) AS n", "k"), "FROM quotes «GROUP BY» k", why="endless", do="window(ts, '10 seconds')"
    ),
    "no GROUP BY": refused(
        sql("SELECT count(*) AS n FROM quotes"), "SELECT «count(*)» AS n", why="endless", do="window(ts"
    ),
    "two windows": refused(
        grouped("count(*) AS n", "window(ts, '1 s'), window(ts, '2 s')"), "two windows", do="by one"
    ),
    "a window of another column": refused(
        grouped("count(*) AS n", "window(n, '1 s')"), "window(«n», '1 s')", do="window(ts, ...)"
    ),
    "a window of one argument": refused(
        grouped("count(*) AS n", "window(ts)"), "window has 1 arguments", do="'30 seconds'"
    ),
    "a window that begins elsewhere": refused(
        grouped("count(*) AS n", "window(ts, '9 s', '3 s', '1 s')"), "«'1 s'»", do="Leave it out"
    ),
    "a window as long as a column": refused(
        grouped("count(*) AS n", "session_window(ts, k)"), "is a constant", do="as a text"
    ),
    "a window of no length": refused(
        grouped("count(*) AS n", "window(ts, '1 moon')"), "«window(ts, '1 moon')»", why="no unit"
    ),
    "a column that is not grouped": refused(
        grouped("k, count(*) AS n"), "SELECT «k», count", why="many values", do="first(...)"
    ),
    "a window as a column": refused(grouped("window, count(*) AS n"), "SELECT «window», count", do="window.start"),
    "another window's edge": refused(
        grouped("window(ts, '2 s').start AS a, count(*) AS n"), "GROUP BY has another window", do="window.start"
    ),
    "ROLLUP": refused(grouped("count(*) AS n", "k", "WITH ROLLUP"), "«GROUP BY»", do="a SELECT for each"),
    "CUBE": refused(grouped("count(*) AS n", "cube(k)"), "several kinds", do="a SELECT for each"),
    "GROUPING SETS": refused(grouped("count(*) AS n", "GROUPING SETS (k)"), "several kinds", do="a SELECT for each"),
    "a column whose name is empty": refused(
        sql("SELECT x + 1 AS `` FROM quotes"),
        "`SELECT «x + 1 AS ``» FROM quotes`: the column has no name",
        do="AS name",
    ),
    "two functions of one name": refused(
        grouped("min(x) AS m, max(x) AS m"), "two columns are called 'm'", do="another name"
    ),
    "a function that plait lacks": refused(
        grouped("kurtosis(x) AS m"), "«kurtosis(x)»", why="there are count", do="plait.custom"
    ),
    "any_value": refused(grouped("any_value(x) AS m"), "any_value is no aggregate", do="first(x)"),
    "approx_count_distinct": refused(
        grouped("approx_count_distinct(x) AS m"), "is no aggregate", do="count(DISTINCT x)"
    ),
    "percentile_approx": refused(grouped("percentile_approx(x, 0.5) AS m"), "is no aggregate", do="percentile(x, 0.9)"),
    "var_pop": refused(grouped("var_pop(x) AS m"), "is no aggregate", do="var_samp"),
    "a count of nothing": refused(grouped("count() AS m"), "an argument is missing", do="what the function is given"),
    "HAVING where nothing is counted": refused(
        sql("SELECT x FROM quotes HAVING c > 1"), "the aggregate has no window", do="GROUP BY"
    ),
    "a function without its arguments": refused(
        grouped("max_by() AS m"), "an argument is missing", do="what the function is given"
    ),
    "sum(DISTINCT)": refused(grouped("sum(DISTINCT x) AS m"), "sum(DISTINCT ...)", do="plait.custom"),
    "count(DISTINCT) of two": refused(grouped("count(DISTINCT k, n) AS m"), "several columns", do="one column"),
    "a percentile of a column": refused(grouped("percentile(x, n) AS m"), "is a constant", do="0.9"),
    "so many as a column has": refused(grouped("max_by(x, x, n) AS m"), "number is a constant", do="a whole number"),
    "a percentile from above": refused(
        grouped("percentile_cont(0.9) WITHIN GROUP (ORDER BY x DESC) AS m"),
        "is no aggregate function",
        do="Use one of these",
    ),
    "a sum of text": refused(grouped("min(k) AS m, sum(k) AS s"), "«sum(k)»", why="it adds", do="Cast"),
    "a HAVING that is none": refused(
        grouped("min(k) AS m", more="HAVING m > 1"), "HAVING «m > 1»", why="numbers go with numbers", do="Cast"
    ),
    "a percentile beyond 1": refused(grouped("percentile(x, 90) AS m"), "«percentile(x, 90)»", do="0.95"),
}

REFUSALS = {**ARGUMENTS, **TEXTS, **COLUMNS, **ANSWERS, **JOINS, **ASOF, **GROUPS}
