"""The bucketed operator against each bucket run by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.judge import Execute, judge
from tests.reference.programs import PROGRAMS, Program, operators

import plait
from plait import RunError

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")


@pytest.mark.parametrize("program", PROGRAMS, ids=repr)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_operator(data: st.DataObject, program: Program, execute: Execute) -> None:
    judge(data.draw(operators(programs=(program,))), execute)


def run(times: list[int], **options: Any) -> list[Any]:
    """The column `v` of an operator's output over tuples at these times."""
    given = {"buckets": 1, "route": lambda t: 0, "state": list, "output": {"v": "string"}, **options}
    query = plait.operator(A, **given)
    return query.reference({"a": pa.table({"ts": pa.array(times, pa.int64())})})["v"].to_pylist()


# --- timers -------------------------------------------------------------------------------------------------


def test_a_timer_runs_between_the_tuples_before_and_after_it() -> None:
    """After every tuple with ts < T and before any with ts >= T; its outputs follow the tuples' at T - 1."""

    def process(state: list[Any], t: Any) -> list[Any]:
        return [(f"tuple {t.ts}",), plait.timer(5)] if t.ts < 4 else [(f"tuple {t.ts}",)]

    out = run([3, 4, 4, 5], process=process, on_timer=lambda state, at: [(f"timer {at}",)])
    assert out == ["tuple 3", "tuple 4", "tuple 4", "timer 5", "tuple 5"]


def test_a_timer_has_the_ts_of_the_microsecond_before() -> None:
    query = plait.operator(A, buckets=1, route=lambda t: 0, state=list, output={"v": "int64"},
                           process=lambda state, t: [plait.timer(t.ts + 1)],
                           on_timer=lambda state, at: [(at,)])  # fmt: skip
    assert query.reference({"a": pa.table({"ts": [7]})}).to_pylist() == [{"ts": 7, "v": 8}]


def test_timers_at_one_time_run_by_bucket() -> None:
    def process(state: list[Any], t: Any) -> list[Any]:
        state.append(t.ts)
        return [plait.timer(9)]

    out = run([2, 1 + 2], buckets=3, route=lambda t: [2, 0] if t.ts == 2 else 1, process=process,
              on_timer=lambda state, at: [(str(state),)])  # fmt: skip
    assert out == ["[2]", "[3]", "[2]"]


def test_a_timer_set_twice_for_one_moment_runs_once() -> None:
    out = run(
        [1, 1], process=lambda state, t: [plait.timer(5), plait.timer(5)], on_timer=lambda state, at: [(str(at),)]
    )
    assert out == ["5"]


def test_a_timer_is_never_set_in_the_past() -> None:
    with pytest.raises(RunError, match="A timer is set at 5, and event time has reached 5"):
        run([5], process=lambda state, t: [plait.timer(5)], on_timer=lambda state, at: [])


# --- buckets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("routed", "buckets"), [
    (None, []), ([], []), (1, [1]), ([2, 0, 2], [0, 2]), ({1}, [1]), (plait.ALL, [0, 1, 2]), (iter((1, 0)), [0, 1]),
    (np.int64(2), [2]), (np.array([2, 1]), [1, 2]), (range(2), [0, 1]),
], ids=lambda given: type(given).__name__)  # fmt: skip
def test_routes(routed: Any, buckets: list[int]) -> None:
    """A bucket sees a tuple once, however often it is named; whole numbers of any make will do."""
    numbers = iter(range(3))

    def process(state: list[Any], t: Any) -> list[Any]:
        return [(str(state[0]),)]

    out = run([1], buckets=3, route=lambda t: routed, state=lambda: [next(numbers)], process=process)
    assert out == [str(n) for n in range(len(buckets))]


@pytest.mark.parametrize("routed", [3, -1, [0, 3], True, "0", 1.0, ["0"]], ids=repr)
def test_a_route_to_no_bucket_is_refused(routed: Any) -> None:
    with pytest.raises(RunError, match="route returned"):
        run([1], buckets=3, route=lambda t: routed, process=lambda state, t: [])


def test_a_tuple_says_which_input_it_is_of() -> None:
    joined = plait.join(A, B, within=0)
    query = plait.operator([B, joined.named("pairs"), A], buckets=1, route=lambda t: 0, state=list,
                           process=lambda state, t: [(t.stream, t["ts"])],
                           output={"of": "string", "at": "int64"})  # fmt: skip
    table = query.reference({"a": pa.table({"ts": [1]}), "b": pa.table({"ts": [1]})})
    assert table["of"].to_pylist() == ["b", "pairs", "a"]
    assert table["at"].to_pylist() == [1, 1, 1]


def test_an_operator_sees_moments_in_microseconds_everywhere() -> None:
    """Also in a list that an aggregate collected: values are Python's own."""
    moments = pa.array([1_000, 2_000]).cast(pa.timestamp("ms"))
    windows = plait.aggregate(A, size=2, compute={"all": plait.collect("at"), "last": plait.last("at")})
    query = plait.operator(windows, buckets=1, route=lambda t: 0, state=list,
                           process=lambda state, t: [(repr(t.all), repr(t.last))],
                           output={"all": "string", "last": "string"})  # fmt: skip
    (row,) = query.reference({"a": pa.table({"ts": [1, 2], "at": moments})}).to_pylist()
    assert row["last"] == "2000000"
    assert "pyarrow" not in row["all"]
