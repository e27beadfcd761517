"""The short way of a usual batch against the long one: the same rows kept, the same words in the arena, the same results."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples

import plait
from plait.core import rings as core_rings
from plait.core import rows as core_rows
from plait.errors import PlaitError
from plait.query.identical import difference
from plait.threads.input import given, push, short
from plait.threads.input.payload import Payload
from plait.threads.join.columns import Encoder
from plait.threads.join.engine import JoinEngine

TEXTS = ["", "a", "bcd", "äöü", "𝕫" * 5, "x" * 300]
NUMBERS = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.float32(),
    pa.float64(),
)
CONDITIONS = (
    "l.x = r.x",
    "abs(l.x - r.x) <= 3",
    "abs(l.x - r.x) <= 3 and abs(l.y - r.y) <= 2.5",
    "l.x = r.x and l.y = r.y",
    "l.x = r.x and abs(l.y - r.y) <= 4",
    "l.x < r.x and l.y <> r.y",
)


def some(rng: np.random.Generator, kind: pa.DataType, n: int, *, wild: bool, far: int) -> pa.Array:
    """Values of a column, integers up to +-`far`; `wild`: up to the ends of its type, NULL and NaN among them."""
    if pa.types.is_boolean(kind):
        values = rng.integers(0, 2, n).astype(bool).tolist()
    elif pa.types.is_integer(kind):
        ends = np.iinfo(kind.to_pandas_dtype())
        low, high = (int(ends.min), int(ends.max)) if wild else (max(int(ends.min), -far), min(int(ends.max), far))
        values = rng.integers(low, high, n, endpoint=True, dtype=kind.to_pandas_dtype()).tolist()
    elif pa.types.is_floating(kind):
        values = rng.integers(-40, 40, n).astype(float) / 4
        if wild:
            values = np.where(rng.random(n) < 0.2, rng.choice([np.nan, np.inf, -0.0, 1e38], n), values)
        values = values.tolist()
    elif pa.types.is_timestamp(kind):
        values = rng.integers(0, 10**9, n).tolist()
    else:
        chosen = [TEXTS[k] for k in rng.integers(0, len(TEXTS), n)]
        values = [t.encode() for t in chosen] if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else chosen
    if wild and rng.random() < 0.5:
        values = [None if rng.random() < 0.1 else v for v in values]
    array = pa.array(values, kind)
    if not wild and rng.random() < 0.3:  # a bitmap that says of every row that it is there
        buffers = array.buffers()
        buffers[0] = pa.py_buffer(np.full((n + 7) // 8, 255, np.uint8))
        array = pa.Array.from_buffers(kind, n, buffers)
    return array


class Case:
    """Two streams, a condition, and batches in the order in which they are pushed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.time = rng.choice(
            [pa.int64(), pa.int32(), pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC"), pa.uint16()]
        )
        kept = [
            pa.string(),
            pa.bool_(),
            pa.large_string(),
            pa.binary(),
            pa.int16(),
            pa.timestamp("s"),
            pa.large_binary(),
        ]
        x, y = (NUMBERS[k] for k in rng.integers(0, len(NUMBERS), 2))
        self.schema = pa.schema(
            [
                ("ts", self.time),
                ("x", x),
                *((f"k{i}", kept[j]) for i, j in enumerate(rng.integers(0, len(kept), 3))),
                ("y", y),
            ]
        )
        self.on = CONDITIONS[rng.integers(0, len(CONDITIONS))]
        self.late = "drop" if rng.random() < 0.7 else "error"
        self.chunk = int(rng.choice([17, 8192]))  # of many rows in front of the gate, so that a batch may have several
        far = int(rng.choice([10, 2**36]))
        self.pushes: list[tuple[str, pa.RecordBatch]] = []
        clock = {"a": 0, "b": 0}
        for _ in range(24):
            name, n = ("a", "b")[rng.integers(0, 2)], int(rng.integers(0, 60))
            late = rng.random() < 0.03
            steps = rng.integers(0, 5, n) * (rng.random() < 0.9)
            ts = clock[name] + np.cumsum(steps) - 7 * late
            clock[name] = max(clock[name], int(ts[-1])) if n else clock[name]
            wild = rng.random() < 0.15
            columns = [
                pa.array(ts).cast(self.time, safe=False) if f.name == "ts" else some(rng, f.type, n, wild=wild, far=far)
                for f in self.schema
            ]
            batch = pa.record_batch(columns, schema=self.schema)
            cut = int(rng.integers(0, n + 1)) if rng.random() < 0.3 else 0  # its columns have an offset then
            self.pushes.append((name, batch.slice(cut)))

    def query(self) -> plait.Join:
        unit = None if pa.types.is_timestamp(self.time) else "us"
        left, right = (plait.stream(name, unit=unit, schema=self.schema, late=self.late) for name in ("a", "b"))
        return plait.join(left, right, on=self.on, within=40_000)

    def run(self, *, shortly: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], int]:
        """What is left of the run: results, rows kept, words in the arenas, or the error; and how many went the short way."""
        went = []
        enter = short.ShortWay.enter

        def counted(self: short.ShortWay, *arguments: object) -> short.Entered | None:
            found = enter(self, *arguments) if shortly else None  # type: ignore[arg-type]
            went.append(found is not None)
            return found

        monkeypatch.setattr(short.ShortWay, "enter", counted)
        monkeypatch.setattr(short, "AT_ONCE", 30)  # so that both of its ways are gone
        monkeypatch.setattr(push, "CHUNK", self.chunk)
        try:
            with self.query().on_threads(workers=1, plain=True, keys=True) as run:
                try:
                    for name, batch in self.pushes:
                        run.push(name, None, batch)
                    found: list[object] = left_behind(run)  # before anything is let go of
                    run.drain()
                    found += [run.table(), run.late("a"), run.late("b")]
                except PlaitError as error:
                    found = [type(error), str(error)]
        finally:
            monkeypatch.undo()
        return found, sum(went)


