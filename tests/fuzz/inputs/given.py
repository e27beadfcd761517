"""Doors of the API: arguments and options of wrong types and values, and rows of any kind in memory."""

# Tables of values stand as they are read: many on a line.
# ruff: noqa: DTZ001, E501  # moments without a zone are given on purpose; tables of inputs, a line each
# fmt: off

from __future__ import annotations

import datetime as dt
import decimal
import functools
import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from tests.fuzz.inputs import mutate, texts
from tests.fuzz.inputs.hammer import Kind

import plait
import plait.spark
from plait.query import functions
from plait.query.run_options import SparkOptions, ThreadsOptions
from plait.spark.plan.layout import choose
from plait.spark.run import _check_options
from plait.threads.options import Options

A, B = texts.A, texts.B
#: Values where others belong.
VALUES: tuple[Any, ...] = (
    *mutate.LEAVES,
    *(np.int64(3), np.float32(1.5), np.datetime64("2024-01-01"), np.timedelta64(5, "s"), np.array([1, 2]), np.bool_(True), np.nan),
    *(dt.timedelta(seconds=5), dt.timedelta(microseconds=-1), dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.date(2024, 1, 1)),
    *(decimal.Decimal("1.5"), 5, 10, 2.0, complex(1, 2), b"x", bytearray(b"x"), range(3), (), (1, 2), ("a", "b"), {1, 2}, frozenset(), object(), type),
    *(lambda: 1, lambda row: row, lambda row: row.x > 1, lambda a, b: a.x == b.x, len, A, B, pa.int64(), pa.array([1]), pa.schema([("x", pa.int64())])),
    *("x", "y", "s", "ts", "nothing", "5 s", "a.x = b.x", "x > 1", "drop", "error", "left", "inner", "strict", "none", "scalejoin", "hash", "position"),
    *(Ellipsis, NotImplemented, ValueError("x"), iter([1]), (i for i in range(2)), memoryview(b"x"), plait.FILE, plait.count(), "day", "us", ["x", "s"]),
)


def _query(**options: Any) -> plait.Query:
    return plait.join(A, B, on="a.x = b.x", within="5s", **options)


@functools.cache
def calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """What can be called, with what is right."""
    found: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "stream": (plait.stream, {"name": "a", "time": "ts", "unit": "s", "source": "s", "sources": ["x"], "seq": "x", "disorder": "1s", "late": "drop",
                                  "behind": "drop", "idle_after": "5s", "schema": {"ts": "int64", "x": "int64", "s": "string"}}),
        "join": (plait.join, {"left": A, "right": B, "on": "a.x = b.x", "within": "5s", "how": "left", "name": "j"}),
        "count join": (plait.join, {"left": A, "right": B, "on": "a.x = b.x", "last": 5}),
        "tumbling": (plait.join, {"left": A, "right": B, "on": lambda a, b: a.x == b.x, "tumbling": "5s", "tumbling_count": None}),
        "asof": (plait.asof, {"left": A, "right": B, "by": "x", "within": "5s", "exact": True, "direction": "backward", "how": "left"}),
        "aggregate": (plait.aggregate, {"input": A, "size": "10s", "advance": "5s", "by": ["s"], "compute": {"n": plait.count()}, "session": None}),
        "dedup": (plait.dedup, {"input": A, "by": "x", "within": "5s"}),
        "operator": (plait.operator, {"inputs": A, "buckets": 4, "route": lambda t: 0, "state": list, "process": lambda s, t: None, "output": {"n": "int64"}}),
        "union": (lambda **each: plait.union(*each.values()), {"one": A, "two": B}),
        "where": (lambda condition: A.where(condition).reference({"a": texts.table()}), {"condition": "x > 1"}),
        "select": (lambda **each: A.select(**each).reference({"a": texts.table()}), {"p": "x + 1", "q": "s"}),
        "drop": (lambda names: A.drop(names), {"names": "x"}),
        "rename": (lambda **each: A.rename(**each), {"p": "x", "q": "s"}),
        "named": (lambda name: _query().named(name), {"name": "n"}),
        "sql": (plait.sql, {"text": "SELECT x FROM a", "streams": [A], "schemas": None, "name": "q"}),
        "timer": (plait.timer, {"at": 5}),
        "heartbeat": (plait.spark.heartbeat, {"folder": "control", "stream": "a", "ts": 5, "source": "x"}),
        "end": (plait.spark.end, {"folder": "control", "stream": "a", "source": "x"}),
        "threads": (Options, {name: getattr(Options(), name) for name in ThreadsOptions.__annotations__}),
        "on_threads": (lambda **options: _query().on_threads(**options).stop(), {"workers": 1, "schemas": None, "keys": False, "stall_after_s": 5}),
        "on_spark": (_on_spark, {"layout": "auto", "cells": 2, "rates": (1, 2), "index": "auto", "max_pending": 5, "max_window": 5, "read": "auto", "functions": "same"}),
        "spark options": (lambda data, **options: _query().on_spark(data, **options), {"data": {"a": None}, **dict.fromkeys(SparkOptions.__annotations__)}),
        "reference": (lambda data, **options: _query().reference(data, **options), {"data": {"a": texts.table(), "b": texts.table()}, "order": "strict", "keys": True}),
        "run": (lambda data, **options: _query().run(data, **options), {"data": {"a": texts.table(), "b": texts.table()}, "engine": "reference", "keys": True}),
    }  # fmt: skip
    for name, kind in functions.KINDS.items():
        arguments = inspect.signature(kind.make).parameters
        right = {"column": "x", "by": "y", "k": 2, "q": 0.5, "where": "x > 1", "condition": "x > 1"}
        found[f"function {name}"] = (_computed(kind.make), {each: right.get(each, "x") for each in arguments})
    return found


