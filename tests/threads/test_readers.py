"""Several readers of one run's results: all see the same batches in the same order, from wherever they begin."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.threads.gate import test_carrying

import plait
from plait.errors import DataError, QueryError, RunError
from plait.query.identical import difference
from plait.threads import readers

SEED = 20261117
RUNS = (("scalejoin", "strict"), ("scalejoin", "trigger"), ("elastic", "none"), ("tuml_mc", "strict"), ("operator", "strict"),
        ("dag", "strict"))  # fmt: skip


def numbered(number: int, rows: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"n": [number] * rows})


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [batch["n"][0].as_py() for batch in batches]


# --- the outlet alone ---------------------------------------------------------------------------------------------


def by_turns(outlet_of: Callable[[int], Any], seed: int) -> None:
    """Readers come, read, wait and go in any order, in one thread; what each sees is held against a list."""
    chance = random.Random(seed)
    room, total = chance.choice((1, 3, 8)), 30
    outlet, given = outlet_of(room), iter(range(total))
    taken = 0

    def take(wait_ns: int) -> Any:
        nonlocal taken
        if chance.random() < 0.3:
            return None
        number = next(given, None)
        taken += number is not None
        return False if number is None else numbered(number, chance.choice((1, 2)))

    seen: list[tuple[Any, list[int]]] = []  # a reader's place, and the number of its next batch, then what it has read
    ended: set[int] = set()
    while len(ended) < len(seen) or taken < total:
        at = chance.randrange(len(seen)) if seen else 0
        if not seen or (len(seen) < 6 and chance.random() < 0.1):
            parent = None if not seen or chance.random() < 0.5 or seen[at][0].left else seen[at]
            place = outlet.join(None if parent is None else parent[0])
            seen.append((place, [taken if parent is None else parent[1][0] + len(parent[1]) - 1]))
        elif chance.random() < 0.02 and len(seen) - len(ended) > 1:
            outlet.leave(seen[at][0])
            ended.add(at)
            assert outlet.next(seen[at][0], take, 0) is False
        elif at not in ended:
            place, read = seen[at]
            batch = outlet.next(place, take, 0)
            if batch is False:
                assert taken == total
                ended.add(at)
            elif batch is not None:
                assert batch["n"][0].as_py() == read[0] + len(read) - 1, (seed, at)
                read.append(batch["n"][0].as_py())
            alive = [read[0] + len(read) - 1 for k, (p, read) in enumerate(seen) if not p.left]
            assert len(outlet._kept) == taken - min(alive), "what all have read goes, what one has not stays"
            assert outlet._rows < room + 2
    for at, (place, read) in enumerate(seen):
        assert read[1:] == list(range(read[0], read[0] + len(read) - 1))
        assert place.left or read[0] + len(read) - 1 == total, at


@pytest.mark.parametrize("seed", range(40))
def test_readers_by_turns(seed: int) -> None:
    by_turns(readers.Outlet, seed)


FAULTS = {
    "a reader joins where the kept ones begin": ("self._end if parent is None else", "self._first if parent is None else"),
    "a child begins behind its parent": ("else parent.at)", "else parent.at + 1)"),
    "what one has read goes": ("least = min((each.at", "least = max((each.at"),
    "nothing goes": ("while self._kept and self._first < least:", "while False:"),
    "room is not looked at": ("if self._rows >= self._room or", "if"),
    "who has left is still waited for": ("            self._places.discard(place)\n", ""),
    "who takes keeps it for itself": ("self._kept.append(batch)\n", "self._first += 1\n"),
    "rows are not given back": ("self._rows -= self._kept.popleft().num_rows", "self._kept.popleft()"),
    "who has left reads on": ("                if place.left:\n                    return False\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_noticed(fault: str) -> None:
    old, new = FAULTS[fault]
    text = Path(readers.__file__).read_text()
    assert text.count(old) == 1
    made = types.ModuleType("faulty")
    exec(compile(text.replace(old, new), "faulty", "exec"), made.__dict__)
    with pytest.raises((AssertionError, IndexError)):  # noqa: PT012
        for seed in range(40):
            stop_after(lambda seed=seed: by_turns(made.Outlet, seed))


def stop_after(what: Callable[[], None], calls: int = 200_000) -> None:
    """A fault may make the turns go on for ever: that counts as noticed."""
    left = calls

    def look(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise AssertionError("it does not end")
        return None

    sys.settrace(look)
    try:
        what()
    finally:
        sys.settrace(None)


# --- of runs ------------------------------------------------------------------------------------------------------


class Reading(threading.Thread):
    """A reader in a thread of its own, at a pace of its own."""

    def __init__(self, source: Any, pace: random.Random) -> None:
        super().__init__(daemon=True)
        self.batches: list[pa.RecordBatch] = []
        self.error: BaseException | None = None
        self._source, self._pace = source, pace
        self.start()

    def run(self) -> None:
        try:
            for batch in self._source:
                self.batches.append(batch)
                if self._pace.random() < 0.2:
                    time.sleep(self._pace.random() / 500)
        except BaseException as error:
            self.error = error

    def done(self) -> list[pa.RecordBatch]:
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.batches


@pytest.mark.parametrize(("kind", "order"), RUNS)
def test_all_readers_of_a_run_see_one_sequence(kind: str, order: str) -> None:
    """Two from the beginning, `results()`, one that joins on the way, and a child of it; pushed by turns, with little room."""
    query, options = test_carrying.queries()[kind]
    chance = random.Random(f"{SEED} {kind} {order}")
    data = {name: {source: test_carrying.rows(chance, 60) for source in range(2)} for name in query.streams()}
    expected = query.reference({name: list(tables.values()) for name, tables in data.items()}, keys=True)
    schemas = {name: tables[0].schema for name, tables in data.items()}
    with query.on_threads(keys=True, schemas=schemas, order=order, unread_results=64, **options) as run:
        first = [Reading(run.reader(), random.Random(k)) for k in range(2)] + [Reading(run.results(), random.Random(2))]
        left = [(name, source, table) for name, tables in data.items() for source, table in tables.items()]
        late: list[Reading] = []
        while left:
            name, source, table = left.pop(chance.randrange(len(left)))
            run.push(name, source, table.slice(0, 7))
            if table.num_rows > 7:
                left.append((name, source, table.slice(7)))
            if len(left) < 3 and not late:
                parent = run.reader()
                late += [Reading(run.reader(parent), random.Random(3)), Reading(parent, random.Random(4))]
        run.drain()
        seen = [each.done() for each in first]
        for each in late:
            after = each.done()
            assert all(a is b for a, b in zip(seen[0][len(seen[0]) - len(after) :], after, strict=True))
        assert run.stats().results == len(expected)
    for other in seen[1:]:
        assert all(a is b for a, b in zip(seen[0], other, strict=True))
    got = pa.Table.from_batches(seen[0])
    if order != "strict":
        assert sorted(got["_plait_key"].to_pylist()) == sorted(expected["_plait_key"].to_pylist())
    else:
        assert difference(expected, got) is None


READINGS = plait.stream("readings", unit="us")
COUNTS = plait.aggregate(READINGS, size=1, compute={"n": plait.count()})  # a row a ts


def counting(**options: Any) -> Any:
    """A batch of results has no more rows than `batch=` says, if it is given."""
    return COUNTS.on_threads(schemas={"readings": pa.schema([("ts", pa.int64())])}, strategy="tuml_sc", **options)


def push(run: Any, first: int, last: int) -> None:
    run.push("readings", None, {"ts": list(range(first, last))})


def stamps(batches: Any) -> list[int]:
    return [ts for batch in batches for ts in batch["ts"].to_pylist()]


def test_where_a_reader_begins() -> None:
    with counting() as run:
        whole = run.reader()
        push(run, 0, 10)
        head = stamps([next(iter(whole))])
        assert head[0] == 0
        beside, later = run.reader(whole), run.reader()
        push(run, 10, 20)
        run.drain()
        rest = stamps(whole)
        assert rest == stamps(beside) == stamps(later) == list(range(len(head), 20))
        assert stamps(run.results()) == [], "results() is a reader from its first call on"
    with counting() as run:
        push(run, 0, 10)
        head = stamps([next(run.results())])
        after = run.reader()
        push(run, 10, 20)
        run.drain()
        assert stamps(after) == stamps(run.results()) == list(range(len(head), 20))


def test_before_columns_are_known() -> None:
    with COUNTS.on_threads() as run:
        one, two = run.reader(), run.reader()
        assert list(one.results(timeout_s=0)) == []
        push(run, 0, 5)
        run.drain()
        assert stamps(one) == stamps(two) == list(range(5))


def test_the_slowest_holds_back_and_who_leaves_does_not() -> None:
    with counting(unread_results=4, batch=4) as run:
        fast, slow, gone = run.reader(), run.reader(), run.reader()
        gone.close()
        gone.close()
        with pytest.raises(RunError, match="reader 3 was closed"):
            gone.results()
        with pytest.raises(RunError, match="reader 3 was closed"):
            run.reader(gone)
        read: list[int] = []
        for first in range(0, 60, 3):
            push(run, first, first + 3)
        while len(read) < 4:  # room for as many; then the slow one is waited for
            read += stamps([next(fast.results(timeout_s=30))])
        assert stamps(fast.results(timeout_s=0.05)) == []
        assert len(read) < 8
        assert stamps(slow.results(timeout_s=0))[: len(read)] == read
        del slow
        gc.collect()
        run.drain()
        assert read + stamps(fast) == list(range(60))


def test_a_reader_that_is_closed_while_it_waits() -> None:
    with counting() as run:
        with run.reader() as reader:
            waiting = Reading(reader, random.Random(1))
        assert waiting.done() == []
        push(run, 0, 3)
        run.drain()
        assert stamps(run.results()) == [0, 1, 2]


def test_a_reader_that_is_dropped_while_another_waits_for_it() -> None:
    """Who waits remembers whom it waits for, and must not hold it by that."""
    with counting(unread_results=2, batch=3) as run:
        fast, slow = run.reader(), run.reader()
        waiting = Reading(fast, random.Random(1))
        for first in range(0, 30, 3):
            push(run, first, first + 3)
        while not waiting.batches:
            time.sleep(0.001)
        time.sleep(0.25)  # more than one look at who is the slowest
        assert slow.name == "reader 2"
        assert sum(batch.num_rows for batch in waiting.batches) < 30
        del slow
        gc.collect()
        run.drain()
        assert stamps(waiting.done()) == list(range(30))


def test_a_reader_that_nobody_reads_is_named() -> None:
    with counting(unread_results=2, batch=3, stall_after_s=1) as run:
        fast, slow = run.reader(), run.reader()
        push(run, 0, 9)
        push(run, 9, 18)
        run.drain()
        with pytest.raises(RunError, match=r"reader 1 waited 1 s for reader 2, which has not read.*unread_results=2"):
            list(fast)
        with pytest.raises(RunError, match="reader 1 waited"):
            list(slow)


def test_errors_reach_all_readers() -> None:
    with counting() as run:
        waiting = [
            Reading(source, random.Random(k)) for k, source in enumerate((run.reader(), run.reader(), run.results()))
        ]
        push(run, 5, 9)
        with pytest.raises(DataError):
            run.push("readings", None, {"ts": [3]})
        for each in waiting:
            with pytest.raises(DataError):
                each.done()
        with pytest.raises(DataError):
            run.reader()


def test_stop_reaches_all_readers() -> None:
    with counting() as run:
        waiting = [Reading(run.reader(), random.Random(k)) for k in range(2)]
        time.sleep(0.01)
    for each in waiting:
        with pytest.raises(RunError, match="stopped"):
            each.done()
    with pytest.raises(RunError, match="The run was stopped"):
        run.reader()


def test_what_is_no_reader_of_the_run() -> None:
    with counting() as run, counting() as other:
        for parent in (other.reader(), "reader 1"):
            with pytest.raises(RunError, match="no reader of this run"):
                run.reader(parent)
        with pytest.raises(QueryError, match="timeout_s='x'"):
            list(run.reader().results(timeout_s="x"))  # type: ignore[arg-type]
