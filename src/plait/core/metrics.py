"""What a run tells of itself: every metric once, with its name, its unit and its one meaning.

**The rule.** A metric is a field that `metric` makes, and means the same wherever it is told: in `stats()` on threads, in what
cells report and a query's progress shows on Spark, in the lines of the command. Both executors fill the same records:

    Counts          what is counted where the work is done, by a part of a run: a worker on threads, a cell on Spark
    PartStats       what such a part tells: its counts, its time, its share of the work, what it holds
    SourceStats     how far a source is, when it was heard last, what of it waits, and whether it holds the frontier
    OperatorStats   what an operator of the query has read and made, and how far it is
    Metrics         what a whole run tells: its parts' counts added up, how far it is, and all of the above

Who counts has the counts of the part it belongs to, and adds to them (`self.counts.updates += n`). From there on nobody has to
know a metric by name: counts are stored with a cell's state, sent, added up and shown by what their entries say. So a metric is
added here and where it is counted, and nowhere else. `threads.stats` has the fields that only threads tell, and what a worker
tells; `spark.publish.stats` has what a cell tells.

A field without an entry, and an entry that is not whole, fail at import, by name (`missing`). `docs/metrics.md` has a line for
each (`described`).
"""

from __future__ import annotations

import datetime as dt
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Self

from plait.order import BEFORE_ALL, TS_MAX, TS_MIN

# --- units --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """What a metric counts or measures in, and how a value of it reads.

    `text` makes what a person reads of a value: `{:,}` of 12345 is 12,345.
    """

    name: str
    text: Callable[[Any], str] = "{:,}".format


def moment(ts: int) -> str:
    """An event time for a person: ISO where it is a plausible date, else the count of microseconds."""
    if abs(ts) >= 2**62:
        return "start" if ts < 0 else "end of input"
    try:
        when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=ts)
    except OverflowError:
        return f"{ts} us"
    return f"{when:%Y-%m-%d %H:%M:%S}" if when.year > 1970 else f"{ts / 1e6:g} s"


ROWS: Final = Unit("rows")
TUPLES: Final = Unit("tuples")
PAIRS: Final = Unit("pairs")
ADDITIONS: Final = Unit("additions")
CALLS: Final = Unit("calls")
BATCHES: Final = Unit("batches")
MOMENT: Final = Unit("us of event time", moment)
MICROSECONDS: Final = Unit("us", lambda us: f"{us / 1e6:,.1f} s")
MILLISECONDS: Final = Unit("ms", "{:,.1f} ms".format)
SECONDS: Final = Unit("s", "{:,.1f} s".format)
PER_SECOND: Final = Unit("a second", "{:,.0f} a second".format)
BYTES: Final = Unit("bytes", lambda n: f"{n / 1e6:,.1f} MB")
PERCENT: Final = Unit("percent", "{:.1f}%".format)
CLOCK: Final = Unit("s since 1970", lambda at: f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%d %H:%M:%S}")
TIMES: Final = Unit("times")
EACH: Final = Unit("a tuple", "{:,.2f}".format)
SHARE: Final = Unit("share of 1", "{:.2f}".format)
NAME: Final = Unit("name", str)
FLAG: Final = Unit("yes or no", lambda value: "yes" if value else "no")
RECORDS: Final = Unit("records", str)


# --- entries ------------------------------------------------------------------------------------------------------

THREADS, SPARK = "threads", "spark"
EXECUTORS: Final = (THREADS, SPARK)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What there is to know of a metric, but for its name, which is its field's.

    unit      what it counts or measures in
    meaning   what it says, in one sentence
    filled    the executors that fill it
    by_stream a number for each stream, by its name
    progress  how a line of progress has it, with {} for the value; "": not at all. One that begins with a blank follows the one
              before it without a comma
    summary   how a run's last line has it, unless it is 0; "": not at all
    """

    unit: Unit
    meaning: str
    filled: tuple[str, ...]
    by_stream: bool = False
    progress: str = ""
    summary: str = ""


_ENTRY = "plait.metric"


def metric(unit: Unit, meaning: str, *, filled: tuple[str, ...] = EXECUTORS, by_stream: bool = False, progress: str = "",
           summary: str = "", **of_field: Any) -> Any:  # fmt: skip
    """A field that is a metric. `of_field` is what `dataclasses.field` takes besides: its default, for one."""
    entry = Entry(unit=unit, meaning=meaning, filled=filled, by_stream=by_stream, progress=progress, summary=summary)
    if by_stream:
        of_field.setdefault("default_factory", dict)
    return field(metadata={_ENTRY: entry}, **of_field)


