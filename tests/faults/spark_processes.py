"""Spark in a process of its own, by whose number it is killed, stopped and resumed; its executors, its clock, its disk.

The pipeline is `tests.spark.pipeline`, run as a script until it has ended by itself; whoever stops it in between, the next
start takes up what it left. What needs a program or a right that is not here says so and injects nothing: a C compiler for
the clock, `strace` for slow and failing disks (or the one that PLAIT_STRACE names), and for a full disk the right to mount.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import tests.conftest  # its words to JVMs that live for minutes
from tests.faults.cells import as_bytes
from tests.faults.on_spark import QUERIES
from tests.faults.record import Record
from tests.spark import feeds, pipeline

assert tests.conftest.QUICK_JAVA

#: A stream's files; one of each is a micro-batch.
FILES = 8
ONE_PROCESS, EXECUTORS = "local[2,4]", "local-cluster[2,1,1024]"

#: A start that does not end in so long hangs: that is a difference.
HANGS_AFTER_S = 300.0


def write_data(folder: Path, chance: random.Random) -> None:
    for name in "ab":
        times = [k // 2 + chance.randrange(3 if name == "a" else 1) for k in range(40 * FILES)]
        table = pa.table({
            "ts": pa.array(times, pa.int64()),
            "x": pa.array([chance.choice((None, *range(20))) for _ in times], pa.int32()),
            "of": [f"{name}{k}" for k in range(len(times))],
        })  # fmt: skip
        feeds.write_files(folder / name, table, range(40, 40 * FILES, 40))


class Pipeline:
    """One query over its files, in a folder of its own. What it must publish is known from an undisturbed run of its bytes."""

    def __init__(self, data: Path, folder: Path, query: str, *, master: str = ONE_PROCESS) -> None:
        self.data, self.folder, self.query, self.master = data, folder, query, master
        self.more: dict[str, str] = {}
        self.before: list[str] = []
        self.seen: dict[str, bytes] = {}
        self.verdict: str | None = None

    def start(self) -> subprocess.Popen[bytes]:
        """In a process group: the driver's Python and its JVM. Its words go to a log."""
        self.folder.mkdir(exist_ok=True)
        command = [
            *self.before,
            sys.executable,
            pipeline.__file__,
            str(self.data),
            str(self.folder),
            self.master,
            self.query,
        ]
        environment = (
            os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(self.folder / "local")} | self.more
        )
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log, env=environment)

    def run(self, meanwhile: Callable[[subprocess.Popen[bytes]], None] | None = None) -> int:
        """To its end; what is done to it meanwhile may end it."""
        child = self.start()
        try:
            if meanwhile is not None:
                meanwhile(child)
            return child.wait(HANGS_AFTER_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def steps(self) -> int:
        """How far it is: batches planned, published, committed."""
        places = (self.folder / "checkpoint" / "offsets", self.folder / "checkpoint" / "commits", self.folder / "out")
        return sum(1 for place in places if place.exists() for path in place.iterdir() if path.name[0] != ".")

    def comes_to(self, child: subprocess.Popen[bytes], goal: int) -> bool:
        """Wait until it is so far; False if it has ended before."""
        while child.poll() is None and self.steps() < goal:
            time.sleep(0.002)
        return child.poll() is None

    def parts(self) -> dict[str, bytes]:
        return feeds.parts(self.folder / "out") if (self.folder / "out").exists() else {}

    def changed(self) -> list[str]:
        """Parts that stood there when it was last asked and have other bytes now, or are gone."""
        found = {name: data for name, data in self.parts().items() if name[0] != "."}
        other = [name for name, data in self.seen.items() if found.get(name) != data]
        self.seen = found
        return other

    def table(self) -> pa.Table:
        return feeds.published(self.folder / "out") if self.seen else None

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-600:]


class Disturbed:
    """A scenario: a query, its data, and what an undisturbed run publishes."""

    def __init__(self, record: Record, kind: str, number: int, place: Path) -> None:
        self.chance = random.Random(f"{record.seed}:{kind}:{number}")
        self.query, self.data, self.place = self.chance.choice(QUERIES), place / "data", place
        write_data(self.data, self.chance)
        whole = Pipeline(self.data, place / "whole", self.query)
        code = whole.run()
        assert code == 0, whole.said()
        assert not whole.changed()
        self.expected = whole.table()
        self.words = f"scenario {number}, {self.query}"

    def pipeline(self, name: str, **options: str) -> Pipeline:
        return Pipeline(self.data, self.place / name, self.query, **options)

    def judge(self, run: Pipeline, code: int) -> tuple[str, str]:
        """After the last start, which nobody has disturbed or which was to survive: all rows, in order, and no part that
        somebody may have read has changed. How they are cut into parts may be otherwise: a batch that Spark had not planned
        when it was stopped may be planned with other files.
        """
        wrong = self.wrong(run)
        if code == 0 and wrong is None and as_bytes(run.table()) == as_bytes(self.expected):
            return "same", ""
        return "differs", f"{self.words}: ended with {code}, {wrong}: {run.said()}"

    def wrong(self, run: Pipeline) -> str | None:
        """After a stop: what stood there has changed, or what stands there is no beginning of the results. Once wrong, always
        wrong."""
        run.verdict = run.verdict or self._wrong(run)
        return run.verdict

    def _wrong(self, run: Pipeline) -> str | None:
        if other := run.changed():
            return f"{other} have changed"
        found = run.table()
        if found is None or as_bytes(found) == as_bytes(self.expected.slice(0, len(found))):
            return None
        return f"{len(found)} of {len(self.expected)} rows are no beginning"