def _on_spark(layout: Any, cells: Any, rates: Any, index: Any, max_pending: Any, max_window: Any, read: Any, functions: Any) -> None:
    """What `on_spark` checks before it needs a session."""
    from plait.query.base import check_rates

    _check_options(index, {"max_pending": (max_pending, "tuples"), "max_window": (max_window, "rows"), "cells": (cells, "cells")}, read, functions)
    check_rates(rates)
    choose(_query(), layout, 4, 2, cells=cells, rates=rates)


def _computed(make: Callable[..., Any]) -> Callable[..., Any]:
    def computed(**arguments: Any) -> Any:
        query = plait.aggregate(A, size="10s", compute={"n": make(**arguments)})
        return query.reference({"a": texts.table()})

    return computed


def _call(rng: random.Random) -> tuple[str, dict[str, Any]]:
    name = rng.choice(list(calls()))
    right = dict(calls()[name][1])
    for _ in range(1 + int(rng.expovariate(1.2))):
        option = rng.choice([*right, "nothing", "name"]) if right else "nothing"
        if rng.random() < 0.1:
            right.pop(option, None)
        else:
            right[option] = _value(rng, right.get(option))
    return name, right


def _value(rng: random.Random, right: Any) -> Any:
    if isinstance(right, str) and rng.random() < 0.3:
        return mutate.text(rng, [right])
    if isinstance(right, (list, dict)) and rng.random() < 0.5:
        return mutate.tree(rng, right, VALUES)
    return rng.choice(VALUES)


def _take_call(given: tuple[str, dict[str, Any]]) -> None:
    name, arguments = given
    function = calls()[name][0]
    if name == "on_spark" and set(arguments) != set(calls()[name][1]):
        return
    try:
        function(**arguments)
    except TypeError as error:
        # Python's own words for an argument that a function does not have: they name it.
        if "argument" in str(error) and error.__traceback__ is not None and error.__traceback__.tb_next is None:
            return
        if _of_python(error):
            return
        raise


def _of_python(error: TypeError) -> bool:
    """Whether it is the call itself that Python refuses."""
    words = ("unexpected keyword argument", "missing", "required positional", "required keyword", "multiple values for", "positional argument")
    return any(each in str(error) for each in words)


# --- rows ---------------------------------------------------------------------------------------------------


@functools.cache
def queries() -> tuple[plait.Query, ...]:
    """Few, since each is compiled once in a child."""
    a, b = plait.stream("a", unit="s", late="drop"), plait.stream("b", unit="s", late="drop")
    return (
        plait.join(a, b, on="a.x = b.x", within="5s"),
        plait.join(a, b, on="abs(a.x - b.x) <= 10", within="5s", how="left"),
        plait.asof(a, b, by="x"),
        plait.aggregate(a, size="10s", by="x", compute={"n": plait.count(), "f": plait.first("x"), "m": plait.max("x")}),
        plait.dedup(a, by="x", within="3s"),
        a.where("x > 1").select("x"),
        plait.aggregate(plait.stream("a", unit="s", source="x", late="drop"), size="10s", compute={"n": plait.count()}),
    )


