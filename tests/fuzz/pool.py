"""Many cases in processes of their own: one that hangs is killed, one that takes its process down is reported, by number."""

from __future__ import annotations

import faulthandler
import multiprocessing as mp
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

#: Longer than any case with all it may have to compile on a busy machine.
HANGS_AFTER_S = 900.0
#: Cases a process runs before another takes its place: what leaks shows as memory, not as the machine's end.
A_PROCESS = 1_000

Check = Callable[[int], str | None]


def _work(check: Check, cases: list[int], to: Connection, log: str, hangs_after_s: float) -> None:
    with open(log, "w") as dump:
        for case in cases:
            faulthandler.dump_traceback_later(hangs_after_s, file=dump)
            to.send(("begin", case, None))
            try:
                found = check(case)
            except Exception:
                found = f"case {case}: the fuzzer itself failed\n{traceback.format_exc()}"
            to.send(("end", case, found))
        faulthandler.cancel_dump_traceback_later()


@dataclass
class _Worker:
    process: Any
    heard: Connection
    cases: list[int]
    log: str
    began: float = field(default_factory=time.monotonic)
    at: int | None = None


def run(check: Check, cases: range, *, processes: int, each: Callable[[int, str | None], None],
        hangs_after_s: float = HANGS_AFTER_S, share: int = A_PROCESS) -> None:  # fmt: skip
    """Every case once; `each` is told of each as it ends. With no processes, in this one."""
    if processes == 0:
        for case in cases:
            each(case, check(case))
        return
    context = mp.get_context("fork")
    left = [list(cases[at : at + share]) for at in range(0, len(cases), share)][::-1]
    workers: list[_Worker] = []

    def start(some: list[int]) -> None:
        heard, to = context.Pipe(duplex=False)
        file, log = tempfile.mkstemp(prefix="fuzz-")
        os.close(file)
        process = context.Process(target=_work, args=(check, some, to, log, hangs_after_s), daemon=True)
        process.start()
        to.close()
        workers.append(_Worker(process, heard, some, log))

    while left or workers:
        while left and len(workers) < processes:
            start(left.pop())
        ready = wait([w.heard for w in workers], timeout=1.0)
        for worker in list(workers):
            ended = _listen(worker, each) if worker.heard in ready else False
            hangs = time.monotonic() - worker.began > hangs_after_s + 1
            if not (ended or hangs):
                continue
            worker.process.kill() if hangs else worker.process.join()
            workers.remove(worker)
            rest = _rest(worker, hangs, each)
            if rest:
                left.append(rest)
            os.unlink(worker.log)


def _listen(worker: _Worker, each: Callable[[int, str | None], None]) -> bool:
    """Whatever it has said; True when it has ended."""
    try:
        while worker.heard.poll():
            what, case, found = worker.heard.recv()
            worker.began = time.monotonic()
            worker.at = case if what == "begin" else None
            if what == "end":
                each(case, found)
    except EOFError:
        return True
    return False


def _rest(worker: _Worker, hangs: bool, each: Callable[[int, str | None], None]) -> list[int]:
    """The cases after the one that a process did not come back from."""
    if worker.at is None:
        return []
    with open(worker.log) as file:
        stacks = file.read()
    what = "hangs" if hangs else f"ended its process with {worker.process.exitcode}"
    each(worker.at, f"case {worker.at} {what}\n{stacks}")
    return worker.cases[worker.cases.index(worker.at) + 1 :]


def progress(total: int, began: float, done: int, found: int) -> None:
    passed = time.monotonic() - began
    sys.stdout.write(f"{done:,} of {total:,} cases, {found} differences, {done / passed:.1f}/s\n")
    sys.stdout.flush()
