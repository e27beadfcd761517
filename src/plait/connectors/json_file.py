"""JSON lines: one object a line, UTF-8; read in blocks of one mebibyte, each cut at its last line end.

A field that a row lacks is NULL there, as in Spark, which leaves NULLs out when it writes. Types are those of the
schema, which is declared, or inferred from the first block of the first file that has rows and then pinned. Times are
ISO-8601 text: with a zone `timestamp[us, UTC]`, without `timestamp[us]`; a column never takes one for the other. The
texts "NaN", "Infinity" and "-Infinity" are numbers in float columns. Bytes are base64.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from plait.connectors import numbers
from plait.connectors.contract import Chunk
from plait.connectors.encoding import NON_FINITE, from_base64
from plait.connectors.files import DataFile
from plait.connectors.fit import Wanted, fit
from plait.errors import DataError
from plait.schema import is_bytes

BLOCK_BYTES: Final = 1 << 20
MAX_LINE_BYTES: Final = 16 << 20
_WORDS: Final = tuple(f'"{word}"'.encode() for word in NON_FINITE)
_DATE = r"\d{4}-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?"
#: What a column of text is taken for if all its values look so.
_SHAPES: Final = (
    (rf"^{_DATE}{_CLOCK}(Z|[+-]\d\d:?(\d\d)?)$", pa.timestamp("us", tz="UTC")),
    (rf"^{_DATE}{_CLOCK}$", pa.timestamp("us")),
    (rf"^{_DATE}$", pa.date32()),
)

Lines = list[tuple[int, bytes]]
Words = dict[str, dict[int, float]]  # column -> row -> value


def infer(file: DataFile) -> pa.Schema | None:
    """The types that the first block suggests; None if the file has no rows."""
    lines = next(_blocks(file), None)
    if lines is None:
        return None
    try:
        return _inferred(lines)
    except (pa.ArrowException, ValueError) as error:
        raise _located(file, lines, 0, _inferred, f"{file.name!r} has", error) from None


def read(file: DataFile, wanted: Wanted, batch_rows: int) -> Iterator[Chunk]:
    """The file's rows in the wanted schema; with a declared one, other fields are passed over."""
    row, schema = 0, wanted.schema

    def parse(lines: Lines) -> pa.RecordBatch:
        return fit(_parse(lines, wanted, file.path, row), schema, file.path, row)

    for lines in _blocks(file):
        try:
            batch = parse(lines)
        except DataError:
            raise  # it says where
        except (pa.ArrowException, ValueError) as error:
            raise _located(file, lines, row, parse, wanted.by, error) from None
        for start in range(0, batch.num_rows, batch_rows):
            yield Chunk(batch.slice(start, batch_rows), file.path, row + start)
        row += batch.num_rows


def _blocks(file: DataFile) -> Iterator[Lines]:
    """Whole lines that are not blank, with their numbers counted from 1."""
    number, rest = 1, b""
    try:
        with pa.input_stream(file.path, compression="gzip" if file.path.lower().endswith(".gz") else None) as raw:
            while block := raw.read(BLOCK_BYTES):
                *whole, rest = (rest + block).split(b"\n")
                if len(rest) > MAX_LINE_BYTES:
                    raise DataError(
                        f"File {file.path!r}: line {number + len(whole)} is longer than {MAX_LINE_BYTES} bytes",
                        why="each line holds one object",
                        do="Write one object a line (jq -c '.[]' makes that of an array)",
                    )
                lines = [(number + at, line) for at, line in enumerate(whole) if line.strip()]
                if lines:
                    yield lines
                number += len(whole)
    except OSError as error:
        raise DataError(f"JSON-lines file {file.path!r} can't be read", why=str(error), do="Write it again") from None
    if rest.strip():
        yield [(number, rest)]


# --- a block of lines as columns ----------------------------------------------------------------------------


