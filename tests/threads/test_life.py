"""The life of a run: every end is an error that says why or a clean stop, and no thread is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same

import plait
from plait import LateError, PlaitError
from plait.errors import BehindError, DataError, PendingError, QueryError, RunError

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
SCHEMAS = {"a": SCHEMA, "b": SCHEMA}


def near(left: Any = lambda l, r: l.k == r.k, within: int = 10, **options: Any) -> plait.Query:
    a = plait.stream("a", unit="us", **options)
    b = plait.stream("b", unit="us", **options)
    return plait.join(a, b, on=left, within=within)


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"ts": [ts for ts, _ in pairs], "k": [k for _, k in pairs]}, schema=SCHEMA)


def workers_alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("plait-")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert workers_alive() == []
    yield
    assert workers_alive() == []


def start(query: plait.Query | None = None, **options: Any) -> Any:
    given = {"schemas": SCHEMAS, "plain": True, "workers": 2} | options
    return (query or near()).on_threads(**given)


def test_results_come_while_input_goes_on() -> None:
    with start() as run:
        run.push("a", None, rows((1, 7)))
        run.push("b", None, rows((2, 7), (9, 0)))
        assert list(run.results(timeout_s=0.05)) == []  # a may still bring ts 1, and it holds b's tuples
        run.push("a", None, rows((9, 0)))
        (batch,) = run.results(timeout_s=1)
        assert batch.to_pylist() == [{"ts": 2, "a_ts": 1, "a_k": 7, "b_ts": 2, "b_k": 7}]
        run.drain()
        assert [b.num_rows for b in run.results()] == [1]


def test_anything_with_columns_can_be_pushed() -> None:
    import pandas as pd

    with near().on_threads(plain=True, workers=1) as run:
        run.push("a", None, {"ts": [1], "k": [7]})
        run.push("b", None, pd.DataFrame({"ts": [2], "k": [7]}))
        run.push("b", None, rows((3, 7)).to_batches()[0])
        run.push("b", None, rows((4, 7)))
        run.drain()
        assert run.table().num_rows == 3


def test_without_columns_there_are_no_results() -> None:
    with near().on_threads(plain=True) as run:
        run.push("a", None, rows((1, 7)))
        with pytest.raises(RunError, match=r"drain before anything is known of 'b'.*schemas="):
            run.drain()


def test_another_schema_is_refused() -> None:
    with start() as run, pytest.raises(DataError, match="'k'"):
        run.push("a", None, pa.table({"ts": [1], "k": ["x"]}))


def test_push_after_the_end() -> None:
    with start() as run:
        run.close("a")
        with pytest.raises(RunError, match="Stream 'a' has ended"):
            run.push("a", None, rows((1, 1)))
        run.drain()
    with pytest.raises(RunError, match="stopped"):
        run.push("b", None, rows((1, 1)))


def test_push_to_a_closed_source() -> None:
    with start(near(sources=2)) as run:
        run.close("a", 1)
        with pytest.raises(RunError, match="source 1 has ended"):
            run.push("a", 1, rows((1, 1)))


def test_names_that_are_not_there() -> None:
    with start(near(sources=2)) as run:
        with pytest.raises(RunError, match=r"no stream 'c'.*It reads a, b"):
            run.push("c", None, rows((1, 1)))
        with pytest.raises(DataError, match=r"source 5 is not declared.*Declared are 0, 1"):
            run.push("a", 5, rows((1, 1)))


def test_out_of_order_stops_the_run_and_every_call_says_so() -> None:
    with start() as run:
        run.push("a", None, rows((5, 1)))
        with pytest.raises(LateError, match="row 1: ts 3 is late, 3 us behind 6"):
            run.push("a", None, rows((6, 1), (3, 1)))
        with pytest.raises(LateError, match="ts 3 is late"):
            run.push("b", None, rows((6, 1)))
        with pytest.raises(LateError, match="ts 3 is late"):
            list(run.results())


def test_late_rows_are_kept_aside() -> None:
    with start(near(late="drop")) as run:
        run.push("a", None, rows((5, 1), (3, 2), (6, 3)))
        run.drain()
        assert run.late("a").to_pylist() == [{"ts": 3, "k": 2}]
        assert run.stats().late == {"a": 1, "b": 0}


def test_late_rows_of_a_source_that_turns_up_are_kept_once() -> None:
    """It is asked before whether its rows lie behind the frontier; those that are late do not."""
    with start(near(late="drop")) as run:
        run.push("a", 0, rows((5, 1)))
        run.push("b", 0, rows((5, 1)))
        run.push("a", 1, rows((7, 1), (3, 2), (8, 3)))
        run.drain()
        assert run.late("a").to_pylist() == [{"ts": 3, "k": 2}]


def test_a_heartbeat_is_a_promise() -> None:
    with start() as run:
        run.heartbeat("a", 0, 10)
        with pytest.raises(DataError, match="ts 9 is below the source's heartbeat 10"):
            run.push("a", None, rows((9, 1)))


def test_heartbeats_release() -> None:
    with start() as run:
        run.push("a", None, rows((1, 7)))
        run.push("b", None, rows((2, 7)))
        run.heartbeat("a", 0, 50)
        run.heartbeat("b", 0, 50)
        assert sum(b.num_rows for b in run.results(timeout_s=1)) == 1


def test_a_source_that_nobody_declared_is_behind() -> None:
    with start(near(source=None)) as run:
        run.push("a", "x", rows((20, 1)))
        run.push("b", "x", rows((20, 1)))
        with pytest.raises(BehindError, match=r"source 'y'.*ts 5 is behind the frontier 20.*sources="):
            run.push("a", "y", rows((5, 1)))


def test_behind_may_be_dropped() -> None:
    with start(near(behind="drop")) as run:
        run.push("a", "x", rows((20, 1)))
        run.push("b", "x", rows((20, 1)))
        run.push("a", "y", rows((5, 1), (21, 1)))
        run.drain()
        assert run.behind("a").to_pylist() == [{"ts": 5, "k": 1}]
        assert run.table().num_rows == 2


def test_sources_that_turn_up_are_ordered_by_name() -> None:
    query = near(lambda l, r: l.k >= r.k)
    arrivals = {"c": (1, 3), "a": (1, 1), "b": (1, 2)}
    with start(query) as run:
        for name, row in arrivals.items():
            run.push("a", name, rows(row))
        run.push("b", None, rows((1, 0)))
        run.drain()
        got = run.table()
    assert got.column("a_k").to_pylist() == [1, 2, 3]
    expected = query.reference({"a": {n: rows(r) for n, r in arrivals.items()}, "b": rows((1, 0))})
    assert_same(got, expected)


def test_too_many_sources() -> None:
    with start(max_sources=3) as run:
        run.push("a", "x", rows((1, 1)))
        with pytest.raises(RunError, match=r"more than 3 sources.*max_sources="):
            run.push("a", "y", rows((1, 1)))


def test_unready_tuples_have_a_limit_that_names_the_holder() -> None:
    with start(pending=100) as run, pytest.raises(PendingError, match="stream 'b', of which no source is known"):
        run.push("a", None, rows(*((ts, 0) for ts in range(200))))


def test_a_full_run_names_who_waits_for_whom() -> None:
    """Nobody reads results: workers wait for the consumer, the gate fills, and the pusher says so."""
    query = near(lambda l, r: l.k < r.k)
    with start(query, capacity=64, unread_results=1, stall_after_s=0.3, batch=16) as run:
        with pytest.raises(RunError, match=r"waited 0.3 s.*worker 0 waits for results\(\) to be read.*Read results"):
            push_much(run, 1000)
        # Part of that batch may be in: what would follow is not what was meant.
        with pytest.raises(RunError, match=r"waited 0.3 s"):
            list(run.results(timeout_s=0.2))
        with pytest.raises(RunError, match=r"waited 0.3 s"):
            run.push("a", None, rows((2000, 0)))


def test_a_consumer_that_walks_away() -> None:
    query = near(lambda l, r: l.k < r.k)
    with start(query, capacity=64, unread_results=1, batch=16) as run:
        pushing = threading.Thread(target=push_until_stopped, args=(run,))
        pushing.start()
        next(iter(run.results()))
    pushing.join(10)
    assert not pushing.is_alive()


def push_until_stopped(run: Any) -> None:
    with pytest.raises(PlaitError, match=r"stopped|closed"):
        push_much(run, 10**6)


def push_much(run: Any, times: int) -> None:
    for at in range(times):
        run.push("a", None, rows(*((at, 0) for _ in range(50))))
        run.push("b", None, rows(*((at, 1) for _ in range(50))))


def divides(l: Any, r: Any) -> bool:
    return l.k // r.k > 1 if l.k > 0 else False


def test_a_condition_that_raises_stops_the_run() -> None:
    with start(near(divides), plain=False) as run:
        run.push("a", None, rows((1, 1)))
        run.push("b", None, rows((2, 0)))
        run.drain()
        with pytest.raises(RunError, match=r"condition 'divides' \(.*test_life.py, line \d+\) raised .* on a pair"):
            list(run.results())


def test_a_worker_that_raises_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: here, memory that does not grow."""
    from plait.threads.join.memory import Segment

    def refuse(*_: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(Segment, "grow", refuse)
    with start(near(within=10**6)) as run:
        with pytest.raises(RunError, match="MemoryError: no more"):
            push_much(run, 10_000)
        with pytest.raises(RunError, match="MemoryError: no more"):
            list(run.results())


def test_a_result_that_can_not_be_counted_stops_the_run() -> None:
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    with start(plait.join(a, b, on="l.k = r.k", within=2**62, how="left")) as run:
        run.push("a", None, rows((2**62, 1)))
        run.drain()
        with pytest.raises(DataError, match="'ts' lies beyond 64 bits"):
            list(run.results())
        with pytest.raises(DataError, match="'ts' lies beyond 64 bits"):
            run.push("a", None, rows((2**62, 1)))


def test_two_threads_can_not_push_one_source() -> None:
    with start() as run:
        run.push("a", None, rows((1, 1)))
        source = run._engine.intakes["a"].inlets[0]
        with source.lock, pytest.raises(RunError, match="Another thread is inside a call for source 0 of stream 'a'"):
            run.push("a", None, rows((2, 1)))


def test_an_idle_run_sleeps() -> None:
    """Workers that have nothing to do are in the kernel: they take no turn at all in a while."""
    with start() as run:
        run.push("a", None, rows((1, 1)))
        run.push("b", None, rows((1, 1)))
        time.sleep(0.05)
        busy = [w.busy_s for w in run.stats().workers]
        time.sleep(0.2)
        assert [w.busy_s for w in run.stats().workers] == busy
        assert all("waits for tuples" in w.waiting_for for w in run.stats().workers)


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "strategy": ({"strategy": "magic"}, "strategy='magic' is not known.*'auto', 'sequential'"),
    "workers": ({"workers": 0}, "workers=0 is no number of workers"),
    "order": ({"order": "total"}, "order='total' is no order"),
    "index": ({"index": "grid"}, "index='grid' can't serve this condition"),
    "layout": ({"layout": (2, 2), "strategy": "scalejoin"}, "Layouts are DP-Join's"),
    "no layout": ({"layout": "oval", "strategy": "dpjoin"}, "layout='oval' is no layout"),
    "a layout of other workers": (
        {"layout": (2, 2), "strategy": "dpjoin", "workers": 3},
        "has 4 workers, and workers=3",
    ),
    "no square": ({"layout": "square", "strategy": "dpjoin", "workers": 3}, "no square number"),
    "punctuate": ({"punctuate": 5, "workers": 2}, "Punctuation is how SplitJoin gathers"),
    "no option": ({"workerz": 2}, r"no option 'workerz'.*Did you mean workers=\?"),
    "no interval": ({"punctuate": 0, "strategy": "splitjoin"}, "punctuate=0 is no interval"),
    "sequential": ({"strategy": "sequential", "workers": 2}, "Kang's procedure has one"),
    "fan-out": ({"strategy": "splitjoin", "fan_out": 0}, "fan_out=0 is no number of children"),
    "stall": ({"stall_after_s": 0}, "above zero"),
    "stall that is no number": ({"stall_after_s": "long"}, "stall_after_s='long'.*above zero"),
    "no index": ({"index": "tree"}, "index='tree' is not known.*'auto', 'scan'"),
    "gate": ({"gate": ["ring"]}, r"gate=\['ring'\] is not known"),
    "keys": ({"keys": "yes"}, "keys='yes' is no truth value"),
    "plain": ({"plain": 1}, "plain=1 is no truth value"),
    "rates": ({"rates": (1, 0)}, r"rates=\(1, 0\) are no rates.*such as \(1000, 3000\)"),
    "schemas": ({"schemas": {"a": None}}, "gives no columns.*stream names to Arrow schemas"),
    "a schema of no stream": ({"schemas": {"c": pa.schema([])}}, "schemas= has columns of 'c'.*It reads a, b"),
    "cache_dir": ({"cache_dir": 5}, "cache_dir=5 is no folder"),
}


