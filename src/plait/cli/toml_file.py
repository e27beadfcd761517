"""TOML files: streams, queries by name, where results go. Every unknown key is an error that names its neighbour.

[streams.quotes]                 # options of plait.stream, and where the rows are
path = "quotes/"                 # a folder or file, relative to this file; or a [workload] delivers them
source = "feed"

[query]                          # the last step; its inputs are streams or [queries.NAME]
kind = "join"                    # join, asof, aggregate, dedup, rows or union, with their options
left = "quotes"
right = "trades"
on = "abs(quotes.x - trades.a) <= 10"
within = "5 minutes"

[output]
path = "near.parquet"

[spark]                          # where the engine "spark" runs, and the folder that lets it go on after a stop
master = "local[4]"
checkpoint = "near-checkpoint"
"""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plait import paths
from plait.cli.job import Job
from plait.connectors import folder, synthetic
from plait.connectors.contract import Feed
from plait.errors import DataError, PlaitError, QueryError
from plait.query import functions
from plait.query.aggregate import aggregate
from plait.query.base import EXECUTORS, ORDERS, Node, Query
from plait.query.dedup import dedup
from plait.query.functions import Function
from plait.query.join import asof, join
from plait.query.row_by_row import union
from plait.query.run_options import LAYOUTS
from plait.query.stream import Stream, stream
from plait.schema import is_count, listed

_STREAM = ("time", "unit", "source", "sources", "seq", "disorder", "late", "behind", "idle_after", "schema")
_PLACE = ("path", "format")
_QUERIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "join": (("left", "right"), ("on", "within", "last", "tumbling", "tumbling_count", "how")),
    "asof": (("left", "right"), ("by", "within", "exact", "direction", "how")),
    "aggregate": (("input",), ("size", "advance", "session", "by", "compute")),
    "rows": (("input",), ("where", "select", "drop", "rename")),
    "union": ((), ("inputs",)),
    "dedup": (("input",), ("by", "within")),
}
_RUN = ("engine", "order", "max_pending")
_OUTPUT = ("path", "late")
_SPARK = ("master", "checkpoint", "layout", "cells", "max_window")


def load(file: Path) -> Job:
    """Read a TOML file.

    Raises:
        DataError: It is no TOML, or no UTF-8 text.
        QueryError: A key is not known, a value has no meaning, or the query can't be built; the message names the key.
    """
    return described(file, content(file), None)


#: Builds a query of streams and queries by name; a stream's rows, where the file tells of them, are asked for by its name.
Build = Callable[[Mapping[str, Node], Callable[[str], Feed | None]], Query]


def described(file: Path, text: str, build: Build | None) -> Job:
    """The job of a TOML text.

    Args:
        file: Where it stands. Paths are relative to it.
        text: The TOML.
        build: Builds the last step. None: the text has it in a table `[query]`.
    """
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise DataError(f"{file} is nested too deeply to be read") from None
    except ValueError as error:  # TOML's own, and of a number with more digits than Python reads
        raise DataError(f"{file} is not TOML: {error}") from error
    return _Reader(file, tables, build).job()