@functools.cache
def types() -> tuple[pa.DataType, ...]:
    number = pa.int64()
    return (
        *(pa.int8(), pa.int16(), pa.int32(), number, pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null()),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.decimal128(20, 3)),
        *(pa.decimal256(40, 2), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("s", tz="UTC")),
        *(pa.timestamp("us", tz="Europe/Stockholm"), pa.duration("us"), pa.month_day_nano_interval(), pa.list_(number), pa.large_list(pa.string())),
        *(pa.list_(pa.float32(), 2), pa.struct([("x", number)]), pa.map_(pa.string(), number), pa.dictionary(pa.int8(), pa.string())),
        *(pa.dictionary(pa.int32(), number), pa.run_end_encoded(pa.int32(), number), pa.dense_union([pa.field("p", number)]), pa.list_view(number)),
    )


SCALARS: tuple[Any, ...] = (
    *(None, 0, 1, -1, 5, 127, 2**31, 2**62, 2**63 - 1, -(2**63), 2**64, 1.5, float("nan"), float("inf"), -0.0, True, "", "a", "é", "\0", "\ud800"),
    *(b"", b"\xff", [], [1], [None], {"x": 1}, {}, (1, 2), dt.date(2024, 1, 1), dt.datetime(9999, 1, 1), dt.time(1, 2), dt.timedelta(days=1)),
    *(decimal.Decimal("1.23"), decimal.Decimal("NaN"), np.int8(3), np.float16(0.5), np.datetime64("NaT"), object(), {1, 2}, range(2), A),
)


def _column(rng: random.Random, rows: int) -> Any:
    """A column of any type and any layout, in whole numbers or not, long enough or not."""
    size = rows if rng.random() < 0.95 else rng.randint(0, 5)
    match rng.randrange(6):
        case 0:
            return [rng.choice(SCALARS) for _ in range(size)]
        case 1:
            return np.array([rng.choice((0, 1, 2, 100)) for _ in range(size)], rng.choice(["i1", "u8", "f2", "f8", "O", "M8[s]", "m8[ms]", "S3", "U2", "c16", ">i4", "?"]))
        case 2:
            return rng.choice([rng.choice(SCALARS), [[1], [2]], iter([1]), range(size), (1,) * size])
        case _:
            return _arrow_column(rng, size)


def _arrow_column(rng: random.Random, size: int) -> Any:
    kind = rng.choice(types())
    values = [rng.choice([*SCALARS[:20], [1, 2], {"x": 3}, [("k", 1)]]) for _ in range(size + 2)]
    try:
        found = pa.array([each if _fits(each, kind) else None for each in values], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError):
        found = pa.nulls(size + 2, pa.int64())
    found = found.slice(rng.randint(0, 2), size)
    return pa.chunked_array([found.slice(0, size // 2), found.slice(size // 2)]) if rng.random() < 0.2 and size else found


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError, AttributeError):
        return False
    return True


def _rows(rng: random.Random) -> tuple[int, int, Any]:
    which, size = rng.randrange(len(queries())), rng.choice((0, 1, 3, 5))
    times = [rng.choice((0, 1, 2, 3, 9, 2**62 // 10**6 + 1, -5)) for _ in range(size)] if rng.random() < 0.2 else sorted(rng.randint(0, 20) for _ in range(size))

    def table() -> Any:
        found: dict[Any, Any] = {"ts": times if rng.random() < 0.93 else _column(rng, size), "x": _column(rng, size)}
        if rng.random() < 0.1:
            found[rng.choice(("y", "ts_", "", 3, "\ud800", "_plait_ts", "_plait_key", "a_x"))] = _column(rng, size)
        return found if rng.random() < 0.9 else rng.choice([[], {}, None, [found], {"s": found}, 3, "a.csv", b"x", pa.table({"ts": [1]})])

    names = ("a", "b") if which < 3 else ("a",)
    given: Any = {name: table() for name in names}
    if rng.random() < 0.05:
        given = rng.choice([{}, None, [given], {**given, "c": table()}, table()])
    return which, rng.randrange(4), given


def _take_rows(given: tuple[int, int, Any]) -> None:
    """By the reference, on threads all at once, and on threads as rows are pushed."""
    which, how, data = given
    query = queries()[which]
    match how:
        case 0:
            query.reference(data)
        case 1:
            query.run(data)
        case 2:
            query.run(data, engine="threads", workers=1)
        case _:
            with query.on_threads(workers=1, stall_after_s=3) as run:
                for name in data if isinstance(data, dict) else []:
                    run.push(name, None, data[name])
                run.drain()
                run.table()


KINDS = (Kind("calls", _call, _take_call, limit_s=30.0), Kind("rows", _rows, _take_rows, limit_s=100.0))
