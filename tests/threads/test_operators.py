"""Operators on threads: the reference's bytes, keys included, however they are served; compiled and in plain Python."""

from __future__ import annotations

import importlib.util
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.errors import DataError, QueryError, RunError
from plait.query.identical import difference

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def on_threads(query: Any, data: dict[str, pa.Table], seed: int = 1, *, switches: bool = False, **options: Any) -> Any:
    """Streams by turns, pieces cut at random; with `switches`, threads come and go meanwhile."""
    dice = random.Random(seed)
    said: list[Any] = []
    with query.on_threads(schemas={n: t.schema for n, t in data.items()}, keys=True, **options) as run:
        failed: list[BaseException] = []

        def push() -> None:
            try:
                at = dict.fromkeys(data, 0)
                while any(at[n] < len(t) for n, t in data.items()):
                    name = min((n for n in data if at[n] < len(data[n])), key=lambda n: at[n] / len(data[n]))
                    size = dice.choice((1, 7, 60, 200))
                    run.push(name, None, data[name].slice(at[name], size))
                    at[name] += size
                    if switches and dice.random() < 0.4:
                        if dice.random() < 0.5:
                            run.resize(dice.randint(1, options["elastic"]))
                        else:
                            run.rebalance([dice.randrange(options["elastic"]) for _ in range(options["elastic"])])
                run.drain()
            except BaseException as error:
                failed.append(error)
                run.stop()

        thread = threading.Thread(target=push)
        thread.start()
        try:
            table = run.table()
        except RunError:
            if not failed:
                raise
            table = None
        thread.join()
        if failed:
            raise failed[0]
        said = run.explain().splitlines()
        return table, run.stats(), said


# --- the examples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tweets", "sessions", "scalejoin_operator"])
def test_examples_give_the_references_bytes(name: str) -> None:
    made = example(name)
    data = made.data()
    expected = made.query.reference(data, keys=True)
    assert len(expected) > 100
    for options in ({"workers": 2}, {"workers": 2, "elastic": 8, "switches": True, "batch": 50}):
        got, _, _ = on_threads(made.query, data, **options)
        assert difference(expected, got) is None


def test_scalejoin_as_an_operator_gives_the_joins_results() -> None:
    made = example("scalejoin_operator")
    data = made.data()
    joined = made.join.reference(data)
    got, _, _ = on_threads(made.query, data, workers=2, elastic=4, switches=True)
    rows = sorted(zip(*(got.column(c).to_pylist() for c in got.column_names[1:7]), strict=True))
    expected = sorted(zip(*(joined.column(c).to_pylist() for c in joined.column_names[1:]), strict=True))
    assert rows == expected
    # The same triggers in the same order.
    assert got.column("ts").to_pylist() == joined.column("ts").to_pylist()


# --- compiled ----------------------------------------------------------------------------------------------------

GAP = 50


def route(t):
    if t.k < 0:
        return None
    if t.k == 99:
        return plait.ALL
    return t.k % 16


def state():
    return np.zeros(4)


def process(s, t):
    s[0] += 1
    s[1] += t["v"]
    s[2] = t.ts
    if t.v > 0.9:
        yield {"n": int(s[0]), "mean": s[1] / s[0], "big": True}
    yield plait.timer(t.ts + GAP)


def on_timer(s, at):
    if s[2] + GAP <= at and s[0] > 0:
        yield (int(s[0]), s[1], False)
        s[0] = 0.0
        s[1] = 0.0


OUTPUT = {"n": "int64", "mean": "float64", "big": "bool"}


def numbers(**changes: Any) -> Any:
    given = {
        "buckets": 16,
        "route": route,
        "state": state,
        "process": process,
        "on_timer": on_timer,
        "output": OUTPUT,
    } | changes
    return plait.operator(plait.stream("s", unit="us"), **given)


