"""`layout="band"`: tuples go by ranges of a band's column, and the result is the reference's, whatever the values are.

That no schedule, fault or change of layout shows is tests/spark/test_cells.py's to hold: its random layouts are by band, too.
Here are values at the ends of their types and of ranges, and what the layout promises: few copies, and no cell with more than
twice the mean.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests import strategies
from tests.reference.judge import assert_same, on_reference
from tests.spark import feeds
from tests.spark.grid import Batch, Grid, at_places, drain, plain_windows
from tests.strategies import Case

import plait
import plait.spark
from plait.query.bind import bind
from plait.spark import formats
from plait.spark.formats import MANIFEST
from plait.spark.keep.observed import placed, suited
from plait.spark.pack.ranges import RangeColumns, Spans, _Cut, band_places, bands, range_columns
from plait.spark.plan.layout import Layout, choose, mix

A, B = (plait.stream(name, unit="us") for name in "ab")
HOWS = ("inner", "left", "right", "semi", "anti")

#: Around 0, at the edges of ranges of +-2 (32 wide), where floats are 1 and 2 apart, at the ends.
FLOATS = (
    None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.5, -2.0, 32.0, math.nextafter(32.0, 0), 30.0, 34.0, -32.0,
    -30.0, 1e15, 1e15 + 2, 2.0**53, 2.0**53 + 2, -(2.0**53), 1e17, 1e17 + 16, 1e300, -1e300, 1.7e308, -1.7e308,
)  # fmt: skip
SMALL = (
    None,
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    1e-45,
    0.5,
    4.0,
    3.5,
    -4.0,
    2.0**24,
    2.0**24 + 2,
    3.4e38,
    -3.4e38,
)
INTS = (None, 0, -1, 1, 3, 48, 47, 51, -48, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63 - 3, -(2**63), -(2**63) + 3)
SCHEMA = pa.schema([("ts", pa.int64()), ("f", pa.float64()), ("g", pa.float32()), ("i", pa.int64())])

CONDITIONS = {
    "floats": "abs(l.f - r.f) <= 2",
    "of width 0": "l.f - r.f = 0",
    "of width 0, moved": "abs(l.f - r.f - 2) <= 0",
    "from one side": "l.f - r.f between 1 and 1e280",
    "empty": "l.f - r.f >= 5 and l.f - r.f <= 3",
    "narrower than floats are apart": "abs(l.f - r.f) <= 1e-300",
    "float32": "abs(l.g - r.g) <= 0.5",
    "float32 and float64": "abs(l.g - r.f) <= 0.25",
    "integers": "abs(l.i - r.i) <= 3",
    "integers, half open": "l.i - r.i > -3 and l.i - r.i < 3 and l.f is not null",
    "integers and floats": "abs(l.i - r.f) <= 2",
    "expressions": "abs(l.f * 2 - (r.f + r.g)) <= 3",
}


@pytest.fixture(autouse=True, scope="module")
def plain_kernels() -> Iterator[None]:
    """As in test_cells.py: each condition is met once, and all would be compiled."""
    with plain_windows():
        yield


def rows(chance: random.Random, count: int) -> list[tuple[Any, ...]]:
    return [(k // 2, chance.choice(FLOATS), chance.choice(SMALL), chance.choice(INTS)) for k in range(count)]


def case_of(query: Any, sides: list[list[tuple[Any, ...]]], streams: tuple[Any, Any] = (A, B)) -> Case:
    given = [
        strategies.Given(s, SCHEMA, {0: own}, (0,) * len(own), None, [], strategies.table(SCHEMA, own))
        for s, own in zip(streams, sides, strict=True)
    ]
    return Case(query, tuple(given), None)


def fed(grid: Grid, case: Case, begin: int, end: int) -> None:
    """One batch that brings rows of these numbers of both streams."""
    tasks = []
    for each in case.given:
        (plan,) = grid.packs[each.stream.name]
        part = each.data.slice(begin, end - begin)
        tasks.append((plan, at_places(part, pa.array(range(begin, begin + part.num_rows), pa.int64()))))
    grid.run(Batch(tasks))


def some_layout(case: Case, chance: random.Random) -> Layout:
    """By any of the condition's bands, with places of their own choice for ranges that there are."""
    bound = bind(case.query, case.schemas)
    cells = chance.randint(2, 5)
    made = choose(case.query, "band", 4, 4, cells=cells)
    term = chance.randrange(len(bands(bound)))
    spans = range_columns(bound, term, 8).spans(
        1, case.given[1].data.append_column(formats.TS, case.given[1].data["ts"])
    )
    there = sorted(set(spans.own.tolist()))
    some = chance.sample(there, min(3, len(there)))
    placed = tuple((number, tuple(chance.sample(range(cells), chance.randint(1, cells)))) for number in some)
    return replace(made, term=term, wide=chance.choice((8, 3, 1)), placed=placed)


