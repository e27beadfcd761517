"""A run on threads in a process of its own, from files to a file: killed at any moment, stopped and resumed, its disk full,
its clock gone.

Threads have no checkpoint. What holds is: the file of results is not there, or it is whole; and the same run once more gives
the same bytes, whatever the killed one has left behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from tests.faults.record import Record
from tests.faults.threads import MANY, rows

from plait.connectors.sinks import open_sink
from plait.errors import DataError
from plait.query.base import Query

ENDINGS = ("parquet", "jsonl")


class Place:
    """Files to read, the file to write, and the bytes that it must have."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.query: Query = chance.choice(MANY)
        data = {name: rows(chance, name) for name in self.query.streams()}
        for name, table in data.items():
            (folder / name).mkdir(parents=True)
            for number in range(3):
                at = len(table) // 3 * number
                pq.write_table(
                    table.slice(at, None if number == 2 else len(table) // 3), folder / name / f"p{number}.parquet"
                )
        self.out = folder / "out" / f"results.{chance.choice(ENDINGS)}"
        self.out.parent.mkdir()
        expected = self.query.reference(data)
        with open_sink(folder / f"expected.{self.out.suffix[1:]}", expected.schema) as sink:
            sink.write(expected)
        self.expected = (folder / f"expected.{self.out.suffix[1:]}").read_bytes()

    def run(self, workers: int, slow: random.Random | None = None) -> None:
        """The whole of it, in this process. `slow`: it takes its time between results, so that there is more time to be hit."""
        paths = {name: str(self.folder / name) for name in self.query.streams()}
        schema = self.query.reference({n: pq.read_table(self.folder / n).slice(0, 0) for n in paths}).schema
        with open_sink(self.out, schema) as sink:
            for batch in self.query.batches(paths, engine="threads", workers=workers, plain=True, unread_results=64):
                sink.write(batch)
                if slow is not None and slow.random() < 0.3:
                    time.sleep(slow.random() * 0.004)

    def judge(self) -> tuple[str, str]:
        """What stands there: nothing, or all of it."""
        if not self.out.exists():
            return "absent", ""
        return ("whole", "") if self.out.read_bytes() == self.expected else ("differs", "the file has other bytes")


def child(action: Callable[[], None], before: Callable[[], None] = lambda: None) -> int:
    """Do it in a process of its own; gives its number."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        os.setpgid(0, 0)
        before()
        action()
        code = 0
    except DataError:
        code = 3
    except BaseException as error:
        with contextlib.suppress(BaseException):
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
    os._exit(code)


def ended(number: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


@contextlib.contextmanager
def place(record: Record, kind: str, number: int) -> Iterator[tuple[Place, random.Random]]:
    chance = random.Random(f"{record.seed}:{kind}:{number}")
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        yield Place(Path(folder), chance), chance


def once_more(made: Place, words: str) -> tuple[str, str]:
    """After the fault: what stands there is whole or nothing, and a run that nobody disturbs gives all of it."""
    found, said = made.judge()
    if found == "differs":
        return "differs", f"{said}, {words}"
    code = ended(child(lambda: made.run(1)))
    found, said = made.judge()
    return ("same" if (code, found) == (0, "whole") else "differs"), f"once more: {code}, {found} {said}, {words}"


def killed(record: Record) -> None:
    """SIGKILL at any moment, and the same run once more."""
    kind = "threads: process killed (no checkpoint), run again"
    number = 0
    while record.goes_on(kind):
        with place(record, kind, number) as (made, chance):
            began = time.monotonic()
            assert ended(child(lambda: made.run(1))) == 0, "the undisturbed run"
            takes = time.monotonic() - began
            for _ in range(8):
                if not record.goes_on(kind):
                    break
                made.out.unlink(missing_ok=True)
                workers, after = chance.choice((1, 2)), chance.random() * takes * 1.1
                process = child(lambda: made.run(workers))
                time.sleep(after)
                os.kill(process, signal.SIGKILL)
                if ended(process) == -signal.SIGKILL:
                    record.tell(kind, *once_more(made, f"number {number}, killed after {after:.4f} s"))
        number += 1


def stopped(record: Record) -> None:
    """SIGSTOP and SIGCONT, many times in a run."""
    kind = "threads: process stopped and resumed"
    number = 0
    while record.goes_on(kind):
        with place(record, kind, number) as (made, chance):
            seed, hits = chance.random(), 0
            process = child(lambda: made.run(2, random.Random(seed)))
            while os.waitpid(process, os.WNOHANG) == (0, 0):
                time.sleep(chance.random() * 0.03)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
                    time.sleep(chance.random() * 0.02)
                    os.kill(process, signal.SIGCONT)
                    hits += 1
            found, said = made.judge()
            for _ in range(hits):
                record.tell(kind, "same" if found == "whole" else "differs", f"number {number}: {found} {said}")
        number += 1


def disk_full(record: Record) -> None:
    """No file may grow beyond so many bytes: the run ends with an error that names the file, nothing stands there, and it is
    run again."""
    kind = "threads: the disk of the results is full"
    number = 0

    def small(size: int) -> Callable[[], None]:
        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        return limit

    while record.goes_on(kind):
        with place(record, kind, number) as (made, chance):
            for _ in range(4):
                if not record.goes_on(kind):
                    break
                made.out.unlink(missing_ok=True)
                size = chance.randrange(len(made.expected))
                code = ended(child(lambda: made.run(1), small(size)))
                left = [entry.name for entry in made.out.parent.iterdir()]
                words = (
                    f"number {number}, {size} of {len(made.expected)} bytes fit: it ended with {code}, and left {left}"
                )
                if code != 3 or left:
                    record.tell(kind, "differs", words)
                else:
                    record.tell(kind, *once_more(made, words))
        number += 1
