"""What a batch brings to a cell: bodies of packed rows, taken apart, judged and put in order; and how far the sources are.

A task's split (`pack`) says where a source's run of positions begins and how far its time got. Splits of one source, ordered by
first position, continue what the state remembers: so the largest ts before a tuple is in its split (the task has seen that),
in an earlier split of the batch, or in an earlier batch. What follows from it, which tuples are late or behind and where the
frontier is, is `core/sources.py`'s to say. Every cell gets all splits, so every cell comes to the same, and none has to be asked.

Batches cut a source's rows anywhere, tasks take any files, bodies come in any order, and none of it may show. What makes that so
is the order of splits by first position: it is the order in which one reader would have read the source.

Every cell gets all splits, and its own tuples. Where nothing is dropped, the splits are enough, and all cells refuse a
batch alike. Where tuples are dropped, each cell judges its own. A tuple that several cells get is counted by one of them
(`owns`).

Where it runs: in a cell's task, once a batch, before anything else is done with the rows. It changes what is known of the
sources (`Known`), and nothing else: if it raises, the batch fails as a whole and nothing is stored. What is known between
batches is in the cell's manifest (`formats.StreamState`); a retry begins from the manifest of the batch before and comes to
the same. Held by tests/spark/test_bad_input.py, tests/spark/test_control.py, tests/spark/test_idle.py and
tests/spark/test_inputs.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.core.metrics import Counts
from plait.core.sources import Holding, Offence, come_to, frontier, has_ended, is_idle, judge, not_declared, refusal
from plait.errors import DataError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL, decode, encode
from plait.query.stream import FILE, Stream
from plait.spark import formats
from plait.spark.formats import Event, OperatorRows, Passed, SourceState, Split, StreamRows, StreamState, Tick, times
from plait.spark.pack.positions import of_one_file, told
from plait.spark.plan.layout import Layout

#: It takes so many batches at least for a source to become idle: see `clock`.
MOST = 4


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

    def end(self) -> None:
        """Nothing more can come, from streams or from operators before: one without any row has had no cell to say so."""
        for stream in self.streams.values():
            stream.ended = True
        for upstream in self.upstreams.values():
            upstream.frontier = AFTER_ALL

    def newest(self) -> int | None:
        """The largest ts that any stream has delivered, late ones apart."""
        return max((at for stream in self.streams.values() if (at := stream.largest()) is not None), default=None)

    def last_ts(self) -> int:
        """How far time has passed at the end of input: to the last tuple of any stream, or a heartbeat beyond it."""
        ends = [at for stream in self.streams.values() if (at := stream.largest()) is not None]
        # At a batch that follows the end the frontier is no moment of the data's any more.
        passed = self.frontier if self.frontier < AFTER_ALL else BEFORE_ALL
        return max(passed, self.reached, *ends)


#: Of a stream's source, how many rows a batch has brought, and how many of them were late, and behind: where this cell is the
#: one that counts them.
BySource = dict[tuple[str, Any], list[int]]


@dataclass
class Arrived:
    """What a batch has brought to this cell, judged and in order."""

    tables: dict[int, pa.Table]  # by input, in total order, without the late ones
    late: dict[str, pa.Table]  # by stream
    passed: list[tuple[int, bytes]]  # for the user, from the operators before this one
    counts: Counts  # of copies and bytes; and of rows, late and behind, where this cell is the one that counts them
    least: int | None = None  # the least ts of all rows that came, to any cell
    by_source: BySource = field(default_factory=dict)


def arrive(known: Known, layout: Layout, cell: int, bodies: Iterable[bytes], *, counts: frozenset[str]) -> Arrived:
    """Take a batch. `counts` are the streams whose dropped rows this operator shows: of several that read one, the first.

    The steps, in this order: splits are folded into what is known, for all streams, which may refuse the batch; tuples
    are judged and parted; frontiers of operators before this one are taken; control events are applied after the rows of
    their batch, so an event "end" does not refuse rows that came with it; at last, silence is counted.
    """
    found = sorted_out(bodies)
    if known.drained and found.rows:
        raise RunError("The query has been drained", why="rows came after its end", do="Use another checkpoint folder")
    arriving = Arriving(known, layout, cell, counts)
    splits = arriving.hear(found)
    arriving.take(found)
    _hear(known, found, splits)
    tables = arriving.ready()
    least = min((split.least for some in splits.values() for split in some), default=None)
    return Arrived(tables, arriving.dropped(), found.passed, arriving.counted(), least, arriving.by_source)


class Arriving:
    """What comes to a cell, taken apart: at once, or in a batch run (`whole`) punctuation first, and tuples in slabs.

    Attributes:
        before: Of each stream the largest ts before each split of its sources, as `fold` gave it.
        parts: By input what has been taken and not given out yet.
        late: By stream what was dropped, where this cell is the one that shows it.
    """

    def __init__(self, known: Known, layout: Layout, cell: int, counts: frozenset[str]) -> None:
        self.known, self.layout, self.cell, self.counts = known, layout, cell, counts
        self.before: dict[str, dict[tuple[Any, str], int]] = {}
        self.parts: dict[int, list[pa.Table]] = {}
        self.late: dict[str, list[pa.Table]] = {}
        self.came = self.copies = self.bytes = self.packed = 0
        self.by_input: dict[str, int] = {}
        self.by_source: BySource = {}

    def hear(self, found: _Bodies) -> dict[str, list[Split]]:
        """Fold all splits into what is known, which may refuse them; gives them by stream."""
        splits: dict[str, list[Split]] = {}
        for head, _ in found.rows:
            splits.setdefault(head.stream, []).extend(head.splits if head.tells and not head.slab else ())
        for name, own in splits.items():
            self.before[name] = self.known.streams[name].fold(own, self.known.frontier)
        # Every cell hears of every row, so the first one counts them.
        if self.cell == 0:
            for name in self.counts & splits.keys():
                for split in splits[name]:
                    self._of(name, split.source)[0] += split.rows
                    self.came += split.rows
        return splits

    def _of(self, stream: str, source: Any) -> list[int]:
        """What is counted of a source."""
        return self.by_source.setdefault((stream, source), [0, 0, 0])

    def take(self, found: _Bodies) -> int:
        """Judge and part the tuples, of streams whose splits have been heard; and results of operators before. How many came."""
        rows = 0
        self.bytes += found.bytes
        self.packed += len(found.rows) + len(found.upstream)
        for head, rest in found.rows:
            if (table := formats.rows(rest)) is not None:
                rows += table.num_rows
                self._judged(head, table)
        for sent, rest in found.upstream:
            source = self.known.upstreams[sent.number]
            source.frontier = max(source.frontier, sent.frontier)
            if (table := formats.rows(rest)) is not None:
                rows += table.num_rows
                self.parts.setdefault(sent.input, []).append(table)
        return rows

    def _judged(self, head: StreamRows, table: pa.Table) -> None:
        assert head.input is not None, "rows of a stream that is only heard"
        dropped = None
        if not head.panes:  # which hold no tuple to leave out: `fold` has judged them
            stream = self.known.streams[head.stream]
            table, dropped = _parted(stream, self.before[head.stream], head.splits, table, self.known.frontier)
        if self.layout.kind == "band" and formats.OWN in table.column_names:
            table = table.drop_columns(
                [formats.OWN]
            )  # nothing that a tuple has: `relayout` may take it to another layout
        self.parts.setdefault(head.input, []).append(table)
        if dropped is not None and formats.OWN in dropped.column_names:
            dropped = dropped.filter(dropped.column(formats.OWN))
        counted = dropped is not None and head.stream in self.counts and head.tells
        if dropped is not None and counted and owns(self.layout, self.cell, head.input):
            self.late.setdefault(head.stream, []).append(dropped)
            self._count_dropped(head, dropped)

    def _count_dropped(self, head: StreamRows, dropped: pa.Table) -> None:
        """By source."""
        behind = dropped.column(formats.BEHIND).to_numpy()
        for place, was_behind in zip(dropped.column(formats.SPLIT).to_pylist(), behind, strict=True):
            self._of(head.stream, head.splits[place].source)[2 if was_behind else 1] += 1

    def ready(self) -> dict[int, pa.Table]:
        """What has been taken since the last call, by input, in total order."""
        tables = {input: in_order(pa.concat_tables(some)).combine_chunks() for input, some in self.parts.items()}
        self.parts = {}
        for input, table in tables.items():
            self.copies += table.num_rows
            self.by_input[str(input)] = self.by_input.get(str(input), 0) + table.num_rows
        return tables

    def dropped(self) -> dict[str, pa.Table]:
        """By stream."""
        return {name: _aside(self.late[name]) for name in sorted(self.late)}

    def counted(self) -> Counts:
        """Of copies and bytes; and of rows, late and behind, where this cell is the one that counts them."""
        counts = _counted(self.came, self.late, self.counts)
        counts.copies, counts.shuffled_bytes, counts.packed = self.copies, self.bytes, self.packed
        counts.copies_by_input = dict(self.by_input)
        return counts


@dataclass
class _Bodies:
    """A batch's bodies by what they are."""

    rows: list[tuple[StreamRows, pa.Buffer]] = field(default_factory=list)
    upstream: list[tuple[OperatorRows, pa.Buffer]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    elapsed_us: int = 0
    passed: list[tuple[int, bytes]] = field(default_factory=list)
    bytes: int = 0  # of all of them


def sorted_out(bodies: Iterable[bytes]) -> _Bodies:
    """Bodies by their kinds. What is passed on to the user is sorted, since bodies come in any order and output must not
    depend on it.
    """
    found = _Bodies()
    for body in bodies:
        found.bytes += len(body)
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


# --- how far the sources are ---------------------------------------------------------------------------------


class StreamProgress:
    """One stream's sources by name, and whether more of them can come.

    Attributes:
        stream: The declaration, which has the rules: disorder, late, behind, idle_after.
        sources: What is known of each source. A declared one is here from the start and holds the frontier until it
            speaks.
        open_ended: No sources are declared. Then the stream itself holds the frontier until the first one has spoken.
        ended: The user has said so (`end`, `drain`). Rows that come after that are refused.
    """

    def __init__(self, stream: Stream, names: tuple[Any, ...], *, open_ended: bool) -> None:
        self.stream = stream
        self.sources: dict[Any, SourceState] = {name: SourceState() for name in names}
        self.open_ended = open_ended  # sources become known at first sight
        self.ended = False
        self.silent_us = 0  # how long none of its sources has said anything

    def holding(self) -> list[Holding[Who]]:
        """Those that may hold the frontier."""
        if self.ended:
            return []
        name = self.stream.name
        found: list[Holding[Who]] = [
            Holding(self.come_to(source), (name, own), source.idle)
            for own, source in self.sources.items()
            if not source.ended
        ]
        if self.open_ended and all(each.idle for each in found):
            # None that is known holds it, and another may come: nothing is promised beyond what has been seen.
            seen = self.largest()
            found.append(
                Holding(BEFORE_ALL if seen is None else seen, (name, None), is_idle(self.stream, self.silent_us))
            )
        return found

    def come_to(self, source: SourceState) -> int:
        return come_to(self.stream, BEFORE_ALL if source.largest is None else source.largest, source.heartbeat)

    def tick(self, elapsed_us: int, spoke: set[Any]) -> None:
        """Time has passed in which only the sources that spoke said anything.

        A batch counts for a quarter of `idle_after=` at most (see `clock`).
        """
        assert self.stream.idle_after_us is not None
        elapsed_us = min(elapsed_us, -(-self.stream.idle_after_us // MOST))
        self.silent_us = 0 if spoke else self.silent_us + elapsed_us
        for name, source in self.sources.items():
            source.silent_us = 0 if name in spoke else source.silent_us + elapsed_us
            source.idle = is_idle(self.stream, source.silent_us)

    def largest(self) -> int | None:
        """The largest ts of any source; None before the first row."""
        return max((s.largest for s in self.sources.values() if s.largest is not None), default=None)

    def reached(self) -> int:
        """The furthest any source has come."""
        return max((self.come_to(source) for source in self.sources.values()), default=BEFORE_ALL)

    def fold(self, splits: list[Split], released: int) -> dict[tuple[Any, str], int]:
        """Take a batch's splits; gives for each (source, first position) the largest ts before it in its source.

        Splits tell enough to refuse a batch, in every cell alike, unless late tuples are dropped: then which tuples are
        left to be behind is known only where the tuples are (`arrive`).

        Refused here are: a position that is not above the last one of its source (the file was read twice, or files do
        not sort in the order they arrived), a source that has ended or is not declared, a late tuple where
        `late="error"`, and in `_judge` one that is behind. Late is told with the tuple's position, which its task has
        put into the split.

        A file that names its source ends it, so a folder with many files does not wait for those that are read.
        """
        found: dict[tuple[Any, str], int] = {}
        splits = sorted(splits, key=lambda s: (str(s.source), s.first))
        at_start = {name: source.largest for name, source in self.sources.items()}
        for split in splits:
            name, first = split.source, split.first
            source = self._source(name)
            if first and source.last and first <= source.last:
                raise self.out_of_order(name, first, source.last)
            source.last = split.last
            # Rows without a position have no order among those of their batch: only earlier batches came before them.
            before = source.largest if first else at_start.get(name)
            found[(name, first)] = BEFORE_ALL if before is None else before
            if split.offence is not None and self.stream.late == "error":
                late = split.offence
                limit = late.largest if before is None else max(late.largest, before)
                raise self.refusal(name, Offence("late", 0, late.ts, limit), late.seq)
            source.largest = split.largest if source.largest is None else max(source.largest, split.largest)
            source.ended = source.ended or split.ended
        self._judge(splits, found, released)
        return found

    def _judge(self, splits: list[Split], before: dict[tuple[Any, str], int], released: int) -> None:
        """Refuse what splits show to be refused: by a tuple of each that is not late within it, the least if none is."""
        least = self.stream.late == "error"
        ts = np.array([split.least if least else split.largest for split in splits], np.int64)
        judged = judge(self.stream, ts, np.array([before[(s.source, s.first)] for s in splits], np.int64),
                       self.heartbeats(splits), released)  # fmt: skip
        if judged.offence is not None:
            split = splits[judged.offence.row]
            raise self.refusal(split.source, judged.offence, split.least_seq if least else "")

    def heartbeats(self, splits: list[Split]) -> np.ndarray:
        """Of each split's source."""
        return np.array([self.sources[split.source].heartbeat for split in splits], np.int64)

    def refusal(self, name: Any, offence: Offence, seq: str) -> DataError:
        """The error for a tuple of a source, by its seq's key piece as hexadecimal."""
        at = told(bytes.fromhex(seq)) if offence.kind == "late" else ""
        return refusal(self.stream, name, at, offence, idle=self.sources[name].idle, resumes=True)

    def _source(self, name: Any) -> SourceState:
        """The source of a split; it must not have ended."""
        if self.ended:
            raise has_ended(self.stream)
        source = self.know(name)
        if source.ended and self.stream.source != FILE:
            raise has_ended(self.stream, name)
        return source

    def know(self, name: Any) -> SourceState:
        """The source of that name; where none are declared, first sight makes it known."""
        source = self.sources.get(name)
        if source is None:
            if not self.open_ended:
                raise not_declared(self.stream, name, self.sources)
            source = self.sources[name] = SourceState()
        return source

    def out_of_order(self, name: Any, first: str, last: str) -> DataError:
        """The refusal of positions that go back. Which words it has depends on whether both lie in one file."""
        here, there = (told(bytes.fromhex(text)) for text in (first, last))
        if of_one_file(bytes.fromhex(first), bytes.fromhex(last)):
            return DataError(
                f"Stream {self.stream.name!r}, source {name!r}: {here} came after {there}, of the same file",
                why="a file's rows come once and in one piece: this one was read twice, written anew, or dealt out to tasks anew",
                do="Hand over each file once, as Spark reads it, or use a seq column",
            )
        return DataError(
            f"Stream {self.stream.name!r}, source {name!r}: {here} came after {there}, and sorts before it",
            why="a source's tuples are ordered by position, and those up to there have been taken",
            do="Name files so that they sort in the order they arrive, or use a seq column",
        )

    def state(self) -> StreamState:
        """What a cell stores of it."""
        return StreamState(self.ended, self.silent_us, self.sources)

    def restore(self, state: StreamState) -> None:
        """Take up what a cell has stored. Declared sources that the state does not know stay as they are: not heard of yet."""
        self.ended, self.silent_us = state.ended, state.silent_us
        self.sources.update(state.sources)


#: A stream and its source; None: an operator before this one.
Who = tuple[str, Any] | None


@dataclass
class Upstream:
    """Another operator of the query, as a source: it says how far it is, and gives nothing below that any more.

    It is never idle and never late: the operator before has waited for its own sources already.
    """

    frontier: int = BEFORE_ALL

    def holding(self) -> list[Holding[Who]]:
        """Itself, or nobody once it has ended."""
        return [] if self.frontier == AFTER_ALL else [Holding(self.frontier, None)]

    def reached(self) -> int:
        """How far it has come. At its end that is no moment of the data, so it says nothing then."""
        return BEFORE_ALL if self.frontier == AFTER_ALL else self.frontier


def held(streams: Iterable[StreamProgress | Upstream]) -> tuple[int, Holding[Who] | None]:
    """The frontier of an operator that reads these, and who holds it.

    Streams and operators before count alike: the least of all that may hold it. If all are idle, the frontier is the
    furthest that any of them has come. If all have ended, it is AFTER_ALL: everything is ready.
    """
    streams = list(streams)
    holding = [each for stream in streams for each in stream.holding()]
    return frontier(holding, max((stream.reached() for stream in streams), default=BEFORE_ALL))


# --- which tuples count, and in which order ------------------------------------------------------------------


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
    marked = marked.append_column(formats.SPLIT, table.column(formats.SPLIT))
    return plain.filter(pa.array(~gone)), marked.filter(pa.array(gone))


def owns(layout: Layout, cell: int, input: int) -> bool:
    """Whether this cell is the one that counts a tuple which several cells get.

    Which cells get a tuple follows from the layout: all of them ("see_all"), one ("hash"), one row or one column of the
    grid. Of those the first counts it. For buckets and ranges the tuples themselves say who owns them (`formats.OWN`), so every
    cell may count what it has.
    """
    if layout.kind == "see_all":
        return cell == 0
    if layout.kind in ("hash", "buckets", "band"):
        return True
    return cell % layout.columns == 0 if input == 0 else cell < layout.columns


def in_order(table: pa.Table) -> pa.Table:
    """Tuples in total order; partial panes, which have no key, by time.

    The check costs one pass over the times, and saves a sort by byte strings.
    """
    if _is_in_order(table):
        return table.combine_chunks()
    by = (table.column(name) for name in (formats.TS, formats.KEY) if name in table.column_names)
    return table.take(keys.in_order_of(by))


def _is_in_order(table: pa.Table) -> bool:
    """Whether rows stand in order already, as those of one source mostly do."""
    ts = times(table)
    if (ts[1:] < ts[:-1]).any():
        return False
    ties = np.flatnonzero(ts[1:] == ts[:-1])
    if formats.KEY not in table.column_names or len(ties) == 0:
        return True
    own, next_one = (table.column(formats.KEY).take(pa.array(ties + after)) for after in (0, 1))
    return bool(pc.all(pc.less(own, next_one)).as_py())


# --- control events, silence, and what is told ---------------------------------------------------------------


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


def _aside(tables: list[pa.Table]) -> pa.Table:
    """What a batch dropped of one stream here, in total order, without the columns that only cells need."""
    table = in_order(pa.concat_tables(tables))
    names = [n for n in table.column_names if not n.startswith("_plait_")]
    return table.select(names).replace_schema_metadata(None)


def _counted(rows: int, dropped: dict[str, list[pa.Table]], streams: frozenset[str]) -> Counts:
    """Counts of this batch for the report: rows that came, and those dropped, by stream. Streams without any have a 0."""
    late = dict.fromkeys(sorted(streams), 0)
    behind = dict(late)
    for name, tables in dropped.items():
        marks = np.concatenate([table.column(formats.BEHIND).to_numpy() for table in tables])
        late[name], behind[name] = int((~marks).sum()), int(marks.sum())
    return Counts(rows=rows, late=late, behind=behind)
