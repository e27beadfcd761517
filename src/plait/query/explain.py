"""A query in words: one line an operator, inputs indented below it.

On Spark these lines, but for those of streams, are part of what a checkpoint knows a query by. So a change of words here makes
checkpoints of earlier versions be refused.
"""

from __future__ import annotations

from plait.query.aggregate import Aggregate
from plait.query.base import Node, Query
from plait.query.dedup import Dedup
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import RowByRow, Union
from plait.query.stream import FILE, PARTITION, Stream
from plait.schema import duration_text


def explain(query: Query) -> str:
    """The lines of a query, as `Query.explain` gives them."""
    lines: list[str] = []
    _explain(query, 0, lines)
    return "\n".join(lines)


def _explain(node: Node, depth: int, lines: list[str]) -> None:
    """Append a node's line, then those of its inputs, two spaces further in."""
    lines.append("  " * depth + (_stream(node) if isinstance(node, Stream) else _query(node)))
    if not isinstance(node, Stream):
        for child in node.inputs:
            _explain(child, depth + 1, lines)


def _stream(stream: Stream) -> str:
    """A stream's line: its time, order, sources and disorder, and what gives up determinism."""
    by = {None: "", FILE: ", a source for each file", PARTITION: ", a source for each Kafka partition"}.get(
        stream.source, f", sources named by column {stream.source}"
    )
    declared = stream.declared()
    known = f", {len(declared)} declared" if declared is not None else ""
    disorder = f", disorder up to {duration_text(stream.disorder_us)}" if stream.disorder_us else ""
    disorder += f", late tuples: {stream.late}" if stream.disorder_us or stream.late == "drop" else ""
    order = {"position": "as delivered", "content": "ties by content"}.get(stream.seq, f"by column {stream.seq}")
    loose = [
        text
        for given, text in (
            (stream.behind == "drop", "behind='drop'"),
            (stream.idle_after_us is not None, f"idle_after={duration_text(stream.idle_after_us or 0)}"),
        )
        if given
    ]
    warning = f" [not deterministic: {' and '.join(loose)}]" if loose else ""
    return f"stream {stream.name}: time {stream.time}, {order}{by}{known}{disorder}{warning}"


def _query(query: Query) -> str:
    """An operator's line."""
    label = f" {query.name!r}" if query.name else ""
    match query:
        case Join():
            return f"{query.how} join{label}, {query.window.describe()}, on {query.predicate.describe()}"
        case Asof():
            by = f", by {', '.join(a if a == b else f'{a} = {b}' for a, b in query.by)}" if query.by else ""
            far = "old" if query.direction == "backward" else "away"
            age = f", at most {duration_text(query.within_us)} {far}" if query.within_us is not None else ""
            return f"as-of join{label} ({query.how}): {_partner(query)}{by}{age}"
        case Aggregate():
            what = ", ".join(f"{name} = {function.describe()}" for name, function in query.compute)
            by = f" by {', '.join(query.by)}" if query.by else ""
            return f"aggregate{label}{by}, windows of {query.window.describe()}: {what}"
        case RowByRow():
            return ", ".join(step.describe() for step in query.steps)
        case Union():
            return f"union{label}"
        case Dedup():
            return f"dedup{label} by {', '.join(query.by)}: the first within {duration_text(query.within_us)}"
        case Operator():
            return f"operator{label}, {query.buckets} buckets: {getattr(query.process, '__name__', 'process')}"
        case _:
            return type(query).__name__


def _partner(query: Asof) -> str:
    """Which right tuple an as-of join finds. Backward without `exact` has the words that old checkpoints know it by."""
    if query.direction == "nearest":
        return "nearest right tuple to each left one" + ("" if query.exact else ", of another ts")
    first = "last" if query.direction == "backward" else "first"
    where = "before" if query.direction == "backward" else "after"
    return f"{first} right tuple {'at or ' if query.exact else ''}{where} each left one"
