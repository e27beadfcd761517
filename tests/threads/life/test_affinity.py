"""Threads bound to cores: what the system says of each thread, read back while the run is there."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import pytest

import plait
from plait.errors import QueryError
from plait.threads.life import affinity
from plait.threads.life.together import Together

linux = pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to cores on Linux only")

A, B = (plait.stream(name, unit="us") for name in ("a", "b"))
ROWS = {"ts": [1, 2], "k": [1, 2]}
JOIN = plait.join(A, B, on="l.k = r.k", within=5)
COUNT = plait.aggregate(A, size="1s", by="k", compute={"n": plait.count()})
SEEN: dict[str, tuple[plait.Query, dict[str, Any], int]] = {
    "sequential": (JOIN, {"strategy": "sequential"}, 1),
    "scalejoin": (JOIN, {"strategy": "scalejoin", "workers": 3}, 3),
    "splitjoin": (JOIN, {"strategy": "splitjoin", "workers": 3}, 3),
    "dpjoin": (JOIN, {"layout": (2, 2)}, 4),
    "dpjoin with an Emitter": (JOIN, {"layout": (2, 1), "emitter": True}, 3),
    "elastic": (JOIN, {"elastic": 2}, 2),
    "tuml_mc": (COUNT, {"strategy": "tuml_mc", "workers": 2}, 2),
    "wiml": (COUNT, {"strategy": "wiml"}, 1),
}


def bound_to(named: str = "") -> list[set[int]]:
    """Of each thread that serves an operator, the cores that the system lets it run on."""
    found = [t for t in threading.enumerate() if t.name.startswith("plait-") and t.name.endswith(named)]
    return [os.sched_getaffinity(int(t.native_id or 0)) for t in found]


@linux
@pytest.mark.parametrize("case", SEEN)
def test_every_thread_is_where_it_was_put(case: str) -> None:
    made, options, count = SEEN[case]
    cores = sorted(os.sched_getaffinity(0))
    with made.on_threads(affinity=True, plain=True, **options) as run:
        for name in made.streams():
            run.push(name, None, ROWS)
        run.heartbeat("a", 0, 10)
        engine = run._engine
        assert engine is not None
        found = [os.sched_getaffinity(int(thread.native_id or 0)) for thread in engine.threads]
        assert found == [{cores[k % len(cores)]} for k in range(count)]
        assert f"on threads: bound to cores {', '.join(map(str, cores))}, by turns" in run.explain()
        assert sorted(os.sched_getaffinity(0)) == cores  # the thread that pushes is left alone
        run.drain()
        assert run.table().num_rows == 2


@linux
def test_a_list_of_cores_and_two_operators_take_turns() -> None:
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    near = plait.join(A, B, on="l.k = r.k", within=5, name="near")
    made = plait.join(near, plait.stream("c", unit="us"), on="l.b_k = r.k", within=5)
    with made.on_threads(affinity=cores, plain=True, workers=1) as run:
        for name in "abc":
            run.push(name, None, ROWS)
        assert sorted(map(sorted, bound_to("-0"))) == sorted([[core] for core in (cores * 2)[:2]])
        run.drain()
        assert run.table().num_rows == 2


@linux
def test_threads_are_not_bound_unless_asked_for() -> None:
    cores = os.sched_getaffinity(0)
    with JOIN.on_threads(workers=2, plain=True) as run:
        for name in "ab":
            run.push(name, None, ROWS)
        assert bound_to("-0") == bound_to("-1") == [cores]
        assert "bound to cores" not in run.explain()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("all", "affinity='all' names no cores.*a list of core numbers"),
        ([], r"affinity=\[\] names no cores"),
        ([True], r"affinity=\[True\] names no cores"),
        ([0, 10**6], "this process may not use 1000000.*it has cores"),
    ],
)
@linux
def test_refused(given: Any, words: str) -> None:
    with pytest.raises(QueryError, match=f"(?i){words}"):
        JOIN.on_threads(affinity=given)


def test_elsewhere_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity.sys, "platform", "darwin")
    with pytest.raises(QueryError, match=r"affinity=True on darwin.*Linux only"):
        affinity.cores_of(True)
    assert affinity.cores_of(False) == ()


def test_cores_are_handed_out_by_turns() -> None:
    together = Together()
    assert [together.next_core((4, 7)) for _ in range(3)] == [4, 7, 4]
    assert together.next_core(()) is None
