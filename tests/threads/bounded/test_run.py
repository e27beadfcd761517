"""`query.run` in slabs: the reference's answer however data are cut, in files and tables; errors as of a run that is pushed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.examples import examples
from tests.threads.bounded.slabs import feeds_of, goes_in_slabs, in_slabs

import plait
from plait import connectors
from plait.connectors import parquet_file
from plait.connectors.files import find
from plait.errors import DataError, LateError, PendingError, PlaitError, QueryError, RunError
from plait.query.bind import bind
from plait.query.identical import difference
from plait.threads.bounded import run as bounded

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
ASOF = plait.asof(A, B, by="k", within=30)
NEAR = plait.join(A, B, on=lambda l, r: (l.x >= r.x - 2) & (l.x <= r.x + 2), within=(40, 10))
SAME = plait.join(A, B, on="a.k = b.k", within=15)


def table(rows: int, seed: int, span: int = 4) -> pa.Table:
    dice = np.random.default_rng(seed)
    text = pa.array([("one", "two", "three", None)[k] for k in dice.integers(0, 4, rows)])
    return pa.table({
        "ts": np.sort(dice.integers(0, span * rows + 1, rows)), "x": dice.integers(0, 40, rows), "k": text, "n": np.arange(rows),
    })  # fmt: skip


DATA = {"a": table(1200, 1), "b": table(1000, 2)}

#: Queries that go in slabs.
QUERIES: dict[str, plait.Query] = {
    "as-of": ASOF,
    "as-of, not exact, inner": plait.asof(A, B, by="k", exact=False, how="inner"),
    "as-of, any": plait.asof(A, B),
    "as-of, forward": plait.asof(A, B, by=[("k", "k"), ("x", "x")], within=200, direction="forward"),
    "as-of, nearest": plait.asof(A, B, by="k", within=9, direction="nearest", how="inner"),
    "as-of, itself": plait.asof(A, A, by="k", within=50),
    "as-of, itself, nearest": plait.asof(A, A, by="k", within=50, direction="nearest"),
    "band": NEAR,
    "equality": SAME,
    "tumbling": plait.join(A, B, on=lambda l, r: l.x == r.x, tumbling=50),
    "no condition": plait.join(A, B, within=1),
    "itself": plait.join(A, A, on="l.x = r.x", within=5),
    "filtered before": plait.join(A.where("x > 3"), B, on="a.x = b.x", within=9),
    "changed after": SAME.where("a_n > b_n").select(both=lambda r: r.a_n + r.b_n),
    "of one side": SAME.keep("b_n"),
    "of neither": NEAR.select(t=lambda r: 1),
    "the right text alone": ASOF.keep("b_k", "b_x"),
    "both texts, in another order": ASOF.select("b_k", "a_k", z="a_n"),
    "a function that looks at all": ASOF.where(lambda r: (r.b_x or 0) > 3 if r.a_x else True).keep("a_n"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_it_is_the_references_answer(name: str) -> None:
    """Whole, and in slabs and ranges of a few hundred rows, with keys and without."""
    query = QUERIES[name]
    data = {stream: DATA[stream] for stream in query.streams()}
    expected = query.reference(data, keys=True)
    assert expected.num_rows > 50
    assert difference(expected, query.run(data, keys=True)) is None
    assert difference(expected.drop_columns(["_plait_key"]), query.run(data)) is None
    for rows, few, size in ((300, 7, 64), (1, 1, 500), (2000, 100, 1)):
        feeds = feeds_of(query, data, lambda size=size: size)  # type: ignore[misc]
        got = in_slabs(query, feeds, {"keys": True, "workers": 3}, rows=rows, few=few)
        assert got is not None
        assert difference(expected, got) is None


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(examples(24)))
def test_files_of_any_cut_are_the_same(seed: int, tmp_path: Path) -> None:
    """Text under codes in some files and not in others; row groups, dictionaries that grow, sources by file, disorder."""
    dice = np.random.default_rng(seed)
    by_file, disorder = bool(dice.integers(2)), int(dice.integers(2)) * 5
    streams = [plait.stream(n, unit="us", source=plait.FILE if by_file else None, disorder=disorder) for n in "ab"]
    query = plait.asof(*streams, by="k", within=40, direction=str(dice.choice(["backward", "nearest"])))
    data: dict[str, Any] = {}
    for number, name in enumerate("ab"):
        rows = table(800, seed + number)
        if disorder:
            moved = np.argsort(rows["ts"].to_numpy() + dice.integers(0, 5, 800), kind="stable")
            rows = rows.take(moved)
        (tmp_path / name).mkdir()
        cuts = [0, *sorted(dice.integers(0, 800, 2).tolist()), 800]
        for k, (begin, end) in enumerate(pairwise(cuts)):
            pq.write_table(
                rows.slice(begin, end - begin), tmp_path / name / f"{k}.parquet", use_dictionary=bool(dice.integers(3)),
                row_group_size=int(dice.choice([50, 1000])),
            )  # fmt: skip
        data[name] = str(tmp_path / name)
    expected = query.run(data, keys=True, engine="reference")
    assert difference(expected, query.run(data, keys=True, engine="threads")) is None
    assert difference(expected, query.run(data, keys=True)) is None
    feeds = connectors.feeds(query, data)
    got = in_slabs(query, feeds, {"keys": True}, rows=100)
    assert got is not None
    assert difference(expected, got) is None


def test_text_is_read_under_codes_only_where_the_file_has_it_so(tmp_path: Path) -> None:
    few = pa.array([f"name {k % 50}" for k in range(100_000)])
    many = pa.array([f"a long name that stands nowhere else {k}" for k in range(100_000)])
    rows = pa.table({"ts": np.arange(100_000), "few": few, "many": many})
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(rows, tmp_path / "b.parquet", use_dictionary=False)
    (first, second), _ = find(tmp_path, None)
    assert {"few", "many"} & parquet_file.under_codes(first) == {"few"}
    assert parquet_file.under_codes(second) == set()
    (lane,) = connectors.feed(plait.stream("s", unit="us"), str(tmp_path / "a.parquet")).lanes
    assert lane.coded is not None
    chunk = next(lane.coded(frozenset({"few", "many"})))
    assert pa.types.is_dictionary(chunk.batch.schema.field("few").type)
    assert pa.types.is_string(chunk.batch.schema.field("many").type)
    assert chunk.batch["few"].to_pylist() == few[: chunk.batch.num_rows].to_pylist()


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_pandas_and_polars_find_the_same(direction: str, tmp_path: Path) -> None:
    """Of right rows no two have one ts and key, and no two are as near: so there is but one answer (docs/semantics.md)."""
    dice = np.random.default_rng(5)
    left = pa.table(
        {"ts": 2 * np.sort(dice.integers(0, 60_000, 20_000)), "k": dice.integers(0, 9, 20_000), "n": np.arange(20_000)}
    )
    right = pa.table(
        {
            "ts": 1 + 4 * np.sort(dice.choice(30_000, 9_000, replace=False)),
            "k": dice.integers(0, 9, 9_000),
            "m": np.arange(9_000),
        }
    )
    for name, rows in (("a", left), ("b", right)):
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    query = plait.asof(A, B, by="k", within=40, direction=direction)
    found = query.run({name: str(tmp_path / f"{name}.parquet") for name in "ab"}).sort_by("n")
    times = right["ts"].to_pylist()

    def distances(ts: list[int], partners: list[int | None]) -> list[int | None]:
        return [None if m is None else abs(at - times[m]) for at, m in zip(ts, partners, strict=True)]

    mine = distances(left["ts"].to_pylist(), found["m"].to_pylist())
    frames = left.to_pandas(), right.to_pandas()
    pandas = pd.merge_asof(*frames, on="ts", by="k", tolerance=40, direction=direction).sort_values("n")["m"]  # type: ignore[call-overload]
    polars = pl.from_arrow(left).join_asof(  # type: ignore[union-attr]
        pl.from_arrow(right), on="ts", by="k", tolerance=40, strategy=direction, check_sortedness=False  # type: ignore[arg-type]
    )  # fmt: skip
    for theirs in (pandas.astype("Int64").replace({pd.NA: None}).tolist(), polars.sort("n")["m"].to_list()):
        if direction != "nearest":
            assert found["m"].to_pylist() == theirs
        assert mine == distances(left["ts"].to_pylist(), theirs)


# --- which way ----------------------------------------------------------------------------------------------


def why(query: plait.Query, **options: Any) -> str | None:
    schema = DATA["a"].schema
    return bounded.refusal(bind(query, dict.fromkeys(query.streams(), schema)), options)


@pytest.mark.parametrize(("query", "options", "words"), [
    (NEAR, {"strategy": "scalejoin"}, "strategy= is an option of workers behind a gate"),
    (NEAR, {"unread_results": 64}, "unread_results= is an option of workers"),
    (plait.join(A, B, last=3), {}, "a window that counts tuples"),
    (plait.join(A, B, tumbling_count=3), {}, "a window that counts tuples"),
    (plait.join(A, B, within=3, how="left"), {}, "how='left' has to know of each row"),
    (plait.aggregate(A, size="1s", compute={"n": plait.count()}), {}, "aggregates run as they are pushed"),
    (plait.dedup(A, by="x", within=3), {}, "dedups run as they are pushed"),
    (plait.asof(plait.dedup(A, by="x", within=3), B), {}, "an input is another operator's output"),
    (plait.asof(plait.stream("a", unit="us", idle_after="1s"), B), {}, "stream 'a' has idle_after="),
    (plait.join(A.where("x > 1"), A.where("x > 2"), within=3), {}, "rows of an input are changed in a way"),
])  # fmt: skip
def test_what_does_not_go_in_slabs_says_why(query: plait.Query, options: dict[str, Any], words: str) -> None:
    found = why(query, **options)
    assert found is not None
    assert words in found


def test_options_that_mean_something_here_are_no_reason() -> None:
    for query in (ASOF, NEAR):
        options = {"workers": 3, "order": "none", "keys": True, "cache_dir": None, "plain": True, "strategy": "auto"}
        assert why(query, **options) is None
    assert why(NEAR, index="grid") is None


def test_what_goes_in_slabs_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker starts: `on_threads` is not called."""
    monkeypatch.setattr("plait.threads.feeds.start", lambda *_, **__: pytest.fail("a run was started"))
    assert ASOF.run(DATA).num_rows == 1200
    assert NEAR.run(DATA, workers=1).num_rows > 0
    assert sum(batch.num_rows for batch in NEAR.batches(DATA)) == NEAR.run(DATA).num_rows


