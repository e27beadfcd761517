"""What every query is: inputs, a name, and the ways to run it.

A query never imports an executor: it finds one by name, so that `import plait` loads neither Numba nor Spark.
"""

from __future__ import annotations

import dataclasses
import difflib
import html
import importlib
import importlib.util
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import pyarrow as pa

from plait.errors import QueryError, RunError
from plait.query.arguments import Order, Rows
from plait.query.row_calls import RowCalls
from plait.query.run_options import SparkOptions, ThreadsOptions
from plait.query.stream import Stream
from plait.schema import is_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from plait.threads.run import Run

#: Engines for data that is all there.
Bounded = Literal["auto", "threads", "reference"]

#: Executors by name, where each is found: `module:function(query, data, **options)`.
EXECUTORS = {
    "reference": "plait.reference.run:table",
    "threads": "plait.threads.run:start",
    "spark": "plait.spark.run:dataframe",
}

#: How an executor gives all results of bounded data: as one table, and as batches as they come.
BOUNDED = {
    "auto": ("plait.threads.bounded.run:table", "plait.threads.bounded.run:batches"),
    "reference": ("plait.reference.run:table", "plait.reference.run:batches"),
    "threads": ("plait.threads.feeds:table", "plait.threads.feeds:batches"),
}

ORDERS = ("strict", "trigger", "none")


def executor(name: str) -> Any:
    """The entry point of an executor, imported now.

    Raises:
        RunError: This installation does not have the executor.
    """
    module, function = EXECUTORS[name].split(":")
    if not has_executor(name):
        have = ", ".join(n for n in EXECUTORS if has_executor(n))
        raise RunError(f"There is no executor {name!r} in this version of plait", do=f"Use one of: {have}")
    return getattr(importlib.import_module(module), function)


