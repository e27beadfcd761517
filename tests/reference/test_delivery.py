"""The law: how rows are delivered changes when a result appears, never what it is or in which order."""

from __future__ import annotations

import dataclasses
import random
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from tests import definitions as define
from tests import strategies
from tests.examples import examples
from tests.reference.dags import dags
from tests.reference.judge import assert_same, canonical
from tests.reference.programs import PROGRAMS, operators
from tests.reference.schedules import Frontier, Schedule, apply, assert_results, deliver
from tests.strategies import Case, Given, batch, interleaved, streams, table

import plait
from plait import BehindError, DataError, LateError, RunError
from plait.connectors.contract import Chunk, Feed, Lane
from plait.core import sources
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.reference import run as reference_run
from plait.reference.run import Run, outcome

SEEDS = st.integers(0, 2**32)

#: Streams that can be pushed in any order: their sources are declared, or there is only one.
DECLARED: dict[str, Any] = {"declared": True}

#: Streams of which a bounded run finds the sources by itself, before it starts.
LOOKED_UP = ("one", "integer column", "text column", "seq column", "content")

#: The periodic timer has no end of its own: it stops with the input, and a heartbeat beyond says that time goes on.
ENDING = tuple(program for program in PROGRAMS if program.name != "ticks")


def any_case(**options: Any) -> st.SearchStrategy[Case]:
    return st.one_of(
        strategies.time_joins(**options),
        strategies.count_joins(**options),
        strategies.tumbling_joins(**options),
        strategies.tumbling_count_joins(**options),
        strategies.asof_joins(**options),
        strategies.span_aggregates(**options),
        strategies.dedups(**options),
        strategies.count_aggregates(**options),
        operators(programs=ENDING, **options),
        dags(**options),
    )


@given(case=any_case(**DECLARED), seed=SEEDS)
def test_any_schedule_gives_the_same_bytes(case: Case, seed: int) -> None:
    run = deliver(case, Schedule(case, seed))
    assert_results(run, case)
    for each in case.given:
        # Late is a fact of the data: the same tuples whatever the batches.
        assert dropped(run.intake.streams[each.stream.name].late_table().to_pylist()) == dropped(each.late)


@settings(max_examples=examples(50))
@given(case=operators(programs=PROGRAMS, declared=True), seed=SEEDS)
def test_any_schedule_of_an_operator(case: Case, seed: int) -> None:
    assert_results(deliver(case, Schedule(case, seed, beyond=False)), case)


@settings(max_examples=examples(50))
@given(case=dags(declared=True), seed=SEEDS)
def test_any_schedule_of_a_dag(case: Case, seed: int) -> None:
    assert_results(deliver(case, Schedule(case, seed)), case)


@given(case=any_case(declared=False, layouts=("integer column", "text column", "seq column")), seed=SEEDS)
def test_sources_that_show_up_later_give_the_same_bytes_or_stop(case: Case, seed: int) -> None:
    run, frontier = Run(case.query, case.schemas), Frontier(case)
    for step in Schedule(case, seed):
        note(repr(step))
        behind = frontier.behind(step)
        try:
            apply(run, frontier.given[step.stream], step)
        except BehindError:
            assert behind
            return
        assert not behind
        frontier.hear(step)
    run.close()
    assert_results(run, case)


# --- lanes --------------------------------------------------------------------------------------------------


