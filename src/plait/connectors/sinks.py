"""Where results go: a file of one of the formats of `FORMS` that appears whole or not at all, or standard output.

Rows are written under a temporary name beside the target (`.name.XXXX.tmp`, which folder feeds and Spark pass over),
forced to disk, and renamed on `commit`. Until then nothing stands under the final name, or what stood there before. How
the rows are cut into batches leaves no trace in the file. How values look in CSV and JSON is said in `encoding`.

A format is a record in `FORMS`, which says all that sinks, the command and Spark's side have to know of it; its endings are in
`files`, since readers must know them too. One that has not both fails at import, by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Protocol, Self

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from plait import paths
from plait.connectors.encoding import csv_column, has_csv_form, has_json_form, json_values
from plait.connectors.files import ENDINGS, check_format, either, format_of
from plait.errors import DataError, RunError

ROW_GROUP_ROWS: Final = 131_072
STDOUT: Final = "-"


class Encoder(Protocol):
    """Writes rows of one schema into an open file."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Write what is held back, and close."""

    def close(self) -> None:
        """Let go of the file; what is held back is lost."""


class Sink:
    r"""Where results go. It is made by `open_sink`.

    In a `with` block it commits on a clean exit and aborts on an exception. The examples of its methods go on from this one.

    Attributes:
        target: The file's absolute path, or "standard output".
        schema: The columns that every batch must have.
        rows: How many rows were written so far.

    Example:
        >>> import pathlib, plait.connectors, pyarrow as pa
        >>> rows = pa.table({"x": [1, 2]})
        >>> with plait.connectors.open_sink("out.csv", rows.schema) as sink:
        ...     sink.write(rows)
        >>> pathlib.Path("out.csv").read_text()
        '"x"\n1\n2\n'
    """

    def __init__(self, target: str, schema: pa.Schema, encoder: Encoder, out: BinaryIO, temporary: Path | None) -> None:
        self.target, self.schema, self.rows = target, schema, 0
        self._encoder, self._out, self._temporary = encoder, out, temporary
        self._state = "open"

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows.

        Args:
            batch: A record batch or table with the sink's schema.

        Raises:
            DataError: The rows have another schema, or the file can't be written.
            RunError: The sink was committed or aborted.

        Example:
            >>> sink.write(rows)
            Traceback (most recent call last):
            plait.errors.RunError: write on a sink that is committed: ...
        """
        self._must_be_open("write")
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise DataError(f"{self.target!r} is given {batch!r}", do="Pass an Arrow record batch or table")
        if not batch.schema.equals(self.schema):
            raise DataError(
                f"{self.target!r} is given rows of another schema",
                why=f"it was opened for ({_columns(self.schema)}) and is given ({_columns(batch.schema)})",
            )
        for part in batch.to_batches() if isinstance(batch, pa.Table) else [batch]:
            self._guarded(lambda part=part: self._encoder.write(part))  # type: ignore[misc]  # mypy can't infer a lambda with a default
            self.rows += part.num_rows

    def commit(self) -> None:
        r"""Finish the file and give it its name. After that it is complete, also across a crash.

        Raises:
            DataError: The file can't be written. Nothing is left under its name.
            RunError: The sink was committed or aborted before.

        Example:
            >>> sink = plait.connectors.open_sink("again.jsonl", rows.schema)
            >>> sink.write(rows)
            >>> pathlib.Path("again.jsonl").exists()
            False
            >>> sink.commit()
            >>> pathlib.Path("again.jsonl").read_text()
            '{"x":1}\n{"x":2}\n'
        """
        self._must_be_open("commit")
        try:
            self._guarded(self._finish)
        except BaseException:
            self.abort()
            raise
        self._state = "committed"

    def abort(self) -> None:
        """Leave no trace. What has gone to standard output can't be called back. After the end it does nothing.

        Example:
            >>> sink = plait.connectors.open_sink("never.parquet", rows.schema)
            >>> sink.write(rows)
            >>> sink.abort()
            >>> list(pathlib.Path(".").glob("*never*"))
            []
        """
        if self._state != "open":
            return
        self._state = "aborted"
        if self._temporary is not None:
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                self._encoder.close()
            with contextlib.suppress(OSError):
                self._out.close()
            self._temporary.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Force what was written to disk, then rename it."""
        self._encoder.finish()
        self._out.flush()
        if self._temporary is None:
            return
        os.fsync(self._out.fileno())
        self._out.close()
        os.replace(self._temporary, self.target)
        sync_folder(Path(self.target).parent)

    def _guarded(self, action: Callable[[], None]) -> None:
        """A full disk is told like any other fault; a reader that closed the pipe is the command line's to judge."""
        try:
            action()
        except BrokenPipeError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"{self.target!r} can't be written", why=str(error), do="Nothing is left under that name"
            ) from error

    def _must_be_open(self, action: str) -> None:
        if self._state != "open":
            raise RunError(f"{action} on a sink that is {self._state}: {self.target!r}", do="Open another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._state == "open":
            self.commit()


def open_sink(path: str | os.PathLike[str], schema: pa.Schema, *, format: str | None = None) -> Sink:
    """Open a file for results. It appears whole when it is committed, or not at all.

    Args:
        path: The file; `-` is standard output.
        schema: The columns that every batch will have, as an Arrow schema.
        format: "parquet", "csv" or "jsonl". None: told from the ending; JSON lines for standard output.

    Returns:
        A `Sink`, to be used in a `with` block.

    Raises:
        DataError: The format can't be told, has no form for a column, or the file can't be written there.

    Example:
        >>> import plait.connectors, pyarrow as pa, pyarrow.parquet
        >>> rows = pa.table({"x": [1, 2]})
        >>> with plait.connectors.open_sink("out.parquet", rows.schema) as sink:
        ...     sink.write(rows)
        >>> pyarrow.parquet.read_table("out.parquet").num_rows
        2
    """
    kind = check_path(path, format=format)
    if not isinstance(schema, pa.Schema):
        raise DataError(f"schema={schema!r} says no columns", do="Pass the Arrow schema of the rows to come")
    if os.fspath(path) == STDOUT:
        return _standard_output(schema, kind)
    target = str(paths.absolute(path))  # it gets its name later, when the working folder may be another
    _check_columns(schema, kind, target)
    temporary, out = _temporary(Path(target))
    try:
        return Sink(target, schema, FORMS[kind].encoder(schema, out), out, temporary)
    except BaseException as error:
        out.close()
        temporary.unlink(missing_ok=True)
        if isinstance(error, pa.ArrowException):
            raise DataError(f"{target!r} can't hold these columns", why=str(error), do="Cast them") from None
        raise


def check_path(path: str | os.PathLike[str], *, format: str | None = None) -> str:
    """Refuse a target that can't be written, before anything is computed for it.

    Returns:
        The format of what goes there.
    """
    check_format(format)
    if isinstance(path, (str, os.PathLike)) and os.fspath(path) == STDOUT:
        return format or "jsonl"
    target = paths.plain(path)
    kind = format or format_of(target)
    if kind is None or (format is None and target.lower().endswith(".gz")):
        raise DataError(
            f"The format of {target!r} can't be told from its name",
            why=f"results are written as {either([ending for some in ENDINGS.values() for ending in some])}",
            do="Use one of those endings, or say format=",
        )
    _check_target(Path(target))
    return kind


def _standard_output(schema: pa.Schema, kind: str) -> Sink:
    """A sink that writes at once: what is out can't be called back."""
    if FORMS[kind].seeks:
        raise DataError(f"{FORMS[kind].title} can't go to standard output", why=FORMS[kind].seeks, do="Name a file")
    _check_columns(schema, kind, STDOUT)
    out = sys.stdout.buffer
    return Sink("standard output", schema, FORMS[kind].encoder(schema, out), out, None)


def _check_columns(schema: pa.Schema, kind: str, target: str) -> None:
    """Refuse a column that the format has no form for."""
    for field in schema:
        if not FORMS[kind].holds(field.type):
            others = [form.title for form in FORMS.values() if form.holds(field.type)]
            raise DataError(
                f"Column {field.name!r} ({field.type}) can't be written to {target!r}",
                why=f"{kind} has no form for such values",
                do=f"Write {' or '.join(others)}",
            )


def _check_target(target: Path) -> None:
    """Refuse a target where no file can be put."""
    if target.is_dir():
        raise DataError(f"{str(target)!r} is a folder", why="a result is one file", do="Name a file in it")
    if target.exists() and not target.is_file():
        raise DataError(
            f"{str(target)!r} is no ordinary file",
            why="a result is written beside its target and renamed over it, which would replace the device or pipe",
            do="Name a file, or '-' for standard output",
        )
    if not target.parent.is_dir():
        raise DataError(f"There is no folder {str(target.parent)!r} to write {target.name!r} in", do="Create it")


def _temporary(target: Path) -> tuple[Path, BinaryIO]:
    """A file beside the target, under a name that readers pass over."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        # Not `tempfile`, whose files nobody else may read: the umask decides, as for any file.
        return temporary, open(temporary, "xb")
    except OSError as error:
        raise DataError(
            f"{str(target)!r} can't be written",
            why=f"the folder takes no new file ({error.strerror})",
            do="Check its permissions, or write elsewhere",
        ) from None


def sync_folder(folder: Path) -> None:
    """The rename itself must survive a crash; where folders can't be synced, the system sees to it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


# --- encoders -----------------------------------------------------------------------------------------------


class _Parquet:
    """Row groups of a fixed size, so that the file does not depend on how batches were cut.

    Pages bear checksums. Without them most bytes that a disk or a copy changes are read as other values, and nobody is told.
    """

    def __init__(self, schema: pa.Schema, out: BinaryIO) -> None:
        self._schema, self._held, self._rows = schema, [], 0  # type: tuple[pa.Schema, list[pa.RecordBatch], int]
        # Numbers hardly repeat: a dictionary of theirs costs time, and space too. Names do.
        texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        self._writer = pq.ParquetWriter(
            out, schema, compression="zstd", use_dictionary=texts or False, write_page_checksum=True
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._rows += batch.num_rows
        while self._rows >= ROW_GROUP_ROWS:
            held = pa.Table.from_batches(self._held, self._schema)
            self._group(held.slice(0, ROW_GROUP_ROWS))
            self._held = held.slice(ROW_GROUP_ROWS).to_batches()
            self._rows -= ROW_GROUP_ROWS

    def finish(self) -> None:
        if self._rows:
            self._group(pa.Table.from_batches(self._held, self._schema))
        self.close()

    def close(self) -> None:
        self._writer.close()

    def _group(self, table: pa.Table) -> None:
        self._writer.write_table(table.combine_chunks(), row_group_size=ROW_GROUP_ROWS)


class _Csv:
    """A header line, text in quotes, NULL as an empty field without quotes (an empty text has them)."""

    def __init__(self, schema: pa.Schema, out: BinaryIO) -> None:
        empty = [csv_column(pa.array([], field.type), field.name) for field in schema]
        self._schema = pa.schema([(field.name, column.type) for field, column in zip(schema, empty, strict=True)])
        self._writer = pc.CSVWriter(out, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [csv_column(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()


class _JsonLines:
    """One object a row, its fields in the columns' order, NULL as null."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._encode: Callable[[Any], str] = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        columns = [json_values(column, name) for name, column in zip(names, batch.columns, strict=True)]
        lines = (self._encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))
        self._out.write("".join(f"{line}\n" for line in lines).encode())

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


# --- formats --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Form:
    """A format in which rows are written.

    title    what it is called
    encoder  writes rows of a schema into an open file
    holds    the types of columns that it has a form for
    seeks    why it needs a file that can be read back, and so can't go to standard output; "": it does not
    parts    whether `write_ordered` on Spark writes its parts in it
    """

    title: str
    encoder: Callable[[pa.Schema, BinaryIO], Encoder]
    holds: Callable[[pa.DataType], bool]
    seeks: str = ""
    parts: bool = False


#: By name. Where a format has no form for a column, the others are named to the user in this order.
FORMS: Final[Mapping[str, Form]] = {
    "parquet": Form(
        title="Parquet",
        encoder=_Parquet,
        holds=lambda kind: True,
        seeks="its footer points back into the file",
        parts=True,
    ),
    "jsonl": Form(title="JSON lines", encoder=lambda schema, out: _JsonLines(out), holds=has_json_form, parts=True),
    "csv": Form(title="CSV", encoder=_Csv, holds=has_csv_form),
}


def missing(forms: Mapping[str, Form], endings: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What is missing, a line each, if these are the formats that sinks write, and those whose endings are known."""
    found = [f"the format {name!r} has no ending in plait.connectors.files" for name in forms if not endings.get(name)]
    return found + [f"files of format {name!r} have no form to be written in" for name in endings if name not in forms]


for _line in missing(FORMS, ENDINGS):
    raise ImportError(f"{_line}: see plait.connectors.sinks")
