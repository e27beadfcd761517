"""What docs/sql.md shows can be read, and what it says of refusals is so."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import plait

TEXT = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
BLOCKS = re.findall(r"^```sql\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)

quotes = plait.stream("quotes", schema={"ts": "timestamp", "symbol": "string", "bid": "float64"})
trades = plait.stream("trades", schema={"ts": "timestamp", "symbol": "string", "price": "float64"})
bids = plait.stream("bids", schema={"ts": "timestamp", "price": "float64"})


def sql(text: str) -> plait.Query:
    return plait.sql(text, streams=[quotes, trades, bids])


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_are_queries(text: str) -> None:
    assert sql(text).explain()


def test_three_spellings_of_one_bound() -> None:
    spellings = [sql(text) for text in BLOCKS if text.startswith("SELECT * FROM quotes q")]
    assert spellings == [plait.join(quotes, trades, within=("5s", "3s"))] * 3


def test_the_file_that_is_shown() -> None:
    (text,) = re.findall(r"^```\n(--!.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert sql(text).explain().startswith("select opened = window_start, best = best")


def test_a_session_ends_before_the_moment_of_its_gap() -> None:
    query = sql("SELECT count(*) AS n FROM bids GROUP BY session_window(ts, '5 seconds')")
    rows = {"ts": [second * 1_000_000 for second in (0, 4, 9)], "price": [1.0, 2.0, 3.0]}
    found = query.reference({"bids": pa.table(rows).cast(bids.schema)})
    assert found["n"].to_pylist() == [2, 1]
