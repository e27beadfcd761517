"""A wrong argument or row, the error it must give, and words that must stand in each part of the message."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

import plait
from plait import PlaitError


@dataclass(frozen=True)
class Refusal:
    """`fact` must name the value at fault; a message also says why, or what to do, or both."""

    build: Callable[[], object]
    error: type[PlaitError]
    fact: str
    why: str = ""
    do: str = ""


quotes = plait.stream("quotes", unit="us")
trades = plait.stream("trades", unit="us")

QUOTES = pa.schema(
    {
        "ts": pa.int64(),
        "x": pa.int32(),
        "y": pa.float32(),
        "s": pa.string(),
        "d": pa.bool_(),
        "tags": pa.list_(pa.int8()),
    }
)
TRADES = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.float64(), "s": pa.string(), "x": pa.int64()})
SCHEMAS = {"quotes": QUOTES, "trades": TRADES}


def rows(schema: pa.Schema, *values: dict[str, object]) -> pa.RecordBatch:
    """A batch of the given rows; columns that a row does not mention are NULL."""
    return pa.RecordBatch.from_pylist(list(values), schema=schema)