def content(file: Path) -> str:
    """The text of a file."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 text: {error}") from error


def _word(text: str) -> Any:
    """An argument inside a call: a number, or the name of a column."""
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _rows(
    node: Node, *, name: str | None, where: Any = None, select: Any = None, drop: Any = None, rename: Any = None
) -> Query:
    """Rows changed one by one: those for which `where` is true, then with these columns and no others, or without some, or under
    other names. `select` is a list of columns, or a table of columns and their expressions."""
    found: Node = node if where is None else node.where(where)
    if isinstance(select, dict):
        found = found.select(**select)
    elif select is not None:
        found = found.select(*listed(select))
    if drop is not None:
        found = found.drop(*listed(drop))
    if rename is not None:
        if not isinstance(rename, dict):
            raise QueryError(f"rename={rename!r} names no columns", do='Make it a table such as { new = "old" }')
        found = found.rename(**rename)
    if found is node or not isinstance(found, Query):
        raise QueryError("Nothing is done to the rows", do="Say where, select, drop or rename")
    return found if name is None else found.named(name)


class _Reader:
    """Reads the tables of one file. `nodes` has streams and queries by name, so that later tables can refer to earlier ones.

    Attributes:
        file: For messages, and for paths, which are relative to it.
        tables: The file's content.
        build: Builds the last step, where the file does not describe it.
    """

    def __init__(self, file: Path, tables: dict[str, Any], build: Build | None) -> None:
        self.file, self.tables, self.build = file, tables, build
        self.nodes: dict[str, Node] = {}

    def job(self) -> Job:
        """The whole file as a job: streams, then queries in their order, then the last step."""
        last = ("query",) if self.build is None else ()
        self._keys(self.tables, ("workload", "streams", "queries", *last, "output", "run", "spark"), "")
        workload = self._workload()
        feeds = self._streams(workload)
        for name, table in self._table("queries").items():
            if name in self.nodes:
                raise self._error(f"queries.{name}", "has the name of a stream")
            self.nodes[name] = self._query(table, f"queries.{name}", name)
        query = self._last(feeds)
        output, run, spark = self._table("output"), self._table("run"), self._table("spark")
        self._keys(output, _OUTPUT, "output.")
        self._keys(run, _RUN, "run.")
        self._keys(spark, _SPARK, "spark.")
        for key, value in spark.items():
            if key in ("master", "checkpoint") and (not isinstance(value, str) or not value):
                raise self._error(f"spark.{key}", f"is {value!r}", "Write it as text")
        for key, allowed in (("engine", tuple(EXECUTORS)), ("order", ORDERS)):
            if key in run and run[key] not in allowed:
                raise self._error(f"run.{key}", f"is {run[key]!r}", f"Use one of {', '.join(allowed)}")
        used = query.streams()
        return Job(
            title=self.file.name,
            query=query,
            feeds={name: self._rows(name, feed) for name, feed in feeds.items() if name in used},
            output=self._path(output.get("path"), "output.path"),
            late=self._path(output.get("late"), "output.late"),
            engine=run.get("engine"),
            order=run.get("order", "strict"),
            max_pending=run.get("max_pending"),
            master=spark.get("master"),
            checkpoint=self._path(spark.get("checkpoint"), "spark.checkpoint"),
            layout=self._layout(spark),
            cells=self._count(spark, "cells"),
            max_window=self._count(spark, "max_window"),
        )

    def _layout(self, spark: Mapping[str, Any]) -> str | tuple[int, int]:
        """The cells of a join on Spark: a name, or rows and columns."""
        found = spark.get("layout", "auto")
        if isinstance(found, list) and len(found) == 2 and all(is_count(each) for each in found):
            return found[0], found[1]
        if found not in ("auto", *LAYOUTS):
            raise self._error("spark.layout", f"is {found!r}", f"Use 'auto', {', '.join(map(repr, LAYOUTS))} or [m, n]")
        return str(found)

    def _count(self, spark: Mapping[str, Any], name: str) -> int | None:
        """A number that says how many; None where the file does not say it."""
        found = spark.get(name)
        if found is not None and not is_count(found):
            raise self._error(f"spark.{name}", f"is {found!r}", "Write a whole number, at least 1")
        return found

    def _last(self, feeds: Mapping[str, Feed | Callable[[], Feed]]) -> Query:
        """The last step: the table `[query]`, or what is built of the streams and queries of the file."""
        if self.build is not None:
            return self.build(self.nodes, lambda name: self._rows(name, feeds[name]) if name in feeds else None)
        if "query" not in self.tables:
            raise self._error("query", "is missing", "Describe the last step in a table [query]")
        return self._query(self.tables["query"], "query", None)

    # --- streams ---

    def _workload(self) -> synthetic.Workload | None:
        """The made-up streams of `[workload]`, if there is one."""
        table = dict(self._table("workload"))
        if not table:
            return None
        made: synthetic.Workload = self._in("workload", synthetic.workload, table.pop("name", None), **table)
        return made

    def _streams(self, workload: synthetic.Workload | None) -> dict[str, Feed | Callable[[], Feed]]:
        """Declare every stream; rows are looked up only for those the query reads."""
        feeds: dict[str, Feed | Callable[[], Feed]] = {}
        tables = self._table("streams")
        declared = {} if workload is None else {name: dict(d) for name, d in workload.declarations.items()}
        for name in dict.fromkeys([*declared, *tables]):
            table = tables.get(name, {})
            self._keys(table, (*_STREAM, *_PLACE), f"streams.{name}.")
            options = declared.get(name, {}) | {k: v for k, v in table.items() if k in _STREAM}
            node = self._in(f"streams.{name}", stream, name, **options)
            self.nodes[name] = node
            if "path" in table:
                feeds[name] = self._folder(name, node, table)
            elif workload is not None and name in workload.feeds:
                feeds[name] = workload.feeds[name]
        return feeds

    def _folder(self, name: str, node: Stream, table: Mapping[str, Any]) -> Callable[[], Feed]:
        """How to find the rows of a stream that has a path; files are looked for only when they are wanted."""
        path, form = table["path"], table.get("format")
        if not isinstance(path, str):
            raise self._error(f"streams.{name}.path", f"is {path!r}", "Write the path of a folder or file as text")
        where = f"streams.{name}.path"
        place = self._in(where, paths.absolute, path, under=self.file.parent)
        return lambda: self._in(where, folder.feed, node, place, format=form)

    def _rows(self, name: str, feed: Feed | Callable[[], Feed]) -> Feed:
        """A stream's rows. Files are looked for now and not before: an unused stream may have a path that is not there."""
        return feed if isinstance(feed, Feed) else feed()

    # --- queries ---

    def _query(self, table: Any, where: str, name: str | None) -> Query:
        """A query of its table, its options checked by name.

        The options are those of `plait.join`, `asof`, `aggregate` and `dedup` by the same names (`_QUERIES`); what they mean is
        checked there.
        """
        if not isinstance(table, dict):
            raise self._error(where, f"is {table!r}", "Make it a table")
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in _QUERIES:
            raise self._error(f"{where}.kind", f"is {kind!r}", f"Use one of {', '.join(_QUERIES)}")
        inputs, options = _QUERIES[kind]
        self._keys(table, ("kind", *inputs, *options), f"{where}.")
        nodes = [self._node(table, where, key) for key in inputs]
        given = {key: table[key] for key in options if key in table}
        if kind == "aggregate":
            if "compute" not in given:
                raise self._error(f"{where}.compute", "is missing")
            given["compute"] = self._compute(given["compute"], f"{where}.compute")
        if kind == "union":
            nodes = self._nodes(given.pop("inputs", None), f"{where}.inputs")
        builders: dict[str, Callable[..., Query]] = {
            "join": join, "asof": asof, "aggregate": aggregate, "dedup": dedup, "rows": _rows, "union": union,
        }  # fmt: skip
        query: Query = self._in(where, builders[kind], *nodes, **given, name=name)
        return query

    def _nodes(self, names: Any, where: str) -> list[Node]:
        """The streams and queries of a list."""
        if not isinstance(names, list):
            raise self._error(where, f"is {names!r}", 'Make it a list such as ["quotes", "trades"]')
        return [self._node({"inputs": name}, where.removesuffix(".inputs"), "inputs") for name in names]

    def _node(self, table: Mapping[str, Any], where: str, key: str) -> Node:
        """The stream or query that a key names as an input."""
        name = table.get(key)
        if not isinstance(name, str) or name not in self.nodes:
            known = ", ".join(self.nodes) or "none are declared"
            what = f"names {name!r}, which is neither a stream nor a query above it" if key in table else "is missing"
            raise self._error(f"{where}.{key}", what, f"Use one of: {known}")
        return self.nodes[name]

    def _compute(self, table: Any, where: str) -> dict[str, Function]:
        """The functions of an aggregate, by output column."""
        if not isinstance(table, dict):
            raise self._error(where, f"is {table!r}", 'Make it a table such as { n = "count()", mean = "mean(x)" }')
        return {column: self._function(given, f"{where}.{column}") for column, given in table.items()}

    def _function(self, given: Any, where: str) -> Function:
        """`"mean(x)"`, `"top(x, 3, y)"`, or `{ function = "mean", column = "x", where = "x > 3" }`, by its arguments' names.

        Functions are looked up in `query.functions.KINDS`: one that is registered there can be used here without a line
        of ours, unless it takes a function of Python's.
        """
        call = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", given) if isinstance(given, str) else None
        words: list[Any] = []
        named: dict[str, Any] = {}
        if call is not None and re.fullmatch(r"[\w\s.,+-]*", call[2]):
            name = call[1]
            words = [_word(word.strip()) for word in call[2].split(",")] if call[2].strip() else []
        elif isinstance(given, dict) and "function" in given:
            name, named = given["function"], {k: v for k, v in given.items() if k != "function"}
        else:
            raise self._error(
                where,
                f"is {given!r}",
                "Write 'mean(column)', or a table with function, column, where and what else it takes",
            )
        kind = functions.KINDS.get(name) if isinstance(name, str) else None
        if kind is None or not kind.in_files:
            raise self._error(where, f"names the function {name!r}", "A custom function needs a Python file")
        self._keys(named, tuple(inspect.signature(kind.make).parameters), f"{where}.")
        try:
            function = kind.make(*words, **named)
        except TypeError as error:
            raise self._error(where, f"does not fit {name}: {error}") from error
        except PlaitError as error:
            raise self._error(where, str(error)) from error
        return function

    # --- errors ---

    def _table(self, key: str) -> dict[str, Any]:
        """A table of the file, empty if it is not there."""
        table = self.tables.get(key, {})
        if not isinstance(table, dict):
            raise self._error(key, f"is {table!r}", "Make it a table")
        return table

    def _keys(self, table: Any, allowed: tuple[str, ...], where: str) -> None:
        """Refuse a key that is not known, with the nearest one that is."""
        if not isinstance(table, dict):
            raise self._error(where.rstrip("."), f"is {table!r}", "Make it a table")
        for key in table:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=1)
                raise self._error(
                    f"{where}{key}",
                    "is no key here",
                    f"Did you mean {near[0]!r}?" if near else f"Use {', '.join(allowed)}",
                )

    def _path(self, path: Any, where: str) -> str | None:
        """A path of the file's, relative to it, as an absolute one; `-` stays."""
        if path is None or (path == "-" and where.startswith("output.")):
            return path  # type: ignore[no-any-return]
        if not isinstance(path, str):
            raise self._error(where, f"is {path!r}", "Write a path as text")
        return str(self._in(where, paths.absolute, path, under=self.file.parent))

    def _in(self, where: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Call, and say in which table of the file an error arose."""
        try:
            return function(*arguments, **options)
        except PlaitError as error:
            raise type(error)(f"{self.file}, [{where}]: {error.fact}", why=error.why, do=error.do) from error

    def _error(self, where: str, fact: str, do: str = "") -> QueryError:
        """An error that names the file and the key."""
        return QueryError(f"{self.file}: {where} {fact}", do=do)
