"""What a stream's declaration holds: defaults, forms, and the columns it names."""

import dataclasses
import datetime as dt

import pyarrow as pa
import pytest

import plait
from plait import QueryError

TS = {"ts": pa.timestamp("us", "UTC")}


def test_defaults() -> None:
    stream = plait.stream("quotes")
    assert dataclasses.asdict(stream) == {
        "name": "quotes",
        "time": "ts",
        "unit": None,
        "source": None,
        "sources": None,
        "seq": "position",
        "disorder_us": 0,
        "late": "error",
        "behind": "error",
        "idle_after_us": None,
        "schema": None,
    }
    assert stream.source_column is None
    assert stream.seq_column is None
    assert stream.declared() is None


def test_a_stream_is_frozen_and_a_value() -> None:
    stream = plait.stream("quotes", source="venue", sources=["a", "b"], schema=TS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        stream.late = "drop"  # type: ignore[misc]
    same = plait.stream("quotes", source="venue", sources=("a", "b"), schema=pa.schema(TS))
    assert stream == same
    assert hash(stream) == hash(same)
    assert stream != plait.stream("quotes", source="venue", sources=["b", "a"], schema=TS)
    assert stream != plait.stream("quotes", source="venue", sources=["a", "b"])


def test_only_the_name_goes_by_position() -> None:
    with pytest.raises(TypeError):
        plait.stream("quotes", "ts")  # type: ignore[misc]


@pytest.mark.parametrize("disorder", ["250ms", dt.timedelta(milliseconds=250), 250_000])
def test_disorder_is_a_duration(disorder: object) -> None:
    assert plait.stream("quotes", disorder=disorder).disorder_us == 250_000


def test_idle_after_is_a_duration() -> None:
    assert plait.stream("quotes", idle_after="1s").idle_after_us == 1_000_000


@pytest.mark.parametrize(
    ("sources", "declared"),
    [
        (3, (0, 1, 2)),
        (["b", "a"], ("b", "a")),
        ([7, -1], (7, -1)),
        (("a",), ("a",)),
        (iter("ab"), ("a", "b")),
        ({"a": 1, "b": 2}, ("a", "b")),
    ],
)
def test_sources_are_declared_in_order(sources: object, declared: tuple[object, ...]) -> None:
    assert plait.stream("quotes", sources=sources).declared() == declared  # type: ignore[arg-type]


def test_a_source_is_a_column_or_a_marker() -> None:
    assert plait.stream("quotes", source="venue").source_column == "venue"
    assert plait.stream("quotes", source=plait.FILE).source_column is None
    assert plait.stream("quotes", source=plait.PARTITION).source_column is None


def test_seq_is_a_rule_or_a_column() -> None:
    assert plait.stream("quotes", seq="content").seq_column is None
    assert plait.stream("quotes", seq="offset").seq_column == "offset"
    assert plait.stream("quotes", seq="offset", late="drop").late == "drop"


@pytest.mark.parametrize("name", ["l", "r", "left", "right", "L", "RIGHT"])
def test_the_sides_names_are_taken(name: str) -> None:
    with pytest.raises(QueryError, match="a side of every join"):
        plait.stream(name)


def test_a_stream_meets_its_schema() -> None:
    stream = plait.stream("quotes", source="venue", seq="offset")
    for venue in (pa.string(), pa.large_string(), pa.int16(), pa.dictionary(pa.int8(), pa.string())):
        stream.check(pa.schema(TS | {"venue": venue, "offset": pa.int64(), "payload": pa.list_(pa.int8())}))


def test_a_declared_schema_is_met_exactly() -> None:
    stream = plait.stream("quotes", schema=TS | {"x": "int8"})
    stream.check(pa.schema(TS | {"x": pa.int8()}))
    stream.check(pa.schema(TS | {"x": pa.int8()}, metadata={"written by": "someone"}))
    with pytest.raises(QueryError, match="'x' is declared int8 and given as string"):
        stream.check(pa.schema(TS | {"x": pa.string()}))


def test_near_misses_are_named() -> None:
    with pytest.raises(QueryError, match=r"Did you mean 'time'\?"):
        plait.stream("quotes", time="times").check(pa.schema({"time": pa.int64()}))
