"""What is stored and sent comes back as it was; of another version it is refused by name; pickles name nothing that may move."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
import plait.spark
from plait.core.metrics import Counts
from plait.core.operator.buckets import PlainBuckets, Rows
from plait.spark import formats
from plait.spark.cell.pickled import Pickled
from plait.spark.formats import (
    Announced,
    Bucket,
    Card,
    CellReport,
    Chunk,
    ChunkRows,
    Event,
    Handed,
    Head,
    KeyedRows,
    LastTimer,
    LateRows,
    Manifest,
    Note,
    Offence,
    OperatorRows,
    PairRows,
    Passed,
    Pins,
    Sources,
    SourceState,
    Split,
    Step,
    StreamRows,
    StreamState,
    Tick,
    Written,
)  # fmt: skip
from plait.spark.keep import control

TABLE = pa.table({"x": pa.array([1, None, 3], pa.int64()), "s": pa.array(["a", "ü", None])})

SPLITS = [
    Split("x", "0a", "0b", 9, ended=False, least=3, least_seq="0a", offence=Offence(3, 8, "0b")),
    Split("y", "0a", "0c", 7, ended=True, least=7, least_seq="0c"),
]

MANIFEST = Manifest(
    "f" * 16, 40, 3, counts=Counts(rows=7, late={"a": 2}, behind={"b": 1}), events=5,
    steps=[
        Step("one", 20, [Chunk(0, 0, 3, 19, 64), Chunk(1, 1, 4, 30)], [3, 0]), Step("two", 30),
        Step("three", 40, [Chunk(2, 0, 1, 41)]),
    ],
    progress={
        "a": StreamState(False, 7, {"x": SourceState(20, last="0a"), "ü": SourceState(idle=True, silent_us=9)}),
        "b": StreamState(True, 0, {0: SourceState(5, True, 3), 1: SourceState()}),
        "c": StreamState(False, 0, {}),
    },
    upstreams={2: 17}, states=[0, 4], operator=1, shape="s", functions="u",
)  # fmt: skip

HEADS: list[Head] = [
    StreamRows("a", 1, SPLITS, tells=True, panes=False), StreamRows("ü", None, [], tells=False, panes=True),
    OperatorRows(2, 0, -(2**63)), Tick(1_000_000), Passed(formats.LATE), Event(3, "heartbeat", "a", "x", 9),
    Event(0, "drain"), PairRows(64), KeyedRows(["x"], False), LateRows("a", 3), CellReport(0, 1, 2**63 - 1, 5, None),
    CellReport(2, -3, 7, 0, 9, ("a", "x"), Counts(rows=4, late={"ü": 1}), (-3, 9), {"execution": 5},
               Counts(copies_by_input={"0": 3}), "node/1", 7, 90),
    LastTimer(8), Written(5), Handed("/dev/shm/ü"), Bucket(4, [1, 9]), ChunkRows(), MANIFEST, Manifest("f"),
]  # fmt: skip


def another(data: bytes, version: int | None = 99) -> bytes:
    """A body as another version would write it."""
    cut = 8 + int.from_bytes(data[:4], "little")
    head = json.loads(data[8:cut])
    del head["version"]
    text = json.dumps(head if version is None else {"version": version, **head}).encode()
    return len(text).to_bytes(8, "little") + text + data[cut:]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.kind)
@pytest.mark.parametrize("rest", [b"", b"\x00\xffbytes", TABLE], ids=["nothing", "bytes", "rows"])
def test_a_body_comes_back_as_it_was(head: Head, rest: Any) -> None:
    data = formats.body(head, rest)
    again, follows = formats.parse(data)
    assert again == head
    assert formats.parse(pa.py_buffer(data))[0] == head
    assert (len(data) - follows.size) % 8 == 0
    if isinstance(rest, bytes):
        assert follows.to_pybytes() == rest
    else:
        assert formats.table(follows).equals(rest)
    with pytest.raises(plait.RunError, match=r"A packed row is of version 99\. .* Install the same plait"):
        formats.parse(another(data))
    with pytest.raises(plait.RunError, match="A packed row has no version"):
        formats.parse(another(data, None))


def test_every_kind_of_body_is_tried() -> None:
    assert {type(head) for head in HEADS} == set(formats._HEADS.values())


@pytest.mark.parametrize("rows", [1, 50, 40_000])
def test_who_presses_the_columns_changes_no_byte(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Large rows are pressed on Arrow's threads, small ones are not: a body is the same either way, and is read the same."""
    table = pa.table(
        {"v": pa.array(range(rows)), "s": [f"{k % 7}/part" for k in range(rows)], "n": pa.nulls(rows, pa.float64())}
    )
    found = []
    for pays_from in (0, 1 << 62):
        monkeypatch.setattr(formats, "THREADS_PAY_BYTES", pays_from)
        found.append(formats.body(Tick(1), table))
    monkeypatch.undo()
    assert found == [formats.body(Tick(1), table)] * 2
    assert formats.table(formats.parse(found[0])[1]).equals(table)


