"""How durations, event times and types come in: every form that is accepted, and what it means."""

import datetime as dt
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plait.errors import DataError, QueryError
from plait.order import TS_MAX, TS_MIN
from plait.schema import (
    TIME_UNITS,
    arrow_schema,
    arrow_type,
    check_time_type,
    duration_text,
    duration_us,
    is_text,
    joint_time_type,
    listed,
    micros_of,
    time_kind,
    to_micros,
)

SECOND, DAY = 1_000_000, 86_400_000_000

# --- durations ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("5 minutes", 300 * SECOND),
        ("1 minute", 60 * SECOND),
        ("1min", 60 * SECOND),
        ("2 mins", 120 * SECOND),
        ("3m", 180 * SECOND),
        ("1h 30min", 5400 * SECOND),
        ("1h30m", 5400 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("2 hours", 7200 * SECOND),
        ("2hrs", 7200 * SECOND),
        ("1hr", 3600 * SECOND),
        ("1 w", 7 * DAY),
        ("2 weeks", 14 * DAY),
        ("1day", DAY),
        ("3 days", 3 * DAY),
        ("3d", 3 * DAY),
        ("30s", 30 * SECOND),
        ("30 sec", 30 * SECOND),
        ("1 second", SECOND),
        ("1.5s", 1_500_000),
        ("1.5ms", 1_500),
        ("0.001ms", 1),
        ("250 milliseconds", 250_000),
        ("7us", 7),
        ("7 µs", 7),
        ("7 microseconds", 7),
        ("1000ns", 1),
        ("2000 nanoseconds", 2),
        ("  5   s  ", 5 * SECOND),
        ("0s", 0),
        (dt.timedelta(minutes=5), 300 * SECOND),
        (dt.timedelta(microseconds=1), 1),
        (pd.Timedelta("1.5ms"), 1_500),
        (0, 0),
        (17, 17),
        (2**62, 2**62),
        (np.int64(7), 7),
        (np.uint8(7), 7),
    ],
)
def test_a_duration_can_be_written_as(value: object, micros: int) -> None:
    found = duration_us(value, "within")
    assert found == micros
    assert type(found) is int


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "5", "five minutes", "5 Minutes", "-5s", "+5s", "5 s,", "1h, 2min", "1e3s", "1_000s", ".5s", "5.s",
        "s", "5 s 5", "1.5us", "1ns", "0.0001ms", "3 months", 1.0, math.nan, True, None, b"5s", ["5s"], -1, 2**62 + 1,
        np.float64(5), np.timedelta64(5, "s"), np.timedelta64(5, "ns"), np.bool_(True),
        dt.timedelta(microseconds=-1), pd.Timedelta(1, "ns"), pd.Timedelta(-1, "s"),
    ],
)  # fmt: skip
def test_this_is_no_duration(value: object) -> None:
    with pytest.raises(QueryError, match=r"^within="):
        duration_us(value, "within")


def test_zero_may_be_refused() -> None:
    assert duration_us(1, "size", zero=False) == 1
    for zero in (0, "0s", dt.timedelta(0)):
        with pytest.raises(QueryError, match="is zero"):
            duration_us(zero, "size", zero=False)


SIZES = {"ns": Fraction(1, 1000), "us": 1, "ms": 1000, "s": SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "d": DAY}


@given(
    st.lists(
        st.tuples(st.decimals(0, 10_000, places=3), st.sampled_from(sorted(SIZES)), st.sampled_from(["", " "])),
        min_size=1,
        max_size=3,
    )
)
def test_pieces_of_a_duration_add_up_exactly(pieces: list[tuple[object, str, str]]) -> None:
    text = " ".join(f"{number}{gap}{unit}" for number, unit, gap in pieces)
    exact = sum(Fraction(str(number)) * SIZES[unit] for number, unit, _ in pieces)
    if exact.denominator == 1:
        assert duration_us(text, "within") == exact
    else:
        with pytest.raises(QueryError, match="not a whole number of microseconds"):
            duration_us(text, "within")


@given(st.integers(0, 2**62))
@example(0)
@example(90 * SECOND)
@example(7 * DAY)
def test_a_duration_for_people_reads_back(micros: int) -> None:
    assert duration_us(duration_text(micros), "within") == micros