def cut(chance: random.Random, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> list[Chunk]:
    """Rows in chunks of any size, empty ones too."""
    chunks, at = [], 0
    while at < len(rows):
        size = chance.choice((0, 1, 2, 5))
        chunks.append(Chunk(batch(schema, rows[at : at + size])))
        at += size
    return chunks


def lanes(chance: random.Random, each: Given) -> Feed:
    """A lane for each source, bearing its name; or, where a column names sources, lanes that some of them share."""
    shared = each.by_column and chance.random() < 0.5
    groups: dict[int, list[Any]] = {}
    for number, source in enumerate(each.sources):
        groups.setdefault(chance.randrange(3) if shared else number, []).append(source)
    made = [lane(chance, each, sources, sources[0] if not shared else None) for sources in groups.values()]
    return Feed(each.schema, tuple(made))


def lane(chance: random.Random, each: Given, sources: list[Any], name: Any) -> Lane:
    rows = interleaved({s: each.sources[s] for s in sources}, tuple(s for s in each.arrival if s in sources))
    chunks = cut(chance, each.schema, rows)
    return Lane(name, lambda: iter(chunks))


def dropped(rows: list[dict[str, Any]] | list[tuple[Any, ...]]) -> list[str]:
    """Rows to be compared as a set, in which a row may stand twice."""
    values = [row.values() if isinstance(row, dict) else row for row in rows]
    return sorted(repr([canonical(v) for v in row]) for row in values)


@given(case=st.one_of(any_case(declared=True), any_case(declared=False, layouts=LOOKED_UP)), seed=SEEDS)
def test_any_lanes_and_slices_give_the_same_bytes(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    feeds = {each.stream.name: lanes(chance, each) for each in case.given}
    with mock.patch.object(reference_run, "SLICE_ROWS", chance.choice((1, 2, 4096))):
        result = outcome(case.query, feeds)
    assert_same(result.table, case.expected)
    for each in case.given:
        assert dropped(result.late[each.stream.name].to_pylist()) == dropped(each.late)


def test_lanes_with_and_without_a_name_side_by_side() -> None:
    """A lane may bear its one source's name where a column names it too; the end of another lane is not its end."""
    schema = pa.schema([("ts", pa.int64()), ("src", pa.string())])
    stream = plait.stream("s", unit="us", source="src", sources=["a", "b", "c"])
    shared = Lane(None, lambda: iter([Chunk(batch(schema, [(1, "a"), (2, "b")]))]))
    named = Lane("c", lambda: iter([Chunk(batch(schema, [(ts, "c")])) for ts in (1, 2)]))
    query = plait.aggregate(stream, size=1, compute={"of": plait.first("src")})
    result = outcome(query, {"s": Feed(schema, (shared, named))})
    assert result.table["of"].to_pylist() == ["a", "c", "b", "c"]


# --- core/sources.py says the same --------------------------------------------------------------------------


def each_tuple(stream: plait.Stream) -> plait.Query:
    """A query whose results are the stream's tuples, one each, with their ts, as soon as they are ready."""
    return plait.aggregate(stream, size=1, compute={"of": plait.first("src")})


PLAIN = pa.schema([("ts", pa.int64()), ("src", pa.string())])


@given(times=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=12), disorder=st.integers(0, 3))
def test_the_executors_rules_agree_with_the_intake(times: list[tuple[int, str]], disorder: int) -> None:
    """`core.sources` is the executors' form of what the intake does."""
    stream = plait.stream("s", unit="us", source="src", sources=["a", "b"], disorder=disorder, late="drop")
    run = Run(each_tuple(stream), {"s": PLAIN})
    largest: dict[str, int] = {}
    kept, late = [], []
    for ts, source in times:
        run.push("s", batch(PLAIN, [(ts, source)]))
        before = largest.get(source, BEFORE_ALL)
        largest[source], found = sources.judge_next(stream, np.array([ts]), before, BEFORE_ALL, BEFORE_ALL)
        (kept if found is None else late).append(ts)
        heard = [sources.Holding(sources.come_to(stream, largest.get(s, BEFORE_ALL), BEFORE_ALL), s) for s in "ab"]
        assert run.frontier == sources.frontier(heard, BEFORE_ALL)[0]
        ready = sorted(t for t in kept if t < run.frontier)
        assert [row.ts for row in run.results] == ready
    assert run.intake.streams["s"].late_table()["ts"].to_pylist() == late
    run.close()
    assert run.frontier == AFTER_ALL == sources.frontier([], BEFORE_ALL)[0]


# --- sources that are silent, end, or promise ---------------------------------------------------------------


def started(**options: Any) -> Run:
    stream = plait.stream("s", unit="us", source="src", **options)
    return Run(each_tuple(stream), {"s": PLAIN})


def push(run: Run, *rows: tuple[int, str]) -> list[int]:
    """Push rows (ts, source) as one batch; the ts of the results that come out."""
    run.push("s", batch(PLAIN, rows))
    return [row.ts for row in run.take()]


def test_a_declared_source_holds_the_frontier_until_it_speaks() -> None:
    run = started(sources=["a", "b"])
    assert push(run, (1, "a"), (9, "a")) == []
    assert run.frontier == BEFORE_ALL
    assert push(run, (5, "b")) == [1]
    assert run.frontier == 5


def test_a_tuple_at_the_frontier_is_not_ready() -> None:
    run = started(sources=["a"])
    assert push(run, (1, "a"), (1, "a")) == []
    assert push(run, (2, "a")) == [1, 1]


def test_an_ended_source_no_longer_holds() -> None:
    run = started(sources=["a", "b"])
    push(run, (1, "a"), (9, "a"), (5, "b"))
    run.end("s", source="b")
    assert run.frontier == 9
    assert [row.ts for row in run.take()] == [5]
    with pytest.raises(RunError, match="ended"):
        push(run, (9, "b"))


def test_a_heartbeat_is_not_lowered_by_disorder() -> None:
    run = started(sources=["a"], disorder=3)
    push(run, (5, "a"))
    assert run.frontier == 2
    run.heartbeat("s", 5, source="a")
    assert run.frontier == 5
    run.heartbeat("s", 4, source="a")  # an older promise takes nothing back
    assert run.frontier == 5
    push(run, (9, "a"))
    assert run.frontier == 6


def test_a_tuple_below_its_heartbeat_breaks_a_promise() -> None:
    run = started(sources=["a"], disorder=9)
    run.heartbeat("s", 5, source="a")
    assert push(run, (5, "a")) == []
    with pytest.raises(DataError, match="below the source's heartbeat 5"):
        push(run, (4, "a"))


def test_a_heartbeat_takes_no_seq_and_counts_in_no_window() -> None:
    stream = plait.stream("s", unit="us", source="src", sources=["a"])
    query = plait.aggregate(stream, size=2, compute={"n": plait.count()})
    run = Run(query, {"s": PLAIN})
    for ts in (1, 2):
        run.push("s", batch(PLAIN, [(ts, "a")]))
        run.heartbeat("s", ts, source="a")
    run.close()
    (result,) = run.take()
    assert result.key == ((2, 0, b"a", 2),)


@pytest.mark.parametrize("act", ["heartbeat", "end"])
def test_only_declared_sources_promise_and_end(act: str) -> None:
    """A misspelled name must not become one more source that holds the frontier for ever."""
    run = started(sources=["a"])
    with pytest.raises(DataError, match="not declared"):
        run.heartbeat("s", 5, source="typo") if act == "heartbeat" else run.end("s", source="typo")


def test_nothing_comes_after_the_end() -> None:
    run = started(sources=["a"])
    push(run, (1, "a"))
    run.close()
    with pytest.raises(RunError, match="ended"):
        push(run, (2, "a"))


# --- late and behind ----------------------------------------------------------------------------------------


@given(given=streams("s", late="drop", layouts=("one", "integer column", "positions")), seed=SEEDS)
def test_a_late_tuple_is_an_error_in_any_batches(given: Given, seed: int) -> None:
    strict = dataclasses.replace(given.stream, late="error")
    query = plait.aggregate(strict, size=1, compute={"n": plait.count()})
    case = Case(query, (dataclasses.replace(given, stream=strict),), define.in_order(given.schema, ()))
    run = Run(query, {"s": given.schema})
    try:
        for step in Schedule(case, seed, heartbeats=False):
            apply(run, given, step)
        run.close()
    except LateError:
        assert given.late
    except BehindError:
        assert given.stream.sources is None  # a source first seen below the frontier: it stops before it gets there
    else:
        assert not given.late


def test_a_source_first_seen_below_the_frontier_is_behind() -> None:
    run = started()
    assert push(run, (1, "a"), (5, "a")) == [1]
    with pytest.raises(BehindError, match="behind the frontier 5"):
        push(run, (4, "b"))


def test_a_source_first_seen_at_the_frontier_is_not_behind() -> None:
    run = started()
    push(run, (1, "a"), (5, "a"))
    assert push(run, (5, "b")) == []
    run.close()
    assert [row.ts for row in run.take()] == [5, 5]


@given(given=streams("s", declared=False, layouts=("integer column",), behind="drop"), seed=SEEDS)
def test_behind_drop_leaves_out_what_is_behind_and_nothing_else(given: Given, seed: int) -> None:
    """Which tuples are behind depends on arrival; the result is that of the others."""
    assume(not given.late)
    query = each_tuple(given.stream)
    case = Case(query, (given,), given.relation)
    run, frontier = Run(query, {"s": given.schema}), Frontier(case)
    behind: list[tuple[Any, ...]] = []
    for step in Schedule(case, seed):
        note(repr(step))
        behind += frontier.behind(step)
        apply(run, given, step)
        frontier.hear(step)
    run.close()
    assert dropped(run.intake.streams["s"].behind_table().to_pylist()) == dropped(behind)
    kept = sorted(t.ts for t in given.relation.tuples)
    for row in behind:
        kept.remove(row[0])
    assert [row.ts for row in run.take()] == kept


def test_late_is_judged_against_tuples_behind_too() -> None:
    """Late iff ts < m - D, m the largest ts before it in its own source: a fact of the data, whatever was dropped."""
    run = started(behind="drop", late="drop")
    push(run, (100, "a"))
    push(run, (50, "b"), (20, "b"))
    intake = run.intake.streams["s"]
    assert intake.behind_table()["ts"].to_pylist() == [50]
    assert intake.late_table()["ts"].to_pylist() == [20]


# --- what arrival must not decide ---------------------------------------------------------------------------


@pytest.mark.parametrize("arrival", [(1, 2), (2, 1)])
def test_sources_by_position_are_ordered_by_position_not_by_arrival(arrival: tuple[int, ...]) -> None:
    run = Run(each_tuple(plait.stream("s", unit="us")), {"s": PLAIN})
    for source in arrival:
        run.push("s", batch(PLAIN, [(5, str(source))]), source=source)
    run.close()
    assert [row.values[-1] for row in run.take()] == ["1", "2"]


def test_sources_by_name_need_no_source_zero() -> None:
    """Only sources that are declared or have spoken hold the frontier."""
    run = Run(each_tuple(plait.stream("s", unit="us")), {"s": PLAIN})
    run.push("s", batch(PLAIN, [(1, "x"), (2, "x")]), source="a")
    assert [row.ts for row in run.take()] == [1]


@given(zeros=st.permutations([0.0, -0.0, 1.0]))
def test_rows_that_can_be_told_apart_have_one_order_by_content(zeros: list[float]) -> None:
    """-0.0 equals 0.0 as a key, but not in the bytes of the result: arrival must not decide which comes first."""
    stream = plait.stream("s", unit="us", seq="content")
    query = plait.aggregate(stream, size=1, compute={"x": plait.first("x")})
    result = query.reference({"s": pa.table({"ts": [1, 1, 1], "x": zeros})})
    assert [x.hex() for x in result["x"].to_pylist()] == [x.hex() for x in (-0.0, 0.0, 1.0)]


# --- timers and the end of input ----------------------------------------------------------------------------


def ticking(stream: plait.Stream) -> plait.Query:
    """Rings every 10 us from the first tuple on."""
    return plait.operator(stream, buckets=1, route=lambda t: 0, state=dict, output={"at": "int64"},
                          process=lambda state, t: [plait.timer(t.ts + 10)],
                          on_timer=lambda state, at: [{"at": at}, plait.timer(at + 10)])  # fmt: skip


@pytest.mark.parametrize("first", ["a", "b"])
def test_how_long_a_periodic_timer_rings_is_not_decided_by_arrival(first: str) -> None:
    """The streams of one query end in one order or the other; time goes on as long as any of them has tuples."""
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(ticking(a), b, within=0)
    data = {"a": [(0, "")], "b": [(ts, "") for ts in range(60)]}
    run = Run(query, {"a": PLAIN, "b": PLAIN})
    for name in ("a", "b") if first == "a" else ("b", "a"):
        for row in data[name]:
            run.push(name, batch(PLAIN, [row]))
        run.end(name)
    expected = query.reference({name: table(PLAIN, rows) for name, rows in data.items()})
    assert_same(table(run.bound.schema, [row.values for row in run.take()]), expected)
