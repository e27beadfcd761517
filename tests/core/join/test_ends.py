"""The short form of `ends`: conditions at the ends of types, on threads and in Spark's cells, as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.core.join.ends import check

import plait

S = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
ENDS = [1, 2**63 - 1, -(2**63), 5, -1, 0]


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_conditions_at_the_ends_of_types(first: int) -> None:
    assert [line for seed in range(first, first + 10) for line in check(seed)] == []


def band(l: Any, r: Any) -> Any:
    return abs(l.k - r.k) <= 5


def opaque(l: Any, r: Any) -> Any:
    return l.k - r.k < 7 and True


@pytest.mark.parametrize(
    ("on", "options"),
    [(band, {"workers": 1}), (band, {"workers": 2, "elastic": 2}), (opaque, {"workers": 1})],
    ids=["band", "band, elastic", "opaque"],
)
def test_a_kernel_gives_way_to_python_when_large_values_come(on: Any, options: Any) -> None:
    """Small values come first, and are judged by machine code that would wrap around for those that follow."""
    query = plait.join(plait.stream("u", unit="us"), plait.stream("v", unit="us"), on=on, within=10)
    tables = [pa.table({"ts": range(12), "k": [1, 2, 3, 4, 5, 6, *values]}, S) for values in (ENDS, ENDS[::-1])]
    wanted = query.reference(dict(zip("uv", tables, strict=True)))
    with query.on_threads(schemas={"u": S, "v": S}, **options) as run:
        for at in range(0, 12, 3):
            for name, table in zip("uv", tables, strict=True):
                run.push(name, None, table.slice(at, 3))
            said = "judged by Python" in run.explain()
            assert said == (at >= 6), run.explain()
        run.drain()
        assert run.table().equals(wanted)


def test_columns_are_widened_again_after_they_hold_what_no_word_holds() -> None:
    """A NULL that comes after integers beyond 64 bits must not take their codes for values."""
    query = plait.join(
        plait.stream("u", unit="us"), plait.stream("v", unit="us"),
        on=lambda l, r: (l.k * 2**62 == r.k * 2**62) | (l.m == r.m), within=100,
    )  # fmt: skip
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("m", pa.int32())])
    table = pa.table({"ts": range(6), "k": [1, 2**40, 3, 2**40, -7, 5], "m": [1, 2, 3, None, 2**31 - 1, None]}, schema)
    wanted = query.reference({"u": table, "v": table})
    with query.on_threads(schemas={"u": schema, "v": schema}, workers=1, plain=True) as run:
        for at in range(6):
            run.push("u", None, table.slice(at, 1))
            run.push("v", None, table.slice(at, 1))
        run.drain()
        assert run.table().equals(wanted)


def test_integers_beyond_64_bits_are_kept_as_long_as_the_window_holds_them() -> None:
    query = plait.join(
        plait.stream("u", unit="us"), plait.stream("v", unit="us"),
        on=lambda l, r: l.k * 2**62 == r.k * 2**62, within=10,
    )  # fmt: skip
    n = 20_000
    with query.on_threads(workers=1, schemas={"u": S, "v": S}) as run:
        for i in range(16):
            ts = np.arange(i * n, i * n + n)
            for name, off in (("u", 0), ("v", 10**9)):
                run.push(name, None, pa.table({"ts": ts, "k": ts + off}, S))
            # Rows are given up in batches of 65,536 a side, when the worker has done with them; 640,000 values come.
            for _ in range(2000):
                list(run.results(timeout_s=0.01))
                if len(run._engine.encoder.exact.values) < 330_000:  # type: ignore[union-attr]
                    break
            else:
                pytest.fail(f"{len(run._engine.encoder.exact.values)} values are kept")  # type: ignore[union-attr]
