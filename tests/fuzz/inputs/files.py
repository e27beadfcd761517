"""Doors for files of rows: CSV, JSON lines, Parquet; torn, flipped, with sizes that lie, small ones that are large inside."""

# Tables of values stand as they are read: many on a line.
# ruff: noqa: E501  # tables of inputs, a line each
# fmt: off

from __future__ import annotations

import datetime as dt
import decimal
import functools
import gzip
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz.inputs import hammer, mutate
from tests.fuzz.inputs.hammer import Kind

import plait
from plait.connectors import folder

DECLARED = pa.schema([
    ("ts", pa.int64()), ("x", pa.int32()), ("y", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us", tz="UTC")),
    ("z", pa.binary()), ("d", pa.decimal128(9, 2)), ("b", pa.bool_()), ("f", pa.float32()), ("u", pa.uint64()), ("q", pa.date32()),
])  # fmt: skip
NESTED = pa.schema([("ts", pa.int64()), ("l", pa.list_(pa.float64())), ("o", pa.struct([("x", pa.int64()), ("s", pa.string())]))])


@functools.cache
def streams() -> dict[str, plait.Stream]:
    """By how much is declared of the columns."""
    return {
        "nothing": plait.stream("s", unit="s"),
        "all": plait.stream("s", unit="s", schema=DECLARED),
        "some": plait.stream("s", unit="s", schema={"ts": "int64", "x": "int64"}),
        "nested": plait.stream("s", unit="s", schema=NESTED),
        "sources": plait.stream("s", unit="s", source="s"),
    }


def _take(given: tuple[str, str, bytes]) -> None:
    """A file under a name, read to its end as a stream's rows."""
    name, declared, data = given
    with open(name, "wb") as out:
        out.write(data)
    feed = folder.feed(streams()[declared], name, batch_rows=64)
    for lane in feed.lanes:
        for chunk in lane.read():
            chunk.batch.validate(full=True)
        if lane.coded is not None:
            for chunk in lane.coded(frozenset(f.name for f in feed.schema if pa.types.is_string(f.type))):
                chunk.batch.validate(full=True)


def _door(name: str, made: Callable[[random.Random], bytes], ending: str, limit_mb: int = hammer.LIMIT_MB) -> Kind:
    def make(rng: random.Random) -> tuple[str, str, bytes]:
        data, how = made(rng), rng.choice(("nothing", "nothing", "nothing", "nothing", "all", "some", "nested", "sources"))
        if ending == ".parquet" or rng.random() > 0.05:
            return f"f{ending}", how, data
        pressed = gzip.compress(data, 1, mtime=0)
        return f"f{ending}.gz", how, mutate.data(rng, [pressed]) if rng.random() < 0.5 else pressed

    return Kind(name, make, _take, limit_mb=limit_mb)


# --- CSV ----------------------------------------------------------------------------------------------------

CSV = (
    b"ts,x,y,s,t,z,d,b,f,u,q\n1,2,0.5,a,2024-01-01T00:00:00Z,AAE=,1.25,true,1.5,7,2024-02-29\n2,,,,,,,,,,\n",
    b'ts,x,s\n1,5,"a,b"\n2,6,"line\nline"\n3,7,"q""q"\n',
    b"ts,x\r\n1,1\r\n2,2\r\n", b"\xef\xbb\xbfts,x,y\n1,1,NaN\n2,2,inf\n3,3,-Infinity\n", b"ts\n1\n", b"ts,s\n1,x\n5,y\n",
    b"ts,x,y\n" + b"".join(b"%d,%d,%d.5\n" % (i, i * 7, i) for i in range(40)), "ts,s\n1,é名😀\n".encode(),
    b"ts,l,o\n1,2,3\n", b"ts,s,y\n1,12345678901234567890,9007199254740993\n2,1,1.0\n",
)  # fmt: skip
CSV_WORDS = (
    *(b",", b"\n", b"\r", b'"', b'""', b",,,,", b"\0", b"\xff", b"\xed\xa0\x80", b"NaN", b"inf", b"1e400", b"null", b"NULL", b"true", b"1/0", b"\t"),
    *(b"2024-01-01", b"99999-01-01T00:00:00Z", b"24:00:00", b"0x1F", b"9" * 25, b"-9223372036854775808", b"====", b"AAE", b"1.005", b"1e10"),
    *(b"ts", b"x", b"y", b"\xef\xbb\xbf", b"," * 500, b'"' + b"a" * 300_000 + b'"', b"a" * 300_000, b"a," * 150_000),
)


def _csv(rng: random.Random) -> bytes:
    return mutate.data(rng, CSV, CSV_WORDS)


# --- JSON lines ---------------------------------------------------------------------------------------------

OBJECTS: tuple[Any, ...] = (
    {"ts": 1, "x": 2, "y": 0.5, "s": "a", "t": "2024-01-01T00:00:00Z", "z": "AAE=", "d": 1.25, "b": True, "f": 1.5, "u": 7, "q": "2024-02-29"},
    {"ts": 2, "l": [1.5, None, 2e300], "o": {"x": 1, "s": "b"}},
    {"ts": 3, "x": None, "y": "NaN", "s": None},
    {"ts": 4, "s": "é\u0000\"\\", "x": 9},
    {"ts": 5, "y": "-Infinity", "l": [], "o": None},
    {"ts": 6, "l": ["Infinity", 1], "o": {"x": None}},
)  # fmt: skip
JSON_WORDS = (
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\u0000", b"\\ud800", b"\\x", b"\xff", b"\0", b"\n", b"\r\n", b"NaN", b"Infinity", b"nul", b"1e400"),
    *(b'"ts"', b'"x":', b'{"ts":1}', b'"NaN"', b'"Infinity"', b"-", b"01", b"1.", b"1e", b"9" * 25, b"9" * 5_000, b"0." + b"0" * 400 + b"1", b"//", b"/*"),
    *(b"[" * 200, b'{"a":' * 200, b"[" * 5_000, b'{"a":' * 20_000, b"[" * 100_000, b'"ts":1,"ts":2', b'""', b"\xef\xbb\xbf", b"[[[1]]]", b'"9007199254740993"'),
)


def _json(rng: random.Random) -> bytes:
    rows = [rng.choice(OBJECTS) for _ in range(rng.choice((1, 1, 2, 5, 30)))]
    if rng.random() < 0.5:
        rows = [mutate.tree(rng, row) if rng.random() < 0.5 else row for row in rows]
    text = "\n".join(json.dumps(row) for row in rows).encode() + rng.choice((b"", b"\n"))
    return text if rng.random() < 0.4 else mutate.data(rng, [text], JSON_WORDS)


# --- Parquet ------------------------------------------------------------------------------------------------


@functools.cache
def parquet_files() -> tuple[bytes, ...]:
    """Small files of every kind of page that writers make: the bytes of all of them are fuzzed."""
    rows = pa.table({
        "ts": pa.array(range(20)), "x": pa.array([i * 7 % 5 for i in range(20)], pa.int32()),
        "y": pa.array([None if i % 4 == 0 else i / 3 for i in range(20)]), "s": pa.array([f"s{i % 3}" for i in range(20)]),
        "t": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)] * 20, pa.timestamp("us", tz="UTC")),
        "z": pa.array([bytes([i]) * i for i in range(20)]), "d": pa.array([decimal.Decimal("1.25")] * 20, pa.decimal128(9, 2)),
        "b": pa.array([i % 2 == 0 for i in range(20)]), "f": pa.array([0.5] * 20, pa.float32()), "u": pa.array(range(20), pa.uint64()),
        "q": pa.array([dt.date(2024, 2, 29)] * 20),
    })  # fmt: skip
    deep = pa.table({"ts": [1, 2, 3], "l": pa.array([[1.0, None], [], None], pa.list_(pa.float64())),
                     "o": pa.array([{"x": 1, "s": "a"}, None, {"x": None, "s": "b"}], NESTED.field("o").type)})  # fmt: skip
    plain = rows.select(["ts", "x", "y", "s"])
    ways: list[tuple[pa.Table, dict[str, Any]]] = [
        (rows, {}), (deep, {}), (plain, {"compression": "none"}), (plain, {"compression": "gzip"}), (plain, {"compression": "zstd"}),
        (plain, {"compression": "lz4"}), (plain, {"compression": "brotli"}), (plain, {"use_dictionary": False, "compression": "none"}),
        (plain, {"data_page_version": "2.0"}), (plain, {"row_group_size": 5, "data_page_size": 1}), (plain, {"write_page_checksum": True}),
        (rows.select(["ts", "t"]), {"use_deprecated_int96_timestamps": True, "compression": "none"}), (deep, {"compression": "none", "use_dictionary": False}),
        (rows.select(["ts", "x"]), {"use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED", "compression": "none"}),
        (rows.select(["s", "ts"]), {"use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY"}, "compression": "none"}),
        (rows.select(["y", "ts"]), {"use_dictionary": False, "column_encoding": {"y": "BYTE_STREAM_SPLIT"}, "compression": "none"}),
        (rows.select(["s", "ts"]), {"use_dictionary": False, "column_encoding": {"s": "DELTA_LENGTH_BYTE_ARRAY"}, "compression": "none"}),
        (plain.slice(0, 0), {}), (rows, {"compression": "none", "store_schema": False}), (rows, {"write_page_index": True}),
    ]  # fmt: skip
    found = []
    for table, how in ways:
        out = io.BytesIO()
        pq.write_table(table, out, **how)
        found.append(out.getvalue())
    return tuple(found)