def _parse(lines: Lines, wanted: Wanted, where: str, row: int) -> pa.RecordBatch:
    """A block of lines in the wanted columns; NaN and infinities, which JSON has no numbers for, are put in after parsing."""
    schema = wanted.schema
    # Arrow's own reading of times in JSON overlooks zones, so they come as text and are cast, which does not.
    text = {f.name for f in schema if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type) or is_bytes(f.type)}
    explicit = pa.schema([(f.name, pa.string() if f.name in text else f.type) for f in schema])
    mode = "error" if wanted.exact else "ignore"
    words: Words = {}
    try:
        table = _arrow(lines, explicit, mode)
    except pa.ArrowException:
        lines, words = _without_words(lines, [f.name for f in schema if pa.types.is_floating(f.type)])
        if not words:
            raise
        table = _arrow(lines, explicit, mode)
    _check_floats(table, lines, wanted.exact, where, row)
    table = _with_words(table, words)
    columns = []
    for field in schema:
        column = table.column(field.name).combine_chunks()
        if is_bytes(field.type):
            column = from_base64(column, f"JSON-lines file {where!r}: column {field.name!r}", row)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _arrow(lines: Lines, schema: pa.Schema | None, mode: str) -> pa.Table:
    """Arrow's reading of the lines; refused if a line holds none or several objects."""
    for _, line in lines:
        if line.lstrip(_BLANK).startswith(b"null"):  # Arrow's reader ends the process at such a line
            raise pa.ArrowInvalid("each line holds exactly one object")
        if len(line) > DEEPEST and _depth(line) > DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    block = b"\n".join(line for _, line in lines)
    block.decode()  # Arrow does not look, and text that is no UTF-8 would fail far from here
    table = pj.read_json(
        pa.BufferReader(block),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=mode),
    )
    if table.num_rows != len(lines):
        raise pa.ArrowInvalid("each line holds exactly one object")
    return table


#: Lists and objects inside of one another, at most. Arrow's reader calls itself for each: some ten thousand end the process.
DEEPEST: Final = 200
#: What may stand before an object: JSON's blanks, and a mark that says UTF-8.
_BLANK: Final = b" \t\r\xef\xbb\xbf"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.S)


def _depth(line: bytes) -> int:
    """How deep a line is nested, at least if it is no JSON."""
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return 0
    bare = np.frombuffer(_STRINGS.sub(b"", line), np.uint8)
    opens, closes = (bare == 0x5B) | (bare == 0x7B), (bare == 0x5D) | (bare == 0x7D)
    return int((np.cumsum(opens, dtype=np.int64) - np.cumsum(closes, dtype=np.int64)).max(initial=0))


def _inferred(lines: Lines) -> pa.Schema:
    """The columns that the lines suggest; text that looks like times or dates in every row is that."""
    try:
        table = _arrow(lines, None, "infer")
    except pa.ArrowException:
        lines, words = _without_words(lines, None)
        if not words:
            raise
        table = _arrow(lines, None, "infer")
    textual = [f.name for f in table.schema if pa.types.is_string(f.type) or pa.types.is_timestamp(f.type)]
    texts = _arrow(lines, pa.schema([(name, pa.string()) for name in textual]), "ignore")
    return pa.schema(
        [(f.name, _shape(texts.column(f.name)) if f.name in textual else _known(f.type)) for f in table.schema]
    )


def _known(kind: pa.DataType) -> pa.DataType:
    """A column of nothing but nulls is text, as in Spark."""
    return pa.string() if pa.types.is_null(kind) else kind


def _shape(column: pa.ChunkedArray) -> pa.DataType:
    """The type that all texts of a column look like."""
    for pattern, kind in _SHAPES:
        if pc.all(pc.match_substring_regex(column, pattern)).as_py():
            return kind
    return pa.string()


# --- floats: those that are no JSON numbers, and those that are other ones than stand there --------------------


def _without_words(lines: Lines, columns: list[str] | None) -> tuple[Lines, Words]:
    """The lines with null for "NaN" and the like in float columns (None: in any), and what stood there."""
    words: Words = {}
    cleaned: Lines = []
    for row, (number, line) in enumerate(lines):
        if any(word in line for word in _WORDS):
            pairs = _loaded(line)
            for at, (name, word) in enumerate(pairs):
                if (columns is None or name in columns) and type(word) is str and word in NON_FINITE:
                    words.setdefault(name, {})[row] = NON_FINITE[word]
                    pairs[at] = (name, None)
            line = _dumped(pairs).encode()
        cleaned.append((number, line))
    return cleaned, words


class _Digits(str):
    """A number as it stands there: Python's floats would have lost some of it."""


