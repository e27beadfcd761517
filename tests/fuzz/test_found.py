"""What the fuzzer has found, small: each is mended, and stands here so that it stays so."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.fuzz import runner
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw

import plait
from plait.query.identical import KEY, difference

#: The ends of every type of days, moments and spans; Python's own hold none of them.
MOMENTS = {
    "date32": pa.array([-(2**31), 0, 2**31 - 1], pa.int32()).view(pa.date32()),
    "timestamp": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()).view(pa.timestamp("us", "UTC")),
    "timestamp s": pa.array([-(2**62), 0, 2**62], pa.int64()).view(pa.timestamp("s")),
    "duration": pa.array([-(2**63), 0, 2**63 - 1], pa.int64()).view(pa.duration("us")),
}


@pytest.mark.parametrize("kind", MOMENTS)
@pytest.mark.parametrize("seq", ["position", "d", "content"])
@pytest.mark.parametrize("size", ["5us", 2])
def test_moments_beyond_pythons_own(kind: str, seq: str, size: str | int) -> None:
    """As a seq column, in ties by content, as a key, and in every function that takes one."""
    rows = pa.table(
        {"ts": pa.array([0, 0, 1], pa.int64()), "d": MOMENTS[kind], "by": MOMENTS[kind].take(pa.array([2, 2, 0]))}
    )
    compute = {"n": plait.distinct("d"), "first": plait.first("d"), "all": plait.collect("d"), "most": plait.max("d")}
    query = plait.aggregate(plait.stream("a", unit="us", seq=seq), size=size, by="by", compute=compute)
    with query.on_threads(schemas={"a": rows.schema}, keys=True) as run:
        run.push("a", None, rows)
        run.drain()
        got = run.table()
    assert difference(query.reference({"a": rows}, keys=True), got) is None


def test_equal_rows_have_keys_of_their_own() -> None:
    """Two equal rows are two triggers: their results' keys must rise, or sorting by them gives another order."""
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us", seq="content")
    left = pa.table({"ts": pa.array([1, 2], pa.int64()), "n": pa.array([1, 2], pa.int64())})
    right = pa.table({"ts": pa.array([3, 3], pa.int64()), "w": ["x", "x"]})
    result = plait.join(a, b, within=5).reference({"a": left, "b": right}, keys=True)
    assert result.column("n").to_pylist() == [1, 2, 1, 2]
    keys = result.column(KEY).to_pylist()
    assert keys == sorted(set(keys))


def test_of_two_refusals_the_delivery_chooses() -> None:
    """A late row of one stream, and one of another on which `route` raises: who pushes is told of what it has pushed."""
    shapes = ("join", "join", "join", "asof", "spans", "counts", "operator", "dag")  # those of that time
    plan = runner.Plan(20291, Draw(shapes=shapes), Ways(compiled=4))
    _, answer = runner.group_of(plan, 35442 // runner.DELIVERIES)
    assert isinstance(answer.error, plait.LateError)
    assert isinstance(answer.besides, plait.RunError)
    assert runner.check(plan, 35442) is None
