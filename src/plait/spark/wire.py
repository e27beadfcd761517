"""What travels between pack, cell and collect: rows `(cell int, body binary)`, a body being a header and Arrow batches.

A body is the length of its header, the header as JSON, and an Arrow stream. One packed row stands for many tuples,
because rows cost tens of microseconds each on the way into a stateful Python operator and bytes cost next to nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

PACKED = "cell int, body binary"
OUTPUT = "kind int, body binary"


def columns(onward: bool) -> list[str]:
    """The columns of what a cell puts out: packed rows for the next operator's cells, or for the user."""
    return ["cell" if onward else "kind", "body"]


#: Kinds of output rows of a cell.
RESULTS, LATE, PROGRESS = 0, 1, 2

#: Keys repeat a file's path in every row; compressed they hardly weigh on the sockets and the state store between.
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")

TS, KEY, SPLIT, LATE_FLAG, HASH = "_plait_ts", "_plait_key", "_plait_split", "_plait_late", "_plait_hash"

#: Whether a cell is the one that shows a tuple, should it be dropped, where that is told tuple by tuple.
OWN = "_plait_own"


def body(header: dict[str, Any], rows: pa.RecordBatch | pa.Table | None = None) -> bytes:
    head = json.dumps(header).encode()
    sink = pa.BufferOutputStream()
    sink.write(len(head).to_bytes(8, "little"))
    sink.write(head)
    if rows is not None:
        with pa.ipc.new_stream(sink, rows.schema, options=_PACKED) as writer:
            writer.write(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def wrapped(kind: int, data: bytes) -> bytes:
    """What a cell put out for the user, on its way through the cells of the next operator."""
    return body({"pass": kind}) + data


def rest(data: bytes) -> bytes:
    """What follows the header."""
    return data[8 + int.from_bytes(data[:8], "little") :]


def header(data: bytes) -> dict[str, Any]:
    size = int.from_bytes(data[:8], "little")
    parsed: dict[str, Any] = json.loads(data[8 : 8 + size])
    return parsed


def rows(data: bytes) -> pa.Table | None:
    start = 8 + int.from_bytes(data[:8], "little")
    if start == len(data):
        return None
    return pa.ipc.open_stream(pa.py_buffer(data)[start:]).read_all()


def table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_PACKED) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def pair(one: bytes, other: bytes) -> bytes:
    return len(one).to_bytes(8, "little") + one + other


def unpair(data: bytes) -> tuple[pa.Buffer, pa.Buffer]:
    whole = pa.py_buffer(data)
    cut = 8 + int.from_bytes(whole[:8].to_pybytes(), "little")
    return whole[8:cut], whole[cut:]


def table_of(data: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
