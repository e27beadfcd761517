"""Many results on their way from a cell to the driver, where both are on one machine: in a file of shared memory.

The way through Spark copies a result six times (into a DataFrame, to the JVM, into a row, into a batch again, into a task's
result, to the driver), and so results are pressed for it, which takes a cell as long as a third of a join of many results. Here a
cell lays them into a file, as they are in memory, and tells its name. The driver maps the file, and nothing is copied.

- A file is complete before its name is told, and each attempt of a task makes one of its own. What an attempt that came to
  nothing has left goes with the batch: nothing else is in the folder then.
- Where there is no such memory, not enough of it, or another machine, results go through Spark as ever. Which way they went is no
  part of them.
- The folder belongs to the driver's process. If that was killed, the next worker of any query removes it (`recent.sweep`).

Where it runs: `Handing.rows` in a cell's task, once a step; the rest on the driver, which publishes them (`publish.collect`).
Held by tests/spark/test_handed.py, and by the kills of tests/spark/test_faults.py, which hand over all results so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait.errors import RunError
from plait.spark import formats
from plait.spark.cell.results import Keyed, Results, read
from plait.spark.keep import recent
from plait.spark.plan import local

#: Bytes of results for which a file is worth it: making and mapping one takes about as long as Spark's way with so many.
LEAST = 1 << 18


@dataclass(frozen=True)
class Handing:
    """Where a query's results are handed over. Pickled into the tasks."""

    folder: str
    least: int

    def rows(self, results: Results | Keyed) -> list[tuple[int, bytes]]:
        """Results as rows for the driver: their file's name, or they themselves."""
        if results.rows and results.columns.nbytes >= self.least:
            file = self._laid(results)
            if file is not None:
                return [(formats.HANDED, formats.body(formats.Handed(file)))]
        return [(formats.RESULTS, body) for body in results.bodies()]

    def _laid(self, results: Results | Keyed) -> str | None:
        """The file with these results; None if it can't be had."""
        file = os.path.join(self.folder, secrets.token_hex(8))
        try:
            # Keys come besides; they are fewer than results.
            if not recent.has_room(Path(self.folder), 2 * results.columns.nbytes):
                return None
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with pa.OSFile(file, "wb") as out:
                results.lay(out)
        except OSError:  # no room, or no folder
            with contextlib.suppress(OSError):
                os.unlink(file)
            return None
        return file

    def clear(self) -> None:
        """Remove all files. What the driver has mapped it goes on to read."""
        with contextlib.suppress(OSError):
            for file in os.scandir(self.folder):
                os.unlink(file.path)


def handing(spark: Any) -> Handing | None:
    """A folder for a query that starts; None where its tasks can't hand over results."""
    own = recent.place(os.getpid())
    if not local.is_local(spark.sparkContext.master) or not recent.is_private(own.parent):
        return None
    folder = own / f"{recent.HANDED}{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError:
        return None
    atexit.register(_end, os.getpid())
    return Handing(str(folder), LEAST)


def _end(process: int) -> None:
    """The driver ends, and what it was handed goes. A process that was forked from it is not the driver."""
    if os.getpid() == process:
        shutil.rmtree(recent.place(process), ignore_errors=True)


def taken(body: bytes | pa.Buffer) -> Results | Keyed:
    """The results that a cell has handed over."""
    told: formats.Handed = formats.parse(body)[0]
    try:
        return read(pa.memory_map(told.file).read_buffer())
    except OSError as error:
        raise RunError(
            f"A cell's results in {told.file!r} can't be read",
            why=str(error),
            do="Start the query again: nothing of this batch was published, and it is done again",
        ) from error
