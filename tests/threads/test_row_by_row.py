"""Rows changed one by one on threads: where they are pushed, as they are carried on, and as they are given out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.query.identical import KEY, difference

ROWS = pa.table({
    "ts": pa.array([n // 3 for n in range(300)], pa.int64()), "k": pa.array([n * 7 % 11 for n in range(300)], pa.int64()),
    "n": pa.array(range(300), pa.int64()), "s": pa.array([str(n % 5) for n in range(300)]),
})  # fmt: skip


def same(query: plait.Query, data: dict[str, Any] | None = None, **options: Any) -> None:
    """Rows and keys, at every size of what is taken at once and of what may wait."""
    data = data or {"a": ROWS.slice(0, 60)}
    expected = query.reference(data, keys=True)
    for given in ({}, {"batch": 1}, {"batch": 2, "unread_results": 1}, {"gate": "skiplist"}):
        got = query.run(data, keys=True, **given, **options)
        assert difference(expected, got) is None
        assert got[KEY].to_pylist() == expected[KEY].to_pylist()
    assert difference(expected.drop_columns([KEY]), query.run(data, **options)) is None


def stream(name: str = "a", **options: Any) -> plait.Stream:
    return plait.stream(name, unit="us", **options)


@pytest.mark.parametrize("options", [{}, {"seq": "n"}, {"seq": "content"}, {"source": "s"}, {"source": "s", "seq": "n"}],
                         ids=["position", "seq", "content", "sources", "sources, seq"])  # fmt: skip
def test_rows_keep_their_keys_whatever_makes_them(options: dict[str, Any]) -> None:
    a = stream(**options)
    same(a.where("k > 3").keep("k"))
    same(plait.join(a.where("k > 3").keep("k"), a.where("k < 9").select(k="k"), on="l.k = r.k", within=3))
    same(plait.aggregate(a.where("k > 3").keep("k"), size=3, by="k", compute={"n": plait.count()}))
    same(plait.union(a.keep("k"), a.where("k = 1").select(k="k + 100")))


def test_in_every_place_of_a_query() -> None:
    a = stream()
    windows = plait.aggregate(
        a.where("k <> 2"), size="5us", by="k % 4", compute={"n": plait.count(), "s": plait.sum("k * n")}
    )
    same(windows.where("n > 1").select("s", z="n * 2"))
    near = plait.join(windows.where("n > 1"), windows.select(m="n"), on="l.n = r.m", within=5)
    same(near.drop("window_start", "window_end"))
    same(plait.union(windows.select(v="s"), near.select(v="s"), a.select(v="n")))
    same(plait.asof(a.keep("k", "n"), windows.rename(key="k % 4"), within=20).select("k", "s"))


def test_a_filter_that_lets_nothing_pass_holds_nobody_up() -> None:
    """Time goes on without rows: windows of the other input close, and results of it come out while input goes on."""
    a, b = stream("a"), stream("b")
    query = plait.join(a, b.where("k > 100"), on="l.k = r.k", within=2, how="left")
    with query.on_threads(workers=1) as run:
        run.push("a", None, ROWS.slice(0, 150))
        run.push("b", None, ROWS.slice(0, 150))
        results = run.results()
        first = next(results)
        assert set(first["b_k"].to_pylist()) == {None}


def test_late_rows_are_kept_as_they_came() -> None:
    a = stream(late="drop")
    with a.where("k > 100").keep("k").on_threads() as run:
        run.push("a", None, {"ts": [5, 3], "k": [1, 2]})
        run.drain()
        assert run.table().num_rows == 0
        assert run.late("a").to_pylist() == [{"ts": 3, "k": 2}]


@pytest.mark.parametrize(("options", "said"), [
    ({"elastic": 2}, "for a union"), ({"strategy": "scalejoin"}, "for a union"), ({"index": "scan"}, "for a union"),
])  # fmt: skip
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(plait.QueryError, match=said):
        stream(schema=ROWS.schema).where("k > 1").on_threads(**options)


def test_marks_are_no_rows() -> None:
    near = plait.join(stream("a"), stream("b"), within=1)
    with pytest.raises(plait.QueryError, match="changed one by one"):
        near.where("a_k > 1").on_threads(strategy="splitjoin", workers=2, marks=True)


def test_several_readers_of_one_union() -> None:
    query = plait.union(stream("a"), stream("b"))
    with query.on_threads() as run:
        one, other = run.reader(), run.reader()
        for name in "ab":
            run.push(name, None, ROWS)
        run.drain()
        tables = [pa.Table.from_batches(list(each)) for each in (one, other)]
    expected = query.reference({"a": ROWS, "b": ROWS})
    assert all(difference(expected, table) is None for table in tables)


def test_an_operator_calls_its_inputs_as_they_are_called() -> None:
    """By the stream's name, by that of a query, or by which one it is."""
    a, b = stream("a"), stream("b")
    counts = plait.aggregate(b, size="100us", compute={"n": plait.count()})
    query = plait.operator(
        [a.where("n < 2"), b.where("n < 1").named("few"), counts, counts.named("all")], buckets=1, route=lambda t: 0, state=list,
        process=lambda state, t: [(t.stream,)], output={"name": "string"},
    )  # fmt: skip
    data = {"a": ROWS, "b": ROWS}
    assert query.reference(data)["name"].to_pylist() == ["a", "a", "few", "input 2", "all"]
    same(query, data)
