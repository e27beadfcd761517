"""What a checkpoint knows a query by: its fingerprint, and what stands beside it.

Where it runs: on the driver, in `on_spark`. Old checkpoints are known by these texts, so they are never changed without need.
What follows from a difference is `resume`'s to say. Held by tests/spark/test_pinning.py and by the golden record.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.bind import Bound
from plait.query.condition.predicate import Predicate
from plait.query.explain import explain
from plait.query.operator import Operator
from plait.query.stream import Stream
from plait.spark.plan import function_text, pin
from plait.spark.plan.layout import Layout
from plait.spark.plan.stages import operators


def fingerprint(query: Query, bound: Bound, cells: Layout, *inner: Layout, functions: bool = True) -> str:
    """What a checkpoint means: streams, schemas, condition, window, layout; not versions, `late=` or sinks.

    `functions=False`: without what is in users' functions, by which a checkpoint is known again when those have changed.

    Words of the query as `explain` has them, without the lines of streams; what streams mean by `Stream.meaning`, which
    leaves out `late=` and its like. Old checkpoints are known by it, so its text is never changed without need.
    """
    streams = [stream.meaning() for stream in query.streams().values()]
    words = [line for line in explain(query).split("\n") if not line.lstrip().startswith("stream ")]
    # A user's operator by its buckets, not by the name of its function: see `_meaning`.
    words = [line.rpartition(":")[0] if line.lstrip().startswith("operator") else line for line in words]
    condition = "".join(_meaning(operator, functions=functions) for operator in operators(bound))
    schemas = [str(i.schema) for operator in operators(bound) for i in operator.inputs]
    parts = ["\n".join(words), streams, schemas, condition, cells.meaning, list(cells.keys)]
    parts += [[layout.meaning, list(layout.keys)] for layout in inner]
    if any(s.idle_after_us is not None for s in query.streams().values()):
        parts.append("clock")  # one more source in the offset log
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _meaning(operator: Bound, *, functions: bool) -> str:
    """An operator's conditions, and users' functions, as text.

    Not those of a user's own operator, which a cell's state pins by itself: one that raises at a tuple is mended, and goes
    on from the same checkpoint with the user's word (`functions="changed"`).
    """
    if isinstance(operator.node, Operator):
        own = _row_by_row(operator, functions=functions)
        return f"{operator.node.output} {operator.node.on_timer is not None}{own}"
    text = "" if operator.predicate is None else _condition_text(operator.predicate, functions=functions)
    text += _row_by_row(operator, functions=functions)
    for _, function in operator.node.compute if isinstance(operator.node, Aggregate) else ():
        if function.where is not None:
            text += _condition_text(function.where, functions=functions)
        if function.custom is not None and functions:
            custom = function.custom
            text += function_text.meaning([custom.init, custom.add, custom.merge, custom.result])
    return text


def _row_by_row(operator: Bound, *, functions: bool) -> str:
    """What is done to rows one by one, and to those of which input.

    `explain` tells an input by the line of its stream, which is no part of the fingerprint. The first input bears no number: it
    was the only one in which older checkpoints' fingerprints have such rows.
    """
    text = ""
    for number, each in enumerate(operator.inputs):
        found = [value for step in each.steps for value in step.values()] if isinstance(each.node, Stream) else []
        text += f" of input {number}: " if found and number else ""
        text += "".join(_condition_text(given, functions=functions) for given in found)
    results = [value for step in operator.steps for value in step.values()]
    return text + "".join(_condition_text(given, functions=functions) for given in results)


def _condition_text(predicate: Predicate, *, functions: bool) -> str:
    """A condition in words, and of an opaque function what is in it."""
    own = function_text.meaning([predicate.source]) if functions and predicate.kind == "opaque" else ""
    return predicate.describe() + own


def beside(bound: Bound) -> dict[str, Any]:
    """What stands beside the fingerprint: the functions of users' operators, and what of any function can't be pinned.

    `loose` is told for all functions, also those in the fingerprint: a start on an old checkpoint is refused because of
    them.
    """
    every = operators(bound)
    own = [f for operator in every if isinstance(operator.node, Operator) for f in users_functions(operator)]
    conditions = [p for o in every for p in _conditions(o) if p.kind == "opaque"]
    loose = pin.pinned([*(p.source for p in conditions), *(f for o in every for f in users_functions(o))]).loose
    return {"functions": pin.pinned(own).digest if own else "", "loose": tuple(dict.fromkeys(loose))}


def _conditions(operator: Bound) -> list[Predicate]:
    """All conditions of an operator: a join's own, and those of its functions."""
    where = [f.where for _, f in operator.node.compute] if isinstance(operator.node, Aggregate) else []
    return [p for p in (operator.predicate, *where, *_expressions(operator)) if p is not None]


def _expressions(operator: Bound) -> list[Predicate]:
    """What is done to rows one by one: to those of the streams that an operator reads, and to its results."""
    steps = [step for each in operator.inputs if isinstance(each.node, Stream) for step in each.steps]
    return [value for step in (*steps, *operator.steps) for value in step.values()]


def users_functions(operator: Bound) -> list[Any]:
    """Users' functions that run in tasks as they are."""
    node = operator.node
    if isinstance(node, Operator):
        return [f for f in (node.route, node.state, node.process, node.on_timer) if f is not None]
    own = [p.source for p in _expressions(operator) if p.kind == "opaque"]
    customs = [f.custom for _, f in node.compute if f.custom is not None] if isinstance(node, Aggregate) else []
    return own + [f for c in customs for f in (c.init, c.add, c.merge, c.result) if f is not None]
