"""A Kafka broker that is killed and started again, or stopped and resumed, while a query reads from it."""

from __future__ import annotations

import functools
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from tests.faults.on_spark import session
from tests.faults.record import Record
from tests.spark import feeds, test_kafka
from tests.spark.kafka import broker as kafka

import plait.spark

ROWS = 300


@functools.cache
def connected() -> Path | None:
    """The broker's jars, with those that Spark needs in its session; None where they can't be had."""
    jars = kafka.jars()
    if jars is not None:
        for path in kafka.connector(jars):
            session().sql(f"ADD JAR '{path}'")
    return jars


def brokers(record: Record) -> None:
    kinds = ("Kafka: broker killed, started again", "Kafka: broker stopped and resumed")
    jars = connected()
    if jars is None:
        sys.stdout.write("Kafka: not injected, the broker's jars come by Maven: apt-get install maven\n")
        return
    number = 0
    while record.goes_on(*kinds):
        chance = random.Random(f"{record.seed}:kafka:{number}")
        with (
            tempfile.TemporaryDirectory(prefix="faults-kafka-") as place,
            kafka.broker_that_dies(jars, Path(place), partitions=test_kafka.PARTITIONS) as broker,
        ):
            outcome, words, hits = _read(broker, Path(place), chance)
        for kind, count in zip(kinds, hits, strict=True):
            for _ in range(count):
                record.tell(kind, outcome, f"scenario {number}: {words}")
        number += 1


def _read(broker: kafka.Broker, place: Path, chance: random.Random) -> tuple[str, str, tuple[int, int]]:
    """A query over two topics, and what is done to the broker meanwhile."""
    spark = session()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    data = {"quotes": test_kafka.rows(chance, ROWS, 2), "trades": test_kafka.rows(chance, ROWS, 0)}
    expected = test_kafka.QUERY.reference({name: test_kafka.as_delivered(name, some) for name, some in data.items()})
    for name, some in data.items():
        test_kafka.produce(spark, broker.address, name, some)
    frames = {name: test_kafka.consume(spark, broker.address, name, most=25) for name in data}
    df = test_kafka.QUERY.on_spark(frames, layout=(2, 1))
    hits, over = [0, 0], threading.Event()

    def befall() -> None:
        for _ in range(4):
            if over.wait(chance.random() * 3):
                return
            if chance.random() < 0.5:
                broker.kill()
                time.sleep(chance.random())
                broker.start()
                hits[0] += 1
            else:
                broker.process.send_signal(signal.SIGSTOP)
                time.sleep(chance.random() * 2)
                broker.process.send_signal(signal.SIGCONT)
                hits[1] += 1

    thread = threading.Thread(target=befall)
    thread.start()
    restarts = 0
    try:
        while True:
            try:
                plait.spark.write_ordered(df, place / "out", checkpoint=place / "checkpoint").awaitTermination()
                break
            except StreamingQueryException:
                restarts += 1
                if restarts > 8:
                    return "differs", "it does not come to its end", (hits[0], hits[1])
    finally:
        over.set()
        thread.join()
    plait.spark.write_ordered(df, place / "out", checkpoint=place / "checkpoint", drain=True).awaitTermination()
    got = feeds.published(place / "out")
    try:
        feeds.assert_identical(got, expected)
    except AssertionError as error:
        return "differs", str(error)[:500], (hits[0], hits[1])
    return "same", f"{restarts} restarts", (hits[0], hits[1])
