"""How a group's rows reach a run on threads: everything that the law says can't be seen in the result.

A delivery is drawn from a seed of its own: options of the run, how rows are cut, held and interleaved, which threads push and
read, heartbeats, ends, resizes, and whether the run is stopped early.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from tests.fuzz import values
from tests.fuzz.feeds import Feed
from tests.fuzz.judge import Got, undeclared
from tests.fuzz.queries import Group
from tests.threads.join.restless import restless

from plait.errors import PlaitError, QueryError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.join import Join
from plait.query.operator import Operator
from plait.query.row_by_row import Union, base, rooted
from plait.threads.readers import Reader
from plait.threads.run import Run
from plait_bench import multi_queues

#: Partitioned joins whose tables change by chance.
RESTLESS = (restless(1, 1), restless(2, 5), restless(3, 30))


@dataclass(frozen=True)
class Ways:
    """What deliveries may do. Known faults that are being mended are switched off here, and nowhere else."""

    first_pushes: bool = True  # several threads push before all columns are known
    dictionaries: bool = True  # columns come as dictionaries of any kind
    interrupts: bool = True  # an exception strikes a pushing thread, anywhere
    compiled: int = 288  # of the pool's conditions, those that are compiled; the others' kernels run as Python
    plain: float = 0.05  # how many of the compiled ones do, too


@dataclass(frozen=True)
class Step:
    """`act` is push, heartbeat or close."""

    act: str
    stream: str
    source: Any
    what: Any = None

    def do(self, run: Run) -> None:
        if self.act == "push":
            run.push(self.stream, self.source, self.what)
        elif self.act == "heartbeat":
            run.heartbeat(self.stream, self.source, self.what)
        else:
            run.close(self.stream, self.source)

    def __str__(self) -> str:
        what = f"{self.what.num_rows} rows" if self.act == "push" else self.what
        return f"{self.act} {self.stream} {self.source!r} {'' if what is None else what}"


@dataclass
class Delivery:
    """One way. `lanes` are what one thread each may push; `threads` how many push."""

    options: dict[str, Any]
    lanes: list[list[Step]]
    threads: int
    reading: str  # "after", "between", "beside", "beside, with timeouts"
    make_known: bool
    stop_after: int | None
    resizes: list[int]
    strike_after_s: float | None  # interrupted so long after it began
    chance: random.Random
    feeds: tuple[Feed, ...] = field(default=())

    def described(self) -> str:
        steps = "".join(f"\n    lane {n}: {'; '.join(map(str, lane))}" for n, lane in enumerate(self.lanes))
        options = {k: v for k, v in self.options.items() if k != "schemas"} | {"schemas": "schemas" in self.options}
        return (f"  options {options}\n  {self.threads} pushing threads, reads {self.reading}, make known {self.make_known}, "
                f"stop after {self.stop_after}, struck after {self.strike_after_s}, resizes {self.resizes}{steps}")  # fmt: skip


# --- drawing ------------------------------------------------------------------------------------------------


def delivery(chance: random.Random, group: Group, ways: Ways) -> Delivery:
    threads = chance.choice((1, 1, 1, 2, 3))
    with_schemas = chance.random() < 0.6 or (threads > 1 and not ways.first_pushes)
    lanes = [lane for each in group.feeds for lane in _lanes(chance, each, ways, with_schemas, threads)]
    if group.endless:
        # What a source promises beyond all tuples is data to a timer that sets timers: it runs as often as time passes.
        last = max((ts for each in group.feeds for rows in each.sources.values() for ts in each.times(rows)), default=0)
        lanes = [[step for step in lane if step.act != "heartbeat" or step.what <= last] for lane in lanes]
    options = _more_options(_options(chance, group, ways))
    if not with_schemas:
        options.pop("index", None)  # one that can't serve is refused once columns are known, and so is WiML
        if options.get("strategy", "").startswith("wiml"):
            del options["strategy"]
    else:
        options["schemas"] = {each.stream.name: each.schema for each in group.feeds}
    reading = chance.choice(("after", "after", "between", "beside", "beside, with timeouts"))
    if options["unread_results"] < 100 and not reading.startswith("beside"):
        reading = "beside"
    strike = chance.random() * 0.01 if ways.interrupts and chance.random() < 0.06 else None
    if strike is not None:
        reading = "beside"  # who reads is not who is struck: a batch it was just given would be lost
    steps = sum(map(len, lanes))
    resizes = (
        [chance.randint(1, options["elastic"]) for _ in range(chance.randrange(4))] if "elastic" in options else []
    )
    return Delivery(
        options, lanes, threads, reading,
        make_known=chance.random() < 0.8,
        stop_after=chance.randrange(steps + 1) if chance.random() < 0.08 else None,
        resizes=resizes, strike_after_s=strike, chance=random.Random(chance.random()), feeds=group.feeds,
    )  # fmt: skip


LINGERS = 0.1  # of all cases: pushes wait for others of their source


def _options(chance: random.Random, group: Group, ways: Ways) -> dict[str, Any]:
    query = group.query
    options: dict[str, Any] = {"keys": chance.random() < 0.7, "capacity": chance.choice((1, 4, 16, 64, 512))}
    # On a busy machine compiling takes longer than a stall may; a case that hangs is killed by `pool`.
    options["stall_after_s"] = 240.0
    # Rings of the default size would cost more to make than everything else in a case.
    options["unread_results"] = chance.choice((1, 8, 64)) if chance.random() < 0.15 else 1 << 14
    if chance.random() < 0.4:
        options["batch"] = chance.choice((1, 2, 7))
    if chance.random() < ways.plain or any(each.number >= ways.compiled for each in group.on):
        options["plain"] = True
    if chance.random() < 0.15 and not isinstance(base(rooted(query)), Union):
        options["elastic"] = chance.choice((1, 2, 3))
        if isinstance(query := base(query), Operator):
            options["elastic"] = min(options["elastic"], query.buckets)
        options["workers"] = chance.randint(1, options["elastic"])
        return options
    options["workers"] = chance.choice((1, 1, 2, 2, 3))
    if chance.random() < LINGERS:
        options["linger"] = chance.choice(("100us", "3ms"))
    if isinstance(query, Join):
        options |= _join_options(chance, query, options["workers"])
    elif isinstance(query, Aggregate) and chance.random() < 0.5:
        options["strategy"] = chance.choice((*multi_queues.NAMES, "tuml_sc", "wiml", "wiml_shared", "tuml_mc"))
        if options["strategy"] == "tuml_mc" and not query.by:
            options["strategy"] = "tuml_sc"
        if options["strategy"] != "tuml_mc":
            options["workers"] = 1
    return options


def _more_options(options: dict[str, Any]) -> dict[str, Any]:
    """What came later: drawn from what was drawn before, so that a case of an older seed is otherwise what it was."""
    chance, found = random.Random(repr(sorted(options.items()))), {}
    if chance.random() < 0.25:
        found["gate"] = "skiplist"
    if chance.random() < 0.1:
        found["affinity"] = True
    if options.get("strategy") == "splitjoin" and chance.random() < 0.4:
        found["fan_in"] = chance.choice((2, 3))
    if options.get("strategy") == "splitjoin" and options.get("workers", 1) > 1 and chance.random() < 0.3:
        found["split_storing"] = True
    if "order" in options and options.get("workers", 1) > 1 and chance.random() < 0.3:
        # Of joins; `_started` leaves it out where the condition has no equality and no band.
        options = {name: value for name, value in options.items() if name not in ("layout", "emitter")}
        found |= {"strategy": chance.choice(("partitioned", *RESTLESS))}
        for name in ("fan_in", "split_storing"):
            found.pop(name, None)
    return options | found


def _join_options(chance: random.Random, query: Join, workers: int) -> dict[str, Any]:
    found: dict[str, Any] = {"order": chance.choice(("strict", "strict", "strict", "trigger", "none"))}
    if chance.random() < 0.6:
        found["strategy"] = chance.choice(("scalejoin", "splitjoin", "dpjoin") if query.how == "inner" else ("dpjoin",))
        if workers == 1 and chance.random() < 0.5:
            found["strategy"] = "sequential"
    if found.get("strategy") == "dpjoin" and query.how == "inner" and chance.random() < 0.5:
        found["layout"] = chance.choice(("linear", "square", "rectangular"))
    if found.get("strategy") == "dpjoin" and chance.random() < 0.4:
        found["emitter"] = True
    if found["order"] != "strict":
        found["keys"] = True
    if chance.random() < 0.4:
        found["index"] = chance.choice(("scan", "hash", "grid", "sorted"))
    return found


def _lanes(chance: random.Random, each: Feed, ways: Ways, with_schemas: bool, threads: int) -> list[list[Step]]:
    """The steps of every source; of those that a column names, of all together or of two parts."""
    keep = (
        frozenset(each.schema.names)
        if not ways.dictionaries
        else frozenset({"src", "n"} | ({"ts"} if chance.random() < 0.5 else set()))
    )
    if not with_schemas:
        # The first batch says what the columns are, and how rows are held must not: the reference has them as they were.
        keep = frozenset(each.schema.names)
    if not each.by_column:
        return [
            _steps(chance, each, [source], each.sources[source], source, keep, with_schemas) for source in each.sources
        ]
    names = list(each.sources)
    parts = [names]
    if threads > 1 and len(names) > 1 and chance.random() < 0.6:
        parts = [names[:1], names[1:]]
    return [_steps(chance, each, part, each.interleaved(frozenset(part)), None, keep, with_schemas) for part in parts]


def _steps(chance: random.Random, each: Feed, sources: list[Any], rows: pa.Table, source: Any, keep: frozenset[str],
           with_schemas: bool) -> list[Step]:  # fmt: skip
    name = each.stream.name
    steps: list[Step] = []
    if not with_schemas and (len(rows) == 0 or chance.random() < 0.1):
        steps.append(Step("push", name, source, rows.slice(0, 0)))
    times = each.times(rows)
    owners = rows.column("src").to_pylist() if source is None else [source] * len(rows)
    at = 0
    while at < len(rows):
        size = chance.choice((1, 1, 2, 3, 5, 100))
        part = rows.slice(at, size)
        at += size
        part = values.disguised(chance, part, keep) if chance.random() < 0.6 else part
        batch = part.to_batches() if chance.random() < 0.5 else []
        steps.append(Step("push", name, source, batch[0] if len(batch) == 1 else part))
        for other in sources:
            coming = [ts for ts, owner in zip(times[at:], owners[at:], strict=True) if owner == other]
            if not coming and chance.random() < 0.2:
                steps.append(Step("close", name, other))
                sources = [s for s in sources if s != other]
            elif chance.random() < 0.15:
                bound = min(coming, default=max(times) + chance.choice((0, 1, 9)))
                steps.append(Step("heartbeat", name, other, min(AFTER_ALL, bound - chance.choice((0, 0, 1)))))
    return steps


# --- running ------------------------------------------------------------------------------------------------


class Strike(BaseException):
    """What the handler of a signal raises, as Ctrl-C does: in the main thread, between any two instructions."""


@contextlib.contextmanager
def struck(after_s: float | None) -> Iterator[None]:
    """The main thread is struck so long after this begins, if it has not ended by then."""
    if after_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def handler(*_: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Strike

    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(after_s, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        armed = False
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


class _Reader:
    """Reads results while others push."""

    def __init__(self, run: Run | Reader, timeouts: random.Random | None) -> None:
        self.run, self.timeouts = run, timeouts
        self.batches: list[pa.RecordBatch] = []
        self.error: BaseException | None = None
        self.ending = False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        try:
            if self.timeouts is not None:
                while not self.ending:
                    self.batches += self.run.results(timeout_s=self.timeouts.choice((0, 0.001, 0.01)))
            self.batches += self.run.results()
        except BaseException as error:
            self.error = error


def carried_out(group: Group, given: Delivery) -> Got:
    """Run it; gives what came out, however it ended."""
    got = Got(order=given.options.get("order", "strict"), whole=given.stop_after is None,
              may_be_behind=undeclared(group.feeds) and not given.make_known)  # fmt: skip
    try:
        run = _started(group, given.options)
    except PlaitError as error:
        got.error = error
        return got
    with run:
        try:
            _run(run, given, got)
        except Exception as error:
            got.error = error
    return got


def _started(group: Group, options: dict[str, Any]) -> Run:
    """An index or a strategy that can't serve a query is refused by name: then without."""
    unsaid = ("strategy", "layout", "emitter", "fan_in", "split_storing", "gate", "affinity")
    for left_out in ((), ("index",), unsaid, (*unsaid, "index")):
        try:
            return group.query.on_threads(**{k: v for k, v in options.items() if k not in left_out})
        except QueryError:
            if left_out == (*unsaid, "index"):
                raise
    raise AssertionError


