"""What is a difference: the reference's answer once a group, then bytes in order; errors by their kind.

An executor may refuse what the reference takes only where the law lets it: a source that nobody declared and that turns up
behind the frontier. It must refuse what the reference refuses, with the same kind of error; where there is more than one thing
to refuse (a late row, and a row on which the user's function raises), which one is met first is the delivery's to say.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa
from tests.fuzz.feeds import Feed, shown
from tests.fuzz.queries import Group

from plait.connectors import memory
from plait.core.sources import slack_us
from plait.errors import BehindError, DataError, LateError, PlaitError, QueryError, RunError
from plait.order import decode
from plait.query.bind import bind
from plait.query.identical import KEY, _bytes, difference
from plait.reference import run as reference


@dataclass(frozen=True)
class Answer:
    """What the reference says: a table with keys and the rows dropped as late, or an error."""

    table: pa.Table | None
    late: dict[str, pa.Table]
    error: PlaitError | None = None
    #: Of data that are refused as late: what is to be said of the rest.
    besides: PlaitError | None = None


def answer(group: Group) -> Answer:
    found = _answer(group)
    if isinstance(found.error, LateError):
        return replace(found, besides=_answer(without_late(group)).error)
    return found


def without_late(group: Group) -> Group:
    feeds = []
    for each in group.feeds:
        slack = slack_us(each.stream)
        for name, rows in each.sources.items():
            times = each.times(rows)
            before = list(accumulate(times, max))
            for at in reversed([at for at in range(1, len(times)) if times[at] < before[at - 1] - slack]):
                each = each.without(name, at, at + 1)
        feeds.append(each)
    return replace(group, feeds=tuple(feeds))


def _answer(group: Group) -> Answer:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each drop of late tuples is announced; here they are compared
            streams = group.query.streams()
            feeds = {each.stream.name: memory.feed(each.stream, each.data()) for each in group.feeds}
            bind(group.query, {name: feed.schema for name, feed in feeds.items()})
            found = reference.outcome(
                group.query, {name: memory.in_seq_order(streams[name], feed) for name, feed in feeds.items()}
            )
    except PlaitError as error:
        return Answer(None, {}, error)
    return Answer(found.table.append_column(KEY, pa.array(found.keys(), pa.binary())), found.late)


@dataclass
class Got:
    """What an executor gave: rows in order (all, or as many as came before it was stopped), or an error."""

    table: pa.Table | None = None
    late: dict[str, pa.Table] | None = None
    error: BaseException | None = None
    order: str = "strict"
    whole: bool = True
    may_be_behind: bool = False
    may_miss_late: bool = False  # rows came together that have no order among them, so none of them is behind another
    own_keys: bool = False  # made of other positions than the reference's (files): they rise, and that is all


def judged(expected: Answer, got: Got) -> str | None:
    """The difference in words; None if there is none."""
    if got.error is not None:
        return _judged_error(expected, got)
    if got.table is None:
        return "nothing came out" if got.whole else None
    if expected.error is not None:
        if not got.whole or (got.may_miss_late and isinstance(expected.error, LateError)):
            return None
        return f"the reference refuses: {expected.error}\nthe run gave {len(got.table)} rows"
    assert expected.table is not None
    table = expected.table
    if not got.whole:
        if got.order != "strict" or got.may_be_behind:
            return None  # stopped before it found, in a source that turned up behind them, that it had given rows too early
        if len(got.table) > len(table):
            return f"{len(got.table)} rows of a run that was stopped early, and there are only {len(table)}"
        table = table.slice(0, len(got.table))
    found = difference(table, got.table, got.order)
    if found is not None:
        return f"row {found.row}: {found.what}\nexpected {found.expected}\ngot      {found.got}"
    return _judged_keys(table, got) or (_judged_late(expected, got) if got.whole else None)


def _judged_keys(table: pa.Table, got: Got) -> str | None:
    """Keys are part of the answer: sinks sort and drop replays by them."""
    if got.table is None or got.order != "strict" or KEY not in got.table.column_names:
        return None
    keys, wanted = got.table.column(KEY).to_pylist(), table.column(KEY).to_pylist()
    if got.own_keys:
        falls = next((at for at in range(1, len(keys)) if keys[at] <= keys[at - 1]), None)
        return None if falls is None else f"the key of row {falls} does not rise: {decode(keys[falls])}"
    pairs = enumerate(zip(wanted, keys, strict=True))
    other = next(((at, mine, theirs) for at, (mine, theirs) in pairs if mine != theirs), None)
    if other is None:
        return None
    return f"the key of row {other[0]} is {decode(other[2])}, and the reference's {decode(other[1])}"


def _judged_late(expected: Answer, got: Got) -> str | None:
    """Rows dropped as late: which they are is a fact of the data, in which order they are found is not."""
    for name, rows in (got.late or {}).items():
        if sorted(_texts(rows)) != sorted(_texts(expected.late[name])):
            return f"late rows of {name!r}: expected {shown(expected.late[name])}, got {shown(rows)}"
    return None


def _texts(rows: pa.Table) -> list[str]:
    return [_bytes(rows.slice(at, 1)).hex() for at in range(len(rows))]


def _judged_error(expected: Answer, got: Got) -> str | None:
    error = got.error
    if not isinstance(error, PlaitError):
        return f"no error of plait's: {type(error).__name__}: {error}"
    if isinstance(error, BehindError) and got.may_be_behind:
        return None
    if expected.error is None:
        return f"refused, and the reference gives {len(expected.table or ())} rows: {type(error).__name__}: {error}"
    refused = [each for each in (expected.error, expected.besides) if each is not None]
    if any(
        isinstance(error, kind) and isinstance(e, kind) for e in refused for kind in (LateError, QueryError, RunError)
    ):
        return None
    if isinstance(error, DataError) and isinstance(expected.error, DataError):
        return None
    return (f"the reference refuses with {type(expected.error).__name__}: {expected.error}\n"
            f"the run with {type(error).__name__}: {error}")  # fmt: skip


def undeclared(feeds: tuple[Feed, ...]) -> bool:
    """Whether a source can turn up that nobody waited for."""
    return any(each.stream.declared() is None and (each.by_column or len(each.sources) > 1) for each in feeds)
