"""Why results wait, in one sentence, and what to do: the same words wherever it is told.

`reason` looks at what a run tells (`core.metrics`) and decides, in this order:

    failed, stopped, ended, starting    the run is not on its way
    reader                              results are made, and nobody takes them (threads)
    held                                a source that holds the frontier is silent, and rows wait for it
    workers                             more rows are ready than wait for any source: workers are behind (threads)
    flowing                             results come; some rows wait for the slowest source, as they always do
    idle                                nothing waits

The page, `plait top`, the command's line of progress and `/metrics` have it from here. Where a source can be spoken for, `reason`
gives the calls or commands that do so, as text to copy: names in them come from data, so they are quoted for Python, for TOML
and for a shell. Nothing of a row is in any of it: names of streams and sources, times and counts.
"""

from __future__ import annotations

import datetime as dt
import json
import shlex
from dataclasses import dataclass
from typing import Any, Final, Protocol

from plait.core.metrics import ENDED, FAILED, STARTING, STOPPED, Metrics, SourceStats, moment
from plait.order import AFTER_ALL, BEFORE_ALL, TS_MAX, TS_MIN

#: A source that has said nothing for so long is called silent; where batches take longer, for three of them.
SILENT_S: Final = 2.0

#: Letters of a name that are shown.
NAME_LENGTH: Final = 100

#: As a worker on threads says it (`threads.stats`).
FOR_READER: Final = "waits for results() to be read"

READER, HELD, WORKERS, FLOWING, IDLE = "reader", "held", "workers", "flowing", "idle"
KINDS: Final = (FAILED, STOPPED, ENDED, STARTING, READER, HELD, WORKERS, FLOWING, IDLE)


@dataclass(frozen=True)
class Remedy:
    """What can be done: `words` say what it means, `copy` is the call, command or line to copy."""

    words: str
    copy: str


@dataclass(frozen=True)
class Reason:
    """Why results wait, or that they don't.

    Attributes:
        kind: One of KINDS.
        words: The sentence.
        remedies: What can be done about it; none where that is for the run to do.
    """

    kind: str
    words: str
    remedies: tuple[Remedy, ...] = ()


class Calls(Protocol):
    """How one speaks for a source, where the run is."""

    def heartbeat(self, stream: str, source: Any, ts: int, /) -> str:
        """Promise that it delivers nothing below a ts any more."""

    def end(self, stream: str, source: Any, /) -> str:
        """End it."""

    def idle(self, stream: str, /) -> str:
        """Let it go when it is silent."""


class OnThreads:
    """Calls of a `Run`, in the process that has it."""

    def heartbeat(self, stream: str, source: Any, ts: int) -> str:
        return f"run.heartbeat({stream!r}, {source!r}, {ts})"

    def end(self, stream: str, source: Any) -> str:
        return f"run.close({stream!r})" if source is None else f"run.close({stream!r}, {source!r})"

    def idle(self, stream: str) -> str:
        return f'plait.stream({stream!r}, ..., idle_after="30s", behind="drop")'


class OnSpark(OnThreads):
    """Commands for a shell, which write control events: the query may run in another process. `control` is their folder."""

    def __init__(self, control: str) -> None:
        self._control = control

    def heartbeat(self, stream: str, source: Any, ts: int) -> str:
        named = 0 if source is None else source
        return _shell(f"heartbeat({_python(self._control)}, {_python(stream)}, ts={ts}, source={_python(named)})")

    def end(self, stream: str, source: Any) -> str:
        named = "" if source is None else f", source={_python(source)}"
        return _shell(f"end({_python(self._control)}, {_python(stream)}{named})")


def _shell(call: str) -> str:
    return f"python -c {shlex.quote(f'import plait.spark; plait.spark.{call}')}"


def _python(value: Any) -> str:
    """A name as Python's text, in double quotes, and in plain letters: between the single ones of a shell."""
    if not isinstance(value, str):
        return repr(value)
    plain = value.encode("unicode_escape", "surrogatepass").decode("ascii").replace('"', '\\"')
    return f'"{plain}"'