def _run(run: Run, given: Delivery, got: Got) -> None:
    if given.make_known:
        for each in given.feeds:
            if each.stream.declared() is None:
                for source in each.sources:
                    run.heartbeat(each.stream.name, source, BEFORE_ALL)
    reader, others = None, []
    if given.reading.startswith("beside"):
        timeouts = random.Random(given.chance.random()) if "timeouts" in given.reading else None
        more = 0 if timeouts is None else timeouts.choice((0, 0, 1, 2))  # others read as well, who must see the same
        places = [run.reader() for _ in range(more + 1)] if more else [run]
        reader, *others = [_Reader(place, None if at else timeouts) for at, place in enumerate(places)]
    batches: list[pa.RecordBatch] = []

    def between() -> None:
        if given.reading == "between":
            batches.extend(run.results(timeout_s=0))

    failed = _pushed(run, given, between)
    if isinstance(failed, Strike):
        # Inside a call it has stopped the run, and the reader was told; between two calls the run is stopped here.
        failed, got.whole = None, False
    if failed is None and got.whole:
        try:
            run.drain()
        except Exception as error:
            failed = error
    if reader is not None:
        _finish(run, reader, got, failed)
        batches = reader.batches
        failed = failed or reader.error
        for other in others:
            other.thread.join(60)
            if failed is None and got.whole:
                assert not other.thread.is_alive(), "another reader was never told of the end"
                seen = list(map(id, other.batches))
                assert seen == list(map(id, batches)), "another reader saw something else"
    if failed is not None:
        raise failed
    if reader is None:
        batches += run.results() if got.whole else run.results(timeout_s=0.005)
    try:
        got.table = pa.Table.from_batches(batches, run.schema)
    except PlaitError:
        if got.whole:
            raise
        return  # stopped before its columns were known
    if got.whole:
        got.late = {each.stream.name: run.late(each.stream.name) for each in given.feeds if each.stream.late == "drop"}


