"""Aggregate functions and kinds of window: what queries know, every executor and the reference know, and say so whole."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.aggregate import functions, panes
from plait.core.aggregate.accumulators import MERGE_WORDS, RING_WORDS, Accumulator
from plait.core.aggregate.functions import Rows, Slots, Use
from plait.query.aggregate import WINDOWS, SpanWindow, TupleWindow, Window
from plait.query.bind import bind
from plait.query.functions import KINDS, Function
from plait.reference.aggregate import MACHINES
from plait.reference.folds import FOLDS
from plait.spark.cell.aggregate import FORMS

#: A function of each kind: what it is called with. A kind that needs other arguments stands here.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "count": {},
    "count_where": {"where": "x > 3"},
    "first_where": {"column": "x", "where": "x > 3"},
    "covar": {"x": "x", "y": "x"},
    "corr": {"x": "x", "y": "x"},
    "quantile": {"column": "x", "q": 0.5},
    "arg_min": {"column": "x", "by": "x"},
    "arg_max": {"column": "x", "by": "x"},
    "top": {"column": "x", "k": 2, "by": "x"},
    "custom": {"column": "x", "init": int, "add": lambda state, x: state + 1, "type": "int64"},
}
TYPES = {"number": pa.int64(), "text": pa.string(), "decimal": pa.decimal128(9, 2)}
STREAM = plait.stream("s", unit="us")


def made(kind: str) -> Function:
    return KINDS[kind].make(**ARGUMENTS.get(kind, {"column": "x"}))


def schema(kind: str) -> pa.Schema:
    return pa.schema([("ts", pa.int64()), ("x", TYPES[kind])])


def test_every_function_has_a_record_and_every_record_is_whole() -> None:
    assert functions.missing(functions.RECORDS, KINDS) == []


def test_the_reference_knows_every_function_and_no_other() -> None:
    assert KINDS.keys() - FOLDS.keys() == set()
    assert FOLDS.keys() - KINDS.keys() == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_is_called_as_it_is_registered(kind: str) -> None:
    assert made(kind).kind == kind
    assert getattr(plait, kind) is KINDS[kind].make


@pytest.mark.parametrize("column", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_can_be_computed_of_every_column_it_may_read(kind: str, column: str) -> None:
    """It has an accumulator, which then is a part of panes, or a fold; and says how, for `explain`."""
    function = made(kind)
    try:
        bound = bind(plait.aggregate(STREAM, size=9, compute={"f": function}), {"s": schema(column)})
    except plait.QueryError:
        return  # a column that queries refuse
    use = Use(function, bound.inputs[0].schema, 0 if function.where is not None else None, name="f")
    accumulator = functions.accumulator_of(use)
    if accumulator is None:
        assert functions.fold_of(use).how
        assert functions.unmerged(function, use.schema) is not None
        return
    assert accumulator.how
    assert (accumulator.part_types is None) == (accumulator.edge is not None)
    if functions.unmerged(function, use.schema) is None:
        # What a source keeps, a taker can merge: into a slot that is new, a cell in which there is nothing.
        accumulator.reserve(1)
        source = accumulator.of_source()
        source.regrow(1, 0, 0)
        for own, into in zip(source.singles(), accumulator.singles(), strict=True):
            words = into.merge(np.array([own.ring()], np.int64), 1, into.times(1))
            assert len(words) == MERGE_WORDS
            assert len(own.ring()) == RING_WORDS
        source.wipe(0, 1)


class Halved(Accumulator):
    """Not all that an accumulator has to be."""

    def update(self, *given: Any) -> None: ...

    def column(self, *given: Any) -> pa.Array: ...

    def _merge(self, *given: Any) -> None: ...


COUNT = functions.RECORDS["count"]
HALVED = Slots(Halved, lambda use: Halved())


@pytest.mark.parametrize(
    ("record", "lacks"),
    [
        (None, "aggregate function 'count' has no record"),
        (replace(COUNT, slots=None), "has no `rows` for columns that no accumulator serves"),
        (replace(COUNT, slots=replace(COUNT.slots, serves=pa.types.is_integer)), "has no `rows` for columns"),  # type: ignore[type-var]
        (replace(COUNT, slots=None, rows=Rows(lambda use: None, None)), "has no `slots` that sources could merge"),  # type: ignore[arg-type,return-value]
        (replace(COUNT, slots=HALVED), "has an accumulator, Halved, without `absorb`"),
        (replace(COUNT, slots=HALVED), "has an accumulator, Halved, without `parts`"),
        (replace(COUNT, slots=HALVED), "has an accumulator, Halved, without `merge`"),
        (replace(COUNT, slots=Slots(Accumulator, HALVED.make)), "has an accumulator, Accumulator, without `_merge`"),
    ],
)
def test_what_a_record_lacks_is_named(record: functions.Record | None, lacks: str) -> None:
    records = {**functions.RECORDS, "count": record}
    if record is None:
        del records["count"]
    found = functions.missing(records, KINDS)  # type: ignore[arg-type]
    assert any(line.startswith("aggregate function 'count' ") and lacks in line for line in found), found


def test_a_record_without_a_function_is_named() -> None:
    found = functions.missing({**functions.RECORDS, "product": COUNT}, KINDS)
    assert found == ["the record 'product' is of no function that queries know"]


def imported(before: str, module: str) -> str:
    """How the import of a module fails, in an interpreter of its own, after some code."""
    run = subprocess.run(
        [sys.executable, "-c", f"{before}\nimport {module}"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    return run.stderr.strip().splitlines()[-1]


def test_a_function_without_a_record_fails_at_import() -> None:
    new = "from plait.query import functions as f\nf.KINDS['product'] = f.KINDS['mean']"
    assert imported(new, "plait.core.aggregate.functions") == (
        "ImportError: aggregate function 'product' has no record: see plait.core.aggregate.functions"
    )


def test_a_kind_of_window_without_a_record_fails_at_import() -> None:
    new = "from plait.query.aggregate import Window\nclass Session(Window): ..."
    assert imported(new, "plait.core.aggregate.panes") == (
        "ImportError: the kind of window Session has no record: see plait.core.aggregate.panes"
    )


def test_every_kind_of_window_has_a_record_a_form_on_spark_and_a_machine() -> None:
    assert panes.missing(panes.RECORDS, WINDOWS) == []
    assert panes.RECORDS.keys() == MACHINES.keys() == set(WINDOWS)
    assert {record.spark for record in panes.RECORDS.values()} == FORMS.keys()


@pytest.mark.parametrize("window", [SpanWindow(30, 10), TupleWindow(1, 1)])
def test_a_kind_of_window_is_computed_as_its_record_says(window: Window) -> None:
    query = replace(plait.aggregate(STREAM, size=9, compute={"n": plait.count()}), window=window)
    bound, record = bind(query, {"s": schema("number")}), panes.RECORDS[type(window)]
    rows = pa.table({"ts": [0, 40], "x": [1, 2]})
    closed = panes.pane_windows(bound).take_rows(rows, np.array([0, 40]), 40)
    assert closed
    assert all((each.triggers is None) == record.by_time for each in closed)


def test_kinds_that_say_what_cannot_be_are_named() -> None:
    odd = replace(panes.RECORDS[TupleWindow], partial=True)
    assert panes.missing({**panes.RECORDS, TupleWindow: odd}, WINDOWS) == [
        "the kind of window TupleWindow has partial panes of time, but is not `by_time`"
    ]
