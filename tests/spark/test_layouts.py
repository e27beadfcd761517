"""Layouts by name: DP-Join's grids, by rates where these are told, and ScaleJoin's store-one-see-all for windows of time."""

from __future__ import annotations

from typing import Any

import pytest

import plait
from plait.spark.plan.layout import choose

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
INNER = plait.join(A, B, within=5)
LEFT = plait.join(A, B, within=5, how="left")
RIGHT = plait.join(A, B, within=5, how="right")
FULL = plait.join(A, B, within=5, how="full")
COUNT = plait.join(A, B, last=5)
ASOF = plait.asof(A, B)
SUM = plait.aggregate(A, size="5us", compute={"n": plait.count()})


@pytest.mark.parametrize(
    ("query", "wanted", "options", "found"),
    [
        (INNER, "auto", {}, "4x4"),
        (INNER, "auto", {"cells": 15}, "3x5"),
        (INNER, "auto", {"cells": 15, "rates": (1000, 3000)}, "3x5"),
        (INNER, "rectangular", {"cells": 15, "rates": (3000, 1000)}, "5x3"),
        (INNER, "rectangular", {"cells": 8, "rates": (1000, 8000)}, "1x8"),
        (INNER, "linear", {}, "16x1"),
        (INNER, "linear", {"cells": 3}, "3x1"),
        (INNER, "square", {"cells": 9}, "3x3"),
        (INNER, "square", {}, "4x4"),
        (INNER, "see_all", {"cells": 6}, "6x1 (store one, see all)"),
        (INNER, (2, 3), {}, "2x3"),
        (INNER, "hash", {"cells": 5}, "5x1 (by hash)"),
        (COUNT, "auto", {}, "16x1 (store one, see all)"),
        (COUNT, "see_all", {}, "16x1 (store one, see all)"),
        (COUNT, (2, 2), {}, "2x2 (store one, see all)"),
        (LEFT, "auto", {"rates": (1, 9)}, "16x1"),
        (LEFT, "linear", {"cells": 2}, "2x1"),
        (RIGHT, "auto", {"rates": (1, 9)}, "1x16"),
        (RIGHT, "linear", {"cells": 2}, "1x2"),
        (RIGHT, (1, 3), {}, "1x3"),
        (FULL, "auto", {}, "1x1"),
        (FULL, "linear", {}, "1x1"),
        (FULL, (1, 1), {"cells": 1}, "1x1"),
        (FULL, "auto", {"equal": True}, "16x1 (by hash)"),
        (FULL, "hash", {"equal": True, "cells": 2}, "2x1 (by hash)"),
        (FULL, (3, 1), {"equal": True}, "3x1 (by hash)"),
        (FULL, (1, 1), {"equal": True}, "1x1 (by hash)"),
        (ASOF, "auto", {}, "16x1"),
        (SUM, "auto", {"cells": 3}, "3x1 (by hash)"),
        (SUM, (2, 2), {}, "4x1 (by hash)"),
    ],
)
def test_which_layout_it_is(query: Any, wanted: Any, options: dict[str, Any], found: str) -> None:
    layout = choose(query, wanted, 32, 16, **options)
    assert layout.describe() == found
    assert len(set(layout.keys)) == layout.cells
    assert layout.why


@pytest.mark.parametrize(
    ("query", "wanted", "cells", "words"),
    [
        (INNER, "square", 8, "layout='square' with 8 cells. That is no square number"),
        (INNER, (2, 3), 5, r"layout=\(2, 3\) has 6 cells, and cells=5"),
        (INNER, "round", None, "layout='round' is no layout.*'rectangular', 'see_all'"),
        (INNER, (0, 3), None, "is no layout"),
        (LEFT, "see_all", None, "layout='see_all' for how='left'.*all its partners in one cell"),
        (ASOF, "see_all", None, "layout='see_all' for an as-of join"),
        (LEFT, "square", 4, "layout=2x2 for how='left'"),
        (
            RIGHT,
            "see_all",
            None,
            "layout='see_all' for how='right'.*A right tuple must meet all its partners in one cell",
        ),
        (RIGHT, (3, 1), None, r"layout=3x1 for how='right'. A right tuple.*Use layout=\(1, 3\)"),
        (FULL, "see_all", None, "layout='see_all' for how='full'.*A left and a right tuple must meet"),
        (FULL, "square", None, "layout='square' for how='full'.*no rows and columns"),
        (FULL, "rectangular", 1, "layout='rectangular' for how='full'"),
        (FULL, (2, 2), None, "4 cells for how='full', and the query has no equality of two columns"),
        (FULL, "auto", 2, "2 cells for how='full'.*nothing says in which.*join on an equality"),
        (FULL, (2, 1), 3, "has 2 cells, and cells=3"),
        (COUNT, "hash", None, "with a count window"),
        (SUM, "linear", None, "layout='linear' for what is no join"),
        (SUM, (2, 2), 3, "has 4 cells, and cells=3"),
    ],
)
def test_what_is_refused(query: Any, wanted: Any, cells: Any, words: str) -> None:
    with pytest.raises(plait.QueryError, match=words):
        choose(query, wanted, 32, 16, cells=cells)