def test_a_duration_for_people_has_the_largest_unit_that_divides() -> None:
    texts = [duration_text(n) for n in (0, 7, 1_500, 2_000, 90 * SECOND, 120 * SECOND, 3600 * SECOND, 7 * DAY)]
    assert texts == ["0 us", "7 us", "1500 us", "2 ms", "90 s", "2 min", "1 h", "7 d"]


# --- time columns -------------------------------------------------------------------------------------------

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
ZONES = [None, "UTC", "+02:00", "Europe/Rome", "America/St_Johns"]


def micros(values: list[object], kind: pa.DataType, unit: str | None = None) -> list[int]:
    found = to_micros(pa.array(values, kind), unit, stream="s", name="at")
    assert found.dtype == np.int64
    return found.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_are_utc_whatever_their_zone(unit: str, zone: str | None) -> None:
    given_unit = unit if zone is None else None
    counts = [-3_000, 0, 5_000]
    expected = [c // 1_000 if unit == "ns" else c * UNITS[unit] for c in counts]
    assert micros(counts, pa.timestamp(unit, zone), given_unit) == expected
    assert micros(counts, pa.timestamp(unit, zone), unit) == expected


def test_a_zone_changes_how_a_moment_is_shown_and_not_which_it_is() -> None:
    moment = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
    expected = int(moment.timestamp()) * SECOND
    for zone in ZONES[1:]:
        assert micros([moment], pa.timestamp("ms", zone)) == [expected]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
@pytest.mark.parametrize(("unit", "size_ns"), TIME_UNITS.items())
def test_integers_count_units(kind: pa.DataType, unit: str, size_ns: int) -> None:
    counts = [-100, 0, 100]
    if unit == "ns":
        with pytest.raises(DataError, match="row 0: time column 'at' is -100 ns"):
            micros(counts, kind, unit)
    else:
        assert micros(counts, kind, unit) == [c * size_ns // 1_000 for c in counts]


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_unsigned_integers_count_units(kind: pa.DataType) -> None:
    assert micros([0, 200], kind, "ms") == [0, 200_000]


def test_unsigned_integers_beyond_the_signed_ones_are_refused() -> None:
    assert micros([2**62], pa.uint64(), "us") == [2**62]
    for value in (2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1):
        with pytest.raises(DataError, match=rf"row 1: time column 'at' is {value}\."):
            micros([0, value], pa.uint64(), "us")


def test_dates_are_midnight_utc() -> None:
    day = dt.date(2024, 2, 29)
    expected = int(dt.datetime(2024, 2, 29, tzinfo=dt.UTC).timestamp()) * SECOND
    assert micros([day, dt.date(1969, 12, 31)], pa.date32(), "day") == [expected, -DAY]
    assert micros([day, dt.date(1969, 12, 31)], pa.date64(), "day") == [expected, -DAY]


def test_a_date64_that_is_no_midnight_keeps_its_milliseconds() -> None:
    inside = pa.array([86_400_005, -1], pa.int64()).view(pa.date64())
    assert to_micros(inside, "day", stream="s", name="at").tolist() == [86_400_005_000, -1_000]


def test_dates_beyond_the_limits_are_refused() -> None:
    for far in (pa.array([2**31 - 1], pa.int32()).view(pa.date32()), pa.array([2**62], pa.int64()).view(pa.date64())):
        with pytest.raises(DataError, match="row 0: time column 'at' is"):
            to_micros(far, "day", stream="s", name="at")


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("unit", "size"), UNITS.items())
def test_the_extremes_are_in_and_what_is_beyond_is_out(unit: str, size: int, sign: int) -> None:
    limit = sign * (TS_MAX // size)
    assert micros([limit], pa.int64(), unit) == [limit * size]
    assert TS_MIN <= limit * size <= TS_MAX
    for beyond in (limit + sign, sign * (2**63 - 1)):
        with pytest.raises(DataError, match=rf"is {beyond}\. Event times lie within"):
            micros([0, beyond], pa.int64(), unit)


def test_nanoseconds_reach_both_ends_of_64_bits() -> None:
    low, high = -(2**63) // 1_000 + 1, (2**63 - 1) // 1_000
    assert micros([low * 1_000, high * 1_000], pa.int64(), "ns") == [low, high]
    assert micros([low * 1_000, high * 1_000], pa.timestamp("ns", "UTC")) == [low, high]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.sampled_from(sorted(TIME_UNITS)))
def test_a_count_is_exact_or_refused(counts: list[int], unit: str) -> None:
    exact = [Fraction(count * TIME_UNITS[unit], 1_000) for count in counts]
    bad = next((i for i, t in enumerate(exact) if t.denominator != 1 or abs(t) > 2**62), None)
    if bad is None:
        assert micros(list(counts), pa.int64(), unit) == exact
    else:
        with pytest.raises(DataError, match=f"row {bad}: time column 'at' is {counts[bad]}"):
            micros(list(counts), pa.int64(), unit)


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.null(), pa.time32("s"), pa.time64("us"),
        pa.duration("us"), pa.binary(), pa.decimal128(10, 2), pa.list_(pa.int64()),
        pa.dictionary(pa.int32(), pa.int64()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("unit", [None, "us"])
def test_a_time_column_has_the_type_of_a_time(kind: pa.DataType, unit: str | None) -> None:
    with pytest.raises(QueryError, match="a timestamp, a date or an integer"):
        check_time_type(kind, unit, stream="s", column="at")
    with pytest.raises(QueryError, match="a timestamp, a date or an integer"):
        to_micros(pa.nulls(2, kind), unit, stream="s", name="at")


def test_a_null_is_found_with_its_row() -> None:
    column = pa.array([1, 2, None, 4], pa.timestamp("us", "UTC"))
    with pytest.raises(DataError, match=r"^Stream 's', row 2: time column 'at' is NULL"):
        to_micros(column, None, stream="s", name="at")
    with pytest.raises(DataError, match=r"^Stream 's', a/b.csv, row 101: time column 'at' is NULL"):
        to_micros(column.slice(1), None, stream="s", name="at", first_row=100, where="a/b.csv")
    assert to_micros(column.slice(3), None, stream="s", name="at").tolist() == [4]


def test_chunks_are_read_as_one_column() -> None:
    chunks = pa.chunked_array([[1], [], [2, 3]], pa.int64())
    assert to_micros(chunks, "us", stream="s", name="at").tolist() == [1, 2, 3]
    assert to_micros(chunks.slice(1, 1), "us", stream="s", name="at").tolist() == [2]
    assert to_micros(pa.chunked_array([], pa.int64()), "us", stream="s", name="at").tolist() == []


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.date32(), pa.timestamp("us")])
def test_an_empty_column_has_no_times(kind: pa.DataType) -> None:
    assert micros([], kind, "day" if pa.types.is_date(kind) else "us") == []


