"""A small pipeline, run by the tests in their own session and, as a script, in processes that are there to be killed.

    python pipeline.py DATA FOLDER MASTER QUERY FAULT ... SETTING=VALUE ...

A fault is `what@batch` and happens once, told by a mark in FOLDER/marks. Where a fault needs the inside of a task, the
cell's processor is wrapped here, in the script: the code under test knows nothing of it.

    raise@1     a task fails                            worker@1    its Python worker is killed
    cell@1      the driver is killed in a task, before state is committed
    state@1     ... after the commit of state, before publishing
    publish@1   ... after publishing, before the commit of offsets
    executor@1  the executor of a task is killed
    slow@1      a task's first attempt does not come to its end
    pause@1     after publishing, the driver waits until somebody writes to the pipe FOLDER/marks/go@1
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import plait
import plait.spark
from plait.spark import run as spark_run
from plait.spark.cell import handed
from plait.spark.publish import collect

A = plait.stream("a", unit="us", disorder=2)
#: What travels as partial panes, what as tuples; what is kept as panes, as tuples, and by rank.
PANES = {"n": plait.count(), "mean": plait.mean("x"), "first": plait.first("of"), "last": plait.last("x")}
TUPLES = {"all": plait.collect("x"), "many": plait.distinct("of")}
B = plait.stream("b", unit="us")
UNITED = plait.union(A.where("x % 3 <> 0"), B.select("ts", "x", "of").where("x > 2"), A.select("x", "of"))
SESSIONS = plait.aggregate(A, session="2us", by={"third": "x % 3"}, compute=PANES | TUPLES, name="s")
FULL = plait.join(A, B.where("x < 15"), on="l.x = r.x", within=(3, 2), how="full")
QUERIES = {
    "join": plait.join(A, B, on="abs(l.x - r.x) <= 1", within=(9, 6), how="left"),
    "panes": plait.aggregate(A, size="9us", advance="2us", by="x", compute=PANES),
    "tuples": plait.aggregate(A, size="9us", advance="4us", by="x", compute=TUPLES),
    "counted": plait.aggregate(A, size=5, advance=2, by="x", compute=PANES | TUPLES),
    "union": UNITED.select("of", twice="2 * x"),
    "dedup": plait.dedup(A, by="x", within=17),
    "sessions": SESSIONS,
    "forward": plait.asof(A, B, by="x", within=19, direction="forward"),
    "nearest": plait.asof(A, B, by="x", within=19, exact=False, direction="nearest", how="inner"),
    "right": plait.join(A, B, on="abs(l.x - r.x) <= 1", within=(9, 6), how="right"),
    "full": FULL,
    "chain": plait.asof(
        plait.dedup(UNITED, by="x", within=5).where("x >= 0"),
        plait.union(SESSIONS.select(x="third", of="first"), FULL.select(x="a_x + 0", of="b_of").where("x is not null")),
        by="x",
        within=9,
        direction="nearest",
    ),
}
#: Two cells. A left join takes no row of cells, and a right one no column of them.
LAYOUT, LAYOUTS = (2, 1), {"right": (1, 2)}


def frames(spark: Any, folder: Path, query: str) -> Any:
    read = spark.readStream.schema("ts long, x int, of string").option("maxFilesPerTrigger", "1")
    return QUERIES[query].on_spark(
        {n: read.parquet(str(folder / n)) for n in QUERIES[query].streams()}, layout=LAYOUTS.get(query, LAYOUT)
    )  # fmt: skip


def run(spark: Any, data: Path, folder: Path, query: str = "join") -> None:
    df = frames(spark, data, query)
    plait.spark.write_ordered(df, folder / "out", checkpoint=folder / "checkpoint", drain=True).awaitTermination()


# --- faults -------------------------------------------------------------------------------------------------


def once(marks: str, name: str) -> bool:
    """Whether nobody has been here before."""
    try:
        os.close(os.open(f"{marks}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_driver() -> None:
    """Python and the JVM share a process group; Python workers have one of their own."""
    os.killpg(int(os.environ["PLAIT_TEST_GROUP"]), signal.SIGKILL)
    wait_for_the_end()


def wait_for_the_end() -> None:
    """Go no further: a signal is on its way, or nobody waits for this task."""
    while True:
        signal.pause()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Faulty(StatefulProcessor):
    """A cell's processor, and what happens to it."""

    def __init__(self, whole: Any, faults: list[str], marks: str) -> None:
        self.whole, self.faults, self.marks = whole, faults, marks

    def init(self, handle: Any) -> None:
        self.whole.init(handle)

    def close(self) -> None:
        self.whole.close()

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId")
        cell = pickle.loads(self.whole.plan).layout.keys.index(key[0])
        once(self.marks, f"batch {batch}, cell {cell}, task {context.taskAttemptId()}")
        out = list(self.whole.handleInputRows(key, rows, timerValues))
        for fault in self.faults:
            what, at = fault.split("@")
            if at != batch or cell != 1:
                continue
            if what in ("raise", "worker", "cell", "executor", "slow") and once(self.marks, fault):
                if what == "slow":
                    wait_for_the_end()
                if what == "raise":
                    raise OSError("a task fails once")
                if what == "worker":
                    os.kill(os.getpid(), signal.SIGKILL)
                if what == "cell":
                    kill_driver()
                if what == "executor":
                    os.kill(parent(parent(os.getpid())), signal.SIGKILL)
                    wait_for_the_end()
        yield from out


def inject(faults: list[str], marks: str) -> None:
    handed.LEAST = 0  # however few results there are, they are laid into shared memory
    whole_processor = spark_run.processor
    spark_run.processor = lambda plan: Faulty(whole_processor(plan), faults, marks)  # type: ignore[assignment]
    write_one, whole = collect._Publisher._write_one, collect._Publisher.__call__

    def before_publishing(self: Any, table: Any, batch: int) -> int:
        if f"state@{batch}" in faults and once(marks, f"state@{batch}"):
            kill_driver()
        return write_one(self, table, batch)

    def after_publishing(self: Any, frame: Any, batch: int) -> None:
        whole(self, frame, batch)
        if f"publish@{batch}" in faults and once(marks, f"publish@{batch}"):
            kill_driver()
        if f"pause@{batch}" in faults:
            Path(f"{marks}/go@{batch}").read_text()

    collect._Publisher._write_one = before_publishing  # type: ignore[method-assign]
    collect._Publisher.__call__ = after_publishing  # type: ignore[method-assign]


def main(data: str, folder: str, master: str, query: str, *further: str) -> None:
    faults = [each for each in further if "=" not in each]
    os.environ["PLAIT_TEST_GROUP"] = str(os.getpgid(0))
    marks = f"{folder}/marks"
    os.makedirs(marks, exist_ok=True)
    for fault in faults:
        if fault.startswith("pause@"):
            os.mkfifo(f"{marks}/{fault.replace('pause', 'go')}")
    inject(faults, marks)
    settings = {"spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.driver.memory": "600m",
                "spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "200ms",
                "spark.executor.defaultJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", "")}  # fmt: skip
    settings |= dict(each.split("=", 1) for each in further if "=" in each)
    made = plait.spark.session(master=master, partitions=2, **settings)
    run(made, Path(data), Path(folder), query)
    made.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
