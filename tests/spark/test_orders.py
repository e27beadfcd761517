"""`write_ordered(order=)`: what each word promises, that sorting by key gives the strict rows, and that faults change neither."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from tests.examples import examples
from tests.spark import feeds, pipeline
from tests.spark.feeds import assert_identical

import plait
import plait.spark
from plait.core import keys
from plait.order import AFTER_ALL, BEFORE_ALL, decode, encode
from plait.spark import formats
from plait.spark import run as spark_run
from plait.spark.cell.results import Results, merge
from plait.spark.publish.gather import edges, parted

# --- without Spark ----------------------------------------------------------------------------------------------


def tuple_keys(input: int, ts: list[int]) -> pa.Array:
    """Of tuples of one input, each with a number of its own."""
    n = len(ts)
    return keys.join(keys.ints(np.array(ts, np.int64)), keys.constant(input, n), keys.ints(np.arange(n)), n=n)


def some_cells(chance: random.Random) -> list[Results]:
    """Pairs of a grid of two rows and two columns, each cell's in order. Ties abound: eight moments for forty tuples."""
    times = [sorted(chance.randrange(8) for _ in range(20)) for _ in range(2)]
    known = pa.concat_arrays([tuple_keys(side, times[side]) for side in (0, 1)])
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(4)]
    for left in range(20):
        for right in range(20):
            if chance.random() < 0.3:
                by_right = times[1][right] >= times[0][left]  # left precedes right at one ts
                first, second = (20 + right, left) if by_right else (left, 20 + right)
                found[2 * (left % 2) + right % 2].append((max(times[0][left], times[1][right]), first, second))
    cells = []
    for pairs in found:
        ts, first, second = (np.array([pair[k] for pair in pairs], np.int64) for k in range(3))
        whole = Results(pa.table({"ts": ts, "n": first * 100 + second}), known, first, second)
        cells.append(whole.take(keys.in_order_of_pairs(known, first, second)))
    return cells


def spelled(results: Any) -> list[bytes]:
    return list(results.table().column(formats.KEY).to_pylist())


def triggers(found: list[bytes]) -> list[bytes]:
    """The first part of each key, as bytes that sort as it does."""
    return [encode((decode(key)[0],)) for key in found]


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32), slices=st.integers(1, 5), begin=st.integers(-2, 6), length=st.integers(0, 9))
def test_slices_of_all_cells_one_after_the_other_are_in_order(seed: int, slices: int, begin: int, length: int) -> None:
    """Whatever span the cells have reported, too long, too short or none at all."""
    cells = some_cells(random.Random(seed))
    span = (begin, begin + length) if length < 9 else (BEFORE_ALL, AFTER_ALL)
    cut = [list(parted(cell, edges(span, slices))) for cell in cells]
    assert [len(parts) for parts in cut] == [slices] * 4
    strict = spelled(merge(cells))
    assert [key for k in range(slices) for key in spelled(merge([parts[k] for parts in cut]))] == strict
    loose = [key for k in range(slices) for key in spelled(merge([parts[k] for parts in cut], by_trigger=True))]
    assert sorted(loose) == strict
    assert triggers(loose) == triggers(strict), "triggers in order, each one's partners together"


def test_slices_are_even_over_the_span() -> None:
    assert edges((0, 100), 4) == [25, 50, 75]
    assert edges((BEFORE_ALL, 100), 3) == edges((5, AFTER_ALL), 3) == edges((5, 5), 3) == [AFTER_ALL] * 2


def test_a_part_has_the_keys_that_it_names() -> None:
    (cell, *_) = some_cells(random.Random(3))
    part = cell.part(2, 5)
    assert spelled(part) == spelled(cell)[2:5]
    assert len(part.keys) <= 6 < len(cell.keys)


def test_orders_that_do_not_exist(tmp_path: Path) -> None:
    class Plan:
        streaming = True

    class Frame:
        _plait = Plan()

    with pytest.raises(plait.QueryError, match="order='loose' is no order"):
        plait.spark.write_ordered(Frame(), tmp_path / "out", checkpoint=tmp_path / "c", order="loose")