def entries(kind: type) -> dict[str, Entry]:
    """The metrics of a kind of record, by name, in order."""
    return {each.name: each.metadata[_ENTRY] for each in fields(kind) if _ENTRY in each.metadata}


# --- what parts count ---------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Counts:
    """What a part of a run has counted so far. One thread writes it; what another reads is a little old, and no less true.

    Where a part has nothing to do with a metric it stays 0: workers of a join make no calls, and nobody but who lets rows in
    knows which are late.
    """

    rows: int = metric(
        ROWS, "rows that the streams have delivered, dropped ones among them",
        default=0, progress="{} rows in",
    )  # fmt: skip
    results: int = metric(ROWS, "rows of the result that have been given out", default=0, progress="{} results")
    late: dict[str, int] = metric(
        ROWS, "rows dropped as late: further back than disorder= from the largest ts before them in their source",
        by_stream=True, summary="{} late rows dropped",
    )  # fmt: skip
    behind: dict[str, int] = metric(
        ROWS, "rows dropped as behind: not late, but below the frontier, up to which results are out",
        by_stream=True, summary="{} behind rows dropped",
    )  # fmt: skip
    batches: int = metric(
        BATCHES,
        "times that a worker, or a cell on Spark, has taken what there was; added up over all of them",
        default=0,
    )
    comparisons: int = metric(
        PAIRS,
        "pairs of tuples held against each other by joins and as-of joins: rows that a probe has looked at",
        default=0,
    )
    updates: int = metric(
        ADDITIONS,
        "additions to panes by aggregates: of a tuple, or of a partial pane that a task made of tuples",
        default=0,
    )
    calls: int = metric(CALLS, "calls of users' operators with a tuple: one for each bucket that it goes to", default=0)
    copies: int = metric(
        TUPLES, "tuples, or partial panes, that have come to cells: one that goes to several cells is counted in each",
        filled=(SPARK,), default=0,
    )  # fmt: skip
    shuffled_bytes: int = metric(
        BYTES, "bytes of packed rows that have come to cells, through Spark's shuffle, with what these tell of sources",
        filled=(SPARK,), default=0,
    )  # fmt: skip

    copies_by_input: dict[str, int] = metric(
        TUPLES, "`copies` by the operator's inputs, which have numbers, from 0 on",
        filled=(SPARK,), by_stream=True,
    )  # fmt: skip
    made: int = metric(
        ROWS, "rows that cells have made: results of the last operator, and of the others what the next ones read",
        filled=(SPARK,), default=0,
    )  # fmt: skip
    packed: int = metric(
        ROWS, "packed rows that have come to cells: each has what a task has for a cell, and be it only how far its sources are",
        filled=(SPARK,), default=0,
    )  # fmt: skip

    @property
    def work(self) -> int:
        """How much a part had to do, whatever its operator does."""
        return self.comparisons + self.updates + self.calls

    def __add__(self, other: Counts) -> Counts:
        return self._with(other, 1)

    def since(self, before: Counts) -> Counts:
        """What has been counted since these were so many.

        What one batch of a cell has counted is found so, and added to what the cell has stored. Counts by stream are
        taken away by name.
        """
        return self._with(before, -1)

    def _with(self, other: Counts, sign: int) -> Counts:
        mine, theirs = vars(self), vars(other)
        return Counts(**{name: _added(mine[name], theirs[name], sign) for name in COUNTED})

    def told(self) -> dict[str, Any]:
        """As JSON has it, by name: those that are 0, or of no stream, are left out."""
        own = vars(self)
        return {name: own[name] for name in COUNTED if own[name]}

    def copy(self) -> Counts:
        """As they are now."""
        return NOTHING + self

    @staticmethod
    def heard(found: Mapping[str, Any]) -> Counts:
        """From JSON. A metric that is no more is passed over: counts come and go, and are never a reason to refuse a state."""
        return Counts(**{name: value for name, value in found.items() if name in COUNTED})


def _added(a: Any, b: Any, sign: int) -> Any:
    if isinstance(a, Mapping):
        return {name: a.get(name, 0) + sign * b.get(name, 0) for name in (*a, *(name for name in b if name not in a))}
    return a + sign * b