def has_executor(name: str) -> bool:
    """Whether the executor's module can be found. It is not imported."""
    module = EXECUTORS[name].split(":")[0]
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class Query(RowCalls):
    """A frozen description of what to compute; the result of `plait.join`, `asof`, `aggregate` or `operator`.

    A query's output is a stream with one source. So a query can be an input of another query.
    The examples of its methods go on from this one.

    Attributes:
        name: What other queries' SQL and column prefixes call this one, or None.

    Example:
        >>> import plait
        >>> quotes, trades = plait.stream("quotes", unit="s"), plait.stream("trades", unit="s")
        >>> near = plait.join(quotes, trades, on="quotes.price = trades.price", within="5s")
        >>> rows = {"quotes": {"ts": [1, 9], "price": [10, 20]}, "trades": {"ts": [3], "price": [10]}}
        >>> near.reference(rows).num_rows
        1
    """

    name: str | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams and queries that this one reads, in order. Their order breaks ties between tuples of one ts."""
        raise NotImplementedError

    def named(self, name: str) -> Self:
        """The same query under a name. Other queries' SQL and column prefixes refer to it by that.

        Args:
            name: A non-empty text other than l, r, left and right.

        Returns:
            A copy of the query with the name.

        Raises:
            QueryError: The name is no text, is empty, or means a side of a join.

        Example:
            >>> near.named("near").name
            'near'
        """
        return dataclasses.replace(self, name=check_name(name))

    def streams(self) -> dict[str, Stream]:
        """The streams that the query reads, directly or through other queries.

        Returns:
            The streams by name, in order of first mention.

        Raises:
            QueryError: Two different streams have the same name.

        Example:
            >>> list(near.streams())
            ['quotes', 'trades']
        """
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

    @overload
    def run(
        self, data: Rows | str, *, engine: Literal["auto", "threads"] = "auto", **options: Unpack[ThreadsOptions]
    ) -> pa.Table: ...
    @overload
    def run(
        self, data: Rows | str, *, engine: Literal["reference"], order: Order = "strict", keys: bool = False
    ) -> pa.Table: ...
    def run(self, data: Rows | str, *, engine: Bounded = "auto", **options: Any) -> pa.Table:
        """Run over data that is all there, and give the complete result.

        Args:
            data: For each stream's name an Arrow table, record batches, a pandas or Polars DataFrame, anything else with Arrow's
                C stream and columns (a DuckDB relation), a dict of columns, or the path of a file or folder of Parquet, CSV or
                JSON lines, or a pattern of paths. For a stream of several sources that no column names: a list of tables, or
                a dict by source. For a query of one stream its data alone will do.
            engine: "auto" runs on threads, as-of and inner joins over time in slabs, others as they are pushed. "threads": all as
                they are pushed. "reference": slow, and the definition.
            **options: On threads those of `on_threads`. The reference has `order` and `keys`.

        Returns:
            All results as one Arrow table, in result order: the same on every engine.

        Raises:
            QueryError: A stream has no data, data is given for no stream, the columns don't fit the query, or an option is
                not known.
            DataError: The data can't be read, or breaks what its stream declares.
            RunError: A function of the user's raised.

        Example:
            >>> near.run(rows).to_pylist()
            [{'ts': 3000000, 'quotes_ts': 1, 'quotes_price': 10, 'trades_ts': 3, 'trades_price': 10}]
        """
        found: pa.Table = bounded(engine, 0, options)(self, data, **options)
        return found

    @overload
    def batches(
        self, data: Rows | str, *, engine: Literal["auto", "threads"] = "auto", **options: Unpack[ThreadsOptions]
    ) -> Iterator[pa.RecordBatch]: ...
    @overload
    def batches(
        self, data: Rows | str, *, engine: Literal["reference"], order: Order = "strict", keys: bool = False
    ) -> Iterator[pa.RecordBatch]: ...
    def batches(self, data: Rows | str, *, engine: Bounded = "auto", **options: Any) -> Iterator[pa.RecordBatch]:
        """Run over data that is all there, and give results as they come: in bounded memory, however long the data are.

        Args:
            data: As `run` takes it. Files are read a block at a time.
            engine: As `run` has it.
            **options: As `run` has them.

        Yields:
            Arrow record batches in result order. One after the other they are the table that `run` gives.

        Raises:
            QueryError: As `run` does.
            DataError: As `run` does, when the row is met.
            RunError: As `run` does.

        Example:
            >>> [batch.num_rows for batch in near.batches(rows)]
            [1]
        """
        return bounded(engine, 1, options)(self, data, **options)  # type: ignore[no-any-return]

    def reference(self, data: Rows | str, *, order: Order = "strict", keys: bool = False) -> pa.Table:
        """Run on the reference executor: slow, sequential, and the definition of what is correct.

        Rows that a stream drops as late are told in a warning.

        Args:
            data: For each stream's name an Arrow table, record batches, a pandas or Polars DataFrame, or a dict of columns. For a
                stream of several sources that no column names: a list of these, or a dict by source.
            order: "strict", "trigger" or "none". The reference gives the strict order, which satisfies all three.
            keys: Add the column `_plait_key`, bytes that sort as the results do.

        Returns:
            The complete result as one Arrow table, in result order.

        Raises:
            QueryError: A stream has no data, data is given for no stream, or the columns don't fit the query.
            DataError: Rows break what their stream declares: `LateError` and `BehindError` are of this kind.
            RunError: A function of the user's raised.

        Example:
            >>> near.reference(rows).to_pylist()
            [{'ts': 3000000, 'quotes_ts': 1, 'quotes_price': 10, 'trades_ts': 3, 'trades_price': 10}]
        """
        return executor("reference")(self, data, order=order, keys=keys)

    def on_threads(self, **options: Unpack[ThreadsOptions]) -> Run:
        """Run on threads in this process: push batches, read results.

        Args:
            **options: See `plait.query.run_options.ThreadsOptions`: `workers`, `strategy`, `order`, `keys` and others.

        Returns:
            A `Run`, to be used in a `with` block. Leaving the block ends all threads.

        Raises:
            QueryError: An option is not known, or this query can't have it.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("quotes", None, rows["quotes"])
            ...     run.push("trades", None, rows["trades"])
            ...     run.drain()
            ...     len(run.table())
            1
        """
        check_options("on_threads", options, ThreadsOptions)
        run: Run = executor("threads")(self, **options)
        return run

    def on_spark(
        self,
        data: Mapping[str, DataFrame | Sequence[DataFrame] | Mapping[Any, DataFrame]],
        **options: Unpack[SparkOptions],
    ) -> DataFrame:
        """Run on Spark: DataFrames in, a DataFrame out, streaming or batch, with the same rows.

        Every row of the result has the column `_plait_key`. Its byte order is the result order. A streaming result is published
        in order by `plait.spark.write_ordered`.

        Args:
            data: For each stream's name a DataFrame, or a list or dict of them for several sources. All of them are streaming, or
                all are batch.
            **options: See `plait.query.run_options.SparkOptions`: `layout`, `control`, `late_rows` and others.

        Returns:
            A DataFrame of the results.

        Raises:
            QueryError: Spark can't run this, or an option is not known; nothing has run by then.
            RunError: The session can't run plait: it has no RocksDB state store, another Python, or is Spark Connect's.

        Example:
            >>> import os, plait.connectors, plait.spark
            >>> spark = plait.spark.session(master="local[2]", partitions=2)
            >>> for name, stream in near.streams().items():  # files have positions, which order the rows of a source
            ...     _ = plait.connectors.write_folder(plait.connectors.feed(stream, rows[name]), name)
            >>> df = near.on_spark({name: spark.read.parquet(os.path.abspath(name)) for name in near.streams()})
            >>> df.orderBy("_plait_key").drop("_plait_key").collect()
            [Row(ts=3000000, quotes_ts=1, quotes_price=10, trades_ts=3, trades_price=10)]
        """
        check_options("on_spark", options, SparkOptions)
        found: DataFrame = executor("spark")(self, data, **options)
        return found

    def explain(self) -> str:
        """What this query computes, in words.

        Returns:
            A line for each operator and stream, inputs indented below what reads them.

        Example:
            >>> print(near.explain())
            inner join, within 5 s, on (quotes.price = trades.price)
              stream quotes: time ts, as delivered
              stream trades: time ts, as delivered
        """
        from plait.query.explain import explain

        return explain(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of a query: its plan."""
        return f"<pre>{html.escape(self.explain())}</pre>"


