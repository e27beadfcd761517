"""A program as a user would write it, checked by mypy in strict mode (tests/query/test_typed.py).

`assert_type` says what an editor is told. A line with `type: ignore` is a mistake that a type checker has to see: mypy says so
where it does not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pyarrow as pa

import plait
from plait.query.aggregate import Aggregate
from plait.query.condition.choice import When
from plait.query.dedup import Dedup
from plait.query.functions import Function
from plait.query.join import Asof, Join
from plait.query.row_by_row import RowByRow, Union
from plait.threads.run import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

quotes = plait.stream("quotes", unit="s", disorder="5s", late="drop", schema={"ts": "int64", "bid": pa.float64()})
trades = plait.stream("trades", unit="s", disorder=dt.timedelta(seconds=5))
assert_type(quotes, plait.Stream)
plait.stream("s", late="ignore")  # type: ignore[arg-type]
plait.stream("s", disorder=0.5)  # type: ignore[arg-type]


def near(q: Any, t: Any) -> bool:
    return bool(abs(q.bid - t.price) <= 1)


def size(row: Any) -> Any:
    assert_type(plait.when(row.bid > 9, "large"), When)
    return plait.when(row.bid > 9, "large").when(row.bid > 5, "fair").otherwise(None)


joined = plait.join(quotes, trades, on=near, within=("5s", dt.timedelta(seconds=3)), how="left", name="near")
assert_type(joined, Join)
assert_type(plait.join(quotes, trades, on=lambda q, t: q.bid == t.price, last=10), Join)
assert_type(plait.join(quotes, trades, tumbling="10s"), Join)
assert_type(plait.join(quotes, trades, tumbling_count=10), Join)
plait.join(quotes, trades, on="quotes.bid = trades.price")  # type: ignore[call-overload]
plait.join(quotes, trades, last=10, how="left")  # type: ignore[call-overload]
plait.join(quotes, trades, within="5s", how="outer")  # type: ignore[call-overload]
plait.join(quotes, trades, within="5s", last=10)  # type: ignore[call-overload]
plait.join(quotes, trades, within="5s", on=lambda q: q.bid > 0)  # type: ignore[arg-type]
plait.join(quotes, "trades", within="5s")  # type: ignore[call-overload]

assert_type(plait.asof(trades, quotes, by="symbol", how="inner"), Asof)
assert_type(plait.asof(trades, quotes, within="1s", direction="nearest", exact=False), Asof)
plait.asof(trades, quotes, direction="forward")  # type: ignore[call-overload]

windowed = plait.aggregate(
    trades,
    size="10s",
    advance="2s",
    by={"symbol": "symbol", "cents": lambda row: row.price * 100},
    compute={
        "n": plait.count(where="price > 0"),
        "v": plait.sum("price * qty"),
        "m": plait.mean(lambda row: row.price),
    },
)
assert_type(windowed, Aggregate)
assert_type(plait.aggregate(trades, session="1min", by="symbol", compute={"n": plait.count()}), Aggregate)
assert_type(plait.sum((lambda row: 1 if row.price > 0 else 0, "int64")), Function)
plait.aggregate(trades, compute={"n": plait.count()})  # type: ignore[call-overload]
plait.aggregate(trades, size="10s", session="1min", compute={"n": plait.count()})  # type: ignore[call-overload]
plait.aggregate(trades, size="10s", compute={"n": "count"})  # type: ignore[dict-item]

assert_type(quotes.where("bid > 0").select("bid", size=size, sign=(size, "string")), RowByRow)
assert_type(joined.keep("bid"), RowByRow)
assert_type(plait.union(quotes, trades), Union)
assert_type(plait.dedup(trades, by="symbol", within="1min"), Dedup)
assert_type(plait.sql("SELECT bid FROM quotes", streams=[quotes]), plait.Query)
quotes.where(lambda q, t: True)  # type: ignore[arg-type,misc]


def runs(frames: dict[str, DataFrame]) -> None:
    """Every way to run a query."""
    rows = {"quotes": {"ts": [1], "bid": [1.0]}, "trades": Path("trades.parquet")}
    assert_type(joined.run(rows, workers=2), pa.Table)
    joined.run(rows, engine="reference", keys=True)
    joined.run(rows, engine="reference", workers=2)  # type: ignore[call-overload]
    joined.run(rows, engine="spark")  # type: ignore[call-overload]
    joined.run(rows, wokers=2)  # type: ignore[call-overload]
    joined.run(5)  # type: ignore[call-overload]
    assert_type(joined.batches(rows), Iterator[pa.RecordBatch])
    assert_type(joined.reference("quotes.parquet", order="none"), pa.Table)
    joined.reference(rows, order="loose")  # type: ignore[arg-type]
    assert_type(joined.on_spark(frames, layout="hash"), "DataFrame")
    joined.on_spark(rows)  # type: ignore[arg-type]
    with joined.on_threads(workers=2, strategy="dpjoin") as run:
        assert_type(run, Run)
        run.push("quotes", None, rows["quotes"])
    joined.on_threads(worker=2)  # type: ignore[call-arg]
