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

import plait
from plait.errors import PlaitError
from plait.query.identical import difference
from plait.windows.pane_lists import checked

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
NAMES = ("a", "b", "x", "y", "c")


def operators(folder: Path) -> Any:
    """A module with three operators: of integers, of floats, of truth values."""
    lines = ["import math", "import numpy as np", "import plait", "", "def state():", "    return np.array([7, -3], np.int64)",
             "", "def route(t):", "    return t.op % 2"]  # fmt: skip
    for name, zero, expressions in (("ints", 0, INTS), ("floats", 0.0, FLOATS), ("bools", False, BOOLS)):
        lines += ["", f"def {name}(s, t):", *(f"    {n} = t.{n}" for n in NAMES), "    if t.set:", "        s[0], s[1] = a, b"]
        lines += [f"    v = {zero}"]
        lines += [line for k, e in enumerate(expressions) for line in (f"    if t.op == {k}:", f"        v = {e}")]
        lines += ["    yield (t.op, v)"]
    path = folder / "made_operators.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("made_operators", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def query(module: Any, name: str, kind: str) -> Any:
    return plait.operator(
        plait.stream("s", unit="us"), buckets=2, route=module.route, state=module.state,
        process=getattr(module, name), output={"op": "int64", "v": kind},
    )  # fmt: skip


def ends(kind: Any, dice: random.Random) -> list[int]:
    info = np.iinfo(kind.to_pandas_dtype())
    found = {info.min, info.min + 1, -1, 0, 1, 2, 7, 63, info.max - 1, info.max, dice.randint(info.min, info.max)}
    found |= {v for v in (2**31, -(2**31), 2**32, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 3037000500) if info.min <= v <= info.max}
    return sorted(v for v in found if info.min <= v)


def rows(count: int, kind: pa.DataType, dice: random.Random) -> pa.Table:
    whole = ends(kind, dice)
    real = [0.0, -0.0, 1.5, -7.25, math.inf, -math.inf, math.nan, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324, 0.1, -1.0]
    n = count * 40
    made = {
        "op": [k % count for k in range(n)], "a": dice.choices(whole, k=n), "b": dice.choices(whole, k=n),
        "x": dice.choices(real, k=n), "y": dice.choices(real, k=n), "c": dice.choices([True, False], k=n),
        "set": [dice.random() < 0.5 for _ in range(n)],
    }  # fmt: skip
    types = {"op": pa.int32(), "a": kind, "b": kind, "x": pa.float64(), "y": pa.float64(), "c": pa.bool_(), "set": pa.bool_()}
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
            checked([v for _, v in out], query.output.field("v").type, "it")
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


CASES = [("ints", "int64", INTS), ("floats", "float64", FLOATS), ("bools", "bool", BOOLS)]


@pytest.mark.parametrize(("name", "kind", "expressions"), CASES, ids=[c[0] for c in CASES])
def test_every_step_is_pythons_at_the_ends_of_types(made: Any, name: str, kind: str, expressions: list[str]) -> None:
    dice, q = random.Random(SEED), query(made, name, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's own, of the state's numbers
        for column in (pa.int64(), pa.int8(), pa.uint32()):
            table, failing = without_errors(q, rows(len(expressions), column, dice))
            assert len(table) > 20 * len(expressions)
            got, said = run(q, table)
            assert "functions are compiled" in said
            assert difference(q.reference({"s": table}, keys=True), got) is None
            for one in failing:
                expected = told(lambda one=one: q.reference({"s": one}))
                assert isinstance(expected, str)
                assert told(lambda one=one: run(q, one)) == expected