COUNTED: Final = frozenset(entries(Counts))

NOTHING: Final = Counts()


def total(parts: Iterable[Counts]) -> Counts:
    """All parts' counts added up."""
    return sum(parts, NOTHING)


# --- what parts, sources and operators tell ------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantiles:
    """How long something took, in milliseconds. NaN where it did not happen.

    Attributes:
        p50: Half of them took at most this long.
        p99: 99 in a hundred took at most this long.
        max: The longest.
        samples: How many were measured.

    Example:
        >>> from plait.threads.stats import Quantiles
        >>> Quantiles(p50=0.4, p99=1.5, max=2.0, samples=1000).p99
        1.5
    """

    p50: float
    p99: float
    max: float
    samples: int


@dataclass(frozen=True)
class Mark:
    """A change while a run went on: what a curve that bends is looked up by. `at` is in seconds since 1970."""

    at: float
    kind: str  # "started", "taken up again", "replay", "provision", "decommission", "rebalance", "failed", "ended"
    words: str


@dataclass(kw_only=True)
class PartStats(Counts):
    """What a worker and a cell tell alike."""

    operator: int = metric(NAME, "its operator's number in the query, the last one's is 0", default=0)
    busy_s: float = metric(
        SECONDS,
        "time in its steps: reading, storing, comparing and emitting, with what these wait for in the middle; "
        "waiting for tuples is not in it",
        default=0.0,
    )
    share: float = metric(
        SHARE, "of the time that all workers, or cells, of its operator were busy: with N of them 1/N each, if all are alike",
        default=0.0,
    )  # fmt: skip
    held_bytes: int = metric(
        BYTES, "bytes that it holds: of a cell the state's chunks of rows, as they are stored, but for those that an earlier "
        "plait has stored; of a worker its own windows, 0 where workers share them",
        default=0,
    )  # fmt: skip


def shared_out(parts: list[Any]) -> tuple[Any, ...]:
    """The same parts, each with its share of its operator's time."""
    busy: dict[int, float] = {}
    for part in parts:
        busy[part.operator] = busy.get(part.operator, 0.0) + part.busy_s
    for part in parts:
        part.share = part.busy_s / busy[part.operator] if busy[part.operator] else 0.0
    return tuple(parts)


@dataclass(kw_only=True)
class SourceStats:
    """What is known of one source of a stream. Counts are those since the run was started, or taken up again."""

    stream: str = metric(NAME, "the stream that it delivers")
    source: Any = metric(NAME, "its name; None stands for sources of the stream that are not known yet", default=None)
    progress: int = metric(
        MOMENT, "nothing of it lies below any more: its largest ts less disorder=, or its heartbeat if that is more",
        default=BEFORE_ALL,
    )  # fmt: skip
    newest: int | None = metric(MOMENT, "the largest ts that it has delivered", default=None)
    lag_us: int | None = metric(
        MICROSECONDS, "how far its progress is behind the newest ts of all sources", default=None
    )
    heard_at: float | None = metric(
        CLOCK, "when it was heard last, by rows or a heartbeat, by this machine's clock; None: not since the start",
        default=None,
    )  # fmt: skip
    silent_s: float = metric(
        SECONDS, "how long it has been silent: since it was heard last, or since the start", default=0.0
    )
    rows: int = metric(ROWS, "rows that it has delivered, dropped ones among them", default=0)
    waiting: int | None = metric(
        TUPLES, "tuples of it that wait for the frontier, or for others of their source: with WiML up to a push's too many; on "
        "Spark, where cells hold them, only known of a stream's only source",
        default=None,
    )  # fmt: skip
    late: int = metric(ROWS, "rows of it that were dropped as late", default=0)
    behind: int = metric(ROWS, "rows of it that were dropped as behind", default=0)
    idle: bool = metric(
        FLAG, "whether it was silent for longer than idle_after=, and so holds nothing back", default=False
    )
    ended: bool = metric(
        FLAG, "whether it has ended: nothing of it comes any more, and it holds nothing back", default=False
    )
    holds: bool = metric(FLAG, "whether it holds the frontier: results wait for this one", default=False)


def waiting_by_stream(sources: Iterable[SourceStats]) -> dict[str, int]:
    """Of each stream, what waits of its sources."""
    found: dict[str, int] = {}
    for source in sources:
        found[source.stream] = found.get(source.stream, 0) + (source.waiting or 0)
    return found


