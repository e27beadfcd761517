"""Cases of a kind in a child process: many a second, each under limits, and another child where one ends.

The child writes the number of a case into shared memory before it runs it. So the parent knows which case a child did not come
back from, reports it, and starts another child with the next one. Limits of a case: `LIMIT_S` seconds of processor time (a signal
raises in Python's code; what is stuck outside of Python is killed after `KILL_S` seconds), `LIMIT_MB` of memory that the process
had not had before, and for the process an address space of `SPACE_MB` more than it begins with.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import logging
import mmap
import multiprocessing as mp
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.fuzz.inputs import mutate

from plait.errors import PlaitError

LIMIT_S = 5.0
KILL_S = 120.0
LIMIT_MB = 400
SPACE_MB = 6_000
#: No words for a person are longer than this, whatever was given.
LONGEST = 20_000

TAKEN, REFUSED = "taken", "refused"
_NOW = struct.Struct("=qdqq")  # the case, when it began; how many were taken and refused so far


@dataclass(frozen=True)
class Kind:
    """A door: `make` gives an input, `check` brings it in. What `check` raises is judged; it may give words for what it saw."""

    name: str
    make: Callable[[random.Random], Any]
    check: Callable[[Any], None]
    #: Errors that are right besides plait's, such as Click's.
    also: tuple[type[BaseException], ...] = ()
    #: Seconds of work that a case may take. Where something may be compiled, more.
    limit_s: float = LIMIT_S
    limit_mb: int = LIMIT_MB


class TooLong(BaseException):
    """Raised in a case that has had its time."""


@dataclass
class Tally:
    """What came of the cases of a kind."""

    ran: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)  # the first case of each, by what it is
    times: collections.Counter[str] = field(default_factory=collections.Counter)

    def add(self, signature: str, case: int, words: str) -> None:
        self.times[signature] += 1
        self.findings.setdefault(signature, (case, words))


def made(kind: Kind, seed: int, case: int) -> Any:
    return kind.make(random.Random(f"{seed}:{kind.name}:{case}"))


def judged(kind: Kind, given: Any) -> tuple[str, str]:
    """What came of an input: TAKEN, REFUSED, or what a finding is, and its words."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, kind.limit_s)
    try:
        kind.check(given)
        outcome = TAKEN, ""
    except PlaitError as error:
        outcome = _words_of(error)
    except kind.also:
        outcome = REFUSED, ""
    except TooLong as error:
        outcome = f"longer than {kind.limit_s:g} s of work in {_place(error)}", traceback.format_exc(limit=-12)
    except BaseException as error:  # whatever it is, it is none of plait's errors
        outcome = f"{type(error).__name__} in {_place(error)}", traceback.format_exc(limit=-12)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    if outcome[0] in (TAKEN, REFUSED) and more > kind.limit_mb:
        return f"{kind.limit_mb} MB and more of memory, {outcome[0]}", f"{more} MB; {outcome[1]}"
    return outcome


def _words_of(error: PlaitError) -> tuple[str, str]:
    """A refusal says what is wrong, in words that can be shown, and not for pages."""
    said = str(error)
    if not error.fact.strip() or not said.strip():
        return f"{type(error).__name__} without words in {_place(error)}", traceback.format_exc(limit=-12)
    if len(said) > LONGEST:
        return f"{type(error).__name__} of more than {LONGEST} characters in {_place(error)}", said[:500]
    try:
        said.encode()
    except UnicodeEncodeError:
        return f"{type(error).__name__} that can't be written as UTF-8 in {_place(error)}", repr(said)
    return REFUSED, said


