"""Which engine serves an operator: a table of names. Whoever adds a kind of operator, or of engine, names it here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.dedup import Dedup
from plait.query.operator import Operator
from plait.query.row_by_row import Union
from plait.threads.aggregate.designs import Design
from plait.threads.aggregate.tuml import AggregateEngine
from plait.threads.aggregate.wiml import HiveEngine
from plait.threads.dedup import DedupEngine
from plait.threads.engine import Engine
from plait.threads.join.engine import JoinEngine
from plait.threads.join.strategies.plan import Plan
from plait.threads.life.together import Together
from plait.threads.operator.engine import OperatorEngine
from plait.threads.plan import Sharing, Step, plan
from plait.threads.union import UnionEngine


def engine_of(bound: Bound, schemas: Mapping[str, pa.Schema], step: Step, together: Together) -> Engine:
    """The engine of a bound operator; its threads have not started. Rows of streams may be changed on their way in."""
    schemas = {**schemas, **{str(i.node.name): i.schema for i in bound.inputs if i.steps}}
    if isinstance(bound.node, Aggregate):
        # Only now are all columns known, which have a say in the design.
        made = plan(bound.node, dataclasses.replace(step.options, schemas=schemas))
        assert isinstance(made, Design)
        return (HiveEngine if made.merges_windows else AggregateEngine)(bound, schemas, made, step.options, together)
    if isinstance(bound.node, Union):
        assert isinstance(step.plan, Sharing)
        return UnionEngine(bound, schemas, step.plan, step.options, together)
    if isinstance(bound.node, Operator):
        assert isinstance(step.plan, Sharing)
        return OperatorEngine(bound, schemas, step.plan, step.options, together)
    if isinstance(bound.node, Dedup):
        assert isinstance(step.plan, Sharing)
        return DedupEngine(bound, schemas, step.plan, step.options, together)
    assert isinstance(step.plan, Plan)
    return JoinEngine(bound, schemas, step.plan, step.options, together)
