"""What `plait.stream` refuses, and what a stream refuses of the schema it meets."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.query.refusal import Refusal

import plait
from plait import QueryError


def stream(**options: Any) -> Callable[[], object]:
    return lambda: plait.stream("quotes", **options)


def checked(given: dict[str, pa.DataType] | pa.Schema, /, **options: Any) -> Callable[[], object]:
    return lambda: plait.stream("quotes", **options).check(pa.schema(given))


US = pa.timestamp("us", "UTC")
TS = {"ts": US}

STREAMS = {
    "a stream without a name": Refusal(
        lambda: plait.stream(""), QueryError, "A stream's name is ''", "how data is handed in", "non-empty"
    ),
    "a stream whose name is no text": Refusal(
        lambda: plait.stream(7), QueryError, "A stream's name is 7", "how data is handed in", "non-empty"
    ),
    "a stream called like a side": Refusal(
        lambda: plait.stream("Left"), QueryError, "can't be called 'Left'", "a side of every join", "Rename it"
    ),
    "no time column": Refusal(
        stream(time=None), QueryError, "Stream 'quotes': time=None names no column", do="the column's name"
    ),
    "no seq column": Refusal(stream(seq=3), QueryError, "Stream 'quotes': seq=3 names no", do="the column's name"),
    "an unknown unit": Refusal(
        stream(unit="minutes"), QueryError, "unit='minutes' is no unit of time", do="'ns', 'us', 'ms', 's', 'day'"
    ),
    "a unit that is a list": Refusal(stream(unit=["us"]), QueryError, "unit=['us'] is no unit of time", do="'us'"),
    "an unknown way with late tuples": Refusal(
        stream(late="ignore"), QueryError, "late='ignore' is not known", do="'error', 'drop'"
    ),
    "an unknown way with tuples behind": Refusal(
        stream(behind=None), QueryError, "behind=None is not known", do="'error', 'drop'"
    ),
    "late tuples dropped where position is no fact": Refusal(
        stream(seq="content", late="drop"),
        QueryError,
        "late='drop' with seq='content'",
        "not a fact",
        "Name a seq column",
    ),
    "a source that is neither a column nor a marker": Refusal(
        stream(source="@topic"), QueryError, "source='@topic' names no source", do="plait.FILE, plait.PARTITION"
    ),
    "a source that is a number": Refusal(
        stream(source=1), QueryError, "source=1 names no source", do="a column's name"
    ),
    "sources counted that a column names": Refusal(
        stream(source="venue", sources=3),
        QueryError,
        "sources=3 counts what 'venue' names",
        "which names",
        "sources=[...]",
    ),
    "no sources": Refusal(stream(sources=0), QueryError, "sources=0 is no source", "has at least one"),
    "too many sources": Refusal(
        stream(sources=2**31), QueryError, "sources=2147483648", "65,536 at most", "Name them by a column"
    ),
    "an empty list of sources": Refusal(stream(sources=[]), QueryError, "sources=[] is no source", "has at least one"),
    "sources that are one text": Refusal(
        stream(sources="ab"), QueryError, "sources='ab' is neither", do="a list of their names"
    ),
    "sources in a set": Refusal(stream(sources={"a"}), QueryError, "sources={'a'} is neither", do="a list"),
    "sources that are a float": Refusal(stream(sources=1.5), QueryError, "sources=1.5 is neither", do="a number"),
    "sources of two kinds": Refusal(
        stream(sources=["a", 1]),
        QueryError,
        "sources=['a', 1] are not names of one kind",
        "all integers or all text",
        "the source column",
    ),
    "sources that are booleans": Refusal(
        stream(sources=[True]),
        QueryError,
        "sources=[True] are not names",
        "all integers or all text",
        "the source column",
    ),
    "a source listed twice": Refusal(
        stream(sources=["a", "b", "a"]), QueryError, "sources= names 'a' twice", "one name is one source", "once"
    ),
    "disorder that is no duration": Refusal(
        stream(disorder="soon"), QueryError, "Stream 'quotes': disorder='soon' is not a duration", do="'250ms'"
    ),
    "idle at once": Refusal(
        stream(idle_after=0), QueryError, "Stream 'quotes': idle_after=0 is zero", "at least one microsecond", "'250ms'"
    ),
    "a schema that is none": Refusal(
        stream(schema="x int"), QueryError, "Stream 'quotes': schema='x int' is no schema", do="a dict"
    ),
}

STREAM_SCHEMAS = {
    "a missing time column": Refusal(
        checked({"time": US}), QueryError, "'quotes' has no column 'ts', which time= names", "its columns are time"
    ),
    "a misspelt source column": Refusal(
        checked(TS | {"venues": pa.string()}, source="venue"),
        QueryError,
        "no column 'venue', which source= names",
        "its columns are ts, venues",
        "Did you mean 'venues'?",
    ),
    "a missing seq column": Refusal(
        checked(TS, seq="offset"), QueryError, "no column 'offset', which seq= names", "its columns are ts"
    ),
    "a column twice": Refusal(
        checked(pa.schema([("ts", US), ("ts", US)])), QueryError, "has two columns called 'ts'", do="Rename one"
    ),
    "a source column of floats": Refusal(
        checked(TS | {"venue": pa.float64()}, source="venue"),
        QueryError,
        "source column 'venue' is double",
        "by an integer or by text",
        "Cast the column",
    ),
    "a declared column that is missing": Refusal(
        checked(TS, schema=TS | {"x": "int8"}),
        QueryError,
        "'quotes' is declared with another schema",
        "'x' is declared and missing",
        "schema=",
    ),
    "a seq column that has no order": Refusal(
        checked(TS | {"n": pa.list_(pa.int8())}, seq="n"),
        QueryError,
        "seq column 'n' is list",
        "numbers, text, bytes or times",
        "Cast the column",
    ),
    "a declared column of another type": Refusal(
        checked(TS | {"x": pa.int16()}, schema=TS | {"x": "int8"}),
        QueryError,
        "declared with another schema",
        "'x' is declared int8 and given as int16",
        "cast the data",
    ),
    "a column that is not declared": Refusal(
        checked(TS | {"x": pa.int16()}, schema=TS),
        QueryError,
        "declared with another schema",
        "column 'x' is not declared",
        "schema=",
    ),
    "columns in another order": Refusal(
        checked({"x": pa.int8()} | TS, schema=TS | {"x": "int8"}),
        QueryError,
        "declared with another schema",
        "in another order",
        "schema=",
    ),
}

REFUSALS = STREAMS | STREAM_SCHEMAS