class InFile:
    """Of a job's file, whose rows are all there: the command reads them itself, and nobody else can speak for a source."""

    def heartbeat(self, stream: str, source: Any, ts: int) -> str:
        return ""

    def end(self, stream: str, source: Any) -> str:
        return ""

    def idle(self, stream: str) -> str:
        quoted = json.dumps(stream, ensure_ascii=False).replace("\x7f", "\\u007f")
        return f'[streams.{quoted}]\nidle_after = "30s"\nbehind = "drop"'


# --- the sentence -------------------------------------------------------------------------------------------------


def reason(run: Metrics, calls: Calls | None = None, *, silent_after_s: float = SILENT_S) -> Reason:
    """Why results wait.

    Args:
        run: What the run tells now.
        calls: How one speaks for a source there. None: nobody can, and no remedy is given.
        silent_after_s: From when on a source counts as silent.
    """
    phase = run.phase.partition(":")[0]
    if phase in (FAILED, STOPPED, ENDED, STARTING):
        return _not_on_its_way(run, phase, calls)
    waiting = rows_waiting(run)
    if any(vars(part).get("waiting_for") == FOR_READER for part in run.parts):
        return Reason(
            READER,
            f"Results wait to be read: {run.results:,} are out, and workers have no room for more",
            () if isinstance(calls, InFile) else (Remedy("Read them in a thread of its own", "for batch in run.results(): ..."),),
        )  # fmt: skip
    holder = held_by(run)
    if run.unread and run.unread > waiting and holder is None:
        return Reason(WORKERS, f"Workers are behind: {run.unread:,} rows are ready, and wait for them")
    if holder is None:
        return Reason(IDLE, _nobody_holds(run, waiting))
    never = holder.progress == BEFORE_ALL
    if waiting and holder.silent_s >= silent_after_s:
        silence = _silence(holder) + _as_all(run, silent_after_s)
        return Reason(HELD, f"{_held(holder, run)}, {silence}; {_rows(waiting)}", _remedies(holder, run, calls))
    if run.unread and run.unread > waiting:
        return Reason(WORKERS, f"Workers are behind: {run.unread:,} rows are ready, and wait for them")
    if waiting:
        return Reason(
            FLOWING, f"Results flow, up to {_up_to(run)}; {named(holder)} is the slowest source; {_rows(waiting)}"
        )
    if never:
        return Reason(
            IDLE, f"Nothing waits: no row has come, of which results could be; {named(holder)} has not spoken"
        )
    return Reason(IDLE, f"Nothing waits: results are out up to {_up_to(run)}")


def held_by(run: Metrics) -> SourceStats | None:
    """The source that holds the frontier; one that nothing else is known of, if only its name is told."""
    stream, source = run.holder
    if stream is None:
        return None
    found = next((each for each in run.sources if each.holds), None)
    if found is not None:
        return found
    if any((each.stream, each.source) == (stream, source) for each in run.sources):  # idle: it was promised for
        live = [each for each in run.sources if not (each.ended or each.idle)]
        return min(live, key=lambda each: each.progress, default=None)
    return SourceStats(stream=stream, source=source, progress=run.frontier, silent_s=0.0, holds=True)


def rows_waiting(run: Metrics) -> int:
    """How many rows wait for the frontier, as far as the run tells."""
    return sum(run.waiting.values()) if run.waiting else run.pending or 0


def named(source: SourceStats) -> str:
    """A source in words."""
    stream = printable(source.stream)
    return f"stream {stream}" if source.source is None else f"source {stream}/{printable(source.source)}"


def printable(name: Any, most: int = NAME_LENGTH) -> str:
    """A name that came with data, as a terminal and a log may have it: what is no plain letter or sign is spelled out."""
    text = str(name)
    shown = text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def clock(ts: int, newest: int | None = None) -> str:
    """An event time, without its day where the newest is of the same one: what is read at night is short."""
    if TS_MIN <= ts <= TS_MAX and newest is not None:
        one, other = moment(ts), moment(newest)
        if one[:10] == other[:10] and one.count(":") == 2:
            return one[11:]
    return moment(ts)