@dataclass(kw_only=True)
class OperatorStats:
    """What one operator of the query tells."""

    operator: int = metric(NAME, "its number: the last one's, whose results are the query's, is 0")
    label: str = metric(NAME, "what it is, in words", default="")
    inputs: tuple[str, ...] = metric(NAME, "what it reads: a stream's name, or an operator's number as #1", default=())
    frontier: int = metric(MOMENT, "the ts up to which it has given everything", default=BEFORE_ALL)
    rows: int = metric(
        ROWS, "rows that have come to it; on Spark one that goes to several cells is counted in each", default=0
    )
    results: int = metric(ROWS, "rows that it has made, for the next operator or for the user", default=0)


# --- what a run tells ---------------------------------------------------------------------------------------------

#: What `latency_split_ms` has: where a result's time goes.
WAITING, WORKING, PUBLISHING = "waiting", "working", "publishing"
#: What `phase` says.
STARTING, RUNNING, ENDED, STOPPED, FAILED = "starting", "running", "ended", "stopped", "failed"


@dataclass(kw_only=True)
class Metrics(Counts):
    """What a run tells of itself: everything so far. None: this executor does not tell it, or not yet.

    `tuples` and `lag_us` follow from others and can't be given. `newest` and `lag_us` are None before any row has come;
    `lag_us` also while the frontier is at no moment of time (before all, after all).
    """

    tuples: int = metric(TUPLES, "rows that were let in: neither late nor behind", init=False)
    frontier: int = metric(
        MOMENT, "the ts below which nothing comes any more, up to which results are out",
        default=BEFORE_ALL, progress="frontier {}",
    )  # fmt: skip
    newest: int | None = metric(MOMENT, "the largest ts that any source has delivered", default=None)
    lag_us: int | None = metric(
        MICROSECONDS, "how far the frontier is behind the newest ts", init=False, progress=" ({} behind the newest)"
    )
    holder: tuple[str | None, Any] = metric(
        NAME, "the stream and the source that hold the frontier; None and None if none does", default=(None, None)
    )
    pending: int | None = metric(
        TUPLES,
        "tuples, or partial panes, that wait for the frontier; on Spark one that is in several cells is counted in each",
        default=None,
        progress="{} buffered",
    )
    waiting: dict[str, int] = metric(
        TUPLES, "tuples that wait for the frontier, or for others of their source; of aggregates on Spark partial panes, and in "
        "layouts by ranges or buckets one that is in several cells is counted in each",
        by_stream=True,
    )  # fmt: skip
    unread: int | None = metric(
        TUPLES, "tuples that are ready, and that the slowest worker has not taken yet", filled=(THREADS,), default=None
    )
    phase: str = metric(NAME, "starting, running, ended, stopped, or failed and by which error", default=RUNNING)
    state_bytes: int | None = metric(
        BYTES, "what windows, states and waiting rows take: in memory on threads, in the state store on Spark",
        default=None, progress="state {}",
    )  # fmt: skip
    seconds: float = metric(SECONDS, "wall time since the run was started, or taken up again", default=0.0)
    balance_cv_percent: float = metric(
        PERCENT,
        "standard deviation of the comparisons, updates and calls together of an operator's workers, or cells, in percent of "
        "their mean; of several operators the largest",
        default=0.0,
    )
    stages: dict[str, float] = metric(
        SHARE, "of the time spent working: distribution (reading the gate, laying tuples out), execution (storing, comparing) "
        "and gathering (results into rings, merged, into Arrow). What tuples wait for is in none of them: that is in "
        "`stage_latency_ms`. On Spark of cells' own time: distribution (rows taken apart, judged, put in order), keeping (state "
        "read and written), execution and gathering (results into bodies)",
        default_factory=dict,
    )  # fmt: skip
    latency_split_ms: dict[str, Quantiles] = metric(
        MILLISECONDS, "where the time of a result goes: waiting for the frontier, working (until its rows are made) and "
        "publishing (until they are given out). On threads of results, and publishing only of joins, where it is measured; of "
        "others it is a part of working. On Spark of micro-batches: waiting from the batch that brought a ts to the one in which "
        "the frontier passed it, working all until the batch's results are made, publishing until they stand in their folder",
        default_factory=dict,
    )  # fmt: skip
    restarts: int = metric(
        TIMES, "whether this start has taken up an earlier one's checkpoint", filled=(SPARK,), default=0
    )
    replays: int = metric(
        BATCHES,
        "micro-batches that were planned before this start, and were done again by it",
        filled=(SPARK,),
        default=0,
    )
    caches_missed: int = metric(
        TIMES, "times since the start that a cell's contents were not in the worker's memory, or behind, and were read from the "
        "state",
        filled=(SPARK,), default=0,
    )  # fmt: skip
    sources: tuple[SourceStats, ...] = metric(RECORDS, "what is known of each source: see below", default=())
    operators: tuple[OperatorStats, ...] = metric(
        RECORDS, "what each operator of the query tells: see below", default=()
    )
    marks: tuple[Mark, ...] = metric(
        RECORDS, "changes while it ran, each with its time: starts, replays, epochs", default=()
    )

    def __post_init__(self) -> None:
        self.tuples = self.rows - amount(self.late) - amount(self.behind)
        at_a_moment = TS_MIN <= self.frontier <= TS_MAX
        self.lag_us = None if self.newest is None or not at_a_moment else max(0, self.newest - self.frontier)

    @property
    def parts(self) -> tuple[PartStats, ...]:
        """What its workers, or cells, tell."""
        return ()

    @classmethod
    def of(cls, counts: Counts, **more: Any) -> Self:
        """The counts of all parts, and what else there is to tell; which may correct a count."""
        return cls(**{name: value for name, value in vars(counts).items() if name in COUNTED} | more)