def test_no_rows_are_nothing() -> None:
    head, rest = formats.parse(formats.body(Tick(1), TABLE.slice(0, 0)))
    assert (head, formats.rows(rest)) == (Tick(1), None)


OPERATOR = plait.operator(
    plait.stream("a"), buckets=1, route=lambda t: 0, state=list, process=lambda s, t: [], output={"x": "int64"}
)


def test_state_of_another_version_is_refused() -> None:
    chunk, bucket = formats.chunk_body(TABLE), Pickled(OPERATOR).body(3, [1], [7, 7, 5])
    assert formats.chunk_table(chunk).equals(TABLE)
    assert Pickled(OPERATOR).bucket(bucket) == (3, [1], [5, 7])
    begin_anew = r"99\. .* Go on with the plait that wrote it, or begin anew"
    with pytest.raises(plait.RunError, match="The state of a cell in the checkpoint is of version " + begin_anew):
        Manifest.load(another(MANIFEST.dump()))
    with pytest.raises(plait.RunError, match="A chunk of the checkpoint is of version " + begin_anew):
        formats.chunk_table(another(chunk))
    with pytest.raises(plait.RunError, match="The state of a bucket in the checkpoint is of version " + begin_anew):
        Pickled(OPERATOR).bucket(another(bucket))
    before = json.dumps({"fingerprint": "f", "steps": []}).encode()  # as it was written before there were versions
    with pytest.raises(plait.RunError, match="The state of a cell in the checkpoint has no version"):
        Manifest.load(before)


STORED: dict[str, Callable[[bytes], Any]] = {
    "manifest": Manifest.load,
    "chunk": formats.chunk_table,
    "bucket": lambda data: Pickled(OPERATOR).bucket(data),
}


def stored(kind: str) -> bytes:
    if kind == "bucket":
        return Pickled(OPERATOR).body(3, [1, "x"], [7, 5])
    return MANIFEST.dump() if kind == "manifest" else formats.chunk_body(TABLE)


@pytest.mark.parametrize("kind", STORED)
def test_a_byte_of_the_state_that_changed_is_noticed(kind: str) -> None:
    """Whichever it is, and however: before anything is computed from it, and before Arrow or pickle sees it."""
    data = stored(kind)
    for at in range(len(data)):
        for bit in (1, 128):
            other = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            with pytest.raises(plait.RunError, match=r"is damaged\. Its checksum|has no version|is of version"):
                STORED[kind](other)
        with pytest.raises(plait.RunError, match=r"is damaged\. Its checksum|has no version"):
            STORED[kind](data[:at])
    with pytest.raises(plait.RunError, match=r"is damaged\. Its checksum is gone"):
        STORED[kind](data[:4] + bytes(4) + data[8:])