def _finish(run: Run, reader: _Reader, got: Got, failed: BaseException | None) -> None:
    """A reader ends with the input, or is told of the error that ended it."""
    reader.ending = True
    if not got.whole and failed is None:
        run.stop()
        reader.thread.join(30)
        reader.error = None
        return
    reader.thread.join(60 if failed is None else 20)
    if reader.thread.is_alive():
        raise TimeoutError(f"the reader was never told: {failed!r}")


def _pushed(run: Run, given: Delivery, between: Callable[[], None]) -> BaseException | None:
    """Every lane in its order, lanes by turns; gives the error that ended it."""
    shares = [given.lanes[n :: given.threads] for n in range(given.threads)]
    left = [given.stop_after]
    resizes = list(given.resizes)
    errors: list[BaseException] = []
    seeds = [random.Random(given.chance.random()) for _ in shares]

    def push(share: list[list[Step]], chance: random.Random) -> None:
        rest = [list(lane) for lane in share if lane]
        while rest and not errors:
            lane = chance.choice(rest)
            if left[0] is not None:
                if left[0] <= 0:
                    return
                left[0] -= 1
            lane.pop(0).do(run)
            if not lane:
                rest.remove(lane)
            if resizes and run._engine is not None and chance.random() < 0.3:
                run.resize(resizes.pop())
            if len(shares) == 1:
                between()

    def guarded(share: list[list[Step]], chance: random.Random) -> None:
        try:
            push(share, chance)
        except BaseException as error:
            errors.append(error)

    others = [
        threading.Thread(target=guarded, args=each, daemon=True) for each in zip(shares[1:], seeds[1:], strict=True)
    ]
    for thread in others:
        thread.start()
    try:
        with struck(given.strike_after_s):
            push(shares[0], seeds[0])
    except BaseException as error:
        errors.insert(0, error)
    for thread in others:
        thread.join()
    return next((e for e in errors if isinstance(e, Strike)), errors[0]) if errors else None
