"""PySpark's daemon, warmed up: workers are forked from a process that has already imported what a cell needs.

A worker that imports NumPy, pandas, Arrow and Numba for itself does so in its first batch, and PySpark's garbage
collection after each task walks through all of it: 52 ms a task. Here the imports are done once, before the first fork,
and frozen, so a worker begins warm and its collections are empty.

Only a process without other threads may be forked and go on: a lock that a lost thread held would never open. So no
library may start any here (OpenBLAS does not, since Spark gives a worker the OMP_NUM_THREADS of a task's one core;
jemalloc's own one knows of forks), and if one does, this process becomes PySpark's plain daemon instead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import sys
from pathlib import Path

from plait.spark.keep import recent

FORK_SAFE = {"jemalloc_bg_thd"}
#: What tasks will need of plait: everything that packs rows, and every operator's cell.
WARM = (
    "plait.spark.pack.pack", "plait.spark.cell.cell", "plait.spark.cell.join", "plait.spark.cell.asof",
    "plait.spark.cell.aggregate", "plait.spark.cell.operator",
)  # fmt: skip


def _warm_up() -> None:
    """Import what tasks will need, and freeze it: collections of garbage in workers then pass over it."""
    import pandas  # noqa: F401
    import pyspark.sql.pandas.serializers
    import pyspark.sql.streaming.stateful_processor_util
    import pyspark.worker  # noqa: F401

    for name in WARM:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _threads() -> list[str]:
    """Names of this process's threads besides its own; none where the system does not tell."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            if task.name != str(os.getpid()):
                found.append((task / "comm").read_text().strip())
    return found


def main() -> None:
    """What Spark starts instead of `pyspark.daemon`, once for each executor; workers are forked from it."""
    from pyspark.daemon import manager

    own = os.getpid()
    # sys.argv[1] names the worker's module. What the daemon prints to stdout before its port would be read as the port.
    with contextlib.redirect_stdout(sys.stderr):
        _warm_up()
    if set(_threads()) - FORK_SAFE:
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])
    try:
        manager()
    finally:
        if os.getpid() == own:  # workers come by here too
            shutil.rmtree(recent.place(own), ignore_errors=True)


if __name__ == "__main__":
    main()
