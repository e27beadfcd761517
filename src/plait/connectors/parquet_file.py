"""Parquet files: footers are read when the feed is made, pages when it is pulled.

A missing column, another type or a cut-off file is therefore found before the first row of the first file is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from plait.connectors.contract import Chunk
from plait.connectors.files import DataFile
from plait.connectors.fit import fit
from plait.errors import DataError

_PAGE_BUFFER = 1 << 20
#: Bytes a value and bytes besides, up to which a column is one of codes.
_CODE, _FEW = 2.5, 1 << 16


def footer(file: DataFile) -> tuple[pa.Schema, int]:
    """The file's columns and its number of rows."""
    with _open(file) as opened:
        try:
            return opened.schema_arrow, opened.metadata.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:  # a name that is no text any more
            raise _unreadable(file, error) from None


def under_codes(file: DataFile) -> frozenset[str]:
    """The columns that the file holds under codes throughout: these can be read as dictionaries for nothing.

    A writer gives codes up where there are too many different values. Then the column is longer than codes are.
    """
    with _open(file) as opened:
        try:
            return _under_codes(opened)
        except UnicodeDecodeError:  # a name that is none: who reads the file is told
            return frozenset()


def _under_codes(opened: pq.ParquetFile) -> frozenset[str]:
    about = opened.metadata
    flat = {opened.schema.column(at).path for at in range(len(opened.schema))}  # not columns of lists and structs
    found = flat & set(opened.schema_arrow.names) if about.num_row_groups else set()
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if not column.has_dictionary_page or column.total_uncompressed_size > _CODE * column.num_values + _FEW:
                found.discard(column.path_in_schema)
    return frozenset(found)


def read(file: DataFile, schema: pa.Schema, batch_rows: int, coded: frozenset[str] = frozenset()) -> Iterator[Chunk]:
    """The file's rows in the schema, which its footer has been found to fit; these columns as dictionaries."""
    row = 0
    wanted = pa.schema([f.with_type(pa.dictionary(pa.int32(), f.type)) if f.name in coded else f for f in schema])
    try:
        with _open(file, coded) as opened:
            for batch in opened.iter_batches(batch_size=batch_rows, columns=schema.names, use_threads=False):
                # Text that is no UTF-8, moments that are none: who reads them would fail far from here.
                batch.validate(full=True)
                yield Chunk(fit(batch, wanted, file.path, row), file.path, row)
                row += batch.num_rows
            # A page's head, which no checksum covers, can seem to be the last one's.
            if row != opened.metadata.num_rows:
                raise OSError(f"its footer tells of {opened.metadata.num_rows} rows, and its pages hold {row}")
    except DataError:  # rows that do not fit say so themselves
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"Parquet file {file.path!r} is damaged at or after row {row}",
            why=str(error),
            do="Write it again, or take it out of the folder",
        ) from None


def _open(file: DataFile, coded: frozenset[str] = frozenset()) -> pq.ParquetFile:
    if file.size == 0:
        raise DataError(
            f"Parquet file {file.path!r} is empty (0 bytes)",
            why="even without rows a Parquet file has a footer: it was never finished",
            do="Write it again, or take it out of the folder",
        )
    try:
        # Buffered page by page, so that memory does not follow the size of a row group. INT96 is Spark's old timestamp.
        # Checksums of pages are looked at where the writer has made some, as plait's sinks do.
        return pq.ParquetFile(file.path, buffer_size=_PAGE_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us",
                              read_dictionary=sorted(coded), page_checksum_verification=True)  # fmt: skip
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: DataFile, error: Exception) -> DataError:
    return DataError(
        f"File {file.path!r} can't be read as Parquet",
        why=f"it is truncated or something else ({error})",
        do="Write it again, or take it out of the folder",
    )
