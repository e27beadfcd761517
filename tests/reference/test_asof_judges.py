"""As-of as people know it: pandas' `merge_asof`, Polars' `join_asof` and DuckDB's ASOF judge it, each where it means the same.

Where one means something else docs/semantics.md has a line in its table, and a test here shows both answers.
"""

from __future__ import annotations

import itertools
import math
import random
import warnings
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import plait

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
DIRECTIONS = ("backward", "forward", "nearest")
Found = list[int | None]


def table(number: str, times: list[int], keys: list[Any]) -> pa.Table:
    """Rows in the order of their ts, numbered."""
    return pa.table({"ts": pa.array(times, pa.int64()), "k": pa.array(keys), number: list(range(len(times)))})


def drawn(seed: int, *, unique: bool) -> tuple[pa.Table, pa.Table]:
    """Two random tables; `unique`: no ts stands twice in the right one."""
    chance = random.Random(seed)
    span = chance.choice((60, 400))
    left = sorted(chance.randrange(span) for _ in range(150))
    right = (
        sorted(chance.sample(range(2 * span), min(120, span)))
        if unique
        else sorted(chance.randrange(span) for _ in left)
    )
    # `unique` has even times on the left, and odd and even ones on the right: many right tuples are as near as another.
    keys = [[chance.choice(("p", "q", "r")) for _ in times] for times in (left, right)]
    return table("n", [2 * ts for ts in left] if unique else left, keys[0]), table("m", right, keys[1])


def of_plait(left: pa.Table, right: pa.Table, **options: Any) -> Found:
    """For each left row the number of its partner."""
    made = plait.asof(A, B, by="k", **options).reference({"a": left, "b": right})
    found = dict(zip(made["n"].to_pylist(), made["m"].to_pylist(), strict=True))
    return [found[n] for n in range(len(left))]


def of_pandas(left: pa.Table, right: pa.Table, *, direction: str, exact: bool, within: int | None) -> Found:
    made = pd.merge_asof(left.to_pandas(), right.to_pandas(), on="ts", by="k", tolerance=within,
                         allow_exact_matches=exact, direction=direction)  # type: ignore[arg-type]  # fmt: skip
    return [None if math.isnan(m) else int(m) for m in made.sort_values("n")["m"]]


