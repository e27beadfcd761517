"""Joins on Spark, byte for byte against the reference, however the same rows are delivered.

Ways of delivery are sampled so that every two choices meet in some test (`DEALS`), from a recorded seed.
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected, write_files

import plait

pytestmark = pytest.mark.spark

SEED = 20_240_607


# --- queries over two streams `quotes` (ts, src, n, x, v) and `trades` (ts, src, n, x, w) -----------------------


def near(q: Any, t: Any) -> Any:
    return abs(q.x - t.x) <= 2


def odd(q: Any, t: Any) -> bool:
    """Opaque: it does not trace."""
    if q.x > t.x:
        return (q.x + t.x) % 2 == 1
    return False


NAMES = {0: "none", 3: "three"}


def called(q: Any, t: Any) -> bool:
    """What no compiler takes: it is called as it is."""
    return f"{q.x}"[:1] == str(t.x) or NAMES.get(q.x) is not None


QUERIES = {
    "time": lambda q, t: plait.join(q, t, on=near, within=20),
    "uneven": lambda q, t: plait.join(q, t, on="l.v = r.w or l.x = r.x", within=(0, 25)),
    "opaque": lambda q, t: plait.join(q, t, on=odd, within=(9, 4)),
    "called": lambda q, t: plait.join(q, t, on=called, within=(3, 4)),
    "left": lambda q, t: plait.join(q, t, on="l.x = r.x", within=(10, 5), how="left"),
    "right": lambda q, t: plait.join(q, t, on=near, within=(3, 8), how="right"),
    "full": lambda q, t: plait.join(q, t, on="l.x = r.x", within=(10, 5), how="full"),
    "full, one cell": lambda q, t: plait.join(q, t, on=near, within=(1, 6), how="full"),
    "semi": lambda q, t: plait.join(q, t, on=near, within=4, how="semi"),
    "anti": lambda q, t: plait.join(q, t, on=near, within=(2, 7), how="anti"),
    "count": lambda q, t: plait.join(q, t, on=near, last=25),
    "tumbling": lambda q, t: plait.join(q, t, on=near, tumbling=30),
    "tumbling count": lambda q, t: plait.join(q, t, on=near, tumbling_count=40),
    "as-of": lambda q, t: plait.asof(t, q, by="x", within=40),
    "as-of, last": lambda q, t: plait.asof(q, t),
    "as-of, forward": lambda q, t: plait.asof(t, q, by="x", within=15, direction="forward", exact=False),
    "as-of, nearest, self": lambda q, t: plait.asof(q, q, by="x", within=9, direction="nearest"),
    "self": lambda q, t: plait.join(q, q, on="l.x < r.x - 5", within=12),
}


def rows(chance: random.Random, name: str, *, count: int = 150, disorder: int = 3) -> pa.Table:
    """Many ties, NULL and NaN. Each source runs back by up to `disorder`, and all of them speak in the first rows."""
    ts, seen, times = 0, {}, []
    sources = [0, 1, 2, *(chance.randrange(3) for _ in range(count - 3))]
    for source in sources:
        ts += chance.choice((0, 0, 1, 2))
        at = max(ts - chance.randrange(disorder + 1), seen.get(source, 0) - disorder)
        seen[source] = max(seen.get(source, 0), at)
        times.append(at)
    letter = "v" if name == "quotes" else "w"
    return pa.table({
        "ts": pa.array(times, pa.int64()),
        "src": pa.array(sources, pa.int64()),
        "n": pa.array([7 * k - 100 for k in range(count)], pa.int64()),
        "x": pa.array([chance.choice((None, *range(12))) for _ in range(count)], pa.int32()),
        letter: pa.array([chance.choice((None, math.nan, -0.0, 0.0, 1.5)) for _ in range(count)], pa.float64()),
    })  # fmt: skip


# --- ways of delivery -------------------------------------------------------------------------------------------

CHOICES: dict[str, tuple[Any, ...]] = {
    "query": tuple(QUERIES),
    "layout": ((1, 1), (1, 2), (2, 2), (3, 2)),
    "partitions": (1, 2, 5),
    "files": (2, 3, 4),
    "per_trigger": (1, 2, 100),
    "format": ("parquet", "csv", "json"),
    "source": ("one", "column", "text", "file", "frames"),
    "seq": ("position", "n", "content"),
}


@dataclass(frozen=True)
class Deal:
    query: str
    layout: tuple[int, int]
    partitions: int
    files: int
    per_trigger: int
    format: str
    source: str
    seq: str

    def __str__(self) -> str:
        grid = "x".join(map(str, self.layout))
        return (f"{self.query}-{grid}-{self.partitions}p-{self.files}f-{self.per_trigger}t-{self.format}-{self.source}"
                f"-{self.seq}")  # fmt: skip


def deals(count: int) -> list[Deal]:
    """Each next one of many random ones has the most pairs of choices not met before."""
    chance = random.Random(SEED)
    met: set[Any] = set()
    found = []
    for _ in range(count):
        some = [tuple(chance.choice(values) for values in CHOICES.values()) for _ in range(60)]
        best = max(some, key=lambda deal: len(set(itertools.combinations(enumerate(deal), 2)) - met))
        met |= set(itertools.combinations(enumerate(best), 2))
        found.append(Deal(*best))
    return found


STREAMING, BATCH = deals(26)[:11], deals(26)[11:]
#: Every query and every other choice is in one of these; that any two choices meet is the soak's.
QUICK_STREAMING, QUICK_BATCH = (0, 1), (0, 2, 4, 6)
AGAIN_STREAMING, AGAIN_BATCH = (2, 3), (1, 3, 10, 12)


def numbers(dealt: list[Deal], quick: tuple[int, ...], again: tuple[int, ...]) -> list[Any]:
    def marks(n: int) -> Any:
        if n in quick:
            return ()
        return pytest.mark.again if n in again else pytest.mark.slow

    return [pytest.param(n, id=str(deal), marks=marks(n)) for n, deal in enumerate(dealt)]


@dataclass(frozen=True)
class Delivery:
    """Two streams of a deal: the query, what Spark is given, and what the reference makes of the same rows."""

    query: Any
    frames: Any  # (streaming, files per trigger) -> DataFrames
    expected: pa.Table


def deliver(spark: Any, deal: Deal, folder: Path, chance: random.Random) -> Delivery:
    streams, data, readers = {}, {}, {}
    for name in ("quotes", "trades"):
        table = rows(chance, name)
        if deal.format != "parquet":  # neither file has an agreed way to write it
            letter = table.column_names[-1]
            numbers = [None if v is None or math.isnan(v) else v for v in table[letter].to_pylist()]
            table = table.set_column(4, letter, pa.array(numbers, pa.float64()))
        if deal.source == "text":
            names = pa.array(["b", "B", "é"]).take(table["src"].combine_chunks())
            table = table.set_column(1, "src", names)
        if deal.source == "file":  # a file is a source that ends with it: later files go on where it ended
            table = table.sort_by([("ts", "ascending"), ("n", "ascending")])
        streams[name], data[name], readers[name] = _stream(spark, deal, name, table, folder, chance)
    query = QUERIES[deal.query](streams["quotes"], streams["trades"])
    used = query.streams()

    def frames(*, streaming: bool, per_trigger: int | None = None) -> dict[str, Any]:
        return {name: readers[name](streaming, per_trigger) for name in used}

    return Delivery(query, frames, query.reference({name: data[name] for name in used}))


def _stream(
    spark: Any, deal: Deal, name: str, table: pa.Table, folder: Path, chance: random.Random
) -> tuple[Any, Any, Any]:
    options: dict[str, Any] = {"unit": "us", "seq": deal.seq, "disorder": 3}
    if deal.source in ("column", "text"):
        options["source"] = "src"
        options["sources"] = None if deal.source == "column" else ("é", "b", "B")
    schema = feeds.spark_schema(table)

    def read(at: Path, streaming: bool, per_trigger: int | None) -> Any:
        return feeds.frame(spark, at, schema, format=deal.format, streaming=streaming, files=per_trigger)

    def cuts(length: int) -> list[int]:
        return sorted(chance.sample(range(1, length), deal.files - 1))

    if deal.source == "frames":
        parts = {k: table.filter(pa.array([s == k for s in table["src"].to_pylist()])) for k in range(3)}
        for k, part in parts.items():
            write_files(folder / f"{name}{k}", part, cuts(part.num_rows), format=deal.format)
        stream = plait.stream(name, **options, sources=3)
        return stream, list(parts.values()), lambda s, per: [read(folder / f"{name}{k}", s, per) for k in range(3)]
    at = cuts(table.num_rows)
    names = write_files(folder / name, table, at, format=deal.format)
    if deal.source == "file":
        edges = [0, *at, table.num_rows]
        parts = {f: table.slice(a, b - a) for f, a, b in zip(names, edges, edges[1:], strict=False)}
        return plait.stream(name, **options, source=plait.FILE), parts, lambda s, per: read(folder / name, s, per)
    return plait.stream(name, **options), table, lambda s, per: read(folder / name, s, per)


def layout_of(query: Any, deal: Deal) -> tuple[int, int]:
    """As many cells as the deal has, in the shape that the query can have."""
    cells = deal.layout[0] * deal.layout[1]
    if isinstance(query, plait.query.Asof):
        return cells, 1
    if deal.query == "full, one cell":
        return 1, 1
    return {"inner": deal.layout, "right": (1, cells)}.get(query.how, (cells, 1))


@pytest.mark.parametrize("number", numbers(STREAMING, QUICK_STREAMING, AGAIN_STREAMING))
def test_streaming(spark: Any, tmp_path: Path, number: int) -> None:
    """In micro-batches, with a stop and a restart where the rows end, then drained: the reference's bytes."""
    deal = STREAMING[number]
    spark.conf.set("spark.sql.shuffle.partitions", str(deal.partitions))
    given = deliver(spark, deal, tmp_path / "in", random.Random(SEED + number))
    df = given.query.on_spark(
        given.frames(streaming=True, per_trigger=deal.per_trigger), layout=layout_of(given.query, deal)
    )
    assert_identical(feeds.run(df, tmp_path), given.expected)


