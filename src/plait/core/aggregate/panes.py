"""Windowed aggregates over tuples in total order: panes in, rows of closed windows out.

`take` is given a batch of tuples, each after all before it in total order, and the frontier: no later tuple lies below it. It
gives the rows of every window that can get no more tuples, in result order. A tuple updates one pane (`kernels.panes`), and a
window is merged from its panes when it closes. How the sequence is cut into batches does not show in the rows.

What is held are the panes of windows still open, with the groups that have tuples in them: not the tuples, but for functions that
need them (`lists`) and for text that is some pane's first or last.

Here, too, is how each kind of window is computed, a record each. A kind that queries know (`query.aggregate`) and that has no
record fails this import, with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plait.core.aggregate.counted import TuplePanes
from plait.core.aggregate.sessions import SessionPanes
from plait.core.aggregate.span import PaneWindows, SpanPanes
from plait.query.aggregate import WINDOWS, Aggregate, SessionWindow, SpanWindow, TupleWindow, Window
from plait.query.bind import Bound


@dataclass(frozen=True, kw_only=True)
class Record:
    """How one kind of window is computed.

    panes      makes what computes it, of a bound aggregate and the window
    by_time    whether windows close at a time: rows are then ordered by it and by their keys, and these make a row's own key.
               If not, they close at a tuple, and a row has that tuple's place and key
    partial    whether its panes are stretches of time, of which parts can be made anywhere and put together
    by_source  why sources can't each add up their own part of a window (WiML); None if they can
    spark      how a cell keeps it, to go on after a stop: "spans", as partial panes, or as tuples where a function wants
               them all; "ranked", as tuples with their numbers in their group; "sessions", as tuples of open sessions
    """

    panes: Callable[[Bound, Any], PaneWindows]
    by_time: bool
    partial: bool
    by_source: str | None
    spark: Literal["spans", "ranked", "sessions"]


RECORDS: Mapping[type[Window], Record] = {
    SpanWindow: Record(panes=SpanPanes, by_time=True, partial=True, by_source=None, spark="spans"),
    TupleWindow: Record(
        panes=TuplePanes,
        by_time=False,
        partial=False,
        by_source="windows of tuples close at a tuple of the total order, which no source sees by itself",
        spark="ranked",
    ),
    SessionWindow: Record(
        panes=SessionPanes,
        by_time=True,
        partial=False,
        by_source="a session ends where its key is silent in all sources, which none of them sees by itself",
        spark="sessions",
    ),
}


def window_record(node: Aggregate) -> Record:
    """Of the kind of window that the aggregate has."""
    return RECORDS[type(node.window)]


def pane_windows(bound: Bound) -> PaneWindows:
    """What computes an aggregate in one thread, for any kind of window."""
    assert isinstance(bound.node, Aggregate)
    return window_record(bound.node).panes(bound, bound.node.window)


def missing(records: Mapping[type[Window], Record], known: Iterable[type[Window]]) -> list[str]:
    """What is missing, a line each, if these are the records of the kinds of window that queries know."""
    known = list(known)
    found = [f"the kind of window {kind.__name__} has no record" for kind in known if kind not in records]
    for kind, record in records.items():
        if record.partial and not record.by_time:
            found.append(f"the kind of window {kind.__name__} has partial panes of time, but is not `by_time`")
    return found


for _line in missing(RECORDS, WINDOWS):
    raise ImportError(f"{_line}: see plait.core.aggregate.panes")