def readings(n: int = 2500, nulls: bool = False) -> dict[str, pa.Table]:
    dice = np.random.default_rng(4)
    v = dice.random(n)
    mask = (dice.random(n) < 0.01) & (np.arange(n) > n // 2)
    return {"s": pa.table({
        "ts": np.cumsum(dice.integers(0, 9, n)), "k": dice.choice([-1, 99, *range(40)], n),
        "v": pa.array(v, mask=mask if nulls else None),
    })}  # fmt: skip


def test_functions_of_numbers_are_compiled_and_give_the_same_bytes() -> None:
    data = readings()
    expected = numbers().reference(data, keys=True)
    got, _, said = on_threads(numbers(), data, workers=2, elastic=8, switches=True, batch=100)
    assert any("are compiled: they read k, v" in line for line in said)
    assert difference(expected, got) is None
    plain, _, said = on_threads(numbers(), data, plain=True)
    assert any("in plain Python" in line for line in said)
    assert difference(expected, plain) is None


def test_a_null_makes_plain_python_go_on_with_the_same_states() -> None:
    data = readings(nulls=True)
    query = numbers(process=none_or_sum, on_timer=None)
    expected = query.reference(data, keys=True)
    got, _, said = on_threads(query, data, workers=2, elastic=4, switches=True)
    assert any("column 'v' has NULLs" in line for line in said)
    assert difference(expected, got) is None


def none_or_sum(s, t):
    if t.v == t.v:  # also None
        s[0] += 1
        yield (int(s[0]), s[1], t.v is None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": dict}, "state() gives a dict"),
        ({"output": {"n": "string", "mean": "float64", "big": "bool"}}, "output 'n' is string"),
        ({"route": lambda t: {0, 1}}, "route"),
        ({"process": lambda s, t: [(1, 1.0, True)]}, "process returns its outputs"),
    ],
)
def test_explain_says_why_a_function_is_not_compiled(changes: dict[str, Any], why: str) -> None:
    with numbers(**changes).on_threads(schemas={"s": readings()["s"].schema}) as run:
        assert any("in plain Python" in line and why in line for line in run.explain().splitlines())


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there() -> None:
    query = numbers(route=lambda t: 99, state=dict)
    with pytest.raises(RunError, match=r"route returned 99, which names bucket 99.*buckets 0 to 15"):
        on_threads(query, readings())


def test_an_output_of_another_type() -> None:
    def wrong(s, t):
        yield ("text", 1.0, True)

    with pytest.raises((DataError, RunError), match="The operator's output 'n' is 'text', which is no int64"):
        on_threads(numbers(state=dict, process=wrong, on_timer=None), readings())


def test_elastic_options_are_checked() -> None:
    with pytest.raises(QueryError, match="elastic=32 for an operator of 16 buckets"):
        numbers().on_threads(elastic=32)
    with pytest.raises(QueryError, match="workers=9 with elastic=8"):
        numbers().on_threads(workers=9, elastic=8)
    with pytest.raises(QueryError, match="policy= without elastic="):
        numbers().on_threads(policy=True)
    with pytest.raises(QueryError, match=r"upper=0\.5, target=0\.7, lower=0\.4"):
        numbers().on_threads(elastic=8, policy=(0.5, 0.7, 0.4))
    with (
        numbers().on_threads(schemas={"s": readings()["s"].schema}) as run,
        pytest.raises(RunError, match="workers are fixed"),
    ):
        run.resize(2)
    with numbers().on_threads(elastic=4, schemas={"s": readings()["s"].schema}) as run:
        with pytest.raises(RunError, match=r"resize\(5\).*4 shares"):
            run.resize(5)
        with pytest.raises(RunError, match="A map of shares to threads is"):
            run.rebalance([0, 1])


def never(*_: Any) -> Any:
    raise LookupError("nothing there")


@pytest.mark.parametrize("broken", ["route", "process", "on_timer", "state"])
def test_what_a_users_function_raises_is_told_as_by_the_reference(broken: str) -> None:
    functions: dict[str, Any] = {
        "route": lambda t: 0, "process": lambda s, t: [plait.timer(t.ts + 1)], "on_timer": lambda s, at: [], "state": list,
    } | {broken: (lambda: never()) if broken == "state" else never}  # fmt: skip
    query = plait.operator([plait.stream("s", unit="us")], buckets=4, output={"n": "int64"}, **functions)
    data = {"s": pa.table({"ts": [1, 2], "k": [1, 2]})}
    with pytest.raises(RunError, match="raised LookupError: nothing there") as expected:
        query.reference(data)
    with pytest.raises(RunError) as found:
        on_threads(query, data)
    assert str(found.value) == str(expected.value)
