"""The same rows delivered to Spark in many ways: as files of every format and number, and as DataFrames."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from tests.reference.judge import assert_same

import plait.spark
from plait.connectors.sinks import open_sink
from plait.query.identical import difference
from plait.spark import formats
from plait.spark.formats import Note

#: Spark's file source takes files by modification time: one second each, in the order of their names.
_EPOCH = 1_700_000_000


def write_files(
    folder: Path, table: pa.Table, cuts: Sequence[int], *, format: str = "parquet", first: int = 0
) -> list[str]:
    """A table as files p000, p001, ... that end at these rows; gives their names."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = [0, *cuts, table.num_rows]
    names = []
    for number, (begin, end) in enumerate(itertools.pairwise(edges), start=first):
        name = f"p{number:03d}.{format}"
        write_file(folder / name, table.slice(begin, end - begin), number)
        names.append(name)
    return names


def write_file(path: Path, table: pa.Table, number: int) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    else:
        with open_sink(path.with_suffix(".jsonl"), table.schema) as sink:
            sink.write(table)
        os.replace(path.with_suffix(".jsonl"), path)
    os.utime(path, (_EPOCH + number, _EPOCH + number))


def frame(
    spark: Any, folder: Path, schema: Any, *, format: str = "parquet", streaming: bool, files: int | None = None
) -> Any:
    """A folder as a DataFrame, `files` of it in a micro-batch."""
    reader = (spark.readStream if streaming else spark.read).schema(schema)
    if format == "csv":
        reader = reader.option("header", "true")
    if streaming and files is not None:
        reader = reader.option("maxFilesPerTrigger", str(files))
    return reader.format(format).load(str(folder))


def spark_schema(table: pa.Table) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema)


def run(df: Any, folder: Path, *, name: str = "out", drain: bool = True, **options: Any) -> pa.Table:
    """Publish a streaming result to the end of what is there; gives all that has been published so far, in order."""
    plait.spark.write_ordered(
        df, folder / name, checkpoint=folder / f"{name}.checkpoint", drain=drain, **options
    ).awaitTermination()
    return published(folder / name)


def published(folder: Path) -> pa.Table:
    parts = sorted(p for p in folder.rglob("*.parquet") if not p.name.startswith("."))
    return pa.concat_tables([pq.read_table(p, partitioning=None) for p in parts]) if parts else pa.table({})


def parts(folder: Path) -> dict[str, bytes]:
    """All that stands in a folder of results, by name, but for the note that says whose it is."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != Note.NAME}


def collected(df: Any) -> pa.Table:
    """A batch result in result order."""
    return df.toArrow().sort_by(formats.KEY)


def assert_identical(got: pa.Table, expected: pa.Table) -> None:
    if got.num_columns == 0:
        got = expected.schema.empty_table()  # nothing came out, so there is no file to tell the columns
    got = got.drop_columns([formats.KEY]) if formats.KEY in got.column_names else got
    got = got.cast(expected.schema)
    assert_same(got, expected)
    assert difference(expected, got) is None


def write_pair(folder: Path, seed: int | str) -> None:
    """What the pipeline reads: two streams of 240 rows in three files each, the first one out of order by little."""
    chance = random.Random(seed)
    for name in "ab":
        times = [k // 2 + chance.randrange(3 if name == "a" else 1) for k in range(240)]
        table = pa.table({
            "ts": pa.array(times, pa.int64()),
            "x": pa.array([chance.choice((None, *range(20))) for _ in times], pa.int32()),
            "of": [f"{name}{k}" for k in range(240)],
        })  # fmt: skip
        write_files(folder / name, table, [90, 150])
