"""What a run of the reference refuses: rows that break their stream's promises, and calls out of turn."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.query.refusal import Refusal, rows

import plait
from plait import BehindError, DataError, LateError, PendingError, QueryError, RunError
from plait.reference.run import Run

SCHEMA = pa.schema({"ts": pa.int64(), "v": pa.int64(), "who": pa.string(), "n": pa.timestamp("ns")})


def run(max_pending: int | None = None, **options: Any) -> Run:
    """A count of one stream's tuples."""
    stream = plait.stream("quotes", unit="us", **options)
    query = plait.aggregate(stream, size=1, compute={"n": plait.count()})
    return Run(query, {"quotes": SCHEMA}, max_pending=max_pending)


def pushed(*values: dict[str, object], source: int | str | None = None, **options: Any) -> Callable[[], object]:
    def build() -> None:
        run(**options).push("quotes", rows(SCHEMA, *values), source=source, where="a.csv", first_row=10)

    return build


def after(*steps: Callable[[Run], object], **options: Any) -> Callable[[], object]:
    def build() -> None:
        running = run(**options)
        for step in steps:
            step(running)

    return build


def push(*ts: int, **options: Any) -> Callable[[Run], object]:
    return lambda running: running.push("quotes", rows(SCHEMA, *({"ts": t, **options} for t in ts)))


def reference(query: plait.Query, *values: dict[str, object]) -> Callable[[], object]:
    table = pa.Table.from_batches([rows(SCHEMA, *(values or ({"ts": 1, "v": 1},)))])
    return lambda: query.reference(dict.fromkeys(query.streams(), table))


quotes = plait.stream("quotes", unit="us")


def operator(**options: Any) -> Callable[[], object]:
    given: dict[str, Any] = {
        "buckets": 4,
        "route": lambda t: 0,
        "state": dict,
        "process": lambda state, t: None,
        "output": {"n": "int8", "s": "string"},
    }
    return reference(plait.operator(quotes, **(given | options)))


def outputs(*given: Any) -> Callable[[], object]:
    return operator(process=lambda state, t: given)


def divides(q: Any, t: Any) -> bool:
    return bool(q.v / (t.v - 1) > 0)


def divides_one(row: Any) -> bool:
    return bool(1 / (row.v - 1) > 0)


def fails(*arguments: Any) -> Any:
    return 1 / 0


def no_microsecond(q: Any, t: Any) -> bool:
    return bool(q.n and t.n)


def custom(result: Any) -> plait.Query:
    function = plait.custom("v", init=int, add=lambda state, v: state, result=lambda state: result, type="int8")
    return plait.aggregate(quotes, size=1, compute={"out": function})


