"""Boxes of a grid follow where rows lie, not how far the farthest of them are."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.join.index import dense_spread

DICE = np.random.default_rng(6)
EVEN = DICE.random(5000)


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        (EVEN, 0.7, 1.0),
        (np.concatenate([EVEN, 1000 * DICE.random(500)]), 0.7, 1.3),
        (np.concatenate([EVEN, 7000 + EVEN]), 1.4, 2.2),
        (np.concatenate([np.zeros(1000), EVEN]), 0.0, 0.0),
        (EVEN[:20] * 100, 80.0, 100.0),
        (np.array([3.0]), 0.0, 0.0),
        (np.zeros(0), 0.0, 0.0),
        (np.array([-1e308, 1e308] * 200), 0.0, 0.0),
    ],
    ids=["even", "some far away", "two crowds", "many alike", "few", "one", "none", "the ends"],
)
def test_the_spread_of_rows_that_lie_as_the_densest(values: np.ndarray, least: float, most: float) -> None:
    assert least <= dense_spread(values) <= most


def comparisons(x: np.ndarray) -> int:
    """What a band join makes of rows with these values."""
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(a, b, on="abs(a.x - b.x) <= 10 AND abs(a.y - b.y) <= 10", within=4000)
    y = np.random.default_rng(2).integers(0, 10_000, len(x))
    table = pa.table({"ts": np.arange(len(x)), "x": x, "y": y})
    given: dict[str, Any] = {"schemas": {"a": table.schema, "b": table.schema}, "workers": 1, "index": "grid"}
    with query.on_threads(**given) as run:
        for name in ("a", "b"):
            run.push(name, None, table)
        run.drain()
        run.table()
        return int(run.stats().comparisons)


def test_a_tenth_of_the_rows_far_away_does_not_cost_the_others_their_boxes() -> None:
    """Nine in ten lie in a thousandth of the range: with boxes by the whole range each would be compared with most others."""
    even = np.random.default_rng(1).integers(0, 10_000, 20_000)
    far = np.where(np.random.default_rng(3).random(20_000) < 0.9, even, 10_000_000 + 1000 * even)
    assert comparisons(far) < 2 * comparisons(even)
