"""Interrupts and errors at every point of every call: the call had no effect, or the run stops and everybody is told.

`Striking` raises at the n-th line that a call runs inside plait, as a signal's handler would. The short form strikes at points
drawn by a recorded seed, the long one (`make soak`) at every one.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.errors import DataError, PlaitError, QueryError, RunError

HOME = str(Path(plait.__file__).parent)
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int32())])
BIG = 2**31 - 1


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in pairs], "k": [k for _, k in pairs]}, SCHEMA)


def leaving_with(frame: Any) -> bool:
    """Whether a line begins by leaving a `with`: from here to the end of its lock's `__exit__` no handler of a signal runs,
    while a tracer would raise."""
    at, code = frame.f_lasti, frame.f_code
    at += 2 * (code.co_code[at] == dis.opmap["SWAP"])  # a value is returned from inside
    return code.co_code[at : at + 6 : 2] == bytes([dis.opmap["LOAD_CONST"]] * 3) and all(
        code.co_consts[each] is None for each in code.co_code[at + 1 : at + 6 : 2]
    )


class Striking:
    """Raises `error` at the n-th line run inside plait by this thread; counts the lines if there are fewer."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left, self.error, self.struck = at, error, False

    def __enter__(self) -> Striking:
        gc.disable()  # an older run's end, which a collection may bring, is not this call's: Python drops what is raised there
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(HOME) else None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line" and not self.struck and not leaving_with(frame):
            self.left -= 1
            if self.left < 0:
                self.struck = True
                raise self.error("struck")
        return self._line


Step = Callable[[Any, list[pa.RecordBatch]], None]


def pushes(stream: str, source: Any, table: pa.Table) -> Step:
    return lambda run, got: run.push(stream, source, table)


def beats(stream: str, source: Any, ts: int) -> Step:
    return lambda run, got: run.heartbeat(stream, source, ts)


def closes(stream: str, source: Any) -> Step:
    return lambda run, got: run.close(stream, source)


def drains(run: Any, got: list[pa.RecordBatch]) -> None:
    run.drain()


def reads(run: Any, got: list[pa.RecordBatch]) -> None:
    for batch in run.results(timeout_s=0):
        got.append(batch)


def reads_all(run: Any, got: list[pa.RecordBatch]) -> None:
    for batch in run.results():
        got.append(batch)


def near(**options: Any) -> Any:
    a, b = plait.stream("a", unit="us", **options), plait.stream("b", unit="us")
    return plait.join(a, b, on=lambda l, r: l.k <= r.k, within=10)


A, B = rows((1, 1), (2, 2), (2, None), (5, BIG)), rows((1, 5), (3, None), (4, -BIG), (5, BIG))
A2, B2 = rows((6, 1), (9, 3)), rows((6, 2), (8, 3), (30, 1))

#: A query, options, tables by stream and source, and steps that deliver them.
JOIN = (near(), {}, {"a": pa.concat_tables([A, A2]), "b": pa.concat_tables([B, B2])},
        [pushes("a", None, A), pushes("b", None, B), beats("a", 0, 6), reads, pushes("a", None, A2), closes("a", None),
         pushes("b", None, B2), drains, reads_all])  # fmt: skip
UNKNOWN = (near(), {"schemas": None}, JOIN[2], JOIN[3])
SOURCES = (near(disorder="3us"), {}, {"a": {"x": rows((3, 1), (1, 2), (5, BIG)), "y": rows((3, 0), (4, None))}, "b": B},
           [pushes("a", "x", rows((3, 1), (1, 2))), pushes("a", "y", rows((3, 0), (4, None))), pushes("b", None, B),
            pushes("a", "x", rows((5, BIG))), closes("a", "y"), drains, reads_all])  # fmt: skip


def _counted(strategy: str) -> Any:
    made = plait.aggregate(plait.stream("a", unit="us"), size="4us", advance="2us", by="k",
                           compute={"n": plait.count(), "s": plait.sum("k")})  # fmt: skip
    return (made, {"strategy": strategy}, {"a": pa.concat_tables([A, A2])},
            [pushes("a", None, A), reads, pushes("a", None, A2), drains, reads_all])  # fmt: skip


