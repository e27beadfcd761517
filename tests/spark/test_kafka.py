"""Kafka, with a real broker: partitions are sources, offsets are positions, and a replay reads the same rows again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.kafka import broker as kafka

import plait
import plait.spark

# The jars are fetched once; then a broker, and Spark's reader, take more than ten seconds to begin.
pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 3
QUERY = plait.join(
    plait.stream("quotes", unit="us", source=plait.PARTITION, sources=range(PARTITIONS), disorder=2),
    plait.stream("trades", unit="us", source=plait.PARTITION, sources=range(PARTITIONS)),
    on="abs(l.x - r.x) <= 2",
    within=(9, 6),
    how="left",
)


@pytest.fixture(scope="module")
def address(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jars = kafka.jars()
    if jars is None:
        pytest.skip("The broker's jars come by Maven: apt-get install maven")
    for path in kafka.connector(jars):
        spark.sql(f"ADD JAR '{path}'")
    with kafka.broker(jars, tmp_path_factory.mktemp("kafka"), partitions=PARTITIONS) as at:
        yield at


def rows(chance: random.Random, count: int, disorder: int) -> list[dict[str, Any]]:
    ts, seen, found = 0, dict.fromkeys(range(PARTITIONS), 0), []
    for k in range(count):
        partition = k if k < PARTITIONS else chance.randrange(PARTITIONS)
        ts += chance.choice((0, 0, 1, 2))
        at = max(ts - chance.randrange(disorder + 1), seen[partition] - disorder)
        seen[partition] = max(seen[partition], at)
        found.append({"partition": partition, "ts": at, "x": chance.choice((None, *range(12)))})
    return found


def produce(spark: Any, address: str, topic: str, some: list[dict[str, Any]]) -> None:
    """In order: one task, so one producer."""
    lines = [(row["partition"], json.dumps({"ts": row["ts"], "x": row["x"]})) for row in some]
    frame = spark.createDataFrame(lines, "partition int, value string").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic).save()


def consume(spark: Any, address: str, topic: str, *, streaming: bool = True, most: int = 70) -> Any:
    reader = (spark.readStream if streaming else spark.read).format("kafka")
    reader = reader.option("kafka.bootstrap.servers", address).option("subscribe", topic)
    if streaming:
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(most))
    return reader.load().selectExpr(
        "topic", "partition", "offset", "from_json(cast(value as string), 'ts long, x int') as v"
    ).select("topic", "partition", "offset", "v.*")  # fmt: skip


def as_delivered(topic: str, some: list[dict[str, Any]]) -> dict[int, pa.Table]:
    parts = {p: [row for row in some if row["partition"] == p] for p in range(PARTITIONS)}
    return {
        p: pa.table({
            "topic": [topic] * len(part), "partition": pa.array([p] * len(part), pa.int32()),
            "offset": pa.array(range(len(part)), pa.int64()), "ts": pa.array([r["ts"] for r in part], pa.int64()),
            "x": pa.array([r["x"] for r in part], pa.int32()),
        })
        for p, part in parts.items()
    }  # fmt: skip


def test_partitions_are_sources(spark: Any, address: str, tmp_path: Path) -> None:
    """Written in two goes and read in batches of 70 rows, with a stop, a batch done again, a restart and a drain."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    chance = random.Random(3)
    data = {"quotes": rows(chance, 300, 2), "trades": rows(chance, 300, 0)}
    expected = QUERY.reference({name: as_delivered(name, some) for name, some in data.items()})
    assert expected.num_rows > 300
    for name, some in data.items():
        produce(spark, address, name, some[:200])
    df = QUERY.on_spark({name: consume(spark, address, name) for name in data}, layout=(2, 1))
    checkpoint = tmp_path / "out.checkpoint"
    live = plait.spark.write_ordered(
        df, tmp_path / "out", checkpoint=checkpoint, trigger={"processingTime": "0 seconds"}
    )
    live.processAllAvailable()
    live.stop()
    before = feeds.parts(tmp_path / "out")
    # As if the driver had died before the last batch was committed: its rows are read again, by their offsets.
    commits = sorted((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    assert len(commits) >= 3
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    for name, some in data.items():
        produce(spark, address, name, some[200:])
    got = feeds.run(df, tmp_path)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    feeds.assert_identical(got, expected)
    # A backfill of what the topics hold has the very same rows.
    whole = QUERY.on_spark({name: consume(spark, address, name, streaming=False) for name in data}, layout=(3, 1))
    feeds.assert_identical(feeds.collected(whole), expected)


def test_what_has_no_order_is_refused(spark: Any, address: str) -> None:
    frame = consume(spark, address, "quotes")
    for options, topics, words in (
        ({}, "quotes", "no order between partitions"),
        ({"source": plait.PARTITION}, "quotes,trades", r"several topics \(quotes,trades\)"),
    ):
        a, b = (plait.stream(n, unit="us", **options) for n in ("a1", "b1"))
        with pytest.raises(plait.QueryError, match=words):
            plait.join(a, b, within=1).on_spark({"a1": consume(spark, address, topics), "b1": frame})
    lacking = frame.drop("offset")
    stream = plait.stream("a1", unit="us", source=plait.PARTITION)
    with pytest.raises(plait.QueryError, match="Stream 'a1' has no column 'offset'"):
        plait.join(stream, plait.stream("b1", unit="us", source=plait.PARTITION), within=1).on_spark(
            {"a1": lacking, "b1": frame}
        )
