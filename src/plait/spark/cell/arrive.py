"""What a batch brings to a cell: bodies of packed rows, taken apart, judged, and put in order.

Splits (`pack`) tell of each source how far it is and in which order its tasks stand; from them, and from what the state
remembers, follows which tuples are late, the same in every cell. Bodies come in any order: nothing here depends on it.

Where it runs: in a cell's task, once a batch, before anything else is done with the rows. It changes what is known of the
sources (`Known`), and nothing else: if it raises, the batch fails as a whole and nothing is stored.

Every cell gets all splits, and its own tuples. Where nothing is dropped, the splits are enough, and all cells refuse a
batch alike. Where tuples are dropped, each cell judges its own. A tuple that several cells get is counted by one of them
(`_owns`). Held by tests/spark/test_bad_input.py, tests/spark/test_control.py and tests/spark/test_idle.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.metrics import Counts
from plait.core.sources import judge
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL, decode, encode
from plait.spark import formats
from plait.spark.cell.progress import StreamProgress, Upstream, held
from plait.spark.cell.rows import in_order
from plait.spark.formats import Event, OperatorRows, Passed, Split, StreamRows, Tick
from plait.spark.plan.layout import Layout


@dataclass
class Known:
    """What a cell knows before a batch, and what the batch makes of it.

    Attributes:
        streams: The streams that the operator reads, or only hears, by name.
        upstreams: The operators whose results it reads, by number.
        frontier: That of the batch before. What lies below it has been released: a tuple there is behind.
        drained: The end of input has been reached in an earlier batch.
    """

    streams: dict[str, StreamProgress]
    upstreams: dict[int, Upstream]
    frontier: int
    drained: bool
    events: int  # the largest number of a control event applied
    reached: int = BEFORE_ALL  # how far events have moved the frontier of the streams, short of the end

    def holders(self) -> list[StreamProgress | Upstream]:
        """What the frontier depends on."""
        return [*self.streams.values(), *self.upstreams.values()]

    def last_ts(self) -> int:
        """How far time has passed at the end of input: to the last tuple of any stream, or a heartbeat beyond it."""
        ends = [at for stream in self.streams.values() if (at := stream.largest()) is not None]
        # At a batch that follows the end the frontier is no moment of the data's any more.
        passed = self.frontier if self.frontier < AFTER_ALL else BEFORE_ALL
        return max(passed, self.reached, *ends)


@dataclass
class Arrived:
    """What a batch has brought to this cell, judged and in order."""

    tables: dict[int, pa.Table]  # by input, in total order, without the late ones
    late: dict[str, pa.Table]  # by stream
    passed: list[tuple[int, bytes]]  # for the user, from the operators before this one
    counts: Counts  # of rows, late and behind, where this cell is the one that counts them


@dataclass
class _Bodies:
    """A batch's bodies by what they are."""

    rows: list[tuple[StreamRows, pa.Buffer]] = field(default_factory=list)
    upstream: list[tuple[OperatorRows, pa.Buffer]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    elapsed_us: int = 0
    passed: list[tuple[int, bytes]] = field(default_factory=list)


def _sorted_out(bodies: Iterable[bytes]) -> _Bodies:
    """Bodies by their kinds. What is passed on to the user is sorted, since bodies come in any order and output must not
    depend on it.
    """
    found = _Bodies()
    for body in bodies:
        match formats.parse(body):
            case StreamRows() as head, rest:
                found.rows.append((head, rest))
            case OperatorRows() as head, rest:
                found.upstream.append((head, rest))
            case Event() as event, _:
                found.events.append(event)
            case Tick(elapsed_us), _:
                found.elapsed_us += elapsed_us
            case Passed(output), rest:
                found.passed.append((output, rest.to_pybytes()))
            case other, _:
                raise AssertionError(f"{other} is not for a cell")
    found.passed.sort()
    return found


def arrive(known: Known, layout: Layout, cell: int, bodies: Iterable[bytes], *, counts: frozenset[str]) -> Arrived:
    """Take a batch. `counts` are the streams whose dropped rows this operator shows: of several that read one, the first.

    The steps, in this order: splits are folded into what is known, for all streams, which may refuse the batch; tuples
    are judged and parted; frontiers of operators before this one are taken; control events are applied after the rows of
    their batch, so an event "end" does not refuse rows that came with it; at last, silence is counted.
    """
    found = _sorted_out(bodies)
    splits: dict[str, list[Split]] = {}
    for head, _ in found.rows:
        splits.setdefault(head.stream, []).extend(head.splits if head.tells else ())
    if known.drained and found.rows:
        raise RunError("The query has been drained", why="rows came after its end", do="Use another checkpoint folder")
    before = {name: known.streams[name].fold(own, known.frontier) for name, own in splits.items()}
    parts: dict[int, list[pa.Table]] = {}
    late: dict[str, list[pa.Table]] = {}
    for head, rest in found.rows:
        stream = known.streams[head.stream]
        table = formats.rows(rest)
        if table is None:
            continue
        assert head.input is not None, "rows of a stream that is only heard"
        dropped = None
        if not head.panes:  # which hold no tuple to leave out: `fold` has judged them
            table, dropped = _parted(stream, before[head.stream], head.splits, table, known.frontier)
        parts.setdefault(head.input, []).append(table)
        if dropped is not None and formats.OWN in dropped.column_names:
            dropped = dropped.filter(dropped.column(formats.OWN))
        counted = dropped is not None and head.stream in counts and head.tells
        if dropped is not None and counted and _owns(layout, cell, head.input):
            late.setdefault(head.stream, []).append(dropped)
    for told, rest in found.upstream:
        source = known.upstreams[told.number]
        source.frontier = max(source.frontier, told.frontier)
        if (table := formats.rows(rest)) is not None:
            parts.setdefault(told.input, []).append(table)
    _hear(known, found, splits)
    tables = {input: in_order(pa.concat_tables(some)).combine_chunks() for input, some in parts.items()}
    # Every cell hears of every row, so the first one counts them.
    came = sum(split.rows for name in counts & splits.keys() for split in splits[name]) if cell == 0 else 0
    return Arrived(
        tables, {name: _aside(late[name]) for name in sorted(late)}, found.passed, _counted(came, late, counts)
    )


def _counted(rows: int, dropped: dict[str, list[pa.Table]], streams: frozenset[str]) -> Counts:
    """Counts of this batch for the report: rows that came, and those dropped, by stream. Streams without any have a 0."""
    late = dict.fromkeys(sorted(streams), 0)
    behind = dict(late)
    for name, tables in dropped.items():
        marks = np.concatenate([table.column(formats.BEHIND).to_numpy() for table in tables])
        late[name], behind[name] = int((~marks).sum()), int(marks.sum())
    return Counts(rows=rows, late=late, behind=behind)


def _hear(known: Known, found: _Bodies, splits: dict[str, list[Split]]) -> None:
    """Control events, after the rows; and how long who has said nothing.

    Time counts as silence of those sources that had neither a row nor a heartbeat in this batch.
    """
    for event in sorted(found.events, key=lambda e: e.no):
        # Also one whose number is below the last: a listing may have seen the later one first. Twice does no harm.
        known.events = max(known.events, event.no)
        _apply(event, known.streams)
        at, _ = held(known.streams.values())
        known.reached = max(known.reached, at) if at < AFTER_ALL else known.reached
    for name, stream in known.streams.items():
        if stream.stream.idle_after_us is not None:
            spoke = {split.source for split in splits.get(name, ())}
            spoke |= {event.source for event in found.events if event.do == "heartbeat" and event.stream == name}
            stream.tick(found.elapsed_us, spoke)


def _aside(tables: list[pa.Table]) -> pa.Table:
    """What a batch dropped of one stream here, in total order, without the columns that only cells need."""
    table = in_order(pa.concat_tables(tables))
    names = [n for n in table.column_names if not n.startswith("_plait_")]
    return table.select(names).replace_schema_metadata(None)


def _owns(layout: Layout, cell: int, input: int) -> bool:
    """Whether this cell is the one that counts a tuple which several cells get.

    Which cells get a tuple follows from the layout: all of them ("see_all"), one ("hash"), one row or one column of the
    grid. Of those the first counts it. For buckets the tuples themselves say who owns them (`formats.OWN`), so every cell
    may count what it has.
    """
    if layout.kind == "see_all":
        return cell == 0
    if layout.kind in ("hash", "buckets"):
        return True
    return cell % layout.columns == 0 if input == 0 else cell < layout.columns


def _apply(event: Event, progress: dict[str, StreamProgress]) -> None:
    """A control event: end a source or a stream, a heartbeat, or drain everything."""
    if event.do == "drain":
        for each in progress.values():
            each.ended = True
        return
    stream = progress.get(event.stream or "")
    if stream is None:
        return  # another operator's: a stream that the query does not have is refused where events are written
    if event.do == "end" and event.source is None:
        stream.ended = True
        return
    source = stream.know(event.source)
    if event.do == "end":
        source.ended = True
    else:
        assert event.ts is not None
        source.heartbeat = max(source.heartbeat, event.ts)


def _parted(stream: StreamProgress, before: dict[tuple[Any, str], int], splits: list[Split], table: pa.Table,
            released: int) -> tuple[pa.Table, pa.Table | None]:  # fmt: skip
    """A packed row's tuples: those that count, and those that are late or behind.

    `before` is the largest ts of the source before each split, as `fold` gave it. A tuple is judged against that and
    against what its task has seen earlier in the split (LATE_FLAG). Where neither late nor behind tuples are dropped,
    nothing is left to do: `fold` would have refused the batch.
    """
    names = [n for n in table.column_names if n not in (formats.SPLIT, formats.LATE_FLAG)]
    plain = table.select(names)
    if "drop" not in (stream.stream.late, stream.stream.behind):
        return plain, None  # `fold` has found that no tuple is either
    split = table.column(formats.SPLIT).to_numpy()
    flag = None
    if formats.LATE_FLAG in table.column_names:
        flag = table.column(formats.LATE_FLAG).to_numpy(zero_copy_only=False)
    largest = np.array([before[(s.source, s.first)] for s in splits], np.int64)
    judged = judge(stream.stream, table.column(formats.TS).to_numpy(), largest[split], stream.heartbeats(splits)[split],
                   released, flag)  # fmt: skip
    if judged.offence is not None:
        row = judged.offence.row
        seq = encode(decode(table.column(formats.KEY)[row].as_py())[3:])
        raise stream.refusal(splits[split[row]].source, judged.offence, seq.hex())
    gone = judged.late | judged.behind
    if not gone.any():
        return plain, None
    marked = plain.append_column(formats.BEHIND, pa.array(judged.behind))
    return plain.filter(pa.array(~gone)), marked.filter(pa.array(gone))