def of_polars(left: pa.Table, right: pa.Table, *, direction: str, exact: bool, within: int | None) -> Found:
    frames = [pl.from_arrow(each) for each in (left, right)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it can't check that groups are sorted
        made = frames[0].join_asof(frames[1], on="ts", by="k", strategy=direction, tolerance=within,
                                   allow_exact_matches=exact)  # type: ignore[union-attr, arg-type]  # fmt: skip
    return list(made.sort("n")["m"].to_list())


def of_duckdb(left: pa.Table, right: pa.Table, *, direction: str, exact: bool, within: int | None) -> Found:
    """It has no tolerance: what is too far away is taken back."""
    compares = {"backward": ">", "forward": "<"}[direction] + ("=" if exact else "")
    near = "true" if within is None else f"abs(l.ts - r.ts) <= {within}"
    rows = duckdb.sql(f"select n, case when {near} then m end from left_rows l asof left join right_rows r "
                      f"on l.k = r.k and l.ts {compares} r.ts order by n",
                      connection=_registered(left, right)).fetchall()  # fmt: skip
    return [m for _, m in rows]


def _registered(left: pa.Table, right: pa.Table) -> Any:
    duck = duckdb.connect()
    duck.register("left_rows", left)
    duck.register("right_rows", right)
    return duck


def cases(directions: tuple[str, ...]) -> list[tuple[str, bool, int | None]]:
    every = itertools.product(directions, (True, False), (None, 0, 1, 7))
    return [(d, e, w) for d, e, w in every if w is not None or d == "backward"]


@pytest.mark.crossed
@pytest.mark.parametrize(("direction", "exact", "within"), cases(DIRECTIONS))
def test_pandas(direction: str, exact: bool, within: int | None) -> None:
    options: dict[str, Any] = {"direction": direction, "exact": exact, "within": within}
    for seed in range(8):
        left, right = drawn(seed, unique=seed % 2 == 1)
        assert of_plait(left, right, **options) == of_pandas(left, right, **options)


@pytest.mark.parametrize(("direction", "exact", "within"), cases(("backward", "forward")))
def test_polars(direction: str, exact: bool, within: int | None) -> None:
    options: dict[str, Any] = {"direction": direction, "exact": exact, "within": within}
    for seed in range(8):
        left, right = drawn(seed, unique=seed % 2 == 1)
        assert of_plait(left, right, **options) == of_polars(left, right, **options)


@pytest.mark.parametrize("within", [0, 2, 30])
def test_polars_nearest(within: int) -> None:
    """Where no two right tuples are as near."""
    for seed in range(8):
        chance, (left, right) = random.Random(seed), drawn(seed, unique=True)
        # On the left multiples of 8, on the right those and one, two or three: no two are as near.
        apart = [8 * at + 1 + chance.randrange(3) for at in range(len(right))]
        right = right.set_column(0, "ts", pa.array(apart, pa.int64()))
        left = left.set_column(0, "ts", pa.array([8 * (ts // 2) for ts in left["ts"].to_pylist()], pa.int64()))
        options: dict[str, Any] = {"direction": "nearest", "exact": True, "within": within}
        assert of_plait(left, right, **options) == of_polars(left, right, **options)


@pytest.mark.crossed
@pytest.mark.parametrize(("direction", "exact", "within"), cases(("backward", "forward")))
def test_duckdb(direction: str, exact: bool, within: int | None) -> None:
    """Where no ts stands twice on the right: of several it takes any."""
    options: dict[str, Any] = {"direction": direction, "exact": exact, "within": within}
    for seed in range(8):
        left, right = drawn(seed, unique=True)
        assert of_plait(left, right, **options) == of_duckdb(left, right, **options)


# --- where they differ: the table in docs/semantics.md --------------------------------------------------------------

NEAR: dict[str, Any] = {"direction": "nearest", "exact": True, "within": 9}
BACK: dict[str, Any] = {"direction": "backward", "exact": True, "within": None}


def test_two_that_are_as_near() -> None:
    left, right = table("n", [5], ["p"]), table("m", [3, 7], ["p", "p"])
    assert of_plait(left, right, **NEAR) == of_pandas(left, right, **NEAR) == [0]
    assert of_polars(left, right, **NEAR) == [1]


def test_several_ahead_at_one_ts() -> None:
    left, right = table("n", [5], ["p"]), table("m", [6, 6], ["p", "p"])
    assert of_plait(left, right, **NEAR) == of_pandas(left, right, **NEAR) == [0]
    assert of_polars(left, right, **NEAR) == [1]


def test_null_as_a_key() -> None:
    left, right = table("n", [5, 5], ["p", None]), table("m", [3, 3], ["p", None])
    assert (
        of_plait(left, right, **BACK) == of_polars(left, right, **BACK) == of_duckdb(left, right, **BACK) == [0, None]
    )
    assert of_pandas(left, right, **BACK) == [0, 1]


def test_nan_as_a_key() -> None:
    left, right = table("n", [5], [math.nan]), table("m", [3], [math.nan])
    assert of_plait(left, right, **BACK) == [None]
    assert of_pandas(left, right, **BACK) == of_polars(left, right, **BACK) == of_duckdb(left, right, **BACK) == [0]


def test_a_table_joined_with_itself() -> None:
    rows = table("n", [3, 5], ["p", "p"])
    other = rows.rename_columns(["ts", "k", "m"])
    assert of_pandas(rows, other, **BACK) == of_polars(rows, other, **BACK) == of_duckdb(rows, other, **BACK) == [0, 1]
    assert of_plait(rows, other, **BACK) == [0, 1]  # two streams of equal rows are two streams
    assert plait.asof(A, A, by="k").reference({"a": rows})["right_n"].to_pylist() == [None, 0]
