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


def footer(file: DataFile) -> tuple[pa.Schema, int]:
    """The file's columns and its number of rows."""
    with _open(file) as opened:
        return opened.schema_arrow, opened.metadata.num_rows


def read(file: DataFile, schema: pa.Schema, batch_rows: int) -> Iterator[Chunk]:
    """The file's rows in the schema, which its footer has been found to fit."""
    row = 0
    try:
        with _open(file) as opened:
            for batch in opened.iter_batches(batch_size=batch_rows, columns=schema.names, use_threads=False):
                yield Chunk(fit(batch, schema, file.path, row), file.path, row)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"Parquet file {file.path!r} is damaged at or after row {row}",
            why=str(error),
            do="Write it again, or take it out of the folder",
        ) from None


def _open(file: DataFile) -> pq.ParquetFile:
    if file.size == 0:
        raise DataError(
            f"Parquet file {file.path!r} is empty (0 bytes)",
            why="even without rows a Parquet file has a footer: it was never finished",
            do="Write it again, or take it out of the folder",
        )
    try:
        # Buffered page by page, so that memory does not follow the size of a row group. INT96 is Spark's old timestamp.
        return pq.ParquetFile(file.path, buffer_size=_PAGE_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us")
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"File {file.path!r} can't be read as Parquet",
            why=f"it is truncated or something else ({error})",
            do="Write it again, or take it out of the folder",
        ) from None
