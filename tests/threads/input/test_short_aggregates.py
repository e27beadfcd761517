"""The short way of a usual batch into an aggregate against the long one, by TuML and by WiML, and both against the reference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples
from tests.threads.input.test_short import some

import plait
from plait.errors import PlaitError
from plait.query.identical import difference
from plait.threads.aggregate.hive import usual
from plait.threads.aggregate.hive.tallies import Tallies
from plait.threads.input import short

KEYS = (pa.int32(), pa.uint8(), pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("ms"), pa.bool_())
VALUES = (pa.int16(), pa.float32(), pa.float64(), pa.int64(), pa.uint64(), pa.string(), pa.duration("us"))
SOURCES = 3


def filled(rng: np.random.Generator, kind: pa.DataType, n: int, *, wild: bool) -> pa.Array:
    """Few different values, so that groups meet; `wild`: NULL among them, and NaN."""
    if pa.types.is_temporal(kind):
        whole = rng.integers(0, 4, n).astype(np.int32 if kind.bit_width == 32 else np.int64)
        return pa.array(whole, mask=rng.random(n) < 0.2 if wild else None).view(kind)
    found = some(rng, kind, n, wild=wild, far=3)
    return found if wild or not pa.types.is_floating(kind) else pa.array(np.abs(found.to_numpy()) // 4 * 1.0, kind)


class Case:
    """A stream of some sources, an aggregate, and batches in the order in which they are pushed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.time = rng.choice([pa.int64(), pa.int32(), pa.timestamp("us", tz="UTC")])
        keys = [KEYS[k] for k in rng.integers(0, len(KEYS), int(rng.integers(0, 3)))]
        value = VALUES[rng.integers(0, len(VALUES))]
        self.by = [f"k{i}" for i in range(len(keys))]
        self.schema = pa.schema(
            [("ts", self.time), *((f"k{i}", kind) for i, kind in enumerate(keys)), ("v", value), ("other", pa.int8())]
        )
        numbers = not (pa.types.is_string(value) or pa.types.is_temporal(value))
        choices = {
            "n": plait.count(),
            "least": plait.min("v"),
            "first": plait.first("v"),
            "last": plait.last("v"),
            **({"sum": plait.mean("v")} if numbers else {}),
            **({"few": plait.count_where("other > 0")} if rng.random() < 0.2 else {}),
            **({"text": plait.collect("v")} if rng.random() < 0.2 else {}),
        }
        named = list(choices)
        picked = rng.choice(len(named), int(rng.integers(1, 4)), replace=False)
        self.compute = {named[k]: choices[named[k]] for k in picked}
        self.late = "drop" if rng.random() < 0.7 else "error"
        self.pushes: list[tuple[int, pa.RecordBatch]] = []
        clock = [0] * SOURCES
        for _ in range(24):
            source, n = int(rng.integers(0, SOURCES)), int(rng.integers(0, 50))
            steps = rng.integers(0, 4, n) * (rng.random() < 0.9)
            ts = clock[source] + np.cumsum(steps) - 7 * (rng.random() < 0.03)
            clock[source] = max(clock[source], int(ts[-1])) if n else clock[source]
            wild = rng.random() < 0.15
            columns = [
                pa.array(ts).cast(self.time) if f.name == "ts" else filled(rng, f.type, n, wild=wild)
                for f in self.schema
            ]
            batch = pa.record_batch(columns, schema=self.schema)
            self.pushes.append((source, batch.slice(int(rng.integers(0, n + 1)) if rng.random() < 0.3 else 0)))

    def query(self) -> plait.Aggregate:
        unit = None if pa.types.is_timestamp(self.time) else "us"
        stream = plait.stream("a", unit=unit, schema=self.schema, late=self.late, sources=SOURCES)
        return plait.aggregate(stream, size="20us", advance="8us", by=self.by, compute=self.compute)

    def run(self, strategy: str, *, shortly: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], int]:
        """Results and rows that were late, or the error; and how many batches went the short way."""
        went = []

        enter, exported, take = short.ShortWay.enter, short.ShortWay.exported, Tallies.take_usual

        def entered(self: short.ShortWay, *arguments: object) -> object:
            found = enter(self, *arguments) if shortly else None
            went.append(found is not None)
            return found

        def taken(self: Tallies, *arguments: object) -> int:
            found = take(self, *arguments)
            went.append(found != usual.UNUSUAL)
            return found

        monkeypatch.setattr(short.ShortWay, "enter", entered)
        monkeypatch.setattr(short.ShortWay, "exported", lambda *given: exported(*given) if shortly else None)
        monkeypatch.setattr(Tallies, "take_usual", taken)
        try:
            with self.query().on_threads(strategy=strategy, keys=True) as run:
                try:
                    for source, batch in self.pushes:
                        run.push("a", source, batch)
                    run.drain()
                    stats = run.stats
                    found: list[object] = [run.table(), run.late("a"), stats().rows]
                except PlaitError as error:
                    found = [type(error), str(error)]
        finally:
            monkeypatch.undo()
        return found, sum(went)


