"""Users' own functions: compiled where that can't be seen, in Python else, and the reference's bytes either way."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same

import plait
from plait.query.identical import difference

S = plait.stream("s", unit="us")
FACTOR = 0.25


def table(rows: int, seed: int, *, nulls: float = 0.0) -> pa.Table:
    dice = np.random.default_rng(seed)
    x = dice.standard_normal(rows) * 10.0 ** dice.integers(-300, 300, rows)
    odd = dice.random(rows)
    for below, value in ((0.02, np.nan), (0.04, -0.0), (0.05, np.inf), (0.06, 0.0), (0.5, 3.0)):
        x = np.where((odd < below) & (odd >= below - 0.02), value, x)
    mask = dice.random(rows) < nulls
    return pa.table({
        "ts": np.arange(rows), "k": dice.integers(0, 3, rows), "x": pa.array(x, mask=mask),
        "f": np.clip(x, -1e38, 1e38).astype(np.float32),
        "i": dice.integers(-(2**63), 2**63, rows), "h": dice.integers(-(2**31), 2**31, rows).astype(np.int32),
        "b": dice.random(rows) < 0.5,
    })  # fmt: skip


def smooth(s: float, v: float) -> float:
    return s + FACTOR * (v - s)


def spread(s: tuple[int, float, float], v: float) -> tuple[int, float, float]:
    n, low, high = s
    return (n + 1, min(low, v), max(high, v))


def runs(s: tuple[int, int, float], v: float) -> tuple[int, int, float]:
    """The longest rise."""
    best, now, last = s
    now = now + 1 if v > last else 0
    return (max(best, now), now, v)


def ratio(s: float, v: float, w: float) -> float:
    if w != 0 and not abs(v) > 1e9:
        return s + v / w
    return -s


def balance(s: int, h: int, b: bool) -> int:
    return s + h if b else s - h


def above(s: int, i: int) -> int:
    return s + 1 if i > 7 else s


def biased(s: float, i: int) -> float:
    s *= 0.5
    s += i
    return s


COMPILED: dict[str, tuple[Any, Callable[..., Any], list[str], Any, str]] = {
    "smooth": (0.0, smooth, ["x"], None, "float64"),
    "smooth of float32": (0.0, smooth, ["f"], None, "float64"),
    "spread": ((0, math.inf, -math.inf), spread, ["x"], lambda s: s[2] - s[1] if s[0] > 1 else None, "float64"),
    "runs": ((0, 0, math.inf), runs, ["x"], lambda s: s[0], "int64"),
    "ratio": (-0.0, ratio, ["x", "f"], None, "float64"),
    "balance": (2**59, balance, ["h", "b"], None, "int64"),
    "above": (0, above, ["i"], None, "int64"),
    "biased": (1.0, biased, ["i"], None, "float64"),
}


def both(init: Any, add: Callable[..., Any], columns: list[str], result: Any, kind: str, data: pa.Table) -> str:
    """Hold threads against the reference; gives what `explain` says of the function."""
    made = plait.custom(columns, init=lambda: init, add=add, result=result, type=kind)
    query = plait.aggregate(S, size="40us", advance="15us", by="k", compute={"v": made})
    want = query.reference({"s": data})
    with query.on_threads(schemas={"s": data.schema}) as run:
        for at in range(0, data.num_rows, 100):
            run.push("s", 0, data.slice(at, 100))
        run.drain()
        assert_same(run.table(), want)
        return next(line for line in run.explain().split("\n") if line.startswith("v = "))


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    assert "compiled" in both(*COMPILED[name], table(500, 1))


def test_what_is_null_or_raises_is_left_to_python() -> None:
    nulls = table(300, 2, nulls=0.2)
    assert "plain Python" in both(
        (0, 0.0), lambda s, v: (s[0] + (v is None), s[1]), ["x"], lambda s: s[0], "int64", nulls
    )
    query = plait.aggregate(
        S, size="40us", compute={"v": plait.custom("x", init=lambda: 0.0, add=lambda s, v: s + 1.0 / v, type="float64")}
    )
    with query.on_threads(schemas={"s": nulls.schema}) as run:
        run.push("s", 0, table(50, 3).set_column(2, "x", pa.array([0.0] * 50)))
        assert "compiled" in run.explain()
        with pytest.raises(plait.RunError, match="ZeroDivisionError: float division by zero"):
            list(run.results())


PYTHON: dict[str, tuple[Any, Callable[..., Any], list[str], str, str]] = {
    "an integer that becomes a float": (0, lambda s, v: s + v, ["x"], "float64", "begin with what it will be"),
    "sums of wide integers": (0, lambda s, v: (s + v) % 1000, ["i"], "int64", "integers of 64 bits"),
    "products of integers": (1, lambda s, v: s * 3 if s < 2**30 else 1, ["h"], "int64", "mul of integers"),
    "doubling": (1, lambda s, v: s + s if s < 2**30 else 1, ["h"], "int64", "add of integers"),
    "a wide integer as state": (0, lambda s, v: v, ["i"], "int64", "integers of 64 bits"),
    "a wide integer and one": (0, lambda s, v: s + 1 if v + 1 > v else s, ["i"], "int64", "integers of 64 bits"),
    "a wide integer kept": (
        (0, 0),
        lambda s, v: (s[0] + 1, v if v > 9 else s[1]),
        ["i"],
        "pair",
        "integers of 64 bits",
    ),
    "powers": (1.0, lambda s, v: (s + abs(v)) ** 0.5, ["x"], "float64", "pow"),
    "integers against floats": (0.0, lambda s, v: s + 1.0 if v > s else s, ["i"], "float64", "gt of int64 and float64"),
    "lists": ([], lambda s, v: [*s[-3:], v], ["h"], "list", "its state is list"),
    "text": (0, lambda s, v: s + len(v or ""), ["t"], "int64", "type string"),
    "a loop": (0.0, lambda s, v: next(s + v for _ in range(2)), ["x"], "float64", "Numba can't compile it"),
    "a call": (0.0, lambda s, v: s + math.sqrt(abs(v)), ["x"], "float64", "uses <module 'math'"),
    "two types": (0.0, lambda s, v: v if v > 0 else 0, ["x"], "float64", "float64 there|int64 here"),
    "a huge constant": (0, lambda s, v: s + 2**40, ["h"], "int64", "uses 1099511627776"),
}


@pytest.mark.parametrize("name", PYTHON)
def test_left_to_python(name: str) -> None:
    init, add, columns, kind, why = PYTHON[name]
    data = table(300, 4)
    data = data.append_column("t", pa.array(["a", None, "ccc"] * 100))
    result = {"list": len, "pair": lambda s: s[1]}.get(kind)
    said = both(init, add, columns, result, kind if result is None else "int64", data)
    assert re.search(rf"in plain Python \(.*({why})", said), said


WEIGHTS = np.array([1.5, 2.5])


def weighted(state, x):
    return state + WEIGHTS[0] * x


def test_what_a_function_uses_by_name_is_left_to_python_whatever_it_is() -> None:
    """An array has no one truth value: asked whether it is `abs`, it raised."""
    stream = plait.stream("t", unit="us")
    made = plait.custom("x", init=lambda: 0.0, add=weighted, type="float64")
    query = plait.aggregate(stream, size="10us", compute={"v": made})
    data = {"t": pa.table({"ts": range(30), "x": [0.1 * k for k in range(30)]})}
    with query.on_threads(schemas={"t": data["t"].schema}, keys=True) as run:
        run.push("t", None, data["t"])
        run.drain()
        assert difference(query.reference(data, keys=True), run.table()) is None
