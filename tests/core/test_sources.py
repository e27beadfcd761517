"""The home of sources: the judgement over arrays against the rule said tuple by tuple, the frontier, and every message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.core.sources import (
    Holding,
    Judgement,
    Offence,
    come_to,
    frontier,
    has_ended,
    is_idle,
    is_late,
    judge,
    judge_next,
    largest_before,
    may_be_behind,
    not_declared,
    refusal,
    stuck,
    told,
    too_many_wait,
)
from plait.errors import BehindError, DataError, LateError, PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL, TS_MAX, TS_MIN
from plait.query.stream import Stream

#: Times close together, and those at the ends of what a ts may be.
TIMES = st.integers(-4, 4) | st.sampled_from([TS_MIN, TS_MIN + 1, TS_MIN + 2, TS_MAX - 2, TS_MAX - 1, TS_MAX])
#: What a source has come to, or the frontier: not yet anywhere, or at a ts.
BOUNDS = st.just(BEFORE_ALL) | TIMES
SLACKS = st.integers(0, 3) | st.sampled_from([2**62 - 1, 2**62])
STREAMS = st.builds(
    lambda disorder, late, behind: plait.stream("s", unit="us", disorder=disorder, late=late, behind=behind),
    SLACKS, st.sampled_from(["error", "drop"]), st.sampled_from(["error", "drop"]),
)  # fmt: skip


def column(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


# --- late and behind: the rule of design.md, section 1, a tuple at a time, with Python's integers ---


def by_tuple(stream: Stream, ts: list[int], largest: int, heartbeat: int, released: int) -> tuple[list[str], int]:
    """What each tuple of a source is, and the largest ts after them."""
    m = None if largest == BEFORE_ALL else largest
    kinds = []
    for t in ts:
        if m is not None and t < m - stream.disorder_us:
            kinds.append("late")
            continue
        kinds.append("broken" if t < heartbeat else "behind" if t < released else "")
        m = t if m is None else max(m, t)
    return kinds, BEFORE_ALL if m is None else m


def first_refused(stream: Stream, kinds: list[str]) -> int | None:
    refused = {"broken", "late" if stream.late == "error" else "", "behind" if stream.behind == "error" else ""} - {""}
    return next((k for k, kind in enumerate(kinds) if kind in refused), None)


def check(stream: Stream, ts: list[int], found: Judgement | None, kinds: list[str]) -> None:
    late, behind, offence = found or Judgement(np.zeros(len(ts), bool), np.zeros(len(ts), bool), None)
    assert late.tolist() == [kind == "late" for kind in kinds]
    assert behind.tolist() == [kind == "behind" for kind in kinds]
    row = first_refused(stream, kinds)
    assert (None if offence is None else offence[:3]) == (None if row is None else (kinds[row], row, ts[row]))


@given(STREAMS, st.lists(TIMES, max_size=12), BOUNDS, BOUNDS, BOUNDS | st.just(AFTER_ALL))
def test_tuples_of_a_source_are_what_the_rule_says(
    stream: Stream, ts: list[int], largest: int, heartbeat: int, released: int
) -> None:
    kinds, after = by_tuple(stream, ts, largest, heartbeat, released)
    got, found = judge_next(stream, column(ts), largest, heartbeat, released)
    assert got == after
    check(stream, ts, found, kinds)
    if found is not None and found.offence is not None:
        row = found.offence.row
        before = max([largest, *ts[:row]])
        assert found.offence.limit == {"late": before, "broken": heartbeat, "behind": released}[kinds[row]]


@given(STREAMS, st.lists(TIMES, max_size=12), BOUNDS, BOUNDS, BOUNDS, st.integers(0, 12))
def test_a_batch_may_be_cut_anywhere(
    stream: Stream, ts: list[int], largest: int, heartbeat: int, released: int, cut: int
) -> None:
    kinds, after = by_tuple(stream, ts, largest, heartbeat, released)
    between, first = judge_next(stream, column(ts[:cut]), largest, heartbeat, released)
    end, second = judge_next(stream, column(ts[cut:]), between, heartbeat, released)
    assert end == after
    check(stream, ts[:cut], first, kinds[:cut])
    check(stream, ts[cut:], second, kinds[cut:])


@given(STREAMS, st.lists(st.tuples(st.integers(0, 2), TIMES), max_size=12), st.lists(st.tuples(BOUNDS, BOUNDS), min_size=3,
       max_size=3), BOUNDS)  # fmt: skip
def test_tuples_of_several_sources_at_once(
    stream: Stream, rows: list[tuple[int, int]], sources: list[tuple[int, int]], released: int
) -> None:
    """As cells judge them: each tuple has the largest before it and the heartbeat of its own source."""
    kinds, before = [""] * len(rows), np.zeros(len(rows), np.int64)
    for source, (largest, heartbeat) in enumerate(sources):
        at = [k for k, row in enumerate(rows) if row[0] == source]
        own = [rows[k][1] for k in at]
        before[at] = largest_before(column(own), largest)
        for k, kind in zip(at, by_tuple(stream, own, largest, heartbeat, released)[0], strict=True):
            kinds[k] = kind
    ts = [t for _, t in rows]
    heartbeats = column([sources[source][1] for source, _ in rows])
    check(stream, ts, judge(stream, column(ts), before, heartbeats, released), kinds)


@given(STREAMS, st.lists(TIMES, max_size=12), BOUNDS, st.integers(0, 12))
def test_what_a_task_knows_to_be_late_is_late(stream: Stream, ts: list[int], largest: int, released: int) -> None:
    """A split's tuples as Spark judges them: what is late within it by a flag, the rest by what came before the split."""
    kinds, _ = by_tuple(stream, ts, largest, BEFORE_ALL, released)
    within = is_late(stream, column(ts), largest_before(column(ts), BEFORE_ALL))
    found = judge(stream, column(ts), np.full(len(ts), largest), BEFORE_ALL, released, within)
    check(stream, ts, found, kinds)


