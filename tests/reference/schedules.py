"""Ways to deliver the same rows: steps of pushes, heartbeats and ends, and what they make of the frontier.

A schedule keeps each source's rows in order and leaves everything else to chance: which source comes next, how many
rows make a batch, whether a source says in advance that it is past a moment, and when it ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import currently_in_test_context, note
from tests.definitions import split_late
from tests.reference.judge import assert_same
from tests.strategies import Case, Given, batch, table

from plait import order
from plait.reference.run import Run


@dataclass(frozen=True)
class Push:
    stream: str
    source: Any  # None where a column of the rows names it
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Heartbeat:
    stream: str
    source: Any
    ts: int


@dataclass(frozen=True)
class End:
    stream: str
    source: Any


Step = Push | Heartbeat | End


class Schedule:
    """Steps drawn from `seed`. Heartbeats reach past a source's last row only if `beyond`."""

    def __init__(
        self, case: Case, seed: int, *, heartbeats: bool = True, ends: bool = True, beyond: bool = True
    ) -> None:
        self.random = random.Random(seed)
        self.given = {each.stream.name: each for each in case.given}
        self.rest = {(each.stream.name, s): list(rows) for each in case.given for s, rows in each.sources.items()}
        self.heartbeats, self.ends, self.beyond = heartbeats, ends, beyond
        self.ended: set[tuple[str, Any]] = set()
        self.seen: dict[tuple[str, Any], list[int]] = {place: [] for place in self.rest}
        self.latest = max((t.ts for each in case.given for t in each.relation.tuples), default=0)

    def __iter__(self) -> Iterator[Step]:
        while any(self.rest.values()):
            name, source = self.random.choice([place for place in self.rest if self.rest[place]])
            yield self._push(name, source)
            if self.heartbeats and self.random.random() < 0.3:
                yield from self._heartbeat(*self.random.choice(list(self.rest)))
            if self.ends and self.random.random() < 0.3:
                yield from self._end(*self.random.choice(list(self.rest)))

    def _push(self, name: str, source: Any) -> Push:
        rows = self._some(name, source)
        if not self.given[name].by_column:
            return Push(name, source, tuple(rows))
        for other in [s for n, s in self.rest if n == name]:
            if self.random.random() < 0.3:
                rows += self._some(name, other)
        return Push(name, None, tuple(rows))

    def _some(self, name: str, source: Any) -> list[tuple[Any, ...]]:
        rest = self.rest[name, source]
        count = self.random.randint(1, 3)
        taken, self.rest[name, source] = rest[:count], rest[count:]
        self.seen[name, source] += [row[0] for row in taken]
        return taken

    def _heartbeat(self, name: str, source: Any) -> Iterator[Step]:
        if (name, source) in self.ended:
            return
        coming = [row[0] for row in self.rest[name, source]]
        times = self.seen[name, source] + coming
        on_time, _ = split_late(times, self.given[name].stream.disorder_us)
        bound = min((times[at] for at in on_time if at >= len(times) - len(coming)), default=self.latest + 4)
        ts = bound - self.random.choice((0, 0, 1))
        if self.beyond or ts <= self.latest:
            yield Heartbeat(name, source, ts)

    def _end(self, name: str, source: Any) -> Iterator[Step]:
        if not self.rest[name, source] and (name, source) not in self.ended:
            self.ended.add((name, source))
            yield End(name, source)


def apply(run: Run, given: Given, step: Step) -> None:
    match step:
        case Push(name, source, rows):
            run.push(name, batch(given.schema, rows), source=source)
        case Heartbeat(name, source, ts):
            run.heartbeat(name, ts, source=source)
        case End(name, source):
            run.end(name, source=source)


@dataclass
class Heard:
    """What one source has said so far."""

    times: list[int] = field(default_factory=list)
    heartbeats: list[int] = field(default_factory=list)
    ended: bool = False

    def progress(self, disorder: int) -> float:
        if self.ended:
            return math.inf
        return max([t - disorder for t in self.times] + self.heartbeats, default=-math.inf)


class Frontier:
    """The definition: the minimum of the progress of all sources; a declared one is at -infinity until it speaks."""

    def __init__(self, case: Case) -> None:
        self.given = {each.stream.name: each for each in case.given}
        self.heard: dict[str, dict[Any, Heard]] = {name: {} for name in self.given}
        for name, each in self.given.items():
            known = (0,) if each.stream.source is None and each.stream.sources is None else each.stream.declared()
            self.heard[name] = {source: Heard() for source in known or ()}
        self.released = -math.inf

    def behind(self, step: Step) -> list[tuple[Any, ...]]:
        """The rows of a push that are below what has been released, and not late."""
        if not isinstance(step, Push):
            return []
        found = []
        times = {s: list(h.times) for s, h in self.heard[step.stream].items()}
        for row in step.rows:
            mine = times.setdefault(self._source(step, row), [])
            mine.append(row[0])
            late = split_late(mine, self.given[step.stream].stream.disorder_us)[1]
            if row[0] < self.released and len(mine) - 1 not in late:
                found.append(row)
        return found

    def hear(self, step: Step) -> float:
        """The frontier after a step; it never runs back."""
        heard = self.heard[step.stream]
        match step:
            case Push():
                for row in step.rows:
                    heard.setdefault(self._source(step, row), Heard()).times.append(row[0])
            case Heartbeat(_, source, ts):
                heard.setdefault(source, Heard()).heartbeats.append(ts)
            case End(_, source):
                heard.setdefault(source, Heard()).ended = True
        self.released = max(self.released, min(self._progress(name) for name in self.heard))
        return self.released

    def _source(self, step: Push, row: tuple[Any, ...]) -> Any:
        given = self.given[step.stream]
        return row[given.schema.get_field_index("src")] if given.by_column else step.source

    def _progress(self, name: str) -> float:
        disorder = self.given[name].stream.disorder_us
        return min((h.progress(disorder) for h in self.heard[name].values()), default=-math.inf)


def deliver(case: Case, steps: Schedule) -> Run:
    """Push everything; after each step exactly the results below the frontier are out, and it is where it should be."""
    run, frontier = Run(case.query, case.schemas), Frontier(case)
    results: list[Any] = []
    for step in steps:
        if currently_in_test_context():
            note(repr(step))
        apply(run, frontier.given[step.stream], step)
        now = frontier.hear(step)
        assert run.frontier == {-math.inf: order.BEFORE_ALL, math.inf: order.AFTER_ALL}.get(now, now)
        results += run.take()
        assert len(results) == sum(1 for t in case.expected.tuples if t.ts < now)
        assert all(row.ts < now for row in results)
    run.close()
    run.results = results + run.take()
    return run


def assert_results(run: Run, case: Case) -> None:
    assert_same(table(run.bound.schema, [row.values for row in run.take()]), case.expected)
