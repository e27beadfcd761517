"""Kinds of window of joins: what queries know has a record and the reference's rule, and both say the same."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.core.join.brute import Run, expected, merged, processed

import plait
from plait.core.join import reach
from plait.core.join.reach import NUMBER, RECORDS, TS, first_met, first_met_compiled, reach_of
from plait.core.join.window import JoinWindow
from plait.core.machine.marks import entry
from plait.query.condition.predicate import predicate
from plait.query.join import WINDOWS, CountWindow, TimeWindow, TumblingCountWindow, TumblingWindow, Window

#: A few of each kind. A kind that is new stands here, with the arguments that a user gives for it.
EXAMPLES: dict[type[Window], dict[Window, dict[str, Any]]] = {
    TimeWindow: {
        TimeWindow(3, 5): {"within": (3, 5)},
        TimeWindow(4, 0): {"within": (4, 0)},
        TimeWindow(0, 0): {"within": 0},
        TimeWindow(2**62, 2**62): {"within": 2**62},
    },
    CountWindow: {CountWindow(1): {"last": 1}, CountWindow(4): {"last": 4}, CountWindow(10**6): {"last": 10**6}},
    TumblingWindow: {
        TumblingWindow(1): {"tumbling": 1},
        TumblingWindow(7): {"tumbling": 7},
        TumblingWindow(2**62): {"tumbling": 2**62},
    },
    TumblingCountWindow: {
        TumblingCountWindow(1): {"tumbling_count": 1},
        TumblingCountWindow(3): {"tumbling_count": 3},
        TumblingCountWindow(10**6): {"tumbling_count": 10**6},
    },
}
EVERY = [window for examples in EXAMPLES.values() for window in examples]
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


def run_of(seed: int, n: int = 40, lowest: int = -20) -> Run:
    chance = random.Random(seed)
    times = [sorted(chance.randrange(lowest, lowest + n) for _ in range(n)) for _ in range(2)]
    batches = [pa.record_batch([pa.array(ts), pa.array(range(n))], schema=SCHEMA) for ts in times]
    return merged(times[0], times[1], batches[0], batches[1])


def test_every_kind_of_window_has_a_record_and_an_example() -> None:
    assert reach.missing(RECORDS, WINDOWS) == []
    assert RECORDS.keys() == EXAMPLES.keys() == set(WINDOWS)


@pytest.mark.parametrize("window", EVERY, ids=str)
def test_a_kind_of_window_is_made_of_what_users_give_and_is_described(window: Window) -> None:
    left, right = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(left, right, **EXAMPLES[type(window)][window])
    assert query.window == window
    assert f"inner join, {window.describe()}, on" in query.explain()
    hows = ("left", "semi", "anti")
    if window.ends:
        assert all(plait.join(left, right, how=how, **EXAMPLES[type(window)][window]).how == how for how in hows)
        return
    for how in hows:
        with pytest.raises(plait.QueryError, match=f"how='{how}' with a {window.name} window"):
            plait.join(left, right, how=how, **EXAMPLES[type(window)][window])


@pytest.mark.crossed
@pytest.mark.parametrize("lowest", [-20, -(2**62), 2**62 - 40])
@pytest.mark.parametrize("window", EVERY, ids=str)
def test_who_meets_whom_is_what_every_pair_and_the_reference_say(window: Window, lowest: int) -> None:
    """However the run is cut: what an earlier part has purged no later one may want."""
    for seed in range(3):
        run = run_of(seed, lowest=lowest)
        truth = expected(run, window, lambda l, r: True)
        bound = predicate(None, ("a", "b"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)
        for cuts in ([], [13], list(range(1, 80))):
            assert processed(JoinWindow(bound, SCHEMA, SCHEMA, window, plain=True), run, cuts) == truth, cuts
        tables = {name: pa.table(batch) for name, batch in zip("ab", run.batches, strict=True)}
        streams = [plait.stream(name, unit="us") for name in "ab"]
        judged = plait.join(*streams, **EXAMPLES[type(window)][window]).reference(tables)
        rows = judged.rename_columns([str(k) for k in range(judged.num_columns)]).to_pydict()
        assert list(zip(rows["2"], rows["4"], strict=True)) == [(l, r) for _, l, r in truth]


@pytest.mark.parametrize("window", EVERY, ids=str)
def test_the_first_place_never_falls_and_is_no_further_back_than_said(window: Window) -> None:
    made = reach_of(window)
    at = np.arange(-50, 50)
    for side in (0, 1):
        first = made.first(side, at)
        assert (np.diff(first) >= 0).all()
        assert (first <= at).all()
        assert (at - first <= made.longest).all()
        assert first.tolist() == [made.first(side, int(one)) for one in at]


def test_the_compiled_text_is_the_plain_one() -> None:
    assert first_met_compiled.py_func is first_met

    @entry
    def compiled(back: int, step: int, at: int) -> int:
        return int(first_met_compiled(back, step, at))

    for made in map(reach_of, EVERY):
        for side in (0, 1):
            for at in (-(2**62), -8, -1, 0, 1, 7, 2**62):
                assert compiled(made.back[side], made.step, at) == made.first(side, at)


def imported(before: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", f"{before}\nimport plait.core.join.reach"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    return run.stderr.strip().splitlines()[-1]


def test_a_kind_of_window_without_a_record_fails_at_import() -> None:
    session = "from plait.query.join import Window\nclass Session(Window):\n    name, ends = 'session', False"
    assert imported(session) == "ImportError: the kind of window Session has no record: see plait.core.join.reach"


def test_a_kind_of_window_that_leaves_something_out_is_refused() -> None:
    half = "from plait.query.join import Window\nclass Session(Window):\n    name = 'session'"
    assert imported(half) == "TypeError: the kind of window Session does not say its `ends`: see plait.query.join"


def test_records_that_say_what_cannot_be_are_named() -> None:
    odd = {**RECORDS, CountWindow: replace(RECORDS[CountWindow], places=7)}
    assert reach.missing(odd, WINDOWS) == ["the kind of window CountWindow measures by 7, which is no kind of place"]
    odd = {**RECORDS, TimeWindow: replace(RECORDS[TimeWindow], places=NUMBER)}
    assert reach.missing(odd, WINDOWS) == [
        "the kind of window TimeWindow says when a row's time is up, but does not measure by ts"
    ]
    assert {record.places for record in RECORDS.values()} == {TS, NUMBER}
