"""SplitJoin's gathering: what each precision guarantees, and no more; marks; mergers; who stores and who compares.

The guarantees, as docs/threads.md states them, are properties of the sequence that comes out. A pair is told by its trigger's
rank in total order and its partner's number in its own stream; both come from the tables, not from the run.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.threads.test_sequences import SOURCES, TABLES, as_rows, deliver, expected, outcome, query

import plait
from plait.errors import QueryError
from plait.order import decode, encode
from plait.threads.join.loop import probe
from plait.threads.join.loop import words as o
from plait.threads.join.marks import MARK, MARK_TYPE
from plait.threads.stats import STAGES

# What the reference says of a condition and a window is the same for many tests, there and here.
pytestmark = pytest.mark.xdist_group("sequences")

PRECISIONS: list[Any] = [
    "order",
    "comparison",
    "1 comparison",
    "2 comparisons",
    "7 comparisons",
    1,
    2,
    5,
    100,
    None,
    "never",
]


class Places:
    """Where tuples stand: in the total order, and in their own stream."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        found: list[tuple[Any, ...]] = []
        for input, name in enumerate(("a", "b")):
            seq = dict.fromkeys(SOURCES, 0)
            for ts, source in zip(
                tables[name].column("ts").to_pylist(), tables[name].column("src").to_pylist(), strict=True
            ):
                seq[source] += 1
                found.append((ts, input, source.encode(), seq[source]))
        found.sort()
        self.tuples = found
        self.rank = {encode(key): at for at, key in enumerate(found)}
        self.number: dict[bytes, int] = {}
        count = [0, 0]
        for key in found:
            self.number[encode(key)] = count[key[1]]
            count[key[1]] += 1

    def pairs(self, got: pa.Table) -> list[tuple[int, int]]:
        """Of each result its trigger's rank and its partner's number."""
        keys = (decode(key) for key in as_rows(got))
        return [(self.rank[encode(trigger)], self.number[encode(partner)]) for trigger, partner in keys]


PLACES = Places(TABLES)


