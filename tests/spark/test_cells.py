"""Pack and cells without Spark: thousands of ways to deliver the same rows, and attempts that come to nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import SOAK, examples
from tests.reference.judge import assert_same, canonical, on_reference
from tests.reference.programs import operators
from tests.spark.grid import Batch, Grid, Store, at_places, batches, deliver, drain, packed, plain_windows, shuffled
from tests.strategies import Case

import plait
from plait import BehindError
from plait.core import metrics
from plait.query.bind import bind
from plait.query.join import Join
from plait.spark import formats
from plait.spark.cell import cell
from plait.spark.cell import state as cell_state
from plait.spark.cell.arrive import StreamProgress, held
from plait.spark.cell.results import read
from plait.spark.keep import recent
from plait.spark.pack.pack import Frame
from plait.spark.pack.ranges import bands
from plait.spark.plan import layout
from plait.spark.plan.fingerprint import fingerprint
from plait.spark.plan.layout import Layout
from plait.spark.plan.stages import layouts, stages
from plait.spark.publish.stats import stats_of

SEEDS = st.integers(0, 2**32)
LAYOUTS = ((1, 1), (1, 2), (2, 2), (3, 2))


@pytest.fixture(autouse=True, scope="module")
def plain_kernels() -> Iterator[None]:
    """Kernels' text run by Python: hundreds of conditions and schemas, each met once, would all be compiled."""
    with plain_windows():
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent, "has_room", lambda *_: True)  # however full the disk of the tests is
        yield tmp_path_factory.mktemp("shared")


def joins(**options: Any) -> st.SearchStrategy[Case]:
    return st.one_of(strategies.time_joins(**options), strategies.count_joins(**options),
                     strategies.tumbling_joins(**options), strategies.tumbling_count_joins(**options),
                     strategies.asof_joins(**options))  # fmt: skip


def cases(**options: Any) -> st.SearchStrategy[Case]:
    return st.one_of(
        joins(**options), strategies.span_aggregates(**options), strategies.count_aggregates(**options),
        strategies.dedups(**options), operators(**options),
    )  # fmt: skip


def layout_of(case: Case, chance: random.Random) -> str | tuple[int, int] | Layout:
    """A grid, for joins that allow it also store-one-see-all; where the condition has a band, ranges of it, some of them hot. A
    full join has several cells only by an equality of columns.
    """
    rows, columns = chance.choice(LAYOUTS)
    if chance.random() < 0.6 and (found := by_band(case, rows * columns, chance)) is not None:
        return found
    if getattr(case.query, "how", "inner") == "full":
        return "auto"
    if getattr(case.query, "how", "inner") == "right":
        return 1, rows * columns
    if getattr(case.query, "how", "inner") != "inner" or not hasattr(case.query, "window"):
        return rows * columns, 1
    return "see_all" if isinstance(case.query, Join) and chance.random() < 0.3 else (rows, columns)


def by_band(case: Case, cells: int, chance: random.Random) -> Layout | None:
    """Ranges of one of the bands, with places of their own choice for some of those about 0."""
    found = bands(bind(case.query, case.schemas))
    try:
        made = layout.choose(case.query, "band", 4, 4, cells=cells, rates=chance.choice((None, (1, 2))))
    except plait.QueryError:
        return None
    some = chance.sample(range(-3, 4), chance.randrange(4))
    placed = tuple((number, tuple(chance.sample(range(cells), chance.randint(1, cells)))) for number in some)
    return (
        replace(made, term=chance.randrange(len(found)), wide=chance.choice((8, 1)), placed=placed) if found else None
    )


def dropped(rows: list[Any]) -> list[str]:
    """Rows to be compared as a set, in which a row may stand twice."""
    values = [row.values() if isinstance(row, dict) else row for row in rows]
    return sorted(repr([canonical(v) for v in row]) for row in values)


def expected(case: Case) -> Any:
    """The definition; where a row's content orders it, the reference, which has its own place for the sign of a zero."""
    if any(each.stream.seq == "content" for each in case.given):
        return on_reference(case)
    return case.expected