# --- what a result's ts looks like --------------------------------------------------------------------------


def test_times_of_one_kind_keep_it() -> None:
    kinds = [time_kind(t) for t in (pa.timestamp("ns", "Europe/Rome"), pa.timestamp("s"), pa.int32(), pa.date32())]
    assert kinds == ["zoned", "naive", "count", "count"]
    assert joint_time_type(["zoned", "zoned"]) == pa.timestamp("us", "UTC")
    assert joint_time_type(["naive"]) == pa.timestamp("us")
    assert joint_time_type(["count"]) == pa.int64()


@pytest.mark.parametrize("kinds", [["zoned", "naive"], ["zoned", "count"], ["naive", "count", "naive"]])
def test_times_of_different_kinds_become_counts(kinds: list[str]) -> None:
    assert joint_time_type(kinds) == pa.int64()


# --- moments, types, lists ----------------------------------------------------------------------------------


def test_a_moment_is_a_count_or_an_aware_datetime() -> None:
    rome = dt.timezone(dt.timedelta(hours=2))
    assert micros_of(5) == micros_of(np.int32(5)) == 5
    assert micros_of(dt.datetime(1970, 1, 1, 2, 0, 0, 7, tzinfo=rome)) == 7
    assert micros_of(dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC)) == -SECOND


