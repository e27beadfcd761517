"""What `plait.join`, `asof`, `aggregate`, `dedup`, `operator` and `bind` refuse."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.query.refusal import QUOTES, SCHEMAS, TRADES, Refusal, quotes, trades

import plait
from plait import QueryError, RunError
from plait.query import base
from plait.query.bind import bind, check_data


def join(**options: Any) -> Callable[[], object]:
    return lambda: plait.join(quotes, trades, **options)


def asof(**options: Any) -> Callable[[], object]:
    return lambda: plait.asof(quotes, trades, **options)


def aggregate(**options: Any) -> Callable[[], object]:
    return lambda: plait.aggregate(quotes, **({"size": "1s", "compute": {"n": plait.count()}} | options))


def dedup(**options: Any) -> Callable[[], object]:
    return lambda: plait.dedup(quotes, **({"by": "bid", "within": "1s"} | options))


def operator(streams: Any = quotes, **options: Any) -> Callable[[], object]:
    given: dict[str, Any] = {
        "buckets": 4,
        "route": lambda t: 0,
        "state": dict,
        "process": lambda state, t: None,
        "output": {"n": "int64"},
    }
    return lambda: plait.operator(streams, **(given | options))


def custom(column: Any = "x", **options: Any) -> Callable[[], object]:
    given: dict[str, Any] = {"init": int, "add": lambda state, value: state, "type": "int64"}
    return lambda: plait.custom(column, **(given | options))


def bound(query: base.Query, schemas: dict[str, pa.Schema] = SCHEMAS) -> Callable[[], object]:
    return lambda: bind(query, schemas)


def computed(function: Any) -> Callable[[], object]:
    return bound(plait.aggregate(quotes, size="1s", compute={"out": function}))


def missing_executor() -> object:
    base.EXECUTORS["abacus"] = "plait.abacus.run:start"
    try:
        return base.executor("abacus")
    finally:
        del base.EXECUTORS["abacus"]


JOINS = {
    "an option that threads do not have": Refusal(
        lambda: plait.join(quotes, trades, last=1).on_threads(worker=2),  # type: ignore[call-arg]
        QueryError,
        "on_threads has no option 'worker'",
        "there are workers, elastic",
        "Did you mean workers=?",
    ),
    "an option that Spark does not have": Refusal(
        lambda: plait.join(quotes, trades, last=1).on_spark({}, layot="hash"),  # type: ignore[call-arg]
        QueryError,
        "on_spark has no option 'layot'",
        "there are layout, cells, rates, index",
        "Did you mean layout=?",
    ),
    "an engine that takes no tables": Refusal(
        lambda: plait.join(quotes, trades, last=1).run({}, engine="spark"),  # type: ignore[arg-type]
        QueryError,
        "engine='spark' runs no data",
        do="Use one of: auto, reference, threads",
    ),
    "an option that the reference does not have": Refusal(
        lambda: plait.join(quotes, trades, last=1).run({}, engine="reference", workers=2),
        QueryError,
        "engine='reference' has no option 'workers'",
        "it has order and keys",
    ),
    "rates that are none": Refusal(
        lambda: base.check_rates((1000, 0)), QueryError, "rates=(1000, 0) are no rates", do="such as (1000, 3000)"
    ),
    "a table in the place of a stream": Refusal(
        lambda: plait.join([1], trades, last=1), QueryError, "The left input of join is [1]", do="plait.stream(...)"
    ),
    "nothing in the place of a stream": Refusal(
        lambda: plait.asof(quotes, None), QueryError, "The right input of asof is None", do="plait.stream(...)"
    ),
    "an unknown kind of join": Refusal(
        join(last=1, how="outer"),
        QueryError,
        "how='outer' is no kind of join",
        do="'inner', 'left', 'right', 'full', 'semi', 'anti'",
    ),
    "full over a count window": Refusal(
        join(last=1, how="full"), QueryError, "how='full' with a count window", "only a time window", "Use within="
    ),
    "right over a tumbling window": Refusal(
        join(tumbling="1s", how="right"), QueryError, "how='right' with a tumbling", "only a time window", "Use within="
    ),
    "left over a count window": Refusal(
        join(last=1, how="left"), QueryError, "how='left' with a count window", "only a time window", "Use within="
    ),
    "anti over a tumbling window": Refusal(
        join(tumbling="1s", how="anti"), QueryError, "how='anti' with a tumbling", "only a time window", "Use within="
    ),
    "semi over a tumbling count window": Refusal(
        join(tumbling_count=3, how="semi"),
        QueryError,
        "how='semi' with a tumbling count",
        "only a time window",
        "Use within=",
    ),
    "a tumbling count of none": Refusal(
        join(tumbling_count=0), QueryError, "tumbling_count=0 is no number of tuples", do="at least 1"
    ),
    "no window": Refusal(join(), QueryError, "exactly one window; given: none", "streams are endless", "last=1000"),
    "two windows": Refusal(
        join(within="1s", last=3), QueryError, "given: within='1s' and last=3", "streams are endless", "Pass one of"
    ),
    "a count that is a float": Refusal(
        join(last=2.5), QueryError, "last=2.5 is no number of tuples", do="a whole number of at least 1"
    ),
    "more tuples than can be counted": Refusal(
        join(last=2**62 + 1), QueryError, f"last={2**62 + 1} is more than 2^62 tuples", "64 bits", "smaller"
    ),
    "a window of more tuples than can be counted": Refusal(
        lambda: plait.aggregate(quotes, size=2, advance=10**30, compute={"n": plait.count()}),
        QueryError,
        f"advance={10**30} is more than 2^62 tuples",
        "64 bits",
        "smaller",
    ),
    "a count of none": Refusal(join(last=0), QueryError, "last=0 is no number of tuples", do="at least 1"),
    "a count that is a truth": Refusal(join(last=True), QueryError, "last=True is no number", do="at least 1"),
    "a tumbling window of no length": Refusal(
        join(tumbling=0), QueryError, "tumbling=0 is zero", "at least one microsecond", "'5 minutes'"
    ),
    "a window of three parts": Refusal(
        join(within=("1s", "2s", "3s")), QueryError, "within=('1s', '2s', '3s') has 3 parts", do="(before, after)"
    ),
    "a window that ends before it begins": Refusal(
        join(within=("1s", -5)), QueryError, "within (after)=-5 is negative", "a length of time", "'5 minutes'"
    ),
    "an unknown kind of as-of join": Refusal(
        asof(how="semi"), QueryError, "how='semi' is no kind of as-of join", do="'left' or 'inner'"
    ),
    "a misspelt direction": Refusal(
        asof(direction="backwards"),
        QueryError,
        "direction='backwards' is no direction",
        "there are 'backward', 'forward', 'nearest'",
        "Did you mean 'backward'?",
    ),
    "no direction": Refusal(
        asof(direction=None, within=1), QueryError, "direction=None is no direction", "'nearest'", "Use one of them"
    ),
    "as-of that waits for ever": Refusal(
        asof(direction="forward"),
        QueryError,
        "direction='forward' without within=",
        "has waited long enough",
        "direction='backward'",
    ),
    "nearest that waits for ever": Refusal(
        asof(direction="nearest", by="s"), QueryError, "direction='nearest' without within=", do="within='10s'"
    ),
    "exact that is a word": Refusal(
        asof(exact="yes"), QueryError, "exact='yes' is neither true nor false", do="at the same ts matches"
    ),
    "as-of by a number": Refusal(asof(by=5), QueryError, "by=5 names no columns", do="(left, right) pairs"),
    "as-of by a set": Refusal(asof(by={"s"}), QueryError, "by={'s'} names no columns", do="a list of columns"),
    "as-of by three columns at once": Refusal(
        asof(by=[("a", "b", "c")]), QueryError, "by=[('a', 'b', 'c')] names no columns", do="(left, right) pairs"
    ),
    "as-of by no column": Refusal(asof(by=""), QueryError, "by='' names no columns", do="Pass a column"),
    "a query named like a side": Refusal(
        join(last=1, name="R"), QueryError, "A query's name is 'R'", do="other than l, r, left and right"
    ),
    "a query renamed to nothing": Refusal(
        lambda: plait.join(quotes, trades, last=1).named(""), QueryError, "A query's name is ''", do="non-empty"
    ),
    "two streams of one name": Refusal(
        lambda: plait.join(quotes, plait.stream("quotes", unit="ms"), last=1),
        QueryError,
        "Two different streams are called 'quotes'",
        "handed in by name",
        "the very same stream",
    ),
    "two streams of one name, deep inside": Refusal(
        lambda: plait.join(plait.join(quotes, trades, last=1), plait.stream("trades"), last=1),
        QueryError,
        "Two different streams are called 'trades'",
        "handed in by name",
        "Rename one",
    ),
}

AGGREGATES = {
    "no window": Refusal(
        lambda: plait.aggregate(quotes, compute={"n": plait.count()}),
        QueryError,
        "The aggregate has no window",
        do="session= for sessions",
    ),
    "a session with a size": Refusal(
        aggregate(session="5s"),
        QueryError,
        "session='5s' with size=",
        "a session is as long as its key goes on",
        "or session=",
    ),
    "a session of a number": Refusal(
        lambda: plait.aggregate(quotes, session=5, compute={"n": plait.count()}),
        QueryError,
        "session=5 is no duration",
        do="such as '30 minutes'",
    ),
    "a join over sessions": Refusal(
        lambda: plait.join(quotes, trades, session="5s"),
        QueryError,
        "A join over sessions (session='5s')",
        "pairs would have to be taken back",
        "aggregate each stream by session=",
    ),
    "a quantile beyond all": Refusal(
        lambda: plait.quantile("x", 1.5), QueryError, "quantile(q=1.5) is no number from 0 to 1", do="such as 0.95"
    ),
    "a quantile that half interpolates": Refusal(
        lambda: plait.quantile("x", 0.5, interpolate=0.5),  # type: ignore[arg-type]
        QueryError,
        "quantile(interpolate=0.5) is neither True nor False",
        do="Pass True",
    ),
    "the top none": Refusal(
        lambda: plait.top("x", 0, "y"), QueryError, "top(k=0) is no number of tuples", do="a whole number of at least 1"
    ),
    "a correlation with text": Refusal(
        lambda: bind(aggregate(compute={"c": plait.corr("x", "s")})(), {"quotes": QUOTES}),
        QueryError,
        "corr('x', 's'): column 's' is of type string",
        "it multiplies integers and floats",
        "Cast the column",
    ),
    "the least of lists": Refusal(
        lambda: bind(aggregate(compute={"c": plait.arg_min("x", "tags")})(), {"quotes": QUOTES}),
        QueryError,
        "arg_min(..., by='tags'): column 'tags' is of type list",
        "its values have no order",
        "Cast the column",
    ),
    "a key that is a number": Refusal(aggregate(by=5), QueryError, "by=5 names no columns", do="a list of them"),
    "a key of nothing": Refusal(aggregate(by=None), QueryError, "by=None names no columns", do="a column's name"),
    "keys in a set": Refusal(aggregate(by={"x"}), QueryError, "by={'x'} names no columns", do="a list of them"),
    "a key without a name": Refusal(aggregate(by=["x", ""]), QueryError, "by=['x', ''] names no", do="a column's name"),
    "nothing to compute": Refusal(aggregate(compute={}), QueryError, "compute={} computes nothing", do="plait.count()"),
    "a list to compute": Refusal(aggregate(compute=["n"]), QueryError, "compute=['n'] computes nothing", do="a dict"),
    "an output without a name": Refusal(
        aggregate(compute={"": plait.count()}), QueryError, "names an output column ''", do="non-empty"
    ),
    "a function that is none": Refusal(
        aggregate(compute={"n": "count"}),
        QueryError,
        "compute={'n': 'count'} is no aggregate function",
        do="plait.count()",
    ),
    "an output called like a key": Refusal(
        aggregate(by="x", compute={"x": plait.count()}),
        QueryError,
        "Two columns of the aggregate would be called 'x'",
        "ts, window_start, window_end",
        "Rename one",
    ),
    "an output called like the window's end": Refusal(
        aggregate(compute={"window_end": plait.count()}),
        QueryError,
        "would be called 'window_end'",
        "its rows hold",
        "Rename one",
    ),
    "a window of no tuples": Refusal(aggregate(size=0), QueryError, "size=0 is no number of tuples", do="at least 1"),
    "more windows than there is memory for": Refusal(
        aggregate(size="30000 days", advance="1 ms"),
        QueryError,
        "puts a tuple into 2,592,000,000,000 windows",
        "1,048,576 are the most",
        "a longer advance=",
    ),
    "an advance of no tuples": Refusal(
        aggregate(size=3, advance=0), QueryError, "advance=0 is no number of tuples", do="at least 1"
    ),
    "a window of tuples that advances by time": Refusal(
        aggregate(size=10, advance="3s"), QueryError, "size=10 and advance='3s'", "durations span time", "Write both"
    ),
    "a window of half tuples": Refusal(
        aggregate(size=2.5), QueryError, "size=2.5 is neither a duration nor a number", do="'30s'"
    ),
    "a window of no time": Refusal(
        aggregate(size="0s"), QueryError, "size='0s' is zero", "at least one microsecond", "a whole number of tuples"
    ),
    "a function without a column": Refusal(
        lambda: plait.mean(None), QueryError, "mean(None) names no column", do="plait.mean('column')"
    ),
    "a custom function without a column": Refusal(
        custom([]), QueryError, "custom([]) names no column", do="a list of columns"
    ),
    "a custom function that is none": Refusal(
        custom(init=0), QueryError, "custom: init=0 is no function", do="help(plait.custom)"
    ),
    "a custom function that takes too little": Refusal(
        custom(["x", "y"], add=lambda state, x: state),
        QueryError,
        "custom: add='<lambda>' does not take 3 arguments",
        do="help(plait.custom)",
    ),
    "a custom function of an unknown type": Refusal(
        custom(type="number"), QueryError, "custom: type='number' is no type", do="a pyarrow type"
    ),
    "a missing column to compute from": Refusal(
        computed(plait.sum("z")), QueryError, "sum('z'): stream 'quotes' has no column 'z'", "its columns are ts, x"
    ),
    "the smallest of what has no order": Refusal(
        computed(plait.min("tags")), QueryError, "min('tags') of a column of type list", "no order", "plait.custom"
    ),
    "the mean of text": Refusal(
        computed(plait.mean("s")),
        QueryError,
        "mean('s') of a column of type string",
        "adds integers",
        "Cast the column",
    ),
    "a column that is plait's own": Refusal(
        bound(
            plait.aggregate(quotes, size="1s", compute={"n": plait.count()}),
            {"quotes": QUOTES.append(pa.field("_plait_key", pa.binary()))},
        ),
        QueryError,
        "has a column '_plait_key'",
        "plait's own columns",
        "Drop it, or rename it",
    ),
    "a missing key": Refusal(
        bound(plait.aggregate(quotes, size="1s", by="k", compute={"n": plait.count()})),
        QueryError,
        "by= names column 'k', which stream 'quotes' does not have",
        "its columns are ts",
    ),
    "a missing key of a query": Refusal(
        bound(plait.aggregate(plait.join(quotes, trades, last=1), size="1s", by="k", compute={"n": plait.count()})),
        QueryError,
        "by= names column 'k', which the input does not have",
        "its columns are ts, quotes_ts",
    ),
    "a key that has no order": Refusal(
        bound(plait.aggregate(quotes, size="1s", by="tags", compute={"n": plait.count()})),
        QueryError,
        "by= names column 'tags' of type list",
        "can't be a key",
        "Cast it",
    ),
}

OPERATORS = {
    "an operator without streams": Refusal(operator(streams=[]), QueryError, "reads []", do="a list of streams"),
    "an operator over streams in a set": Refusal(
        operator(streams=frozenset((quotes,))), QueryError, "input of operator is frozenset(", do="plait.stream(...)"
    ),
    "an operator over text": Refusal(
        operator(streams="quotes"), QueryError, "The input of operator is 'quotes'", do="plait.stream(...)"
    ),
    "no buckets": Refusal(operator(buckets=0), QueryError, "buckets=0 is no number of buckets", do="at least 1"),
    "a truth of buckets": Refusal(operator(buckets=True), QueryError, "buckets=True is no number", do="at least 1"),
    "a route that is none": Refusal(
        operator(route="hash"), QueryError, "route='hash' is no function", do="help(plait.operator)"
    ),
    "a state that needs something": Refusal(
        operator(state=lambda bucket, more: {}),
        QueryError,
        "state='<lambda>' does not take one argument (missing a required argument: 'more')",
        do="help(",
    ),
    "a timer that takes one argument": Refusal(
        operator(on_timer=lambda state: None), QueryError, "on_timer='<lambda>' does not take 2", do="help("
    ),
    "an output that has a time": Refusal(
        operator(output={"ts": "int64"}), QueryError, "output= has a column 'ts'", "under that name", "Rename it"
    ),
    "an output with a column twice": Refusal(
        operator(output=pa.schema([("n", pa.int8()), ("n", pa.int8())])),
        QueryError,
        "output= has two columns called 'n'",
        do="Rename one",
    ),
    "an output that is none": Refusal(operator(output=None), QueryError, "output=None is no schema", do="a dict"),
}

BINDING = {
    "data for no stream": Refusal(
        lambda: check_data(plait.join(quotes, trades, last=1), {"quotes": 0, "trade": 0}),
        QueryError,
        "Data is given for 'trade'",
        "it reads quotes, trades",
    ),
    "a stream without data": Refusal(
        lambda: check_data(plait.join(quotes, trades, last=1), {"quotes": 0}),
        QueryError,
        "No data is given for stream 'trades'",
        "there is data for quotes",
    ),
    "no data at all": Refusal(
        lambda: check_data(plait.join(quotes, quotes, last=1), {}),
        QueryError,
        "No data is given for stream 'quotes'",
        "there is data for nothing",
    ),
    "a missing as-of column": Refusal(
        bound(plait.asof(quotes, trades, by=[("s", "symbol")])),
        QueryError,
        "by= names column 'symbol', which trades does not have",
        "its columns are ts, a",
    ),
    "as-of columns that are never equal": Refusal(
        bound(plait.asof(quotes, trades, by=[("s", "a")])),
        QueryError,
        "compares quotes.s (string) with trades.a (int32)",
        "can't be equal",
        "Cast one",
    ),
    "as-of columns that do not compare": Refusal(
        bound(plait.asof(quotes, quotes, by="tags")),
        QueryError,
        "compares left.tags (list",
        "can't be equal",
        "Cast one",
    ),
    "two result columns of one name": Refusal(
        bound(plait.join(quotes, trades, last=1), SCHEMAS | {"trades": TRADES.append(pa.field("quotes_x", pa.int8()))}),
        QueryError,
        "would be called 'quotes_x'",
        "this one is taken",
        "Rename the column",
    ),
    "an executor that is not there": Refusal(
        missing_executor, RunError, "There is no executor 'abacus'", do="Use one of: reference"
    ),
    "an order that is none": Refusal(
        lambda: base.check_order("sorted"), QueryError, "order='sorted' is no order", do="'strict'"
    ),
    "a time column that does not serve": Refusal(
        bound(plait.join(quotes, trades, last=1), SCHEMAS | {"quotes": QUOTES.set(0, pa.field("ts", pa.string()))}),
        QueryError,
        "time column 'ts' is string",
        "a timestamp, a date or an integer",
        "Cast",
    ),
}


def decided(row: Any) -> int:
    return 1 if row.x > 0 else 0


def selected(*names: str, **columns: object) -> Callable[[], object]:
    return lambda: bind(quotes.select(*names, **columns), SCHEMAS)  # type: ignore[arg-type]  # what is wrong with it is the point


ROW_BY_ROW = {
    "a keyword that is nearly right": Refusal(
        lambda: plait.join(quotes, trades, wihtin="5s"),  # type: ignore[call-arg]
        QueryError, "plait.join has no argument 'wihtin'", "there are left, right, on, within", "Did you mean within=?",
    ),
    "a function whose results have no type": Refusal(
        selected(z=decided), QueryError, "The column 'z' is made by a function", "type of what it returns",
        "(function, 'float64')",
    ),
    "an expression with a type": Refusal(
        selected(z=(lambda row: row.x + 1, "int64")), QueryError, "'z' is given a type, int64", "here int32", "Leave the type out"
    ),
    "a column that is always NULL": Refusal(selected(z="NULL"), QueryError, "'z' is always NULL", "no type", "Cast"),
    "a column that is not there": Refusal(selected("nothing"), QueryError, "no column 'nothing'", "there are ts, x"),
    "a pair that is none": Refusal(
        lambda: quotes.select(z=(3, "int64")), QueryError, "The column 'z' is (3, 'int64')", do="a pair of a function"
    ),
    "a column that is no expression": Refusal(
        lambda: quotes.select(z=3), QueryError, "The column 'z' is 3", do="SQL text"  # type: ignore[arg-type]
    ),
    "no column": Refusal(lambda: quotes.select(), QueryError, "select() names no column", do="at least one"),
    "a column's name that is none": Refusal(
        lambda: quotes.drop(3), QueryError, "drop(3) names no column", do="name"  # type: ignore[arg-type]
    ),
    "one column twice": Refusal(lambda: quotes.select("x", x="y"), QueryError, "select names 'x' twice", do="once"),
    "two columns of one name": Refusal(
        lambda: bind(quotes.rename(y="x"), SCHEMAS), QueryError, "Two columns would be called 'y'", do="otherwise"
    ),
    "one column under two names": Refusal(
        lambda: quotes.rename(a="x", b="x"), QueryError, "rename calls 'x' both 'a' and 'b'", "makes none", "a='x', b='x'"
    ),
    "rows without their time": Refusal(
        lambda: bind(plait.union(quotes).drop("ts"), SCHEMAS), QueryError, "drop('ts')", "their time", "Leave it"
    ),
    "another name for the time": Refusal(
        lambda: bind(plait.union(quotes).rename(t="ts"), SCHEMAS), QueryError, "rename of or to 'ts'", "their time", "Leave it"
    ),
    "an expression under the name of a column": Refusal(
        bound(plait.aggregate(quotes, size="1s", by={"x": "x % 2"}, compute={"n": plait.count()})), QueryError,
        "by= makes a column 'x' of sqlmod(x, 2)", do="otherwise",
    ),
    "two functions of one name": Refusal(
        bound(plait.aggregate(quotes, size="1s", compute={
            "a": plait.sum((lambda row: 1 if row.x > 0 else 0, "int64")),
            "b": plait.sum((lambda row: 2 if row.x > 0 else 0, "int64")),
        })), QueryError, "Two expressions of the aggregate are called '<lambda>(row)'", "goes by its name", "input.select",
    ),
    "another column in the place of the time": Refusal(
        selected(ts="x * 2"), QueryError, "would be called 'ts'", "their time", "otherwise"
    ),
    "a union of nothing": Refusal(lambda: plait.union(), QueryError, "A union of nothing", do="plait.union(a, b)"),
    "a union of different rows": Refusal(
        bound(plait.union(quotes.keep("x"), trades.keep("x"))), QueryError, "Inputs 1 and 2 of the union",
        "x int32, the other x int64", "with select",
    ),
    "a union with two times": Refusal(
        bound(plait.union(plait.stream("quotes", time="x", unit="us"))), QueryError, "would be called 'ts'", do="Rename"
    ),
}  # fmt: skip

DEDUPS = {
    "a dedup by no column's name": Refusal(
        dedup(by=[""]), QueryError, "by=[''] names no columns", do="Pass a column's name or a list of them"
    ),
    "a dedup by one column twice": Refusal(
        dedup(by=["bid", "bid"]), QueryError, "by=['bid', 'bid'] names 'bid' twice", do="Name it once"
    ),
    "a dedup by nothing": Refusal(
        dedup(by=[]), QueryError, "dedup with by=[]", "nothing says which tuples repeat one another", "Name the columns"
    ),
    "a dedup for ever": Refusal(
        dedup(within=None), QueryError, "dedup with within=None", "remembered for ever is never forgotten", "a duration"
    ),
    "a dedup by a column that is not there": Refusal(
        bound(plait.dedup(quotes, by="k", within="1s")),
        QueryError,
        "by= names column 'k', which stream 'quotes' does not have",
        "its columns are",
    ),
    "a dedup's second ts": Refusal(
        bound(
            plait.dedup(plait.stream("quotes", time="at", unit="s"), by="ts", within="1s"),
            {"quotes": pa.schema([("at", pa.int64()), ("ts", pa.int64())])},
        ),
        QueryError,
        "Two columns of the dedup's rows would be called 'ts'",
        "the input has another column of that name",
        "Rename the column in the input",
    ),
}

REFUSALS = JOINS | AGGREGATES | DEDUPS | OPERATORS | BINDING | ROW_BY_ROW
