"""The executors that one suite runs over, and what each of them can't do, declared here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PythonException
from tests.spark import feeds
from tests.threads.bounded.slabs import feeds_of, in_slabs

import plait
from plait.order import BEFORE_ALL

#: Rows by stream; by source too where a stream has several that no column names.
Data = dict[str, Any]


@dataclass(frozen=True)
class Executor:
    name: str
    run: Callable[[plait.Query, Data, Any], pa.Table]  # the third: what `needs` gives
    needs: tuple[str, ...] = ()  # fixtures of pytest
    raises: type[Exception] | None = None  # what it wraps plait's errors in
    #: Case -> why it can't be asked here. What is not named works, or is refused as the case says.
    cannot: dict[str, str] = field(default_factory=dict)


def lanes(given: Any) -> dict[Any, pa.Table]:
    return given if isinstance(given, dict) else {None: given}


def reference(query: plait.Query, data: Data, _: Any) -> pa.Table:
    return query.reference(data)


def threads(query: plait.Query, data: Data, _: Any, **options: Any) -> pa.Table:
    """Row by row, streams and sources by turns as far as the rows go; columns are not declared."""
    with query.on_threads(**{"workers": 1, "plain": True} | options) as run:
        for stream, given in data.items():
            for source in lanes(given):
                if source is not None and query.streams()[stream].declared() is None:
                    run.heartbeat(stream, source, BEFORE_ALL)
        rest = {(stream, source): rows for stream, given in data.items() for source, rows in lanes(given).items()}
        at = 0
        while any(at < len(rows) for rows in rest.values()):
            for (stream, source), rows in rest.items():
                if at < len(rows):
                    run.push(stream, source, rows.slice(at, 1))
            at += 1
        for (stream, source), rows in rest.items():
            if not len(rows):
                run.push(stream, source, rows)
        run.drain()
        return run.table()


def threads_compiled(query: plait.Query, data: Data, needs: Any) -> pa.Table:
    return threads(query, data, needs, workers=2, plain=False)


def bounded(query: plait.Query, data: Data, _: Any) -> pa.Table:
    """All rows at hand, as `query.run` takes them: in slabs where that can be, else pushed."""
    found: pa.Table = query.run(data, plain=True)
    return found


def bounded_in_slabs(query: plait.Query, data: Data, _: Any) -> pa.Table:
    """The same in slabs of three rows or more, ranges of one and chunks of two; what can't be had in slabs as `run` has it."""
    options = {"plain": True, "workers": 2}
    found = in_slabs(query, feeds_of(query, data, lambda: 2), options, rows=3)
    return query.run(data, **options) if found is None else found


def spark(query: plait.Query, data: Data, needs: tuple[Any, Path]) -> pa.Table:
    session, folder = needs
    frames: dict[str, Any] = {}
    for stream, given in data.items():
        made = {}
        for number, (source, rows) in enumerate(lanes(given).items()):
            place = folder / stream / str(number)
            feeds.write_files(place, rows, [len(rows) // 2])
            made[source] = feeds.frame(session, place, feeds.spark_schema(rows), streaming=False)
        frames[stream] = made.get(None, made)
    return feeds.collected(query.on_spark(frames)).drop_columns(["_plait_key"])


EXECUTORS = {
    each.name: each
    for each in (
        Executor("reference", reference),
        Executor("threads", threads),
        Executor("threads, compiled", threads_compiled),
        Executor("run", bounded),
        Executor("run, small slabs", bounded_in_slabs),
        Executor("spark", spark, ("spark", "tmp_path"), raises=PythonException),
    )
}
