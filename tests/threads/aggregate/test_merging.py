"""Sources' tallies merged by one thread and by several: the same rows as the reference's, whoever takes which portion."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.aggregate import groups as pane_groups
from plait.core.aggregate.accumulators import Count
from plait.core.aggregate.groups import Groups
from plait.core.kernels.panes import SLOT_END, STATE_WORDS
from plait.core.machine.line import LINE, address
from plait.query.identical import difference
from plait.threads import words as shared
from plait.threads.aggregate import wiml
from plait.threads.aggregate.hive import memory, merging, parts, tallies, windows
from plait.threads.gate.words import READY_EVENT
from plait.threads.life.halt import halt

SOURCES, ROWS = 4, 1500
WINDOWS = {"apart": ("70us", "70us"), "with gaps": ("50us", "80us"), "sliding": ("300us", "70us")}
KEYS = {"small": ["k"], "two": ["k", "t"], "text": ["t"], "floats": ["x"], "none": []}
COMPUTE = {
    "n": plait.count(), "some": plait.count_where("x > 0"), "sum": plait.sum("x"), "total": plait.sum("k"), "var": plait.var("x"),
    "covar": plait.covar("x", "k"), "low": plait.min("x"), "high": plait.max("k"), "first": plait.first("x"),
    "last": plait.last("k"), "where": plait.mean("x", where="k > 3"),
}  # fmt: skip


def data(source: int, seed: int) -> pa.RecordBatch:
    """Keys come and go, so that groups are forgotten; many ties, between sources too; values of every size, NaN and NULL."""
    dice = np.random.default_rng((seed, source))
    x = dice.normal(size=ROWS) * 10.0 ** dice.integers(-20, 20, ROWS)
    x[dice.random(ROWS) < 0.02] = np.nan
    keys = dice.integers(-3, 12, ROWS) + 9 * (np.arange(ROWS) // 300)
    return pa.record_batch({
        "ts": np.cumsum(dice.integers(0, 3, ROWS)),
        "k": pa.array(keys, mask=dice.random(ROWS) < 0.01),
        "t": pa.array([f"t{key % 7}" if key % 11 else None for key in keys.tolist()]),
        "x": pa.array(x, mask=dice.random(ROWS) < 0.05),
    })  # fmt: skip


def query(window: str, keys: str) -> plait.Aggregate:
    size, advance = WINDOWS[window]
    stream = plait.stream("a", unit="us", sources=SOURCES)
    return plait.aggregate(stream, size=size, advance=advance, by=KEYS[keys], compute=COMPUTE)


def pushed(run: object, given: list[pa.RecordBatch], seat: int, crew: int, seed: int) -> None:
    dice = np.random.default_rng((seed, seat))
    for source in range(seat, SOURCES, crew):
        at = 0
        while at < ROWS:
            n = int(dice.integers(1, 400))
            run.push("a", source, given[source].slice(at, n))  # type: ignore[attr-defined]
            at += n
        run.close("a", source)  # type: ignore[attr-defined]


def noted(calls: list[str], name: str, method: Any) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        calls.append(name + " in order" * named.get("large", False))
        return method(*given, **named)

    return call


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Everything is worth helpers, and rows in order; there is little memory. Gives which ways were gone."""
    for name, least in (("FIRST_TALLIES", 64), ("FIRST_TABLE", 16), ("FIRST_PANES", 2)):
        monkeypatch.setattr(tallies, name, least)
    monkeypatch.setattr(memory.Hive.__init__, "__kwdefaults__", {"nodes": 2, "words": 64})
    monkeypatch.setattr(parts, "FEW", 1)
    monkeypatch.setattr(windows, "LARGE", 1)
    monkeypatch.setattr(pane_groups, "FIRST", 16)
    large: list[str] = []
    for name in ("_merge_window", "_merge_parts"):
        monkeypatch.setattr(windows.HiveWindows, name, noted(large, name, getattr(windows.HiveWindows, name)))
    return large


@pytest.mark.parametrize("helpers", [0, 1, 3])
@pytest.mark.parametrize(("window", "keys"), [*((w, "small") for w in WINDOWS), *(("apart", k) for k in KEYS if k != "small"),
                                              ("sliding", "two")])  # fmt: skip
