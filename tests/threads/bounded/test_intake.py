"""Slabs one after another are the stream in total order, each as soon as the frontier allows; who holds it would at a gate."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples

import plait
from plait.core.rings import SEQ, SOURCE
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import bind
from plait.threads.bounded.intake import Intake, Rows, in_pieces_of_one, joined

SCHEMA = pa.schema([("ts", pa.int64()), ("n", pa.int64())])
SOURCES = ["p", "q", "r"]


def intake(disorder: int, *, keys: bool = False, pending: int = 1 << 20) -> Intake:
    a = plait.stream("a", unit="us", disorder=disorder, sources=SOURCES)
    b = plait.stream("b", unit="us")
    bound = bind(plait.asof(a, b), {"a": SCHEMA, "b": SCHEMA})
    return Intake(bound, {"a": SCHEMA, "b": SCHEMA}, keys=keys, pending=pending)


def rows(ts: list[int], first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"ts": ts, "n": list(range(first, first + len(ts)))}, schema=SCHEMA)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_slabs_are_the_stream_in_order(seed: int) -> None:
    dice = random.Random(seed)
    disorder = dice.choice((0, 0, 3))
    given = intake(disorder, keys=True)
    left: dict[str, list[int]] = {}
    for name in SOURCES:
        times = sorted(dice.randint(0, 30) for _ in range(dice.randint(0, 40)))
        left[name] = [max(0, ts - dice.randint(0, disorder)) for ts in times]
        highest = 0
        for at, ts in enumerate(left[name]):  # no further back than it may
            left[name][at], highest = max(ts, highest - disorder), max(highest, ts)
    expected = sorted(
        (ts, place, number + 1) for place, name in enumerate(SOURCES) for number, ts in enumerate(left[name])
    )
    given.close("b")
    sent, got, before = dict.fromkeys(SOURCES, 0), [], BEFORE_ALL
    while True:
        stream, source = given.holder()
        if stream is None:
            break
        assert stream == "a"
        part = left[source][sent[source] :][: dice.randint(1, 5)]  # type: ignore[index]
        if part:
            given.push("a", source, rows(part, sent[source]))  # type: ignore[index]
            sent[source] += len(part)  # type: ignore[index]
        else:
            given.close("a", source)
        if dice.random() < 0.4:
            found, frontier = given.released()
            times = found["a"].ts
            assert (times >= before).all()
            assert (times < frontier).all()
            before = frontier
            columns = (found["a"].table.column(name).to_pylist() for name in (SOURCE, SEQ))
            got += list(zip(times.tolist(), *columns, strict=True))
    found, frontier = given.released()
    assert frontier == AFTER_ALL
    columns = (found["a"].table.column(name).to_pylist() for name in (SOURCE, SEQ))
    got += list(zip(found["a"].ts.tolist(), *columns, strict=True))
    assert got == expected
    assert given.held == 0


def test_who_has_not_spoken_holds_the_frontier() -> None:
    given = intake(0)
    assert given.holder() == ("a", "p")
    given.push("a", "p", rows([5]))
    assert given.holder() == ("a", "q")
    for name in ("q", "r"):
        given.push("a", name, rows([3]))
    assert given.holder() == ("b", None)  # of which no source is known
    given.push("b", None, rows([9]))
    assert given.holder() == ("a", "q")  # the first of those at 3
    assert given.frontier == 3
    given.close("a", "q")
    assert given.holder() == ("a", "r")
    given.close("a")
    assert given.frontier == 9
    given.close("b")
    assert given.holder() == (None, None)
    assert given.frontier == AFTER_ALL


def test_text_under_codes_and_text_that_is_not_are_one_column() -> None:
    plain = pa.table({"t": ["a", "b"]})
    coded = pa.table({"t": pa.array(["b", None, "c"]).dictionary_encode()})
    both = joined([Rows(plain, np.arange(2)), Rows(coded, np.arange(3))])
    assert both.table["t"].to_pylist() == ["a", "b", "b", None, "c"]
    assert both.table["t"].type == pa.string()
    other = pa.table({"t": pa.array(["c", "a"]).dictionary_encode()})
    both = joined([Rows(coded, np.arange(3)), Rows(other, np.arange(2))])
    assert pa.types.is_dictionary(both.table["t"].type)
    assert both.table["t"].to_pylist() == ["b", None, "c", "c", "a"]


def test_text_too_long_for_its_offsets_gets_wider_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.threads.bounded.intake._NARROW", 8)
    made = in_pieces_of_one(
        pa.concat_tables([pa.table({"t": ["aaaa"], "b": [b"x"]}), pa.table({"t": ["b"], "b": [b"y"]})])
    )
    assert made.schema.types == [pa.large_string(), pa.large_binary()]
    assert made["t"].to_pylist() == ["aaaa", "b"]


def test_a_stream_of_long_text_has_results_of_its_own_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.threads.bounded.intake._NARROW", 8)
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    rows = pa.concat_tables([pa.table({"ts": [k], "t": ["some text"]}) for k in range(5)])
    found = plait.asof(a, b, by="t").run({"a": rows, "b": rows})
    assert found["a_t"].type == found["b_t"].type == pa.string()
    assert found["b_t"].to_pylist() == ["some text"] * 5
