"""Design section 1 spelled out over all pairs, all windows and all tuples: what the reference is judged by.

Nothing here runs a stream. A result is a fact about the complete data: every pair is tried, every window is listed,
and the order comes from sorting the results by their keys. It is slow (cubic for count windows) and shares no code
with `plait`, except that an operator's timers are recognised by their class. A `Relation` is a stream, or a query's
output, which is a stream with one source: so definitions compose as queries do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from plait.query import Timer

#: Stands where the input's number stands in a key, and comes after all of them.
AFTER_INPUTS = math.inf

Key = tuple[Any, ...]
RowDict = dict[str, Any]
Truth = Callable[[RowDict, RowDict], bool | None]
Fits = Callable[["Tup", "Tup"], bool]


class Tup(NamedTuple):
    """A tuple of a stream. `own` is its place in the order behind (ts, input): (source, seq), or a result's key."""

    ts: int
    own: Key
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Relation:
    """A stream's tuples in total order."""

    schema: pa.Schema
    tuples: tuple[Tup, ...]

    def row(self, tup: Tup) -> RowDict:
        return dict(zip(self.schema.names, tup.values, strict=True))

    def table(self) -> pa.Table:
        columns: Any = list(zip(*(t.values for t in self.tuples), strict=True)) or [()] * len(self.schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


def key(tup: Tup, number: int) -> Key:
    """A tuple's key as input `number` of a query."""
    return (tup.ts, number, *tup.own)


def in_order(schema: pa.Schema, tuples: Iterable[Tup]) -> Relation:
    return Relation(schema, tuple(sorted(tuples, key=lambda t: (t.ts, t.own))))


def sortable(value: Any) -> Key:
    """Numbers by size (-0.0 = 0.0), then NaN, then NULL; text by bytes."""
    if value is None:
        return (2,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    return (0, value.encode() if isinstance(value, str) else value)


# --- streams: late is a fact of the data --------------------------------------------------------------------


def split_late(times: Sequence[int], disorder: int) -> tuple[list[int], list[int]]:
    """The positions of one source's tuples that are on time, and of those that are late."""
    late = [at for at, ts in enumerate(times) if any(ts < before - disorder for before in times[:at])]
    return [at for at in range(len(times)) if at not in late], late


def stream(schema: pa.Schema, sources: Mapping[Any, Sequence[tuple[Any, ...]]], *, time: str = "ts", disorder: int = 0,
           seq: str = "position") -> tuple[Relation, list[tuple[Any, ...]]]:  # fmt: skip
    """A stream of sources (what orders the source -> its rows), and the rows that are late."""
    time_at, tuples, dropped = schema.get_field_index(time), [], []
    for source, rows in sources.items():
        if seq not in ("position", "content"):
            seq_at = schema.get_field_index(seq)
            rows = sorted(rows, key=lambda row: sortable(row[seq_at]))
        kept, late = split_late([row[time_at] for row in rows], disorder)
        dropped += [rows[at] for at in late]
        for at in kept:
            own = (source, content(rows[at]), at) if seq == "content" else (source, at)
            tuples.append(Tup(rows[at][time_at], own, rows[at]))
    return in_order(schema, tuples), dropped


def content(row: tuple[Any, ...]) -> Key:
    """A row as the order of its own ties. A zero's sign can be seen in the result, so it has a place in the order."""
    return tuple((sortable(v), math.copysign(1, v) if isinstance(v, float) and v == 0 else 0) for v in row)


# --- joins --------------------------------------------------------------------------------------------------


def within(before: int, after: int) -> Fits:
    return lambda l, r: -before <= r.ts - l.ts <= after


def tumbling(size: int) -> Fits:
    return lambda l, r: l.ts // size == r.ts // size


def last(count: int, left: Relation, right: Relation) -> Fits:
    """The earlier tuple is among the last `count` of its stream that precede the later one."""

    def fits(l: Tup, r: Tup) -> bool:
        low, high = sorted((key(l, 0), key(r, 1)))
        stream, number = (left, 0) if low == key(l, 0) else (right, 1)
        between = [t for t in stream.tuples if low < key(t, number) < high]
        return len(between) < count

    return fits


def tumbling_count(count: int, left: Relation, right: Relation) -> Fits:
    """The earlier tuple and the last of its stream that precedes the later one are in the same window of `count` tuples."""

    def fits(l: Tup, r: Tup) -> bool:
        low, high = sorted((key(l, 0), key(r, 1)))
        stream, number = (left, 0) if low == key(l, 0) else (right, 1)
        before = sorted(key(t, number) for t in stream.tuples if key(t, number) < high)
        return before.index(low) // count == (len(before) - 1) // count

    return fits


def matches(left: Relation, right: Relation, fits: Fits, holds: Truth) -> list[tuple[Key, Tup, Tup]]:
    """Every pair that is a result with its key: the later tuple's (the trigger's), then the earlier one's."""
    found = [
        ((max(key(l, 0), key(r, 1)), min(key(l, 0), key(r, 1))), l, r)
        for l in left.tuples
        for r in right.tuples
        if fits(l, r) and holds(left.row(l), right.row(r)) is True
    ]
    return sorted(found, key=lambda match: match[0])


def pair_schema(left: pa.Schema, right: pa.Schema | None, names: tuple[str, str]) -> pa.Schema:
    """`ts`, the left columns, the right columns; a name that stands twice gets its stream's in front."""
    sides = [(name, field) for name, schema in zip(names, (left, right), strict=True) for field in schema or ()]
    taken = ["ts", *(field.name for _, field in sides)]
    renamed = [(f"{n}_{f.name}" if taken.count(f.name) > 1 else f.name, f.type) for n, f in sides]
    return pa.schema([("ts", pa.int64()), *renamed])


def join(left: Relation, right: Relation, fits: Fits, holds: Truth, *, how: str = "inner", before: int = 0, after: int = 0,
         names: tuple[str, str] = ("left", "right")) -> Relation:  # fmt: skip
    found = matches(left, right, fits, holds)
    ever_matched = {key(t, side) for _, *pair in found for side, t in enumerate(pair)}
    tuples = []
    if how in ("inner", "left", "right", "full"):
        tuples += [Tup(k[0][0], k, (k[0][0], *l.values, *r.values)) for k, l, r in found]
    if how == "semi":
        firsts = {key(l, 0): (k, l) for k, l, _ in reversed(found)}
        tuples += [Tup(k[0][0], k, (k[0][0], *l.values)) for k, l in firsts.values()]
    nulls = [(None,) * len(side.schema) for side in (left, right)]
    if how in ("left", "full", "anti"):
        for l in [l for l in left.tuples if key(l, 0) not in ever_matched]:
            values = l.values if how == "anti" else (*l.values, *nulls[1])
            tuples.append(Tup(l.ts + after, ((l.ts + after, AFTER_INPUTS, 0), key(l, 0)), (l.ts + after, *values)))
    if how in ("right", "full"):
        for r in [r for r in right.tuples if key(r, 1) not in ever_matched]:
            ts = r.ts + before
            tuples.append(Tup(ts, ((ts, AFTER_INPUTS, 1), key(r, 1)), (ts, *nulls[0], *r.values)))
    right_schema = right.schema if how not in ("semi", "anti") else None
    return in_order(pair_schema(left.schema, right_schema, names), tuples)


def asof(left: Relation, right: Relation, *, by: Sequence[tuple[str, str]] = (), age: int | None = None,
         how: str = "left", exact: bool = True, direction: str = "backward",
         names: tuple[str, str] = ("left", "right")) -> Relation:  # fmt: skip
    tuples = []
    for l in left.tuples:
        fitting = [
            r
            for r in right.tuples
            if not (left is right and r is l)
            and (exact or r.ts != l.ts)
            and (age is None or abs(l.ts - r.ts) <= age)
            and all(equal(left.row(l)[a], right.row(r)[b]) for a, b in by)
        ]
        before = max((r for r in fitting if r.ts <= l.ts), key=lambda r: (r.ts, r.own), default=None)
        after = min((r for r in fitting if r.ts >= l.ts), key=lambda r: (r.ts, r.own), default=None)
        nearest = after if before is None or (after and after.ts - l.ts < l.ts - before.ts) else before
        r = {"backward": before, "forward": after, "nearest": nearest}[direction]
        if r is None and how == "inner":
            continue
        values = (None,) * len(right.schema) if r is None else r.values
        if direction == "backward":
            tuples.append(Tup(l.ts, (key(l, 0), () if r is None else key(r, 1)), (l.ts, *l.values, *values)))
        else:
            ts = l.ts + (age or 0) if r is None else l.ts + abs(l.ts - r.ts)
            tuples.append(Tup(ts, ((ts, AFTER_INPUTS), key(l, 0)), (ts, *l.values, *values)))
    return in_order(pair_schema(left.schema, right.schema, names), tuples)


def equal(a: Any, b: Any) -> bool:
    """NULL and NaN equal nothing; Python's comparison already says so of NaN."""
    return a is not None and b is not None and a == b


# --- aggregates ---------------------------------------------------------------------------------------------

Compute = Mapping[str, tuple[pa.DataType, Callable[[list[RowDict]], Any]]]


def grouped(given: Relation, by: Sequence[str]) -> dict[Key, list[Tup]]:
    groups: dict[Key, list[Tup]] = {}
    for t in given.tuples:
        groups.setdefault(tuple(sortable(given.row(t)[c]) for c in by), []).append(t)
    return groups


def aggregate_schema(given: pa.Schema, by: Sequence[str], compute: Compute) -> pa.Schema:
    edges = [(name, pa.int64()) for name in ("ts", "window_start", "window_end")]
    return pa.schema([*edges, *(given.field(c) for c in by), *((n, kind) for n, (kind, _) in compute.items())])


def aggregate_row(given: Relation, members: Sequence[Tup], by: Sequence[str], compute: Compute) -> tuple[Any, ...]:
    """A window's key columns (-0.0 and 0.0 are one group, called 0.0) and what is computed over its rows."""
    rows = [given.row(t) for t in members]
    group = [0.0 if isinstance(v, float) and v == 0 else v for v in (rows[0][c] for c in by)]
    return (*group, *(function(rows) for _, function in compute.values()))


def aggregate_spans(given: Relation, size: int, advance: int, by: Sequence[str], compute: Compute) -> Relation:
    """Windows `[k*advance, k*advance + size)`: every k that a tuple could be in is tried for every group."""
    near = (range((t.ts - size) // advance - 1, t.ts // advance + 2) for t in given.tuples)
    tuples = []
    for k in {k for each in near for k in each}:
        start, end = k * advance, k * advance + size
        for group, all_members in grouped(given, by).items():
            members = [t for t in all_members if start <= t.ts < end]
            if members:
                values = (end - 1, start, end, *aggregate_row(given, members, by, compute))
                tuples.append(Tup(end - 1, (end - 1, *group), values))
    return in_order(aggregate_schema(given.schema, by, compute), tuples)


def aggregate_counts(given: Relation, size: int, advance: int, by: Sequence[str], compute: Compute) -> Relation:
    """Windows of a group's tuples `[k*advance, k*advance + size)`, k >= 0, if they are filled."""
    tuples = []
    for all_members in grouped(given, by).values():
        for k in range(len(all_members)):
            members = all_members[k * advance : k * advance + size]
            if len(members) == size:
                closing = members[-1]
                edges = (closing.ts, k * advance, k * advance + size)
                values = (*edges, *aggregate_row(given, members, by, compute))
                tuples.append(Tup(closing.ts, (key(closing, 0),), values))
    return in_order(aggregate_schema(given.schema, by, compute), tuples)


def dedup(given: Relation, by: Sequence[str], within: int) -> Relation:
    """What of each group lies further than `within` behind everything of it that is kept."""
    tuples = []
    for members in grouped(given, by).values():
        kept: list[Tup] = []
        for t in members:
            if all(t.ts - k.ts > within for k in kept):
                kept.append(t)
        tuples += [Tup(t.ts, (key(t, 0),), (t.ts, *(v for n, v in given.row(t).items() if n != "ts"))) for t in kept]
    fields = [field for field in given.schema if field.name != "ts"]
    return in_order(pa.schema([("ts", pa.int64()), *fields]), tuples)


# --- aggregate functions: floats as whole numbers of 2^-1074, so that every sum is exact ----------------------

_UNIT = 2**1074


def _units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_UNIT // denominator)


def _nearest(numerator: int, denominator: int) -> float:
    """The quotient rounded once (Python's division of integers is), infinite beyond the largest float."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _infinite(values: Sequence[float]) -> float | None:
    """What a sum is that is no finite number."""
    special = {v for v in values if math.isinf(v)}
    if any(math.isnan(v) for v in values) or len(special) == 2:
        return math.nan
    return special.pop() if special else None


def present(rows: list[RowDict], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def total(values: Sequence[Any]) -> Any:
    if not values:
        return None
    if isinstance(values[0], int):
        return sum(values)
    special = _infinite(values)
    return _nearest(sum(map(_units, values)), _UNIT) if special is None else special


def mean(values: Sequence[Any]) -> float | None:
    if not values:
        return None
    special = _infinite(values)
    return _nearest(sum(map(_units, values)), _UNIT * len(values)) if special is None else special


def variance(values: Sequence[Any]) -> float | None:
    """The sample's, as (n * sum of squares - square of sum) / (n * (n - 1))."""
    n = len(values)
    if n < 2:
        return None
    if _infinite(values) is not None:
        return math.nan
    units = [_units(v) for v in values]
    return _nearest(n * sum(u * u for u in units) - sum(units) ** 2, n * (n - 1) * _UNIT**2)


def extreme(values: Sequence[Any], *, largest: bool) -> Any:
    """NaN is above all numbers. Which zero is met first must not show: it is 0.0."""
    ordered = sorted(values, key=sortable)
    if not ordered:
        return None
    found = ordered[-1 if largest else 0]
    return 0.0 if isinstance(found, float) and found == 0 else found


# --- the bucketed operator ----------------------------------------------------------------------------------


class Bucket:
    """One bucket, alone: its state, the timers it waits for, and its outputs with their keys."""

    def __init__(self, number: int, state: Any, on_timer: Callable[[Any, int], Any] | None) -> None:
        self.number, self.state, self.on_timer = number, state, on_timer
        self.waiting: set[int] = set()
        self.outputs: list[Tup] = []

    def emit(self, cause: Key, outputs: Iterable[Any] | None) -> None:
        rows = []
        for output in outputs or ():
            if isinstance(output, Timer):
                self.waiting.add(output.at)
            else:
                rows.append(tuple(output))
        ts = cause[0]
        self.outputs += [Tup(ts, (cause, self.number, index), (ts, *row)) for index, row in enumerate(rows)]

    def fire(self, until: int) -> None:
        while self.waiting and (at := min(self.waiting)) <= until:
            self.waiting.remove(at)
            assert self.on_timer is not None
            self.emit((at - 1, AFTER_INPUTS), self.on_timer(self.state, at))


def operator(inputs: Sequence[tuple[str, Relation]], *, buckets: int, route: Callable[[Any], Iterable[int]],
             state: Callable[[], Any], process: Callable[[Any, Any], Any], output: pa.Schema,
             on_timer: Callable[[Any, int], Any] | None = None) -> Relation:  # fmt: skip
    """`route` gives the buckets a tuple goes to. Each bucket goes through all tuples by itself, then they are sorted.

    After the last tuple, waiting timers still run; one that a timer sets then only up to the last one waiting.
    """
    events = sorted(
        (key(t, n), SimpleNamespace(**{**given.row(t), "ts": t.ts, "stream": name}))
        for n, (name, given) in enumerate(inputs)
        for t in given.tuples
    )
    parts = [Bucket(number, state(), on_timer) for number in range(buckets)]
    for part in parts:
        for cause, t in events:
            part.fire(t.ts)
            if part.number in route(t):
                part.emit(cause, process(part.state, t))
    end = max((at for part in parts for at in part.waiting), default=0)
    for part in parts:
        part.fire(end)
    schema = pa.schema([("ts", pa.int64()), *output])
    return in_order(schema, (t for part in parts for t in part.outputs))