# --- with Spark -------------------------------------------------------------------------------------------------

JOIN = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="abs(l.x - r.x) <= 1", within=(9, 6))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    """Two streams with many ties, in two files each."""
    folder, chance = tmp_path_factory.mktemp("orders"), random.Random(12)
    tables = {}
    for name in "ab":
        times = sorted(chance.randrange(80) for _ in range(150))
        values = [chance.choice((None, *range(6))) for _ in times]
        tables[name] = pa.table({"ts": pa.array(times, pa.int64()), "x": pa.array(values, pa.int32()),
                                 "of": [f"{name}{k}" for k in range(150)]})  # fmt: skip
        feeds.write_files(folder / name, tables[name], [70])
    return folder, tables


def frames(spark: Any, folder: Path, tables: dict[str, pa.Table], layout: str) -> Any:
    schema = feeds.spark_schema(tables["a"])
    return JOIN.on_spark(
        {n: feeds.frame(spark, folder / n, schema, streaming=True, files=1) for n in "ab"}, layout=layout, cells=4
    )


def parts(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (folder / "out").rglob("*.parquet")}


@pytest.mark.again
@pytest.mark.spark
@pytest.mark.parametrize(("order", "fault", "refused"), [("trigger", "worker@1", 2), ("none", "raise@1", None)])
def test_what_is_published_in_a_looser_order(
    spark: Any, data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, fault: str, refused: int | None
) -> None:
    """A worker is killed, or a task raises, in batch 1; batch 2, the drain, is not committed once it stands there. Every
    start goes on, and what is published in the end has every row once, in the order promised."""
    from pyspark import cloudpickle

    folder, tables = data
    cloudpickle.register_pickle_by_value(pipeline)  # workers do not find the tests
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    marks, processor = tmp_path / "marks", spark_run.processor
    layout = "square" if order == "trigger" else "see_all"
    marks.mkdir()
    reports: list[plait.spark.BatchReport] = []

    def start() -> pa.Table:
        return feeds.run(frames(spark, folder, tables, layout), tmp_path, order=order, keep_key=True, report=report)

    def report(batch: plait.spark.BatchReport) -> None:
        """Called when the batch is published: an error here leaves it without a commit."""
        if batch.batch == refused and pipeline.once(str(marks), "published"):
            raise OSError("the batch stands there, and is not committed")
        reports.append(batch)

    with monkeypatch.context() as patch:
        patch.setattr(spark_run, "processor", lambda plan: pipeline.Faulty(processor(plan), [fault], str(marks)))
        with pytest.raises(StreamingQueryException):
            start()
    assert (marks / fault).exists()
    before: dict[Path, bytes] = {}
    if refused is not None:
        with pytest.raises(StreamingQueryException, match="stands there, and is not committed"):
            start()
        before = parts(tmp_path)
    got = start()
    after = parts(tmp_path)
    assert after == (before or after), "a batch that is done again leaves the same bytes"
    assert sorted({path.parent.name for path in after}) == [f"batch-{n:012d}" for n in range(3)]
    assert not list((tmp_path / "out").glob(".batch*")), "nothing is left under a temporary name"
    found = got.column(formats.KEY).to_pylist()
    assert_identical(got.sort_by(formats.KEY), JOIN.reference(tables))
    assert found != sorted(found), "nothing has merged the cells"
    assert sum({report.batch: report.results for report in reports}.values()) == got.num_rows
    batches = [
        feeds.published(folder).column(formats.KEY).to_pylist() for folder in sorted((tmp_path / "out").glob("batch*"))
    ]
    assert all(max(one) < min(next_one) for one, next_one in itertools.pairwise(batches)), "batches are in order"
    if order == "trigger":
        assert triggers(found) == sorted(triggers(found))
        assert len(after) > 4, "several tasks have written"
    with pytest.raises(plait.RunError, match=f"order {order}, and is to have results as parquet, a folder a batch"):
        plait.spark.write_ordered(
            frames(spark, folder, tables, layout),
            tmp_path / "out",
            checkpoint=tmp_path / "out.checkpoint",
            distributed=True,
        )