WRONG_CALLS: dict[str, tuple[Any, str]] = {
    "push to a list": (lambda run: run.push(["a"], None, rows((1, 1))), r"no stream \['a'\]. It reads a, b"),
    "push from a list": (lambda run: run.push("a", [1], rows((1, 1))), r"\[1\] can't name a source"),
    "heartbeat of a list": (lambda run: run.heartbeat("a", [1], 5), r"\[1\] can't name a source"),
    "rebalance to text": (lambda run: run.rebalance("xy"), "rebalance.'xy'.*no map of shares to threads"),
    "rebalance to a number": (lambda run: run.rebalance(5), "rebalance.5.*no map of shares to threads"),
    "a timeout of text": (lambda run: next(run.results(timeout_s="soon")), "timeout_s='soon' is no number of seconds"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_a_call_with_a_wrong_argument_changes_nothing(case: str) -> None:
    call, words = WRONG_CALLS[case]
    with start() as run:
        with pytest.raises(PlaitError, match=words):
            call(run)
        run.push("a", None, rows((1, 7)))
        run.push("b", None, rows((2, 7)))
        run.drain()
        assert run.table().num_rows == 1


def test_rows_dropped_before_columns_are_known() -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size="1s", compute={"n": plait.count()})
    with query.on_threads() as run, pytest.raises(RunError, match="columns of stream 's' are not known yet"):
        run.late("s")


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_are_checked_when_given(case: str) -> None:
    options, words = BAD_OPTIONS[case]
    with pytest.raises(QueryError, match=words):
        start(**options)


def test_kinds_that_a_strategy_can_not_serve() -> None:
    left = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="l.k = r.k", within=1, how="left")
    with pytest.raises(QueryError, match=r"'scalejoin' with more than one worker can't serve a left join.*m x 1"):
        start(left, strategy="scalejoin")
    with pytest.raises(QueryError, match=r"layout=\(1, 2\) for a left join.*layout=\(2, 1\)"):
        start(left, strategy="dpjoin", layout=(1, 2))
    with start(left) as run:
        assert "partitioned, 2 workers: 2 workers, and the condition has an equality" in run.explain()
    with start(plait.join(left.left, left.right, on="l.k < r.k", within=1, how="left")) as run:
        assert "dpjoin, 2 workers: a left join needs all partners of a left row at one worker" in run.explain()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_of_more_results_than_may_be_unread(workers: int) -> None:
    """What a worker has done of its batch can be taken before the batch is: else it and the gatherer wait for each other."""
    stream = plait.stream("s", unit="us")
    rows = pa.table({"ts": np.arange(600) // 100})
    query = plait.join(stream, stream, on=lambda a, b: a.ts != b.ts, within="3us")
    with query.on_threads(schemas={"s": rows.schema}, workers=workers, unread_results=2048, stall_after_s=5) as run:
        run.push("s", None, rows)
        run.drain()
        assert run.table().num_rows == 2 * (5 + 4 + 3) * 100 * 100


def test_sources_that_nobody_declared_come_in_one_batch() -> None:
    """The first one's rows do not leave the others behind, whichever is first."""
    rows = pa.table({"ts": [1, 2, 30, 31, 32], "v": ["b", "a", "b", "a", "c"], "k": [1, 1, 2, 2, 2]})
    a, b = plait.stream("a", unit="us", source="v"), plait.stream("b", unit="us", source="v")
    for query in (
        plait.aggregate(a, size="10us", by="k", compute={"n": plait.count()}),
        plait.join(a, b, on="l.k = r.k", within="5us"),
    ):
        data = dict.fromkeys(query.streams(), rows)
        with query.on_threads(keys=True) as run:
            for stream in data:
                run.push(stream, None, rows)
            run.drain()
            assert_same(run.table(), query.reference(data, keys=True))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_tuple_has_more_results_than_there_is_room_for(how: Any) -> None:
    """A worker that waits for room in the midst of a trigger, or of rows that found no partner, is not waited for itself."""
    query = plait.join(
        plait.stream("a", unit="us"), plait.stream("b", unit="us"), on="l.k = r.k", within="5us", how=how
    )
    a = pa.table(
        {"ts": [1, 3, *[9] * 1100], "k": [7, 1, *[9] * 1100]}
    )  # at 9, out of reach of b: the reference compares 2 million pairs less
    b = pa.table({"ts": [*[2] * 1500, 50], "k": [*[1] * 1500, 2]})
    expected = query.reference({"a": a, "b": b}, keys=True)
    for options in ({"workers": 1}, {"workers": 3}, {"workers": 2, "elastic": 4}):
        with query.on_threads(unread_results=1024, keys=True, **options) as run:
            run.push("b", None, b)
            run.push("a", None, a)
            run.drain()
            assert_same(run.table(), expected)


@pytest.mark.parametrize("strategy", ["tuml_sc", "wiml"])
@pytest.mark.parametrize("behind", ["error", "drop"])
def test_a_new_source_is_let_in_though_the_frontier_moves_meanwhile(
    behind: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the frontier and the moment a source holds it, a worker may be promised more. Rows beyond that are not
    behind, and the run goes on."""
    stream = plait.stream("a", unit="us", source="src", behind=behind)
    query = plait.aggregate(stream, size="4us", compute={"n": plait.count()})
    with query.on_threads(strategy=strategy) as run:
        run.push("a", None, {"ts": [1, 10], "src": ["x", "x"]})
        while not sum(batch.num_rows for batch in run.results(timeout_s=0.01)):
            pass  # now a worker has acted on the frontier 10
        gate = run._engine.gate
        seen, looks = gate.frontier, iter([(5, 0), (5, 0)])
        monkeypatch.setattr(gate, "frontier", lambda: next(looks, None) or seen())
        run.push("a", None, {"ts": [20], "src": ["y"]})
        assert next(looks, None) is None
        run.drain()
        assert run.table().column("n").to_pylist() == [1, 1]