def _dag() -> Any:
    inner = plait.aggregate(plait.stream("b", unit="us"), size="4us", compute={"n": plait.count()})
    made = plait.join(plait.stream("a", unit="us"), inner, on=lambda l, r: l.k <= r.n, within=10)
    return made, {}, JOIN[2], JOIN[3]


def _read_by_two() -> Any:
    """`results()` and another reader. What that one has got so far is held against what came first."""

    def joins(run: Any, got: list[pa.RecordBatch]) -> None:
        run.beside = run.reader(), []

    def reads_beside(run: Any, got: list[pa.RecordBatch]) -> None:
        reader, found = run.beside
        for batch in reader.results(timeout_s=0):
            found.append(batch)
        assert all(one is other for one, other in zip(got, found, strict=False))

    steps = [joins, *JOIN[3][:4], reads_beside, *JOIN[3][4:8], reads_beside, reads_all, reads_beside]
    return (*JOIN[:3], steps)


CASES = {
    "join": JOIN,
    "two readers": _read_by_two(),
    "columns unknown": UNKNOWN,
    "sources": SOURCES,
    "tuml": _counted("tuml_sc"),
    "wiml": _counted("wiml"),
    "dag": _dag(),
}


@contextlib.contextmanager
def begun(case: Any) -> Iterator[Any]:
    query, options, data, _ = case
    schemas = {"schemas": dict.fromkeys(data, SCHEMA)} if "schemas" not in options else {}
    given = {k: v for k, v in options.items() if k != "schemas"}
    with query.on_threads(workers=1, stall_after_s=20, **({"plain": True} if "strategy" not in given else {}),
                          **schemas, **given) as run:  # fmt: skip
        yield run


def finished(got: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(got, schema).combine_chunks()


def check_struck(case: Any, at: int, line: int, error: type[BaseException], expected: pa.Table) -> bool:
    """Strike step `at` at a line; False if the step has fewer lines."""
    steps: list[Step] = case[3]
    got: list[pa.RecordBatch] = []
    with begun(case) as run:
        for step in steps[:at]:
            step(run, got)
        came_out = False
        with Striking(line, error) as striking:
            try:
                steps[at](run, got)
            except (error, RunError):
                came_out = True
        if not striking.struck:
            return False
        assert came_out, f"step {at}: what was raised at line {line} is lost"
        try:
            reads(run, got)
        except RunError:
            # It stopped: everybody is told the same, and what was given out is the beginning of the answer.
            for call in (drains, reads, pushes("a", None, A2), beats("a", 0, 100), closes("a", None)):
                with pytest.raises(PlaitError):
                    call(run, got)
            given = finished(got, expected.schema)
            assert given.equals(expected.slice(0, given.num_rows).combine_chunks()), (at, line)
            return True
        # Nothing happened: the same call again, and the rest, give the whole answer. A batch of results that was given out
        # before the strike is in `got`.
        for step in steps[at:]:
            step(run, got)
        assert finished(got, expected.schema).equals(expected), (at, line)
    return True


@pytest.mark.crossed
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("name", CASES)
def test_struck_at_some_points(name: str, error: type[BaseException]) -> None:
    case, dice = CASES[name], random.Random(f"strike {name} {error.__name__} 14")
    expected = case[0].reference(case[2])
    for at in range(len(case[3])):
        for line in {dice.randrange(30), dice.randrange(*dice.choice([(30, 120), (0, 300)]))}:
            check_struck(case, at, line, error, expected)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", CASES)
def test_struck_at_every_point(name: str) -> None:
    case = CASES[name]
    expected = case[0].reference(case[2])
    for at in range(len(case[3])):
        line = 0
        while check_struck(case, at, line, KeyboardInterrupt, expected):
            line += 1


# --- those who wait are told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schemas", [True, False])
def test_a_reader_that_waits_is_told_of_a_push_that_failed(schemas: bool) -> None:
    """Before there is an engine, and after."""
    query = plait.aggregate(plait.stream("s", unit="us"), size="1s", compute={"m": plait.mean("x")})
    told: list[BaseException] = []
    options = {"schemas": {"s": pa.schema([("ts", pa.int64()), ("x", pa.float64())])}} if schemas else {}
    with query.on_threads(workers=1, **options) as run:
        reading = threading.Event()

        def read() -> None:
            reading.set()
            try:
                run.table()
            except BaseException as error:
                told.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        reading.wait()
        with pytest.raises((DataError, QueryError)):
            run.push("s", None, {"ts": [1], "nope": [1.0]})
        reader.join(30)
        assert not reader.is_alive()
        assert isinstance(told[0], (DataError, QueryError))


def test_a_refused_batch_stops_the_run() -> None:
    """Its rows would be missing, and nothing would say so."""
    query = plait.aggregate(plait.stream("s", unit="us"), size="1s", compute={"n": plait.count()})
    with query.on_threads(workers=1) as run:
        run.push("s", None, {"ts": [3, 4], "x": [1.0, 2.0]})
        with pytest.raises(DataError, match="'x'"):
            run.push("s", None, {"ts": [5, 6], "x": ["a", "b"]})
        for call in (run.drain, run.table, lambda: run.push("s", None, {"ts": [7], "x": [1.0]})):
            with pytest.raises(DataError, match="'x'"):
                call()


def test_a_call_that_is_refused_whole_changes_nothing() -> None:
    case = JOIN
    expected = case[0].reference(case[2])
    got: list[pa.RecordBatch] = []
    with begun(case) as run:
        for step in case[3]:
            with pytest.raises(RunError, match="no stream 'c'"):
                run.push("c", None, A)
            with pytest.raises(RunError, match=r"within \+-2\^62|has ended"):
                run.heartbeat("b", 0, 2**63)
            step(run, got)
        for call in (pushes("a", None, A2), pushes("b", 0, A2), beats("a", 0, 100)):
            with pytest.raises(RunError, match="has ended"):
                call(run, got)
        reads_all(run, got)
        assert finished(got, expected.schema).equals(expected)


def test_a_reader_may_begin_before_the_first_push() -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size=1, compute={"n": plait.count()})
    with query.on_threads(workers=1) as run:
        assert list(run.results(timeout_s=0)) == []
        found: list[int] = []
        reader = threading.Thread(target=lambda: found.append(sum(b.num_rows for b in run.results(timeout_s=60))))
        reader.start()
        run.push("s", None, {"ts": [1, 2, 3]})
        run.drain()
        reader.join(30)
        assert found == [3]