@pytest.mark.crossed
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", CONDITIONS)
def test_values_at_the_ends_of_types_and_of_ranges(name: str, how: str) -> None:
    """To a grid in the middle, and back to other ranges."""
    chance = random.Random(f"{name} {how}")
    case = case_of(plait.join(A, B, on=CONDITIONS[name], within=(9, 5), how=how), [rows(chance, 90), rows(chance, 90)])
    grid = Grid(case, some_layout(case, chance), chance)
    for step, begin in enumerate(range(0, 90, 15)):
        if step in (2, 4):
            line = (1, 3) if how == "right" else (3, 1)
            grid.relayout(line if step == 2 else some_layout(case, chance))
        fed(grid, case, begin, begin + 15)
    grid.run(drain())
    expected = on_reference(case)
    assert expected.num_rows > (0 if name != "empty" else -1)
    assert_same(grid.table.drop_columns([formats.KEY]), expected)


def test_a_row_that_is_dropped_is_shown_by_one_of_its_cells_and_nothing_of_that_stays() -> None:
    """Every tenth is late, and near an edge between two hot ranges: a right one comes to all cells. Then to other ranges, a grid
    and back: rows that came before and after a move lie in one state."""
    chance = random.Random(3)
    a, b = (plait.stream(name, unit="us", late="drop") for name in "ab")
    sides = [
        [(k - 5 * (k % 10 == 9), chance.choice((31.0, 31.5, 32.0, 33.0)), 0.5, k) for k in range(100)] for _ in "ab"
    ]
    case = case_of(plait.join(a, b, on="abs(l.f - r.f) <= 2", within=30), sides, streams=(a, b))
    made = choose(case.query, "band", 4, 4, cells=3)
    hot = replace(made, placed=((0, (0, 1)), (1, (1, 2))))
    grid = Grid(case, hot, chance)
    for step, begin in enumerate(range(0, 100, 10)):
        if step in (3, 5, 6):
            grid.relayout({3: made, 5: (2, 2), 6: hot}[step])
        fed(grid, case, begin, begin + 10)
    grid.run(drain())
    assert_same(grid.table.drop_columns([formats.KEY]), on_reference(case))
    late = [row["i"] for row in grid.late["b"]]
    assert sorted(late) == sorted(row["i"] for row in grid.late["a"]) == list(range(9, 100, 10))


# --- ranges ---------------------------------------------------------------------------------------------------

WIDTHS = ("0", "1e-300", "1e-9", "0.3", "7", "1e9", "1e200")


def plan_of(width: str, kind: pa.DataType, wide: int = 8) -> RangeColumns:
    schema = pa.schema([("ts", pa.int64()), ("x", kind)])
    return range_columns(
        bind(plait.join(A, B, on=f"abs(l.x - r.x) <= {width}", within=1), dict.fromkeys("ab", schema)), 0, wide
    )


