"""How aggregate functions are computed: a record each, which says all that executors have to know.

What a function is called, reads and gives is said in `query.functions`. Every function there has a record here, and every record
is whole: otherwise this import fails, with the name of the function and of what is missing. Nothing else in plait asks for a
function's name. The reference has folds of its own (`reference.folds`), on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait.core.aggregate import lists, ordered, values
from plait.core.aggregate.accumulators import Accumulator, Count, Edge, Extreme
from plait.core.aggregate.columns import is_fixed
from plait.core.aggregate.lists import CustomFold, Fold
from plait.core.aggregate.moments import Correlation, Covariance, Deviation, Moments, Variance
from plait.core.aggregate.sums import Sum
from plait.core.aggregate.values import Values
from plait.query.functions import KINDS, Function
from plait.query.statistics import exact_part


@dataclass(frozen=True)
class Use:
    """A function in a query, and what its accumulator or fold is made of.

    condition  the number of its condition, as `reads.Columns` counts them; None without one
    rows       where rows are kept that accumulators refer to (`KeptRows`); None where none are
    name       the output column, for messages
    """

    function: Function
    schema: pa.Schema
    condition: int | None = None
    rows: Any = None
    name: str = ""

    @property
    def column(self) -> str:
        return self.function.columns[0]

    @property
    def type(self) -> pa.DataType:
        return self.schema.field(self.column).type

    @property
    def types(self) -> list[pa.DataType]:
        return [self.schema.field(column).type for column in self.function.columns]


def any_type(kind: pa.DataType) -> bool:
    return True


@dataclass(frozen=True)
class Slots:
    """A function that keeps numbers, or one row, a slot.

    kind    its accumulator: with it come its kernels, how slots are merged, its part of a pane on Spark, and its tallies
    make    makes one
    serves  columns of which types; of others all rows are kept

    `serves` is asked with each column's type. If it says no, the function must have `rows` too: text has no fixed width,
    so `min` of text keeps rows.
    """

    kind: type[Accumulator]
    make: Callable[[Use], Accumulator]
    serves: Callable[[pa.DataType], bool] = any_type


@dataclass(frozen=True)
class Rows:
    """A function that keeps all rows of its windows.

    fold  what it makes of them when a window closes
    part  its part of a pane on Spark, a list of values; None: there it has none, and tuples travel instead
    """

    fold: Callable[[Use], Fold]
    part: Values | None


#: Why sources can't each add up their own part of a window (WiML); None if they can. Without a schema: as far as that can be
#: said then.
BySource = Callable[[Function, pa.Schema | None], str | None]


def merges(function: Function, schema: pa.Schema | None) -> str | None:
    """Any source's part can be added to any other's."""
    return None


def merges_numbers(function: Function, schema: pa.Schema | None) -> str | None:
    """As `merges`, for functions whose slot holds a value: only columns of fixed width have one."""
    kind = None if schema is None else schema.field(function.columns[0]).type
    if kind is None or is_fixed(kind):
        return None
    return f"is of a column of type {kind}, and a source's part of a window holds numbers only"


def needs_order(function: Function, schema: pa.Schema | None) -> str | None:
    """For functions that see their rows one after another."""
    return "keeps its window's rows in total order, and sources' parts have none between them"


@dataclass(frozen=True, kw_only=True)
class Record:
    """How one function is computed.

    slots      by an accumulator; None: never
    rows       from all of a window's rows, where no accumulator serves; None: one always does
    by_source  whether sources can each add up their own part, and why not
    """

    slots: Slots | None
    rows: Rows | None
    by_source: BySource


def _extreme(sign: int, part: Values) -> Record:
    return Record(
        slots=Slots(Extreme, lambda use: Extreme(use.column, use.type, sign, use.condition), serves=is_fixed),
        rows=Rows(lambda use: lists.extreme(use.column, use.type, largest=sign > 0), part=part),
        by_source=merges_numbers,
    )


def _edge(*, last: bool) -> Record:
    return Record(
        slots=Slots(
            Edge, lambda use: Edge(use.column, use.type, last=last, condition=use.condition, rows=use.rows)
        ),
        rows=None,
        by_source=merges_numbers,
    )  # fmt: skip


def _slots(kind: type[Accumulator], make: Callable[[Use], Accumulator]) -> Record:
    return Record(slots=Slots(kind, make), rows=None, by_source=merges)


def _rows(fold: Callable[[Use], Fold], part: Values | None = None) -> Record:
    return Record(slots=None, rows=Rows(fold, part), by_source=needs_order)


_COUNT = Record(slots=Slots(Count, lambda use: Count(use.condition)), rows=None, by_source=merges)

RECORDS: Mapping[str, Record] = {
    "count": _COUNT,
    "count_where": _COUNT,
    "sum": _slots(Sum, lambda use: Sum(use.column, use.type, condition=use.condition)),
    "mean": _slots(Sum, lambda use: Sum(use.column, use.type, mean=True, condition=use.condition)),
    "var": _slots(Variance, lambda use: Variance(use.column, use.type, use.condition)),
    "std": _slots(Deviation, lambda use: Deviation(use.column, use.type, use.condition)),
    "covar": _slots(Covariance, lambda use: Covariance(use.function.columns, use.types, use.condition)),
    "corr": _slots(Correlation, lambda use: Correlation(use.function.columns, use.types, use.condition)),
    "min": _extreme(-1, values.LEAST),
    "max": _extreme(1, values.GREATEST),
    "first": _edge(last=False),
    "last": _edge(last=True),
    "first_where": _edge(last=False),
    "collect": _rows(lambda use: lists.collect(use.column)),
    "distinct": _rows(lambda use: lists.distinct(use.column), part=values.DIFFERENT),
    "quantile": _rows(
        lambda use: ordered.quantile(
            use.column,
            use.type,
            exact_part(use.function.parameter("q")),
            interpolate=use.function.parameter("interpolate"),
        ),
        part=values.EVERY,
    ),
    "median": _rows(
        lambda use: ordered.quantile(use.column, use.type, exact_part(0.5), interpolate=True), part=values.EVERY
    ),
    # Which value is seen first, and which tuple is, can't be told of a part: tuples travel.
    "mode": _rows(lambda use: ordered.mode(use.column, use.type)),
    "arg_min": _rows(lambda use: ordered.arg(use.function.columns, use.type, largest=False)),
    "arg_max": _rows(lambda use: ordered.arg(use.function.columns, use.type, largest=True)),
    "top": _rows(lambda use: ordered.top(use.function.columns, use.function.parameter("k"))),
    # Its tuples travel even where it has a `merge`: joining two states need not come to the same bits as adding tuples.
    "custom": _rows(lambda use: CustomFold(use.function, use.schema, use.name)),
}


# --- what the records say of a function ---------------------------------------------------------------------------


def keeps_rows(function: Function) -> bool:
    """Whether a function keeps its rows whatever their type: they stay in Arrow."""
    return RECORDS[function.kind].slots is None


def accumulator_of(use: Use) -> Accumulator | None:
    """The accumulator of a function that keeps numbers (or one row) a slot; None for one that keeps all its rows.

    A new one each time: accumulators hold state and belong to one `PaneWindows`.
    """
    slots = RECORDS[use.function.kind].slots
    if slots is None or not all(slots.serves(use.schema.field(name).type) for name in use.function.columns):
        return None
    return slots.make(use)


def fold_of(use: Use) -> Fold:
    """What a function that has no accumulator makes of a window's rows."""
    rows = RECORDS[use.function.kind].rows
    assert rows is not None  # `missing` has seen to it
    return rows.fold(use)