def left_behind(run: plait.threads.run.Run) -> list[object]:
    """Rows that are kept, by number, and what lies in the arenas where rows were written."""
    engine = run._engine
    assert isinstance(engine, JoinEngine)
    encoder = engine.windows.encoder
    assert isinstance(encoder, Encoder)
    found: list[object] = [encoder.signature, encoder._matcher.intervals]
    for name, payload in engine.payloads.items():
        rows = payload._rows
        held = np.arange(rows.oldest, rows.next)
        found += [payload.take(held) if len(held) else None, name]
        (inlet,) = engine.intakes[name].inlets.values()
        found += [inlet.largest, inlet.delivered, inlet.taken, inlet.added]
        (slot,) = inlet.slots.values()
        arena, written = engine.arenas.by_slot[slot], slice(0, min(inlet.added, engine.arenas.size))
        columns = {**arena.columns, **{f"fixed{k}": each for k, each in enumerate(arena.fixed)}, "usable": arena.usable}
        found += [(key, each[written].tobytes()) for key, each in columns.items() if key != "usable" or arena.fixed]
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(examples(100)))
def test_both_ways_leave_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(seed)
    long, none = case.run(shortly=False, monkeypatch=monkeypatch)
    brief, _ = case.run(shortly=True, monkeypatch=monkeypatch)
    assert none == 0
    assert len(long) == len(brief)
    for one, other in zip(long, brief, strict=True):
        if isinstance(one, pa.Table):
            assert isinstance(other, pa.Table)
            assert difference(one, other) is None
        else:
            assert one == other


