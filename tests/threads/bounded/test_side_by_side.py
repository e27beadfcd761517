"""Jobs side by side: batches in the order of jobs and of makers, an error in its place, never too many ahead, no thread left."""

from __future__ import annotations

import random
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from plait.threads.bounded import side_by_side


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert [t.name for t in threading.enumerate() if t.name.startswith("plait-bounded")] == []


def batch(job: int, number: int) -> pa.RecordBatch:
    return pa.record_batch({"job": [job], "number": [number]})


class Work:
    """Jobs of random lengths, whose steps take random times; what was made and not read is counted."""

    def __init__(self, seed: int, jobs: int) -> None:
        chance = random.Random(seed)
        self.sizes = [chance.choice((0, 1, 3, 40)) for _ in range(jobs)]
        self.pace = [chance.choice((0.0, 0.0, 0.001)) for _ in range(7)]
        self.empty = chance.choice((2, 5))  # every so many makers have nothing to give
        self._lock = threading.Lock()
        self.made = self.read = self.most = self.found = self.most_found = 0

    def expected(self) -> list[tuple[int, int]]:
        return [(job, k) for job, size in enumerate(self.sizes) for k in range(size) if k % self.empty]

    def job(self, job: int) -> Callable[[], Iterator[Any]]:
        def find() -> Iterator[Any]:
            for k in range(self.sizes[job]):
                time.sleep(self.pace[(job + k) % 7])
                with self._lock:
                    self.found += 1
                    self.most_found = max(self.most_found, self.found - self.made)
                yield lambda k=k: self.make(job, k)

        return find

    def make(self, job: int, k: int) -> pa.RecordBatch | None:
        time.sleep(self.pace[(job + 3 * k) % 7])
        with self._lock:
            self.made += 1
            self.most = max(self.most, self.made - self.read)
        return batch(job, k) if k % self.empty else None

    def taken(self, jobs: Any, most: int) -> Iterator[tuple[int, int]]:
        for each in jobs.taken(most):
            with self._lock:
                self.read += 1
            yield each["job"][0].as_py(), each["number"][0].as_py()


def by_turns(module: Any, seed: int) -> None:
    chance, threads = random.Random(seed), 1 + seed % 3
    work = Work(seed, chance.randrange(1, 9))
    got = []
    with module.SideBySide(threads) as jobs:
        for job in range(len(work.sizes)):
            jobs.put(work.job(job))
            got += list(work.taken(jobs, 2 * threads))
        got += list(work.taken(jobs, 0))
    assert got == work.expected(), seed


@pytest.mark.parametrize("seed", range(12))
def test_batches_come_in_the_order_of_jobs(seed: int) -> None:
    by_turns(side_by_side, seed)


def test_who_does_not_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are made, and makers that wait, are bounded, however many there would be."""
    monkeypatch.setattr(side_by_side, "AHEAD", 4)
    work = Work(1, 3)
    work.sizes, work.pace, work.empty = [200, 200, 200], [0.0] * 7, 1000
    got = []
    with side_by_side.SideBySide(2) as jobs:
        for job in range(3):
            jobs.put(work.job(job))
        for each in work.taken(jobs, 0):
            if len(got) < 20:
                time.sleep(0.01)  # the others have time to run ahead
            got.append(each)
    assert got == work.expected()
    assert work.most <= 2 * 4 + 3
    assert work.most_found <= 3 * 2 + 2 + 3


def test_one_jobs_makers_are_everybodys() -> None:
    at_once, most, lock = [0], [0], threading.Lock()

    def make() -> pa.RecordBatch:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.005)
        with lock:
            at_once[0] -= 1
        return batch(0, 0)

    with side_by_side.SideBySide(3) as jobs:
        jobs.put(lambda: iter([make] * 30))
        assert len(list(jobs.taken(0))) == 30
    assert most[0] == 3


@pytest.mark.parametrize("where", ["finding", "making"])
def test_an_error_comes_in_its_place(where: str) -> None:
    def job() -> Iterator[Any]:
        yield lambda: batch(0, 1)
        if where == "finding":
            raise ValueError("in the midst")

        def make() -> pa.RecordBatch:
            raise ValueError("in the midst")

        yield make
        yield lambda: batch(0, 2)

    got = []
    with side_by_side.SideBySide(2) as jobs:
        jobs.put(lambda: iter([lambda: batch(0, 0)]))
        jobs.put(job)
        jobs.put(lambda: iter([lambda: batch(0, 3)]))
        with pytest.raises(ValueError, match="in the midst"):  # noqa: PT012
            for each in jobs.taken(0):
                got.append(each["number"][0].as_py())
    assert got == [0, 1]


@pytest.mark.parametrize("read", [0, 1, 30])
def test_who_leaves_early_ends_all(read: int) -> None:
    work = Work(2, 2)
    work.sizes, work.pace, work.empty = [300, 300], [0.0001] * 7, 1000
    with side_by_side.SideBySide(2) as jobs:
        for job in range(2):
            jobs.put(work.job(job))
        for _, each in zip(range(read), work.taken(jobs, 0), strict=False):
            assert each[0] == 0
    assert work.made < 200


FAULTS = {
    "the last job first": ("self._jobs.append(_Opened(job))", "self._jobs.appendleft(_Opened(job))"),
    "whoever is first": ("return first.slots[0].made", "return True"),
    "a job ends with its first batch": (
        "return [_Slot(next(self.finder))], False",
        "return [_Slot(next(self.finder))], True",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.timeout(120)
def test_the_fault_is_noticed(fault: str) -> None:
    old, new = FAULTS[fault]
    text = Path(side_by_side.__file__).read_text()
    assert text.count(old) == 1
    made = types.ModuleType("faulty")
    exec(compile(text.replace(old, new), "faulty", "exec"), made.__dict__)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(40):
            by_turns(made, seed)
