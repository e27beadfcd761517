"""Streams with their rows: sources named in every way, ties everywhere, disorder, late rows, every seq rule."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from tests.fuzz import values

import plait
from plait.schema import to_micros

#: First and last moments are few microseconds apart, at zero and at both ends of time.
ORIGINS = (0, 0, 0, 0, 0, -3, 10**15, -(2**62), 2**62 - 12)
INTEGER_NAMES = (2, 10, -7, 3)
TEXT_NAMES = ("a", "B", "é", "aa")
#: How a stream's sources are told apart, and its ties inside one source.
LAYOUTS = (
    "one",
    "one",
    "integer column",
    "text column",
    "positions",
    "names",
    "seq column",
    "seq alone",
    "content",
    "content column",
)


@dataclass(frozen=True)
class Draw:
    """What a group may be made of. A fault that is known and being mended is switched off here or in `deliveries.Ways`."""

    conditions: int = 288
    columns: str = "".join(values.COLUMNS)
    layouts: tuple[str, ...] = LAYOUTS
    shapes: tuple[str, ...] = (
        "join",
        "join",
        "join",
        "asof",
        "spans",
        "counts",
        "operator",
        "dag",
        "rows",
        "chain",
        "chain",
    )
    clocks: tuple[int, ...] = tuple(range(8))
    late: bool = True
    endless_timers: bool = True
    opaque_text: bool = True
    wide_integers: bool = True
    dictionary_sources: bool = True
    views_beside_seq: bool = True
    equal_rows: bool = True  # rows that seq="content" can't tell apart
    plain_sources: bool = False  # named by columns of int64 and string only


@dataclass(frozen=True)
class Feed:
    """A stream and its rows by source, each in its order; `arrival` (source names) interleaves them in one table."""

    stream: plait.Stream
    schema: pa.Schema
    sources: dict[Any, pa.Table]
    arrival: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def by_column(self) -> bool:
        return self.stream.source is not None

    @property
    def rows(self) -> int:
        return sum(len(rows) for rows in self.sources.values())

    def interleaved(self, names: frozenset[Any] | None = None) -> pa.Table:
        """All rows (or those of some sources) as one table, sources taking turns as `arrival` says."""
        begin, at = {}, 0
        for name, rows in self.sources.items():
            begin[name], at = at, at + len(rows)
        picked = []
        for name in self.arrival:
            if names is None or name in names:
                picked.append(begin[name])
            begin[name] += 1
        every = pa.concat_tables(self.sources.values()) if self.sources else self.schema.empty_table()
        return taken(every, picked)

    def times(self, rows: pa.Table) -> list[int]:
        """The event times of some of its rows, in microseconds."""
        if not len(rows):
            return []
        column = rows.column("ts").combine_chunks()
        return [int(ts) for ts in to_micros(column, self.stream.unit, stream=self.stream.name, name="ts")]

    def data(self) -> Any:
        """The rows as `Query.reference` takes them."""
        if self.by_column:
            return self.interleaved()
        if all(isinstance(name, str) for name in self.sources):
            return dict(self.sources)
        tables = list(self.sources.values())
        return tables[0] if len(tables) == 1 else tables

    def without(self, name: Any, begin: int, end: int) -> Feed:
        """The same feed with some rows of a source left out: for shrinking."""
        rows = self.sources[name]
        kept = pa.concat_tables([rows.slice(0, begin), rows.slice(end)])
        arrival = [
            n for other, table in self.sources.items() for n in [other] * (len(kept) if other == name else len(table))
        ]
        if self.by_column:
            seen, arrival = 0, []
            for n in self.arrival:
                seen += n == name
                if n != name or not begin <= seen - 1 < end:
                    arrival.append(n)
        return replace(self, sources={**self.sources, name: kept}, arrival=tuple(arrival))

    def described(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        lines = [f"{self.stream.name}: plait.stream({self.stream.name!r}, {options})",
                 f"  {', '.join(f'{f.name}: {f.type}' for f in self.schema)}"]  # fmt: skip
        lines += [f"  source {name!r}: {shown(rows)}" for name, rows in self.sources.items()]
        return "\n".join(lines + ([f"  arrival {self.arrival}"] if self.by_column else []))


def taken(rows: pa.Table, picked: list[int]) -> pa.Table:
    """Rows by number; Arrow itself can't take from views of text."""
    plain = pa.schema([f.with_type(pa.string()) if pa.types.is_string_view(f.type) else f for f in rows.schema])
    return rows.cast(plain).take(pa.array(picked, pa.int64())).cast(rows.schema)


