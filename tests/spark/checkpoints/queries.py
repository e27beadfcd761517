"""A small query of each kind, with rows for it. Their checkpoints stand beside this file, made by `make`.

Don't edit a query or its rows: the checkpoint in the archive is of the query as it is here. Add another one.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

import plait

SCHEMA = "ts long, n long, src long, x long"

A = plait.stream("a", unit="us", source="src", sources=[0, 1], seq="n", disorder=2)
B = plait.stream("b", unit="us", seq="n")
LINES_A, LINES_B = plait.stream("a", unit="us", disorder=2), plait.stream("b", unit="us")
NEAR = plait.join(A, B, on="abs(l.x - r.x) <= 1", within=9, how="left", name="near")
COMPUTE = {"n": plait.count(), "mean": plait.mean("x"), "first": plait.first("x"), "kinds": plait.distinct("x")}


class Run:
    """A bucket's state: tuples seen, and the last ones as they came."""

    def __init__(self) -> None:
        self.seen = 0
        self.last: list[Any] = []


def route(t: Any) -> Any:
    return plait.ALL if t.x == 0 else t.x % 5


def process(run: Run, t: Any) -> Any:
    run.seen += 1
    run.last = [*run.last, t][-3:]
    if run.seen % 4 == 1:
        yield plait.timer(t.ts + 6)
    yield {"n": run.seen, "xs": [old.x for old in run.last]}


def ring(run: Run, at: int) -> Any:
    yield {"n": -run.seen, "xs": [at]}


TIMED = plait.operator(
    [A, B], buckets=5, route=route, state=Run, process=process, on_timer=ring,
    output={"n": "int64", "xs": pa.list_(pa.int64())},
)  # fmt: skip

QUERIES: dict[str, Any] = {
    "time-join": plait.join(A, B, on="abs(l.x - r.x) <= 1", within=9),
    "left-join": NEAR,
    "count-join": plait.join(A, B, on="l.x = r.x", last=12),
    "as-of": plait.asof(A, B, by="x", within="9us", exact=False),  # what as-of was when the archive was made
    "span-aggregate": plait.aggregate(A, size="12us", advance="5us", by="x", compute=COMPUTE),
    "counted-aggregate": plait.aggregate(A, size=4, advance=3, by="x", compute=COMPUTE),
    "operator": TIMED,
    "by-position": plait.join(LINES_A, LINES_B, on="abs(l.x - r.x) <= 1", within=9),
    "full-join": plait.join(A, B, on="l.x = r.x", within=(9, 4), how="full"),
    "dedup": plait.dedup(A, by="x", within=9),
    "anti-join": plait.join(A, B, on="l.x = r.x", within=3, how="anti"),
    "semi-join": plait.join(A, B, on="l.x = r.x", within=3, how="semi"),
    "right-join": plait.join(A, B, on="abs(l.x - r.x) <= 1", within=2, how="right"),
    "band-join": plait.join(A, B, on="abs(l.x - r.x) <= 1", within=9),
    "tumbling-join": plait.join(A, B, on="l.x = r.x", tumbling_count=7),
    "nearest": plait.asof(A, B, by="x", within="4us", direction="nearest"),
    "session-aggregate": plait.aggregate(
        A, session="3us", by="x", compute={"n": plait.count(), "m": plait.median("n")}
    ),
    "exact-aggregate": plait.aggregate(
        A,
        size="12us",
        advance="4us",
        by="x",
        compute={"s": plait.std("n"), "top": plait.top("n", 2, "ts"), "some": plait.sum("n", where="n > 9")},
    ),
    "rows-aggregate": plait.aggregate(
        A.where("x > 1").select(y="x * 2", n="n"),
        size="10us",
        by="y",
        compute={"n": plait.count(), "at": plait.max("n")},
    ),
    "union": plait.union(A.select(n="n", y="x"), B.select(n="n", y="x + 10")),
    "dag": plait.aggregate(NEAR, size="10us", by="a_x", compute={"n": plait.count(), "last": plait.last("b_x")}),
}

#: How the cells of a query are laid out, if not as rows and columns: a card tells such layouts in full.
LAYOUTS: dict[str, Any] = {"band-join": "band", "right-join": (1, 2)}

#: A query whose rows are ordered by their files has the files' paths in its state, so these lie in the same folder always.
FIXED = {"by-position": "/tmp/plait-checkpoint-by-position"}

#: How many rows of each stream come before the stop, and with those after it.
BEFORE, ALL = 40, 70


def rows() -> dict[str, pa.Table]:
    """Of each stream; those after `BEFORE` come when the checkpoint is resumed."""
    chance = random.Random(20_261_116)
    found = {}
    for name in "ab":
        times = sorted(chance.randrange(ALL) for _ in range(ALL))
        found[name] = pa.table({
            "ts": pa.array(times, pa.int64()),
            "n": pa.array(range(ALL), pa.int64()),
            "src": pa.array([0, 1, *(chance.randrange(2) for _ in range(ALL - 2))], pa.int64()),
            "x": pa.array([chance.randrange(6) for _ in range(ALL)], pa.int64()),
        })  # fmt: skip
    return found