def test_rows_are_those_of_the_reference(
    window: str, keys: str, helpers: int, little: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiml, "helpers", lambda: helpers)
    given = [data(source, 11) for source in range(SOURCES)]
    made = query(window, keys)
    wanted = made.reference({"a": {k: pa.table(source) for k, source in enumerate(given)}})
    for strategy, at_once in (("wiml", 1), ("wiml", 40), ("wiml_shared", 40)):  # winset by winset, and several
        monkeypatch.setattr(windows, "AT_ONCE", at_once)
        with made.on_threads(strategy=strategy, schemas={"a": given[0].schema}, pending=9_999) as run:
            threads = [threading.Thread(target=pushed, args=(run, given, seat, 2, 5)) for seat in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            run.drain()
            assert difference(wanted, run.table()) is None, strategy
            assert len(run.stats().threads_cpu_s) == 1 + helpers
    if keys in ("small", "text"):
        assert ("_merge_parts in order" if window == "sliding" else "_merge_window") in little


class Helped(parts.Team):
    """With threads that help; they end with the block."""

    def __init__(self, helpers: int) -> None:
        self._control_words = np.zeros(shared.CONTROL_WORDS + LINE, np.int64)
        self._control_words[shared.EVENTS] = 1
        super().__init__(helpers, self._control_words, 0)
        self._threads = [threading.Thread(target=merging.serve, args=self.at, daemon=True) for _ in range(helpers)]

    def __enter__(self) -> Helped:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        halt(np.zeros(READY_EVENT + LINE, np.int64), self._control_words, shared.STOPPING)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize("helpers", [0, 2])
@pytest.mark.parametrize("seed", range(6))
def test_parts_of_all_stretches_by_their_keys(seed: int, helpers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of different lengths, some stretches over their ends; keys with NULL, some known before, then all; slots in the order
    of keys, and as parts come.
    """
    monkeypatch.setattr(parts, "FEW", 1)
    dice = np.random.default_rng(seed)
    sources = int(dice.integers(1, 6))
    sizes = 1 << dice.integers(2, 9, sources)
    first = dice.integers(0, 1000, sources)
    end = first + dice.integers(1, sizes + 1)
    where = parts.stretches(first, end)
    held = []
    for size in sizes:
        null = dice.integers(0, 3, size) // 2
        kept = np.stack((dice.integers(0, 200, size) * (7 if seed % 2 else 70_000) * (1 - null), null))
        counts = dice.integers(1, 9, (size, 1))
        held.append(tallies.Parts(kept, kept[0, :0], [counts], [address(kept), size, address(counts), size, 1, 0]))
    stretches = list(zip(held, first, end, sizes, strict=True))
    keys = np.concatenate(
        [own.kept[:, np.arange(low, high) & (size - 1)] for own, low, high, size in stretches], axis=1
    )
    added = np.concatenate([own.slots[0][np.arange(low, high) & (size - 1), 0] for own, low, high, size in stretches])
    wanted = {tuple(key): int(added[(key == keys.T).all(axis=1)].sum()) for key in np.unique(keys.T, axis=0)}
    node = plait.aggregate(plait.stream("s", unit="us"), size=10, by="k", compute={"n": plait.count()})
    known = Groups(node, pa.schema([("ts", pa.int64()), ("k", pa.int64())]), lambda number: np.ones(number, bool))
    known.numbers(keys[:, : where.total * (seed % 3) // 3])  # some are known before
    with Helped(helpers) as team:
        for ordered in (True, False, True):
            total, count = where.total, Count()
            state, pane, group = np.zeros(STATE_WORDS, np.int64), np.zeros((2, 1), np.int64), np.empty(total, np.int64)
            slot_group, slot = np.empty(total + 1, np.int64), np.empty(total, np.int64)
            base, span = where.at - where.first, np.zeros((1, 4, sources), np.int64)
            span[0, 0], span[0, 1] = first, end
            together = parts.Together(held, where, team, lambda what, n: np.empty(n, np.int64))
            while True:
                ranked, slot_of = known.in_order(), np.full(known.capacity, -1, np.int64)
                ranked = ranked if ordered else ranked[:0]
                missed = together.look_in(known, group, slot_of if ordered else None)
                (into,) = together.go_into([count], slot, total, apart=True)
                if together.merge_parts(
                    np.zeros(1, np.int64), span, base, ranked, state, *pane, slot_group, slot_of, group, slot, missed
                ):
                    break
                assert (slot_of == -1).all()
                together.add(known, missed[0], group)
            assert (slot_of == -1).all()
            found = known.words[:, slot_group[: state[SLOT_END]]].T
            assert {tuple(key): int(n) for key, n in zip(found, into[:, 0], strict=False)} == wanted
            if ordered:
                assert [tuple(key) for key in found] == sorted(wanted, key=lambda key: (key[1], key[0]))