@pytest.mark.parametrize("number", numbers(BATCH, QUICK_BATCH, AGAIN_BATCH))
def test_batch(spark: Any, tmp_path: Path, number: int) -> None:
    deal = BATCH[number]
    spark.conf.set("spark.sql.shuffle.partitions", str(deal.partitions))
    given = deliver(spark, deal, tmp_path, random.Random(SEED - 1 - number))
    df = given.query.on_spark(given.frames(streaming=False), layout=layout_of(given.query, deal))
    assert_identical(collected(df), given.expected)


# --- rows without files -----------------------------------------------------------------------------------------


@pytest.fixture
def two(spark: Any) -> Any:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


def dataframe(spark: Any, table: pa.Table, tasks: int = 1) -> Any:
    return spark.createDataFrame(table).repartition(tasks)


@pytest.mark.parametrize("seq", ["n", "content"])
def test_rows_in_any_number_of_tasks_and_any_order(two: Any, seq: str) -> None:
    """With a seq column, or ties by content, it does not matter in which task a row is, nor where in it."""
    chance = random.Random(SEED)
    data = {"quotes": rows(chance, "quotes"), "trades": rows(chance, "trades")}
    streams = [plait.stream(n, unit="us", seq=seq, source="src", disorder=3) for n in data]
    query = QUERIES["time"](*streams)
    expected = query.reference(data)
    for tasks in (1, 3, 7):
        mixed = {name: shuffled(table, chance) for name, table in data.items()}
        given = {name: dataframe(two, table, tasks) for name, table in mixed.items()}
        assert_identical(collected(query.on_spark(given, layout=(2, 2))), expected)
    assert_identical(query.on_spark(given, layout=(1, 1), keys=False).toArrow(), expected)


