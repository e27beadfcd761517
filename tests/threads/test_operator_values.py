"""Users' operators at the ends of types: a compiled call gives what Python would give, or it is undone and Python makes it.

Many small expressions, each at every pair of values from the ends of the types, over columns and states: threads, compiled
and plain, against the reference, to the byte; and where Python raises, the same error.
"""

from __future__ import annotations

import importlib.util
import math
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import SOAK

import plait
from plait.core.aggregate.lists import checked
from plait.errors import PlaitError
from plait.query.identical import difference

SEED = 1414
INTS = [
    "a + b", "a - b", "a * b", "a // b", "a % b", "a ** 3", "2 ** (b & 63)", "a << (b & 63)", "a >> (b & 63)", "-a", "~a", "+b",
    "abs(a)", "abs(a - b)", "a & b", "a | b", "a ^ b", "min(a, b)", "max(a, b, 3)", "int(x)", "int(c)", "math.floor(x)",
    "math.ceil(y)", "math.trunc(x)", "a if c else b", "s[0] + a", "s[1] * b", "s[0] - s[1]", "-s[0]", "abs(s[1])", "s[0] // b",
    "s[1] % a", "s[0] + 1", "s[0] << 1", "1 if a < x else 0", "1 if s[0] == y else 0", "1 if a / 7 > x else 0",
    "1 if a in (1, 2, -1) else 0", "1 if a < b <= 7 else 0", "(a or b)", "a * a - b * b", "int(a / b)", "s[b]", "s[-1]",
    "t.ts * a",
]  # fmt: skip
FLOATS = [
    "x + y", "x - y", "x * y", "x / y", "-x", "abs(x)", "min(x, y)", "max(y, x)", "min(x, y, 0.0)", "math.sqrt(x)",
    "math.sqrt(a)", "float(a)", "a / b", "a + x", "x * b", "x / b", "a / y", "math.fabs(y)", "math.inf - x", "x if x < a else y",
    "x or y", "x and y", "float(s[0])", "s[0] / b", "s[1] * x", "x / s[0]",
]  # fmt: skip
BOOLS = [
    "a < b", "a == b", "a < x", "a >= y", "x == y", "x != x", "x < y", "math.isnan(x)", "math.isinf(y)", "math.isfinite(x)",
    "c and a > 0", "c or x > 0", "not a", "not x", "bool(x)", "c ^ (a > b)", "c == (x < y)", "s[0] > a", "s[0] == x", "s[1] < y",
    "t.stream == 's'", "a is None", "a not in (5, 127)", "not (x < y)", "a <= b < 100",
]  # fmt: skip
EXPRESSIONS = [("i", e) for e in INTS] + [("f", e) for e in FLOATS] + [("z", e) for e in BOOLS]
NAMES = ("a", "b", "x", "y", "c")


def operators(folder: Path) -> Any:
    """A module with an operator that computes the expression which a tuple names."""
    lines = ["import math", "import numpy as np", "import plait", "", "def state():", "    return np.array([7, -3], np.int64)",
             "", "def route(t):", "    return t.op % 2"]  # fmt: skip
    lines += [
        "",
        "def process(s, t):",
        *(f"    {n} = t.{n}" for n in NAMES),
        "    if t.set:",
        "        s[0], s[1] = a, b",
    ]
    lines += ["    i, f, z = 0, 0.0, False"]
    for k, (name, expression) in enumerate(EXPRESSIONS):
        lines += [f"    if t.op == {k}:", f"        {name} = {expression}"]
    lines += ["    yield (t.op, i, f, z)"]
    path = folder / "made_operators.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("made_operators", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def query(module: Any) -> Any:
    return plait.operator(
        plait.stream("s", unit="us"), buckets=2, route=module.route, state=module.state,
        process=module.process, output={"op": "int64", "i": "int64", "f": "float64", "z": "bool"},
    )  # fmt: skip


def ends(kind: Any, dice: random.Random) -> list[int]:
    info = np.iinfo(kind.to_pandas_dtype())
    found = {info.min, info.min + 1, -1, 0, 1, 2, 7, 63, info.max - 1, info.max, dice.randint(info.min, info.max)}
    found |= {
        v
        for v in (2**31, -(2**31), 2**32, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 3037000500)
        if info.min <= v <= info.max
    }
    return sorted(v for v in found if info.min <= v)


def rows(count: int, kind: pa.DataType, dice: random.Random) -> pa.Table:
    whole = ends(kind, dice)
    real = [
        0.0,
        -0.0,
        1.5,
        -7.25,
        math.inf,
        -math.inf,
        math.nan,
        2.0**53,
        2.0**63,
        -(2.0**63),
        1e308,
        5e-324,
        0.1,
        -1.0,
    ]
    n = count * (20 if SOAK else 12)
    made = {
        "op": [k % count for k in range(n)], "a": dice.choices(whole, k=n), "b": dice.choices(whole, k=n),
        "x": [0.0] * n, "y": dice.choices(real, k=n), "c": dice.choices([True, False], k=n),
        "set": [dice.random() < 0.5 for _ in range(n)],
    }  # fmt: skip
    # Integers meet the floats next to them, where one that is rounded can be told.
    made["x"] = [float(a) if dice.random() < 0.3 else dice.choice(real) for a in made["a"]]
    types = {
        "op": pa.int32(),
        "a": kind,
        "b": kind,
        "x": pa.float64(),
        "y": pa.float64(),
        "c": pa.bool_(),
        "set": pa.bool_(),
    }
    return pa.table({"ts": list(range(n)), **{name: pa.array(v, types[name]) for name, v in made.items()}})


