"""The harness itself: a few faults of each cheap kind, and slips that it must notice. `make faults` has more, and Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.faults import cells, files, threads
from tests.faults.__main__ import main
from tests.faults.kinds import GROUPS, KINDS
from tests.faults.record import Record

from plait.connectors import sinks
from plait.core import sources
from plait.spark import formats

QUICK = [name for name, kind in KINDS.items() if kind.room in ("cells", "files")]


def test_no_fault_of_the_cheap_kinds_changes_a_byte(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--faults", "25", "--kinds", *QUICK, "lying"]) == 0
    told = capsys.readouterr().out
    assert "| all |" in told
    assert all(f"{name}: " in told for name in QUICK)


def test_a_fault_is_a_function_of_its_seed() -> None:
    found = [Record(5, 20), Record(5, 20), Record(6, 20)]
    for record in found:
        files.cards(record)
        cells.state(record)
    assert found[0].counts == found[1].counts
    assert all(sum(counts.values()) >= 20 for record in found for counts in record.counts.values())


def test_kinds_that_are_not_there_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--kinds", "typhoons"])
    assert "there is no kind typhoons" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert {name for names in GROUPS.values() for name in names} == set(KINDS)


def no_checksum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(formats, "is_whole", lambda data: True)
    patch.setattr(formats, "is_sealed", lambda data: True)


def fields_unchecked(patch: pytest.MonkeyPatch) -> None:
    def unchecked(found: dict[str, Any]) -> None:
        found.pop("check", None)
        found.pop("version")

    patch.setattr(formats, "_checked", unchecked)


def pages_unchecked(patch: pytest.MonkeyPatch) -> None:
    whole = pq.ParquetWriter
    patch.setattr(
        sinks.pq, "ParquetWriter", lambda *args, **options: whole(*args, **options | {"write_page_checksum": False})
    )


def nothing_is_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sources, "slack_us", lambda stream: 1 << 40)


SLIPS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Record], None]]] = {
    "state without checksums": (no_checksum, cells.state),
    "shared memory without checksums": (no_checksum, cells.shared_memory),
    "files without checksums": (fields_unchecked, files.cards),
    "events without checksums": (fields_unchecked, files.events),
    "parts without checksums": (pages_unchecked, files.parts),
    "a lie that nobody sees": (nothing_is_late, threads.lying),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_slips_are_noticed(monkeypatch: pytest.MonkeyPatch, slip: str) -> None:
    plant, kind = SLIPS[slip]
    plant(monkeypatch)
    record = Record(1, 8 if kind is threads.lying else 60)
    kind(record)
    assert record.differences
