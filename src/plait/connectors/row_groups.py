"""Groups of rows of a Parquet file, encoded by several threads: the same bytes that one writer makes of them.

Pressing columns is most of what writing a file costs, and Arrow's writer does it one column after the other. A group of rows
knows nothing of those before it but where it begins. So each is written by a thread into a small file of its own, in memory.
Their pages follow one another in the file that is made; of their footers one is made, in which places are counted from there.

A footer is a struct of Thrift's compact protocol. It is read as numbers, bytes, lists and structs, whatever they mean, and
written back; only places, the number of rows and groups' numbers are changed (by Parquet's own `parquet.thrift`).

Where it runs: in the thread that writes a sink, with a pool of its own (`sinks`). Held by
tests/connectors/test_row_groups.py: the file is, byte for byte, that of `pyarrow.parquet.ParquetWriter`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

import pyarrow as pa

_MAGIC = b"PAR1"

#: A struct's fields: number, type, value. A list: the type of its values, and they.
Struct = list[tuple[int, int, Any]]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

# Fields of Parquet's structs, by number.
_FOOTER_ROWS, _FOOTER_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_AT, _GROUP_NUMBER = 1, 5, 7
_COLUMN_AT, _COLUMN_ABOUT = 2, 3
_PAGES_AT = (9, 10, 11)  # data, index and dictionary pages
#: What no group has as it is written here: places outside of its own pages.
_ELSEWHERE = {"column": (4, 5, 6, 7), "about": (14,)}


class GroupsOnThreads:
    """A Parquet file, a group of rows after the other.

    Args:
        out: The open file.
        encode: Writes one group, or none, as a file of its own.
        threads: How many encode. So many groups, and as many finished ones, are in memory.
    """

    def __init__(self, out: BinaryIO, encode: Callable[[pa.Table | None], pa.Buffer], threads: int) -> None:
        self._out, self._encode, self._threads = out, encode, threads
        self._pool = ThreadPoolExecutor(threads)
        self._underway: deque[Future[pa.Buffer]] = deque()
        self._footer: Struct | None = None
        self._groups: list[Struct] = []
        self._rows = self._at = 0

    def group(self, rows: pa.Table) -> None:
        """One group. What a thread failed with is raised here, or at the end."""
        self._underway.append(self._pool.submit(self._encode, rows))
        while len(self._underway) > self._threads:
            self._append(self._underway.popleft().result())

    def finish(self) -> None:
        """The groups that are underway, and the footer."""
        while self._underway:
            self._append(self._underway.popleft().result())
        if self._footer is None:
            self._out.write(self._encode(None))
        else:
            changed = {_FOOTER_ROWS: self._rows, _FOOTER_GROUPS: (_STRUCT, self._groups)}
            footer = struct_bytes([(number, kind, changed.get(number, value)) for number, kind, value in self._footer])
            self._out.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        self.close()

    def close(self) -> None:
        """Let go of the threads. Groups that are not written are lost."""
        self._pool.shutdown(cancel_futures=True)

    def _append(self, file: pa.Buffer) -> None:
        """The pages of a file with one group, and what its footer says of them."""
        begins = file.size - 8 - int.from_bytes(file[file.size - 8 : file.size - 4].to_pybytes(), "little")
        footer = struct_of(file[begins : file.size - 8].to_pybytes())
        if self._footer is None:
            self._footer, self._at = footer, len(_MAGIC)
            self._out.write(_MAGIC)
        ((_, (group,)),) = (value for number, _, value in footer if number == _FOOTER_GROUPS)
        self._groups.append(_moved(group, self._at - len(_MAGIC), len(self._groups)))
        self._rows += next(value for number, _, value in footer if number == _FOOTER_ROWS)
        self._out.write(file[len(_MAGIC) : begins])
        self._at += begins - len(_MAGIC)


def _moved(group: Struct, by: int, number: int) -> Struct:
    """What a footer says of a group, as the group of that number, so many bytes further on."""
    found: Struct = []
    for name, kind, value in group:
        if name == _GROUP_COLUMNS:
            value = value[0], [_column(column, by) for column in value[1]]
        elif name == _GROUP_AT:
            value += by
        elif name == _GROUP_NUMBER:
            value = number
        found.append((name, kind, value))
    return found


def _column(column: Struct, by: int) -> Struct:
    """The same of one column of it."""
    found: Struct = []
    for name, kind, value in column:
        assert name not in _ELSEWHERE["column"], "a group with pages that lie behind all groups"
        if name == _COLUMN_AT:
            value = value and value + by  # writers that keep to the newest text write 0
        elif name == _COLUMN_ABOUT:
            assert not any(each in _ELSEWHERE["about"] for each, _, _ in value)
            value = [(each, k, v + by if each in _PAGES_AT else v) for each, k, v in value]
        found.append((name, kind, value))
    return found


# --- Thrift's compact protocol --------------------------------------------------------------------------------


def struct_of(data: bytes) -> Struct:
    """A struct, as it lies in a footer."""
    found, end = _read_struct(data, 0)
    assert end == len(data), "more than one struct"
    return found


def struct_bytes(fields: Struct) -> bytes:
    """The same back as bytes."""
    out = bytearray()
    _write_struct(fields, out)
    return bytes(out)


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    found: Struct = []
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            number += step
        else:
            number, at = _read_int(data, at)
        value, at = (kind == _TRUE, at) if kind in (_TRUE, _FALSE) else _read(data, at, kind)
        found.append((number, kind, value))
    return found, at + 1


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    """A value. Within lists booleans are a byte each."""
    if kind in (_I16, _I32, _I64):
        return _read_int(data, at)
    if kind == _STRUCT:
        return _read_struct(data, at)
    if kind in (_LIST, _SET):
        size, inner = data[at] >> 4, data[at] & 15
        at += 1
        if size == 15:
            size, at = _read_count(data, at)
        values = []
        for _ in range(size):
            value, at = _read(data, at, inner)
            values.append(value)
        return (inner, values), at
    if kind == _BINARY:
        size, at = _read_count(data, at)
        return data[at : at + size], at + size
    size = {_TRUE: 1, _FALSE: 1, _BYTE: 1, _DOUBLE: 8}[kind]  # a footer has no maps
    return data[at : at + size], at + size


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    found = shift = 0
    while True:
        found |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return found, at


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    """A number that may be negative: 0, -1, 1, -2 ... are counted as 0, 1, 2, 3 ..."""
    count, at = _read_count(data, at)
    return (count >> 1) ^ -(count & 1), at


def _write_struct(fields: Struct, out: bytearray) -> None:
    before = 0
    for number, kind, value in fields:
        if 0 < number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            _write_count(number << 1, out)
        before = number
        if kind not in (_TRUE, _FALSE):
            _write(value, kind, out)
    out.append(0)


def _write(value: Any, kind: int, out: bytearray) -> None:
    if kind in (_I16, _I32, _I64):
        _write_count(value << 1 if value >= 0 else ~(value << 1), out)
    elif kind == _STRUCT:
        _write_struct(value, out)
    elif kind in (_LIST, _SET):
        inner, values = value
        out.append(min(len(values), 15) << 4 | inner)
        if len(values) >= 15:
            _write_count(len(values), out)
        for each in values:
            _write(each, inner, out)
    else:
        if kind == _BINARY:
            _write_count(len(value), out)
        out += value


def _write_count(value: int, out: bytearray) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