def bounded(engine: str, form: int, options: Mapping[str, Any]) -> Any:
    """How an engine gives all results of bounded data, imported now; form 0 is a table, 1 are batches."""
    name = engine
    if not isinstance(name, str) or name not in BOUNDED:
        raise QueryError(
            f"engine={engine!r} runs no data that is all there",
            do=f"Use one of: {', '.join(BOUNDED)}; on Spark, on_spark takes DataFrames",
        )
    check_options("run", options, ThreadsOptions)
    if name == "reference" and (others := sorted(options.keys() - {"order", "keys"})):
        raise QueryError(f"engine='reference' has no option {others[0]!r}", why="it has order and keys")
    module, function = BOUNDED[name][form].split(":")
    return getattr(importlib.import_module(module), function)


Node = Stream | Query


def leaves(node: Node) -> list[Stream]:
    """The streams below a node, one for each mention."""
    if isinstance(node, Stream):
        return [node]
    return [leaf for child in node.inputs for leaf in leaves(child)]


def check_node(value: object, position: str) -> Node:
    """An input of a query, refused if it is neither a stream nor a query. `position` begins the message."""
    if isinstance(value, (Stream, Query)):
        return value
    raise QueryError(
        f"The {position} is {' '.join(reprlib.repr(value).split())}, neither a stream nor a query",
        do="Declare it with plait.stream(...); data comes in when the query is run",
    )


def check_name(name: object) -> str:
    """A query's name, refused if it could be mistaken for a side of a join."""
    if isinstance(name, str) and name and name.lower() not in ("l", "r", "left", "right"):
        return name
    raise QueryError(f"A query's name is {name!r}", do="Pass a non-empty text other than l, r, left and right")


def check_options(call: str, given: Mapping[str, Any], known: type) -> None:
    """Refuse an option that `call` does not have; `known` is the TypedDict that lists those it has."""
    names = list(known.__annotations__)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            raise QueryError(
                f"{call} has no option {name!r}",
                why=f"there are {', '.join(names)}",
                do=f"Did you mean {near[0]}=?" if near else "",
            )


def check_rates(rates: object) -> None:
    """Refuse `rates=` that are none."""
    if rates is not None and not (
        isinstance(rates, (tuple, list)) and len(rates) == 2 and all(is_number(rate) and rate > 0 for rate in rates)
    ):
        raise QueryError(
            f"rates={rates!r} are no rates",
            do="Pass tuples a second of the left and the right stream, such as (1000, 3000)",
        )


def check_order(order: object) -> None:
    """Refuse an `order=` that does not exist."""
    if not isinstance(order, str) or order not in ORDERS:
        raise QueryError(
            f"order={order!r} is no order",
            do="Use 'strict' (the reference's sequence), 'trigger' (partners of one trigger in any order) or 'none'",
        )