def of_any_bits(seed: int, count: int, kind: type[np.floating[Any]]) -> np.ndarray:
    """Finite floats of every size, and small whole numbers."""
    dice = np.random.default_rng(seed)
    bits = (
        dice.integers(0, 2**32, count, np.uint32) if kind is np.float32 else dice.integers(0, 2**64, count, np.uint64)
    )
    found = np.concatenate([bits.view(kind), dice.integers(-50, 50, count).astype(kind)])
    return found[np.isfinite(found)]


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize(("width", "wide"), [*((w, 8) for w in WIDTHS), ("0", 1), ("0.3", 1)])
def test_a_range_s_number_never_falls_and_no_partner_lies_outside_of_what_is_reached(
    width: str, wide: int, kind: Any
) -> None:
    """Partners at the very edge of the band, a few floats to either side of it, and as far as rounding lets them match."""
    if kind is np.float32 and width in ("1e-300", "1e200"):
        width = "1e-30" if width == "1e-300" else "1e29"
    plan = plan_of(width, pa.float64() if kind is np.float64 else pa.float32(), wide)
    values = of_any_bits(7, 3000, kind)
    cut = _Cut(plan.band, plan.wide)
    about = cut.edge * (1 + np.arange(-400, 400) * 2.0**-20)  # where ranges begin to grow
    every = np.concatenate([values.astype(np.float64), about, -about, [cut.edge, -cut.edge]])
    assert (np.diff(cut.numbers(np.sort(np.clip(every, -1e300, 1e300)))) >= 0).all()
    size = kind(width)
    with np.errstate(all="ignore"):
        near = [values]
        for side in (-size, size):
            edge = (values + side).astype(kind)
            near += [edge, np.nextafter(edge, kind(-np.inf)), np.nextafter(edge, kind(np.inf))]
        left, right = np.tile(values, len(near)), np.concatenate(near)
        fits = np.abs(left - right) <= size
    assert fits.sum() > len(values)
    ts = pa.array(np.zeros(len(left), np.int64))
    owned, other = (plan.spans(side, pa.table({formats.TS: ts, "x": v})) for side, v in ((0, left), (1, right)))
    assert (owned.usable & other.usable)[fits].all()
    assert ((other.first <= owned.own) & (owned.own <= other.last))[fits].all()
    # And the other way round, for joins whose right tuples are owned.
    assert ((owned.first <= other.own) & (other.own <= owned.last))[fits].all()


@pytest.mark.parametrize("spread", [1e4, 1e6, 1e9])
def test_uniform_values_have_few_copies_and_even_cells(spread: float) -> None:
    plan, n, cells = plan_of("10", pa.float64()), 50_000, 8
    made = choose(plait.join(A, B, on="abs(l.x - r.x) <= 10", within=1), "band", 8, 8)
    got = []
    for side in (0, 1):
        x = np.random.default_rng(side).random(n) * spread
        table = pa.table({formats.TS: pa.array(np.arange(n)), "x": x})
        got.append(band_places(made, plan.spans(side, table), side, np.arange(n, dtype=np.uint64)).sum(1))
    assert got[0].sum() == n
    assert n < got[1].sum() < 1.2 * n
    held = got[0] + got[1]
    assert held.max() < 2 * held.mean()
    assert len(held) == cells


def test_what_reaches_very_many_ranges_goes_to_all_cells() -> None:
    made = replace(choose(plait.join(A, B, within=1), "band", 4, 4), placed=((7, (1,)),))
    numbers = np.array([0, 0])
    spans = Spans(numbers, numbers, np.array([2**40, 0]), np.array([True, True]))
    assert band_places(made, spans, 1, np.zeros(2, np.uint64)).sum(0).tolist() == [4, 1]


# --- what was seen ---------------------------------------------------------------------------------------------

#: Coordinates of so many tuples, by a generator: what makes cells uneven.
HOT = {
    "uniform": lambda dice, n: dice.random(n) * 1e6,
    "nine in ten at one point": lambda dice, n: np.where(dice.random(n) < 0.9, 7.0, dice.random(n) * 1e6),
    "nine in ten in one range": lambda dice, n: np.where(
        dice.random(n) < 0.9, dice.random(n) * 160, dice.random(n) * 1e6
    ),
    "all in one range": lambda dice, n: dice.random(n) * 100,
    "three points": lambda dice, n: dice.choice([0.0, 1e4, -1e5], n, p=[0.5, 0.3, 0.2]),
    "few ranges": lambda dice, n: dice.random(n) * 1000,
    "a tail": lambda dice, n: np.minimum(dice.zipf(1.3, n), 10**9) * 100.0,
    "a bell": lambda dice, n: dice.normal(0, 500, n),
}


@pytest.mark.crossed
@pytest.mark.parametrize("cells", [2, 3, 8, 16])
@pytest.mark.parametrize("name", HOT)
def test_no_cell_has_more_than_twice_the_mean_once_that_was_seen(name: str, cells: int) -> None:
    """Of tuples of the same kind that come later, too."""
    plan, n = plan_of("10", pa.float64()), 20_000
    made = choose(plait.join(A, B, on="abs(l.x - r.x) <= 10", within=1), "band", 4, 4, cells=cells)

    def spans(seed: int) -> Spans:
        return plan.spans(
            seed % 2, pa.table({formats.TS: pa.array(np.arange(n)), "x": HOT[name](np.random.default_rng(seed), n)})
        )

    def held(layout: Layout, first: int) -> np.ndarray:
        words = mix(np.arange(n))
        return sum(band_places(layout, spans(first + side), side, words).sum(1) for side in (0, 1))

    seen = replace(made, placed=placed(spans(0), spans(1), cells))
    for first in (0, 2):
        assert held(seen, first).max() <= 2 * held(seen, first).mean()
        assert held(seen, first).max() <= held(made, first).max() * 1.02
    assert held(seen, 2).sum() <= n * (1 + cells)
    if name == "uniform" and cells < 16:
        assert seen.placed == ()