INTAKE = {
    "a heartbeat beyond 64 bits": Refusal(
        after(lambda running: running.heartbeat("quotes", 2**70)), RunError, f"{2**70}", "2^62", "Lower it"
    ),
    "a heartbeat of a source that is not declared": Refusal(
        after(lambda running: running.heartbeat("quotes", 5, source="typo"), source="who", sources=["a"]),
        DataError,
        "'typo'",
        "'a'",
        "Name one",
    ),
    "rows after the stream's end": Refusal(
        after(lambda r: r.end("quotes"), push(1)), RunError, "Stream 'quotes' has ended", "rows came after its end"
    ),
    "rows after a source's end": Refusal(
        after(lambda r: r.end("quotes", source=0), push(1)),
        RunError,
        "Stream 'quotes': source 0 has ended",
        "rows came after its end (row 0)",
    ),
    "a batch of another schema": Refusal(
        lambda: run().push("quotes", rows(pa.schema({"ts": pa.int64()}), {"ts": 1})),
        DataError,
        "Stream 'quotes': a batch has columns ['ts']",
        "the run began with ['ts', 'v', 'who', 'n']",
    ),
    "a late tuple": Refusal(
        pushed({"ts": 100}, {"ts": 89}, disorder=10),
        LateError,
        "Stream 'quotes', source 0, a.csv, row 11: ts 89 is late, 11 us behind 100",
        "may run back by 10 us",
        "Raise disorder= to at least 11 us, or set late='drop'",
    ),
    "a tuple below its source's heartbeat": Refusal(
        after(lambda r: r.heartbeat("quotes", 50), push(49)),
        DataError,
        "row 0: ts 49 is below the source's heartbeat 50",
        "promises no ts below its own",
    ),
    "a tuple behind the frontier": Refusal(
        after(push(100, who="a"), push(101, who="a"), push(50, who="b"), source="who"),
        BehindError,
        "source 'b', row 0: ts 50 is behind the frontier 101",
        "was not known",
        "sources=[...]",
    ),
    "a source that is NULL": Refusal(
        after(push(1), source="who"),
        DataError,
        "Stream 'quotes', row 0: source column 'who' is NULL",
        "every tuple comes from a source",
    ),
    "a source that is not declared": Refusal(
        after(push(1, who="c"), source="who", sources=["a", "b"]),
        DataError,
        "row 0: source 'c' is not declared",
        "'a', 'b'",
        "Add it to sources=",
    ),
    "a seq that is NULL": Refusal(
        after(push(1), seq="v"), DataError, "Stream 'quotes', row 0: seq column 'v' is NULL", "orders a source's tuples"
    ),
    "a seq that comes back": Refusal(
        after(push(1, v=5), push(2, v=5), seq="v"), DataError, "source 0, row 0: seq 5 is not above", "once", "Sort"
    ),
    "too many tuples that wait": Refusal(
        after(push(1, 2, 3, who="a"), source="who", sources=["a", "b"], max_pending=2),
        PendingError,
        "3 tuples wait for the frontier, more than max_pending=2",
        "source 'b' of stream 'quotes' holds it at no ts yet",
        "Feed or end that source",
    ),
    "too many tuples that wait for a ts": Refusal(
        after(push(1, who="a"), push(1, 2, 3, who="b"), source="who", sources=["a", "b"], max_pending=2),
        PendingError,
        "4 tuples wait",
        "source 'a' of stream 'quotes' holds it at ts 1",
        "raise max_pending",
    ),
    "rows for no stream": Refusal(
        lambda: run().push("trades", rows(SCHEMA)), RunError, "The query has no stream 'trades'", "it reads quotes"
    ),
    "data that is no dict": Refusal(
        lambda: plait.join(quotes, plait.stream("trades"), last=1).reference([1]),
        DataError,
        "data is a list",
        do="a dict of stream names",
    ),
}

