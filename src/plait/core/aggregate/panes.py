"""Windowed aggregates over tuples in total order: panes in, rows of closed windows out.

`take` is given a batch of tuples, each after all before it in total order, and the frontier: no later tuple lies below it. It
gives the rows of every window that can get no more tuples, in result order. A tuple updates one pane (`core.kernels.panes`), and
a window is merged from its panes when it closes. How the sequence is cut into batches does not show in the rows.

What is held are the panes of windows still open, with the groups that have tuples in them: not the tuples, but for functions that
need them (`lists`) and for text that is some pane's first or last.
"""

from __future__ import annotations

from plait.core.aggregate.counted import TuplePanes
from plait.core.aggregate.span import SpanPanes
from plait.query.aggregate import Aggregate, SpanWindow
from plait.query.bind import Bound


def pane_windows(bound: Bound) -> SpanPanes | TuplePanes:
    assert isinstance(bound.node, Aggregate)
    window = bound.node.window
    return SpanPanes(bound, window) if isinstance(window, SpanWindow) else TuplePanes(bound, window)