def test_nothing_comes_and_nothing_is_wrong() -> None:
    assert judge_next(plait.stream("s"), column([]), 5, 7, 9) == (5, None)


# --- progress and the frontier ---


@given(SLACKS, BOUNDS, BOUNDS)
def test_progress_is_the_largest_less_the_slack_or_the_heartbeat(slack: int, largest: int, heartbeat: int) -> None:
    spoken = BEFORE_ALL if largest == BEFORE_ALL else largest - slack
    stream = plait.stream("s", disorder=slack)
    assert come_to(stream, largest, heartbeat) == max(spoken, heartbeat) >= BEFORE_ALL


@given(STREAMS, BOUNDS, TIMES)
def test_what_is_not_late_was_not_ready(stream: Stream, largest: int, ts: int) -> None:
    late = bool(is_late(stream, column([ts]), column([largest]))[0])
    assert late == (ts < come_to(stream, largest, BEFORE_ALL))


@given(st.lists(st.tuples(BOUNDS, st.booleans()), max_size=6), BOUNDS)
def test_the_frontier_is_the_least_progress_of_those_that_are_not_idle(
    found: list[tuple[int, bool]], reached: int
) -> None:
    holding = [Holding(progress, k, idle) for k, (progress, idle) in enumerate(found)]
    at, holder = frontier(iter(holding), reached)
    speaking = [progress for progress, idle in found if not idle]
    if speaking:
        assert holder is not None
        assert at == holder.progress == min(speaking)
        assert not holder.idle
        assert holder.who == next(k for k, (progress, idle) in enumerate(found) if progress == at and not idle)
    else:
        assert (at, holder) == (reached if found else AFTER_ALL, None)


def test_idle_is_silent_for_as_long_as_the_stream_says() -> None:
    stream = plait.stream("s", idle_after="1s")
    assert [is_idle(stream, us) for us in (0, 999_999, 1_000_000, 1_000_001)] == [False, False, True, True]
    assert not is_idle(plait.stream("s"), 2**62)


@pytest.mark.parametrize(
    ("options", "may"),
    [({}, True), ({"sources": 2}, False), ({"sources": 2, "idle_after": "1s"}, True), ({"idle_after": "1s"}, True)],
)
def test_only_a_source_that_nobody_waits_for_can_be_behind(options: dict[str, Any], may: bool) -> None:
    assert may_be_behind(plait.stream("s", **options)) is may


# --- messages ---

