"""Nothing has changed since the golden record was made: see `record`, which says what it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.golden import record
from tests.golden.queries import QUERIES

GOLDEN: dict[str, Any] = json.loads(record.FILE.read_text())
ENTRIES: dict[str, dict[str, Any]] = GOLDEN["queries"]


def other(got: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return [f"{what}: recorded {expected[what]!r}, now {got[what]!r}" for what in got if got[what] != expected[what]]


def test_queries() -> None:
    assert list(ENTRIES) == list(QUERIES)


@pytest.mark.parametrize("name", QUERIES)
def test_reference(name: str) -> None:
    _, got = record.answered(QUERIES[name])
    if pa.__version__ != GOLDEN["pyarrow"]:
        del got["digest"]  # Arrow's own bytes may differ from one version to the next
    wrong = [f"{name}, reference, {what}" for what in other(got, ENTRIES[name])]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", QUERIES)
def test_fingerprints(name: str) -> None:
    wrong = [f"{name}, Spark's checkpoint, {what}" for what in other(record.pinned(QUERIES[name]), ENTRIES[name])]
    assert not wrong, "\n".join(wrong)


def check_threads(name: str, *, plain: bool, part: slice = slice(None)) -> None:
    served, wrong = record.threads(QUERIES[name], ENTRIES[name], plain=plain, part=part)
    recorded = [way for way in list(record.ways(QUERIES[name]))[part] if way in ENTRIES[name]["threads"]]
    wrong += [f"threads, {way}: refused, and was not" for way in recorded if way not in served]
    wrong += [f"threads, {way}: not refused, and was" for way in served if way not in recorded]
    assert not wrong, f"{name}: " + "; ".join(wrong)


def test_every_recorded_way_is_still_run() -> None:
    assert all(set(entry["threads"]) <= set(record.ways(QUERIES[name])) for name, entry in ENTRIES.items())


#: A condition's kernels take two seconds to compile, and each query has its own: here one in eight, in the soak all.
COMPILED = list(QUERIES)[::8]
#: Each query is run in every third way, and the next two queries in the others; in the soak each is run in all.
PARTS = {name: slice(k % 3, None, 3) for k, name in enumerate(QUERIES)}


@pytest.mark.parametrize("name", QUERIES)
def test_threads(name: str) -> None:
    check_threads(name, plain=name not in COMPILED, part=PARTS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in QUERIES if name not in COMPILED])
def test_threads_compiled(name: str) -> None:
    check_threads(name, plain=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_threads_in_every_way(name: str) -> None:
    check_threads(name, plain=True)


def spark_cases(*, quick: bool) -> list[tuple[str, str]]:
    ways = [(name, way) for name in QUERIES for way in record.spark_ways(name)]
    return [each for each in ways if record.quick(*each) == quick]


def check_spark(spark: Any, name: str, way: str, folder: Path) -> None:
    spark.conf.set(
        "spark.sql.shuffle.partitions", "2"
    )  # part of what is recorded, and tests before this one may have set it
    got, wrong = record.spark_hash(spark, name, way, ENTRIES[name], folder / "rows")
    if got != ENTRIES[name]["spark"][way]:
        wrong.append(f"Spark, {way}: keys: recorded {ENTRIES[name]['spark'][way]}, now {got} (None: refused)")
    assert not wrong, f"{name}: " + "; ".join(wrong)


def later(name: str, way: str) -> Any:
    return pytest.param(name, way, marks=pytest.mark.again if name in record.AGAIN else ())


@pytest.mark.spark
@pytest.mark.parametrize(("name", "way"), [later(*case) for case in spark_cases(quick=True)])
def test_spark(spark: Any, name: str, way: str, tmp_path: Path) -> None:
    check_spark(spark, name, way, tmp_path)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(("name", "way"), spark_cases(quick=False))
def test_spark_in_every_way(spark: Any, name: str, way: str, tmp_path: Path) -> None:
    check_spark(spark, name, way, tmp_path)