# --- from several threads from the start ------------------------------------------------------------------------------


def at_once(*acts: Callable[[], None]) -> None:
    """Each in a thread of its own, begun together."""
    together, errors = threading.Barrier(len(acts)), []

    def run(act: Callable[[], None]) -> None:
        together.wait()
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change places as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def meanwhile(act: Callable[[], None]) -> threading.Thread:
    """Begin something in another thread, and give it time: it is over, or waits for who called this."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join(0.3)
    return thread


def test_what_came_first_enters_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The push that makes all columns known carries out those before it; one of the same source comes in the middle of that."""
    from plait.threads.engine import Engine

    query = plait.asof(plait.stream("u", unit="us", sources=["p"]), plait.stream("v", unit="us"), how="left")
    first, second, late = rows((7, 1), (7, 2)), rows((7, 3), (8, 4)), rows((1, 1))
    expected = query.reference({"u": {"p": pa.concat_tables([first, second])}, "v": late})
    pushing, others = Engine.push, []
    with query.on_threads(workers=1) as run:

        def push(self: Any, *arguments: Any) -> None:
            if not others:
                others.append(meanwhile(lambda: run.push("u", "p", second)))
            pushing(self, *arguments)

        monkeypatch.setattr(Engine, "push", push)
        run.push("u", "p", first)
        run.push("v", None, late)
        others[0].join()
        run.drain()
        assert run.table().equals(expected)


def test_a_source_is_let_in_with_the_columns_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another source's rows widen the columns while a new one gets its memory."""
    from plait.threads.input.arenas import Arena

    query = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"),
                       on=lambda l, r: (l.k == r.k) | l.k.is_null(), within=100)  # fmt: skip
    narrow, wide, new = rows((0, 1), (1, 2)), rows((3, None), (3, -BIG)), rows(*((k, 7 + k) for k in range(4)))
    other = rows((0, 1), (1, 2), (2, 7), (3, 8), (4, 9), (5, -BIG))
    expected = query.reference({"a": {0: pa.concat_tables([narrow, wide]), 1: new}, "b": other}, keys=True)
    made, others = Arena.__init__, []
    with query.on_threads(workers=2, schemas={"a": SCHEMA, "b": SCHEMA}, keys=True, plain=True) as run:
        run.push("a", 0, narrow)

        def make(self: Any, *arguments: Any) -> None:
            made(self, *arguments)
            if not others:
                others.append(meanwhile(lambda: run.push("a", 0, wide)))

        monkeypatch.setattr(Arena, "__init__", make)
        run.push("a", 1, new)
        others[0].join()
        run.push("b", None, other)
        run.drain()
        assert run.table().equals(expected)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("known", [True, False], ids=["columns known", "columns unknown"])