def test_what_this_version_has_stored_is_sealed() -> None:
    """A copy in shared memory is this version's or nothing: one without a checksum is one whose beginning is gone."""
    data = formats.chunk_body(TABLE)
    assert formats.is_sealed(data)
    for other in (b"", data[:4], data[:8], data[:4] + bytes(4) + data[8:], data[:-1], data + b"x"):
        assert not formats.is_sealed(other)


@pytest.mark.parametrize("kind", STORED)
def test_state_without_checksums_is_read(kind: str) -> None:
    """As version 1 wrote it."""
    data = stored(kind)
    cut = 8 + int.from_bytes(data[:4], "little")
    head = data[8:cut].replace(b'"version":2', b'"version":1')
    assert head != data[8:cut]
    again, whole = STORED[kind](data[:4] + bytes(4) + head + data[cut:]), STORED[kind](data)
    assert again.equals(whole) if kind == "chunk" else again == whole


def test_a_file_that_changed_is_noticed() -> None:
    """Of every file that plait keeps beside the state: each byte, and each end that could be missing."""
    event = Event(4, "heartbeat", "a", "x", 9)
    for record, read in ((CARD, Card.read), (NOTE, Note.read), (ANNOUNCED, Announced.read), (event, Event.read)):
        text = record.text()
        for at in range(len(text) - 1):  # behind it there is a newline
            for other in (chr(ord(text[at]) ^ 1), chr(ord(text[at]) ^ 2), ""):
                changed = text[:at] + other + text[at + 1 :]
                try:
                    found = read(changed, "here")
                except (ValueError, plait.RunError):
                    continue
                torn = read == Event.read and not changed.rstrip().endswith("}")
                assert found == record or (found is None and torn), f"{changed!r} is read as {found}"
            try:
                assert read(text[:at], "here") is None
                assert read == Event.read
            except (ValueError, plait.RunError):
                pass


def test_files_without_checksums_are_read() -> None:
    """As version 1 wrote them."""
    for record, read in (
        (CARD, Card.read),
        (NOTE, Note.read),
        (ANNOUNCED, Announced.read),
        (Event(4, "drain"), Event.read),
    ):
        found = json.loads(record.text())
        del found["check"]
        assert read(json.dumps(found | {"version": 1}), "here") == record
        with pytest.raises((ValueError, plait.RunError), match="damaged"):
            read(json.dumps(found), "here")


def test_records_have_names() -> None:
    """No list in which a place means something: whatever holds numbers of different meaning is a named field."""
    found = json.loads(formats.body(MANIFEST)[8:])
    assert found["chunks"] == {
        "number": [0, 1, 2], "input": [0, 1, 0], "rows": [3, 4, 1], "last_ts": [19, 30, 41], "size": [64, 0, 0]
    }  # fmt: skip
    assert found["steps"]["chunks"] == [2, 0, 1]
    assert set(found["progress"]["a"]["sources"]) == {"name", *(each.name for each in fields(SourceState))}


CARD = Card(Pins("f", "q", 1, 2, 3, "s", "u", ("a lock",)), "id", ("one", "two"), "/out", 7, "/new")
NOTE = Note("id", "run", "/checkpoint", "q", "results", "parquet")
ANNOUNCED = Announced({"a": Sources(None, "text"), "b": Sources([0, 1], "integers")})


def test_files_come_back_as_they_were() -> None:
    assert Card.read(CARD.text(), "c") == CARD
    assert Note.read(NOTE.text(), "n") == NOTE
    assert Announced.read(ANNOUNCED.text(), "f") == ANNOUNCED
    for event in (Event(3, "heartbeat", "a", "x", 9), Event(0, "drain"), Event(1, "end", "a"), Event(1, "end", "a", 0)):
        assert Event.read(event.text()) == event


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"version": 1}', '{"version": 1, "pins": {}}'])
def test_files_that_are_not_whole(text: str) -> None:
    for read in (Card.read, Note.read, Announced.read):
        with pytest.raises((ValueError, plait.RunError)):
            read(text, "f")


