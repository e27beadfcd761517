"""`where`, `select` and `union` by DuckDB: the same words, on random rows; integers that fit, and no NaN."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest
from tests.examples import examples

import plait

SEEDS = range(examples(12))
TERMS = (
    "k + i",
    "k - 2 * i",
    "abs(k)",
    "i % 3",
    "k > i",
    "k = 1 or i > 0",
    "least(k, i)",
    "greatest(k, 0)",
    "x * 2 + k",
    "-x",
    "length(s)",
)
WHERES = (
    "k > i",
    "k <> 1",
    "s = 'a' or k is null",
    "not (i between 0 and 2)",
    "x < 0.5 and k in (0, 1, 2)",
    "s like 'a%'",
)


def table(chance: random.Random, rows: int) -> pa.Table:
    def column(values: tuple[object, ...]) -> list[object]:
        return [chance.choice((*values, None)) for _ in range(rows)]

    return pa.table({
        "ts": pa.array(sorted(chance.randrange(20) for _ in range(rows)), pa.int64()),
        "k": pa.array(column((-1, 0, 1, 2, 3)), pa.int64()), "i": pa.array(column((-2, 0, 1, 4)), pa.int32()),
        "x": pa.array(column((-0.5, 0.0, 0.25, 3.0)), pa.float64()), "s": pa.array(column(("a", "ab", "", "b")), pa.string()),
    })  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_duckdb_says_the_same(seed: int) -> None:
    chance = random.Random(seed)
    a, b = table(chance, 30), table(chance, 20)
    one, other = chance.choice(WHERES), chance.choice(WHERES)
    terms = {f"z{n}": term for n, term in enumerate(chance.sample(TERMS, 3))}
    s, r = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.union(s.where(one).select("k", **terms), r.select("k", **terms).where("k >= 0"))
    columns = ", ".join(f"{term} as {name}" for name, term in terms.items())
    text = f"""
        select ts, k, {", ".join(terms)} from (
            select ts, 0 as input, n, k, {columns} from numbered_a where {one}
            union all select ts, 1, n, k, {columns} from numbered_b where k >= 0)
        order by ts, input, n"""
    # Places by Python: DuckDB has no order of its own.
    numbered_a, numbered_b = (each.append_column("n", pa.array(range(len(each)))) for each in (a, b))
    expected = duckdb.sql(text).fetchall()
    assert (len(numbered_a), len(numbered_b)) == (30, 20)
    for run in (query.reference, query.run):
        assert [tuple(row.values()) for row in run({"a": a, "b": b}).to_pylist()] == expected, (one, other, terms)
