"""As-of over stretches of both sides: which right tuple each left one finds, when that is decided, and what must be kept.

A *stretch* is all tuples of both sides below a frontier that a later tuple, or one that waits, can still have to do with. Left
ones are in total order, and so are right ones. Spark's cells have a stretch a batch (`spark/cell/asof`), bounded runs one a slab
(`threads/bounded/asof`). Workers on threads take tuples one by one instead (`threads/join/asof`).

Backward every left tuple is decided at once. Forward and nearest it is decided at a moment that may lie at or above the
frontier: it then waits, and is in the next stretch again. A right tuple must be kept if it is the last one of its code, since it
lies behind left tuples to come; and nearest if it lies behind one that waits.

tests/core/join/test_asof.py holds it against all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.core.kernels import asof as passes
from plait.errors import DataError
from plait.order import AFTER_ALL
from plait.query.join import Asof

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Sides:
    """Both sides of a stretch, int64 arrays by tuple.

    Codes are equal where all `by` values are, from 0 on; -1 equals nothing. `own` is the place of a left tuple itself on the
    right side, where both are one stream, and -1 where it is not there. `codes` is above all codes.
    """

    left_ts: np.ndarray
    left_codes: np.ndarray
    right_ts: np.ndarray
    right_codes: np.ndarray
    codes: int
    own: np.ndarray | None = None


@dataclass(frozen=True)
class Found:
    """What a stretch comes to. Places are int64 arrays.

    Attributes:
        done: The places of left tuples that are decided, in the order of their results.
        partner: Of each of these the place of its right tuple, or -1.
        ts: Of each of these its result's ts.
        waiting: The places of left tuples that wait.
        kept: The places of right tuples that a later stretch may name, ascending.
    """

    done: np.ndarray
    partner: np.ndarray
    ts: np.ndarray
    waiting: np.ndarray
    kept: np.ndarray


def decided(node: Asof, sides: Sides, frontier: int) -> Found:
    """All that can be told of a stretch. With `how="inner"` left tuples that find none are not among the results."""
    if not node.waits:
        return _looking_back(node, sides, frontier)
    ahead, _ = _passed(node, sides, passes.look_ahead)
    behind, last = np.full(len(sides.left_ts), -1), _NONE
    if node.direction == "nearest":
        behind, last = _passed(node, sides, passes.look_back)
    partner, later = _chosen(node, sides, ahead, behind)
    # Not the moment itself, which may be more than 63 bits hold.
    over = sides.left_ts < frontier - later if frontier < AFTER_ALL else np.ones(len(later), bool)
    waiting, done = np.flatnonzero(~over), np.flatnonzero(over)
    if node.how == "inner":
        done = done[partner[done] >= 0]
    ts = _moments(sides.left_ts[done], later[done])
    by = np.argsort(ts, kind="stable")
    kept = _NONE
    if node.direction == "nearest":
        named = behind[waiting]
        kept = np.union1d(named[named >= 0], _near(node, sides, last, frontier))
    return Found(done[by], partner[done[by]], ts[by], waiting, kept)


def _looking_back(node: Asof, sides: Sides, frontier: int) -> Found:
    found, last = _passed(node, sides, passes.look_back)
    done = np.arange(len(found)) if node.how == "left" else np.flatnonzero(found >= 0)
    whole = len(done) == len(found)
    ts, partner = (sides.left_ts, found) if whole else (sides.left_ts[done], found[done])
    return Found(done, partner, ts, _NONE, np.sort(_near(node, sides, last, frontier)))


def _passed(node: Asof, sides: Sides, kernel: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of each left tuple the right one that a pass finds, if it is near enough, or -1; and the last one of each code."""
    last, other = np.full((2, max(sides.codes, 1)), -1)
    own = np.full(len(sides.left_ts), -1) if sides.own is None else sides.own
    found = np.empty(len(sides.left_ts), np.int64)
    kernel(
        np.ascontiguousarray(sides.left_ts), sides.left_codes, own, np.ascontiguousarray(sides.right_ts), sides.right_codes,
        node.exact, -1 if node.within_us is None else node.within_us, last, other, found,
    )  # fmt: skip
    return found, last


def _near(node: Asof, sides: Sides, last: np.ndarray, frontier: int) -> np.ndarray:
    """Of the last right tuples of all codes, the places of those that may lie behind a left one to come."""
    kept = last[last >= 0]
    if node.within_us is not None:
        kept = kept[sides.right_ts[kept] >= frontier - node.within_us]
    return kept


def _chosen(node: Asof, sides: Sides, ahead: np.ndarray, behind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each left tuple the place of its partner, or -1, and how much later that is decided.

    Of two that are as near the one behind is taken.
    """
    assert node.within_us is not None
    left, right = sides.left_ts, sides.right_ts
    to_ahead, to_behind = np.full((2, len(left)), AFTER_ALL)
    for to, place in ((to_ahead, ahead), (to_behind, behind)):
        some = place >= 0
        to[some] = np.abs(right[place[some]] - left[some])
    partner = np.where(to_ahead < to_behind, ahead, behind)
    return partner, np.where(partner >= 0, np.minimum(to_ahead, to_behind), node.within_us)


def _moments(ts: np.ndarray, later: np.ndarray) -> np.ndarray:
    """When results are decided."""
    if (ts > AFTER_ALL - later).any():
        raise DataError(
            "A result's 'ts' lies beyond 64 bits",
            why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
            do="Use a shorter window, or leave such tuples out",
        )
    moments: np.ndarray = ts + later
    return moments
