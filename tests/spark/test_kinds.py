"""Kinds of position and of sources' names: each is whole, tells its own rows and nobody else's, and can be added in one place."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark.grid import at_offsets, packed

import plait
from plait.query.bind import bind
from plait.spark import formats
from plait.spark.pack import positions, source_names
from plait.spark.pack.pack import Frame, PackPlan
from plait.spark.pack.positions import BLOCK, PATH, ROW, Given, Kind, of_one_file, told, unquoted
from plait.spark.plan.stages import layouts, pack_plan

ROWS = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), "s": ["x", "x", "y"]})
IN_FILES = ROWS.append_column(PATH, unquoted(pa.array(["file:///f/a", "file:///f/a", "file:///f/b"])))
NUMBERS = pa.array([0, 1, 0], pa.int64())

#: A task's rows by each kind of position, its seq column, and what is told of the first row. A new kind stands here too.
EXAMPLES: dict[str, tuple[pa.Table, str | None, str]] = {
    "kafka": (at_offsets(ROWS, pa.array([7, 8, 9], pa.int64())), None, "offset 7 of topic 't', partition 0"),
    "row": (IN_FILES.append_column(ROW, NUMBERS), None, "file:///f/a, row 0"),
    "block": (IN_FILES.append_column(BLOCK, NUMBERS), None, "file:///f/a, row 0 from byte 0 on"),
    "content": (ROWS, None, "a row"),
    "column": (ROWS, "ts", "seq 1"),
}
#: Rows whose source is named so, what it is named by, and the names.
NAMED: dict[str, tuple[pa.Table, Any, list[Any] | None]] = {
    "file": (IN_FILES, "file:///f/", ["a", "a", "b"]),
    "partition": (at_offsets(ROWS, pa.array([7, 8, 9], pa.int64())), "partition", [0, 0, 0]),
    "column": (ROWS, "s", ["x", "x", "y"]),
    "constant": (ROWS, "me", None),
}


def pieces(kind: Kind) -> list[bytes]:
    table, seq_column, _ = EXAMPLES[kind.name]
    found = kind.read(Given(table, "a", seq_column, tuple(ROWS.column_names)))
    assert len(found.words()) == table.num_rows
    return found.pieces(np.arange(table.num_rows)).to_pylist()  # type: ignore[no-any-return]


def test_every_kind_has_an_example_here() -> None:
    assert {kind.name for kind in positions.kinds()} == EXAMPLES.keys()
    assert {naming.name for naming in source_names.namings()} == NAMED.keys()


@pytest.mark.parametrize("kind", positions.kinds(), ids=lambda kind: kind.name)
def test_a_position_is_told_by_its_own_kind(kind: Kind) -> None:
    made = pieces(kind)
    assert told(made[0]) == EXAMPLES[kind.name][2]
    assert made == sorted(made), "rows of a task stand in order here"
    assert of_one_file(made[0], made[1]) == (kind.of_file is not Kind.of_file)
    assert not of_one_file(made[0], made[2])


@pytest.mark.parametrize("kind", positions.kinds(), ids=lambda kind: kind.name)
def test_what_a_kind_says_of_itself_goes_together(kind: Kind) -> None:
    assert not kind.marks or kind.finds is not None, f"{kind.name!r} has marks, and nobody adds them"
    assert set(kind.marks) <= set(EXAMPLES[kind.name][0].column_names), f"marks of {kind.name!r} are not in its example"
    assert kind.copies is None or all(kind.copies("c")), f"{kind.name!r} says nothing of copies"
    assert kind.skipping


@pytest.mark.parametrize("naming", source_names.namings(), ids=lambda naming: naming.name)
def test_names_are_read(naming: source_names.Naming) -> None:
    table, by, names = NAMED[naming.name]
    found = naming.names("a", by, table)
    assert (None if found is None else found.to_pylist()) == names
    assert set(naming.marks) <= set(table.column_names)


@pytest.mark.parametrize(
    ("source", "name"), [(plait.FILE, "file"), (plait.PARTITION, "partition"), ("s", "column"), (None, "constant")]
)
def test_a_stream_is_served_by_one(source: Any, name: str) -> None:
    assert source_names.naming_of(plait.stream("a", source=source)).name == name


@pytest.mark.parametrize("lacks", ["name", "finds", "read", "told"])
def test_what_a_kind_lacks_is_named_where_it_is_made(lacks: str) -> None:
    whole = {each.name: vars(positions.KAFKA)[each.name] for each in fields(Kind)}
    del whole[lacks]
    with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{lacks}'"):
        Kind(**whole)


def test_two_kinds_can_not_have_one_name() -> None:
    with pytest.raises(plait.QueryError, match="There is a kind of position 'row' already"):
        positions.register(replace(positions.ROWS, ordered=False))


def by_line(given: Given) -> positions.Positions:
    numbers = given.table.column("line").to_numpy()
    return replace(positions.COLUMN.read(replace(given, seq_column="line")), by=(-numbers,))


def test_a_new_kind_of_source_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a log, whose lines are counted backwards: a plan finds them, a task packs them in their order."""
    toy = Kind(
        name="log", finds=lambda stream, frame: [] if "line" in frame.columns else None, read=by_line,
        told=lambda found: None, columns=("line",),
    )  # fmt: skip
    ours = positions.kinds()
    monkeypatch.setattr(positions, "_known", {})
    for each in (toy, *ours):
        positions.register(each)
    table = pa.table({"ts": pa.array([3, 2, 1], pa.int64()), "line": pa.array([10, 11, 12], pa.int64())})
    stream = plait.stream("a", unit="us")
    kind, extra = positions.found_in(stream, table.to_pandas())
    assert (kind, extra) == (toy, [])
    bound = bind(plait.join(stream, plait.stream("b", unit="us"), within=1), {"a": table.schema, "b": table.schema})
    frame = Frame(None, "constant", 0, 0, kind.name, None)
    (cells, *_) = layouts(bound, (1, 1), 1, 1)
    plan: PackPlan = pack_plan(stream, frame, bound, cells)
    assert "line" in plan.columns
    shuffled = table.take(random.Random(1).sample(range(3), 3))
    ((_, body),) = packed(plan, shuffled)
    head, rest = formats.parse(body)
    assert formats.table(rest).column("line").to_pylist() == [12, 11, 10]
    assert [(split.rows, split.largest) for split in head.splits] == [(3, 3)]