def test_first_pushes_from_several_threads(known: bool) -> None:
    """Every source in its order, whoever brings the last stream's first batch meanwhile."""
    u = plait.stream("u", unit="us", sources=["p", "q"])
    query = plait.asof(u, plait.stream("v", unit="us"), how="left")
    parts = {s: [rows(*((7, 10 * k + i) for i in range(10))) for k in range(8)] for s in ("p", "q")}
    late = rows((1, 1))
    expected = query.reference({"u": {s: pa.concat_tables(parts[s]) for s in parts}, "v": late})
    options = {"schemas": {"u": SCHEMA, "v": SCHEMA}} if known else {}
    for _ in range(6):
        with query.on_threads(workers=1, **options) as run:

            def feed(source: str, run: Any = run) -> None:
                for part in parts[source]:
                    run.push("u", source, part)

            def feed_other(run: Any = run) -> None:
                run.push("v", None, late)

            at_once(lambda: feed("p"), lambda: feed("q"), feed_other)
            run.drain()
            assert run.table().equals(expected)


@pytest.mark.usefixtures("hasty")
def test_sources_turn_up_while_columns_are_widened() -> None:
    """Undeclared sources in one thread, values that need other columns in another, and a third that asks."""
    query = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"),
                       on=lambda l, r: (l.k == r.k) | (l.k * 2 == r.k), within=100)  # fmt: skip
    wide = [rows((0, 1), (0, 2)), rows((0, 70000), (0, None)), rows((0, BIG), (0, -BIG))]
    many = {i: rows((0, i), (0, i + 1), (0, 5)) for i in range(1, 16)}
    other = rows((0, 1), (0, 2), (0, 5), (0, BIG), (0, -2), (0, None))
    expected = query.reference({"a": {0: pa.concat_tables(wide), **many}, "b": other}, keys=True)
    for _ in range(3):
        with query.on_threads(
            workers=2, schemas={"a": SCHEMA, "b": SCHEMA}, keys=True, max_sources=64, plain=True
        ) as run:
            over = threading.Event()

            def widen(run: Any = run) -> None:
                for part in wide:
                    run.push("a", 0, part)

            def turn_up(run: Any = run, over: threading.Event = over) -> None:
                try:
                    for source, part in many.items():
                        run.push("a", source, part)
                finally:
                    over.set()

            def ask(run: Any = run, over: threading.Event = over) -> None:
                while not over.wait(0.002):
                    run.holder(), run.stats(), run.frontier, run.explain(), run.late("a"), run.behind("a")

            at_once(widen, turn_up, ask)
            run.push("b", None, other)
            run.drain()
            assert run.table().equals(expected)


@pytest.mark.usefixtures("hasty")
def test_the_clock_is_no_second_thread() -> None:
    """`idle_after=`: plait's own clock looks at sources while they are pushed and turn up."""
    query = plait.join(plait.stream("a", unit="us", idle_after="10us", behind="drop"), plait.stream("b", unit="us"),
                       on="l.k = r.k", within=1)  # fmt: skip
    with query.on_threads(workers=1, schemas={"a": SCHEMA, "b": SCHEMA}, max_sources=200) as run:
        for turn in range(4):
            for source in range(40):
                run.push("a", source, rows((turn, 1)))
            run.push("b", None, rows((turn, 2)))
        run.drain()
        run.table()


def test_who_pushes_waits_for_the_clock() -> None:
    with begun(JOIN) as run:
        run.push("a", None, A)
        source, told = run._engine.intakes["a"].inlets[0], []

        def push() -> None:
            try:
                run.push("a", None, A2)
            except PlaitError as error:
                told.append(error)

        with source.turn:  # as the clock has it
            pushing = meanwhile(push)
        pushing.join(30)
        assert told == []
        run.drain()