def shown(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows for a person; moments as the numbers they are."""
    columns = []
    for column in rows.columns:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True)) if columns else []


#: How event time is written: the column's type, `unit=`, and how many microseconds one step of it is.
CLOCKS: tuple[tuple[pa.DataType, str | None, int], ...] = (
    (pa.int64(), "us", 1), (pa.int64(), "us", 1), (pa.int64(), "us", 1), (pa.timestamp("us", "UTC"), None, 1),
    (pa.timestamp("ns", "UTC"), None, 1), (pa.int64(), "ms", 1000), (pa.timestamp("ms"), "ms", 1000),
    (pa.int32(), "us", 1),
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What the streams of one case have in common."""

    origin: int
    span: int
    rows: int
    clock: tuple[pa.DataType, str | None, int]

    @property
    def step_us(self) -> int:
        return self.clock[2]


def setting(chance: random.Random, draw: Draw) -> Setting:
    kind, unit, step = CLOCKS[chance.choice(draw.clocks)]
    origin = chance.choice(ORIGINS)
    if pa.types.is_int32(kind) or step > 1 or kind == pa.timestamp("ns", "UTC"):
        origin = chance.choice((0, -3, 10**6))
    return Setting(
        origin, chance.choice((0, 3, 6, 6, 12)), chance.choice((2, 6, 10, 16, 16, 30, 60)), (kind, unit, step)
    )


def _times(chance: random.Random, given: Setting, count: int, disorder: int, late: bool) -> list[int]:
    """One source's times, in steps: in order, or running back; by more than the disorder only if `late` is wanted."""
    times = [chance.randint(0, given.span) for _ in range(count)]
    shape = chance.choice(("in order", "in order", "any", "bursts"))
    if shape == "bursts":
        moments = sorted(chance.sample(range(given.span + 1), min(2, given.span + 1)))
        times = sorted(chance.choice(moments) for _ in range(count))
    if shape == "in order":
        times.sort()
    elif not late:
        highest, allowed = 0, []
        for ts in times:
            allowed.append(max(ts, highest - disorder))
            highest = max(highest, ts)
        times = allowed
    return times


def _stamped(given: Setting, times: list[int]) -> pa.Array:
    kind, _, step = given.clock
    moments = [min(given.origin + ts, 2**62 // step) for ts in times]
    if kind == pa.timestamp("ns", "UTC"):
        moments = [1000 * ts for ts in moments]
    return values.stored(kind, moments)


def feed(chance: random.Random, name: str, columns: str, given: Setting, draw: Draw) -> Feed:
    """A stream called `name` with these columns."""
    layouts = draw.layouts
    if not draw.views_beside_seq and "w" in columns:
        layouts = tuple(each for each in layouts if not each.startswith("seq"))
    layout = chance.choice(layouts)
    disorder = chance.choice((0, 0, 0, 1, 3))
    by_content = layout.startswith("content")
    policy = "drop" if draw.late and not by_content and chance.random() < 0.4 else "error"
    breaks = policy == "drop" or (draw.late and chance.random() < 0.03)
    names = _source_names(chance, layout)
    moods = {column: chance.choice(values.MOODS) for column in columns}
    source_type = _source_type(chance, layout, draw)
    seq_type = pa.int64() if draw.plain_sources else chance.choice(SEQ_TYPES)
    sources: dict[Any, pa.Table] = {}
    for source in names:
        count = chance.choice((0, 1, given.rows // len(names), given.rows // len(names)))
        arrays = {"ts": _stamped(given, _times(chance, given, count, disorder, breaks))}
        arrays |= {
            column: values.column(chance, column, count, moods[column], wide=draw.wide_integers) for column in columns
        }
        if source_type is not None:
            arrays["src"] = _named(chance, source, count, source_type)
        if layout in ("seq column", "seq alone"):
            arrays["n"] = _rising(count, seq_type)
        sources[source] = pa.table(arrays)
    schema = next(iter(sources.values())).schema
    sources = {source: rows.cast(schema) for source, rows in sources.items()}
    if by_content and not draw.equal_rows:
        sources = {source: _unequal(rows) for source, rows in sources.items()}
    options = _options(chance, given, layout, names, disorder, policy)
    arrival = [source for source, rows in sources.items() for _ in range(len(rows))]
    chance.shuffle(arrival)
    return Feed(plait.stream(name, **options), schema, sources, tuple(arrival), options)


#: What may order a source's rows.
SEQ_TYPES = (pa.int64(), pa.int64(), pa.uint64(), pa.int32(), pa.float64(), pa.string(), pa.timestamp("us", "UTC"),
             pa.timestamp("ms"), pa.date32(), pa.duration("us"), pa.binary())  # fmt: skip


def _rising(count: int, kind: pa.DataType) -> pa.Array:
    """Values that rise, up to the end of their type."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array(
            [f"{at:03d}" if pa.types.is_string(kind) else f"{at:03d}".encode() for at in range(count)], kind
        )
    if pa.types.is_floating(kind):
        return pa.array([at - 0.5 for at in range(count)], kind)
    small = pa.types.is_int32(kind) or pa.types.is_date32(kind)
    top = 2**31 - 1 if small else 2**64 - 1 if pa.types.is_unsigned_integer(kind) else 2**63 - 1
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        top = 2**52
    return values.stored(kind, [10 * at if at < count // 2 else top - (count - at) for at in range(count)])


def _unequal(rows: pa.Table) -> pa.Table:
    """The first of all rows that are equal."""
    first: dict[str, int] = {}
    for at, row in enumerate(shown(rows)):
        first.setdefault(repr(row), at)
    return taken(rows, list(first.values()))


def _source_names(chance: random.Random, layout: str) -> tuple[Any, ...]:
    if layout in ("one", "content", "seq alone"):
        return (0,)
    count = chance.choice((1, 2, 2, 3))
    if layout == "positions":
        return tuple(range(count))
    names: tuple[Any, ...] = INTEGER_NAMES if layout in ("integer column", "seq column") else TEXT_NAMES
    return tuple(chance.sample(names, count))


def _source_type(chance: random.Random, layout: str, draw: Draw) -> pa.DataType | None:
    if layout in ("integer column", "seq column"):
        plain = pa.int64() if draw.plain_sources else chance.choice((pa.int64(), pa.int64(), pa.int8()))
    elif layout in ("text column", "content column"):
        kinds = (pa.string(), pa.string(), pa.large_string(), pa.string_view())
        plain = pa.string() if draw.plain_sources else chance.choice(kinds)
    else:
        return None
    packed = pa.dictionary(pa.int32(), pa.string() if layout in ("text column", "content column") else plain)
    return packed if draw.dictionary_sources and chance.random() < 0.25 else plain


def _named(chance: random.Random, source: Any, count: int, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.array([source] * count, kind)
    return values.dictionary(chance, pa.array([source] * count, kind.value_type))


def _options(
    chance: random.Random, given: Setting, layout: str, names: tuple[Any, ...], disorder: int, policy: str
) -> dict[str, Any]:
    _, unit, step = given.clock
    options: dict[str, Any] = {"disorder": disorder * step, "late": policy}
    if unit is not None:
        options["unit"] = unit
    if layout in ("integer column", "text column", "seq column", "content column"):
        options["source"] = "src"
    if layout in ("seq column", "seq alone"):
        options["seq"] = "n"
    if layout.startswith("content"):
        options["seq"] = "content"
    if chance.random() < 0.5:
        options["sources"] = len(names) if layout in ("one", "positions", "content", "seq alone") else list(names)
    return options
