"""Holds a table against what it should be: schema, then rows in order, bit by bit.

Two tables are the same if every value is: -0.0 is not 0.0 here, while one NaN is as good as another, since no rule says
which bits a NaN has. Arrow's own `equals` sees neither.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.definitions import Relation
from tests.strategies import Case

Execute = Callable[[Case], pa.Table]


def on_reference(case: Case, **options: Any) -> pa.Table:
    with warnings.catch_warnings():
        # Each drop of late tuples is announced; here they are counted.
        warnings.simplefilter("ignore")
        return case.query.reference(case.data, **options)


#: Whoever computes a case. A new executor is judged by all tests of this folder once it stands here.
EXECUTORS: dict[str, Execute] = {"reference": on_reference}


def canonical(value: Any) -> Any:
    """A value that is equal to another one only if their bits are, but for NaN."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list):
        return [canonical(v) for v in value]
    if isinstance(value, dict):
        return {k: canonical(v) for k, v in value.items()}
    return (type(value).__name__, value)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of canonical values. Moments are taken as the numbers Arrow stores, which Python's own can't all hold."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append([canonical(v) for v in column.to_pylist()])
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def assert_same(actual: pa.Table, expected: Relation | pa.Table) -> None:
    wanted = expected.table() if isinstance(expected, Relation) else expected
    assert [(f.name, f.type) for f in actual.schema] == [(f.name, f.type) for f in wanted.schema]
    got, want = rows_of(actual), rows_of(wanted)
    for number, (a, b) in enumerate(zip(got, want, strict=False)):
        assert a == b, f"row {number} of {len(got)} (of {len(want)} expected) differs"
    assert len(got) == len(want), f"{len(got)} rows, expected {len(want)}"


def judge(case: Case, execute: Execute) -> None:
    """The one comparison of this folder: what an executor makes of a case against the definition."""
    assert_same(execute(case), case.expected)