#: A page may say that it has 2 GiB, and Arrow makes room for it before it reads: docs/security.md.
PAGE_MB = 2_400
PARQUET_WORDS = (b"PAR1", b"\x15\x00", b"\x15\x80\x80\x80\x80\x10", b"\xff\xff\xff\xff\x0f", b"\x80" * 10, b"\x18\x80\x80\x80\x80\x08", b"ARROW:schema", b"\0" * 64)


def _parquet(rng: random.Random) -> bytes:
    """Changed anywhere, or in the footer alone, or in the pages alone: each is another part of the reader."""
    whole = rng.choice(parquet_files())
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    match rng.randrange(4):
        case 0:
            return mutate.data(rng, [whole], PARQUET_WORDS)
        case 1:
            less = mutate.data(rng, [whole[footer:-8]], PARQUET_WORDS)
            size = len(less) if rng.random() < 0.9 else rng.choice((0, 1, 2**31 - 1, 2**32 - 1, len(whole)))
            return whole[:footer] + less + size.to_bytes(4, "little") + b"PAR1"
    changed = mutate.data(rng, [whole[:footer]], PARQUET_WORDS)[:footer].ljust(footer, b"\0")
    return changed + whole[footer:]


KINDS = (_door("csv", _csv, ".csv"), _door("jsonl", _json, ".jsonl"), _door("parquet", _parquet, ".parquet", PAGE_MB))