def check_order(pairs: list[tuple[int, int]], wanted: Any, workers: int) -> None:
    """The sequence is one of those that the precision allows."""
    if wanted in ("order", "comparison", "1 comparison"):
        assert pairs == sorted(pairs)
    elif isinstance(wanted, str) and wanted != "never":
        block = int(wanted.split()[0]) * workers
        cut = [(rank, number // block, number % workers) for rank, number in pairs]
        assert cut == sorted(cut)  # by blocks of the partners' stream, and in each worker by worker
        for (rank, number), (after, later) in itertools.pairwise(pairs):
            assert rank != after or later > number - block  # so no partner is overtaken by one that is a block later
    elif isinstance(wanted, int):
        cut = [(rank // wanted, number % workers) for rank, number in pairs]
        assert cut == sorted(cut)
        for worker in range(workers):
            own = [rank for rank, number in pairs if number % workers == worker]
            assert own == sorted(own)


def cases(count: int) -> list[tuple[Any, ...]]:
    dice = random.Random(19)
    axes = [
        PRECISIONS,
        [1, 2, 3, 5],
        [None, 2, 3],
        ["scan", "grid", "sorted"],
        [1, 16, 2048],
        [1, 3],
        ["time", "count", "tumbling"],
    ]
    drawn = [tuple(dice.choice(axis) for axis in axes) for _ in range(count)]
    # Each precision with mergers and without, whatever else was drawn.
    return drawn + [(p, 3, fan_in, "grid", 16, 2, "time") for p in PRECISIONS for fan_in in (None, 2)]


@pytest.mark.sampled
@pytest.mark.parametrize("case", cases(examples(60)), ids=lambda case: "-".join(map(str, case)))
def test_a_precision_guarantees_what_it_says(case: tuple[Any, ...]) -> None:
    wanted, workers, fan_in, index, batch, threads, window = case
    got = outcome(
        query("band", window), TABLES, batch, threads, strategy="splitjoin", workers=workers, punctuate=wanted, fan_in=fan_in,
        index=index, batch=batch, plain=True,
    )  # fmt: skip
    want = expected("band", window, "inner", TABLES)
    assert Counter(as_rows(got)) == Counter(as_rows(want))
    pairs = PLACES.pairs(got)
    check_order(pairs, wanted, workers)
    if wanted in ("order", "comparison", "1 comparison"):
        assert_same(got, want)


@pytest.mark.parametrize("wanted", ["2 comparisons", 1, 5])
def test_scans_give_one_sequence_for_a_number_of_workers(wanted: Any) -> None:
    """However tuples are delivered and fall into batches, and with mergers or without."""
    found = {
        tuple(as_rows(outcome(
            query("band", "time"), TABLES, batch, threads, strategy="splitjoin", workers=3, punctuate=wanted, fan_in=fan_in,
            index="scan", batch=batch, plain=True,
        )))
        for batch, threads, fan_in in ((1, 1, None), (16, 3, 2), (2048, 2, None))
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_other_kinds_with_one_worker(how: str) -> None:
    """Unmatched rows have no trigger: they stand at their moment with every precision but none."""
    want = expected("band", "time", how, TABLES)
    for wanted in ("comparison", "2 comparisons", 1, None):
        got = outcome(
            query("band", "time", how), TABLES, 1, 2, strategy="splitjoin", workers=1, punctuate=wanted, plain=True
        )
        assert Counter(as_rows(got)) == Counter(as_rows(want))
        if wanted is not None:
            assert [decode(key)[0] for key in as_rows(got)] == [decode(key)[0] for key in as_rows(want)]


def test_the_checks_notice_what_is_not_allowed() -> None:
    for wanted, wrong in (
        ("comparison", [(1, 2), (1, 1)]), ("2 comparisons", [(1, 6), (1, 1)]), ("2 comparisons", [(2, 0), (1, 1)]),
        (1, [(2, 0), (1, 1)]), (5, [(5, 0), (4, 0)]), (5, [(4, 0), (3, 0)]),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            check_order(wrong, wanted, 3)
    check_order([(4, 0), (3, 1)], 5, 3)
    check_order([(4, 3), (4, 0), (4, 1)], "2 comparisons", 3)


def test_workers_do_not_sort_what_is_not_asked_for() -> None:
    """By hash a trigger's partners are found from the newest on. What is not put in order comes out like that."""
    table = pa.table({"ts": np.arange(60), "src": ["p"] * 60, "k": [1] * 60, "s": ["red"] * 60})
    tables = {"a": table, "b": table}
    made = plait.join(
        *(plait.stream(n, unit="us", source="src", sources=("p",)) for n in "ab"), on="l.k = r.k", within=30
    )
    found = {}
    for wanted in ("comparison", "4 comparisons", 1, None):
        with made.on_threads(
            schemas={n: t.schema for n, t in tables.items()}, keys=True, strategy="splitjoin", workers=2, punctuate=wanted,
            index="hash", plain=True,
        ) as run:  # fmt: skip
            for name in "ab":
                run.push(name, None, table)
            run.drain()
            got = run.table()
            found[wanted] = {int(w.words[o.SORTS]) for w in run._engine.workers}
        falls = sum(
            later < number
            for (rank, number), (after, later) in itertools.pairwise(Places(tables).pairs(got))
            if rank == after
        )
        assert (falls > 0) == (wanted != "comparison")
    assert found == {"comparison": {o.BY_PARTNER}, "4 comparisons": {o.BY_BLOCK}, 1: {o.BY_TRIGGER}, None: {o.AS_FOUND}}


def test_rows_in_order_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "sort_rows", probe.sort_rows.py_func)  # neither is compiled for being called from here
    dice = np.random.default_rng(5)
    for length in (2, 3, 9, 40, 200):
        for size in (1, 2, 7, 50):
            for spread in (10, 100, 5000):
                for scratch in (4, 4096):
                    rows = dice.integers(0, spread, length + 2)
                    before = rows.copy()
                    probe.sort_blocks.py_func(
                        rows, 1, length + 1, size, np.zeros(length + 2, np.int64), np.zeros(scratch, np.int64)
                    )
                    blocks = rows[1:-1] // size
                    assert (np.diff(blocks) >= 0).all()
                    assert sorted(rows[1:-1]) == sorted(before[1:-1])
                    assert (rows[0], rows[-1]) == (before[0], before[-1])


# --- marks ------------------------------------------------------------------------------------------------------


def with_marks(wanted: Any, workers: int, window: str = "time", **options: Any) -> pa.Table:
    return outcome(
        query("band", window), TABLES, 1, 2, strategy="splitjoin", workers=workers, punctuate=wanted, marks=True, plain=True,
        batch=16, **options,
    )  # fmt: skip


def marks_expected(wanted: Any, workers: int, window: str) -> list[tuple[int, int | None]]:
    """Rank of the trigger and how far it was compared, from the tables alone: whom each tuple's window holds."""
    every = wanted if isinstance(wanted, int) else 1
    rows = 0 if wanted == "order" or isinstance(wanted, int) else int(wanted.split()[0]) if " " in wanted else 1
    seen: tuple[list[int], list[int]] = ([], [])
    found: list[tuple[int, int | None]] = []
    for rank, (ts, side, *_) in enumerate(PLACES.tuples):
        other = seen[1 - side]
        if window == "time":
            first = sum(ts - back > (200, 100)[side] for back in other)
        else:
            first = max(0, len(other) - 25)
        if rows:
            block = rows * workers
            last = workers - 1  # the last worker's sub-window says where cuts lie
            low = max(0, -((last - first) // workers)) if first > last else 0
            high = (len(other) - 1 - last) // workers + 1 if len(other) > last else 0
            for number in range(low // rows, high // rows):
                found.append((rank, (number + 1) * block))
        if (rank + 1) % every == 0:
            found.append((rank, None))
        seen[side].append(ts)
    return found


@pytest.mark.crossed
@pytest.mark.parametrize("fan_in", [None, 2])
@pytest.mark.parametrize("window", ["time", "count"])
@pytest.mark.parametrize("wanted", ["order", "comparison", "2 comparisons", "7 comparisons", 1, 5])
def test_marks_stand_where_they_hold(wanted: Any, window: str, fan_in: int | None) -> None:
    got = with_marks(wanted, 3, window, fan_in=fan_in)
    marks = got.column(MARK).to_pylist()
    results = got.filter(pa.array([mark is None for mark in marks])).drop_columns([MARK])
    want = expected("band", window, "inner", TABLES)
    assert Counter(as_rows(results)) == Counter(as_rows(want))
    pairs = iter(PLACES.pairs(results))
    check_order(PLACES.pairs(results), wanted, 3)
    shown = [(mark["trigger"], mark["compared"]) for mark in marks if mark is not None]
    assert shown == marks_expected(wanted, 3, window)
    done, number = (
        -1,
        0,
    )  # what the last mark has promised: all of triggers up to `done`, of the next partners below `number`
    for mark, ts in zip(marks, got.column("ts").to_pylist(), strict=True):
        if mark is None:
            rank, partner = next(pairs)
            assert rank > done
            assert rank > done + 1 or partner >= number or number == 0
            continue
        key = PLACES.tuples[mark["trigger"]]
        assert (mark["stream"], mark["side"], ts) == ("ab"[key[1]], ("left", "right")[key[1]], key[0])
        done, number = (mark["trigger"], 0) if mark["compared"] is None else (mark["trigger"] - 1, mark["compared"])


def test_a_row_that_is_a_mark_has_nothing_else() -> None:
    got = with_marks(1, 2)
    assert got.schema.field(MARK).type == MARK_TYPE
    assert got.column_names[-2:] == [MARK, "_plait_key"]
    mark = next(row for row in got.to_pylist() if row[MARK] is not None)
    assert {name for name, value in mark.items() if value is not None} == {"ts", MARK}


def test_marks_are_no_results() -> None:
    with query("band", "time").on_threads(
        schemas={n: t.schema for n, t in TABLES.items()},
        strategy="splitjoin",
        workers=2,
        punctuate=1,
        marks=True,
        plain=True,
    ) as run:
        deliver(run, TABLES, 1, 1)
        rows = run.table().num_rows
        stats = run.stats()
    tuples = sum(t.num_rows for t in TABLES.values())
    assert (stats.results, rows) == (286, 286 + tuples)
    assert sum(w.results for w in stats.workers) == 286


# --- who stores, who merges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 4, 6])
@pytest.mark.parametrize("index", ["scan", "grid"])
def test_storing_apart_changes_no_result(workers: int, index: str) -> None:
    for window in ("time", "count"):
        got = outcome(
            query("band", window), TABLES, 2, 3, strategy="splitjoin", workers=workers, split_storing=True, plain=True,
            index=index, batch=16, fan_in=2,
        )  # fmt: skip
        assert_same(got, expected("band", window, "inner", TABLES))


def test_who_stores_compares_nothing() -> None:
    with query("band", "time").on_threads(
        schemas={n: t.schema for n, t in TABLES.items()},
        strategy="splitjoin",
        workers=4,
        split_storing=True,
        plain=True,
    ) as run:
        deliver(run, TABLES, 1, 1)
        run.table()
        compared = [w.comparisons for w in run.stats().workers]
        assert "each with a worker that stores and one that compares" in run.explain()
    assert compared[:2] == [0, 0]
    assert min(compared[2:]) > 0


def test_mergers_have_threads_of_their_own() -> None:
    before = {t.name for t in threading.enumerate()}
    with query("band", "time").on_threads(
        schemas={n: t.schema for n, t in TABLES.items()}, strategy="splitjoin", workers=5, fan_in=2, plain=True
    ) as run:
        mine = {t.name for t in threading.enumerate()} - before
        deliver(run, TABLES, 1, 1)
        assert run.table().num_rows == 286
        assert len(run.stats().threads_cpu_s) == 8
        assert "3 mergers of fan-in 2" in run.explain()
    assert len({name for name in mine if "splitjoin" in name}) == 8


def test_a_reader_that_waits_holds_mergers_back_and_loses_nothing() -> None:
    """Rings of 1,024 results each, and many more results than all of them hold."""
    table = pa.table({"ts": np.arange(600), "k": np.arange(600) % 2})
    made = plait.join(*(plait.stream(n, unit="us") for n in "ab"), on="l.k = r.k", within=100)
    with made.on_threads(
        schemas=dict.fromkeys("ab", table.schema),
        strategy="splitjoin",
        workers=3,
        fan_in=2,
        unread_results=1,
        keys=True,
        plain=True,
    ) as run:
        for name in "ab":
            run.push(name, None, table)
        run.drain()
        time.sleep(0.3)
        got = run.table()
    pairs = [(a, b) for a in range(600) for b in range(max(0, a - 100), min(600, a + 101)) if a % 2 == b % 2]
    assert len(pairs) > 50_000
    assert sorted(zip(*(got.column(f"{name}_ts").to_pylist() for name in "ab"), strict=True)) == pairs
    assert as_rows(got) == sorted(as_rows(got))


# --- how long tuples took ---------------------------------------------------------------------------------------


def test_latency_by_stage() -> None:
    """Reading begins late, and one source holds the others back: both show, each in its stage."""
    with query("band", "time").on_threads(
        schemas={n: t.schema for n, t in TABLES.items()}, strategy="splitjoin", workers=2, plain=True, batch=16
    ) as run:
        run.push("a", None, TABLES["a"])
        time.sleep(0.2)
        run.push("b", None, TABLES["b"])
        run.drain()
        while run.stats().workers[0].tuples < 900:
            time.sleep(0.01)
        time.sleep(0.2)
        assert run.table().num_rows == 286
        found = run.stats().stage_latency_ms
        assert tuple(found) == STAGES
        assert all(each.samples > 20 for each in found.values())
        assert found["distribution"].max >= 200
        assert found["gathering"].p50 >= 190
        assert found["execution"].max < found["processing"].max
        assert found["processing"].max >= 400
        # From the push of both, so what one waited for the other is not in it.
        assert found["visiting"].p50 < found["processing"].p50 - 190
        run.reset_latency()
        assert all(each.samples == 0 for each in run.stats().stage_latency_ms.values())


def test_latency_of_an_interval_that_the_end_cuts_short() -> None:
    with query("band", "time").on_threads(
        schemas={n: t.schema for n, t in TABLES.items()}, strategy="splitjoin", workers=2, punctuate=10_000, plain=True
    ) as run:
        deliver(run, TABLES, 1, 1)
        assert run.table().num_rows == 286
        assert run.stats().stage_latency_ms["processing"].samples > 0


# --- what is said of it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "tree of fan-out 2"),
        ({"punctuate": "comparison", "marks": True}, "results in full order, with marks"),
        ({"punctuate": "10 comparisons"}, "in order of triggers, of each one's partners every 10 of a sub-window"),
        ({"punctuate": 1}, "results in order of triggers"),
        ({"punctuate": 5, "marks": True}, "results in order every 5 triggers, with marks"),
        ({"punctuate": None}, "results as they come"),
        ({"fan_in": 2}, "results gathered by 1 merger of fan-in 2, each in a thread of its own"),
        ({"fan_in": 3}, "results gathered by whoever reads them"),
    ],
)
def test_explain_says_it(options: dict[str, Any], told: str) -> None:
    schemas = {n: t.schema for n, t in TABLES.items()}
    with query("band", "time").on_threads(
        schemas=schemas, strategy="splitjoin", workers=3, plain=True, **options
    ) as run:
        assert told in run.explain()
        assert ("results in" in run.explain()) == ("punctuate" in options and options["punctuate"] is not None)


# --- what is refused --------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "marks of another strategy": ({"marks": True, "workers": 2}, "It is a part of SplitJoin"),
    "mergers of another strategy": ({"fan_in": 2, "strategy": "scalejoin"}, "fan_in=2 with strategy='scalejoin'"),
    "storing apart elsewhere": ({"split_storing": True}, "split_storing=True with strategy='auto'"),
    "a merger of one": ({"fan_in": 1, "strategy": "splitjoin"}, "A merger of one has nothing to merge"),
    "no number": ({"fan_in": "2", "strategy": "splitjoin"}, "fan_in='2' is no number of inputs"),
    "marks of nothing": ({"marks": True, "strategy": "splitjoin", "punctuate": None}, "have no marks between them"),
    "marks without order": ({"marks": True, "strategy": "splitjoin", "order": "none"}, "have no marks between them"),
    "odd": ({"split_storing": True, "strategy": "splitjoin", "workers": 3}, "Pass an even number of workers"),
    "no comparisons": ({"punctuate": "0 comparisons", "strategy": "splitjoin"}, "is no interval"),
    "no word": ({"punctuate": "ten comparisons", "strategy": "splitjoin"}, "is no interval"),
    "no truth value": ({"marks": 1, "strategy": "splitjoin"}, "marks=1 is no truth value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    options, message = REFUSED[name]
    with pytest.raises(QueryError, match=message):
        query("band", "time").on_threads(schemas={n: t.schema for n, t in TABLES.items()}, **options)


def test_marks_are_the_last_operator_s() -> None:
    counts = plait.aggregate(query("band", "time"), size="1s", compute={"n": plait.count()})
    with pytest.raises(QueryError, match="no other operator passes them on"):
        counts.on_threads(schemas={n: t.schema for n, t in TABLES.items()}, strategy="splitjoin", marks=True)
