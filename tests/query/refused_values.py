"""What `order` and `schema` refuse: keys, durations, time columns, types, moments."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
from tests.query.refusal import Refusal

import plait
from plait import DataError, QueryError
from plait.order import decode, encode, key_value
from plait.schema import arrow_schema, arrow_type, check_time_type, duration_us, micros_of, to_micros


def time_type(kind: pa.DataType, unit: str | None = None) -> None:
    check_time_type(kind, unit, stream="quotes", column="at")


def times(values: list[object], kind: pa.DataType, unit: str | None = None, **place: object) -> None:
    to_micros(pa.array(values, kind), unit, stream="quotes", name="at", **place)


FORMS = "'5 minutes', '1h 30min' or '250ms'"

KEYS = {
    "a value without an order in a key": Refusal(
        lambda: key_value(1j), DataError, "Python type complex", "only numbers", "Cast the column"
    ),
    "an integer too long for a key": Refusal(
        lambda: encode((2**2040,)), DataError, "integer of 256 bytes", "up to 255 bytes", "Cast the column"
    ),
    "bytes that are no key": Refusal(lambda: decode(b"\x20"), DataError, "20 (1 bytes) is no key", "cut off", ""),
    "a key that is cut off in an integer": Refusal(
        lambda: decode(encode((5,))[:-1]), DataError, "(8 bytes) is no key", "not as encode wrote it", ""
    ),
    "a negative integer too long for a key": Refusal(
        lambda: encode((-(2**2040),)), DataError, "integer of 256 bytes", "up to 255 bytes", "Cast the column"
    ),
}

DURATIONS = {
    "a float as a duration": Refusal(lambda: duration_us(1.5, "within"), QueryError, "within=1.5", do=FORMS),
    "a boolean as a duration": Refusal(lambda: duration_us(True, "within"), QueryError, "within=True", do=FORMS),
    "nothing as a duration": Refusal(lambda: duration_us(None, "within"), QueryError, "within=None", do=FORMS),
    "a NumPy duration": Refusal(
        lambda: duration_us(np.timedelta64(5, "ns"), "within"), QueryError, "within=np.timedelta64(5,'ns')", do=FORMS
    ),
    "a negative count": Refusal(
        lambda: duration_us(-1, "disorder"), QueryError, "disorder=-1 is negative", "a length of time", FORMS
    ),
    "a negative timedelta": Refusal(
        lambda: duration_us(dt.timedelta(days=-1), "within"), QueryError, "days=-1", "a length of time", FORMS
    ),
    "zero where a length is needed": Refusal(
        lambda: duration_us("0s", "size", zero=False), QueryError, "size='0s' is zero", "at least one", FORMS
    ),
    "a duration beyond all times": Refusal(
        lambda: duration_us(2**62 + 1, "within"), QueryError, f"within={2**62 + 1} is longer", "+-2^62", "shorter"
    ),
    "a duration of thousands of digits": Refusal(
        lambda: duration_us("9" * 5000 + "s", "within"), QueryError, "is not a duration", "so long a text", FORMS
    ),
    "an unknown unit": Refusal(
        lambda: duration_us("5 fortnights", "within"), QueryError, "'5 fortnights'", "'fortnights' is no unit", FORMS
    ),
    "a number without a unit": Refusal(
        lambda: duration_us("5", "within"), QueryError, "within='5' is not a duration", do=FORMS
    ),
    "a minus in front": Refusal(
        lambda: duration_us("-5s", "within"), QueryError, "within='-5s' is not a duration", do=FORMS
    ),
    "a part of a microsecond": Refusal(
        lambda: duration_us("1.5us", "within"), QueryError, "within='1.5us'", "nothing is rounded", "Round it"
    ),
    "a part of a microsecond from pandas": Refusal(
        lambda: duration_us(pd.Timedelta(1500, "ns"), "within"), QueryError, "within=Timedelta(", "nothing", "Round it"
    ),
}

TIME_COLUMNS = {
    "a timestamp without a zone": Refusal(
        lambda: time_type(pa.timestamp("ms")),
        QueryError,
        "Stream 'quotes': time column 'at' is timestamp[ms]",
        "no moment by itself",
        "unit='ms'",
    ),
    "a timestamp without a zone, counted otherwise": Refusal(
        lambda: time_type(pa.timestamp("ms"), "us"),
        QueryError,
        "timestamp[ms], and unit='us'",
        "its own unit is 'ms'",
        "Say unit='ms'",
    ),
    "a timestamp with a zone, counted otherwise": Refusal(
        lambda: time_type(pa.timestamp("ms", "UTC"), "us"),
        QueryError,
        "timestamp[ms, tz=UTC], and unit='us'",
        "its own unit is 'ms'",
        "Leave unit= out",
    ),
    "a date without a unit": Refusal(
        lambda: time_type(pa.date32()), QueryError, "'at' is date32[day]", "names no moment", "unit='day'"
    ),
    "a number without a unit": Refusal(
        lambda: time_type(pa.int32()),
        QueryError,
        "'at' is int32",
        "no moment by itself",
        "'ns', 'us', 'ms', 's', 'day'",
    ),
    "a float as time": Refusal(
        lambda: times([float("nan")], pa.float64(), "us"), QueryError, "'at' is double", "a timestamp, a date", "Cast"
    ),
    "a NULL time": Refusal(
        lambda: times([1, None], pa.int64(), "us"),
        DataError,
        "Stream 'quotes', row 1: time column 'at' is NULL",
        "every tuple needs",
    ),
    "a NULL time in a file": Refusal(
        lambda: times([None], pa.int64(), "us", first_row=7, where="a.csv"),
        DataError,
        "Stream 'quotes', a.csv, row 7: time column 'at' is NULL",
        "every tuple needs",
    ),
    "an unsigned time beyond the signed ones": Refusal(
        lambda: times([0, 2**64 - 1], pa.uint64(), "us"), DataError, f"row 1: time column 'at' is {2**64 - 1}", "+-2^62"
    ),
    "nanoseconds that do not divide": Refusal(
        lambda: times([1_000, 1_001], pa.int64(), "ns"), DataError, "row 1: time column 'at' is 1001 ns", "no whole"
    ),
    "a time beyond the limits": Refusal(
        lambda: times([2**62, 2**62 + 1], pa.int64(), "us"),
        DataError,
        f"row 1: time column 'at' is {2**62 + 1}",
        "+-2^62",
    ),
    "a time beyond the limits once scaled": Refusal(
        lambda: times([-(2**62)], pa.int64(), "s"), DataError, f"row 0: time column 'at' is {-(2**62)}", "+-2^62"
    ),
}

TYPES = {
    "an unknown type": Refusal(
        lambda: arrow_type("varchar", "type"), QueryError, "type='varchar' is no type", do="int64, uint8"
    ),
    "an unknown type in a schema": Refusal(
        lambda: arrow_schema({"x": int}, "output"), QueryError, "output['x']=<class 'int'> is no type", do="one of bool"
    ),
    "no schema": Refusal(lambda: arrow_schema(["x"], "schema"), QueryError, "schema=['x'] is no schema", do="a dict"),
    "a schema of nothing": Refusal(
        lambda: arrow_schema({}, "schema"), QueryError, "schema={} is no schema", do="a dict"
    ),
    "a column whose name is a number": Refusal(
        lambda: arrow_schema({1: "int64"}, "schema"), QueryError, "schema={1: 'int64'} is no schema", do="column names"
    ),
    "a naive datetime as a moment": Refusal(
        lambda: micros_of(dt.datetime(2024, 1, 31)),  # noqa: DTZ001
        QueryError,
        "datetime.datetime(2024, 1, 31, 0, 0) is no moment",
        do="a datetime with a zone",
    ),
    "a NumPy duration as a moment": Refusal(
        lambda: plait.timer(np.timedelta64(1, "ns")), QueryError, "np.timedelta64(1,'ns') is no moment", do="as an int"
    ),
}

REFUSALS = KEYS | DURATIONS | {f"{what} (time column)": case for what, case in TIME_COLUMNS.items()} | TYPES
