"""What a run tells of itself: every metric has a unit, a meaning, somebody who fills it, and a line in the docs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import plait
from plait.core import metrics
from plait.core.metrics import (
    ROWS,
    THREADS,
    Counts,
    Metrics,
    OperatorStats,
    PartStats,
    SourceStats,
    Unit,
    described,
    entries,
    metric,
    missing,
)
from plait.spark.publish.stats import CellStats, ExecutorStats, SparkStats
from plait.threads.stats import Stats, WorkerStats

KINDS = (
    Counts,
    PartStats,
    SourceStats,
    OperatorStats,
    Metrics,
    WorkerStats,
    Stats,
    CellStats,
    ExecutorStats,
    SparkStats,
)
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


# --- the registry -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_is_whole(kind: type) -> None:
    assert missing(kind) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_is_in_the_docs_as_it_is_here(kind: type) -> None:
    told = DOCS.read_text().splitlines()
    assert [line for line in described(kind) if line not in told] == [], f"{DOCS} lacks these"


def test_the_docs_have_no_metric_that_is_not_there() -> None:
    known = {line for kind in KINDS for line in described(kind)}
    assert [line for line in DOCS.read_text().splitlines() if line.startswith("| `") and line not in known] == []


@dataclass(kw_only=True)
class Odd(Counts):
    """Each of these lacks something."""

    bare: int = 0
    unitless: int = metric(Unit(""), "what nobody can measure", default=0)
    mute: int = metric(ROWS, "rows", default=0)
    nobody: int = metric(ROWS, "rows that nobody counts", filled=(), default=0)
    abroad: int = metric(ROWS, "rows that are counted elsewhere", filled=("dask",), default=0)
    unplaced: int = metric(ROWS, "rows that have no place", progress="rows", summary="{} {}", default=0)


def test_what_a_metric_lacks_is_named() -> None:
    assert missing(Odd) == [
        "metric 'bare' of Odd has no entry: make it with metric(...)",
        "metric 'unitless' of Odd has no unit",
        "metric 'mute' of Odd has no meaning that says anything",
        "metric 'nobody' of Odd is filled by no executor",
        "metric 'abroad' of Odd is filled by 'dask', which is no executor",
        "metric 'unplaced' of Odd has no place for its value in `progress`",
        "metric 'unplaced' of Odd has no place for its value in `summary`",
    ]


def test_a_half_made_metric_fails_at_import(tmp_path: Path) -> None:
    text = Path(metrics.__file__).read_text()
    told = text.replace(
        '    calls: int = metric(CALLS, "calls of', '    toy: int = 0\n    calls: int = metric(CALLS, "calls of'
    )
    assert told != text
    (tmp_path / "half.py").write_text(told)
    run = subprocess.run(
        [sys.executable, "-c", "import half"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.stderr.splitlines()[-1] == (
        "ImportError: metric 'toy' of Counts has no entry: make it with metric(...): see plait.core.metrics"
    )


# --- counts -------------------------------------------------------------------------------------------------


def test_counts_are_added_by_name_and_by_stream() -> None:
    one, other = Counts(rows=3, late={"a": 1}, calls=2), Counts(rows=1, late={"a": 2, "b": 5}, behind={"b": 1})
    both = Counts(rows=4, late={"a": 3, "b": 5}, behind={"b": 1}, calls=2)
    assert one + other == both
    assert metrics.total([one, other]) == both
    assert both.since(other).calls == 2
    assert both.since(other).late == {"a": 1, "b": 0}
    assert (one.copy() == one, one.copy() is one) == (True, False)


def test_what_is_told_is_heard_and_what_is_no_more_is_passed_over() -> None:
    counts = Counts(rows=3, late={"a": 1, "b": 0}, calls=2)
    assert Counts.heard(counts.told()) == counts
    assert Counts.heard({"rows": 3, "a metric of old": 8}) == Counts(rows=3)


def test_what_follows_from_others() -> None:
    run = Metrics(rows=10, late={"a": 2}, behind={"a": 1, "b": 1}, frontier=0, newest=0)
    assert (run.tuples, run.lag_us) == (6, 0)
    assert Metrics(frontier=5, newest=12).lag_us == 7
    assert Metrics(frontier=2**63 - 1, newest=12).lag_us is None, "at the end there is no lag"
    assert Metrics(newest=12).lag_us is None


def test_how_it_reads() -> None:
    run = Metrics(
        rows=1234, results=5, late={"a": 2, "b": 1}, frontier=1_500_000, newest=2_500_000, pending=7, state_bytes=10**6
    )
    assert metrics.progress(run) == (
        "1,234 rows in, 5 results, frontier 1.5 s (1.0 s behind the newest), 7 buffered, state 1.0 MB"
    )
    assert metrics.progress(Metrics(rows=1, frontier=0)) == "1 rows in, 0 results, frontier 0 s"
    assert metrics.summary(run) == ["3 late rows dropped"]


@dataclass(kw_only=True)
class More(Metrics):
    toys: int = metric(ROWS, "rows that are toys", default=0, progress="{} toys", summary="{} toys broken")


def test_a_new_metric_is_shown_without_anybody_knowing_its_name() -> None:
    run = More(rows=1, frontier=0, toys=1200)
    assert missing(More) == []
    assert metrics.progress(run).endswith(", 1,200 toys")
    assert metrics.summary(run) == ["1,200 toys broken"]


# --- threads fill what they say they do ---------------------------------------------------------------------


def runs() -> Iterator[Stats]:
    """Runs that have something of everything between them."""
    a, b = plait.stream("a", unit="us", late="drop", behind="drop", disorder=2), plait.stream("b", unit="us")
    counted = plait.aggregate(plait.join(a, b, within=5), size="10us", compute={"n": plait.count()})
    nested = plait.operator(
        counted,
        buckets=2,
        route=lambda t: t.n % 2,
        state=list,
        process=lambda s, t: [{"n": t.n}],
        output={"n": "int64"},
    )
    with nested.on_threads(plain=True) as run:
        run.push("a", "x", {"ts": [10, 20, 15, 30]})
        run.push("b", "x", {"ts": [11, 12, 30]})
        run.push("a", "y", {"ts": [12, 31]})
        yield run.stats()
        run.drain()
        list(run.results())
        yield run.stats()
    with plait.aggregate(b, size="10us", by="k", compute={"n": plait.count()}).on_threads(elastic=2, plain=True) as run:
        run.push("b", 0, {"ts": [1, 12, 30], "k": [1, 2, 3]})
        run.resize(2)
        run.push("b", 0, {"ts": [31, 42, 60], "k": [1, 2, 3]})
        run.drain()
        list(run.results())
        yield run.stats()
    with plait.aggregate(b, size="10us", compute={"n": plait.collect("ts")}).on_threads(plain=True) as run:
        run.push("b", 0, {"ts": list(range(1000))})
        run.drain()
        list(run.results())
        run.stop()
        yield run.stats()


@pytest.fixture(scope="module")
def told() -> list[Stats]:
    return list(runs())


#: Gone before anybody looks: tests/threads/test_record.py.
BRIEFLY = ("unread",)


@pytest.mark.parametrize("name", [n for n, e in entries(Stats).items() if THREADS in e.filled and n not in BRIEFLY])
def test_threads_fill_it(told: list[Stats], name: str) -> None:
    assert any(_is_told(vars(stats)[name]) for stats in told), f"no run on threads tells {name!r}"


@pytest.mark.parametrize("name", [n for n, e in entries(WorkerStats).items() if THREADS in e.filled])
def test_workers_fill_it(told: list[Stats], name: str) -> None:
    values = [vars(worker)[name] for stats in told for worker in stats.workers]
    judged_before = name in ("rows", "late", "behind")  # workers see no such row
    assert any(_is_told(value) for value in values) != judged_before, name


def _is_told(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_is_told(each) for each in value.values())
    if isinstance(value, tuple):
        return any(_is_told(each) for each in value)
    return value not in (None, 0, -(2**63))


def test_a_counter_means_one_thing(told: list[Stats]) -> None:
    nested, elastic = told[1], told[2]
    assert (nested.late, nested.behind) == ({"a": 1, "b": 0}, {"a": 1, "b": 0})
    assert (nested.rows, nested.tuples) == (9, 7)
    # Each operator's work, told apart: pairs by the join, additions by the aggregate, calls by the operator.
    by = [(w.comparisons > 0, w.updates > 0, w.calls > 0) for w in nested.workers]
    assert set(by) <= {(True, False, False), (False, True, False), (False, False, True), (False, False, False)}
    assert nested.comparisons > 0
    assert nested.updates == sum(w.updates for w in nested.workers) > 0
    assert nested.calls == nested.results > 0
    assert (elastic.comparisons, elastic.updates, elastic.calls) == (0, 6, 0)
