"""Cases on Spark, all in one session: batch, and streams cut into files and micro-batches, stopped and started again.

A case is a group (`queries`) and one way to deliver it: cut into files anywhere, so many of them a micro-batch, cells and
state partitions, in one run or in several from the same checkpoint, which is stopped in mid-run or at the end of what there is.
Cases are small, so most of their cost is Spark's own, a second or so; several run at once, for much of that is waiting.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.fuzz import judge, pool, queries
from tests.fuzz.feeds import Draw, Feed
from tests.fuzz.queries import Group
from tests.fuzz.runner import Plan, group_rows, shrunk
from tests.spark.feeds import collected, frame, published, spark_schema, write_files

import plait.spark
from plait.errors import PlaitError, QueryError
from plait.order import decode, encode
from plait.query.identical import KEY

#: Cases that share a query, its data and the reference's answer: one as a batch, two as streams.
DELIVERIES = 3
#: Types that Spark has; it has no unsigned integers, no views and no dictionaries.
COLUMNS = "kjipxqbsytdm"
#: Of `feeds.CLOCKS`: those that Spark can write.
CLOCKS = (0, 3, 5, 7)


def drawn(draw: Draw) -> Draw:
    return replace(draw, columns="".join(c for c in draw.columns if c in COLUMNS), clocks=CLOCKS, dictionary_sources=False,
                   plain_sources=True)  # fmt: skip


@functools.lru_cache(maxsize=16)
def group_of(plan: Plan, number: int) -> tuple[Group, judge.Answer]:
    made = queries.group(random.Random(f"{plan.seed}:spark {number}"), drawn(plan.draw))
    return made, judge.answer(made)


@dataclass(frozen=True)
class Way:
    """How one case reaches Spark. `runs` are the parts of each lane's files that are there when each run begins."""

    streaming: bool
    layout: Any
    cells: int | None
    order: str
    read: str
    files: int
    per_trigger: int
    runs: int
    stop: bool
    distributed: bool
    seed: int


def way(plan: Plan, case: int) -> Way:
    chance = random.Random(f"{plan.seed}:spark case {case}")
    found = Way(
        streaming=case % DELIVERIES > 0,
        layout=chance.choice(("auto", (1, 1), (2, 1), (1, 2), (2, 2), "hash", "see_all", "linear", "square")),
        cells=chance.choice((None, None, 4)), order=chance.choice(("strict", "strict", "trigger", "none")),
        read=chance.choice(("auto", "auto", "rows")), files=chance.choice((1, 2, 3, 4)), per_trigger=chance.choice((1, 2, 10)),
        runs=chance.choice((1, 1, 2, 3)), stop=chance.random() < 0.2, distributed=chance.random() < 0.15,
        seed=chance.randrange(2**32),
    )  # fmt: skip
    # Drawn last, so that older seeds' cases are what they were but for this: where the condition has no band it goes by auto.
    return replace(found, layout="band") if chance.random() < 0.3 else found


class Case:
    """One case in a folder of its own."""

    def __init__(self, spark: Any, group: Group, given: Way, folder: Path) -> None:
        self.spark, self.group, self.way, self.folder = spark, group, given, folder
        self.chance = random.Random(given.seed)
        self.pieces: list[tuple[Path, list[pa.Table]]] = []
        self.written: dict[Path, int] = {}

    def lanes(self, each: Feed) -> dict[Any, pa.Table]:
        if each.by_column:
            return {None: each.interleaved()}
        return dict(each.sources)

    def frames(self) -> dict[str, Any]:
        """A DataFrame for each lane; its files are cut, and written as runs begin."""
        found: dict[str, Any] = {}
        for each in self.group.feeds:
            made = {}
            for number, (source, rows) in enumerate(self.lanes(each).items()):
                folder = self.folder / each.stream.name / str(number)
                folder.mkdir(parents=True)
                edges = sorted(self.chance.randint(0, len(rows)) for _ in range(self.way.files - 1))
                edges = [0, *edges, len(rows)]
                self.pieces.append((folder, [rows.slice(a, b - a) for a, b in itertools.pairwise(edges)]))
                made[source] = functools.partial(frame, self.spark, folder, spark_schema(each.schema.empty_table()),
                                                 streaming=self.way.streaming, files=self.way.per_trigger)  # fmt: skip
            found[each.stream.name] = made
        return found

    def write(self, part: int, parts: int) -> None:
        """The files that are there when the run `part` of `parts` begins."""
        for folder, pieces in self.pieces:
            first = self.written.get(folder, 0)
            last = len(pieces) if part == parts - 1 else self.chance.randint(first, len(pieces))
            for number in range(first, last):
                write_files(folder, pieces[number], [], first=number)
            self.written[folder] = last

    def query(self, frames: dict[str, Any]) -> Any:
        data: dict[str, Any] = {}
        for each in self.group.feeds:
            made = {source: make() for source, make in frames[each.stream.name].items()}
            data[each.stream.name] = made if isinstance(next(iter(made)), str) else list(made.values())
            if len(made) == 1 and not isinstance(next(iter(made)), str):
                data[each.stream.name] = next(iter(made.values()))
        try:
            cells = None if isinstance(self.way.layout, tuple) else self.way.cells
            return self.group.query.on_spark(data, layout=self.way.layout, cells=cells, read=self.way.read)
        except QueryError:
            return self.group.query.on_spark(data, read=self.way.read)

    def run(self) -> pa.Table:
        frames = self.frames()
        if not self.way.streaming:
            self.write(0, 1)
            return collected(self.query(frames))
        for part in range(self.way.runs):
            self.write(part, self.way.runs)
            last = part == self.way.runs - 1
            running = plait.spark.write_ordered(
                self.query(frames), self.folder / "out", checkpoint=self.folder / "checkpoint", drain=last,
                keep_key=True, distributed=self.way.distributed, order=self.way.order,
            )  # fmt: skip
            if self.way.stop and not last:
                time.sleep(self.chance.random() * 0.5)  # anywhere in its course: what it has begun is done again
                running.stop()
            else:
                running.awaitTermination()
        return published(self.folder / "out")