def seen_by(on: str, sides: list[list[tuple[Any, ...]]], only: str | None = None, how: str = "inner") -> Layout:
    """What is found for four cells when these rows are in the window."""
    case = case_of(plait.join(A, B, on=on, within=1000, how=how), sides)
    grid = Grid(case, "auto", random.Random(1))
    fed(grid, case, 0, 400)
    cells = [{MANIFEST if n == "manifest" else n: d for n, d in cell.items()} for cell in grid.state]
    return suited(grid.bound, cells, grid.layout, 4, only=only)


def spread(hot: float, width: float, *, seed: int = 3) -> list[list[tuple[Any, ...]]]:
    """400 rows of two streams; `hot` of them have one `i` and an `f` in one place."""
    chance = random.Random(seed)

    def row(k: int) -> tuple[Any, ...]:
        near = chance.random() < hot
        return (
            k,
            5.0 if near else chance.uniform(0, width),
            chance.uniform(0, width),
            5 if near else chance.randrange(1000),
        )

    return [[row(k) for k in range(400)] for _ in range(2)]


@pytest.mark.parametrize(
    ("on", "hot", "width", "found", "words"),
    [
        ("abs(l.f - r.f) <= 1", 0, 1e4, "4x1 (by band)", "of 800 tuples seen, .* by a.f and b.f, [0-9]+ in a grid$"),
        ("abs(l.f - r.f) <= 1", 0.4, 1e4, "4x1 (by band, 1 hot range split)", "in a grid$"),
        ("abs(l.f - r.f) <= 1", 0.95, 1e4, "2x2", "by band$"),
        ("abs(l.f - r.f) <= 1", 0.6, 1e4, "2x2", "has 417, 408 by band$"),  # less, but not by a tenth
        ("abs(l.f - r.f) <= 5000", 0, 1e4, "2x2", "by band$"),
        ("l.i = r.i", 0, 1e4, "4x1 (by hash)", "in a grid"),
        ("l.i = r.i", 0.9, 1e4, "2x2", "by hash"),
        ("l.i = r.i and abs(l.f - r.f) <= 1", 0, 1e4, "4x1 (by hash)", "by band$"),
        ("l.i <= r.i", 0, 1e4, "2x2", "rates unknown"),
        ("abs(l.f - r.f) <= 1 and abs(l.g - r.g) <= 2", 0.9, 1e4, "4x1 (by band)", "by a.g and b.g"),
    ],
)  # fmt: skip
def test_auto_goes_by_what_was_seen(on: str, hot: float, width: float, found: str, words: str) -> None:
    layout = seen_by(on, spread(hot, width))
    assert layout.describe() == found
    assert re.search(words, layout.why), layout.why
    if layout.kind == "band":
        assert Layout.again(json.loads(json.dumps(layout.told())), 4) == layout


def test_by_band_stays_by_band_and_other_queries_as_they_are() -> None:
    assert seen_by("abs(l.f - r.f) <= 5000", spread(0, 1e4), "band").kind == "band"
    assert seen_by("abs(l.f - r.f) <= 1", spread(0, 1e4), how="right").describe() == "1x4 (by band)"
    assert seen_by("abs(l.f - r.f) <= 1", spread(0, 1e4), how="full").describe() == "1x1"
    nothing = seen_by("abs(l.f - r.f) <= 1", [side[:30] for side in spread(0, 1e4)])
    assert (nothing.describe(), nothing.placed) == ("2x2", ())


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (plait.asof(A, B), "layout='band' with an as-of join. Its partner is the last one in time"),
        (plait.join(A, B, on="abs(l.f - r.f) <= 1", last=5), "layout='band' with a count window"),
        (plait.join(A, B, on="abs(l.f - r.f) <= 1", tumbling_count=5), "layout='band' with a count window"),
        (plait.join(A, B, on="abs(l.f - r.f) <= 1", within=5, how="full"), "layout='band' with how='full'"),
        (plait.join(A, B, on="l.f <= r.f", within=5), "layout='band', and the condition has no band"),
        (plait.join(A, B, on=lambda l, r: True if l.f > r.f else False, within=5), "the condition has no band"),  # noqa: SIM210
        (plait.aggregate(A, size="5us", compute={"n": plait.count()}), "layout='band' for what is no join"),
    ],
)  # fmt: skip
def test_what_is_refused(query: Any, words: str) -> None:
    schemas = dict.fromkeys(query.streams(), SCHEMA)
    with pytest.raises(plait.QueryError, match=words):
        range_columns(bind(query, schemas), choose(query, "band", 4, 4).term, 8)