def test_usual_batches_go_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first of either side, whose values nobody has seen before."""
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("y", pa.float32()), ("name", pa.string())])
    case = Case(0)
    case.schema, case.time, case.on = schema, pa.int64(), CONDITIONS[2]
    case.pushes = [
        (name, pa.record_batch([[10 * k, 10 * k + 1], [9, 15], [0.5, 1.5], ["a", "b"]], schema=schema))
        for k in range(50)
        for name in ("a", "b")
    ]
    _, went = case.run(shortly=True, monkeypatch=monkeypatch)
    assert went >= 96


@pytest.mark.parametrize("seed", range(8))
def test_text_goes_round(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a ring of few bytes, by either way, while old rows go: what is held stays as it was, and nothing moves but to grow."""
    for home in (core_rings, core_rows):
        monkeypatch.setattr(home, "CAPACITY", 32)
    rng = np.random.default_rng(seed)
    schema = pa.schema([("t", pa.string()), ("b", pa.large_binary())])
    payload, held, first, rings = Payload(schema), list[tuple[int, str]](), 0, list[np.ndarray]()
    for at in range(300):
        n = int(rng.integers(1, 9))
        texts = [TEXTS[k] for k in rng.choice(len(TEXTS), n, p=(0.2, 0.2, 0.2, 0.2, 0.19, 0.01))]
        batch = pa.record_batch([texts, [t.encode() for t in texts]], schema=schema)
        ts, struct = np.full(n, at), None
        if rng.random() < 0.8:
            _, exported = batch.__arrow_c_array__()
            struct = short._pointer(exported, b"arrow_array")

        def write(kept: np.ndarray, number: int, oldest: int, capacity: int, struct: int | None = struct, n: int = n,
                  ts: np.ndarray = ts) -> bool:  # fmt: skip
            return bool(given.keep(struct, n, kept, number, oldest, capacity, ts, 0, number))

        before = payload.rings().arrays[0]
        if struct is None or payload.put(n, write, ts, 0, 0) < 0:
            payload.append(batch, ts, 0, np.arange(n), 0, 0)
        else:
            assert payload.rings().arrays[0].data is before.data
        held += [(at, text) for text in texts]
        data = payload.rings().arrays[0].data
        assert data is not None
        rings += [data] if not rings or rings[-1] is not data else []
        gone = max(0, at - int(rng.integers(1, 4)))
        payload.expire(gone)
        while held and held[0][0] < gone:
            held.pop(0)
            first += 1
        numbers = np.arange(first, first + len(held))
        found = payload.take(numbers, extra=False)
        assert found.column("t").to_pylist() == [text for _, text in held]
        assert found.column("b").to_pylist() == [text.encode() for _, text in held]
    brought = int(payload._rows._rings["t"].head[0])
    assert brought > 3 * len(rings[-1])
    assert [len(ring) for ring in rings] == sorted({len(ring) for ring in rings})


@pytest.mark.parametrize("late", ["drop", "error"])
def test_many_rows_go_the_short_way_up_to_what_is_not_usual(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by the chunk; where one is late the message names its place in the whole batch, as by the long way."""
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int32())])
    case, n = Case(0), 3 * push.CHUNK + 5
    case.schema, case.time, case.on, case.late, case.chunk = schema, pa.int64(), CONDITIONS[1], late, push.CHUNK
    ts = np.arange(1, n + 1)
    case.pushes = [(name, pa.record_batch([[0], [k]], schema=schema)) for name, k in (("a", 0), ("b", 1))]
    case.pushes += [(name, pa.record_batch([ts, ts * 100], schema=schema)) for name in ("a", "b")]
    back = n + np.arange(n)
    back[2 * push.CHUNK + 7] = 3
    case.pushes += [(name, pa.record_batch([back, back % 1000 * 100], schema=schema)) for name in ("a", "b")]
    long, _ = case.run(shortly=False, monkeypatch=monkeypatch)
    brief, went = case.run(shortly=True, monkeypatch=monkeypatch)
    assert went >= (2 if late == "error" else 4)  # the first two chunks of who has a late row
    if late == "error":
        assert long == brief
        assert f"row {2 * push.CHUNK + 7}" in str(long[1])
    else:
        assert [each for each in long if not isinstance(each, pa.Table)] == [
            each for each in brief if not isinstance(each, pa.Table)
        ]
        tables = [[each for each in found if isinstance(each, pa.Table)] for found in (long, brief)]
        assert all(difference(one, other) is None for one, other in zip(*tables, strict=True))
