"""Every choice of `on_threads`: where the order is strict, the reference's bytes; where it is looser, its rows.

Combinations of a query's choices: gates, strategies and layouts, trees, precisions, Emitter, indexes, shares, policies. Each run
is pushed in small pieces by turns, so that workers take batches of different lengths. A choice that is added to `Options` must be
entered here: `test_no_choice_is_left_out`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.join.choice import KINDS
from plait.core.policy import Load
from plait.query.identical import difference
from plait.threads.aggregate import designs
from plait.threads.gate import GATES
from plait.threads.join.strategies import registry
from plait.threads.options import Options

ROWS, PIECE = 160, 23
#: Options that are no choice of how results are made: rooms, names, what is asked of results besides their order.
NO_CHOICE = {
    "capacity", "pending", "unread_results", "batch", "max_sources", "keys", "schemas", "stall_after_s", "cache_dir", "rates",
    "linger",
}  # fmt: skip
Choice = Mapping[str, Any]
#: The product's own: other tests register rivals.
STRATEGIES, DESIGNS = (tuple(each.name for each in module._OURS) for module in (registry, designs))


def tables(seed: int = 16) -> dict[str, pa.Table]:
    dice = np.random.default_rng(seed)
    return {
        name: pa.table({
            "ts": np.sort(dice.integers(0, ROWS // 2, ROWS)), "k": dice.integers(0, 4, ROWS), "x": dice.integers(0, 30, ROWS),
        })
        for name in "ab"
    }  # fmt: skip


def streams() -> list[plait.Stream]:
    return [plait.stream(name, unit="us") for name in "ab"]


def nothing() -> np.ndarray:
    return np.zeros(1)


def by_key(t: Any) -> Any:
    return t.k


def summed(state: Any, t: Any) -> Any:
    state[0] += t.x
    yield (t.k, state[0])


def one_more(load: Load) -> int:
    """A policy that is never content, so that shares change hands all the time."""
    return load.workers % load.most + 1


JOIN = plait.join(*streams(), on="l.k = r.k AND abs(l.x - r.x) <= 3", within=6)
AGGREGATE = plait.aggregate(
    streams()[0], size="12us", advance="4us", by="k",
    compute={"n": plait.count(), "s": plait.sum("x"), "m": plait.mean("x"), "last": plait.last("x")},
)  # fmt: skip
OPERATOR = plait.operator(streams(), buckets=8, route=by_key, state=nothing, process=summed,
                          output={"k": "int64", "s": "float64"})  # fmt: skip
GATED: list[Choice] = [{"gate": gate} for gate in GATES if gate != "auto"]
SHARED: list[Choice] = [
    {}, {"elastic": 4, "workers": 2}, {"elastic": 4, "workers": 2, "policy": True}, {"elastic": 4, "policy": (90, 70, 45)},
    {"elastic": 4, "policy": one_more},
]  # fmt: skip
PRECISIONS: list[Choice] = [
    {}, {"order": "trigger"}, {"order": "none"}, {"punctuate": "comparison"}, {"punctuate": "2 comparisons"}, {"punctuate": 3},
    {"punctuate": None},
]  # fmt: skip
TREES: list[Choice] = [{}, {"fan_out": 1}, {"fan_out": 2, "fan_in": 2}, {"fan_in": 3}, {"split_storing": True}]
LAYOUTS: list[Choice] = [
    {"layout": layout, "workers": workers}
    for layout, workers in (
        ("auto", 4),
        ((1, 3), 3),
        ((3, 1), 3),
        ((2, 2), 4),
        ("linear", 2),
        ("square", 4),
        ((2, 3), 6),
    )
]


def together(*choices: list[Choice]) -> Iterator[dict[str, Any]]:
    for each in product(*choices):
        yield {name: value for choice in each for name, value in choice.items()}


JOINS = [
    *together(GATED, [{"strategy": "auto", "workers": 3}, {"strategy": "scalejoin", "workers": 3}, {"strategy": "sequential"},
                      {"strategy": "partitioned", "workers": 3}],
              [{"order": order} for order in ("strict", "trigger", "none")]),
    *together(GATED, [{"strategy": "splitjoin", "workers": 4}], TREES, PRECISIONS),
    *together(GATED, [{"strategy": "dpjoin"}], LAYOUTS, [{"emitter": flag} for flag in (False, True)]),
    *together([{"index": kind, "workers": 2} for kind in KINDS], [{"strategy": name} for name in ("scalejoin", "dpjoin")]),
    *together(GATED, SHARED, [{"strategy": "auto"}]),
    {"affinity": True, "workers": 2}, {"plain": True, "workers": 2},
    {"strategy": "splitjoin", "workers": 3, "marks": True, "punctuate": "comparison"},
]  # fmt: skip
AGGREGATES = [
    *together(GATED, [{"strategy": "tuml_sc"}, {"strategy": "tuml_mc"}, {"strategy": "tuml_mc", "workers": 2}]),
    *({"strategy": name} for name in ("auto", *DESIGNS) if not name.startswith("tuml")),  # WiML's tuples go to no gate
    *together(GATED, SHARED[1:], [{"strategy": "tuml_mc"}]), {"affinity": True},
]  # fmt: skip
OPERATORS = [*together(GATED, SHARED, [{"plain": flag} for flag in (False, True)]), {"workers": 3}, {"affinity": True}]


def run(query: plait.Query, choice: Choice) -> pa.Table:
    data = {name: table for name, table in tables().items() if name in query.streams()}
    with query.on_threads(schemas={k: t.schema for k, t in data.items()}, batch=64, stall_after_s=30, **choice) as made:
        for at in range(0, ROWS, PIECE):
            for name, table in data.items():
                made.push(name, None, table.slice(at, PIECE))
        made.drain()
        return made.table()


def by_rows(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


def strict(choice: Choice) -> bool:
    return choice.get("order", "strict") == "strict" and choice.get("punctuate", "comparison") == "comparison"


GROUPS = [
    *((f"join, {gate}", JOIN, [each for each in JOINS if each.get("gate", "ring") == gate]) for gate in ("ring", "skiplist")),
    ("aggregate", AGGREGATE, AGGREGATES), ("operator", OPERATOR, OPERATORS),
]  # fmt: skip


@pytest.mark.parametrize(("query", "choices"), [each[1:] for each in GROUPS], ids=[each[0] for each in GROUPS])
def test_every_choice_gives_the_references_bytes(query: plait.Query, choices: list[dict[str, Any]]) -> None:
    expected = query.reference({name: table for name, table in tables().items() if name in query.streams()})
    assert expected.num_rows > 20
    for choice in choices:
        found = run(query, choice)
        if choice.get("marks"):
            found = found.filter(pa.compute.is_null(found.column("_plait_mark"))).drop_columns(["_plait_mark"])
        if strict(choice):
            assert difference(expected, found) is None, choice
        else:
            assert difference(by_rows(expected), by_rows(found)) is None, choice


def test_no_choice_is_left_out() -> None:
    named = {name for choice in (*JOINS, *AGGREGATES, *OPERATORS) for name in choice}
    assert named | NO_CHOICE == {field.name for field in fields(Options)}
    tried = {choice["strategy"] for choice in (*JOINS, *AGGREGATES) if "strategy" in choice}
    assert tried == {"auto", *STRATEGIES, *DESIGNS}