def shuffled(table: pa.Table, chance: random.Random) -> pa.Table:
    order = list(range(table.num_rows))
    chance.shuffle(order)
    return table.take(pa.array(order))


def test_dataframes_by_name_stand_in_the_order_of_their_names(two: Any) -> None:
    """However the dict was put together; and as declared, where they are declared."""
    part = {
        n: pa.table({"ts": [1, 1, 2], "of": [f"{n}{k}" for k in range(3)], "n": [0, 1, 2]}) for n in ("b", "é", "B")
    }
    right = pa.table({"ts": [1, 2], "n": [0, 1]})
    for declared in (None, ("é", "B", "b")):
        left = plait.stream("a", unit="us", seq="n", sources=declared)
        query = plait.join(left, plait.stream("c", unit="us", seq="n"), within=1)
        given = {"a": {n: two.createDataFrame(t) for n, t in part.items()}, "c": two.createDataFrame(right)}
        assert_identical(collected(query.on_spark(given)), query.reference({"a": part, "c": right}))


# --- payload ----------------------------------------------------------------------------------------------------


def payload(count: int) -> pa.Table:
    """Every kind of column that is only carried along, each with NULL."""
    moment = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "dec": (pa.decimal128(20, 4), [decimal.Decimal("12.3400"), decimal.Decimal("-0.0001")]),
        "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
        "at": (pa.timestamp("us", "UTC"), [moment, moment + dt.timedelta(hours=1, microseconds=1)]),
        "naive": (pa.timestamp("us"), [moment.replace(tzinfo=None), dt.datetime.fromisoformat("1900-01-01")]),
        "yes": (pa.bool_(), [True, False]),
        "raw": (pa.binary(), [b"", b"\x00\xff"]),
        "text": (pa.string(), ["", "é\n\x00"]),
        "f32": (pa.float32(), [0.1, math.nan]),
        "tiny": (pa.int8(), [-128, 127]),
        "some": (pa.list_(pa.int32()), [[], [1, None, 3]]),
        "pair": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
    }
    columns = {n: pa.array([(*v, None)[(k + len(n)) % 3] for k in range(count)], t) for n, (t, v) in values.items()}
    ts = pa.array([k // 2 * 1_000_000 for k in range(count)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": ts, **columns})


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_columns_of_every_type_are_carried_whatever_the_zone(two: Any, tmp_path: Path, zone: str) -> None:
    table = payload(30)
    write_files(tmp_path / "in", table, [11, 20])
    a, b = plait.stream("a"), plait.stream("b")
    query = plait.join(a, b, within="2s", on="l.tiny <> r.tiny", how="left")
    expected = query.reference({"a": table, "b": table})
    before = two.conf.get("spark.sql.session.timeZone")
    two.conf.set("spark.sql.session.timeZone", zone)
    try:
        frames = {n: two.read.parquet(str(tmp_path / "in")) for n in "ab"}
        assert_identical(collected(query.on_spark(frames)), expected)
        if zone == "UTC":
            live = {n: feeds.frame(two, tmp_path / "in", frames["a"].schema, streaming=True) for n in "ab"}
            assert_identical(feeds.run(query.on_spark(live), tmp_path), expected)
    finally:
        two.conf.set("spark.sql.session.timeZone", before)


EDGE = 2**62


def test_the_ends_of_time(two: Any) -> None:
    a, b = plait.stream("a", unit="us", seq="ts"), plait.stream("b", unit="us", seq="ts")
    left = pa.table({"ts": pa.array([-EDGE, -1, EDGE], pa.int64())})
    right = pa.table({"ts": pa.array([-EDGE, 0, EDGE], pa.int64())})
    frames = {"a": two.createDataFrame(left), "b": two.createDataFrame(right)}
    for query in (plait.join(a, b, within=EDGE), plait.join(a, b, within=(EDGE, 0), how="left"),
                  plait.join(a, b, on="l.ts < r.ts", within=(0, EDGE - 1), how="left"),
                  plait.join(a, b, on="l.ts < r.ts", within=(0, EDGE - 1), how="anti"),
                  plait.join(a, b, last=1), plait.asof(a, b, within=EDGE), plait.asof(a, b),
                  plait.asof(a, b, within=EDGE, direction="forward"), plait.asof(a, b, within=EDGE, direction="nearest"),
                  plait.asof(a, b, within=EDGE - 1, direction="nearest", exact=False)):  # fmt: skip
        assert_identical(collected(query.on_spark(frames, layout=(2, 1))), query.reference({"a": left, "b": right}))
    beyond = plait.join(a, b, on="l.ts < r.ts", within=(0, EDGE), how="left")
    with pytest.raises(plait.DataError, match="beyond 64 bits"):
        beyond.reference({"a": left, "b": right})
    with pytest.raises(Exception, match=f"A result's ts, {EDGE} \\+ {EDGE}, lies beyond 64 bits"):
        beyond.on_spark(frames, layout=(2, 1)).collect()


@pytest.mark.parametrize("empty", ["a", "b", "both"])
def test_streams_with_nothing_to_say(two: Any, tmp_path: Path, empty: str) -> None:
    table = pa.table({"ts": pa.array([1, 5], pa.int64()), "x": pa.array([1, 2], pa.int64())})
    data = {n: table.slice(0, 0) if empty in (n, "both") else table for n in "ab"}
    for name, rows_ in data.items():
        write_files(tmp_path / name, rows_, [])
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(a, b, within=3, how="left")
    for streaming in (True, False) if empty == "b" else (False,):
        frames = {n: feeds.frame(two, tmp_path / n, feeds.spark_schema(table), streaming=streaming) for n in "ab"}
        df = query.on_spark(frames, layout=(2, 1))
        assert_identical(feeds.run(df, tmp_path) if streaming else collected(df), query.reference(data))


# --- late rows --------------------------------------------------------------------------------------------------


def test_late_rows_are_set_aside_once(two: Any, tmp_path: Path) -> None:
    """Late is a fact of the data: whichever cells get a late tuple, in whatever batch, one of them counts it."""
    chance = random.Random(SEED)
    times = [max(0, k // 2 + chance.choice((0, 0, 0, -9, -2))) for k in range(200)]
    table = pa.table({"ts": times, "k": list(range(200))})
    other = pa.table({"ts": list(range(100)), "w": list(range(100))})
    a, b = plait.stream("a", unit="us", disorder=2, late="drop"), plait.stream("b", unit="us")
    query = plait.join(a, b, on="l.k % 7 = r.w % 7", within=5)
    with pytest.warns(UserWarning, match="late"):
        expected = query.reference({"a": table, "b": other})
    late, largest = [], 0
    for k, ts in enumerate(times):
        late += [k] if ts < largest - 2 else []
        largest = max(largest, ts)
    write_files(tmp_path / "a", table, [13, 51])
    write_files(tmp_path / "b", other, [60])
    for layout, files in (((2, 2), 1), ((3, 1), 3)):
        frames = {n: feeds.frame(two, tmp_path / n, feeds.spark_schema(t), streaming=True, files=files)
                  for n, t in (("a", table), ("b", other))}  # fmt: skip
        name, reports = f"out{files}", []
        df = query.on_spark(frames, layout=layout)
        got = feeds.run(df, tmp_path, name=name, late=tmp_path / f"late{files}", report=reports.append)
        assert_identical(got, expected)
        assert sorted(feeds.published(tmp_path / f"late{files}")["k"].to_pylist()) == late
        assert reports[-1].late == len(late)
        assert sum(report.results for report in reports) == expected.num_rows


# --- the sinks --------------------------------------------------------------------------------------------------


@pytest.fixture
def small(two: Any, tmp_path: Path) -> tuple[Any, Any, pa.Table]:
    """A query, its streaming DataFrames by files per trigger, and the reference's result."""
    chance = random.Random(SEED)
    data = {n: rows(chance, n, count=90, disorder=0).drop_columns(["src"]) for n in ("quotes", "trades")}
    data = {n: t.sort_by([("ts", "ascending"), ("n", "ascending")]) for n, t in data.items()}
    for name, table in data.items():
        write_files(tmp_path / "in" / name, table, [30, 60])
    query = QUERIES["time"](*(plait.stream(n, unit="us") for n in data))

    def frames(per_trigger: int = 1, **options: Any) -> Any:
        return query.on_spark({n: feeds.frame(two, tmp_path / "in" / n, feeds.spark_schema(t), streaming=True,
                                              files=per_trigger) for n, t in data.items()}, **options)  # fmt: skip

    return query, frames, query.reference(data)


def test_the_distributed_sink_holds_the_same_rows_in_the_same_order(small: Any, tmp_path: Path) -> None:
    _, frames, expected = small
    assert_identical(feeds.run(frames(), tmp_path, distributed=True), expected)


@pytest.mark.again
def test_json_lines_and_keys(small: Any, tmp_path: Path) -> None:
    _, frames, expected = small
    plait.spark.write_ordered(frames(3), tmp_path / "j", checkpoint=tmp_path / "j.c", format="jsonl", drain=True
                              ).awaitTermination()  # fmt: skip
    lines = "".join(p.read_text() for p in sorted((tmp_path / "j").glob("*.jsonl"))).splitlines()
    assert len(lines) == expected.num_rows
    got = feeds.run(frames(2), tmp_path, name="k", keep_key=True)
    keys = got["_plait_key"].to_pylist()
    assert keys == sorted(keys)
    assert_identical(got, expected)


def test_a_sink_of_the_users_with_two_actions(small: Any, tmp_path: Path) -> None:
    """`foreachBatch` runs the cells for each action anew: the index of the first run must leave no trace in the second."""
    _, frames, expected = small
    parts, counts = [], []

    def sink(frame: Any, number: int) -> None:
        counts.append(frame.count())
        parts.append(collected(frame))

    folder = tmp_path / "control"
    df = frames(control=str(folder))
    for last in (False, True):
        if last:
            plait.spark.drain(folder)
        writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
        writer.trigger(availableNow=True).start().awaitTermination()
    assert counts == [part.num_rows for part in parts]
    assert_identical(pa.concat_tables(parts), expected)


@pytest.mark.again
@pytest.mark.filterwarnings("ignore:(Batch . dropped )?. rows (dropped )?as late or behind:UserWarning")
def test_dropped_rows_are_in_reach_of_a_batch_and_of_the_users_own_sink(two: Any, tmp_path: Path) -> None:
    """Marked in the result where asked for; else counted in the query's progress, with a warning."""
    table = pa.table({"ts": [1, 9, 2, 10, 3, 30], "k": list(range(6)), "v": [1.5, math.nan, None, 2.0, math.inf, 0.0]})
    other = pa.table({"ts": [1, 9, 30]})
    write_files(tmp_path / "a", table, [4])
    write_files(tmp_path / "b", other, [])
    a, b = plait.stream("a", unit="us", late="drop"), plait.stream("b", unit="us")
    query = plait.join(a, b, within=1)
    with pytest.warns(UserWarning, match="2 late"):
        expected = query.reference({"a": table, "b": other})
    lost = ['{"ts": 2, "k": 2, "v": null}', '{"ts": 3, "k": 4, "v": "Infinity"}']

    def frames(streaming: bool) -> Any:
        return {n: feeds.frame(two, tmp_path / n, feeds.spark_schema(t), streaming=streaming, files=1)
                for n, t in (("a", table), ("b", other))}  # fmt: skip

    def judge(whole: pa.Table) -> None:
        late = whole.filter(pa.compute.is_valid(whole["_plait_dropped"]))
        assert set(late["_plait_dropped"].to_pylist()) == {"a"}
        assert sorted(late["_plait_row"].to_pylist()) == lost
        kept = whole.filter(pa.compute.is_null(whole["_plait_dropped"])).drop_columns(["_plait_dropped", "_plait_row"])
        assert_identical(kept.sort_by("_plait_key"), expected)

    judge(query.on_spark(frames(False), layout=(2, 2), late_rows=True).toArrow())
    with pytest.warns(UserWarning, match=r"Late rows of 'a' are dropped.*late_rows=True"):
        assert_identical(collected(query.on_spark(frames(False))), expected)
    for late_rows in (True, False):  # without keys: the same rows, of one cell in the same order
        got = query.on_spark(frames(False), layout=(1, 1), late_rows=late_rows, keys=False).toArrow()
        assert "_plait_key" not in got.column_names
        kept = got.filter(pa.compute.is_null(got["_plait_dropped"])) if late_rows else got
        assert_identical(kept.select(expected.column_names), expected)
    parts: list[pa.Table] = []
    for late_rows in (True, False):
        folder = tmp_path / f"own {late_rows}"
        df = query.on_spark(frames(True), layout=(2, 2), late_rows=late_rows, control=str(folder / "control"))
        parts.clear()
        counts = []
        for _ in range(2):
            writer = df.writeStream.foreachBatch(lambda frame, _: parts.append(frame.toArrow()))
            live = writer.option("checkpointLocation", str(folder / "c")).trigger(availableNow=True).start()
            live.awaitTermination()
            counts += [p.observedMetrics["plait"].late for p in live.recentProgress if "plait" in p.observedMetrics]
            if not _:
                plait.spark.drain(folder / "control")
        if late_rows:
            judge(pa.concat_tables(parts))
        else:
            assert counts[-1] == 2
            assert_identical(pa.concat_tables(parts), expected)
    with pytest.warns(UserWarning, match=r"Batch 1 dropped 1 rows as late or behind.*late=FOLDER"):
        assert_identical(feeds.run(query.on_spark(frames(True)), tmp_path), expected)


@pytest.mark.parametrize("kind", ["left", "anti", "asof"])
def test_rows_without_partners_from_a_query_without_any_row(two: Any, kind: str) -> None:
    """In a batch, an operator that nothing reaches has no cell, so nobody tells the next one that it is done."""
    a, b = plait.stream("a", unit="us", seq="content"), plait.stream("b", unit="us", seq="content")
    inner = plait.aggregate(b, size=3, by="k", compute={"n": plait.count()}).named("counts")
    rows = pa.table({"ts": pa.array([3, 4], pa.int64()), "k": pa.array([2, 1], pa.int64())})
    query = plait.asof(a, inner, by="k") if kind == "asof" else plait.join(a, inner, within=5, how=kind)
    data = {"a": rows, "b": rows.slice(0, 0)}
    got = collected(query.on_spark({name: dataframe(two, table) for name, table in data.items()}))
    expected = query.reference(data)
    assert len(expected) == 2
    assert_identical(got, expected)
