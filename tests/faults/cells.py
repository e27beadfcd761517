"""Cells without Spark (`tests.spark.grid`): what is stored is damaged between two batches, and attempts come to nothing.

A case is a random query with its rows, cut into batches at random. It runs once undisturbed; from the state before one of its
batches it is then taken up again and again, each time with another fault, by a worker that has nothing in its cache and so
reads the state.
"""

from __future__ import annotations

import contextlib
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from tests import strategies
from tests.faults.record import Record
from tests.reference.programs import operators
from tests.spark.grid import Batch, Grid, batches, drain, plain_windows
from tests.strategies import Case

from plait.errors import RunError
from plait.query.base import Query
from plait.query.join import Join
from plait.spark.keep import recent

#: Faults a case: its undisturbed run, and what Python compiles for it, are paid for once.
A_CASE = 12

CASES = st.one_of(
    strategies.time_joins(declared=True), strategies.count_joins(declared=True), strategies.asof_joins(declared=True),
    strategies.span_aggregates(declared=True), strategies.count_aggregates(declared=True), strategies.dedups(declared=True),
    operators(declared=True),
)  # fmt: skip


def layout_of(query: Query, chance: random.Random) -> Any:
    """Cells of a layout that any join of that kind has."""
    how = getattr(query, "how", "inner")
    if how == "full":
        return "auto"
    if how == "right":
        return 1, chance.choice((1, 2, 3))
    if how == "inner" and isinstance(query, Join):
        return chance.choice(((1, 1), (1, 2), (2, 2)))
    return chance.choice((1, 2, 3)), 1


def as_bytes(table: pa.Table) -> bytes:
    """Rows as a part holds them: without what Arrow has under NULLs, which nobody reads."""
    out = pa.BufferOutputStream()
    pq.write_table(table.combine_chunks(), out)
    return bytes(out.getvalue())


def each_case(record: Record, kind: str, faults: Callable[[Case, random.Random], None]) -> None:
    """Random cases, one after the other, as long as there are faults to come."""
    turn = 0
    while record.goes_on(kind):

        @seeded(f"{record.seed} {kind} {turn}")
        @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=CASES, seed=st.integers(0, 2**32))
        def one(case: Case, seed: int) -> None:
            if record.goes_on(kind):
                faults(case, random.Random(seed))

        with plain_windows():
            one()
        turn += 1


class Taken:
    """A grid as it stands before a batch, to be taken up from there many times."""

    def __init__(self, case: Case, chance: random.Random, shared: Path | None = None) -> None:
        self.grid = Grid(case, layout_of(case.query, chance), chance, shared=shared)
        self.steps: list[Batch] = [*batches(self.grid, case), drain()]
        self.at = chance.randrange(1, len(self.steps)) if len(self.steps) > 1 else 0
        for step in self.steps[: self.at]:
            self.grid.run(step)
        self.states = [[dict(cell) for cell in cells] for cells in self.grid.states]
        self.before, self.latest = list(self.grid.results), dict(self.grid.latest)
        self.late = {name: list(rows) for name, rows in self.grid.late.items()}
        self.whole, self.dropped = self.go_on()

    def again(self) -> None:
        """As it stood then, for a worker that knows nothing."""
        grid = self.grid
        grid.states = [[dict(cell) for cell in cells] for cells in self.states]
        grid.results, grid.latest = list(self.before), dict(self.latest)
        grid.late = {name: list(rows) for name, rows in self.late.items()}
        Grid.number += 1
        grid.workers = [f"grid {Grid.number}"]

    def go_on(self) -> tuple[bytes, str]:
        """To the end; all results as bytes, and all dropped rows."""
        for step in self.steps[self.at :]:
            self.grid.run(step)
        return as_bytes(self.grid.table), repr(self.grid.late)

    def judge(self, record: Record, kind: str, words: str, names: str | None) -> None:
        """Go on with the fault in it. `names`: what a refusal must say; None, where there must be none."""
        given = len(self.before)
        try:
            same = self.go_on() == (self.whole, self.dropped)
        except RunError as error:
            beginning = as_bytes(pa.concat_tables(self.grid.results[given:])) if len(self.grid.results) > given else b""
            told = names is not None and re.search(names, str(error)) is not None
            record.tell(kind, "refused" if told else "differs", f"{words}: {error} {len(beginning)}")
            return
        except Exception as error:  # a traceback of ours is no refusal
            record.tell(kind, "differs", f"{words}: {type(error).__name__}: {error}")
            return
        record.tell(kind, "same" if same else "differs", words)


