"""A stream: a logical input, how its event time is read, what delivers it, and what it promises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from plait.encodings import plain_type
from plait.errors import QueryError
from plait.query.arguments import Duration, by_name
from plait.query.row_calls import RowCalls
from plait.schema import TIME_UNITS, arrow_schema, check_time_type, duration_us, is_bytes, is_text

#: `source=plait.FILE`: the file's path, relative to its folder, names the source, which ends with the file.
FILE: Final = "@file"
#: `source=plait.PARTITION`: Kafka's partition names the source.
PARTITION: Final = "@partition"

SourceName = int | str


@dataclass(frozen=True)
class Stream(RowCalls):
    """A logical input of a query. It is built by `plait.stream`, which says what each part means.

    It is frozen: two equal streams are the same input. The examples of its methods go on from this one.

    Attributes:
        name: Under which its data is handed in.
        time: The column with the event time.
        unit: What the time column counts, where its type does not say.
        source: The column that names the source, `plait.FILE`, `plait.PARTITION`, or None.
        sources: The number of sources or their names, where declared.
        seq: "position", "content", or the column that orders a source's tuples.
        disorder_us: How far a source may run back, in microseconds.
        late: "error" or "drop".
        behind: "error" or "drop".
        idle_after_us: After how long a silent source lets go of the frontier, in microseconds, or None.
        schema: The declared columns, or None.

    Example:
        >>> import plait
        >>> quotes = plait.stream("quotes", unit="ms", source="feed", sources=["x", "y"], disorder="2s")
        >>> quotes.disorder_us
        2000000
    """

    name: str
    time: str
    unit: str | None
    source: str | None
    sources: int | tuple[SourceName, ...] | None
    seq: str
    disorder_us: int
    late: str
    behind: str
    idle_after_us: int | None
    schema: pa.Schema | None

    @property
    def source_column(self) -> str | None:
        """The column that names the source. None if none does."""
        return None if self.source is None or self.source.startswith("@") else self.source

    @property
    def seq_column(self) -> str | None:
        """The column that orders a source's tuples. None for "position" and "content"."""
        return None if self.seq in ("position", "content") else self.seq

    def declared(self) -> tuple[SourceName, ...] | None:
        """The declared sources in their order.

        Returns:
            Their names, 0 to N - 1 for a number N. None where first sight makes a source known.

        Example:
            >>> quotes.declared()
            ('x', 'y')
        """
        if isinstance(self.sources, int):
            return tuple(range(self.sources))
        return self.sources

    def meaning(self) -> list[Any]:
        """What a checkpoint is bound to: what changes a tuple's place, or whether it is late. In this order, for good.

        `late`, `behind` and `idle_after` are not: a run that stopped at a tuple goes on with another word for it.

        Returns:
            The name, time, unit, source, sources, seq and disorder in microseconds.

        Example:
            >>> plait.stream("trades", disorder="2s").meaning()
            ['trades', 'ts', None, None, None, 'position', 2000000]
        """
        sources = list(self.sources) if isinstance(self.sources, tuple) else self.sources
        return [self.name, self.time, self.unit, self.source, sources, self.seq, self.disorder_us]

    def check(self, schema: pa.Schema) -> None:
        """Refuse a schema that lacks what the declaration names, or has it in a type that can't serve.

        Args:
            schema: The columns of the data, as an Arrow schema.

        Raises:
            QueryError: A named column is missing or of the wrong type, a name stands twice, or the declared schema is another.

        Example:
            >>> import pyarrow as pa
            >>> quotes.check(pa.schema([("ts", pa.int64()), ("fed", pa.string())]))
            Traceback (most recent call last):
            plait.errors.QueryError: Stream 'quotes' has no column 'feed', which source= names. ... Did you mean 'fed'?
        """
        for option, column in (("time", self.time), ("source", self.source_column), ("seq", self.seq_column)):
            if column is not None and column not in schema.names:
                near = difflib.get_close_matches(column, schema.names, n=1)
                raise QueryError(
                    f"Stream {self.name!r} has no column {column!r}, which {option}= names",
                    why=f"its columns are {', '.join(schema.names)}",
                    do=f"Did you mean {near[0]!r}?" if near else "",
                )
        if len(set(schema.names)) != len(schema.names):
            twice = next(n for n in schema.names if schema.names.count(n) > 1)
            raise QueryError(f"Stream {self.name!r} has two columns called {twice!r}", do="Rename one")
        check_time_type(schema.field(self.time).type, self.unit, stream=self.name, column=self.time)
        if self.source_column is not None:
            self._check_source_type(schema.field(self.source_column).type)
        if self.seq_column is not None:
            self._check_seq_type(schema.field(self.seq_column).type)
        if self.schema is not None and not self.schema.equals(schema):
            raise QueryError(
                f"Stream {self.name!r} is declared with another schema than it has",
                why=_difference(self.schema, schema),
                do="Change schema=, or cast the data",
            )

    def _check_source_type(self, kind: pa.DataType) -> None:
        value = plain_type(kind)
        if not (is_text(value) or pa.types.is_integer(value)):
            raise QueryError(
                f"Stream {self.name!r}: source column {self.source!r} is {kind}",
                why="sources are told apart by an integer or by text",
                do="Cast the column",
            )

    def _check_seq_type(self, kind: pa.DataType) -> None:
        number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
        decimal = pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)
        time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
        if not (number or decimal or time or pa.types.is_boolean(kind) or is_text(kind) or is_bytes(kind)):
            raise QueryError(
                f"Stream {self.name!r}: seq column {self.seq!r} is {kind}",
                why="a source's tuples are ordered by numbers, text, bytes or times",
                do="Cast the column, or name another",
            )