class _Pairs(list[tuple[str, Any]]):
    """An object: a name that stands twice is the reader's to refuse."""


def _loaded(line: bytes) -> _Pairs:
    """A line's object with its numbers as they stand there."""
    found = json.loads(line, parse_int=_Digits, parse_float=_Digits, parse_constant=_Digits, object_pairs_hook=_Pairs)
    if not isinstance(found, _Pairs):
        raise pa.ArrowInvalid("each line holds exactly one object")
    return found


def _dumped(value: Any) -> str:
    """An object as text again."""
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, _Pairs):
        return "{" + ",".join(f"{json.dumps(name)}:{_dumped(inner)}" for name, inner in value) + "}"
    return "[" + ",".join(map(_dumped, value)) + "]" if isinstance(value, list) else json.dumps(value)


def _with_words(table: pa.Table, words: Words) -> pa.Table:
    """The table with NaN and infinities where their words stood."""
    for name, values in words.items():
        index = table.schema.get_field_index(name)
        column = table.column(index).combine_chunks()
        mask = np.zeros(len(column), dtype=bool)
        mask[list(values)] = True
        patched = pc.replace_with_mask(column, mask, pa.array(list(values.values()), column.type))
        table = table.set_column(index, name, patched)
    return table


def _check_floats(table: pa.Table, lines: Lines, guessed: bool, where: str, first_row: int) -> None:
    """Hold floats that may have been changed against what stands there (`numbers`), inside lists and structs, too."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        column = column.combine_chunks()
        for row in _suspects(column, guessed):
            number, line = lines[row]
            what = f"JSON-lines file {where!r}, row {first_row + row} (line {number}): column {name!r}"
            _check_float(dict(_loaded(line)).get(name), column[row].as_py(), column.type, guessed, what)


def _suspects(column: pa.Array, guessed: bool) -> list[int]:
    """The rows whose floats may have been changed, at any depth."""
    kind = column.type
    found: list[int] = []
    if pa.types.is_floating(kind):
        found = numbers.suspects(column, guessed).tolist()
    elif pa.types.is_struct(kind):
        found = sorted({row for child in column.flatten() for row in _suspects(child, guessed)})
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        rows = pc.list_parent_indices(column).to_numpy()
        found = np.unique(rows[_suspects(column.flatten(), guessed)]).tolist()
    return found


def _check_float(given: Any, stored: Any, kind: pa.DataType, guessed: bool, what: str) -> None:
    """Refuse a float that is another number than stands in the line, at any depth."""
    if stored is None:
        return
    if pa.types.is_floating(kind):
        numbers.check(given, stored, kind, guessed, what)
    elif pa.types.is_struct(kind):
        for field in kind:
            _check_float(dict(given).get(field.name), stored[field.name], field.type, guessed, what)
    elif isinstance(given, list) and pa.types.is_nested(kind):
        for one, made in zip(given, stored, strict=True):
            _check_float(one, made, kind.value_type, guessed, what)


# --- what went wrong, and where -----------------------------------------------------------------------------


def _located(
    file: DataFile, lines: Lines, row: int, parse: Callable[[Lines], object], by: str, error: Exception
) -> DataError:
    """The error of the first line at fault: the shortest beginning of the block that can't be parsed ends with it."""
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(lines[:middle])
            low = middle
        except (pa.ArrowException, ValueError) as found:
            high, error = middle, found
    number, line = lines[high - 1]
    try:
        parse([lines[high - 1]])
    except (pa.ArrowException, ValueError) as found:
        error = found
    if line.lstrip()[:1] == b"[":
        return DataError(
            f"File {file.path!r}, line {number}, is a JSON array",
            why="JSON lines hold one object a line",
            do="Turn the array into that with jq -c '.[]'",
        )
    return DataError(
        f"JSON-lines file {file.path!r}, row {row + high - 1} (line {number}) can't be read: {_short(line)}",
        why=f"{_reason(error)}; {by} these columns",
        do="Mend the line, or declare the columns and their types with schema=",
    )


def _reason(error: Exception) -> str:
    """Arrow's words without the row, which would count from the block's beginning."""
    return str(error).removeprefix("JSON parse error: ").rsplit(" in row ", 1)[0].rstrip(".")


def _short(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= 100 else text[:97] + "..."