S = plait.stream("s", unit="us", source="feed", sources=["a", "b"], disorder=4)
LATE, BROKEN, BEHIND = Offence("late", 0, 5, 10), Offence("broken", 0, 5, 10), Offence("behind", 0, 5, 10)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (refusal(S, "a", "row 3", LATE), LateError,
         "Stream 's', source 'a', row 3: ts 5 is late, 5 us behind 10 before it. The source may run back by 4 us. Raise "
         "disorder= to at least 5 us, or set late='drop'."),
        (refusal(S, "a", "x.parquet, row 3", LATE, resumes=True), LateError,
         "Stream 's', source 'a', x.parquet, row 3: ts 5 is late, 5 us behind 10 before it. The source may run back by 4 us. "
         "Restart with late='drop' to skip such rows, or begin anew with disorder= of at least 5 us."),
        (refusal(S, 1, "row 3", BROKEN), DataError,
         "Stream 's', source 1, row 3: ts 5 is below the source's heartbeat 10. A heartbeat promises no ts below its own."),
        (refusal(S, "a", "", BEHIND), BehindError,
         "Stream 's', source 'a': ts 5 is behind the frontier 10, up to which results are out. The source was not known to "
         "hold the frontier when it moved on. Declare the sources with sources=[...], or give up determinism with "
         "behind='drop'."),
        (refusal(S, "a", "row 0", BEHIND, idle=True), BehindError,
         "Stream 's', source 'a', row 0: ts 5 is behind the frontier 10, up to which results are out. The source had been "
         "silent for longer than idle_after= when it moved on. Raise idle_after=, send heartbeats, or give up determinism "
         "with behind='drop'."),
        (refusal(S, "a", "", BEHIND, resumes=True), BehindError,
         "Stream 's', source 'a': ts 5 is behind the frontier 10, up to which results are out. The source was not known to "
         "hold the frontier when it moved on. Declare the sources with sources=[...], or restart with behind='drop', which "
         "gives up determinism."),
        (not_declared(S, "c", ["a", "b"]), DataError,
         "Stream 's': source 'c' is not declared. Declared are 'a', 'b'. Add it to sources=, or name one of these."),
        (not_declared(S, "c", ["a"], "row 7"), DataError,
         "Stream 's', row 7: source 'c' is not declared. Declared are 'a'. Add it to sources=, or name one of these."),
        (has_ended(S), RunError, "Stream 's' has ended. Rows came after its end."),
        (has_ended(S, "a", at="row 2"), RunError, "Stream 's': source 'a' has ended. Rows came after its end (row 2)."),
        (has_ended(S, 0, came="a heartbeat"), RunError,
         "Stream 's': source 0 has ended. A heartbeat came after its end."),
        (stuck("Source 0 has 8 tuples", told("s", "a"), BEFORE_ALL), PendingError,
         "Source 0 has 8 tuples that wait for the frontier, which is held by source 'a' of stream 's': it has not spoken. "
         "Waiting could be for ever, if the same thread feeds both. Push sources by turns, send heartbeats for a silent one, "
         "close it, or raise pending=."),
        (stuck("Source 0 has 8 tuples", told("s", None), 7), PendingError,
         "Source 0 has 8 tuples that wait for the frontier, which is held by stream 's', of which no source is known: it is "
         "at ts 7. Waiting could be for ever, if the same thread feeds both. Push sources by turns, send heartbeats for a "
         "silent one, close it, or raise pending=."),
        (too_many_wait("9 tuples wait for the frontier", 8, told("s", None, known=True), BEFORE_ALL), PendingError,
         "9 tuples wait for the frontier, more than max_pending=8. Stream 's', of which more sources may come holds it at no "
         "ts yet. Feed or end that source, send it heartbeats, or raise max_pending."),
        (too_many_wait("9 tuples wait for the frontier", 8, told("s", 0), 7), PendingError,
         "9 tuples wait for the frontier, more than max_pending=8. Source 0 of stream 's' holds it at ts 7. Feed or end that "
         "source, send it heartbeats, or raise max_pending."),
    ],
)  # fmt: skip
def test_messages(error: Exception, kind: type[Exception], words: str) -> None:
    assert type(error) is kind
    assert str(error) == words
