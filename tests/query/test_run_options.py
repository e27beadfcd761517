"""What editors are told of `on_threads` and `on_spark` is what these take; Spark's are refused before there is a session."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import plait
import plait.spark
from plait.errors import QueryError
from plait.query.run_options import SparkOptions, ThreadsOptions
from plait.spark.run import dataframe
from plait.threads.options import Options


def test_threads() -> None:
    assert list(ThreadsOptions.__annotations__) == [field.name for field in dataclasses.fields(Options)]


def test_spark() -> None:
    taken = inspect.signature(dataframe).parameters
    assert list(SparkOptions.__annotations__) == [n for n, p in taken.items() if p.kind is p.KEYWORD_ONLY]


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "index": ({"s": None}, {"index": "tree"}, "index='tree' is not known.*'auto', 'scan'"),
    "read": ({"s": None}, {"read": "all"}, "read='all' is no way to read"),
    "functions": ({"s": None}, {"functions": "new"}, "functions='new' says nothing"),
    "max_pending": ({"s": None}, {"max_pending": 0}, "max_pending=0 is no number of tuples"),
    "max_window": ({"s": None}, {"max_window": 0}, "max_window=0 is no number of rows"),
    "no dict": ([1], {}, "on_spark is given .*dict of stream names to DataFrames"),
    "no DataFrame": ({"s": 5}, {}, "Stream 's' is given 5, which is no DataFrame.*spark.read"),
    "none at all": ({"s": []}, {}, "Stream 's' is given no DataFrame"),
    "no stream": ({"t": 5}, {}, "Data is given for 't'"),
}


@pytest.mark.parametrize("partitions", [0, "x", True])
def test_a_session_of_no_partitions(partitions: Any) -> None:
    with pytest.raises(QueryError, match="is no number of partitions"):
        plait.spark.session(partitions=partitions)


@pytest.mark.parametrize("case", BAD)
def test_spark_refuses(case: str) -> None:
    data, options, words = BAD[case]
    query = plait.aggregate(plait.stream("s", unit="s"), size="1s", compute={"n": plait.count()})
    with pytest.raises(QueryError, match=words):
        query.on_spark(data, **options)