def _difference(declared: pa.Schema, given: pa.Schema) -> str:
    """The first thing in which two schemas differ, in words."""
    for field in declared:
        if field.name not in given.names:
            return f"column {field.name!r} is declared and missing"
        if given.field(field.name).type != field.type:
            return f"column {field.name!r} is declared {field.type} and given as {given.field(field.name).type}"
    extra = [name for name in given.names if name not in declared.names]
    return f"column {extra[0]!r} is not declared" if extra else "its columns come in another order"


@by_name
def stream(
    name: str,
    *,
    time: str = "ts",
    unit: str | None = None,
    source: str | None = None,
    sources: int | Iterable[SourceName] | None = None,
    seq: str = "position",
    disorder: Duration = 0,
    late: Literal["error", "drop"] = "error",
    behind: Literal["error", "drop"] = "error",
    idle_after: Duration | None = None,
    schema: pa.Schema | Mapping[str, str | pa.DataType] | None = None,
) -> Stream:
    """Declare an input stream.

    Only `behind="drop"` and `idle_after=` make the answer depend on when rows arrive. docs/semantics.md has the rules in full.

    Args:
        name: Under which its data is handed in, and by which SQL text calls it. Not l, r, left or right.
        time: The column with the event time: a timestamp, a date or an integer.
        unit: What the time column counts: "s", "ms", "us", "ns" or "day". It is needed for an integer, a date, and a timestamp
            without a zone.
        source: The column that names a row's physical source, `plait.FILE` or `plait.PARTITION`. None: the stream has one
            source, or one for each table or DataFrame that is given.
        sources: How many sources there are, or their names in order. A declared source holds the frontier until it speaks or
            ends. None: a source is known once its first row has come.
        seq: What orders the tuples of one source: "position" (as delivered), "content" (ties by the row itself), or a column.
        disorder: How far a source may run back in time. A tuple further back is late.
        late: What happens to late tuples: "error" stops the run, "drop" keeps them aside and counts them.
        behind: What happens to tuples of a source that turns up below the released frontier: "error" or "drop".
        idle_after: After how long, by the wall clock, a silent source no longer holds the frontier. None: it always does.
        schema: The columns and their types: an Arrow schema, or a dict of names to types. Data is checked against it; CSV and
            JSON files are read by it. None: the first data decides.

    Returns:
        A frozen `Stream`, an input for `join`, `asof`, `aggregate` and `operator`.

    Raises:
        QueryError: An option has no meaning, or two don't go together (`seq="content"` with `late="drop"`).

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s", source="meter", disorder="2s", late="drop")
        >>> print(plait.aggregate(readings, size="1 min", compute={"n": plait.count()}).explain())
        aggregate, windows of 1 min every 1 min: n = count()
          stream readings: time ts, as delivered, sources named by column meter, disorder up to 2 s, late tuples: drop
    """
    _check_name(name)
    _check_columns(name, time, seq, unit)
    _one_of(name, "late", late, ("error", "drop"))
    _one_of(name, "behind", behind, ("error", "drop"))
    if seq == "content" and late == "drop":
        raise QueryError(
            f"Stream {name!r}: late='drop' with seq='content'",
            why="without a position or a seq column, which tuple came first is not a fact of the data",
            do="Name a seq column, use seq='position', or keep late='error'",
        )
    return Stream(
        name=name,
        time=time,
        unit=unit,
        source=_source(name, source),
        sources=_sources(name, sources, source),
        seq=seq,
        disorder_us=duration_us(disorder, f"Stream {name!r}: disorder"),
        late=late,
        behind=behind,
        idle_after_us=None
        if idle_after is None
        else duration_us(idle_after, f"Stream {name!r}: idle_after", zero=False),
        schema=None if schema is None else arrow_schema(schema, f"Stream {name!r}: schema"),
    )


