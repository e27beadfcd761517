"""On threads, in this process: sources that lie about their order, interrupts at any moment, readers that stop.

Queries, data and deliveries are the fuzzer's (`tests.fuzz`), and so is the judge: the reference.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.faults.record import Record
from tests.fuzz import deliveries, judge, queries
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw, taken
from tests.fuzz.judge import Answer
from tests.fuzz.queries import Group

import plait
from plait.errors import LateError, RunError
from plait.query.identical import difference

#: Kernels run as Python: a machine that has compiled nothing yet would compile for longer than the faults take. Nothing
#: strikes but what is put there. Streams of `late="drop"` may have late rows before one is made.
DRAW, WAYS = Draw(endless_timers=False), Ways(compiled=0, interrupts=False)


def groups(record: Record, kind: str) -> Iterator[tuple[Group, Answer, random.Random]]:
    """Queries with data that nobody has broken yet, as long as there are faults to come."""
    number = 0
    while record.goes_on(kind):
        chance = random.Random(f"{record.seed}:{kind}:{number}")
        number += 1
        group = queries.group(chance, DRAW)
        answer = judge.answer(group)
        if answer.table is not None and answer.error is None:
            yield group, answer, chance


# --- a source that lies about its order ----------------------------------------------------------------------


def lying(record: Record) -> None:
    """A row comes after others that are more than the stream's `disorder` ahead of it: `late="error"` stops with the source's
    name, `late="drop"` gives what the reference gives without the row."""
    kind = "threads: a source that lies about its order"
    for group, whole, chance in groups(record, kind):
        for _ in range(4):
            broken = with_a_lie(group, chance)
            if broken is None or not record.goes_on(kind):
                break
            answer = judge.answer(broken)
            if not isinstance(answer.error, LateError) and _late(answer) == _late(whole):
                continue  # it ran back by less than it may
            given = deliveries.delivery(chance, broken, WAYS)
            given.stop_after = None
            got = deliveries.carried_out(broken, given)
            words = f"{broken.described()}\n{given.described()}"
            said = judge.judged(answer, got)
            if said is None and isinstance(got.error, LateError):
                named = any(f"{each.stream.name!r}" in str(got.error) for each in broken.feeds)
                record.tell(kind, "refused" if named else "differs", f"it names no stream: {got.error}\n{words}")
            else:
                record.tell(kind, "same" if said is None else "differs", f"{said}\n{words}")


def _late(answer: Answer) -> int:
    return sum(len(rows) for rows in answer.late.values())


def with_a_lie(group: Group, chance: random.Random) -> Group | None:
    """One row of a source stands further behind, where times have gone beyond it."""
    places = [(at, name) for at, each in enumerate(group.feeds) for name, rows in each.sources.items()
              if len(rows) > 1 and each.stream.seq_column is None and each.stream.seq != "content"]  # fmt: skip
    if not places:
        return None
    at, name = chance.choice(places)
    feed = group.feeds[at]
    rows, times = feed.sources[name], feed.times(feed.sources[name])
    slack = feed.stream.disorder_us
    some = [
        (i, j)
        for i in range(len(times))
        for j in range(i + 1, len(times))
        if times[i] < max(times[i + 1 : j + 1]) - slack
    ]
    if not some:
        return None
    i, j = chance.choice(some)
    order = [*range(i), *range(i + 1, j + 1), i, *range(j + 1, len(rows))]
    feeds = list(group.feeds)
    feeds[at] = replace(feed, sources={**feed.sources, name: taken(rows, order)})
    return replace(group, feeds=tuple(feeds))


# --- interrupts ----------------------------------------------------------------------------------------------


def interrupts(record: Record) -> None:
    """An exception strikes the pushing thread between any two instructions, as Ctrl-C does. What a reader has seen by then is a
    beginning of the result, and the same run once more gives all of it."""
    kind = "threads: interrupted at any moment"
    for group, answer, chance in groups(record, kind):
        for _ in range(4):
            given = deliveries.delivery(chance, group, WAYS)
            if given.options.get("order", "strict") != "strict" or deliveries.undeclared(group.feeds):
                continue
            given.stop_after, given.reading = None, "beside"
            given.strike_after_s = chance.choice((0.001, 0.003, 0.01, 0.03)) * chance.random()
            words = f"{group.described()}\n{given.described()}"
            try:
                got = deliveries.carried_out(group, given)
            except Exception as error:  # of its end
                record.tell(kind, "differs", f"{type(error).__name__}: {error}\n{words}")
                continue
            if got.whole and got.error is None:
                continue  # it came too late
            said = judge.judged(answer, got)
            again = replace(given, strike_after_s=None, chance=random.Random(chance.random()))
            said = said or judge.judged(answer, deliveries.carried_out(group, again))
            record.tell(kind, "same" if said is None else "differs", f"{said}\n{words}")
            if not record.goes_on(kind):
                return


# --- readers -------------------------------------------------------------------------------------------------

A, B = plait.stream("a", unit="us", disorder=2), plait.stream("b", unit="us")
#: Of each there are many more results than a run keeps for its readers.
MANY = (
    plait.join(A, B, on="abs(l.x - r.x) <= 2", within=(9, 6)),
    plait.join(A, B, on="l.x = r.x", within=(20, 20), how="left"),
    plait.asof(A, B, by="x", within=19),
    plait.aggregate(A, size="9us", advance="2us", by="x", compute={"n": plait.count(), "last": plait.last("of")}),
    plait.union(A.where("x % 3 <> 0"), B.where("x > 2")),
)
ROWS = 400


def rows(chance: random.Random, name: str) -> pa.Table:
    times = [k // 2 + chance.randrange(3 if name == "a" else 1) for k in range(ROWS)]
    x = pa.array([chance.choice((None, *range(12))) for _ in times], pa.int32())
    return pa.table({"ts": pa.array(times, pa.int64()), "x": x, "of": [f"{name}{k}" for k in range(ROWS)]})


def readers(record: Record) -> None:
    """A reader that pauses holds the run up and changes nothing; one that never reads again stops it with words that say so.
    What it has read by then is a beginning of the result."""
    for stops, kind in ((False, "threads: a reader that pauses"), (True, "threads: a reader that stops for good")):
        number = 0
        while record.goes_on(kind):
            chance = random.Random(f"{record.seed}:{kind}:{number}")
            number += 1
            query = chance.choice(MANY)
            data = {name: rows(chance, name) for name in query.streams()}
            expected = query.reference(data)
            options = {"workers": chance.choice((1, 2)), "unread_results": chance.choice((1, 8, 64)), "plain": True}
            options |= {
                "stall_after_s": chance.choice((0.2, 0.4)) if stops else 60.0,
                "capacity": chance.choice((16, 512)),
            }
            for _ in range(4):
                if record.goes_on(kind):
                    outcome, words = _read_slowly(query, data, expected, options, chance, stops=stops)
                    record.tell(kind, outcome, f"number {number - 1}: {words} {options} {query.explain()}")


def _read_slowly(query: Any, data: dict[str, pa.Table], expected: pa.Table, options: dict[str, Any], chance: random.Random, *,
                 stops: bool) -> tuple[str, str]:  # fmt: skip
    seen: list[pa.RecordBatch] = []
    after, seed = chance.randrange(4), chance.random()
    error: BaseException | None = None
    with query.on_threads(**options) as run:
        ended = threading.Event()

        def read() -> None:
            naps = random.Random(seed)
            while not ended.is_set() and not (stops and len(seen) > after):
                time.sleep(naps.choice((0, 0, 0.001, 0.01)))
                seen.extend(itertools.islice(run.results(timeout_s=naps.choice((0, 0.001, 0.01))), 1))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            _push(run, data, random.Random(seed))
            run.drain()
        except RunError as found:
            error = found
        ended.set()
        reader.join(30)
        if error is None:
            seen += run.results()
    got = pa.Table.from_batches(seen, expected.schema) if seen else expected.schema.empty_table()
    other = difference(expected.slice(0, len(got)), got, "strict")
    if other is not None or (error is None and len(got) != len(expected)):
        return "differs", f"{len(got)} of {len(expected)} rows, {other}"
    if error is None:
        return "same", ""
    told = stops and re.search("results|read", str(error)) is not None
    return ("refused" if told else "differs"), str(error)


def _push(run: Any, data: dict[str, pa.Table], chance: random.Random) -> None:
    """Streams by turns, a few rows each."""
    left = dict(data)
    while left:
        name = chance.choice(sorted(left))
        size = chance.choice((1, 7, 40))
        run.push(name, None, left[name].slice(0, size))
        left[name] = left[name].slice(size)
        if not len(left[name]):
            del left[name]
