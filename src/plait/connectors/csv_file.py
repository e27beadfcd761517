"""CSV files: a header line, UTF-8, fields quoted with `"` where they need it.

Types are those of the schema, which is declared, or inferred from the first block of the first file that has rows and
then pinned: a later field that does not fit is an error that names file, row and line. An ISO-8601 time with a zone is
`timestamp[us, UTC]`, one without is `timestamp[us]`. An empty field is NULL, except in a text column, where it is ''.
With `null_values` given, exactly those texts are NULL, in text columns too, where they stand without quotes. `NaN` is a
number, not NULL. Bytes are written in base64.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pc

from plait.connectors import numbers
from plait.connectors.contract import Chunk
from plait.connectors.encoding import from_base64
from plait.connectors.files import DataFile
from plait.connectors.fit import Wanted, check_fit, check_unique, fit
from plait.errors import DataError
from plait.schema import is_bytes

#: Arrow reads up to 32 blocks ahead, for every lane that is open: larger ones are no faster and hold more memory.
BLOCK_BYTES: Final = 1 << 18
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?(?:CSV conversion error to ([^:]*): )?(.*)", re.S)
_PARSE = re.compile(r"CSV parse error: (?:Row #(\d+): )?(Expected \d+ columns, got \d+)(?:: (.*))?", re.S)


@dataclass(frozen=True)
class CsvOptions:
    """What separates fields, and which texts mean NULL. None: an empty field, except in text columns."""

    delimiter: str = ","
    null_values: Sequence[str] | None = None


def header(file: DataFile, options: CsvOptions) -> list[str]:
    """The columns' names: the first record of the file."""
    try:
        with _text(file) as lines:
            names = next(csv.reader(_few(lines), delimiter=options.delimiter), [])
        ",".join(names).encode()
    except (UnicodeEncodeError, csv.Error, OSError) as error:
        raise DataError(
            f"CSV file {file.path!r} has no readable header", why=str(error), do="Save it as UTF-8, whole"
        ) from None
    if not names:
        raise DataError(
            f"CSV file {file.path!r} has no header line" + (" (0 bytes)" if file.size == 0 else ""),
            why="the first line names the columns",
            do="Write the header even if there are no rows, or take the file out of the folder",
        )
    check_unique(pa.schema([(name, pa.string()) for name in names]), f"CSV file {file.path!r}")
    return names


def _few(lines: io.TextIOWrapper) -> Iterator[str]:
    """Lines of a header: no more of them than a block, since a small file may be large inside."""
    left = BLOCK_BYTES
    while line := lines.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise csv.Error(f"it is longer than {BLOCK_BYTES} characters")
        yield line


def infer(file: DataFile, options: CsvOptions) -> pa.Schema | None:
    """The types that the first block suggests; None if the file has no rows. Always nullable, times in microseconds."""
    names = header(file, options)
    try:
        with _reader(file, None, options) as reader:
            batch = reader.read_next_batch()
    except StopIteration:
        return None
    except (pa.ArrowInvalid, OSError) as error:
        if _no_rows(error):
            return None
        raise _refused(file, names, error, options, f"{file.name!r} has") from None
    if batch.num_rows == 0:
        return None
    return pa.schema([(field.name, _pinned(file, field)) for field in batch.schema])


def _pinned(file: DataFile, field: pa.Field) -> pa.DataType:
    """The type that a column has from its first block on."""
    if pa.types.is_null(field.type):
        return pa.string()  # nothing in the whole block: as Spark has it, text
    if pa.types.is_timestamp(field.type):
        return pa.timestamp("us", tz=field.type.tz)
    if pa.types.is_binary(field.type):
        raise DataError(
            f"CSV file {file.path!r}: column {field.name!r} holds bytes that are not UTF-8",
            why="CSV is read as UTF-8",
            do="Convert the file (iconv -t UTF-8)",
        )
    return field.type


def read(file: DataFile, wanted: Wanted, batch_rows: int, options: CsvOptions) -> Iterator[Chunk]:
    """The file's rows in the wanted schema."""
    names, schema = header(file, options), wanted.schema
    given = [(name, schema.field(name).type if name in schema.names else pa.string()) for name in names]
    check_fit(pa.schema(given), wanted, f"CSV file {file.path!r}")
    row = 0
    try:
        texts = _Texts(file, wanted, options)
        with _reader(file, schema, options) as reader:
            for block in reader:
                texts.check(block, row)
                batch = fit(_decoded(block, schema, file.path, row), schema, file.path, row)
                for start in range(0, batch.num_rows, batch_rows):
                    yield Chunk(batch.slice(start, batch_rows), file.path, row + start)
                row += batch.num_rows
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"CSV file {file.path!r} can't hold what {wanted.by}", why=str(error), do="Use Parquet or JSON lines"
        ) from None
    except (pa.ArrowInvalid, OSError) as error:
        if not _no_rows(error):
            raise _refused(file, names, error, options, wanted.by) from None


