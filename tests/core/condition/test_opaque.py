"""Functions that do not trace: compiled where that is proven to change nothing, else called as they are."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.core.join.brute import expected, merged, processed

from plait.core.condition.leaves import shape
from plait.core.condition.opaque import cannot_fail
from plait.core.join.window import JoinWindow
from plait.errors import RunError
from plait.query.condition.predicate import Predicate, predicate
from plait.query.join import CountWindow
from plait.reference.condition import condition
from plait.reference.rows import Row, values_of

SCHEMA = pa.schema(
    [("x", pa.int32()), ("u", pa.uint64()), ("y", pa.float32()), ("b", pa.bool_()), ("s", pa.string()),
     ("z", pa.binary()), ("t", pa.timestamp("us", tz="UTC"))]
)  # fmt: skip

LIMIT = 3
NAME = "a"
WEIGHTS = np.array([0.5, 2.0])


def bound(on: Any) -> Predicate:
    made = predicate(on, ("quotes", "trades"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)
    assert made.kind == "opaque"
    return made


def batch(seed: int, n: int = 24) -> pa.RecordBatch:
    source = random.Random(seed)
    pools: list[list[Any]] = [
        [0, 1, 2, 5, -4, None], [0, 3, 2**63, 2**64 - 1, None], [0.0, 0.1, 2.5, math.nan, None], [True, False, None],
        ["a", "b", "", None], [b"a", None], [0, 1_000_000, None],
    ]  # fmt: skip
    columns = [[source.choice(pool) for _ in range(n)] for pool in pools]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def weighted(value: float) -> float:
    return value * WEIGHTS[1] + math.sqrt(abs(value))


def _branch(l: Any, r: Any) -> Any:
    if l.x > LIMIT:
        return r.x > LIMIT
    return abs(l.x - r.x) <= 1


def _loop(l: Any, r: Any) -> Any:
    total = 0
    for k in range(abs(l.x)):
        total += k * r.x
    return total % 2 == 1 or l.b


def _text(l: Any, r: Any) -> Any:
    return (l.s == NAME and r["s"] != "b") or l["s"] == r.s


def _helpers(l: Any, r: Any) -> Any:
    return weighted(l.y) < r.y + 1 and not r.b


def _unsigned(l: Any, r: Any) -> Any:
    return (l.u >= 3 and l.u == r.u) or r.t > 5


def _nothing(l: Any, r: Any) -> Any:
    if l.x == r.x:
        return True
    return None


def _closure(limit: float) -> Callable[[Any, Any], Any]:
    def near(l: Any, r: Any) -> Any:
        return l.y - r.y < limit and l.x in (0, 1, 2)

    return near


FUNCTIONS = [_branch, _loop, _text, _helpers, _unsigned, _nothing, _closure(0.5)]


@pytest.mark.parametrize("on", FUNCTIONS, ids=lambda f: f.__name__)
def test_opaque_functions_give_the_references_pairs(on: Any) -> None:
    made = bound(on)
    left, right = batch(1), batch(2)
    matches = condition(made, SCHEMA, SCHEMA)
    rows = [[Row(0, (), v) for v in values_of(b)] for b in (left, right)]
    interleaved = merged(list(range(24)), list(range(24)), left, right)
    # Where one side comes first only the other probes, and half as much is compiled.
    left_first = merged([-1] * 24, list(range(24)), left, right)
    for run, plain in ((interleaved, True), (left_first, False)):
        truth = expected(run, CountWindow(10), lambda l, r: matches(rows[0][l], rows[1][r]))
        assert len(truth) > 0
        assert processed(JoinWindow(made, SCHEMA, SCHEMA, CountWindow(10), plain=plain), run, [7]) == truth, plain


def test_only_functions_that_cannot_fail_are_called_on_other_pairs() -> None:
    may = {f.__name__: cannot_fail(shape(bound(f), SCHEMA, SCHEMA)) for f in FUNCTIONS}
    assert may["_branch"]
    assert not any(may[name] for name in ("_loop", "_helpers", "near"))


def test_a_division_is_not_called_on_null_and_its_error_stops_the_run() -> None:
    def ratio(l: Any, r: Any) -> Any:
        return 10 / l.x > 2 or r.b

    def column(values: list[int | None]) -> pa.RecordBatch:
        n = len(values)
        arrays = [pa.nulls(n, f.type) for f in SCHEMA]
        arrays[0], arrays[3] = pa.array(values, pa.int32()), pa.array([True] * n)
        return pa.record_batch(arrays, schema=SCHEMA)

    def run(values: list[int | None]) -> int:
        join = JoinWindow(bound(ratio), SCHEMA, SCHEMA, CountWindow(10))
        rows = column(values)
        n = len(values)
        side = np.repeat(np.array([0, 1], np.uint8), n)
        return len(join.process(side, (rows, rows), (np.arange(n), np.arange(n))))

    assert run([None, 1, 20, None]) == 8  # a NULL's slot holds 0, and is not divided by
    with pytest.raises(RunError, match=r"'ratio' .*test_opaque\.py, line \d+.* raised ZeroDivisionError"):
        run([1, 0])


# --- what is not compiled: README says «any Python function» -----------------------------------------------------


def _library(l: Any, r: Any) -> Any:
    text = str(l.x)
    return json.loads(text) == 3 or r.b


def _random(l: Any, r: Any) -> Any:
    return l.x > 0 and random.Random(l.x).randrange(3) == r.x


def _upper(l: Any, r: Any) -> Any:
    return l.x > 0 and r.s.upper() == "A"


class Thing:
    def holds(self, x: int) -> bool:
        return x > 1

    def near(self, l: Any, r: Any) -> Any:
        return l.x > 0 and self.holds(r.x)


THING = Thing()


def _object(l: Any, r: Any) -> Any:
    return l.x > 0 and THING.holds(r.x)


def _bytes(l: Any, r: Any) -> Any:
    return l.x > 0 and l.z == r.z


def _itself(l: Any, r: Any) -> Any:
    return l.x > 0 and _countdown(r.x) == 0


def _countdown(n: int) -> int:
    return 0 if n <= 0 else _countdown(n - 1)


def _caught(l: Any, r: Any) -> Any:
    try:
        return l.x > 0 and 10 // r.x == 5
    except ZeroDivisionError:
        return r.b


def _listed(l: Any, r: Any) -> Any:
    return l.s in ["a", "b"] and [r.x, l.x] == sorted([r.x, l.x])


CALLED = [_library, _random, _upper, _object, _bytes, _itself, _caught, _listed, THING.near]


@pytest.mark.parametrize("on", CALLED, ids=lambda f: f.__name__)
def test_what_is_not_proven_is_called_as_it_is_and_said_to_be(on: Any) -> None:
    made, left, right = bound(on), batch(1), batch(2)
    matches = condition(made, SCHEMA, SCHEMA)
    rows = [[Row(0, (), v) for v in values_of(b)] for b in (left, right)]
    run = merged(list(range(24)), list(range(24)), left, right)
    truth = expected(run, CountWindow(10), lambda l, r: matches(rows[0][l], rows[1][r]))
    assert len(truth) > 0
    join = JoinWindow(made, SCHEMA, SCHEMA, CountWindow(10))
    assert processed(join, run, [7]) == truth
    assert [line for line in join.describe() if line.startswith("pairs are judged by Python: ")], join.describe()


def test_a_function_that_is_called_is_not_called_on_null_and_its_error_is_plaits() -> None:
    def odd(l: Any, r: Any) -> Any:
        return len(l.s) > 0 and int(r.s) == 1

    def run(left: list[str | None], right: list[str | None]) -> int:
        arrays = [[pa.nulls(len(v), f.type) for f in SCHEMA] for v in (left, right)]
        for side, values in zip(arrays, (left, right), strict=True):
            side[SCHEMA.get_field_index("s")] = pa.array(values, pa.string())
        batches = tuple(pa.record_batch(side, schema=SCHEMA) for side in arrays)
        join = JoinWindow(bound(odd), SCHEMA, SCHEMA, CountWindow(10))
        side = np.repeat(np.array([0, 1], np.uint8), [len(left), len(right)])
        return len(join.process(side, batches, (np.arange(len(left)), np.arange(len(right)))))  # type: ignore[arg-type]

    assert run(["x", None], [None, "1", "2"]) == 1
    with pytest.raises(RunError, match=r"'odd' .*test_opaque\.py, line \d+.* raised ValueError: invalid literal"):
        run(["x"], ["y"])
