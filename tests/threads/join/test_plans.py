"""Plans keep what they promise: every pair is compared by exactly one worker, every segment has one writer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait.threads.join.strategies import choice as model
from plait.threads.join.strategies import dpjoin, scalejoin, sequential, splitjoin
from plait.threads.join.strategies.plan import Plan, Seat, Wish

WORKERS = (1, 2, 3, 4, 7, 9)


def test_sequential() -> None:
    sequential.plan(Wish(1)).check()


@pytest.mark.parametrize("workers", WORKERS)
def test_scalejoin(workers: int) -> None:
    made = scalejoin.plan(Wish(workers))
    made.check()
    assert made.segments == (workers, workers)


@pytest.mark.parametrize("fan_out", [1, 2, 3, 8])
@pytest.mark.parametrize("workers", WORKERS)
def test_splitjoin_is_one_tree(workers: int, fan_out: int) -> None:
    made = splitjoin.plan(Wish(workers, fan_out=fan_out))
    made.check()
    parents = [seat.parent for seat in made.seats]
    assert parents[0] is None
    for worker, parent in enumerate(parents[1:], start=1):
        assert parent is not None
        assert parent < worker  # so every way up ends at the root
    assert all(parents.count(worker) <= fan_out for worker in range(workers))


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1), (2, 2), (2, 3), (4, 2)])
def test_dpjoin_shares_a_segment_along_a_row_and_down_a_column(shape: tuple[int, int]) -> None:
    made = dpjoin.plan(Wish(shape[0] * shape[1], layout=shape))
    made.check()
    assert made.segments == shape
    assert [len(made.sharers(0, row)) for row in range(shape[0])] == [shape[1]] * shape[0]
    assert [len(made.sharers(1, column)) for column in range(shape[1])] == [shape[0]] * shape[1]


def test_a_plan_that_loses_a_pair_is_noticed() -> None:
    lonely = Plan("broken", (Seat((0, 0), (2, 1), (0, 0), (1, 1), (0, 0), (True, True)),), (1, 1), "")
    with pytest.raises(AssertionError, match="compared 0 times"):
        lonely.check()


def test_a_plan_that_finds_a_pair_twice_is_noticed() -> None:
    both = Seat((0, 0), (1, 1), (0, 0), (1, 1), (0, 0), (True, True))
    twice = Plan("broken", (both, Seat((1, 1), (1, 1), (0, 0), (1, 1), (0, 0), (True, True))), (1, 1), "")
    with pytest.raises(AssertionError, match="compared 2 times"):
        twice.check()


@pytest.mark.parametrize(
    ("workers", "rates", "shape"),
    [
        (4, None, (2, 2)),
        (6, (1.0, 1.0), (2, 3)),
        (4, (4.0, 1.0), (4, 1)),
        (4, (1.0, 4.0), (1, 4)),
        (9, (1.0, 1.0), (3, 3)),
    ],
)
def test_layout_after_rates(workers: int, rates: tuple[float, float] | None, shape: tuple[int, int]) -> None:
    found, why = model.layout(Wish(workers, rates=rates))
    assert sorted(found) == sorted(shape)
    assert found == shape or rates == (1.0, 1.0)
    assert f"{found[0]} x {found[1]}" in why


def test_auto() -> None:
    assert model.strategy(Wish(1))[0] == "sequential"
    assert model.strategy(Wish(2))[0] == "scalejoin"
    assert model.strategy(Wish(2, line="hash"))[0] == model.strategy(Wish(2, "full", line="range"))[0] == "partitioned"
    assert model.strategy(Wish(2, "anti"))[0] == "dpjoin"
    assert model.strategy(Wish(4, layout=(2, 2)))[0] == "dpjoin"
    assert model.layout(Wish(3, "left"))[0] == (3, 1)


@pytest.mark.parametrize(
    ("workers", "fan_out"), [(1, 1), (2, 1), (3, 2), (9, 8), (10, 3), (13, 3), (14, 4), (28, 5), (73, 8), (74, 4)]
)
def test_a_tree_is_widened_before_it_is_deepened(workers: int, fan_out: int) -> None:
    """As shallow as eight children a worker allow, and then as narrow as that depth allows."""
    made = splitjoin.plan(Wish(workers))
    assert splitjoin.widened(workers) == fan_out
    parents = [seat.parent for seat in made.seats]
    assert max(parents.count(k) for k in range(workers)) <= fan_out


@pytest.mark.parametrize(
    ("workers", "fan_in", "mergers", "roots"),
    [
        (2, 2, (), (0, 1)),
        (3, 2, ((0, 1),), (3, 2)),
        (4, 2, ((0, 1), (2, 3)), (4, 5)),
        (5, 2, ((0, 1), (2, 3), (5, 6)), (7, 4)),
        (7, 3, ((0, 1, 2), (3, 4, 5)), (7, 8, 6)),
        (3, 8, (), (0, 1, 2)),
    ],
)
def test_mergers_are_a_tree_in_the_order_of_workers(
    workers: int, fan_in: int, mergers: tuple[tuple[int, ...], ...], roots: tuple[int, ...]
) -> None:
    made = splitjoin.plan(Wish(workers, fan_in=fan_in))
    made.check()
    assert (made.mergers, made.roots) == (mergers, roots)


@pytest.mark.parametrize("workers", range(2, 30))
@pytest.mark.parametrize("fan_in", [2, 3, 4])
def test_nobody_gathers_from_more_than_the_fan_in(workers: int, fan_in: int) -> None:
    made = splitjoin.plan(Wish(workers, fan_in=fan_in))
    made.check()
    assert all(2 <= len(inputs) <= fan_in for inputs in made.mergers)
    assert len(made.roots) <= fan_in

    def behind(number: int) -> list[int]:
        return [number] if number < workers else [w for k in made.mergers[number - workers] for w in behind(k)]

    assert [worker for root in made.roots for worker in behind(root)] == list(range(workers))


@pytest.mark.parametrize("mergers", [((0, 1), (1, 2)), ((0, 4), (1, 2)), ((0, 1, 1),)])
def test_a_tree_that_reads_a_ring_twice_is_noticed(mergers: tuple[tuple[int, ...], ...]) -> None:
    good = splitjoin.plan(Wish(3))
    with pytest.raises((AssertionError, IndexError)):
        replace(good, mergers=mergers).check()


def test_who_stores_and_who_compares() -> None:
    made = splitjoin.plan(Wish(6, split_storing=True))
    made.check()
    assert made.segments == (3, 3)
    assert [seat.compares for seat in made.seats] == [False] * 3 + [True] * 3
    assert [seat.writer for seat in made.seats] == [(True, True)] * 3 + [(False, False)] * 3
