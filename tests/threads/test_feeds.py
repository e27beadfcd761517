"""One call over data that is all there: `query.run` and `query.batches` give what the reference gives."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import DataError, LateError, QueryError
from plait.connectors.contract import Chunk
from plait.query.identical import difference
from plait.threads import feeds

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
NEAR = plait.join(A, B, on=lambda l, r: abs(l.x - r.x) <= 2, within=40)
COUNTED = plait.aggregate(A, size="50us", by="x", compute={"n": plait.count(), "last": plait.last("t")})


def table(rows: int, seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    text = pa.array([("one", "two", None)[k] for k in dice.integers(0, 3, rows)])
    return pa.table({"ts": np.sort(dice.integers(0, 4 * rows, rows)), "x": dice.integers(0, 40, rows), "t": text})


DATA = {"a": table(3000, 1), "b": table(2500, 2)}


def test_it_is_the_references_answer() -> None:
    expected = NEAR.reference(DATA)
    assert expected.num_rows > 1000
    assert difference(expected, NEAR.run(DATA)) is None
    assert difference(expected, NEAR.run(DATA, engine="reference")) is None
    assert (
        difference(NEAR.reference(DATA, keys=True), NEAR.run(DATA, keys=True, workers=2, strategy="scalejoin")) is None
    )
    batches = list(NEAR.batches(DATA))
    assert difference(expected, pa.Table.from_batches(batches)) is None
    again = list(NEAR.batches(DATA, engine="reference"))
    assert difference(expected, pa.Table.from_batches(again)) is None
    assert len(again) > 1


def test_a_query_of_one_stream_takes_its_data_alone() -> None:
    expected = COUNTED.reference({"a": DATA["a"]})
    columns = {name: DATA["a"][name].to_pylist() for name in DATA["a"].column_names}
    for given in (DATA["a"], {"a": DATA["a"]}, columns, DATA["a"].to_batches(max_chunksize=100)):
        assert difference(expected, COUNTED.run(given)) is None
        assert difference(expected, COUNTED.run(given, engine="reference")) is None


def test_a_misspelt_stream_is_refused_and_no_source() -> None:
    for engine in ("threads", "reference"):
        for given in ({"aa": DATA["a"]}, {"aa": "a.parquet"}, {}):
            with pytest.raises(QueryError, match=r"no such stream|No data is given"):
                COUNTED.run(given, engine=engine)  # type: ignore[arg-type]


def test_a_stream_may_be_called_as_one_of_its_columns() -> None:
    """A dict whose only key is the stream's name is data by stream."""
    query = plait.aggregate(plait.stream("ts", unit="us"), size="5us", compute={"n": plait.count()})
    assert query.run({"ts": {"ts": [1, 2, 9]}})["n"].to_pylist() == [2, 1]


