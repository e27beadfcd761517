"""The small files that plait keeps beside Spark's, and published parts: a byte that changed, an end that is missing.

They are read as a start reads them, and parts as plait's readers do.
"""

from __future__ import annotations

import itertools
import random
import string
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.faults.cells import changed
from tests.faults.record import Record

import plait
import plait.connectors
from plait.connectors.sinks import open_sink
from plait.errors import DataError, PlaitError
from plait.order import TS_MAX
from plait.spark import formats
from plait.spark.formats import Announced, Card, Event, Note, Pins, Sources
from plait.spark.keep import control
from plait.spark.keep.checkpoint import read_card
from plait.spark.publish.target import Owner, Target


def judge(record: Record, kind: str, words: str, read: Callable[[], Any], whole: Any) -> None:
    """Whatever reads it says what was written, or that it can't be read."""
    try:
        found = read()
    except PlaitError as error:
        record.tell(kind, "refused", str(error))
        return
    except Exception as error:
        record.tell(kind, "differs", f"{words}: {type(error).__name__}: {error}")
        return
    record.tell(kind, "same" if found == whole else "differs", f"{words}: read as {found}")


def text(chance: random.Random) -> str:
    return "".join(chance.choice(string.ascii_letters + 'ü"\\ /{}:,0') for _ in range(chance.randrange(1, 30)))


def cards(record: Record) -> None:
    """`plait.json` of a checkpoint, as every start reads it."""
    kind = "plait.json of a checkpoint: changed or torn"
    chance = random.Random(f"{record.seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        file = Path(place) / Card.NAME
        while record.goes_on(kind):
            layout = chance.choice((None, {"kind": "band", "placed": [[chance.randrange(9), [0, 1]]], "wide": 0.25}))
            pins = Pins(
                text(chance),
                text(chance),
                *(chance.randrange(9) for _ in range(3)),
                text(chance),
                text(chance),
                (),
                layout,
            )
            card = Card(
                pins,
                text(chance),
                (text(chance), text(chance)),
                text(chance),
                chance.randrange(99),
                chance.choice((None, "/new")),
            )
            for _ in range(50):
                data, words = changed(card.text().encode(), chance)
                file.write_bytes(data)
                judge(record, kind, words, lambda: read_card(Path(place)), card)


def notes(record: Record) -> None:
    """`.plait` of a folder of results, which says whose parts stand there."""
    kind = ".plait of a folder of results: changed or torn"
    chance = random.Random(f"{record.seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        folder = Path(place)
        (folder / formats.part_name(0, ".parquet")).write_bytes(b"rows")
        while record.goes_on(kind):
            mine, run = text(chance), text(chance)
            owner = Owner(folder / "checkpoint", mine, "a query", 3, (run,), "now", str(folder))
            note = Note(mine, run, str(folder / "checkpoint"), "a query", "results", "parquet")
            for _ in range(50):
                data, words = changed(note.text().encode(), chance)
                (folder / Note.NAME).write_bytes(data)
                # Nothing is returned: it is our folder, or it is refused.
                judge(record, kind, words, lambda: Target(folder, "results", "parquet").check(owner), None)


STREAMS = {"a": Sources(None, "text"), "b": Sources([0, 1], "integers")}


def events(record: Record) -> None:
    """Control events, as a start reads them and as tasks do. One that seems torn is passed over, and that is told."""
    kind = "control event: changed or torn"
    chance = random.Random(f"{record.seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="faults-") as place, warnings.catch_warnings():
        folder = Path(place)
        while record.goes_on(kind):
            number = chance.randrange(10**6)
            event = chance.choice((
                Event(number, "drain"), Event(number, "end", "a"), Event(number, "end", "b", 1),
                Event(number, "heartbeat", "a", text(chance), chance.randrange(TS_MAX)), Event(number, "heartbeat", "b", 0, 7),
            ))  # fmt: skip
            file = folder / formats.event_name(0)
            for _ in range(50):
                data, words = changed(event.text().encode(), chance)
                file.write_bytes(data)
                warnings.simplefilter("error", UserWarning)
                judge(record, kind, words, lambda: _heard(folder, file), event)


def _heard(folder: Path, file: Path) -> Event | None:
    """What a start and a task make of the file."""
    try:
        control.announce(folder, STREAMS)
    except UserWarning as warning:
        raise (DataError if file.name in str(warning) else AssertionError)(str(warning)) from None
    return Event.read(file.read_text(errors="replace"))


def announced(record: Record) -> None:
    """`streams.card` of a control folder. It only helps who writes events: a start writes it anew."""
    kind = "streams.card: changed or torn"
    chance = random.Random(f"{record.seed} {kind}")
    while record.goes_on(kind):
        card = Announced(STREAMS | {text(chance): Sources([text(chance)], "text")})
        data, words = changed(card.text().encode(), chance)
        judge(record, kind, words, lambda: _announced(data), card)


def _announced(data: bytes) -> Announced:
    try:
        return Announced.read(data.decode(), "here")
    except ValueError as error:  # `control` takes it for none, and checks less
        raise DataError(str(error)) from None


def parts(record: Record) -> None:
    """A published part in Parquet, read by plait: its pages bear checksums, its footer is as long as Parquet makes it."""
    kinds = {"page": "part in Parquet: a page changed", "footer": "part in Parquet: its footer changed",
             "torn": "part in Parquet: torn"}  # fmt: skip
    chance = random.Random(f"{record.seed} parts")
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        folder = Path(place) / "rows"
        folder.mkdir()
        while any(record.goes_on(kind) for kind in kinds.values()):
            table = some_rows(chance)
            file = folder / formats.part_name(0, ".parquet")
            with open_sink(file, table.schema) as sink:
                sink.write(table)
            whole = file.read_bytes()
            pages = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
            for fate in itertools.islice(itertools.cycle(kinds), 60):
                if not record.goes_on(kinds[fate]):
                    continue
                at = {
                    "page": chance.randrange(pages),
                    "footer": chance.randrange(pages, len(whole)),
                    "torn": chance.randrange(len(whole)),
                }[fate]
                bit = 1 << chance.randrange(8)
                data = whole[:at] if fate == "torn" else whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
                file.write_bytes(data)
                words = f"{fate}, {at} of {len(whole)}, bit {bit}, of {table.num_rows} rows"
                judge(record, kinds[fate], words, lambda: _read(folder, table.schema), _values(table))


def some_rows(chance: random.Random) -> pa.Table:
    count = chance.choice((1, 20, 300, 3000))
    return pa.table({
        "ts": pa.array(sorted(chance.randrange(10**6) for _ in range(count)), pa.int64()),
        "x": pa.array([chance.choice((None, chance.random())) for _ in range(count)], pa.float64()),
        "of": [f"n{chance.randrange(50)}" for _ in range(count)],
    })  # fmt: skip


def _read(folder: Path, schema: pa.Schema) -> str:
    """As a query does that says which columns there are."""
    given = plait.connectors.feed(plait.stream("q", unit="us", schema=schema), folder)
    return _values(pa.Table.from_batches([chunk.batch for lane in given.lanes for chunk in lane.read()], schema))


def _values(table: pa.Table) -> str:
    return repr(table.to_pydict())