def variation_percent(counts: list[int]) -> float:
    """Standard deviation in percent of the mean: 0 if all did the same, or nothing."""
    return statistics.pstdev(counts) / mean * 100 if counts and (mean := statistics.fmean(counts)) else 0.0


def amount(value: Any) -> Any:
    """A metric's value, over all streams."""
    return sum(value.values()) if isinstance(value, Mapping) else value


# --- how it reads -------------------------------------------------------------------------------------------------


def progress(run: Metrics) -> str:
    """A line of progress."""
    line, own = "", vars(run)
    for name, entry in entries(type(run)).items():
        if entry.progress and own[name] is not None:
            text = entry.progress.format(entry.unit.text(amount(own[name])))
            line += text if not line or text.startswith(" ") else f", {text}"
    return line


def summary(run: Metrics) -> list[str]:
    """What a run's last line has besides rows, results and time."""
    own = vars(run)
    shown = [(entry, amount(own[name])) for name, entry in entries(type(run)).items() if entry.summary]
    return [entry.summary.format(entry.unit.text(value)) for entry, value in shown if value]


def described(*kinds: type) -> list[str]:
    """A line of a table for each metric of these kinds of record: what `docs/metrics.md` has."""
    lines = {}
    for kind in kinds:
        for name, entry in entries(kind).items():
            unit = entry.unit.name + (", by stream" if entry.by_stream else "")
            lines[name] = f"| `{name}` | {unit} | {', '.join(entry.filled)} | {entry.meaning} |"
    return list(lines.values())


# --- whether it is whole ------------------------------------------------------------------------------------------


def missing(kind: type) -> list[str]:
    """What is missing of the metrics of a kind of record, a line each."""
    found, known = [], entries(kind)
    for each in fields(kind):
        lacks = ["has no entry: make it with metric(...)"] if each.name not in known else _lacks(known[each.name])
        if each.name in COUNTED and each.default is MISSING and each.default_factory is MISSING:
            lacks.append("has no default, and parts count some things and not others")
        found += [f"metric {each.name!r} of {kind.__name__} {lack}" for lack in lacks]
    return found


def _lacks(entry: Entry) -> list[str]:
    out = []
    if not entry.unit.name:
        out.append("has no unit")
    if len(entry.meaning.split()) < 3:
        out.append("has no meaning that says anything")
    if not entry.filled:
        out.append("is filled by no executor")
    out += [f"is filled by {name!r}, which is no executor" for name in entry.filled if name not in EXECUTORS]
    for place, text in (("progress", entry.progress), ("summary", entry.summary)):
        if text and len(re.findall(r"\{\}", text)) != 1:
            out.append(f"has no place for its value in `{place}`")
    return out


for _kind in (Counts, PartStats, SourceStats, OperatorStats, Metrics):
    for _line in missing(_kind):
        raise ImportError(f"{_line}: see plait.core.metrics")
