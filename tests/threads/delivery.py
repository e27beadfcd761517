"""A case delivered to a run on threads: every source's rows in their order, cut and interleaved by a recorded seed."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from tests.strategies import Case, Given, interleaved, table

from plait.order import BEFORE_ALL
from plait.threads.run import Run


def lanes(each: Given) -> list[tuple[Any, list[tuple[Any, ...]]]]:
    """What is pushed apart: the rows of each source, or, where a column names them, all in order of arrival."""
    if each.by_column:
        return [(None, interleaved(each.sources, each.arrival))]
    return [(name, rows) for name, rows in each.sources.items()]


def make_known(run: Run, case: Case) -> None:
    """Sources that are not declared make themselves known, or one that is slow to speak would come behind the frontier."""
    for each in case.given:
        if each.stream.declared() is None:
            for source in each.sources:
                run.heartbeat(each.stream.name, source, BEFORE_ALL)


def deliver(run: Run, case: Case, seed: int) -> None:
    """Push all rows by turns, in pieces of any size; close sources as they end, or all at the end."""
    chance = random.Random(seed)
    rest = [[each, source, rows] for each in case.given for source, rows in lanes(each)]
    while rest:
        lane = chance.choice(rest)
        each, source, rows = lane
        size = chance.choice((1, 1, 2, 5, 100))
        if rows:
            run.push(each.stream.name, source, table(each.schema, rows[:size]))
        lane[2] = rows[size:]
        if not lane[2]:
            rest.remove(lane)
            if source is not None and chance.random() < 0.5:
                run.close(each.stream.name, source)
    run.drain()


def on_threads(case: Case, *, seed: int = 0, **options: Any) -> pa.Table:
    """The whole result of a case, with its keys."""
    with case.query.on_threads(schemas=case.schemas, keys=True, **options) as run:
        make_known(run, case)
        deliver(run, case, seed)
        return run.table()