def judge(grid: Grid, case: Case) -> None:
    keys = grid.table.column(formats.KEY).to_pylist()
    assert keys == sorted(keys)
    assert_same(grid.table.drop_columns([formats.KEY]), expected(case))
    for each in case.given:
        assert dropped(grid.late[each.stream.name]) == dropped(each.late)
    run = stats_of(grid.latest.values())
    assert run.rows == sum(len(rows) for each in case.given for rows in each.sources.values())
    assert run.results == grid.table.num_rows
    lost = {each.stream.name: len(each.late) for each in case.given if each.late}
    assert {name: count for name, count in run.late.items() if count} == lost
    assert sum(run.behind.values()) == 0


@settings(max_examples=examples(100))
@given(case=cases(declared=True), seed=SEEDS)
def test_any_schedule_gives_the_same_rows(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    deliver(grid, [*batches(grid, case), drain()])
    judge(grid, case)


@settings(max_examples=examples(75))
@given(case=cases(declared=True), seed=SEEDS)
def test_attempts_that_come_to_nothing_leave_no_trace(case: Case, seed: int, shared: Path) -> None:
    """Tasks die at any access to the state, lose to a twin, or ran a batch of another history; caches fall behind."""
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance, faults=True, workers=2, shared=shared)
    deliver(grid, [*batches(grid, case, longest=3), drain()])
    judge(grid, case)


@settings(max_examples=examples(100))
@given(case=cases(declared=True), seed=SEEDS)
def test_heartbeats_and_ends_change_when_and_never_what(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance, faults=True, workers=2)
    before = -(2**63)
    for batch in [*batches(grid, case, events=True), drain()]:
        result = grid.run(batch)
        if grid.reports:
            now = grid.reports[0].frontier
            assert all(before <= ts < now for ts in result.column("ts").to_pylist()) or now == before == 2**63 - 1
            before = now
    judge(grid, case)


def test_states_of_buckets_never_come_from_a_process_that_is_behind() -> None:
    """Two processes take turns. A tuple that waits all along keeps the steps of both in the manifest, so that the contents
    of each could get on by chunks, were they made of tuples; but what the other one did to a state is in no chunk."""

    def count(seen: list[int], t: Any) -> list[tuple[int]]:
        seen.append(t.ts)
        return [(len(seen),)]

    stream = plait.stream("a", unit="us", source="src", sources=[0, 1], seq="n")
    query = plait.operator(stream, buckets=1, route=lambda t: 0, state=list, process=count, output={"seen": "int64"})
    schema = pa.schema([(name, pa.int64()) for name in ("ts", "src", "n")])
    bound = bind(query, {"a": schema})
    cells = layouts(bound, (1, 1), 2, 2)
    frame = Frame(None, "column", "src", 0, "column", "n")
    common = cell.CellPlan(bound, (), cells[0], "mark")
    (stage,) = stages(bound, cells, {"a": [frame]}, common)
    state: dict[Any, bytes] = {}
    found: list[int] = []
    for k in range(8):
        rows = [(k, 0, k)] if k else [(0, 0, 0), (100, 1, 0)]
        table = pa.table([pa.array(c, pa.int64()) for c in zip(*rows, strict=True)], schema=schema)
        bodies = [body for _, body in packed(stage.packs[0][1], table)]
        store = Store(state)
        out = cell.step(stage.plan, 0, store, bodies, cache_key=f"process {k % 2}")
        state = store.data
        for kind, body in out:
            found += read(body).columns.column("seen").to_pylist() if kind == formats.RESULTS else []
    assert len(formats.Manifest.load(state["manifest"]).steps) == 8
    assert found == [1, 2, 3, 4, 5, 6, 7]


@settings(max_examples=examples(40))
@given(case=st.one_of(cases(declared=True), operators(declared=True)), seed=SEEDS)
def test_cells_laid_out_anew_in_mid_run_change_nothing(case: Case, seed: int) -> None:
    """State goes from one layout to another, two times, between any two batches."""
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    for batch in [*batches(grid, case, longest=3, events=True), drain()]:
        if chance.random() < 0.4:
            grid.relayout(layout_of(case, chance))
        grid.run(batch)
    judge(grid, case)


