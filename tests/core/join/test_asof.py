"""As-of over stretches: against the definition over all pairs, however the input is cut into stretches."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from tests.examples import examples

import plait
from plait.core.join.asof import Sides, decided
from plait.errors import DataError
from plait.order import AFTER_ALL
from plait.query.join import Asof

DIRECTIONS = ("backward", "forward", "nearest")
Tuple = tuple[int, int]  # ts and code


def node(direction: str, within: int | None, *, exact: bool, how: str, one_stream: bool) -> Asof:
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    return plait.asof(
        a, a if one_stream else b, by="k", within=within, exact=exact, direction=direction, how=how
    )  # fmt: skip


def defined(given: Asof, left: list[Tuple], right: list[Tuple]) -> list[tuple[int, int, int]]:
    """(ts, left, right or -1) as section 1 of the definitions says it, over all pairs."""
    out = []
    for at, (ts, code) in enumerate(left):
        near = [
            (other, r)
            for r, (other, its) in enumerate(right)
            if its == code >= 0 and not (given.one_stream and r == at) and (given.exact or other != ts)
            and (given.within_us is None or abs(other - ts) <= given.within_us)
        ]  # fmt: skip
        behind = max(((o, r) for o, r in near if o <= ts), default=None)
        ahead = min(((o, r) for o, r in near if o >= ts), default=None)
        found, moment = behind, ts
        if given.direction == "forward":
            found = ahead
            moment = ts + given.within_us if found is None else found[0]
        elif given.direction == "nearest":
            if behind is None or (ahead is not None and ahead[0] - ts < ts - behind[0]):
                found = ahead
            moment = ts + (given.within_us if found is None else abs(found[0] - ts))
        if found is not None or given.how == "left":
            out.append((moment, at, -1 if found is None else found[1]))
    return sorted(out, key=lambda each: (each[0], each[1])) if given.waits else out


def in_stretches(given: Asof, left: list[Tuple], right: list[Tuple], cuts: list[int]) -> list[tuple[int, int, int]]:
    """The same by the core: tuples are released below each cut, those that wait and those to be kept come again."""
    sides = (left, right)
    waiting, kept, done, out = [], [], [0, 0], []
    for frontier in (*cuts, AFTER_ALL):
        new = []
        for side in (0, 1):
            end = next(
                (k for k in range(done[side], len(sides[side])) if sides[side][k][0] >= frontier), len(sides[side])
            )
            new.append(list(range(done[side], end)))
            done[side] = end
        lefts, rights = waiting + new[0], kept + new[1]
        own = np.array([rights.index(k) if k in rights else -1 for k in lefts], np.int64) if given.one_stream else None
        columns = [
            np.array([sides[s][k][c] for k in at], np.int64) for s, at in ((0, lefts), (1, rights)) for c in (0, 1)
        ]
        found = decided(given, Sides(*columns, codes=4, own=own), frontier)
        out += [
            (int(ts), lefts[at], rights[partner] if partner >= 0 else -1)
            for ts, at, partner in zip(found.ts, found.done, found.partner, strict=True)
        ]
        waiting, kept = [lefts[k] for k in found.waiting], [rights[k] for k in found.kept]
        assert waiting == sorted(waiting)
        assert kept == sorted(kept)
    assert not waiting
    return out


@pytest.mark.parametrize("seed", range(examples(400) // 24 + 1))
def test_it_is_the_definition(seed: int) -> None:
    dice = random.Random(seed)
    kinds = itertools.product(DIRECTIONS, (True, False), ("left", "inner"), (True, False))
    for direction, exact, how, one_stream in kinds:
        for within in (0, 2, 9, None) if direction == "backward" else (0, 2, 9):
            given = node(direction, within, exact=exact, how=how, one_stream=one_stream)
            span = dice.choice((3, 10, 30))
            left, right = (
                sorted(
                    ((dice.randint(0, span), dice.randint(-1, 2)) for _ in range(dice.randint(0, 25))),
                    key=lambda t: t[0],
                )
                for _ in range(2)
            )
            right = left if one_stream else right
            cuts = sorted(dice.randint(0, span + 10) for _ in range(dice.randint(0, 4)))
            assert in_stretches(given, left, right, cuts) == defined(given, left, right), (given, left, right, cuts)


def test_what_no_left_tuple_can_name_any_more_is_not_kept() -> None:
    given = node("backward", 5, exact=True, how="left", one_stream=False)
    ts, none = np.arange(100), np.zeros(0, np.int64)
    found = decided(given, Sides(none, none, ts, ts % 4, 4), 100)
    assert found.kept.tolist() == [96, 97, 98, 99]
    assert decided(given, Sides(none, none, ts, ts % 4, 4), 103).kept.tolist() == [98, 99]
    ahead = node("forward", 5, exact=True, how="left", one_stream=False)
    assert decided(ahead, Sides(none, none, ts, ts % 4, 4), 100).kept.tolist() == []


def test_a_moment_beyond_64_bits_is_refused() -> None:
    given, last = node("forward", 2**62, exact=True, how="left", one_stream=False), np.array([2**62])
    none = np.zeros(0, np.int64)
    with pytest.raises(DataError, match=r"A result's 'ts' lies beyond 64 bits.*Use a shorter window"):
        decided(given, Sides(last, np.array([0]), none, none, 1), AFTER_ALL)
    found = decided(given, Sides(last - 1, np.array([0]), none, none, 1), AFTER_ALL)
    assert found.ts.tolist() == [2**63 - 1]