COMPUTED = {
    "a window that ends beyond 64 bits": Refusal(
        reference(plait.aggregate(quotes, size=f"{2**62}us", compute={"n": plait.count()}), {"ts": 2**62, "v": 1}),
        DataError,
        "'window_end'",
        "end of time",
        "shorter window",
    ),
    "a timer beyond 64 bits": Refusal(
        operator(process=lambda state, t: [plait.timer(2**70)], on_timer=lambda state, at: []),
        plait.QueryError,
        f"{2**70}",
        "64 bits",
        "within",
    ),
    "a condition that fails on a pair": Refusal(
        reference(plait.join(quotes, quotes, on=divides, within="1s")),
        RunError,
        "The condition 'divides' raised ZeroDivisionError",
        "the tuples at ts 1 and 1",
    ),
    "a condition that fails on a row": Refusal(
        reference(plait.aggregate(quotes, size=1, compute={"n": plait.count_where(divides_one)})),
        RunError,
        "The condition 'divides_one' raised ZeroDivisionError",
        "the tuple at ts 1",
    ),
    "a column finer than a microsecond": Refusal(
        reference(plait.join(quotes, quotes, on=no_microsecond, within="1s"), {"ts": 1, "n": 1_001}),
        DataError,
        "A timestamp[ns] of 1001 is no whole microsecond",
        "nothing is rounded silently",
    ),
    "a sum beyond 64 bits": Refusal(
        reference(
            plait.aggregate(quotes, size=2, compute={"total": plait.sum("v")}),
            {"ts": 1, "v": 2**62},
            {"ts": 2, "v": 2**62},
        ),
        DataError,
        f"The sum in column 'total' is {2**63}",
        "exact or an error",
        "float64",
    ),
    "a custom function's result that does not fit": Refusal(
        reference(custom(300)), DataError, "result in column 'out' is 300, which is no int8", "300"
    ),
    "a custom function's result that would be rounded": Refusal(
        reference(custom(1.5)), DataError, "result in column 'out' is 1.5, which is no int8", "it would become 1"
    ),
    "a custom function's result of another type": Refusal(
        reference(custom("x")), DataError, "result in column 'out' is 'x', which is no int8", "'x'"
    ),
    "a custom function that fails": Refusal(
        reference(
            plait.aggregate(quotes, size=1, compute={"out": plait.custom("v", init=int, add=fails, type="int8")})
        ),
        RunError,
        "The custom function in column 'out' raised ZeroDivisionError",
        "1 rows of a window, from ts 1 to 1",
    ),
    "a route that fails": Refusal(
        operator(route=fails), RunError, "The operator's route raised ZeroDivisionError", "tuple of 'quotes' at ts 1"
    ),
    "a process that fails": Refusal(
        operator(process=fails),
        RunError,
        "The operator's process of bucket 0 raised ZeroDivisionError",
        "the tuple of 'quotes' at ts 1",
    ),
    "a process that reads a column that is not there": Refusal(
        operator(process=lambda state, t: [(t.nope, "")]),
        RunError,
        "process of bucket 0 raised AttributeError: no column 'nope'; there are",
        "the tuple of 'quotes' at ts 1",
    ),
    "a state that fails": Refusal(
        operator(state=lambda: fails()),
        RunError,
        "The operator's state of bucket 0 raised ZeroDivisionError",
        "what the bucket begins with",
    ),
    "a timer's function that fails": Refusal(
        operator(process=lambda state, t: [plait.timer(7)], on_timer=fails),
        RunError,
        "The operator's on_timer of bucket 0 raised ZeroDivisionError",
        "a timer at 7",
    ),
    "a bucket that is not there": Refusal(
        operator(route=lambda t: 4), RunError, "route returned 4, which names bucket 4", "buckets 0 to 3", "plait.ALL"
    ),
    "a bucket that is text": Refusal(
        operator(route=lambda t: [0, "a"]), RunError, "which names bucket 'a'", "buckets 0 to 3", "modulo"
    ),
    "a timer with nobody to run it": Refusal(
        outputs(plait.timer(5)), RunError, "process set a timer", do="Pass on_timer="
    ),
    "a timer in the past": Refusal(
        operator(process=lambda state, t: [plait.timer(1)], on_timer=lambda state, at: None),
        RunError,
        "A timer is set at 1, and event time has reached 1",
        "before the first tuple",
        "Set it at 2 or later",
    ),
    "an output of an unknown column": Refusal(outputs({"n": 1, "m": 2}), DataError, "output names column 'm'", "n, s"),
    "an output of too few columns": Refusal(
        outputs((1,)), DataError, "The operator's output is (1,)", "2 columns: n, s", "tuples of that length"
    ),
    "an output that is a number": Refusal(
        outputs(5), DataError, "The operator's output is 5", "2 columns: n, s", "dicts"
    ),
    "an output of another type": Refusal(
        outputs((1, 2)), DataError, "The operator's output 's' is 2, which is no string", "int"
    ),
}


def fails_on(row: Any) -> int:
    return 1 // 0 if row.v > 0 else 0


ROW_BY_ROW = {
    "an integer that its column has no place for": Refusal(
        reference(quotes.select(z=f"v * {2**62}"), {"ts": 1, "v": 4}),
        DataError,
        "The column 'z' would be 18446744073709551616 in the row at ts 1",
        "computed exactly",
        "float64",
    ),
    "a column's function that raises": Refusal(
        reference(quotes.select(z=(fails_on, "int64"))),
        RunError,
        "The column 'fails_on' raised ZeroDivisionError",
        "the tuple at ts 1",
    ),
}

OPTIONS = {
    "keys that are neither wanted nor not": Refusal(
        lambda: plait.dedup(quotes, by="v", within="1s").reference({}, keys=1),
        QueryError,
        "keys=1 is no truth value",
        do="True",
    ),
}

REFUSALS = INTAKE | COMPUTED | ROW_BY_ROW | OPTIONS
