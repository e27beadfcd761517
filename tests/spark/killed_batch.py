"""A batch run that drops rows; as a script its driver is killed when these are out and the results are not.

python killed_batch.py DATA FOLDER killed
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import plait
import plait.spark
from plait.spark.publish import collect

A, B = plait.stream("a", unit="us", late="drop"), plait.stream("b", unit="us")
QUERY = plait.join(A, B, on="abs(l.x - r.x) <= 1", within=(40, 25))


def run(spark: Any, data: Path, folder: Path) -> Any:
    frames = {name: spark.read.schema("ts long, x int").parquet(str(data / name)) for name in "ab"}
    return plait.spark.write_ordered(QUERY.on_spark(frames, cells=3), folder / "out", late=folder / "late")


def main(data: str, folder: str) -> None:
    write_late = collect._Publisher._write_late

    def and_die(self: Any, bodies: Any, batch: int) -> None:
        write_late(self, bodies, batch)
        os.killpg(0, signal.SIGKILL)

    collect._Publisher._write_late = and_die  # type: ignore[method-assign]
    settings = {"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "600m"}
    run(plait.spark.session(master="local[2]", partitions=3, **settings), Path(data), Path(folder))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