def test_files_of_another_version_are_refused() -> None:
    for version, words in (('"version": 99', "is of version 99"), ('"was": 1', "has no version")):
        for record, read, what in ((CARD, Card.read, "The checkpoint 'here'"), (NOTE, Note.read, "'here'"),
                                   (ANNOUNCED, Announced.read, "The folder of control events 'here'"),
                                   (Event(4, "drain"), Event.read, "Control event here")):  # fmt: skip
            text = record.text().replace(f'"version": {formats.VERSION}', version)
            with pytest.raises(plait.RunError, match=f"^{what} {words}. This plait reads version"):
                read(text, "here")


def test_a_control_folder_of_another_version_is_left_alone(tmp_path: Path) -> None:
    control.announce(tmp_path, ANNOUNCED.streams)
    plait.spark.heartbeat(tmp_path, "b", ts=1, source=1)
    for file in (tmp_path / Announced.NAME, tmp_path / formats.event_name(0)):
        whole = file.read_text()
        file.write_text(whole.replace(f'"version": {formats.VERSION}', '"version": 99'))
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(plait.RunError, match="is of version 99"):
            control.announce(tmp_path, ANNOUNCED.streams)
        if file.name == Announced.NAME:
            with pytest.raises(plait.RunError, match="is of version 99"):
                plait.spark.drain(tmp_path)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        file.write_text(whole)


# --- pickles ------------------------------------------------------------------------------------------------


def paths_in(data: bytes) -> set[str]:
    """Modules and names that a pickle says."""
    found = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.add(f"{module}.{name}")
            return super().find_class(module, name)

        def persistent_load(self, name: Any) -> Any:
            return Mine

    Reader(io.BytesIO(data)).load()
    return found


class Mine:
    """A class of the user's."""

    row: Any = None


def pickled(state: Any, function: Any = None) -> tuple[Any, set[str]]:
    node = plait.operator(
        plait.stream("a"), buckets=1, route=lambda t: 0, state=list, process=function or (lambda s, t: []),
        output={"x": "int64"},
    )  # fmt: skip
    data = Pickled(node).body(0, state, [])
    _, again, _ = Pickled(node).bucket(data)
    return again, paths_in(formats.parse(data)[1].to_pybytes())


def test_pickles_name_nothing_of_plait_that_may_move() -> None:
    row = Rows(pa.table({"x": [1, 2]}), [10, 11], "a").view(1)
    error = plait.DataError("a fact", why="so", do="this")
    mine = Mine()
    mine.row = row
    again, named = pickled([row, row, error, plait.timer(7), plait.ALL, plait.DataError, plait.count, mine])
    assert {path for path in named if path.startswith("plait")} == {
        "plait.spark.formats.kept_tuple", "plait.spark.formats.kept_error", "plait.spark.formats.named"
    }  # fmt: skip
    assert (again[0].x, again[0].ts, again[0].stream) == (2, 11, "a")
    assert again[0] is again[1]
    assert (type(again[2]), again[2].fact, again[2].why, again[2].do) == (plait.DataError, "a fact", "so", "this")
    assert again[3:7] == [plait.timer(7), plait.ALL, plait.DataError, plait.count]
    assert again[4] is plait.ALL
    assert again[7].row.x == 2


def test_classes_of_a_script_hold_tuples_under_those_names_too() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("class Own:\n    row = None\ndef process(state, t):\n    return Own()", space)
    mine = space["Own"]()
    mine.row = Rows(pa.table({"x": [5]}), [10], "a").view(0)
    again, named = pickled(mine, space["process"])
    assert again.row.x == 5
    assert {path for path in named if path.startswith("plait")} == {"plait.spark.formats.kept_tuple"}


def test_what_is_plaits_own_is_not_stored() -> None:
    with pytest.raises(
        plait.RunError, match=r"it holds plait.core.operator.buckets.PlainBuckets, which is plait's own"
    ):
        pickled([PlainBuckets])