def without_errors(query: Any, table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """The rows at which Python does not raise; and some at which it does, each alone."""
    kept, failing = [], {}
    for at in range(len(table)):
        one = table.slice(at, 1)
        try:
            row = one.to_pylist()[0] | {"stream": "s"}
            state = np.array([7, -3], np.int64)
            out = list(query.process(state, type("Row", (), row)()))
            for values, field in zip(zip(*out, strict=True), query.output, strict=True):
                checked(list(values), field.type, "it")
            kept.append(at)
        except Exception as error:
            failing.setdefault((row["op"], type(error)), one)
    return table.take(kept), list(failing.values())


def told(call: Any) -> Any:
    try:
        return call()
    except PlaitError as error:
        return f"{type(error).__name__}: {error}"


def run(query: Any, table: pa.Table, **options: Any) -> tuple[pa.Table, str]:
    with query.on_threads(schemas={"s": table.schema}, keys=True, **options) as run:
        for at in range(0, len(table), 97):
            run.push("s", None, table.slice(at, 97))
        run.drain()
        return run.table(), run.explain()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return operators(tmp_path_factory.mktemp("operators"))


@pytest.mark.sampled
def test_every_step_is_pythons_at_the_ends_of_types(made: Any) -> None:
    dice, q, count = random.Random(SEED), query(made), len(EXPRESSIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's own, of the state's numbers
        for column in (pa.int64(), pa.int8(), pa.uint32()):
            table, failing = without_errors(q, rows(count, column, dice))
            assert len(table) > (10 if SOAK else 6) * count
            got, said = run(q, table)
            assert "functions are compiled" in said
            assert difference(q.reference({"s": table}, keys=True), got) is None
            for one in failing:
                expected = told(lambda one=one: q.reference({"s": one}))
                assert isinstance(expected, str)
                assert told(lambda one=one: run(q, one)) == expected


# --- what a call leaves behind -------------------------------------------------------------------------------------


def halfway(s, t):
    """Writes, yields and sets a timer before it comes to what machine code can't do."""
    s[0] += 1
    yield (s[0], 0)
    yield plait.timer(t.ts + 3)
    s[1] = t.a
    big = t.a * 3
    if t.stream == "s" and t.only > 0 and big > 0:
        yield (s[1], big // 5 % 1000)


def later(s, at):
    for k in range(len(s)):
        if s[k] * 2 < 0:
            s[k] = 1
    yield (s[0], at)
    if s[1] % 7 == 0:
        yield plait.timer(at + s[1] // (2**60) + 1)


def by_product(t):
    return t.a * 5 % 3


def two_numbers():
    return np.zeros(2, np.int64)


def test_a_call_that_is_undone_leaves_nothing_behind() -> None:
    streams = [plait.stream("s", unit="us"), plait.stream("u", unit="us")]
    given = {"state": two_numbers, "process": halfway, "on_timer": later, "output": {"n": "int64", "v": "int64"}}
    q = plait.operator(streams, buckets=3, route=by_product, **given)
    dice = random.Random(SEED)
    values = dice.choices([0, 1, 7, 2**60 * 7, 2**62, 2**63 - 1, -(2**63), 49], k=400)
    a = pa.array(values, pa.int64())
    data = {"s": pa.table({"ts": range(400), "a": a, "only": a}), "u": pa.table({"ts": range(400), "a": a})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = q.reference(data, keys=True)
        for options in ({}, {"elastic": 3, "batch": 16}):
            with q.on_threads(schemas={n: t.schema for n, t in data.items()}, keys=True, **options) as run:
                for at in range(0, 400, 80):
                    for name, table in data.items():
                        run.push(name, None, table.slice(at, 80))
                run.drain()
                got = run.table()
                assert "made by Python" in run.explain()
            assert difference(expected, got) is None


def unbound(s, t):
    if t.a > 0:
        x = 1
    yield (x, 0)


def two_kinds(s, t):
    x = 0
    if t.a > 0:
        x = 0.5
    yield (int(x), 0)


def power(s, t):
    yield (int((t.a / 3) ** 2), 0)


def remainder(s, t):
    yield (int(t.a / 3 % 2), 0)


def logarithm(s, t):
    yield (int(math.log(t.a)), 0)


def whole_state(s, t):
    s[:] = 0
    yield (0, 0)


def truths(s, t):
    yield ((t.a > 0) + (t.a > 1), 0)


def nothing_raised(s, t):
    yield (0, 0)


@pytest.mark.parametrize(
    ("process", "state", "why"),
    [
        (unbound, two_numbers, "may read 'x' before it has a value"),
        (two_kinds, two_numbers, "has 'x' as int here and float there"),
        (power, two_numbers, "takes Pow of float and int"),
        (remainder, two_numbers, "takes Mod of float and int"),
        (logarithm, two_numbers, "calls math.log of int"),
        (whole_state, two_numbers, "takes a slice of the state"),
        (truths, two_numbers, "takes Add of bool and bool"),
        (nothing_raised, lambda: np.zeros(2, np.int8), "an array of int8"),
        (nothing_raised, lambda: np.zeros(2, np.float32), "an array of float32"),
        (nothing_raised, lambda: np.zeros(2, np.uint64), "an array of uint64"),
    ],
)
def test_what_machine_code_has_no_step_for_is_left_to_python(process: Any, state: Any, why: str) -> None:
    q = plait.operator(plait.stream("s", unit="us"), buckets=3, route=by_product, state=state, process=process,
                       output={"n": "int64", "v": "int64"})  # fmt: skip
    with q.on_threads(schemas={"s": pa.schema([("ts", pa.int64()), ("a", pa.int64())])}) as run:
        assert f"in plain Python: {'' if 'array' in why else 'process '}" in run.explain()
        assert why in run.explain()
