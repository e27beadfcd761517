"""What a FROM clause gives to the rest of a SELECT: a stream or query, and what the text calls its columns.

A column of moments may be tied to its row's event time: `least <= ts - value <= most`, always. Such a column is a *clock*. A
stream's time column is one, and so are the edges of a window, and the time columns of the two sides of a join. Clocks are what
time bounds are made of (`bounds`), and only clocks are.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from plait.query.aggregate import Aggregate, SessionWindow, SpanWindow, Window
from plait.query.base import Node
from plait.query.select.source import Source
from plait.query.stream import Stream
from plait.schema import TIME_UNITS

TS = "ts"


@dataclass(frozen=True)
class Clock:
    """A column of moments, tied to its row's event time, in microseconds.

    Attributes:
        least: The least of `ts - value`.
        most: The most of it.
        scale: How many microseconds the column counts one as, where a condition reads it. None: not known before its type is.
        step_us: Of a window's edge: from one window to the next. Else None.
        phase_us: With `step_us`: every row's ts lies by so much after a whole multiple of it.
        missing: Whether it may be NULL, of a row that an outer join has found no partner for. Then it tells nothing of ts.
    """

    least: int
    most: int
    scale: Fraction | None
    step_us: int | None = None
    phase_us: int = 0
    missing: bool = False

    @property
    def exact(self) -> bool:
        """Whether the column and ts tell each other."""
        return self.least == self.most and not self.missing

    @property
    def own(self) -> bool:
        """Whether it is the rows' event time itself."""
        return self.exact and self.least == 0

    def later(self, least: int, most: int) -> Clock:
        """The same column in rows whose ts lies later by so much."""
        made = dataclasses.replace(self, least=self.least + least, most=self.most + most)
        if self.step_us is None or least != most:
            return dataclasses.replace(made, step_us=None, phase_us=0)
        return dataclasses.replace(made, phase_us=(self.phase_us + least) % self.step_us)


#: The ts of a query's rows, in microseconds.
OWN = Clock(0, 0, Fraction(1))


@dataclass(frozen=True)
class Part:
    """One name of a FROM clause, and its columns: what the text calls each, and what the node does.

    `columns` is None where a stream has not declared them: any name is taken as it is. They are `hidden` where such a stream was
    joined: nothing tells what the join calls them.
    """

    name: str
    columns: Mapping[str, str] | None
    hidden: bool = False


@dataclass(frozen=True)
class Relation:
    """A stream or query with the names that the text has for its columns.

    Attributes:
        node: What is read.
        columns: The node's columns in order; None where they are not known.
        parts: The names in front of a dot, in the order of the FROM clause.
        clocks: The columns that are clocks.
    """

    node: Node
    columns: tuple[str, ...] | None
    parts: tuple[Part, ...]
    clocks: Mapping[str, Clock]

    def find(self, source: Source, column: exp.Column) -> str:
        """The node's column that the text means; refused where there is none, or several."""
        if column.args.get("db"):
            raise source.refuse(column, "the name has more than two parts", do="Write stream.column")
        if column.table:
            part = self._part(source, column)
            found = _in_part(part, column.name)
            if found is None:
                raise self._unknown(source, column, [part])
        else:
            found_in = {f"{part.name}.{column.name}": _in_part(part, column.name) for part in self.parts}
            options = {where: name for where, name in found_in.items() if name is not None}
            own = self.columns is not None and column.name.lower() == TS and TS in self.columns
            if len(options) == 1:
                found = next(iter(options.values()))
            elif own:
                found = TS  # of a join's row: its own, the later one of its pair
            elif not options:
                raise self._unknown(source, column, list(self.parts))
            else:
                raise source.refuse(
                    column, f"`{column.name}` could be any of {', '.join(options)}", do="Write which one"
                )
        if found == "":
            raise source.refuse(
                column,
                f"nothing tells what a join calls the column {column.name!r}",
                why="a stream of the join declares no columns, and those that both sides have get their stream's name in front",
                do="Declare them: plait.stream(..., schema={...}), or pass schemas= to plait.sql",
            )
        return found

    def _part(self, source: Source, column: exp.Column) -> Part:
        for spelled in (str, str.lower):
            found = [part for part in self.parts if spelled(part.name) == spelled(column.table)]
            if len(found) == 1:
                return found[0]
        known = ", ".join(f"`{part.name}.`" for part in self.parts)
        raise source.refuse(
            column, f"nothing in this FROM is called {column.table!r}", do=f"Qualify columns by one of {known}"
        )

    def _unknown(self, source: Source, column: exp.Column, parts: list[Part]) -> Exception:
        names = [name for part in parts for name in part.columns or ()]
        near = difflib.get_close_matches(column.name, names, n=1)
        return source.refuse(
            column,
            f"there is no column {column.name!r}",
            why=f"there are {', '.join(names)}",
            do=f"Did you mean {near[0]!r}?" if near else "",
        )


def _in_part(part: Part, name: str) -> str | None:
    """A column's name in the node; "" if it is there and nothing tells its name; None if there is none."""
    if part.hidden:
        return ""
    if part.columns is None:
        return name
    if name in part.columns:
        return part.columns[name]
    alike = [own for own in part.columns if own.lower() == name.lower()]
    return part.columns[alike[0]] if len(alike) == 1 else None


def named(node: Node, name: str, columns: tuple[str, ...] | None, clocks: Mapping[str, Clock]) -> Relation:
    """A relation of one part, whose columns the text calls as the node does."""
    part = Part(name, None if columns is None else {column: column for column in columns})
    return Relation(node, columns, (part,), clocks)


def clocks_of(node: Node, schema: pa.Schema | None) -> dict[str, Clock]:
    """The clocks of a stream, or of a query that the user has built."""
    if isinstance(node, Stream):
        return {node.time: Clock(0, 0, _scale(node, schema))}
    return {TS: OWN} | (edges(node.window) if isinstance(node, Aggregate) else {})


def edges(window: Window) -> dict[str, Clock]:
    """The clocks that a window's edges are. Nothing ties a session's start to its end."""
    one = Fraction(1)
    match window:
        case SpanWindow(size, advance):
            phase = (size - 1) % advance
            return {
                "window_start": Clock(size - 1, size - 1, one, advance, phase),
                "window_end": Clock(-1, -1, one, advance, phase),
            }
        case SessionWindow():
            return {"window_end": Clock(-1, -1, one)}
        case _:
            return {}  # edges of windows of tuples are numbers, no moments


def _scale(stream: Stream, schema: pa.Schema | None) -> Fraction | None:
    """What a condition counts a stream's time column as: moments are microseconds there, integers are what they are."""
    if stream.unit is None:
        return Fraction(1)
    if schema is None or stream.time not in schema.names:
        return None
    whole = pa.types.is_integer(schema.field(stream.time).type)
    return Fraction(TIME_UNITS[stream.unit], 1000) if whole else Fraction(1)
