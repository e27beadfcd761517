"""A join on a cluster whose executors a policy changes: a script, for tests/spark/test_scaling.py.

    python scaled.py FOLDER MASTER SETTING=VALUE ...

The last line of its output is JSON: how many executors there were at first, at the height and at the end, and all changes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import plait
import plait.spark
from plait.spark.publish.scaling import Executors

QUERY = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="abs(l.x - r.x) <= 1", within=(9, 6))


def frames(spark: Any, folder: Path) -> Any:
    read = spark.readStream.schema("ts long, x int").option("maxFilesPerTrigger", "1")
    return QUERY.on_spark({name: read.parquet(str(folder / name)) for name in "ab"}, layout=(2, 1))


def until(executors: Executors, number: int) -> int:
    """Wait for so many; gives how many there are in the end."""
    for _ in range(2400):
        if executors.count() == number:
            break
        time.sleep(0.1)
    return executors.count()


def main(folder: Path, master: str, *settings: str) -> None:
    given = {
        "spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "600m", "spark.executor.cores": "1",
        "spark.sql.streaming.noDataProgressEventInterval": "200",
        "spark.executor.defaultJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }  # fmt: skip
    spark = plait.spark.session(master=master, partitions=2, **given | dict(each.split("=", 1) for each in settings))
    executors = Executors(spark)
    until(executors, 2)
    executors.change(1)
    counts = [until(executors, 1)]
    with plait.spark.scaling(spark, most=2) as watched:
        query = plait.spark.write_ordered(
            frames(spark, folder),
            folder / "out",
            checkpoint=folder / "checkpoint",
            trigger={"processingTime": "0 seconds"},
        )
        counts.append(until(executors, 2))
        query.processAllAvailable()
        counts.append(until(executors, 1))
        plait.spark.drain(folder / "checkpoint" / "control")
        query.processAllAvailable()
        query.stop()
    spark.stop()
    told = {"counts": counts, "changes": [dataclasses.astuple(change) for change in watched.changes]}
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
