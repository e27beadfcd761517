"""`idle_after=`: a silent source lets go of the frontier after a time that stands in the offset log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds

import plait
import plait.spark

pytestmark = pytest.mark.spark


def stream(**options: Any) -> Any:
    return plait.stream("a", unit="us", source="src", sources=[0, 1], idle_after="1s", **options)


B = plait.stream("b", unit="us")


def rows(*some: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"ts": pa.array([r[0] for r in some], pa.int64()), "src": pa.array([r[1] for r in some], pa.int64())}
    )


class Died(Exception):
    pass


@pytest.mark.again
def test_a_silent_source_lets_go_and_a_replay_counts_the_same_time(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    right = pa.table({"ts": pa.array(range(40), pa.int64())})
    first, later = rows(*((ts, 0) for ts in range(0, 30, 3))), rows((5, 1), (39, 1), (40, 0))
    feeds.write_files(tmp_path / "a", first, [])
    feeds.write_files(tmp_path / "b", right, [])

    def start(**options: Any) -> Any:
        frames = {n: feeds.frame(spark, tmp_path / n, feeds.spark_schema(t), streaming=True)
                  for n, t in (("a", first), ("b", right))}  # fmt: skip
        query = plait.join(stream(**options.pop("stream", {})), B, within=1)
        return plait.spark.write_ordered(query.on_spark(frames, layout=(1, 2)), tmp_path / "out",
                                         checkpoint=tmp_path / "c", **options)  # fmt: skip

    def die(report: Any) -> None:
        """After publishing, before the commit of offsets."""
        if report.results:
            raise Died

    with pytest.raises(Exception, match="Died"):
        start(trigger={"processingTime": "0 seconds"}, report=die).awaitTermination()
    parts = feeds.parts(tmp_path / "out")
    assert len(parts) == 1
    assert parts.keys() != {"part-000000000000.parquet"}, "rows came in batch 0, before any time had passed"
    for part in parts:
        (tmp_path / "out" / part).unlink()
    # Whatever the time is now: the batch that stands in the log is done again with its own.
    start().awaitTermination()
    assert feeds.parts(tmp_path / "out") == parts
    # The source is back, once below the frontier, which only stream b held by then, at 39.
    feeds.write_file(tmp_path / "a" / "p001.parquet", later, 1)
    with pytest.raises(Exception, match=r"Stream 'a', source 1: ts 5 is behind the frontier 39"):
        start().awaitTermination()
    reports: list[Any] = []
    start(stream={"behind": "drop"}, report=reports.append, drain=True, late=tmp_path / "late").awaitTermination()
    assert (reports[-1].late, reports[-1].behind, reports[-1].run.behind) == (0, 1, {"a": 1, "b": 0})
    assert feeds.published(tmp_path / "late")["ts"].to_pylist() == [5]
    kept = pa.concat_tables([first, later.slice(1)])
    expected = plait.join(stream(), B, within=1).reference({"a": kept, "b": right})
    feeds.assert_identical(feeds.published(tmp_path / "out"), expected)


def test_without_it_the_source_holds_and_another_checkpoint_is_needed(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    table = rows((0, 0), (9, 0))
    feeds.write_files(tmp_path / "a", table, [])
    frame = feeds.frame(spark, tmp_path / "a", feeds.spark_schema(table), streaming=True)
    patient = plait.stream("a", unit="us", source="src", sources=[0, 1])
    reports: list[Any] = []
    df = plait.join(patient, patient, within=1).on_spark({"a": frame})
    live = plait.spark.write_ordered(df, tmp_path / "out", checkpoint=tmp_path / "c", report=reports.append,
                                     trigger={"processingTime": "0 seconds"})  # fmt: skip
    live.processAllAvailable()
    time.sleep(1.5)
    live.stop()
    assert [report.results for report in reports] == [0]
    df = plait.join(stream(), stream(), within=1).on_spark({"a": frame})
    with pytest.raises(plait.RunError, match=r"another query: it differs in query.*idle_after"):
        plait.spark.write_ordered(df, tmp_path / "out", checkpoint=tmp_path / "c")
