"""Groups of rows that threads encode: the file is that of one writer, byte for byte, and a failure leaves nothing."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.connectors import row_groups, sinks
from plait.connectors.sinks import open_sink
from plait.errors import DataError

GROUP = 7


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "ROW_GROUP_ROWS", GROUP)


def drawn(seed: int, rows: int) -> pa.Table:
    """Of all kinds of columns: with NULLs or without, nested ones, texts that have dictionaries, and sometimes very many."""
    chance = random.Random(seed)

    def column(draw: Callable[[], Any], kind: pa.DataType) -> pa.Array:
        nulls = chance.choice([0, 0.3, 1])
        return pa.array([None if chance.random() < nulls else draw() for _ in range(rows)], kind)

    kinds: list[tuple[Callable[[], Any], pa.DataType]] = [
        (lambda: chance.randrange(-(2**62), 2**62), pa.int64()),
        (lambda: chance.randrange(2**53), pa.timestamp("us", "UTC")),
        (chance.random, pa.float64()),
        (lambda: chance.random() < 0.5, pa.bool_()),
        (lambda: "n" * chance.randrange(40), pa.string()),
        (lambda: chance.randbytes(3), pa.binary()),
        (lambda: dt.date(2024, 1, chance.randrange(1, 29)), pa.date32()),
        (lambda: [chance.randrange(9) for _ in range(chance.randrange(4))], pa.list_(pa.int32())),
        (lambda: {"a": chance.randrange(9), "b": "x"}, pa.struct([("a", pa.int8()), ("b", pa.string())])),
    ]
    wanted = [chance.choice(kinds) for _ in range(chance.choice([1, 5, 40]))]
    return pa.table({f"c{k}": column(*each) for k, each in enumerate(wanted)})


def file_of(path: Path, table: pa.Table, threads: int, *, cut: int = 5) -> bytes:
    with open_sink(path, table.schema, threads=threads) as sink:
        for batch in table.to_batches(max_chunksize=cut):
            sink.write(batch)
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(12))
def test_the_file_is_that_of_one_writer(seed: int, tmp_path: Path) -> None:
    rows = [0, 1, GROUP, GROUP + 1, 5 * GROUP, 40 * GROUP + 3][seed % 6]
    table = drawn(seed, rows)
    one = file_of(tmp_path / "one.parquet", table, 1)
    assert file_of(tmp_path / "many.parquet", table, 2 + seed % 3) == one
    assert pq.read_table(tmp_path / "many.parquet").equals(table)
    assert pq.read_metadata(tmp_path / "many.parquet").num_row_groups == -(-rows // GROUP)


def test_a_footer_is_written_as_it_was_read(tmp_path: Path) -> None:
    """Also fields that lie far apart, numbers of all sizes, and lists of fifteen and more."""
    values = [0, 1, -1, 63, -64, 64, 2**31, -(2**31), 2**63 - 1, -(2**63)]
    struct = [
        (1, 1, True), (2, 2, False), (30, 3, b"\x07"), (31, 6, -5), (300, 9, (6, values)), (301, 9, (6, [7] * 15)),
        (302, 10, (8, [b"a", b"", b"x" * 200])), (303, 9, (1, [b"\x01", b"\x02"])), (304, 7, b"12345678"),
        (305, 12, [(1, 9, (12, [[], [(1, 5, 3)]]))]),
    ]  # fmt: skip
    assert row_groups.struct_of(row_groups.struct_bytes(struct)) == struct
    file_of(tmp_path / "a.parquet", drawn(3, 200), 1)
    data = (tmp_path / "a.parquet").read_bytes()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    assert row_groups.struct_bytes(row_groups.struct_of(footer)) == footer


def test_a_group_that_can_not_be_encoded_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = sinks._Parquet._alone
    seen: list[str] = []

    def failing(self: Any, table: pa.Table | None) -> pa.Buffer:
        seen.append(threading.current_thread().name)
        if len(seen) == 3:
            raise pa.ArrowInvalid("broken")
        return own(self, table)

    monkeypatch.setattr(sinks._Parquet, "_alone", failing)
    with pytest.raises(DataError, match="Broken"):
        file_of(tmp_path / "a.parquet", drawn(1, 20 * GROUP), 2)
    assert list(tmp_path.iterdir()) == []
    assert not [t for t in threading.enumerate() if t.name in seen], "threads go with the file"


def test_an_aborted_file_lets_its_threads_go(tmp_path: Path) -> None:
    before = threading.active_count()
    sink = open_sink(tmp_path / "a.parquet", drawn(1, 9).schema, threads=3)
    sink.write(drawn(1, 9 * GROUP).to_batches()[0])
    sink.abort()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == before


@dataclass(frozen=True)
class Mutant:
    name: str
    old: str
    new: str


MUTANTS = [
    Mutant("pages where they were in a file of their own", "v + by if each in _PAGES_AT else v", "v"),
    Mutant("dictionaries where they were", "_PAGES_AT = (9, 10, 11)", "_PAGES_AT = (9, 10)"),
    Mutant("groups that begin where they were", "            value += by\n", "            value += 0\n"),
    Mutant("all groups are the first", "            value = number\n", "            value = 0\n"),
    Mutant("the rows of the first group", "_FOOTER_ROWS: self._rows,", ""),
    Mutant("groups as they become ready", "popleft().result()", "pop().result()"),
    Mutant("fifteen are one more byte", "if len(values) >= 15:", "if len(values) > 15:"),
    Mutant("numbers that are never below 0", "value << 1 if value >= 0 else ~(value << 1)", "value << 1"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_mutants_are_caught(mutant: Mutant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(row_groups.__file__).read_text()
    assert mutant.old in source
    broken: dict[str, Any] = {"__name__": "broken", "__annotations__": {}}
    exec(compile(source.replace(mutant.old, mutant.new), "broken", "exec"), broken)
    assert differs(tmp_path, monkeypatch, row_groups.__dict__) is None
    assert differs(tmp_path, monkeypatch, broken) is not None


def differs(place: Path, patch: pytest.MonkeyPatch, module: dict[str, Any]) -> str | None:
    """What is wrong with files and structs of the module."""
    patch.setattr(sinks, "GroupsOnThreads", module["GroupsOnThreads"])
    for seed, rows in ((0, 15 * GROUP), (1, 3 * GROUP), (5, 40 * GROUP)):
        table = drawn(seed, rows)
        try:
            if file_of(place / "many.parquet", table, 3) != file_of(place / "one.parquet", table, 1):
                return f"another file of seed {seed}"
        except Exception as error:
            return repr(error)
    if module["_moved"]([(5, 6, 4), (7, 4, 0)], 10, 3) != [
        (5, 6, 14),
        (7, 4, 3),
    ]:  # Arrow's writer gives groups no numbers
        return "another number"
    struct = [(1, 6, -3), (2, 9, (6, [1] * 15))]
    try:
        return None if module["struct_of"](module["struct_bytes"](struct)) == struct else "another struct"
    except Exception as error:
        return repr(error)