def span(seconds: float) -> str:
    """A span of time for a person: 41 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = dt.timedelta(seconds=int(seconds))
    minutes, left = divmod(whole.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if whole.days:
        return f"{whole.days:,} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s" if minutes else f"{left} s"


def _held(holder: SourceStats, run: Metrics) -> str:
    at = "Held at the start" if holder.progress == BEFORE_ALL else f"Held at {clock(holder.progress, run.newest)}"
    return f"{at} by {named(holder)}"


def _silence(holder: SourceStats) -> str:
    if holder.source is None:
        return f"of which no source is known since {span(holder.silent_s)}"
    never = holder.heard_at is None and holder.progress == BEFORE_ALL
    return f"{'not heard of for' if never else 'silent for'} {span(holder.silent_s)}"


def _as_all(run: Metrics, silent_after_s: float) -> str:
    """A source that is silent where all are is no reason to look at that one."""
    live = [source for source in run.sources if not (source.ended or source.idle)]
    return ", as all sources are" if len(live) > 1 and all(s.silent_s >= silent_after_s for s in live) else ""


def _rows(count: int) -> str:
    return "1 row waits" if count == 1 else f"{count:,} rows wait"


def _up_to(run: Metrics) -> str:
    behind = "" if not run.lag_us else f", {span(run.lag_us / 1e6)} behind the newest"
    return f"{clock(run.frontier, run.newest)}{behind}"


def _nobody_holds(run: Metrics, waiting: int) -> str:
    if any(source.idle for source in run.sources):
        return f"All sources are idle: results are out up to {clock(run.frontier, run.newest)}; {_rows(waiting)}"
    if run.frontier == AFTER_ALL:
        return "The input has ended: what is left of the results is on its way"
    return f"Nothing waits: results are out up to {_up_to(run)}"


def _not_on_its_way(run: Metrics, phase: str, calls: Calls | None) -> Reason:
    if phase == FAILED:
        error = run.phase.partition(": ")[2] or "an error"
        return Reason(FAILED, f"The run has failed with {error}: its log says which row or call")
    if phase == STOPPED:
        left = "what was not read of its results is lost"
        if isinstance(calls, OnSpark):
            left = f"results are out up to {clock(run.frontier, run.newest)}, and the checkpoint goes on from there"
        return Reason(STOPPED, f"The run was stopped: {left}")
    if phase == ENDED:
        return Reason(ENDED, f"The input has ended, and every result is out: {run.results:,}")
    stream = run.holder[0]
    if stream is None:
        return Reason(STARTING, "Starting: nothing has been told yet")
    words = f"Starting: the columns of stream {printable(stream)} are not known before its first rows"
    if calls is None or isinstance(calls, (InFile, OnSpark)):
        return Reason(STARTING, words)
    return Reason(STARTING, words, (Remedy("Say what its columns are", f"on_threads(schemas={{{stream!r}: ...}})"),))


def _remedies(holder: SourceStats, run: Metrics, calls: Calls | None) -> tuple[Remedy, ...]:
    if calls is None:
        return ()
    found = []
    ts = run.newest if run.newest is not None else 0
    if holder.source is not None:
        words = f"If it has nothing below {clock(ts, None)}: say so. A row of it that comes below is then an error"
        found.append(Remedy(words, calls.heartbeat(holder.stream, holder.source, ts)))
    what = (
        "If no source of it will come: end the stream" if holder.source is None else "If it will not come back: end it"
    )
    found.append(Remedy(what, calls.end(holder.stream, holder.source)))
    words = "From the next start on let go of it when it is silent. What it then has below the frontier is dropped, so results "
    words += "depend on when rows arrive"
    found.append(Remedy(words, calls.idle(holder.stream)))
    return tuple(remedy for remedy in found if remedy.copy)