def changed(data: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Bytes with a fault in them: a bit, some bytes, a hole of zeros, an end that is missing, or something behind it."""
    at = chance.randrange(len(data))
    fate = chance.choice(("bit", "bit", "byte", "zeros", "torn", "more"))
    if fate == "bit":
        bit = 1 << chance.randrange(8)
        return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :], f"bit {bit} of byte {at} of {len(data)}"
    if fate == "byte":
        other = bytes([(data[at] + chance.randrange(1, 256)) % 256])
        return data[:at] + other + data[at + 1 :], f"byte {at} of {len(data)}"
    if fate == "zeros":
        end = min(len(data), at + chance.choice((4, 64, 512)))
        return data[:at] + bytes(end - at) + data[end:], f"zeros from {at} to {end} of {len(data)}"
    if fate == "torn":
        return data[:at], f"torn at {at} of {len(data)}"
    return data + bytes(chance.randrange(256) for _ in range(8)), f"8 bytes behind {len(data)}"


def state(record: Record) -> None:
    """A manifest, a chunk or a bucket's state, as Spark's store would give it after a disk or a copy has changed it."""
    kind = "state of a cell: changed or torn"

    def faults(case: Case, chance: random.Random) -> None:
        taken = Taken(case, chance)
        places = [(s, c, n) for s, cells in enumerate(taken.states) for c, cell in enumerate(cells) for n in cell]
        for _ in range(min(A_CASE, 3 * len(places))):
            if not record.goes_on(kind):
                return
            taken.again()
            stage, cell, number = chance.choice(places)
            whole = taken.states[stage][cell][number]
            data, words = changed(whole, chance)
            if data == whole:
                continue
            taken.grid.states[stage][cell][number] = data
            what = {"manifest": "The manifest"}.get(str(number), f"Chunk {number}")
            what = f"The state of bucket {-2 - number}" if number != "manifest" and number < 0 else what
            names = f"^{what}, in the checkpoint's state of operator {stage}, cell {cell}, is (damaged|of version)|has no version"
            taken.judge(record, kind, f"{what} of cell {cell}, {words}, before batch {taken.at} of {case!r}", names)

    each_case(record, kind, faults)


def shared_memory(record: Record) -> None:
    """A chunk that a sibling has laid into shared memory is damaged or gone: the state has it."""
    kind = "chunk in shared memory: changed, torn or gone"

    def faults(case: Case, chance: random.Random) -> None:
        with tempfile.TemporaryDirectory(prefix="faults-") as place, pytest.MonkeyPatch.context() as patch:
            patch.setattr(recent, "has_room", lambda *_: True)
            taken = Taken(case, chance, Path(place))
            for _ in range(A_CASE):
                taken.again()
                # Again from the first batch, so that the folder has what the state before this batch names.
                taken.grid.states = [[{} for _ in cells] for cells in taken.states]
                taken.grid.results, taken.grid.latest = [], {}
                taken.grid.late = {name: [] for name in taken.late}
                for step in taken.steps[: taken.at]:
                    taken.grid.run(step)
                files = sorted(file for file in Path(place).rglob("*-*") if file.is_file())
                if not files or not record.goes_on(kind):
                    return
                file = chance.choice(files)
                data, words = changed(file.read_bytes(), chance)
                file.unlink() if chance.random() < 0.2 else file.write_bytes(data)
                Grid.number += 1
                taken.grid.workers = [f"grid {Grid.number}"]
                taken.judge(record, kind, f"{file.name}, {words}, before batch {taken.at} of {case!r}", None)

    each_case(record, kind, faults)


#: Of `grid`: what may become of an attempt that does not count.
FATES = {
    "dies": "task dies at an access to its state",
    "loses": "task done twice, the other one counts",
    "other rows": "task ran a batch of another history",
    "twin": "speculative twin, either one counts",
}


@contextlib.contextmanager
def counted(grid: Grid) -> Iterator[dict[str, int]]:
    """How many attempts of each fate a grid has made."""
    found = dict.fromkeys(FATES, 0)
    grid.heard = lambda fate: found.__setitem__(fate, found[fate] + 1)
    yield found


def attempts(record: Record) -> None:
    """Tasks that are retried, that lose, that have a twin: by workers with caches of any age."""
    kinds = list(FATES.values())
    turn = 0
    while any(record.goes_on(kind) for kind in kinds) and record.goes_on(kinds[0]):

        def faults(case: Case, chance: random.Random) -> None:
            layout = layout_of(case.query, chance)
            plain = Grid(case, layout, random.Random(chance.random()))
            for step in [*batches(plain, case), drain()]:
                plain.run(step)
            grid = Grid(case, layout, chance, faults=True, workers=2)
            with counted(grid) as found:
                try:
                    for step in [*batches(grid, case, longest=3), drain()]:
                        grid.run(step)
                    same = results(grid) == results(plain)
                    words = ""
                except Exception as error:
                    same, words = False, f"{type(error).__name__}: {error}"
            for fate, count in found.items():
                for _ in range(count):
                    record.tell(FATES[fate], "same" if same else "differs", f"{words} {case!r}")

        each_case(record, kinds[0], faults)
        turn += 1


def results(grid: Grid) -> tuple[bytes, dict[str, list[str]]]:
    """All results without their keys, which hold positions that were drawn anew, and the dropped rows as a set."""
    table = grid.table.drop_columns([grid.schema.names[-1]])
    values = [[v for v in row.values() if not isinstance(v, bool)] for rows in grid.late.values() for row in rows]
    return as_bytes(table), {"late": sorted(map(repr, values))}