def test_a_source_that_speaks_is_not_idle() -> None:
    """In order or not: each push is heard."""
    stream = plait.stream("a", unit="us", sources=[0, 1], idle_after="1h")
    query = plait.aggregate(stream, size="10us", compute={"n": plait.count()})
    with query.on_threads(workers=1, schemas={"a": SCHEMA}) as run:
        known = run._engine.intakes["a"].inlets
        run.push("a", 0, rows((1, 1)))
        before = known[0].spoke_ns
        run.push("a", 0, rows((2, 1)))
        assert known[0].spoke_ns > before


def test_who_compiles_does_not_stall() -> None:
    """A first run on a busy machine: a worker that compiles for longer than a stall takes is waited for."""
    from numba.core import event

    from plait.threads import words
    from plait.threads.life.pause import Pauser

    pauser = Pauser(np.zeros(4096, np.int64), np.zeros(words.CONTROL_WORDS, np.int64), lambda: "works", 0.01)
    pauser.begin(1)
    over = threading.Event()

    def work() -> None:
        with event.trigger_event("numba:compiler_lock"):
            over.wait()
            pauser.stand()

    worker = threading.Thread(target=work)
    worker.start()
    timer = threading.Timer(1.2, over.set)  # two looks of the pauser's
    timer.start()
    with pauser.still():
        assert over.is_set()
    worker.join()
    with pytest.raises(RunError, match="did not stand still"), pauser.still():
        pass


# --- runs that nobody has any more --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_dropped_ends(name: str) -> None:
    """Its threads end, and its memory is given back."""
    query, options, data, steps = CASES[name]
    run = query.on_threads(workers=2 if "strategy" not in options else None, schemas=dict.fromkeys(data, SCHEMA))
    steps[0](run, [])
    engine = weakref.ref(run._engine)
    threads = [t for t in threading.enumerate() if t.name.startswith("plait-")]
    assert threads
    del run
    gc.collect()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    # A thread's last frame may be gone a moment after the thread has said that it ended.
    for _ in range(1000):
        gc.collect()
        if engine() is None:
            break
        time.sleep(0.001)
    assert engine() is None


@pytest.mark.parametrize("limit", ["bytes", "number"])
def test_ended_runs_do_not_pile_up(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few objects an engine is, what rows have written to counts; and so does each engine."""
    from plait.threads.life import end

    gc.collect()
    gc.disable()
    # Ended runs that other tests still hold are not garbage, and would count here.
    monkeypatch.setattr(end, "_ENDED", weakref.WeakSet())
    try:
        alive = []
        for _ in range(12):
            with JOIN[0].on_threads(workers=1, schemas={"a": SCHEMA, "b": SCHEMA}, max_sources=200, plain=True) as run:
                run.push("a", None, A)
                alive.append(weakref.ref(run._engine))
                if limit == "bytes":
                    monkeypatch.setattr(end, "MOST_ENDED_BYTES", 4 * run._engine.nbytes)
                else:
                    monkeypatch.setattr(end, "MOST_ENDED", 4)
        assert 4 <= sum(each() is not None for each in alive) <= 6
    finally:
        gc.enable()


def test_room_that_no_row_came_to_is_not_counted() -> None:
    """Tens of megabytes are the system's promise only: counted, every fourth short run would collect all of Python's garbage."""
    with JOIN[0].on_threads(workers=1, schemas={"a": SCHEMA, "b": SCHEMA}, plain=True) as run:
        run.push("a", None, A)
        engine = run._engine
        assert engine.gate.words.nbytes + engine.arenas.nbytes > 1 << 24
        assert 0 < engine.nbytes < 1 << 20


def test_a_stopped_run_leaves_no_thread() -> None:
    before = {t.ident for t in threading.enumerate()}
    with begun(JOIN) as run:
        run.push("a", None, A)
        own = [t for t in threading.enumerate() if t.ident not in before]
        assert own
    assert not any(t.is_alive() for t in own)


def test_a_call_that_ends_while_another_looks_is_not_broken() -> None:
    """Whoever looks sees the calls under way first, and each one's lock a moment later."""

    class Ending:
        def locked(self) -> bool:
            run._calls.pop(self, None)  # type: ignore[call-overload]
            return False

    with begun(JOIN) as run:
        run._calls[Ending()] = "push"  # type: ignore[index]
        run.push("a", None, A)
        assert not run._calls
