"""Make the checkpoints that later versions must resume or refuse: `python -m tests.spark.checkpoints.make [NAME ...]`.

It makes those that are not there yet, for the present version of the formats; those of earlier versions stay as they are. An
archive is `NAME.vVERSION.tar.xz`; `time-join.vnone` is from before there were versions.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.spark import feeds
from tests.spark.checkpoints import archive
from tests.spark.checkpoints.queries import ALL, BEFORE, FIXED, LAYOUTS, QUERIES, SCHEMA, rows

import plait.spark
from plait.spark.formats import VERSION

HERE = Path(__file__).parent


def archive_of(name: str, version: int = VERSION) -> Path:
    return HERE / f"{name}.v{version}.tar.xz"


def frames(spark: Any, folder: Path, query: Any) -> dict[str, Any]:
    return {n: feeds.frame(spark, folder / n, SCHEMA, streaming=True, files=1) for n in query.streams()}


def stopped(spark: Any, query: Any, folder: Path, layout: Any = (2, 1)) -> None:
    """Run a query over the first rows, in three batches, and stop: windows are open, tuples pending, timers set."""
    for name, table in rows().items():
        if name in query.streams():
            feeds.write_files(folder / name, table.slice(0, BEFORE), [BEFORE // 3, BEFORE // 2])
            feeds.write_files(folder / archive.REST / name, table.slice(BEFORE), [(ALL - BEFORE) // 2], first=3)
    df = query.on_spark(frames(spark, folder, query), layout=layout)
    where = folder / archive.CHECKPOINT
    plait.spark.write_ordered(df, folder / archive.RESULTS, checkpoint=where, keep_key=True).awaitTermination()


def make(spark: Any, name: str) -> None:
    with tempfile.TemporaryDirectory() as made, archive.placed(Path(made), FIXED.get(name)) as folder:
        stopped(spark, QUERIES[name], folder, LAYOUTS.get(name, (2, 1)))
        archive.pack(folder, archive_of(name), moves=name not in FIXED)


def main(names: list[str]) -> None:
    spark = plait.spark.session(master="local[2]", partitions=2)
    for name in names or QUERIES:
        if not archive_of(name).exists():
            make(spark, name)
            sys.stdout.write(f"{archive_of(name).name}: {archive_of(name).stat().st_size} bytes\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
