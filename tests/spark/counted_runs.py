"""Joins on a cluster in every layout, a cell for each executor: a script, for tests/spark/test_executors.py.

    python counted_runs.py FOLDER MASTER EXECUTORS KINDS SETTING=VALUE ...

The last line of its output is JSON: of each layout what the run has told at its end, of all, of each cell and of each executor;
and what `explain` projects from its checkpoint for 1, 2 and 4 executors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import plait
import plait.spark
from plait.spark.publish.scaling import Executors

ALL = 10**9
QUERY = plait.join(
    plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="l.k = r.k and abs(l.x - r.x) <= 20", within=ALL
)
ASKED = {"grid": "auto", "hash": "hash", "band": "band", "see_all": "see_all"}
TOLD = ("copies", "shuffled_bytes", "packed", "held", "held_bytes")


def run(spark: Any, folder: Path, kind: str, executors: int) -> dict[str, Any]:
    read = spark.readStream.schema("ts long, k long, x double").option("maxFilesPerTrigger", "1")
    df = QUERY.on_spark({name: read.parquet(str(folder / name)) for name in "ab"}, layout=ASKED[kind], cells=executors)
    told: list[Any] = []
    plait.spark.write_ordered(
        df, folder / kind / "out", checkpoint=folder / kind / "checkpoint", report=told.append, distributed=True
    ).awaitTermination()
    last = told[-1].run
    projected = {}
    for number in (1, 2, 4):
        lines = plait.spark.explain(df, folder / kind / "checkpoint", executors=number).splitlines()
        begin = next(at for at, line in enumerate(lines) if line.startswith(f"on {number} executor"))
        projected[number] = lines[begin + 1 :]
    return {
        "rows": last.rows, "results": sum(batch.results for batch in told), "projected": projected,
        "cells": [{name: vars(cell)[name] for name in TOLD} for cell in last.cells],
        "executors": [{name: vars(each)[name] for name in ("executor", "cells", *TOLD)} for each in last.executors],
    }  # fmt: skip


def main(folder: str, master: str, executors: str, kinds: str, *settings: str) -> None:
    number = int(executors)
    given = {
        "spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "600m", "spark.executor.cores": "1",
        "spark.executor.memory": "512m", "spark.locality.wait": "0s",
        "spark.executor.defaultJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }  # fmt: skip
    given |= dict(each.split("=", 1) for each in settings)
    spark = plait.spark.session(master=master, partitions=number, **given)
    there = Executors(spark)
    for _ in range(600):
        if there.count() == number:
            break
        time.sleep(0.1)
    told = {kind: run(spark, Path(folder), kind, number) for kind in kinds.split(",")}
    spark.stop()
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