def carried_out(spark: Any, group: Group, given: Way) -> judge.Got:
    by_content = any(each.stream.seq == "content" for each in group.feeds)
    got = judge.Got(
        may_be_behind=given.streaming and judge.undeclared(group.feeds), may_miss_late=by_content, own_keys=True
    )
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got.table = Case(spark, group, given, folder).run()
    except Exception as error:
        got.error = _plain_error(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return got


def _plain_error(error: Exception) -> Exception:
    """What plait raised in a task, out of what Spark says of it."""
    if isinstance(error, PlaitError):
        return error
    text = str(error)
    for kind in ("LateError", "BehindError", "PendingError", "DataError", "QueryError", "RunError"):
        if (at := text.find(f"plait.errors.{kind}: ")) >= 0:
            made: Exception = getattr(plait.errors, kind)(text[at:].split("\n")[0][:500])
            return made
    return error


def differs(spark: Any, group: Group, answer: judge.Answer, given: Way) -> str | None:
    got = carried_out(spark, group, given)
    if got.table is not None and answer.table is not None:
        if got.table.num_columns == 0:
            got.table = answer.table.schema.empty_table()  # nothing came out, so no file tells the columns
        got.table = got.table.cast(pa.schema([answer.table.schema.field(name) for name in got.table.column_names]))
        if KEY not in got.table.column_names:
            return f"no {KEY} in {got.table.column_names}"
        if given.streaming and given.order != "strict":
            if given.order == "trigger" and (broken := _out_of_order(got.table.column(KEY).to_pylist())) is not None:
                return broken
            got.table = got.table.sort_by(KEY)
    return judge.judged(answer, got)


def _out_of_order(keys: list[bytes]) -> str | None:
    """Where `order="trigger"` is not kept: of pairs their triggers rise, of other results the keys."""
    firsts = [decode(key)[0] for key in keys]
    told = [encode((first,)) if isinstance(first, tuple) else key for first, key in zip(firsts, keys, strict=True)]
    falls = next((at for at in range(1, len(told)) if told[at] < told[at - 1]), None)
    return (
        None if falls is None else f"the trigger of row {falls} comes before that of the row before it: {keys[falls]!r}"
    )


def check(spark: Any, plan: Plan, case: int) -> str | None:
    group, answer = group_of(plan, case // DELIVERIES)
    given = way(plan, case)
    try:
        found = differs(spark, group, answer, given)
    except Exception:
        return f"case {case}: the fuzzer itself failed\n{traceback.format_exc()}"
    if found is None:
        return None
    small, tries = shrunk(group, lambda other: differs(spark, other, judge.answer(other), given) is not None, most=12)
    return "\n".join((
        f"case {case} of seed {plan.seed}: {found[:3000]}", small.described(), str(given),
        f"({group_rows(group)} rows, {group_rows(small)} of them left after {tries} tries)",
        f"again: python -m tests.fuzz spark --seed {plan.seed}{plan.flags} --case {case}",
    ))  # fmt: skip


def check_all(spark: Any, plan: Plan, cases: range, *, at_once: int, each: Any) -> None:
    with ThreadPoolExecutor(at_once) as executor:
        for case, found in zip(cases, executor.map(lambda n: check(spark, plan, n), cases), strict=True):
            each(case, found)


def main(plan: Plan, options: argparse.Namespace) -> int:
    folder = tempfile.mkdtemp(prefix="fuzz-spark-")
    session = plait.spark.session(master="local[2]", partitions=2, **{
        "spark.driver.memory": "1g", "spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.local.dir": folder,
    })  # fmt: skip
    session.sparkContext.setLogLevel("OFF")
    cases = range(options.first, options.first + options.cases)
    if options.case is not None:
        cases = range(options.case, options.case + 1)
    found: list[int] = []
    done, began, said = 0, time.monotonic(), 0.0

    def each(case: int, difference: str | None) -> None:
        nonlocal done, said
        done += 1
        if difference is not None:
            found.append(case)
            sys.stdout.write(f"\n{difference}\n\n")
        if time.monotonic() - said > 10:
            said = time.monotonic()
            pool.progress(len(cases), began, done, len(found))

    try:
        check_all(session, plan, cases, at_once=options.at_once, each=each)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    pool.progress(len(cases), began, done, len(found))
    if found:
        sys.stdout.write(f"differences in cases {found}\n")
    return 1 if found else 0