# --- on Spark -------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_query_goes_from_a_grid_to_ranges_and_back_and_the_bytes_are_the_same(spark: Any, tmp_path: Path) -> None:
    """Late rows among them. `auto` says why it went by band, goes on so from the checkpoint, and what was asked for otherwise is
    refused; then back to a grid."""
    chance = random.Random(11)
    a, b = (plait.stream(name, unit="us", disorder=3, late="drop") for name in "ab")
    query = plait.join(a, b, on="abs(l.f - r.f) <= 50", within=(40, 25), how="left")
    data = {
        name: pa.table({
            "ts": pa.array([k // 2 - 9 * (k % 40 == 39) for k in range(240)], pa.int64()),
            "f": [chance.choice((None, math.inf, 5.0, 5.5, chance.uniform(-1e4, 1e4), 1e17)) for _ in range(240)],
        })
        for name in "ab"
    }  # fmt: skip

    def frame(layout: Any) -> Any:
        given = {n: feeds.frame(spark, tmp_path / n, feeds.spark_schema(t), streaming=True) for n, t in data.items()}
        return query.on_spark(given, layout=layout, cells=None if isinstance(layout, tuple) else 3)

    def go(step: int, layout: Any, checkpoint: str, *, drain: bool = False) -> None:
        for name, table in data.items():
            feeds.write_files(tmp_path / name, table.slice(60 * step, 60), [30], first=2 * step)
        plait.spark.write_ordered(
            frame(layout), tmp_path / "out", checkpoint=tmp_path / checkpoint, drain=drain
        ).awaitTermination()

    go(0, (3, 1), "grid")
    why = plait.spark.relayout(frame("auto"), tmp_path / "grid", tmp_path / "band")
    assert re.match(r"3x1 \(by band.*tuples seen, the busiest cell has \d+ by a.f and b.f, \d+ in a grid", why)
    go(1, "auto", "band")
    go(2, "band", "band")
    said = plait.spark.explain(frame("auto"), tmp_path / "band", executors=3)
    assert why in said
    figures = r"^  by band, 3x1: 1\.\d\d copies and \d+ bytes shuffled a tuple; to the busiest executor come [345]\d"
    assert re.search(figures, said, re.MULTILINE)
    with pytest.raises(plait.QueryError, match="explain with executors= and without a checkpoint"):
        plait.spark.explain(frame("auto"), executors=3)
    with pytest.raises(plait.RunError, match="differs in layout"):
        go(2, (3, 1), "band")
    plait.spark.relayout(frame((2, 1)), tmp_path / "band", tmp_path / "back")
    go(3, (2, 1), "back", drain=True)
    expected = query.reference(data)
    assert expected.num_rows > 240
    feeds.assert_identical(feeds.published(tmp_path / "out"), expected)


@pytest.mark.spark
def test_batch_by_ranges(spark: Any, tmp_path: Path) -> None:
    chance = random.Random(2)
    case = case_of(plait.join(A, B, on=CONDITIONS["integers"], within=(9, 5)), [rows(chance, 90), rows(chance, 90)])
    frames = {}
    for name, table in case.data.items():
        feeds.write_files(tmp_path / name, table, [40])
        frames[name] = spark.read.parquet(str(tmp_path / name))
    df = case.query.on_spark(frames, layout="band", cells=3)
    assert plait.spark.explain(df).endswith(
        "3 cells, 3x1 (by band): tuples go by ranges of the band's column, and few are copied"
    )
    feeds.assert_identical(feeds.collected(df), on_reference(case))
