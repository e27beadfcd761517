"""A long run in a process of its own: `python long_run.py SPEC` with a JSON specification, samples as JSON lines on stdout.

Each sample is taken after a micro-batch: rows published so far, bytes of the checkpoint folder, and the resident memory
of this process, the JVM and all Python workers together.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait
import plait.spark


def write(folder: Path, spec: dict[str, Any]) -> None:
    """Two streams, one file a batch: a tuple a microsecond, values over a wide range, so that pairs are few."""
    for which, name in enumerate("ab"):
        chance = np.random.default_rng([7, which])
        (folder / name).mkdir(parents=True)
        for batch in range(spec["batches"]):
            rows = spec["rows"]
            table = pa.table({
                "ts": pa.array(np.arange(batch * rows, (batch + 1) * rows)),
                "x": chance.integers(0, spec["values"], rows, np.int32), "y": chance.random(rows),
            })  # fmt: skip
            file = folder / name / f"{batch:06d}.parquet"
            pq.write_table(table, file)
            os.utime(file, (1_000_000_000 + batch,) * 2)


def tree_rss() -> int:
    """Resident bytes of this process and its descendants; what they share is counted once, by the proportional size."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    total = 0
    for pid in parents:
        at = pid
        while at not in (0, 1, os.getpid()):
            at = parents.get(at, 0)
        if at == os.getpid():
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
            except (OSError, StopIteration):
                continue
    return total


def folder_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def main(spec: dict[str, Any]) -> None:
    spark = plait.spark.session(
        partitions=2,
        **{
            "spark.driver.memory": spec["memory"],
            # What Spark keeps for going back is a hundred batches by default; here it must show within a short run.
            "spark.sql.streaming.minBatchesToRetain": "5",
            "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
        },
    )
    with tempfile.TemporaryDirectory(prefix="plait-long-") as place:
        folder = Path(place)
        write(folder, spec)
        left, right = (plait.stream(name, unit="us") for name in "ab")
        query = plait.join(left, right, on="a.x = b.x and abs(a.y - b.y) < 0.5", within=spec["window"])
        schema = spark.read.parquet(str(folder / "a")).schema
        frames = {
            n: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / n)) for n in "ab"
        }
        published = 0

        def sample(batch: plait.spark.BatchReport) -> None:
            nonlocal published
            published += batch.results
            if batch.batch % spec["every"] == 0:
                row = {"batch": batch.batch, "results": published, "checkpoint": folder_bytes(folder / "checkpoint"),
                       "rss": tree_rss(), "pending": batch.pending}  # fmt: skip
                sys.stdout.write(json.dumps(row) + "\n")
                sys.stdout.flush()

        running = plait.spark.write_ordered(
            query.on_spark(frames), folder / "out", checkpoint=folder / "checkpoint", drain=False,
            trigger={"processingTime": "0 seconds"}, report=sample,
        )  # fmt: skip
        running.processAllAvailable()
        running.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
