"""The Spark session plait makes, and what it warns of in one it is handed.

Settings, each measured: what eats a micro-batch is bookkeeping, and these take most of it away.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from plait import java, paths
from plait.errors import DataError, QueryError, RunError
from plait.schema import is_count
from plait.spark.plan import local

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
    # The log of a file source is its query's alone, and what a later file of it repeats goes at once. Spark keeps it for ten
    # minutes otherwise, and lists all of it in every batch: what that takes grows with the batches.
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0s",
    # A query that was stopped in the middle of its first batch goes on from there. That no other query shares its checkpoint is
    # seen to by `checkpoint` and `target`.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # Workers begin with everything imported: see there.
    "spark.python.daemon.module": "plait.spark.daemon",
    # Of Parquet files whose pages bear checksums, as those that plait writes.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
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


def is_running() -> bool:
    """Whether this process has a session already, which `session` then gives."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def session(*, master: str = "local[*]", partitions: int | None = None, name: str = "plait", **extra: str) -> Any:
    """Make a Spark session with plait's settings, or take the one that runs and set them there.

    Args:
        master: Where Spark runs, as `SparkSession.builder.master` takes it.
        partitions: The number of state partitions. None: one per core.
        name: The application's name.
        **extra: Further settings by name, which win over plait's.

    Returns:
        A `SparkSession`.

    Raises:
        QueryError: `partitions` is no number of at least 1.
        RunError: There is no Java for Spark; the message has the command that installs it.

    Example:
        >>> import plait.spark
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> spark.conf.get("spark.sql.shuffle.partitions")
        '2'
    """
    if partitions is not None and not is_count(partitions):
        raise QueryError(f"partitions={partitions!r} is no number of partitions", do="Pass a whole number, at least 1")
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
    if streaming or local.is_local(spark.sparkContext.master):
        _check_python(spark.sparkContext.pythonExec)
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


def check_arrow(spark: Any) -> None:
    """Refuse a session in which Spark takes no columns with 32-bit lengths: plait's tasks have no others."""
    key = "spark.sql.execution.arrow.useLargeVarTypes"
    if str(spark.conf.get(key, "false")).lower() == "true":
        raise RunError(
            f"This Spark session has {key}=true",
            why="with it Spark takes nothing from Python but text and bytes with 64-bit lengths, and plait's tasks use 32 bits",
            do=f"Say spark.conf.set({key!r}, 'false'), or use a session without it (spark.newSession())",
        )


def _check_python(interpreter: str) -> None:
    """Refuse a session whose Python processes on this machine would die unheard: they get what PYSPARK_PYTHON named."""
    if interpreter not in (sys.executable, local.python()) and (why := _unfit(interpreter)) is not None:
        raise RunError(
            f"This Spark session runs its Python processes with {interpreter!r}, which can't run plait",
            why=why,
            do=f"Set PYSPARK_PYTHON to {sys.executable} before the session is made, or make it with plait.spark.session()",
        )


#: What an interpreter is asked: its version, and which of the packages it lacks.
_ASKED = """
import sys, importlib.util
print(*sys.version_info[:2], *(n for n in ("plait", "pyarrow", "numpy", "numba") if not importlib.util.find_spec(n)))
"""


@functools.cache
def _unfit(interpreter: str) -> str | None:
    """Why an interpreter can't run plait."""
    if shutil.which(interpreter) is None:
        return "there is no such program here"
    try:
        asked = subprocess.run([interpreter, "-c", _ASKED], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if asked.returncode != 0:
        return f"it ends with {asked.stderr.strip()[-200:]!r}"
    major, minor, *lacking = asked.stdout.split()
    if (int(major), int(minor)) != sys.version_info[:2]:
        return f"it is Python {major}.{minor}, and this is {sys.version_info[0]}.{sys.version_info[1]}"
    return f"it has no {', '.join(lacking)}" if lacking else None


def place(spark: Any, path: str | os.PathLike[str], what: str) -> Path:
    """A folder that plait and Spark both write into, as an absolute path.

    Args:
        spark: The session.
        path: A local path or `file:` URI, as a user wrote it.
        what: What begins the error.

    Raises:
        DataError: It is no local path; or Spark's default file system is another, where it would look for the folder.
    """
    found = paths.absolute(path, what)
    default = spark._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    if not str(default).startswith("file:") and not os.fsdecode(path).lower().startswith("file:"):
        raise DataError(
            f"{what} {os.fsdecode(path)!r} is in no file system by name, and this session's default is {default}",
            why="Spark would look for it there, and plait writes files of this machine",
            do=f"Write {paths.uri(found)} if a local folder is meant",
        )
    return found


def _advise(spark: Any) -> None:
    """Warn of settings that make a session slow, each once a process."""
    slow = [f"{key}={SETTINGS[key]}" for key in ADVISED if spark.conf.get(key, "") != SETTINGS[key]]
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
    cores = spark.sparkContext.defaultParallelism
    if partitions > 4 * cores:
        slow.append(f"spark.sql.shuffle.partitions={cores} (it is {partitions}, with a task each, on {cores} cores)")
    for advice in slow:
        if advice not in _warned:
            _warned.add(advice)
            warnings.warn(f"plait on Spark would be faster with {advice}", stacklevel=4)