def scenarios(record: Record, *kinds: str) -> Iterator[Disturbed]:
    """One after the other, as long as there are faults to come."""
    number = 0
    while record.goes_on(*kinds):
        with tempfile.TemporaryDirectory(prefix="faults-spark-") as place:
            yield Disturbed(record, kinds[0], number, Path(place))
        number += 1


def drivers(record: Record) -> None:
    """The driver, with its JVM and all workers, is killed again and again, soon after a plan, a part or a commit or in
    between."""
    kind = "Spark: driver killed, started again"
    for made in scenarios(record, kind):
        run, chance, kills = made.pipeline("killed"), made.chance, 0

        def kill(child: subprocess.Popen[bytes]) -> None:
            nonlocal kills
            if run.comes_to(child, run.steps() + chance.randrange(1, 6)):
                time.sleep(chance.random() ** 2 / 3)
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    kills += 1

        while run.run(kill) != 0 and record.injected(kind) + kills < record.most:
            if made.wrong(run) is not None:
                break
        outcome = made.judge(run, run.run())
        for _ in range(kills):
            record.tell(kind, *outcome)


def stops(record: Record) -> None:
    """The driver, its JVM and its workers are all stopped and resumed, many times in a run."""
    kind = "Spark: driver and workers stopped and resumed"
    for made in scenarios(record, kind):
        run, chance, hits = made.pipeline("stopped"), made.chance, 0

        def stop(child: subprocess.Popen[bytes]) -> None:
            nonlocal hits
            run.comes_to(child, 1)
            while child.poll() is None and hits < record.most:
                time.sleep(chance.random() / 3)
                some = [child.pid, *descendants(child.pid)]
                some = some if chance.random() < 0.5 else [chance.choice(some)]
                for each, what in ((each, what) for what in (signal.SIGSTOP, signal.SIGCONT) for each in some):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each, what)
                    if each == some[-1] and what == signal.SIGSTOP:
                        time.sleep(chance.random() / 2)
                hits += 1

        outcome = made.judge(run, run.run(stop))
        for _ in range(hits):
            record.tell(kind, *outcome)


def descendants(process: int) -> list[int]:
    """Those that it has started, and those that these have; Python's workers have a group of their own."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                parents.setdefault(pipeline.parent(int(entry.name)), []).append(int(entry.name))
    found, left = [], [process]
    while left:
        left += (mine := parents.get(left.pop(), []))
        found += mine
    return found


def executors(record: Record) -> None:
    """Of two executor processes one is killed at any moment, and the stage's lost parts run again; Spark starts another."""
    kind = "Spark: executor killed, a stage done again in part"
    for made in scenarios(record, kind):
        run, chance, kills = made.pipeline("executors", master=EXECUTORS), made.chance, 0
        most = min(3, record.most - record.injected(kind))

        def kill(child: subprocess.Popen[bytes]) -> None:
            nonlocal kills
            while kills < most and run.comes_to(child, run.steps() + chance.randrange(2, 5)):
                time.sleep(chance.random() / 2)
                named = [each for each in descendants(child.pid) if _runs(each, "CoarseGrainedExecutorBackend")]
                if named:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chance.choice(named), signal.SIGKILL)
                        kills += 1

        code = run.run(kill)
        if code != 0:  # too many in one batch: the query stops, and is started again
            code = run.run()
        outcome = made.judge(run, code)
        for _ in range(kills):
            record.tell(kind, *outcome)


def _runs(process: int, what: str) -> bool:
    try:
        return what.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


# --- clocks, disks -----------------------------------------------------------------------------------------------


def missing(kind: str, what: str) -> None:
    sys.stdout.write(f"{kind}: not injected, {what}\n")