@pytest.mark.parametrize(
    "value",
    [1.0, True, None, "now", dt.date(2024, 1, 1), dt.datetime(2024, 1, 1), np.timedelta64(1, "ns")],  # noqa: DTZ001
)
def test_this_is_no_moment(value: object) -> None:
    with pytest.raises(QueryError, match="is no moment"):
        micros_of(value)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("bool", pa.bool_()), ("BOOLEAN", pa.bool_()), ("int8", pa.int8()), ("int16", pa.int16()),
        ("int32", pa.int32()), ("int64", pa.int64()), ("uint8", pa.uint8()), ("uint16", pa.uint16()),
        ("uint32", pa.uint32()), ("uint64", pa.uint64()), ("float32", pa.float32()), ("float64", pa.float64()),
        ("float", pa.float32()), ("double", pa.float64()), ("int", pa.int32()),
        ("bigint", pa.int64()), ("string", pa.string()),
        ("Text", pa.string()), ("binary", pa.binary()), ("bytes", pa.binary()), ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")), ("timestamp_ntz", pa.timestamp("us")),
        (pa.list_(pa.int8()), pa.list_(pa.int8())),
    ],
)  # fmt: skip
def test_a_type_can_be_written_as(word: object, kind: pa.DataType) -> None:
    assert arrow_type(word, "type") == kind
    assert arrow_schema({"x": word}, "schema") == pa.schema({"x": kind})


@pytest.mark.parametrize("value", ["", "number", "int128", "varchar(3)", int, None, 5, np.int64])
def test_this_is_no_type(value: object) -> None:
    with pytest.raises(QueryError, match="is no type"):
        arrow_type(value, "type")


@pytest.mark.parametrize(
    "value", [{}, [], ["x"], "x int", None, {1: "int8"}, {"": "int8"}, {"x": "int8", None: "int8"}]
)
def test_this_is_no_schema(value: object) -> None:
    with pytest.raises(QueryError, match="is no schema"):
        arrow_schema(value, "schema")


def test_a_schema_has_each_column_once() -> None:
    assert arrow_schema(pa.schema([]), "output") == pa.schema([])
    with pytest.raises(QueryError, match=r"^output= has two columns called 'x'"):
        arrow_schema(pa.schema([("x", pa.int8()), ("y", pa.int8()), ("x", pa.int8())]), "output")


def test_what_counts_as_text() -> None:
    assert all(is_text(kind) for kind in (pa.string(), pa.large_string(), pa.string_view()))
    assert not any(is_text(kind) for kind in (pa.binary(), pa.int8(), pa.dictionary(pa.int8(), pa.string())))


def test_several_things_or_one() -> None:
    assert listed(["a", "b"]) == listed(("a", "b")) == listed(iter("ab")) == ("a", "b")
    assert listed("ab") == ("ab",)
    assert listed({"a"}) == ({"a"},)  # a set is one thing, and no column's name
    assert listed(None) == (None,)


_TIMED = [
    *[(kind, unit) for unit in TIME_UNITS for kind in (pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64())],
    *[(pa.timestamp(unit, zone), unit if zone is None else None) for unit in ("s", "ms", "us", "ns")
      for zone in (None, "UTC", "Asia/Kolkata")],
    (pa.date32(), "day"), (pa.date64(), "day"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "unit"), _TIMED)
def test_times_at_both_ends_of_their_type_are_exact_or_refused(kind: pa.DataType, unit: str | None) -> None:
    """Against Python's integers, at the ends of the type and of event time; alone, and behind a usual one."""
    unsigned = pa.types.is_unsigned_integer(kind)
    bits = kind.bit_width if unsigned else kind.bit_width - 1
    low, high = (0 if unsigned else -(2**bits)), 2**bits - 1
    own = "day" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else getattr(kind, "unit", unit)
    size = Fraction(TIME_UNITS[own or "us"], 1_000)
    edges = {low, high, 0, *(int(end / size) for end in (TS_MIN, TS_MAX)), *(1_000 * end for end in (TS_MIN, TS_MAX))}
    storage = getattr(pa, f"{'u' if unsigned else ''}int{kind.bit_width}")()
    for count in sorted({edge + step for edge in edges for step in (-1_000, -1, 0, 1, 1_000)}):
        if not low <= count <= high:
            continue
        micros = count * size
        fits = micros.denominator == 1 and TS_MIN <= micros <= TS_MAX
        for counts in ([count], [0, count]):
            column = pa.array(counts, storage).view(kind) if storage != kind else pa.array(counts, kind)
            if fits:
                assert to_micros(column, unit, stream="s", name="ts").tolist()[-1] == micros
            else:
                with pytest.raises(DataError, match=rf"row {len(counts) - 1}: time column 'ts' is {count}"):
                    to_micros(column, unit, stream="s", name="ts")
