"""What every query is: inputs, a name, and the ways to run it.

A query never imports an executor: it finds one by name, so that `import plait` loads neither Numba nor Spark.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Unpack

import pyarrow as pa

from plait.errors import QueryError, RunError
from plait.query.run_options import SparkOptions, ThreadsOptions
from plait.query.stream import Stream

if TYPE_CHECKING:
    from plait.threads.run import Run

#: Executors by name, where each is found: `module:function(query, data, **options)`.
EXECUTORS = {
    "reference": "plait.reference.run:table",
    "threads": "plait.threads.run:start",
    "spark": "plait.spark.run:dataframe",
}

ORDERS = ("strict", "trigger", "none")


def executor(name: str) -> Any:
    """The entry point of an executor; an error that says so if this installation does not have it."""
    module, function = EXECUTORS[name].split(":")
    if not has_executor(name):
        have = ", ".join(n for n in EXECUTORS if has_executor(n))
        raise RunError(f"There is no executor {name!r} in this version of plait", do=f"Use one of: {have}")
    return getattr(importlib.import_module(module), function)


def has_executor(name: str) -> bool:
    module = EXECUTORS[name].split(":")[0]
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class Query:
    """A frozen description of what to compute. Its output is a stream with one source, so queries nest."""

    name: str | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        raise NotImplementedError

    def named(self, name: str) -> Self:
        """The same query under a name: other queries' SQL and column prefixes refer to it by that."""
        return dataclasses.replace(self, name=check_name(name))

    def streams(self) -> dict[str, Stream]:
        """The streams at the leaves, by name, in order of first mention."""
        found: dict[str, Stream] = {}
        for node in self.inputs:
            for leaf in leaves(node):
                if found.setdefault(leaf.name, leaf) != leaf:
                    raise QueryError(
                        f"Two different streams are called {leaf.name!r}",
                        why="data is handed in by name",
                        do="Rename one, or use the very same stream in both places",
                    )
        return found

    def reference(self, data: Any, *, order: str = "strict", keys: bool = False) -> pa.Table:
        """Run on the reference executor: slow, sequential, and the definition of what is correct.

        data maps each stream's name to an Arrow table, batches, a pandas frame or a dict of arrays; for several sources
        without a source column, to a list or dict of these. `keys` adds the column `_plait_key`.
        """
        return executor("reference")(self, data, order=order, keys=keys)

    def on_threads(self, **options: Unpack[ThreadsOptions]) -> Run:
        """Run on threads in this process: push batches, read results.

        The options are those of `plait.query.run_options.ThreadsOptions`: `workers`, `strategy`, `order`, `keys`, ... Gives a
        `Run`, to be used in a `with` block; leaving it ends all threads. Raises `QueryError` for an option that is not known, or
        that this query can't have.

        >>> import plait, pyarrow as pa
        >>> a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
        >>> rows = pa.table({"ts": [1, 2], "x": [1, 5]})
        >>> with plait.join(a, b, on="a.x = b.x", within=3).on_threads(workers=1) as run:
        ...     run.push("a", None, rows)
        ...     run.push("b", None, rows)
        ...     run.drain()
        ...     len(run.table())
        2
        """
        run: Run = executor("threads")(self, **options)
        return run

    def on_spark(self, data: Mapping[str, Any], **options: Unpack[SparkOptions]) -> Any:
        """Run on Spark: DataFrames in, a DataFrame out, streaming or batch, with the same rows.

        data maps each stream's name to a DataFrame, or to a list or dict of them for several sources; all streaming or all
        batch. The options are those of `plait.query.run_options.SparkOptions`: `layout`, `control`, `late_rows`, ... A streaming
        result is published in order by `plait.spark.write_ordered`. Raises `QueryError` for what Spark can't run, before
        anything runs.
        """
        return executor("spark")(self, data, **options)

    def explain(self) -> str:
        """What this query computes, in words, one line an operator."""
        from plait.query.explain import explain

        return explain(self)


Node = Stream | Query


def leaves(node: Node) -> list[Stream]:
    if isinstance(node, Stream):
        return [node]
    return [leaf for child in node.inputs for leaf in leaves(child)]


def check_node(value: object, position: str) -> Node:
    if isinstance(value, (Stream, Query)):
        return value
    raise QueryError(
        f"The {position} is {' '.join(reprlib.repr(value).split())}, neither a stream nor a query",
        do="Declare it with plait.stream(...); data comes in when the query is run",
    )


def check_name(name: object) -> str:
    if isinstance(name, str) and name and name.lower() not in ("l", "r", "left", "right"):
        return name
    raise QueryError(f"A query's name is {name!r}", do="Pass a non-empty text other than l, r, left and right")


def check_order(order: object) -> None:
    if order not in ORDERS:
        raise QueryError(
            f"order={order!r} is no order",
            do="Use 'strict' (the reference's sequence), 'trigger' (partners of one trigger in any order) or 'none'",
        )