@functools.cache
def clock() -> str | None:
    """`clock.c` as a library; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp(prefix="faults-clock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = f"{folder}/clock.so"
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", library, str(Path(__file__).with_name("clock.c"))], check=True
    )
    return library


#: Seconds by which the clock is off: it jumps from one to another.
MINUTE, DAY = 60, 86_400
JUMPS = (0, -5 * MINUTE, -30, 60 * MINUTE, DAY, -DAY, -400 * DAY, 4000 * DAY)


def clocks(record: Record) -> None:
    """The wall clock of the driver, the JVM and all workers jumps: minutes and years, on and back, many times in a run."""
    kind = "Spark: the clock jumps"
    library = clock()
    if library is None:
        return missing(kind, "there is no C compiler")
    for made in scenarios(record, kind):
        run, chance, jumps = made.pipeline("clocks"), made.chance, 0
        offset = made.place / "offset"
        offset.write_bytes(bytes(8))
        run.more = {"LD_PRELOAD": library, "PLAIT_CLOCK": str(offset)}

        def jump(child: subprocess.Popen[bytes]) -> None:
            nonlocal jumps
            run.comes_to(child, 1)
            while child.poll() is None and jumps < 60:
                with open(offset, "r+b") as file:
                    file.write(chance.choice(JUMPS).to_bytes(8, "little", signed=True))
                jumps += 1
                time.sleep(chance.random() / 2)

        code = run.run(jump)
        outcome = made.judge(run, code)
        for _ in range(max(jumps, code != 0)):
            record.tell(kind, *outcome)
    return None


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[int], None] | None]:
    """A file system of its own with so many KiB; None where that is not allowed. What is given makes it larger."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
        yield None
        return
    try:
        yield lambda now: subprocess.run(["mount", "-o", f"remount,size={now}k", str(folder)], check=True) and None
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def disks_full(record: Record) -> None:
    """Checkpoint and results lie on a disk that is full after a while: the query stops; with a little more room it is started
    again, and again, until it has enough."""
    kind = "Spark: the disk of checkpoint and results is full"
    for made in scenarios(record, kind):
        run, chance = made.pipeline("small"), made.chance
        size = chance.choice((40, 100, 200))
        with small_disk(run.folder, size) as grow:
            if grow is None:
                return missing(kind, "mounting is not allowed here")
            run.more = {"SPARK_LOCAL_DIRS": str(made.place / "local")}
            fulls = 0
            while (code := run.run()) != 0 and fulls < 12:
                fulls += 1
                if made.wrong(run) is not None:
                    break
                size += chance.choice((30, 90, 200)) if fulls < 8 else 20_000
                grow(size)
            outcome = made.judge(run, code)
        for _ in range(fulls):
            record.tell(kind, *outcome)
    return None


@functools.cache
def strace() -> str | None:
    return os.environ.get("PLAIT_STRACE") or shutil.which("strace")


#: What a slow disk is slow at.
CALLS = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,mkdir"


def slow_disks(record: Record) -> None:
    """Every call that waits for a disk takes longer, by a random share of 40 ms a run: calls, not runs, are counted by the
    hundred."""
    kind = "Spark: a slow disk (runs)"
    program = strace()
    if program is None:
        return missing(kind, "there is no strace: apt-get install strace")
    for made in scenarios(record, kind):
        run, chance = made.pipeline("slow"), made.chance
        delay = chance.randrange(1_000, 40_000)
        run.before = [program, "-f", "-qqq", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={CALLS}", "-e",
                      f"inject={CALLS}:delay_exit={delay}"]  # fmt: skip
        record.tell(kind, *made.judge(run, run.run()))
    return None


def disk_errors(record: Record) -> None:
    """A call that writes comes back with an error of the disk (EIO, ENOSPC, EDQUOT) at random; the query stops or goes on,
    and is started again until it comes to its end."""
    kind = "Spark: a write comes back with an error of the disk (starts)"
    program = strace()
    if program is None:
        return missing(kind, "there is no strace: apt-get install strace")
    for made in scenarios(record, kind):
        run, chance = made.pipeline("errors"), made.chance
        starts = 0
        for _ in range(4):
            calls = chance.choice(("fsync,fdatasync", "rename,renameat,renameat2,link,linkat", "mkdir"))
            error, first = chance.choice(("EIO", "ENOSPC", "EDQUOT")), chance.randrange(1, 60)
            run.before = [program, "-f", "-qqq", "--seccomp-bpf", "-o", "/dev/null", "-P", str(run.folder / "out"), "-P",
                          str(run.folder / "checkpoint"), "-e", f"trace={calls}", "-e",
                          f"inject={calls}:error={error}:when={first}"]  # fmt: skip
            run.run()
            starts += 1
            if made.wrong(run) is not None:
                break
        run.before = []
        outcome = made.judge(run, run.run())
        for _ in range(starts):
            record.tell(kind, *outcome)
    return None
