import numpy as np
import pyarrow as pa
import pytest

from plait.connectors import merged, synthetic, write_folder
from plait.connectors.contract import Chunk, Feed, Lane
from plait.connectors.folder import feed as folder_feed
from plait.connectors.memory import feed as memory_feed
from plait.errors import DataError
from plait.query.stream import FILE, stream

SCHEMA = pa.schema([("ts", pa.int64()), ("n", pa.int64())])


def lanes_of(*lanes):
    """A feed whose lanes hold the given chunks of times; `n` tells the rows apart."""
    number = iter(range(10**6))

    def lane(at, chunks):
        batches = [pa.record_batch([pa.array(c, pa.int64()), [next(number) for _ in c]], schema=SCHEMA) for c in chunks]
        return Lane(at, lambda: (Chunk(b) for b in batches))

    return Feed(SCHEMA, tuple(lane(at, chunks) for at, chunks in enumerate(lanes)))


def rows_of(given):
    return [row for batch in merged(given, "ts") for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "lanes",
    [
        [[[1, 2, 2], [2, 3]], [[2, 2], [2], [2, 9]]],
        [[[5]], [[1], [2], [3]], []],
        [[[], [1], []], [[], []]],
        [[[7] * 5, [7] * 5], [[7] * 3], [[7], [8]]],
        [[]],
    ],
)
def test_merging_is_by_time_then_lane_then_position(lanes):
    given = lanes_of(*lanes)
    every = [row for lane in given.lanes for c in lane.read() for row in c.batch.to_pylist()]
    assert rows_of(given) == sorted(every, key=lambda row: row["ts"])  # which is stable


def test_merging_does_not_depend_on_how_lanes_are_cut():
    random = np.random.default_rng(5)
    for _ in range(30):
        lanes = [np.sort(random.integers(0, 20, random.integers(0, 40))).tolist() for _ in range(3)]
        expected = rows_of(lanes_of(*[[lane] for lane in lanes]))
        cut = [np.split(np.array(lane, int), np.sort(random.integers(0, len(lane) + 1, 4))) for lane in lanes]
        assert rows_of(lanes_of(*[[part.tolist() for part in lane] for lane in cut])) == expected


def test_merging_by_a_column_that_is_not_there():
    with pytest.raises(DataError, match=r"no column 'when' to be merged by\. Their columns are ts, n"):
        next(merged(lanes_of([[1]]), "when"))


def test_merging_holds_one_chunk_a_lane():
    pulled = []

    def lane(at):
        def read():
            for start in range(100):
                pulled.append(at)
                yield Chunk(pa.record_batch({"ts": [start * 10 + at], "n": [at]}))

        return Lane(at, read)

    rows = merged(Feed(SCHEMA, (lane(0), lane(1))), "ts")
    for _ in range(50):
        next(rows)
    assert abs(pulled.count(0) - pulled.count(1)) <= 2
    assert len(pulled) < 60


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_a_workload_as_a_folder_reads_back_the_same(tmp_path, format):
    work = synthetic.scalejoin_constant(rows=3_000)
    for name, feed in work.feeds.items():
        files = write_folder(feed, tmp_path / name, format=format, rows_per_file=500, time="ts")
        assert [f.name for f in files[:2]] == [f"part-00000.{format}", f"part-00001.{format}"]
        assert len(files) == -(-feed.rows // 500)
        declared = stream(name, **work.declarations[name], schema=feed.schema)
        given = folder_feed(declared, tmp_path / name)
        rows = pa.Table.from_batches([c.batch for lane in given.lanes for c in lane.read()])
        assert rows.equals(synthetic.tables(work)[name])


def test_lanes_become_files_named_by_their_source(tmp_path):
    work = synthetic.scalejoin_constant(rows=3_000)
    feed = work.feeds["stream_s"]
    write_folder(feed, tmp_path / "s")
    given = folder_feed(stream("s", source=FILE), tmp_path / "s")
    assert [lane.source for lane in given.lanes] == ["s0.parquet", "s1.parquet", "s2.parquet", "s3.parquet"]
    for lane, original in zip(given.lanes, feed.lanes, strict=True):
        rows = [pa.Table.from_batches([c.batch for c in one.read()]) for one in (lane, original)]
        assert rows[0].equals(rows[1])


def test_one_lane_keeps_its_order_and_no_rows_are_one_file(tmp_path):
    table = pa.table({"ts": [3, 1, 2]})
    files = write_folder(memory_feed(stream("q"), table), tmp_path / "a", format="csv", rows_per_file=2)
    assert [f.read_text() for f in files] == ['"ts"\n3\n1\n', '"ts"\n2\n']
    files = write_folder(memory_feed(stream("q"), table.slice(0, 0)), tmp_path / "b", format="csv")
    assert [f.read_text() for f in files] == ['"ts"\n']


def test_refusals(tmp_path, refusal):
    given = memory_feed(stream("q"), {"ts": [1]})
    (tmp_path / "a.csv").write_text("")
    assert f"'{tmp_path}' is no empty folder" in refusal(write_folder, given, tmp_path)
    assert "is no empty folder" in refusal(write_folder, given, tmp_path / "a.csv")
    assert "rows_per_file=0" in refusal(write_folder, given, tmp_path / "b", rows_per_file=0)
    assert "rows_per_file='x'" in refusal(write_folder, given, tmp_path / "b", rows_per_file="x")
    assert "5 is no feed" in refusal(write_folder, 5, tmp_path / "b")
    assert "format='orc' is no format" in refusal(write_folder, given, tmp_path / "b", format="orc")
