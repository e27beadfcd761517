"""What editors are told of `on_threads` and `on_spark` is what these take."""

from __future__ import annotations

import dataclasses
import inspect

from plait.query.run_options import SparkOptions, ThreadsOptions
from plait.spark.run import dataframe
from plait.threads.options import Options


def test_threads() -> None:
    assert list(ThreadsOptions.__annotations__) == [field.name for field in dataclasses.fields(Options)]


def test_spark() -> None:
    taken = inspect.signature(dataframe).parameters
    assert list(SparkOptions.__annotations__) == [n for n, p in taken.items() if p.kind is p.KEYWORD_ONLY]