def alike(one: list[object], other: list[object]) -> None:
    assert len(one) == len(other), (one, other)
    for a, b in zip(one, other, strict=True):
        if isinstance(a, pa.Table):
            assert isinstance(b, pa.Table)
            assert difference(a, b) is None
        else:
            assert a == b


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(examples(80)))
def test_both_ways_give_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(seed)
    long, none = case.run("tuml_sc", shortly=False, monkeypatch=monkeypatch)
    assert none == 0
    brief, _ = case.run("tuml_sc", shortly=True, monkeypatch=monkeypatch)
    alike(long, brief)
    try:
        case.query().on_threads(strategy="wiml").stop()
    except PlaitError:
        return  # a function that keeps rows: WiML says so
    merged, _ = case.run("wiml", shortly=True, monkeypatch=monkeypatch)
    alike(long, merged)


@pytest.mark.parametrize(
    ("strategy", "least", "text"),
    [("tuml_sc", 57, False), ("tuml_sc", 57, True), ("tuml_mc", 57, False), ("tuml_mc", 57, True), ("wiml", 60, False)],
)
def test_usual_batches_go_the_short_way(strategy: str, least: int, text: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All, but with TuML the first, after which it is known that columns can be written. WiML keeps no text."""
    case = Case(0)
    case.schema = pa.schema([("ts", pa.int64()), ("k", pa.int32()), ("v", pa.string() if text else pa.float64())])
    case.time, case.by, case.compute = pa.int64(), ["k"], {"first": plait.first("v")}
    values = ["ab", "c"] if text else [0.5, 1.5]
    case.pushes = [
        (source, pa.record_batch([[10 * k, 10 * k + 1], [9, 15], values], schema=case.schema))
        for k in range(20)
        for source in range(SOURCES)
    ]
    found, went = case.run(strategy, shortly=True, monkeypatch=monkeypatch)
    assert went >= least
    long, _ = case.run(strategy, shortly=False, monkeypatch=monkeypatch)
    alike(long, found)


def test_both_ways_give_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        case = Case(seed)
        case.late = "drop"
        parts = {k: pa.Table.from_batches([b for s, b in case.pushes if s == k], case.schema) for k in range(SOURCES)}
        wanted = case.query().reference({"a": parts})
        found, _ = case.run("tuml_sc", shortly=True, monkeypatch=monkeypatch)
        assert isinstance(found[0], pa.Table)
        assert (
            difference(wanted.select(found[0].column_names[:-1]), found[0].select(found[0].column_names[:-1])) is None
        )


@pytest.mark.parametrize("strategy", ["wiml", "tuml_sc"])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False, True, True]),
        (pa.uint64(), [2**64 - 1, 0, 2**63, 5]),
        (pa.float64(), [-0.0, 0.0, float("nan"), 1.5]),
        (pa.float32(), [-0.0, 0.0, float("nan"), -1.5]),
    ],
    ids=str,
)
def test_keys_and_values_of_any_width_go_the_short_way(
    strategy: str, kind: pa.DataType, values: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that functions read too: equal keys are one group, and what the first row holds stays what it is."""
    case = Case(0)
    case.schema = pa.schema([("ts", pa.int64()), ("k", kind)])
    case.time, case.by, case.late = pa.int64(), ["k"], "error"
    case.compute = {"first": plait.first("k"), "last": plait.last("k"), "n": plait.count()}
    case.pushes = [
        (
            source,
            pa.record_batch([[9 * k + j for j in range(4)], pa.array(values, kind)], schema=case.schema).slice(k % 3),
        )
        for k in range(20)
        for source in range(SOURCES)
    ]
    found, went = case.run(strategy, shortly=True, monkeypatch=monkeypatch)
    assert went >= len(case.pushes) - SOURCES
    parts = {k: pa.Table.from_batches([b for s, b in case.pushes if s == k], case.schema) for k in range(SOURCES)}
    assert isinstance(found[0], pa.Table)
    assert difference(case.query().reference({"a": parts}), found[0].drop_columns("_plait_key")) is None