def _place(error: BaseException) -> str:
    """Where plait was: the last of its lines, without their numbers, so that one fault is one finding."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{os.sep}plait{os.sep}" in f.filename]
    found = ours[-1] if ours else frames[-1]
    parts = Path(found.filename).parts
    return f"{'/'.join(parts[-3:])} {found.name}"


def _stop(*_: object) -> None:
    raise TooLong


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """The signal of a case that has had its time, and no warnings."""
    before = signal.signal(signal.SIGPROF, _stop)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.signal(signal.SIGPROF, before)


def one(kind: Kind, seed: int, case: int) -> tuple[str, str, Any]:
    """A case in this process."""
    given = made(kind, seed, case)
    with limits():
        return *judged(kind, given), given


def _work(kind: Kind, seed: int, cases: range, now: mmap.mmap, to: Connection, log: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open("/proc/self/statm") as statm:
        space = int(statm.read().split()[0]) * resource.getpagesize() + (SPACE_MB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdin = open(os.devnull)  # noqa: SIM115  # until the process ends
    logging.disable()  # sqlglot's words of what it passes over
    faulthandler.enable(open(log, "w"))  # noqa: SIM115
    ran = {TAKEN: 0, REFUSED: 0}
    seen: set[str] = set()
    with limits(), tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory()) as place:
        os.chdir(place)
        for case in cases:
            now[: _NOW.size] = _NOW.pack(case, time.monotonic(), *ran.values())
            signature, words, given = "", "", None
            try:
                given = made(kind, seed, case)
                signature, words = judged(kind, given)
            except BaseException:
                signature, words = "the fuzzer itself failed", traceback.format_exc(limit=-6)
            if signature in (TAKEN, REFUSED):
                ran[signature] += 1
            else:
                if signature not in seen:
                    seen.add(signature)
                    words = f"{words}\n{_shown(kind, given, signature)}"
                to.send((case, signature, words))
    now[: _NOW.size] = _NOW.pack(-1, time.monotonic(), *ran.values())


def _memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _shown(kind: Kind, given: Any, signature: str) -> str:
    """An input that a person can read, smaller if it may be."""
    if isinstance(given, (str, bytes)) and len(given) <= 100_000 and "longer than" not in signature:
        given = mutate.smaller(given, lambda less: judged(kind, less)[0] == signature)
    shown = repr(given)
    return f"input: {shown if len(shown) <= 1_500 else shown[:1_500] + f' ... ({len(shown)} characters)'}"


def run(kind: Kind, seed: int, cases: range, tally: Tally, each: Callable[[Tally], None] = lambda _: None) -> None:
    """Every case once, one child at a time."""
    context = mp.get_context("fork")
    while len(cases):
        now = mmap.mmap(-1, _NOW.size)
        now[: _NOW.size] = _NOW.pack(cases.start, time.monotonic(), 0, 0)
        heard, to = context.Pipe(duplex=False)
        with tempfile.NamedTemporaryFile(prefix="fuzz-") as log:
            child = context.Process(target=_work, args=(kind, seed, cases, now, to, log.name), daemon=True)
            child.start()
            to.close()
            killed = _listened(child, heard, now, tally, each)
            child.join()
            at, _, taken, refused = _NOW.unpack(now[: _NOW.size])
            tally.ran.update({TAKEN: taken, REFUSED: refused})
            if at < 0:
                return
            stacks = Path(log.name).read_text(errors="replace")
        what = f"stuck for {KILL_S:g} s" if killed else f"ended its process with {child.exitcode}"
        tally.add(f"{what}{_ours(stacks)}", at, stacks[:3_000])
        cases = range(at + 1, cases.stop)


def _ours(stacks: str) -> str:
    """Where plait was, of a dump of stacks."""
    found = next((line for line in stacks.splitlines() if f"{os.sep}plait{os.sep}" in line), "")
    return " in " + found.strip().partition("plait" + os.sep)[2] if found else ""


def _listened(child: Any, heard: Connection, now: mmap.mmap, tally: Tally, each: Callable[[Tally], None]) -> bool:
    """All that a child says, until it has ended; True if it had to be killed."""
    while True:
        if heard.poll(1.0):
            try:
                told = heard.recv()
            except EOFError:
                return False
            tally.add(told[1], told[0], told[2])
            each(tally)
            continue
        at, began, *_ = _NOW.unpack(now[: _NOW.size])
        if at >= 0 and time.monotonic() - began > KILL_S:
            child.kill()
            return True