#: Sources of a stream that are declared by their number, at most.
MOST_SOURCES = 1 << 16


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise QueryError(f"A stream's name is {name!r}", why="it is how data is handed in", do="Pass a non-empty text")
    if name.lower() in ("l", "r", "left", "right"):
        raise QueryError(
            f"A stream can't be called {name!r}", why="that word means a side of every join", do="Rename it"
        )


def _check_columns(name: str, time: object, seq: object, unit: object) -> None:
    for option, value in (("time", time), ("seq", seq)):
        if not isinstance(value, str) or not value:
            raise QueryError(f"Stream {name!r}: {option}={value!r} names no column", do="Pass the column's name")
    if unit is not None and not (isinstance(unit, str) and unit in TIME_UNITS):
        raise QueryError(
            f"Stream {name!r}: unit={unit!r} is no unit of time", do=f"Use one of {', '.join(map(repr, TIME_UNITS))}"
        )


def _one_of(name: str, option: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise QueryError(
            f"Stream {name!r}: {option}={value!r} is not known", do=f"Use one of {', '.join(map(repr, allowed))}"
        )


def _source(name: str, source: object) -> str | None:
    if source is None or (isinstance(source, str) and source and source[0] != "@") or source in (FILE, PARTITION):
        return source
    raise QueryError(
        f"Stream {name!r}: source={source!r} names no source",
        do="Pass a column's name, plait.FILE, plait.PARTITION, or None for one source",
    )


def _sources(name: str, sources: Any, source: str | None) -> int | tuple[SourceName, ...] | None:
    """The declared sources, checked: a number of them, or their names, all of one kind."""
    if sources is None:
        return None
    if isinstance(sources, int) and not isinstance(sources, bool):
        if source is not None:
            raise QueryError(
                f"Stream {name!r}: sources={sources!r} counts what {source!r} names",
                why="a count can't say which names to wait for",
                do="List the names: sources=[...]",
            )
        if sources < 1:
            raise QueryError(f"Stream {name!r}: sources={sources!r} is no source", why="a stream has at least one")
        if sources > MOST_SOURCES:
            raise QueryError(
                f"Stream {name!r}: sources={sources!r}",
                why=f"a stream has {MOST_SOURCES:,} at most: each is waited for by itself",
                do="Name them by a column",
            )
        return sources
    # A set of text has another order in every process, and sources have theirs from it.
    if isinstance(sources, (str, set, frozenset)) or not isinstance(sources, Iterable):
        raise QueryError(
            f"Stream {name!r}: sources={sources!r} is neither a number nor a list",
            do="Pass a number of sources or a list of their names",
        )
    names = tuple(sources)
    if not names:
        raise QueryError(f"Stream {name!r}: sources={sources!r} is no source", why="a stream has at least one")
    if any(isinstance(n, bool) or not isinstance(n, (int, str)) for n in names) or len({type(n) for n in names}) > 1:
        raise QueryError(
            f"Stream {name!r}: sources={sources!r} are not names of one kind",
            why="source names are all integers or all text",
            do="Name them as the source column does",
        )
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise QueryError(
            f"Stream {name!r}: sources= names {twice!r} twice", why="one name is one source", do="List it once"
        )
    return names
