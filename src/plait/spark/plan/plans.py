"""What stands above a DataFrame's rows, read from Spark's plan of it, before anything runs.

The rule: **a position is one row's, and a row is the same whenever it is read.** Spark reads a row again for every action, retry
and replay, and gives its position from the file (or Kafka) it came from, whatever was made of it since. So where rows are
ordered by position, only what provably makes one row of each row, or none, may stand above them: a selection, a filter.
What makes several of one (`explode`, a join, a union) would give them one position and no order; what moves rows between
tasks (`repartition`, a sort) parts those of a file; what picks some (`limit`, `dropDuplicates`) picks others next time. All
that is not known to be harmless is refused by name, new nodes of a later Spark too.

With a seq column, or ties by content, rows may come from anywhere: then only what gives other rows at each reading is refused.
A Python function of the user's is taken at its word, that it is deterministic.

Where it runs: on the driver, in `on_spark`. The analyzed plan is asked: it has what the user wrote, before the optimizer
changes it. Nothing is executed. Held by tests/spark/test_inputs.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from plait.errors import QueryError
from plait.query.stream import Stream

#: One row out for each row in, or none. (Leaves give rows, and nothing is above them.)
_KEEPS = frozenset(
    {"Project", "Filter", "SubqueryAlias", "View", "EventTimeWatermark", "CollectMetrics", "ResolvedHint"}
)

_SEVERAL = "it makes several rows of one, which then have one position and no order"
_TOGETHER = "its rows are of several rows, or of two reads of one, and have no position of their own"
_MOVES = "it deals a file's rows out to tasks anew, and a task must have a stretch of them as they lie in the file"
_PICKS = "which rows it takes is Spark's choice, and another time it may take others"

#: What else Spark's plans have above rows: how a user wrote it, and why it can't stand there.
_BREAKS = {
    "Generate": ("explode, or another function that makes rows", _SEVERAL),
    "Expand": ("a cube, rollup or unpivot", _SEVERAL),
    "Unpivot": ("an unpivot", _SEVERAL),
    "Join": ("a join", _SEVERAL),
    "AsOfJoin": ("an as-of join", _SEVERAL),
    "LateralJoin": ("a lateral join", _SEVERAL),
    "Union": ("a union", _TOGETHER),
    "Intersect": ("an intersection", _TOGETHER),
    "Except": ("a difference of rows", _TOGETHER),
    "Aggregate": ("an aggregate", _TOGETHER),
    "Pivot": ("a pivot", _TOGETHER),
    "Window": ("a window function", _MOVES),
    "Sort": ("a sort", _MOVES),
    "Repartition": ("repartition or coalesce", _MOVES),
    "RepartitionByExpression": ("repartition", _MOVES),
    "RebalancePartitions": ("a rebalance", _MOVES),
    "Deduplicate": ("dropDuplicates", _PICKS),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", _PICKS),
    "Distinct": ("distinct", _PICKS),
    "Sample": ("sample", _PICKS),
    "GlobalLimit": ("limit", _PICKS),
    "LocalLimit": ("limit", _PICKS),
    "Offset": ("offset", _PICKS),
    "Tail": ("tail", _PICKS),
}

#: Nodes that take some rows and not others by where the rows happen to lie.
_PARTITIONED = frozenset({"Sample", "GlobalLimit", "LocalLimit", "Offset", "Tail"})

#: Spark says of this that it may change; it is a fact of the file.
_FACTS = frozenset({"InputFileName"})


def analyzed(frame: Any) -> Any:
    """Spark's plan of a DataFrame with names resolved, and before it is optimized."""
    return frame._jdf.queryExecution().analyzed()


def is_scan(frame: Any) -> bool:
    """Whether nothing stands above the files: StreamingRelation(V2), LogicalRelation, DataSourceV2Relation."""
    return "Relation" in _name(analyzed(frame))


def check_positions(stream: Stream, frame: Any) -> None:
    """Refuse a DataFrame of which not every row has a position to itself."""
    for node in _nodes(analyzed(frame)):
        name = _name(node)
        if name in _KEEPS or node.children().isEmpty():
            continue
        python = ("Map", "Flat", "Arrow", "Pandas", "Python", "Transform", "Group")
        made_by_function = "a function over rows (mapInArrow, mapInPandas, applyIn... )", _SEVERAL
        what, why = _BREAKS.get(name, made_by_function if any(word in name for word in python) else (name, _TOGETHER))
        raise QueryError(
            f"Stream {stream.name!r}: seq='position', and its DataFrame has {what} above its rows ({name} in Spark's plan)",
            why=why,
            do="Hand the DataFrame over without it (select and filter may stay), or name a column that orders a source's rows "
            "and does not repeat in it (seq='id'), or let ties go by content (seq='content')",
        )


def check_repeatable(stream: Stream, frame: Any) -> None:
    """Refuse a DataFrame whose rows are others whenever it is read; warn of one that asks for the time."""
    plan = analyzed(frame)
    for node in _nodes(plan):
        if _name(node) in _PARTITIONED and not _sorted_below(node):
            what, why = _BREAKS[_name(node)]
            raise _changing(stream, f"takes some rows by {what}", why)
    if not plan.deterministic():
        for node in _nodes(plan):
            if (found := _changing_expression(node)) is not None:
                raise _changing(
                    stream, f"computes {found}", "Spark reads rows again for a retry, a replay or another action"
                )
    pattern = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.containsPattern(pattern.CURRENT_LIKE()):
        warnings.warn(
            f"Stream {stream.name!r}: its DataFrame asks for the current time, date or user. Another run will have another "
            "answer there, and may have other results. Compare with a constant instead",
            stacklevel=5,
        )


def _changing(stream: Stream, what: str, why: str) -> QueryError:
    """The refusal of a DataFrame that gives other rows each time."""
    return QueryError(
        f"Stream {stream.name!r}: its DataFrame {what}, which may be another whenever it is read",
        why=f"{why}, and the same rows must give the same results",
        do="Compute it before, write it to files, and read those; or leave it out",
    )


def _sorted_below(node: Any) -> bool:
    """Whether a limit takes the first rows of an order that the user has given."""
    below = node
    while _name(below) in ("GlobalLimit", "LocalLimit", "Offset", "Tail"):
        below = below.children().head()
    return below is not node and _name(below) == "Sort"


def _changing_expression(node: Any) -> str | None:
    """An expression of a node that changes from one reading to the next, in Spark's words; None if there is none."""
    for expression in _each(node.expressions()):
        if not expression.deterministic() and (found := _least_changing(expression)) is not None:
            return found
    return None


def _least_changing(expression: Any) -> str | None:
    """The innermost part of an expression that changes, in Spark's words; None if what changes is a fact after all."""
    inner = [child for child in _each(expression.children()) if not child.deterministic()]
    for child in inner:
        if (found := _least_changing(child)) is not None:
            return found
    if inner or _name(expression) in _FACTS:
        return None
    return str(expression.toString())


def _nodes(plan: Any) -> Iterator[Any]:
    """A plan's nodes, from the top."""
    yield plan
    for child in _each(plan.children()):
        yield from _nodes(child)


def _each(seq: Any) -> Iterator[Any]:
    return (seq.apply(at) for at in range(seq.size()))


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def has(frame: Any, *columns: Any) -> bool:
    """Whether a DataFrame can tell these. PySpark logs a column that is not there with a page of stack; we only ask."""
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    log = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        frame.select(*columns)
    except AnalysisException:
        return False
    finally:
        log.disabled = before
    return True