def value_part(function: Function) -> Values | None:
    """The part of a pane of a function that has no accumulator."""
    rows = RECORDS[function.kind].rows
    return None if rows is None else rows.part


def unmerged(function: Function, schema: pa.Schema | None) -> str | None:
    """Why sources can't each add up their own part of a window."""
    return RECORDS[function.kind].by_source(function, schema)


# --- whether they are whole ---------------------------------------------------------------------------------------


def missing(records: Mapping[str, Record], known: Iterable[str]) -> list[str]:
    """What is missing, a line each, if these are the records of the functions that queries know."""
    known = list(known)
    found = [f"aggregate function {name!r} has no record" for name in known if name not in records]
    found += [f"the record {name!r} is of no function that queries know" for name in records if name not in known]
    for name, record in records.items():
        found += [f"aggregate function {name!r} {lack}" for lack in _lacks(record)]
    return found


def _lacks(record: Record) -> list[str]:
    slots, out = record.slots, []
    if record.rows is None and (slots is None or slots.serves is not any_type):
        out.append("has no `rows` for columns that no accumulator serves")
    if slots is None:
        if record.by_source is not needs_order:
            out.append("has no `slots` that sources could merge")
        return out
    needed = ["update", "column", "absorb"]
    if not issubclass(slots.kind, Edge):
        needed.append("parts")
    if slots.kind.merged is Accumulator.merged:
        needed.append("_merge")
    if record.by_source is not needs_order:
        if not issubclass(slots.kind, Moments):  # which are several
            needed.append("merge")
        if not issubclass(slots.kind, (Edge, Moments)):  # what a source keeps of these is another class, or several
            needed.append("step")
    for method in needed:
        if getattr(slots.kind, method) is getattr(Accumulator, method):
            out.append(f"has an accumulator, {slots.kind.__name__}, without `{method}`")
    return out


for _line in missing(RECORDS, KINDS):
    raise ImportError(f"{_line}: see plait.core.aggregate.functions")
