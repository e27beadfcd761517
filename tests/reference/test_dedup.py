"""Tuples without repetitions: against the definition, and by examples to read."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from tests import strategies
from tests.reference.judge import Execute, judge
from tests.strategies import Case

import plait

A = plait.stream("a", unit="us")


@given(case=strategies.dedups())
def test_dedup(case: Case, execute: Execute) -> None:
    judge(case, execute)


def kept(times: list[int], within: int) -> list[int]:
    rows = pa.table({"ts": times, "k": pa.array([1] * len(times), pa.int64())})
    found: list[int] = plait.dedup(A, by="k", within=within).reference({"a": rows})["ts"].to_pylist()
    return found


def test_what_was_dropped_does_not_count() -> None:
    """6 is dropped by 0. 12 lies within 10 of it, and not of 0: it is kept, and drops 17."""
    assert kept([0, 6, 12, 17, 22, 23], within=10) == [0, 12, 23]


def test_a_tuple_as_old_as_the_span_still_drops() -> None:
    assert kept([0, 3, 6, 7], within=3) == [0, 6]
    assert kept([0, 0, 1], within=0) == [0, 1]


def test_a_time_column_of_another_name_is_a_column() -> None:
    stream = plait.stream("a", time="at", unit="s")
    rows = {"at": [1, 2], "k": [5, 5]}
    found = plait.dedup(stream, by="k", within="1ms").reference({"a": rows})
    assert found.to_pydict() == {"ts": [1_000_000, 2_000_000], "at": [1, 2], "k": [5, 5]}
