"""docs/spark-refuses.md, block by block: Spark gives the message that the page says, and plait the reference's rows."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds

import plait
from plait.query.identical import difference

PAGE = (Path(__file__).parents[2] / "docs" / "spark-refuses.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
BLOCK = r"```python\n(.*?)```"

pytestmark = pytest.mark.spark


def table(*rows: tuple[int, str, float]) -> pa.Table:
    at = [dt.datetime(2024, 1, 1, 9, tzinfo=dt.UTC) + dt.timedelta(seconds=second) for second, *_ in rows]
    kinds = pa.schema([("ts", pa.timestamp("us", "UTC")), ("symbol", pa.string()), ("price", pa.float64())])
    return pa.table([at, [symbol for _, symbol, _ in rows], [price for *_, price in rows]], schema=kinds)


ROWS = {
    "quotes": table((0, "a", 10.0), (30, "b", 20.5), (50, "a", 11.0), (200, "a", -1.0), (400, "b", 21.0)),
    "trades": table((10, "a", 10.5), (50, "a", 11.5), (70, "b", 20.0), (100, "a", 12.0), (380, "b", 20.5)),
}


def test_the_page_has_five() -> None:
    assert len(SECTIONS) == 5
    assert all(len(re.findall(BLOCK, text, flags=re.DOTALL)) == 2 for text in SECTIONS.values())


#: Each takes some seconds of Spark's.
QUICK = next(iter(SECTIONS))


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == QUICK else pytest.mark.again) for n in SECTIONS])
def test_spark_refuses_and_plait_does(spark: Any, tmp_path: Path, name: str) -> None:
    from pyspark.sql import functions as F

    given: dict[str, Any] = {"plait": plait, "F": F, "mode": "append"}
    for stream, rows in ROWS.items():
        feeds.write_files(tmp_path / stream, rows, [2])
        frame = feeds.frame(spark, tmp_path / stream, feeds.spark_schema(rows), streaming=True)
        given[f"{stream}_df"] = frame.withWatermark("ts", "10 seconds")
    said = re.search(r"^> (.+)$", SECTIONS[name], flags=re.MULTILINE)
    assert said is not None
    intro, theirs, ours = (re.findall(BLOCK, text, flags=re.DOTALL) for text in (PAGE, SECTIONS[name], SECTIONS[name]))
    with pytest.raises(Exception, match=re.escape(said[1])):
        refused(theirs[0], given, tmp_path)
    exec(intro[0], given)
    exec(ours[1], given)
    query = given["query"]
    frames = {
        stream: feeds.frame(spark, tmp_path / stream, feeds.spark_schema(ROWS[stream]), streaming=True, files=1)
        for stream in query.streams()
    }
    got = feeds.run(query.on_spark(frames), tmp_path)
    expected = query.reference({stream: ROWS[stream] for stream in query.streams()})
    assert expected.num_rows
    assert difference(expected, got.cast(expected.schema)) is None


def refused(code: str, given: dict[str, Any], folder: Path) -> None:
    """Spark says it when the DataFrame is made, or when the query starts."""
    exec(code, given)
    writer = given["refused"].writeStream.format("noop").outputMode(given["mode"])
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
