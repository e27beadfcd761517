"""Doors for what is stored or sent: packed rows and state, files of checkpoints and control folders, keys, kept machine code.

A byte that is changed and leaves what is read a body of the same kind is not told here: who stores a checksum notices it. Here it is
that nothing else comes of it than an error with words. Pickles are not changed: they are read from what their owner keeps alone.
"""

# Tables of values stand as they are read: many on a line.
# ruff: noqa: E501  # tables of inputs, a line each
# fmt: off

from __future__ import annotations

import functools
import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from tests.fuzz.inputs import mutate
from tests.fuzz.inputs.hammer import Kind

from plait import order
from plait.core import calibration
from plait.spark import formats
from plait.spark.formats import Announced, Card, Event, Manifest, Note, PairRows, Pins, Sources
from plait.spark.keep import checkpoint, control
from plait.spark.plan import resume
from plait.spark.plan.layout import Layout
from plait.spark.publish import target

# --- bodies -------------------------------------------------------------------------------------------------


@functools.cache
def heads() -> tuple[formats.Head, ...]:
    from tests.spark.test_formats import HEADS

    return tuple(HEADS)


@functools.cache
def bodies() -> tuple[bytes, ...]:
    from tests.spark.test_formats import TABLE

    pairs = pa.table({"x": [1, 2], formats.FIRST: pa.array([0, 1], pa.int32()), formats.SECOND: pa.array([1, 0], pa.int32())})
    found = [formats.body(head, rest) for head in heads() for rest in (None, TABLE)]
    return (*found, PairRows.body(pairs, pa.array([b"a", b"b"])), formats.chunk_body(TABLE), formats.body(formats.Tick(1), b"bytes"))


def _body(rng: random.Random) -> bytes:
    """Changed anywhere; or its head alone as the tree of JSON that it is, with all that follows as it was."""
    whole = rng.choice(bodies())
    if rng.random() < 0.4:
        return mutate.data(rng, [whole], (b"{", b"}", b'"', b"null", b"[]", b"\xff" * 8))
    cut = 8 + int.from_bytes(whole[:4], "little")
    if rng.random() < 0.5:
        return _sealed(whole[:cut] + mutate.data(rng, [whole[cut:]]))
    head = json.loads(whole[8:cut])
    kept = {name: head[name] for name in ("version", "kind") if rng.random() < 0.95}
    changed = mutate.tree(rng, head)
    text = json.dumps(changed | kept if isinstance(changed, dict) else changed).encode()
    return _sealed(len(text).to_bytes(4, "little") + bytes(4) + text + whole[cut:])


def _sealed(data: bytes) -> bytes:
    """With the checksum of what it says now: what lies behind it is read, too."""
    return formats.sealed(data)


def _take_body(given: bytes) -> None:
    """By each of those who read bodies."""
    head, rest = formats.parse(given, stored="The state of a cell in the checkpoint")
    match head:
        case Manifest():
            assert isinstance(Manifest.load(given), Manifest)
        case PairRows():
            head.tables(rest)
        case formats.ChunkRows():
            formats.chunk_table(given)
        case formats.Bucket():
            return
        case _:
            formats.rows(rest)


# --- small files --------------------------------------------------------------------------------------------

PINS = Pins("f" * 16, "a join", 2, 1, 4, "s", "u", ("a value",), {"kind": "band", "rows": 2, "columns": 1, "why": "so", "term": 0, "wide": 8,
                                                                  "placed": [[3, [0, 1]]]})  # fmt: skip
CARDS = (Card(PINS, "i" * 32, ("r1", "r2"), "/out", 3).text(), Card(Pins("f", "q", 1, 1, 2, "s", "u"), "i", ("r",), "/out").text())
NOTES = (Note("i", "r", "/ck", "q", "results", "parquet").text(), Note("i", "r", "", "q", "dropped rows", "csv", ("a", "b")).text())
STREAMS = {"a": Sources(["x", "y"], "text"), "b": Sources(None, "integers")}
ANNOUNCED = (Announced(STREAMS).text(),)
EVENTS = tuple(event.text() for event in (Event(0, "drain"), Event(1, "end", "a", "x"), Event(2, "heartbeat", "b", 7, 10**9), Event(3, "end", "b")))


def _texts(corpus: tuple[str, ...]) -> Callable[[random.Random], bytes]:
    """JSON changed as text, as bytes, or as a tree."""

    def make(rng: random.Random) -> bytes:
        given = rng.choice(corpus)
        match rng.randrange(4):
            case 0:
                return mutate.text(rng, [given], ('{"version": 1}', "null", "[]", "NaN", '"', "{", "[" * 3_000)).encode("utf-8", "surrogatepass")
            case 1:
                return mutate.data(rng, [given.encode()])
        found = mutate.tree(rng, json.loads(given))
        if isinstance(found, dict) and rng.random() < 0.9:
            found.pop("version", None), found.pop("check", None)
            return formats._text(found).encode()
        return json.dumps(found).encode()

    return make


