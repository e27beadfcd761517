"""The Spark session plait makes, and what it warns of in one it is handed.

Settings, each measured: what eats a micro-batch is bookkeeping, and these take most of it away.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from plait import java
from plait.errors import RunError
from plait.spark import local

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Without this a stateful Python operator has no store at all.
REQUIRED = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}

#: What else matters, and why.
SETTINGS = {
    # A delta a batch instead of a snapshot.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # On a local disk the default manager's rename goes through the slow path.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Workers begin with everything imported: see there.
    "spark.python.daemon.module": "plait.spark.daemon",
    # Workers and the JVM are on one machine.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

#: Settings a handed session is asked about: those of SETTINGS that change speed and nothing else.
ADVISED = (
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.python.daemon.module",
)

_warned: set[str] = set()


def session(*, master: str = "local[*]", partitions: int | None = None, name: str = "plait", **extra: str) -> Any:
    """A session with plait's settings. `partitions` is the number of state partitions, one per core by default."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None and (reason := java.missing()) is not None:
        raise RunError("No Spark session can be started", why=reason)
    os.environ.setdefault("PYSPARK_PYTHON", local.python() if local.is_local(master) else sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # no word about host names, and nothing listens outside
    cores = os.cpu_count() or 2
    builder = SparkSession.builder.master(master).appName(name)
    settings = REQUIRED | SETTINGS | {"spark.sql.shuffle.partitions": str(partitions or cores)}
    log = Path(__file__).with_name("log4j2.properties")
    settings |= {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log}"}
    settings |= (local.file_system() if local.is_local(master) else {}) | extra
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def check(spark: Any, *, streaming: bool) -> None:
    """Refuse a session that can't run a cell, and say once what would make it faster."""
    if "connect" in type(spark).__module__:
        raise RunError(
            "plait does not run on Spark Connect",
            why="its cells keep their index in the executors' Python workers, which needs a classic session",
            do="Make the session with plait.spark.session() or SparkSession.builder.master(...)",
        )
    if not streaming:
        return
    for key, value in REQUIRED.items():
        if spark.conf.get(key, "") != value:
            raise RunError(
                f"This Spark session keeps state in {spark.conf.get(key, 'its default store')!r}",
                why="stateful Python operators need RocksDB",
                do=f"Set {key} to {value}, or make the session with plait.spark.session()",
            )
    _advise(spark)


def _advise(spark: Any) -> None:
    slow = [f"{key}={SETTINGS[key]}" for key in ADVISED if spark.conf.get(key, "") != SETTINGS[key]]
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    cores = spark.sparkContext.defaultParallelism
    if partitions > 4 * cores:
        slow.append(f"spark.sql.shuffle.partitions={cores} (it is {partitions}, with a task each, on {cores} cores)")
    for advice in slow:
        if advice not in _warned:
            _warned.add(advice)
            warnings.warn(f"plait on Spark would be faster with {advice}", stacklevel=4)