def test_the_engine_threads_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "Slabs", lambda *_, **__: pytest.fail("it went in slabs"))
    assert ASOF.run(DATA, engine="threads").num_rows == 1200
    assert ASOF.run(DATA, unread_results=512).num_rows == 1200


# --- errors -------------------------------------------------------------------------------------------------


def raises(x: Any, y: Any) -> bool:
    if x.n > 700:
        raise ValueError("too much")
    return bool(x.n == y.n)


def rows_of(ts: list[Any], **columns: Any) -> pa.Table:
    n = len(ts)
    return pa.table({"ts": ts, "x": [1] * n, "k": ["k"] * n, "n": list(range(n)), **columns})


LATE = rows_of([1, 5, 3, 9])
REFUSED: dict[str, tuple[Callable[[], Any], type[PlaitError]]] = {
    "late": (lambda: (ASOF, {"a": DATA["a"], "b": LATE}), LateError),
    "late in a join": (lambda: (NEAR, {"a": LATE, "b": DATA["b"]}), LateError),
    "late in both": (lambda: (NEAR, {"a": LATE, "b": rows_of([2, 1])}), LateError),
    "no time": (lambda: (ASOF, {"a": rows_of([1, None, 3]), "b": DATA["b"]}), DataError),
    "time out of range": (lambda: (ASOF, {"a": rows_of([1, 2**62 + 1]), "b": DATA["b"]}), DataError),
    "no column": (lambda: (ASOF, {"a": DATA["a"].drop_columns(["k"]), "b": DATA["b"]}), QueryError),
    "a type": (lambda: (ASOF, {"a": rows_of([1], k=[5]), "b": DATA["b"]}), QueryError),
    "an option": (lambda: (ASOF, DATA, {"workers": 0}), QueryError),
    "an index": (lambda: (NEAR, DATA, {"index": "hash"}), QueryError),
    "a moment": (
        lambda: (plait.asof(A, B, within=2**62, direction="forward"), {"a": rows_of([2**62]), "b": rows_of([1])}),
        DataError,
    ),
    "a function": (lambda: (plait.join(A, B, on=raises, within=2**40), DATA), RunError),
    "seq": (
        lambda: (plait.asof(plait.stream("a", unit="us", seq="x"), B), {"a": rows_of([1, 2]), "b": rows_of([1])}),
        DataError,
    ),
    "a source": (
        lambda: (
            plait.asof(plait.stream("a", unit="us", source="k", sources=["p"]), B),
            {"a": rows_of([1], k=["q"]), "b": rows_of([1])},
        ),
        DataError,
    ),
    "no source": (
        lambda: (
            plait.asof(plait.stream("a", unit="us", source="k"), B),
            {"a": rows_of([1, 2], k=["q", None]), "b": rows_of([1])},
        ),
        DataError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_those_of_a_run_that_is_pushed(name: str) -> None:
    made, kind = REFUSED[name]
    query, data, *options = made()
    told = []
    for engine in ("threads", "auto"):
        with pytest.raises(kind) as caught:
            query.run(data, engine=engine, **(options[0] if options else {}))
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1]


def test_too_much_that_waits_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table sorted by source and not by time: as in a run that is pushed, in the same words."""
    monkeypatch.setattr("plait.threads.feeds.PENDING", 1000)
    monkeypatch.setattr("plait.threads.feeds.SLICE_ROWS", 500)
    query = plait.asof(plait.stream("a", unit="us", source="k"), B)
    rows = pa.concat_tables([rows_of(list(range(3000)), k=[name] * 3000) for name in ("p", "q")])
    told = []
    for engine in ("threads", "auto"):
        with pytest.raises(PendingError) as caught:
            query.run({"a": rows, "b": rows_of([1])}, engine=engine)  # type: ignore[arg-type]
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "source 'p' of stream 'a' has 1000 tuples" in told[0]


def test_rows_dropped_as_late_are_told() -> None:
    query = plait.asof(plait.stream("a", unit="us", late="drop"), B, by="k")
    with pytest.warns(UserWarning, match="stream 'a': 1 late tuples dropped"):
        got = query.run({"a": LATE, "b": DATA["b"]})
    assert got["a_n"].to_pylist() == [0, 1, 3]


def test_what_came_before_an_error_is_the_beginning_of_the_answer() -> None:
    """Rows that are late at the end of long data: by then results have come."""
    rows = table(400_000, 3)
    last = rows.slice(399_999, 1)
    late = pa.concat_tables([rows, last, rows.slice(0, 1)])
    data = {"a": rows, "b": rows}
    expected = ASOF.run(data)
    got, batches = [], ASOF.batches({"a": late, "b": rows})
    with pytest.raises(LateError):
        got.extend(batches)
    assert sum(batch.num_rows for batch in got) > 200_000
    assert pa.Table.from_batches(got).equals(expected.slice(0, sum(b.num_rows for b in got)).combine_chunks())


# --- threads ------------------------------------------------------------------------------------------------


def test_who_stops_reading_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    for query in (ASOF, NEAR):
        feeds = feeds_of(query, DATA, lambda: 100)
        bound = bounded._bound(query, feeds)
        reading = bounded.Slabs(query, bound, feeds, {"workers": 2}, rows=200, few=10).batches()
        next(reading)
        reading.close()
    assert not [t for t in threading.enumerate() if t not in before and t.name.startswith("plait-")]


def test_an_error_of_a_job_is_told_in_its_place() -> None:
    """Of two ranges the second fails: the first one's results come before it."""
    query = plait.join(A, B, on=raises, within=0)
    feeds = feeds_of(query, {"a": rows_of(list(range(1000))), "b": rows_of(list(range(1000)))}, lambda: 1000)
    assert goes_in_slabs(query, feeds, {})
    got = []
    with pytest.raises(RunError, match="too much"):
        got.extend(
            bounded.Slabs(query, bounded._bound(query, feeds), feeds, {"workers": 2, "plain": True}, few=10).batches()
        )
    assert sum(batch.num_rows for batch in got) > 400