def test_whatever_has_arrows_interface(tmp_path: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    expected = NEAR.reference(DATA)
    connection = duckdb.connect()
    for name, rows in DATA.items():
        connection.register(name, rows)
    relations = {name: connection.sql(f"select * from {name} order by ts") for name in DATA}
    ordered = {name: relation.fetch_arrow_table() for name, relation in relations.items()}
    assert (
        difference(
            NEAR.reference(ordered), NEAR.run({n: connection.sql(f"select * from {n} order by ts") for n in DATA})
        )
        is None
    )
    frames: dict[str, Any] = {name: polars.from_arrow(rows) for name, rows in DATA.items()}
    assert NEAR.run(frames).num_rows == expected.num_rows
    pandas = {name: rows.to_pandas() for name, rows in DATA.items()}
    assert difference(expected, NEAR.run(pandas)) is None


def test_paths_and_patterns(tmp_path: Path) -> None:
    expected = NEAR.reference(DATA)
    for name, rows in DATA.items():
        (tmp_path / name).mkdir()
        for part in range(3):
            low = part * rows.num_rows // 3
            piece = rows.slice(low, (part + 1) * rows.num_rows // 3 - low)
            pq.write_table(piece, tmp_path / name / f"day-{part}.parquet", row_group_size=100)
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    (tmp_path / "a" / "other.csv").write_text("ts,x,t\n1,2,a\n")
    pattern = str(tmp_path / "a" / "day-*.parquet")
    for given in ({name: tmp_path / f"{name}.parquet" for name in DATA}, {"a": pattern, "b": str(tmp_path / "b")}):
        assert difference(expected, NEAR.run(given)) is None
        assert difference(expected, NEAR.run(given, engine="reference")) is None
        assert sum(batch.num_rows for batch in NEAR.batches(given)) == expected.num_rows
    with pytest.raises(DataError, match="No file matches"):
        NEAR.run({"a": str(tmp_path / "no-*.parquet"), "b": DATA["b"]})
    with pytest.raises(DataError, match="mixes formats"):
        NEAR.run({"a": str(tmp_path / "a" / "*"), "b": DATA["b"]})


def test_sources_of_a_column_are_known_before_any_row_comes() -> None:
    """The third source's first row lies far behind the others': it is not behind."""
    stream = plait.stream("a", unit="us", source="s")
    query = plait.aggregate(stream, size="10us", compute={"n": plait.count(), "all": plait.collect("s")})
    rows = {"ts": [*range(50_000), 3], "s": [*(k % 2 for k in range(50_000)), 7]}
    for given in (rows, {"ts": rows["ts"], "s": [f"s{s}" for s in rows["s"]]}):
        assert difference(query.reference({"a": given}), query.run(given)) is None


def test_rows_of_a_table_are_put_in_the_order_of_their_seq() -> None:
    query = plait.aggregate(plait.stream("a", unit="us", seq="n"), size="10us", compute={"all": plait.collect("n")})
    rows = {"ts": [1, 1, 1, 2], "n": [3, 1, 2, 4]}
    assert query.run(rows)["all"].to_pylist() == query.reference({"a": rows})["all"].to_pylist() == [[1, 2, 3, 4]]


def test_dropped_rows_are_told() -> None:
    query = plait.aggregate(plait.stream("a", unit="us", late="drop"), size="10us", compute={"n": plait.count()})
    for engine in ("threads", "reference"):
        with pytest.warns(UserWarning, match="stream 'a': 1 late tuples dropped"):
            assert query.run({"ts": [5, 3, 9]}, engine=engine)["n"].to_pylist() == [2]  # type: ignore[arg-type]


def test_an_error_of_the_data_is_raised_and_nothing_stays() -> None:
    before = threading.active_count()
    with pytest.raises(LateError):
        COUNTED.run({"ts": [5, 3], "x": [1, 1], "t": ["a", "b"]})
    with pytest.raises(LateError):
        list(COUNTED.batches({"ts": [5, 3], "x": [1, 1], "t": ["a", "b"]}))
    for batch in NEAR.batches(DATA, unread_results=64):
        assert batch.num_rows
        break  # who stops reading ends the run
    gc.collect()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: NEAR.run(DATA, engine="spark"), "engine='spark' runs no data that is all there"),
        (lambda: NEAR.run(DATA, worker=2), "Did you mean workers=?"),
        (lambda: NEAR.run(DATA, engine="reference", workers=2), "engine='reference' has no option 'workers'"),
        (lambda: NEAR.run({"a": DATA["a"]}), "No data is given for stream 'b'"),
        (lambda: NEAR.run({**DATA, "c": DATA["a"]}), "Data is given for 'c'"),
    ],
)
def test_what_is_refused(call: Any, says: str) -> None:
    with pytest.raises(QueryError, match=says.replace("?", r"\?")):
        call()
    with pytest.raises(DataError, match="data is a Table"):
        NEAR.run(DATA["a"])


def chunk(number: int) -> Chunk:
    return Chunk(pa.record_batch({"n": [number]}), None, number)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_lane_is_read_some_chunks_ahead(threads: int) -> None:
    """Not before it is asked for, and never more: each holds as much memory as a chunk. Its error comes in its place."""
    read: list[int] = []
    enough = threading.Event()

    def chunks() -> Iterator[Chunk]:
        for number in range(10):
            read.append(number)
            if number == feeds.AHEAD:
                enough.set()
            yield chunk(number)
        raise DataError("row 7 is damaged")

    with ThreadPoolExecutor(threads) as readers:
        ahead = feeds._Ahead(chunks(), readers)
        lane = iter(ahead)
        assert read == []
        assert next(lane).first_row == 0
        assert enough.wait(60)
        with ahead._guard:  # nobody reads, and nobody will before the next is asked for
            assert ahead._changed.wait_for(lambda: not ahead._reading, 60)
        assert read == list(range(1 + feeds.AHEAD))
        assert [next(lane).first_row for _ in range(9)] == list(range(1, 10))
        with pytest.raises(DataError, match="row 7"):
            next(lane)
        assert list(feeds._Ahead(iter(()), readers)) == []


def test_who_stops_asking_waits_for_one_chunk_at_most() -> None:
    """A run that ends early lets its readers go: they end what they read, and begin nothing."""
    read: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def chunks() -> Iterator[Chunk]:
        for number in range(100):
            read.append(number)
            if number == 1:
                begun.set()
                assert go_on.wait(60)
            yield chunk(number)

    with ThreadPoolExecutor(1) as readers:
        next(iter(feeds._Ahead(chunks(), readers)))
        assert begun.wait(60)
        readers.shutdown(wait=False)
        go_on.set()
    assert read == [0, 1]
