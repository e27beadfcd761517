"""Conditions at the ends of types: random types, values, cuts and indexes, every path against the reference.

A case is a function of its seed. `python -m tests.core.join.ends FIRST COUNT` runs many and prints the seeds that differ.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import plait
from plait.core.join.choice import possible
from plait.core.join.window import JoinWindow
from plait.query.bind import bind
from plait.spark.cell.join import LiveJoin
from plait.spark.formats import rows_schema
from plait.spark.plan.layout import Layout

LIMIT, FAR, NAME = 3, 2**63, "ab"


def helper(x: Any, y: Any) -> Any:
    return x * 2 - y


def unset(l: Any, r: Any) -> Any:
    if l.a > r.a:
        gap = l.a - r.a
    return gap < 9 and l.a == l.a


def branches(l: Any, r: Any) -> Any:
    if l.a > LIMIT and r.b != 0:
        return l.a - r.a < 5
    if l.a < -LIMIT:
        return None
    return l.b + r.b > r.a


def looped(l: Any, r: Any) -> Any:
    total = 0
    for _ in range(3):
        total += l.a
    return total > r.a


def tried(l: Any, r: Any) -> Any:
    try:
        return l.a // r.a > 1
    except ZeroDivisionError:
        return True


NUMBERS: list[Callable[[Any, Any], Any]] = [
    # Traced.
    lambda l, r: abs(l.a - r.a) <= 5,
    lambda l, r: l.a == r.a,
    lambda l, r: (l.a == r.a) & (abs(l.b - r.b) <= 2),
    lambda l, r: l.a + l.b == r.a + r.b,
    lambda l, r: l.a * r.a > 0,
    lambda l, r: l.a * r.b > r.a * l.b,
    lambda l, r: -l.a == r.a,
    lambda l, r: abs(l.a) >= abs(r.a),
    lambda l, r: l.a // r.a > 0,
    lambda l, r: (l.a % r.a == 1) | (l.a % r.a == 0),
    lambda l, r: l.a < r.a,
    lambda l, r: l.a - r.a > 2**63,
    lambda l, r: l.a - r.a + 2**64 >= l.b,
    lambda l, r: l.a == r.a + 0.0,
    lambda l, r: l.a / r.a > 1,
    lambda l, r: (l.a - r.a).between(-3, 3) & (l.b <= r.b),
    lambda l, r: plait.minimum(l.a, r.a) == plait.maximum(l.b, r.b),
    lambda l, r: (l.a * 2**62 == r.a * 2**62) | l.b.is_null(),
    lambda l, r: (l.a - r.b).cast("int64") == r.a.cast("int64"),
    lambda l, r: (l.a + r.a).cast("uint64") > 5,
    lambda l, r: (l.a + r.a).cast("float32") == (l.b + r.b).cast("float32"),
    lambda l, r: ~(abs(l.a - r.a) > 2**62),
    # Opaque.
    lambda l, r: abs(l.a - r.a) <= 5 and l.b <= r.b,
    lambda l, r: l.a + r.a > 0 and True,
    lambda l, r: l.a * r.a > 0 or l.b == r.b,
    lambda l, r: -l.a == r.a and True,
    lambda l, r: l.a // r.a > 0 or False,
    lambda l, r: l.a % r.a == 0 or False,
    lambda l, r: l.a / r.a > 1 and True,
    lambda l, r: l.a**2 == r.a and True,
    lambda l, r: l.a**2 + r.a**2 > 50 and True,
    lambda l, r: l.a << 1 == r.a or False,
    lambda l, r: (l.a & r.a) == r.b and True,
    lambda l, r: (~l.a) == r.a or l.a ^ r.a == -1,
    lambda l, r: float(l.a) == r.a and True,
    lambda l, r: l.a == r.a * 1.0 and True,
    lambda l, r: l.a + 0.5 > r.a and l.b != r.b,
    lambda l, r: min(l.a, r.a) < max(l.b, r.b) and True,
    lambda l, r: (l.a == r.a) + (l.b == r.b) == 1 and True,
    lambda l, r: l.a < FAR and r.a > -FAR,
    lambda l, r: helper(l.a, r.a) == helper(l.b, r.b) and True,
    lambda l, r: l.a in (0, 1, 2, 127) and r.a not in (0, 255),
    lambda l, r: 0 < l.a <= r.a,
    lambda l, r: l.a and r.a,
    lambda l, r: not l.a or r.b,
    lambda l, r: math.sqrt(abs(l.a)) < r.a and True,
    lambda l, r: math.sqrt(l.a) < r.a and True,
    lambda l, r: math.floor(l.a) == r.a and True,
    lambda l, r: int(l.a) == int(r.a) and True,
    lambda l, r: round(l.a / 3) == r.a and True,
    lambda l, r: str(l.a) == str(r.a),
    lambda l, r: f"{l.a}" > f"{r.a}",
    lambda l, r: isinstance(l.a, int) and l.a == r.a,
    lambda l, r: type(l.a) is type(r.a),
    lambda l, r: {l.a: 1}.get(r.a) is not None,
    unset, branches, looped, tried,
]  # fmt: skip
SQL = [
    "l.a = r.a", "abs(l.a - r.a) <= 5", "l.a * r.a > 0", "l.a + r.a > 0", "l.a % r.a = 0", "l.a / r.a > 1",
    "l.a BETWEEN r.a - 2 AND r.a + 2", "l.a - r.b < 9223372036854775808", "l.a = r.a AND l.b < r.b",
    "cast(l.a + r.a AS BIGINT) IS NULL", "least(l.a, r.a) = greatest(l.b, r.b)", "-l.a = r.a OR l.a IN (1, 127)",
]  # fmt: skip
TEXTS: list[Callable[[Any, Any], Any]] = [
    lambda l, r: l.a == r.a,
    lambda l, r: (l.a == r.a) | (l.b != "ab"),
    lambda l, r: l.a == r.a and l.b != NAME,
    lambda l, r: l.a < r.a and True,
    lambda l, r: f"{l.a}x" == f"{r.a}x",
    lambda l, r: str(l.a) == r.a,
    lambda l, r: l.a is r.a,
    lambda l, r: l.a in ("ab", "") and r.a,
    lambda l, r: l.a + r.a == "abab" and True,
    lambda l, r: len(l.a) == len(r.a),
    lambda l, r: l.a.upper() == r.a.upper() or False,
    lambda l, r: bool(l.a),
    lambda l, r: l.a[0] == r.a[0] and True,
    lambda l, r: hash(l.a) == hash(r.a) or l.a > 3,
    lambda l, r: l.a == 5 or l.b == r.b,
    lambda l, r: max(l.a, r.a) == r.b and True,
]  # fmt: skip

WHOLE = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
TIME = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "us")), *(pa.duration(unit) for unit in ("s", "ms", "us")),
    pa.date32(), pa.date64(), pa.timestamp("us", tz="UTC"), pa.timestamp("ns"),
]  # fmt: skip
OTHER = [pa.float32(), pa.float64(), pa.bool_(), pa.null()]
TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.binary()]
FLOATS = [0.0, -0.0, 1.0, -1.5, math.nan, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63), 1e30, 5e-324]
STRINGS = ["", "a", "ab", "abc", "é", "Ab", None]


def whole_numbers(low: int, high: int, chance: random.Random) -> list[int]:
    if chance.random() < 0.25:  # nothing that needs more than a word
        low, high = max(low, -100), min(high, 100)
    ends = [low, low + 1, high - 1, high, 0, 1, 2, 5, 127, -1, -2]
    ends += [sign * 2**bits + off for sign in (1, -1) for bits in (31, 32, 52, 53, 62, 63) for off in (-1, 0, 1)]
    return [n for n in ends if low <= n <= high]


def column(kind: pa.DataType, n: int, chance: random.Random) -> pa.Array:
    nulls = [None] if chance.random() < 0.5 else []
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        bits = 32 if pa.types.is_date32(kind) else kind.bit_width
        signed = not str(kind).startswith("uint")
        word: Any = kind if pa.types.is_integer(kind) else pa.int32() if bits == 32 else pa.int64()
        pool = whole_numbers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1, chance)
        if str(kind).startswith("timestamp[ns"):
            pool = [n // 1000 * 1000 for n in pool if n > -(2**62)]
        values = [chance.choice(pool + nulls) for _ in range(n)]
        return pa.array(values, word) if pa.types.is_integer(kind) else pa.array(values, word).view(kind)
    if pa.types.is_floating(kind):
        return pa.array([chance.choice(FLOATS + nulls) for _ in range(n)], kind)
    if pa.types.is_boolean(kind):
        return pa.array([chance.choice([True, False, *nulls]) for _ in range(n)], kind)
    if pa.types.is_null(kind):
        return pa.nulls(n)
    texts = [chance.choice(STRINGS) for _ in range(n)]
    if pa.types.is_binary(kind):
        return pa.array([None if t is None else t.encode() for t in texts], kind)
    return pa.array(texts, pa.string()).cast(kind)


class Case:
    """One condition, two tables, and the reference's answer (row numbers, or an error of plait's)."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)
        chance = self.chance
        text = chance.random() < 0.2
        self.on: Any = chance.choice(TEXTS) if text else chance.choice(NUMBERS if chance.random() < 0.85 else SQL)
        common = chance.choice(TEXT if text else WHOLE + TIME + WHOLE)
        odd = TEXT if text else WHOLE + TIME + OTHER
        kinds = [[common if chance.random() < 0.7 else chance.choice(odd) for _ in "ab"] for _ in "lr"]
        self.tables = {}
        for name, pair in zip("uv", kinds, strict=True):
            n = chance.randint(1, 12)
            ts = sorted(chance.randint(0, 9) for _ in range(n))
            made = [pa.array(ts, pa.int64()), pa.array(range(n), pa.int64()), *(column(k, n, chance) for k in pair)]
            self.tables[name] = pa.table(made, names=["ts", "n", "a", "b"])
        streams = [plait.stream(name, unit="us") for name in "uv"]
        self.window: Any = chance.choice([{"within": 4}, {"within": (1, 6)}, {"last": 3}, {"tumbling": 5}])
        try:
            self.query = plait.join(*streams, on=self.on, **self.window)
            self.bound = bind(self.query, {name: t.schema for name, t in self.tables.items()})
        except plait.PlaitError:
            self.query = None  # numbers against text, and the like
            return
        self.answer = self._guarded(lambda: numbers(self.query.reference(self.tables)))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except plait.PlaitError as error:
            return f"refused: {type(error).__name__}"

    def batches(self) -> list[tuple[str, pa.Table]]:
        """Each stream's rows in pieces, by turns."""
        rest, found = dict(self.tables), []
        while rest:
            name = self.chance.choice(sorted(rest))
            size = self.chance.choice((1, 1, 2, 5, 100))
            found.append((name, rest[name].slice(0, size)))
            rest[name] = rest[name].slice(size)
            if rest[name].num_rows == 0:
                del rest[name]
        return found

    def on_threads(self, **options: Any) -> Any:
        def call() -> Any:
            schemas = {name: table.schema for name, table in self.tables.items()}
            with self.query.on_threads(schemas=schemas, **options) as run:
                for name, rows in self.batches():
                    run.push(name, None, rows)
                run.drain()
                return numbers(run.table())

        return self._guarded(call)

    def in_a_cell(self, index: str, *, plain: bool) -> Any:
        """As a cell on Spark joins: runs of any length, by one window."""

        def call() -> Any:
            live = LiveJoin(self.bound, Layout("grid", 1, 1, (0,)), 0, index=index)
            left, right = (i.schema for i in self.bound.inputs)
            live.window = JoinWindow(
                self.bound.predicate, left, right, self.bound.node.window, index=index, plain=plain
            )
            edges = sorted({self.chance.randint(0, 9) for _ in range(3)} | {100})
            found, before = [], -1
            for frontier in edges:
                arrived = {}
                for input, table in enumerate(self.tables.values()):
                    first, last = table.column("ts").to_numpy().searchsorted([before, frontier])
                    rows = table.slice(first, last - first)
                    order = zip(rows.column("ts").to_pylist(), rows.column("n").to_pylist(), strict=True)
                    keys = pa.array([b"%04d%d%04d" % (ts, input, n) for ts, n in order], pa.binary())
                    schema = rows_schema(self.bound.inputs[input].schema)
                    arrived[input] = pa.Table.from_arrays([*rows.columns, rows.column("ts"), keys], schema=schema)
                found += numbers(live.advance(arrived, frontier).columns)
                before = frontier
            return found

        return self._guarded(call)

    @property
    def indexes(self) -> tuple[str, ...]:
        left, right = (i.schema for i in self.bound.inputs)
        return possible(JoinWindow(self.bound.predicate, left, right, self.bound.node.window, plain=True).shape)


def numbers(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table.column("u_n").to_pylist(), table.column("v_n").to_pylist(), strict=True))


def check(seed: int, *, compiled: bool = False) -> list[str]:
    """What differs from the reference, in words."""
    case = Case(seed)
    if case.query is None:
        return []
    found = {}
    views = any(pa.types.is_string_view(field.type) for t in case.tables.values() for field in t.schema)
    for index in () if views else ("auto", *case.indexes):  # Spark has no views
        found[f"a cell, {index}"] = case.in_a_cell(index, plain=not compiled)
    index = case.chance.choice(["auto", *case.indexes])
    workers = case.chance.choice((1, 2))
    found[f"{workers} threads, {index}"] = case.on_threads(workers=workers, index=index, plain=not compiled)
    return [
        f"seed {seed}, {how}: {answer}, the reference {case.answer}"
        for how, answer in found.items()
        if answer != case.answer
    ]


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    bad = 0
    for seed in range(first, first + count):
        for line in check(seed, compiled="compiled" in sys.argv):
            bad += 1
            sys.stdout.write(f"{line[:400]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{count} cases, {bad} differences\n")
