"""Conditions on text, in batches on threads, against the reference: in aggregates, and on either side of a join."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same

import plait

COMMENTS = (
    "mail me: Ann.Lee@example.org", "ping 10.0.0.255 now", "no address", "", None, "ÉTÉ\n2024", "10.0.0.1", "ann.lee@example.org",
)  # fmt: skip
MAIL = r"\b[\w.]+@[\w.]+\.[a-z]{2,}\b"
ADDRESS = r"\b\d{1,3}(?:\.\d{1,3}){3}\b"
KINDS = (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))
S, T = (plait.stream(name, unit="us") for name in ("s", "t"))


def comments(rows: int, seed: int, kind: pa.DataType) -> pa.Table:
    dice = np.random.default_rng(seed)
    said = pa.array([COMMENTS[n] for n in dice.integers(0, len(COMMENTS), rows)])
    said = said.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else said.cast(kind)
    return pa.table({"ts": np.sort(dice.integers(0, 3 * rows, rows)), "k": dice.integers(0, 3, rows), "c": said})


COMPUTE = {
    "mails": plait.count_where(plait.text("c").ascii_lower().matches(MAIL)),
    "first_mail": plait.first_where("c", plait.text("c").matches(MAIL) & ~plait.text("c").starts_with("ann")),
    "addresses": plait.count_where(f"c rlike '{ADDRESS.replace(chr(92), chr(92) * 2)}' and k < 2"),
    "first_address": plait.first_where("k", lambda r: r.c.matches(ADDRESS) | (r.c.length() < 3)),
    "others": plait.count_where("c not like '%@%' and not contains(c, '.')"),
    "years": plait.count_where("c like '___\n20_4' or endswith(c, 'now')"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_aggregates(kind: pa.DataType) -> None:
    table = comments(300, 1, kind)
    query = plait.aggregate(S, size="60us", advance="25us", by="k", compute=COMPUTE)
    want = query.reference({"s": table}, keys=True)
    assert sum(want.column("mails").to_pylist()) > sum(want.column("years").to_pylist()) > 0
    with query.on_threads(schemas={"s": table.schema}, keys=True) as run:
        run.push("s", 0, table)
        run.drain()
        assert_same(run.table(), want)


@pytest.mark.parametrize("window", [("60us", "25us"), (7, 3)])
def test_text_in_views(window: tuple[Any, Any]) -> None:
    """Arrow takes no rows of views: they are kept in another type, and come out as they came."""
    table = comments(300, 1, pa.string_view())
    compute = COMPUTE | {
        "any": plait.first_where("c", "k > 0"), "last": plait.last("c"), "all": plait.collect("c"),
        "many": plait.distinct("c"), "most": plait.max("c"),
    }  # fmt: skip
    query = plait.aggregate(S, size=window[0], advance=window[1], by=["c", "k"], compute=compute)
    pairs = plait.join(S, T, on="l.k = r.k", within=2, how="left")
    for each in (query, plait.aggregate(S, size=window[0], advance=window[1], compute=compute), pairs):
        want = each.reference(dict.fromkeys(each.streams(), table), keys=True)
        with each.on_threads(schemas=dict.fromkeys(each.streams(), table.schema), keys=True) as run:
            for name in each.streams():
                run.push(name, 0, table)
            run.drain()
            assert_same(run.table(), want)


CONDITIONS: dict[str, Any] = {
    "filters": lambda l, r: l.c.matches(MAIL) & ~r.c.contains("@"),
    "keys": lambda l, r: l.c.ascii_lower() == r.c.ascii_lower(),
    "band": "abs(length(l.c) - length(r.c)) <= 1 and l.k <> r.k",
    "either": "l.c like '%now' or r.c rlike '^no' or l.c is null",
}


# Each has kernels of its own, compiled for some seconds: most of them only in the soak.
@pytest.mark.parametrize(
    "condition", ["keys", *(pytest.param(name, marks=pytest.mark.slow) for name in ("filters", "band", "either"))]
)
def test_joins(condition: str) -> None:
    tables = {"s": comments(120, 2, KINDS[0]), "t": comments(120, 3, KINDS[2])}
    query = plait.join(S, T, on=CONDITIONS[condition], within=6)
    want = query.reference(tables, keys=True)
    assert 0 < want.num_rows < 1000
    with query.on_threads(schemas={n: t.schema for n, t in tables.items()}, keys=True, plain=True, workers=2) as run:
        for at in range(0, 120, 40):
            for name, table in tables.items():
                run.push(name, 0, table.slice(at, 40))
        run.drain()
        assert_same(run.table(), want)