def _take_card(given: bytes) -> None:
    """As a start of a query, and `relayout`, take it."""
    Path("plait.json").write_bytes(given)
    card = checkpoint.read_card(Path.cwd())
    assert card is not None
    checkpoint.check_not_left(Path.cwd(), card)
    if card.pins.layout is not None:
        Layout.again(card.pins.layout, 4)
    assert card.pins.rows * card.pins.columns > 0
    assert card.first + 1 > 0
    assert len(card.runs[-1]) >= 0
    card.text()
    resume.check_pins(card.pins, PINS, "here", changed=False)


def _take_note(given: bytes) -> None:
    Path(Note.NAME).write_bytes(given)
    there = target.Target(Path.cwd(), "results", "parquet")
    owner = target.Owner(Path("/ck"), "i", "q", 3, ("r",), "r2", "/out")
    there.check(owner)
    there.came_to_nothing()
    there.last_run(owner)


def _take_event(given: bytes) -> None:
    """A file of a control folder, as a query that starts reads it, and as Spark's tasks do."""
    here = Path("control")
    here.mkdir(exist_ok=True)
    (here / Announced.NAME).unlink(missing_ok=True)
    (here / formats.event_name(0)).write_bytes(given)
    event = Event.read(given.decode(errors="replace"))
    control.announce(here, STREAMS)
    if event is not None:
        assert formats.parse(formats.body(event))[0] == event


def _take_announced(given: bytes) -> None:
    here = Path("announced")
    here.mkdir(exist_ok=True)
    (here / Announced.NAME).write_bytes(given)
    for file in here.glob("*.json"):
        file.unlink()
    control.write(here, "end", stream="a", source="x")


# --- keys, calibrations, machine code -----------------------------------------------------------------------

KEYS = tuple(
    order.encode(key)
    for key in ((1, 0, b"x", 5), ((5, 0, (b"x", 1.5)), (7, 1, "y", 2)), (2**70, -(2**70)), (b"\0\xff\0", ()), ((((1,),),),), (float("-inf"), -0.0))
)


def _key(rng: random.Random) -> bytes:
    if rng.random() < 0.01:
        return bytes([order._TUPLE]) * rng.choice((10, 900, 100_000)) + rng.choice(KEYS)
    return mutate.data(rng, KEYS, [bytes([tag]) for tag in (0, 5, 0xF, 0x10, 0x12, 0x20, 0x30)])


def _take_key(given: bytes) -> None:
    found = order.decode(given)
    assert isinstance(found, tuple)


@functools.cache
def calibrations() -> tuple[str, ...]:
    from dataclasses import fields

    costs = {each.name: 1e-9 for each in fields(calibration.Costs)}
    return (json.dumps({"version": calibration.VERSION, "machine": calibration.this_machine(), "measured": "2026-01-01", "costs": costs}),)


def _calibration(rng: random.Random) -> bytes:
    return _texts(calibrations())(rng)


def _take_calibration(given: bytes) -> None:
    """It is read or passed over."""
    Path("calibration.json").write_bytes(given)
    found = calibration._read.__wrapped__(Path("calibration.json"))
    assert found is None or found.told


@functools.cache
def _machine_file() -> tuple[bytes, bytes]:
    """An index of machine code and a file of it, as they are kept."""
    from plait.core.machine.kept import _File

    file = _File(Path.cwd(), "f-1", "stamp")  # type: ignore[no-untyped-call]
    file.save(("sig", ("x86",), "h"), {"code": b"\0" * 200, "names": ["a", "b"]})
    return Path("f-1.nbi").read_bytes(), Path("f-1.1.nbc").read_bytes()


def _machine(rng: random.Random) -> tuple[int, bytes]:
    which = rng.randrange(2)
    return which, mutate.data(rng, [_machine_file()[which]])


def _take_machine(given: tuple[int, bytes]) -> None:
    """A file that was changed is as good as none; one that was not is what was kept."""
    from plait.core.machine.kept import _File

    which, data = given
    kept = _machine_file()
    for place, name in enumerate(("f-1.nbi", "f-1.1.nbc")):
        Path(name).write_bytes(data if place == which else kept[place])
    file = _File(Path.cwd(), "f-1", "stamp")  # type: ignore[no-untyped-call]
    try:
        found = file.load(("sig", ("x86",), "h"))
    except OSError:  # Numba takes it for a file that is gone
        return
    assert found is None or found == {"code": b"\0" * 200, "names": ["a", "b"]}, pickle.dumps(found)


KINDS = (
    Kind("bodies", _body, _take_body),
    Kind("cards", _texts(CARDS), _take_card),
    Kind("notes", _texts(NOTES), _take_note),
    Kind("events", _texts(EVENTS), _take_event),
    Kind("announced", _texts(ANNOUNCED), _take_announced),
    Kind("keys", _key, _take_key),
    Kind("calibrations", _calibration, _take_calibration),
    Kind("machine-code", _machine, _take_machine),
)