@settings(max_examples=examples(100))
@given(case=cases(declared=False, layouts=("integer column", "text column", "seq column")), seed=SEEDS)
def test_sources_known_by_first_sight_give_the_same_rows_or_stop(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    try:
        deliver(grid, [*batches(grid, case), drain()])
    except BehindError:
        return
    judge(grid, case)


@settings(max_examples=examples(50))
@given(case=cases(declared=True), seed=SEEDS)
def test_one_batch_is_a_backfill(case: Case, seed: int) -> None:
    """What `on_spark` does with batch DataFrames: all rows in one step that ends."""
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    whole = Batch([task for batch in batches(grid, case) for task in batch.tasks], drain().events)
    grid.run(whole)
    judge(grid, case)


# --- pack ---------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(case=cases(), seed=SEEDS)
def test_pack_is_a_pure_function_of_its_rows(case: Case, seed: int) -> None:
    """In whatever order and in whatever Arrow batches a task gets its rows, it sends the same bytes."""
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    for batch in batches(grid, case):
        for plan, rows in batch.tasks:
            again = rows if plan.seq == "block" else shuffled(rows, chance)  # blocks are numbered as they are scanned
            assert packed(plan, again, batch_rows=chance.randrange(1, 4)) == packed(plan, rows)


@settings(max_examples=examples(50))
@given(case=joins(), seed=SEEDS)
def test_every_pair_meets_in_one_cell_and_every_cell_hears_of_every_task(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    places: dict[int, dict[bytes, set[int]]] = {0: {}, 1: {}}
    for batch in batches(grid, case):
        for plan, rows in batch.tasks:
            bodies = packed(plan, rows)
            inputs = plan.inputs if rows.num_rows else ()
            assert sorted(at for at, _ in bodies) == sorted(grid.layout.keys * len(inputs))
            for at, body in bodies:
                head, rest = formats.parse(body)
                found = formats.rows(rest)
                for key in found.column(formats.KEY).to_pylist() if found is not None else ():
                    places[head.input].setdefault(key, set()).add(at)
    if grid.layout.kind == "band":  # so no pair is found twice; that none is missed, `judge` sees, too
        assert {len(cells) for cells in places[grid.layout.owned].values()} <= {1}
        assert all(places[1 - grid.layout.owned].values())
        return
    if (
        grid.layout.kind == "hash"
    ):  # each row in one cell: that equal ones meet there, `judge` sees in what comes of them
        assert {len(cells) for rows in places.values() for cells in rows.values()} <= {1}
        return
    for left in places[0].values():
        for right in places[1].values():
            assert len(left & right) == (grid.layout.cells if grid.layout.kind == "see_all" else 1)


def test_cells_spread_evenly_over_the_partitions() -> None:
    for cells in range(1, 20):
        for partitions in range(1, 12):
            keys = layout.cell_keys(cells, partitions)
            assert len(set(keys)) == cells
            assert [layout.murmur3(key) % partitions for key in keys] == [c % partitions for c in range(cells)]


@pytest.mark.spark
def test_murmur3_is_sparks_hash(spark: Any) -> None:
    from pyspark.sql import functions as F

    rows = spark.range(0, 3000).select(F.col("id").cast("int").alias("k")).select("k", F.hash("k").alias("h")).collect()
    assert all(layout.murmur3(row.k) == row.h for row in rows)


# --- state --------------------------------------------------------------------------------------------------

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")

WINDOWS = {
    "time": (plait.join(A, B, on="l.v = r.v", within=30), 1),
    "left": (plait.join(A, B, on="l.v = r.v", within=(10, 20), how="left"), 1),
    "right": (plait.join(A, B, on="l.v = r.v", within=(10, 20), how="right"), 1),
    "full": (plait.join(A, B, on="l.v = r.v", within=(10, 20), how="full"), 0),
    "semi": (plait.join(A, B, on="l.v = r.v", within=(10, 20), how="semi"), 1),
    "tumbling": (plait.join(A, B, on="l.v = r.v", tumbling=30), 1),
    "count": (plait.join(A, B, on="l.v = r.v", last=30), 2),
    "tumbling count": (plait.join(A, B, on="l.v = r.v", tumbling_count=30), 2),
    "as-of": (plait.asof(A, B, by="v", within=30), 1),
    "unbounded as-of": (plait.asof(A, B, by="v"), 1),
    "as-of, forward": (plait.asof(A, B, by="v", within=30, direction="forward"), 1),
    "as-of, nearest": (plait.asof(A, B, by="v", within=20, direction="nearest", exact=False), 1),
}


def ticking(query: Any, count: int) -> tuple[Case, list[list[tuple[Any, ...]]]]:
    """Two streams with a tuple each microsecond."""
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    rows = [(ts, ts % 7) for ts in range(count)]
    given = [
        strategies.Given(s, schema, {0: rows}, (0,) * count, None, [], strategies.table(schema, rows)) for s in (A, B)
    ]
    return Case(query, tuple(given), None), [rows[at : at + 10] for at in range(0, count, 10)]


def tick(grid: Grid, case: Case, at: int, rows: list[tuple[Any, ...]]) -> Batch:
    """The batch that brings both streams their ten tuples of this turn."""
    tasks = []
    for each in case.given:
        (plan,) = grid.packs[each.stream.name]
        numbers = pa.array(range(at * 10, at * 10 + len(rows)), pa.int64())
        tasks.append((plan, at_places(strategies.table(each.schema, rows), numbers)))
    return Batch(tasks)


def test_windows_of_tuples_begin_where_they_did_before_contents_were_built_anew() -> None:
    """Contents are lost before every batch, and once go to other cells, when most of what came is no longer kept."""
    case, slices = ticking(plait.join(A, B, on="l.v = r.v or l.v = 3", tumbling_count=7), 300)
    grid = Grid(case, (2, 1), random.Random(0))
    for at, rows in enumerate(slices):
        cell_state._CACHE.clear()
        if at == 17:
            grid.relayout((3, 1))
        grid.run(tick(grid, case, at, rows))
    grid.run(drain())
    assert_same(
        grid.table.drop_columns([formats.KEY]), case.query.reference({g.stream.name: g.data for g in case.given})
    )


@pytest.mark.crossed
@pytest.mark.parametrize("within", [(20, 4), (4, 20)])
@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_a_row_that_waits_is_known_to_have_matched_after_a_restart(how: str, within: tuple[int, int]) -> None:
    """Contents are lost before every batch. A row may wait for long after its only partner could meet anybody else."""
    case, slices = ticking(plait.join(A, B, on="l.v = r.v and l.ts = r.ts and l.v <> 3", within=within, how=how), 120)
    grid = Grid(case, (1, 2) if how == "right" else (2, 1), random.Random(0))
    for at, rows in enumerate(slices):
        cell_state._CACHE.clear()
        grid.run(tick(grid, case, at, rows))
    grid.run(drain())
    assert_same(
        grid.table.drop_columns([formats.KEY]), case.query.reference({g.stream.name: g.data for g in case.given})
    )


#: Fourteen windows; in the soak forty.
TICKS = 120 if SOAK else 42


@pytest.mark.sampled
@pytest.mark.parametrize("window", WINDOWS)
def test_state_written_is_what_came_and_state_held_is_the_window(window: str) -> None:
    query, copies = WINDOWS[window]
    case, slices = ticking(query, 10 * TICKS)
    grid = Grid(case, (1, 2) if window == "right" else (2, 1), random.Random(0))
    held, manifests, kept = [], [], []
    for at, rows in enumerate(slices):
        grid.run(tick(grid, case, at, rows))
        # A right tuple goes to both cells of a 2x1 grid, in a count window every tuple does, and by hash none.
        assert sum(store.written for store in grid.stores) == 10 * copies + 10 * 2
        held.append(sum(store.chunk_rows for store in grid.stores))
        manifests.append(max(len(state["manifest"]) for state in grid.state))
        kept.append(sum(store.dropped for store in grid.stores))
    settled, last = slice(TICKS // 3, TICKS // 2), slice(-TICKS // 6, None)
    assert max(held[TICKS // 3 :]) <= 240
    # Over few windows the fullest moment is not always met: a leak of a row a turn would be more than this.
    assert abs(max(held[settled]) - max(held[last])) <= (0 if SOAK else 5)
    assert max(manifests[last]) <= max(manifests[settled]) + 40  # numbers grow a digit
    assert sum(kept) + held[-1] == TICKS * (10 * copies + 20)


def test_a_join_goes_from_any_layout_to_any_other() -> None:
    """What cells of "see_all" tell a row's owner by comes and goes."""
    case, slices = ticking(WINDOWS["time"][0], 300)
    shapes = (
        (2, 2),
        "see_all",
        "see_all",
        "hash",
        "see_all",
        (3, 1),
        "hash",
        (2, 2),
        (3, 1),
        "see_all",
        (2, 2),
        "hash",
    )
    grid = Grid(case, "see_all", random.Random(0))
    for at, rows in enumerate(slices):
        if at % 2:
            grid.relayout(shapes[at // 2 % len(shapes)])
        grid.run(tick(grid, case, at, rows))
    grid.run(drain())
    assert_same(grid.table.drop_columns([formats.KEY]), on_reference(case))


def test_store_one_see_all_stores_each_tuple_of_a_window_once() -> None:
    """What waits for the frontier, the last tuple of each stream, is in every cell; what has been compared is in one."""
    case, slices = ticking(WINDOWS["time"][0], 300)
    grid = Grid(case, "see_all", random.Random(0))
    held = []
    for at, rows in enumerate(slices):
        grid.run(tick(grid, case, at, rows))
        assert sum(store.written for store in grid.stores) == 2 * 9 + 2 * grid.layout.cells
        held.append(sum(store.chunk_rows for store in grid.stores))
    assert grid.layout.cells == 4
    assert max(held[20:]) <= 120, "four cells hold no more than one would"


@pytest.mark.parametrize(
    ("shape", "copies", "balanced"),
    [("hash", 1, False), ((4, 1), 2.5, True), ((2, 2), 2, True), ("see_all", 4, True)],
    ids=["hash", "linear", "square", "see all"],
)
def test_a_hot_key_shows_in_the_balance_of_the_cells(shape: Any, copies: float, balanced: bool) -> None:
    """Nine tuples in ten have one key. By hash one cell then makes nearly all comparisons, and nobody has a copy; a grid, and
    store-one-see-all, share the work evenly, and pay with copies: m x n sends a left tuple to n cells, a right one to m."""
    chance = random.Random(4)
    case, _ = ticking(plait.join(A, B, on="l.v = r.v", within=30), 400)
    rows = [(ts, 3 if chance.random() < 0.9 else chance.randrange(50)) for ts in range(400)]
    grid = Grid(case, shape, chance)
    for at in range(40):
        grid.run(tick(grid, case, at, rows[10 * at : 10 * at + 10]))
    run = stats_of(grid.latest.values())
    assert [cell.cell for cell in run.cells] == [0, 1, 2, 3]
    assert sum(cell.comparisons for cell in run.cells) == run.comparisons > 10_000
    assert run.copies / run.tuples == run.copies_per_tuple == copies
    assert run.shuffled_bytes == grid.sent_bytes
    assert run.bytes_per_tuple == grid.sent_bytes / 800
    assert f"{copies:.2f} rows and {grid.sent_bytes / 800:,.2f} bytes shuffled a tuple" in metrics.progress(run)
    assert {cell.copies for cell in run.cells} == {800} or shape != "see_all"
    if balanced:
        assert run.balance_cv_percent < 15
    else:
        assert run.balance_cv_percent > 150, "of four cells one does it all: 173 percent"


KEPT = {"n": plait.count(), "mean": plait.mean("v"), "first": plait.first("ts"), "kinds": plait.distinct("v")}


@pytest.mark.crossed
@pytest.mark.parametrize(("size", "advance"), [(30, 7), (4, 3), (3, 10)])
@pytest.mark.parametrize("further", [{}, {"all": plait.collect("ts")}], ids=["panes", "tuples"])
def test_what_open_windows_need_is_kept_and_nothing_else(size: int, advance: int, further: Any) -> None:
    """In processes that remember all, some or none of the batches before, a batch being shorter or longer than a window."""
    query = plait.aggregate(A, size=f"{size}us", advance=f"{advance}us", by="v", compute=KEPT | further)
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    rows = [(3 * k // 2, k % 7) for k in range(240)]
    given = strategies.Given(A, schema, {0: rows}, (0,) * 240, None, [], strategies.table(schema, rows))
    case = Case(query, (given,), None)
    for workers in (1, 3, None):
        grid = Grid(case, (2, 1), random.Random(5), workers=workers or 1)
        for at in range(24):
            if workers is None:
                cell_state._CACHE.clear()
            grid.run(tick(grid, case, at, rows[10 * at : 10 * at + 10]))
        deliver(grid, [drain()])
        assert_same(grid.table.drop_columns([formats.KEY]), query.reference({"a": given.data}))
    grid = Grid(case, (2, 1), random.Random(5))
    grid.run(tick(grid, case, 0, rows))
    assert sum(store.written for store in grid.stores) <= size + advance  # of so many us there are fewer tuples


def test_sessions_are_kept_until_they_have_ended() -> None:
    """In processes that remember all, some or none of the batches before. One key's session goes on from the first tuple to the
    last, and does not keep the others' tuples in the state.
    """
    query = plait.aggregate(A, session="9us", by="v", compute=KEPT | {"all": plait.collect("ts")})
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    rows = [(k, 0 if k % 4 == 0 else k // 30 + 1) for k in range(600)]
    given = strategies.Given(A, schema, {0: rows}, (0,) * 600, None, [], strategies.table(schema, rows))
    case = Case(query, (given,), None)
    for workers in (1, 3, None):
        grid, held = Grid(case, (2, 1), random.Random(5), workers=workers or 1), []
        for at in range(60):
            if workers is None:
                cell_state._CACHE.clear()
            grid.run(tick(grid, case, at, rows[10 * at : 10 * at + 10]))
            held.append(sum(store.chunk_rows for store in grid.stores))
        deliver(grid, [drain()])
        assert_same(grid.table.drop_columns([formats.KEY]), query.reference({"a": given.data}))
        # The one that goes on has 150 tuples at the end; what is held besides has at most as many dead rows.
        assert held[-1] <= 2 * (150 + 40) + 64


def test_a_dedup_keeps_the_last_tuple_of_each_key_and_little_else() -> None:
    """In processes that remember some or none of the batches before. Nearly each tuple is near to another of its key that was
    dropped: who judged a part of them alone would keep others. Halfway the cells are laid out anew.
    """
    query = plait.dedup(A, by="v", within=40)
    schema = pa.schema([("ts", pa.int64()), ("v", pa.int64())])
    chance = random.Random(3)
    rows = [(k, chance.randrange(3) + k // 360 * 10) for k in range(960)]
    given = strategies.Given(A, schema, {0: rows}, (0,) * len(rows), None, [], strategies.table(schema, rows))
    case = Case(query, (given,), None)
    for workers in (3, None):
        grid, held, written = Grid(case, (2, 1), random.Random(5), workers=workers or 1), [], 0
        for at in range(96):
            if workers is None:
                cell_state._CACHE.clear()
            if at == 54:
                grid.relayout((3, 1))
            grid.run(tick(grid, case, at, rows[10 * at : 10 * at + 10]))
            held.append(sum(store.chunk_rows for store in grid.stores))
            written += sum(store.written for store in grid.stores)
        deliver(grid, [drain()])
        assert_same(grid.table.drop_columns([formats.KEY]), query.reference({"a": given.data}))
        # Cells write rows anew once each holds 256 that are dead, and some more; there are two cells or three.
        assert max(held) <= 3 * (256 + 40)
        assert written <= 2 * len(rows)


def test_a_rare_value_does_not_keep_all_that_came_after_it() -> None:
    """An as-of join without a bound keeps the last tuple of each value, however long ago it came, and little else."""
    case, _ = ticking(plait.asof(A, B, by="v"), 0)
    grid = Grid(case, (1, 1), random.Random(0))
    sizes, written = [], 0
    for at in range(120):
        values = [(at * 10 + n, 99 if at == 0 and n == 0 else n % 7) for n in range(10)]
        grid.run(tick(grid, case, at, values))
        sizes.append(sum(store.chunk_rows for store in grid.stores) + len(grid.state[0]["manifest"]) // 50)
        written += sum(store.written for store in grid.stores)
    assert max(sizes[80:]) <= max(sizes[:40]) + 5  # numbers grow a digit
    assert written <= 2 * 120 * 20


# --- idle sources -----------------------------------------------------------------------------------------------


def told(*streams: StreamProgress) -> list[Any]:
    """What a batch leaves in the state, and the next one finds there."""
    found = []
    for stream in streams:
        again = StreamProgress(stream.stream, (), open_ended=stream.open_ended)
        stored = formats.Manifest("f", progress={"a": stream.state()}).dump()
        again.restore(formats.Manifest.load(stored).progress["a"])
        found.append(again)
    return found


def test_a_silent_source_lets_go_of_the_frontier_and_takes_it_again() -> None:
    quick = plait.stream("a", source="s", sources=[0, 1], disorder=2, idle_after="4s")
    a, b = StreamProgress(quick, (0, 1), open_ended=False), StreamProgress(plait.stream("b"), (0,), open_ended=False)
    b.sources[0].largest = 500
    for second in range(4):
        a.sources[0].largest = 100 + second
        assert held([a, b])[0] == -(2**63)
        a.tick(1_000_000, {0})
        a, b = told(a, b)
    assert held([a, b])[0] == 101
    a.sources[1].largest = 50
    a.tick(0, {1})
    assert held([a, b])[0] == 48
    # However long a batch says it was, it counts for a quarter: rows that waited must have a chance to be read.
    for _ in range(3):
        a.tick(3_600_000_000, set())
        a, b = told(a, b)
        assert held([a, b])[0] == 48
    a.tick(3_600_000_000, set())
    assert held([a, b])[0] == 500, "only b holds it"
    b.ended = True
    assert held([a, b])[0] == 500, "nobody does, and nothing is promised beyond what was seen"
    a.ended = True
    assert held([a, b])[0] == 2**63 - 1


def test_a_stream_no_source_of_which_is_known_may_be_idle_too() -> None:
    a = StreamProgress(plait.stream("a", source="s", idle_after="1s"), (), open_ended=True)
    b = StreamProgress(plait.stream("b"), (0,), open_ended=False)
    b.sources[0].largest = 7
    for _ in range(4):
        assert held([a, b])[0] == -(2**63)
        a.tick(1_000_000, set())
        a, b = told(a, b)
    assert held([a, b])[0] == 7


# --- the cache of indexes ---------------------------------------------------------------------------------------


def test_indexes_that_nobody_uses_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_state, "_CACHE", {})
    monkeypatch.setattr(cell_state, "_USED", {})
    kept: Any = object()
    cell_state.remember(("ended", 0), kept, 2)
    for _ in range(400):
        for number in range(2):
            cell_state.remember(("running", number), kept, 2)
    assert set(cell_state._CACHE) == {("running", 0), ("running", 1)}
    assert cell_state._CACHE.keys() == cell_state._USED.keys()


def test_a_worker_that_is_behind_catches_up_from_memory(shared: Path) -> None:
    reads, results = [], []
    for folder in (None, shared):
        case, slices = ticking(WINDOWS["time"][0], 400)
        grid = Grid(case, (2, 1), random.Random(3), workers=2, shared=folder)
        reads.append(0)
        for at, rows in enumerate(slices):
            grid.run(tick(grid, case, at, rows))
            reads[-1] += sum(store.read for store in grid.stores)
        results.append(grid.table)
    assert results[0].equals(results[1])
    assert reads[0] > 50
    assert reads[1] < reads[0] / 4, "only those who are many steps behind read the state"


# --- what a checkpoint means ------------------------------------------------------------------------------------


def near_by(most: int) -> Any:
    def near(l: Any, r: Any) -> bool:
        if l.x > r.x:
            return l.x - r.x <= most
        return r.x - l.x <= most

    return near


def with_default(most: int) -> Any:
    def near(l: Any, r: Any, most: int = most) -> bool:
        return bool(l.x - r.x <= most and l.x > r.x)

    return near


def many(by: int) -> Any:
    def times(value: int) -> int:
        return value * by

    return times


def mark(on: Any) -> str:
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("x", pa.int64())])
    query = plait.join(plait.stream("a"), plait.stream("b"), on=on, within=1)
    return fingerprint(query, bind(query, {"a": schema, "b": schema}), layout.choose(query, (1, 1), 1, 1))


def test_values_that_a_condition_takes_from_outside_are_part_of_it() -> None:
    assert mark(near_by(3)) == mark(near_by(3)) != mark(near_by(4))
    assert mark(with_default(3)) == mark(with_default(3)) != mark(with_default(4))

    def calling(l: Any, r: Any) -> bool:
        return bool(times(l.x) > r.x and r.x > 0)

    times = many(3)
    first = mark(calling)
    assert mark(calling) == first
    times = many(4)
    assert mark(calling) != first