def _reader(file: DataFile, schema: pa.Schema | None, options: CsvOptions) -> pc.CSVStreamingReader:
    """Arrow's reader of the file, block by block; bytes are read as text."""
    kinds = None if schema is None else {f.name: pa.string() if is_bytes(f.type) else f.type for f in schema}
    return pc.open_csv(
        pa.input_stream(file.path, compression=_compression(file)),
        # Threads would lose the row numbers of errors; the reader is sequential anyway.
        read_options=pc.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
        parse_options=pc.ParseOptions(delimiter=options.delimiter, newlines_in_values=True),
        convert_options=pc.ConvertOptions(
            column_types=kinds,
            include_columns=None if schema is None else schema.names,
            null_values=[""] if options.null_values is None else list(options.null_values),
            strings_can_be_null=options.null_values is not None,
            quoted_strings_can_be_null=False,
        ),
    )


class _Texts:
    """What stands in the file for a block's floats that may have been changed (`numbers`).

    The file is read once more for it, as text, from the first such block on: blocks are cut at the same rows.
    """

    def __init__(self, file: DataFile, wanted: Wanted, options: CsvOptions) -> None:
        self._file, self._guessed, self._options = file, wanted.exact, options
        self._floats = [field for field in wanted.schema if pa.types.is_floating(field.type)]
        self._behind = 0
        self._reader: pc.CSVStreamingReader | None = None

    def check(self, block: pa.RecordBatch, first_row: int) -> None:
        """Hold a block's floats against what stands in the file."""
        self._behind += 1
        for field in self._floats:
            column = block.column(field.name)
            rows = numbers.suspects(column, self._guessed)
            if len(rows):
                text = self._block().column(field.name)
                for row in rows.tolist():
                    self._judge(field, text[row].as_py(), column[row].as_py(), first_row + row)

    def _block(self) -> pa.RecordBatch:
        """The same block as text."""
        if self._reader is None:
            as_text = pa.schema([(field.name, pa.string()) for field in self._floats])
            self._reader = _reader(self._file, as_text, self._options)
        while self._behind:
            self._text = self._reader.read_next_batch()
            self._behind -= 1
        return self._text

    def _judge(self, field: pa.Field, text: str, stored: float, row: int) -> None:
        """Judge one number. Its line is looked up only if it is at fault, since that reads the file again."""
        try:
            numbers.check(text, stored, field.type, self._guessed, "It")
        except DataError:
            what = f"CSV file {_place(self._file, str(row + 2), self._options)}: column {field.name!r}"
            numbers.check(text, stored, field.type, self._guessed, what)


def _decoded(block: pa.RecordBatch, schema: pa.Schema, where: str, row: int) -> pa.RecordBatch:
    """The block with columns of bytes decoded."""
    for index, field in enumerate(schema):
        if is_bytes(field.type):
            values = from_base64(block.column(index), f"{where}: column {field.name!r}", row)
            block = block.set_column(index, field.name, values)
    return block


def _text(file: DataFile) -> io.TextIOWrapper:
    """The file as text, to find names and line numbers in it."""
    raw = pa.input_stream(file.path, compression=_compression(file))
    # Bytes that are no UTF-8 are kept as they are here: Arrow judges the values, this only finds names and lines.
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _compression(file: DataFile) -> str | None:
    return "gzip" if file.path.lower().endswith(".gz") else None


# --- what went wrong, and where -----------------------------------------------------------------------------


def _no_rows(error: Exception) -> bool:
    return "Empty CSV file" in str(error)


def _refused(file: DataFile, names: list[str], error: Exception, options: CsvOptions, by: str) -> DataError:
    """Arrow's error in plait's words, with file, row, line and column."""
    message = str(error)
    if found := _CONVERSION.match(message):
        column, record, kind, fact = found.groups()
        fact = f"is no {kind}: {fact}" if kind else f"does not fit its type: {fact}"
        return DataError(
            f"CSV file {_place(file, record, options)}: column {names[int(column)]!r} {fact}",
            why=f"{by} it so" + ("" if by == "schema= declares" else " (as its first rows show it)"),
            do="Mend the row, or declare the column's type with schema=",
        )
    if found := _PARSE.match(message):
        record, fact, row = found.groups()
        return DataError(
            f"CSV file {_place(file, record, options)}: {fact[0].lower()}{fact[1:]}" + (f": {row[:80]}" if row else ""),
            why="every row has a field for each column of the header",
            do="Mend the row (a field that holds the delimiter or a quote needs quotes)",
        )
    if "straddl" in message:
        return DataError(
            f"CSV file {file.path!r} has a row of more than {BLOCK_BYTES} bytes",
            why="most often a quote is opened and never closed",
            do="Look for an odd number of quotes in a row; as JSON lines or Parquet a row may be longer",
        )
    return DataError(f"CSV file {file.path!r} can't be read", why=message, do="Write it again, or take it out")


def _place(file: DataFile, record: str | None, options: CsvOptions) -> str:
    """File, row (counted from 0, without the header) and line (from 1), found by reading up to it once more."""
    if record is None:
        return repr(file.path)
    line = None
    with suppress(OSError, csv.Error), _text(file) as lines:
        line = _line(csv.reader(lines, delimiter=options.delimiter), int(record))
    return f"{file.path!r}, row {int(record) - 2}" + (f" (line {line})" if line else "")


def _line(reader: Any, record: int) -> int | None:
    """The line on which a record starts; the reader skips blank lines, as Arrow does, and knows of quoted ones."""
    start = 1
    for fields in reader:
        record -= bool(fields)
        if record == 0:
            return start
        start = reader.line_num + 1
    return None
