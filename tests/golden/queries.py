"""The golden record's queries, a little of every kind, and their data, all from fixed seeds.

Of functions the record pins the source: write none of them anew, and reformat none. They name nothing but their arguments,
`plait`, `np` and `math`, so that they mean the same wherever plait's modules are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from tests.fuzz.feeds import Feed
from tests.fuzz.queries import Group

import plait

# --- data ---------------------------------------------------------------------------------------------------

#: Few values, so that nearly everything is a tie; NULL in every column, NaN and both zeros among the floats.
VALUES: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "k": (pa.int64(), (0, 1, 2, 3, None, -1)),
    "p": (pa.int32(), (0, 1, 2, 3, 4, None, 7)),
    "i": (pa.int64(), (0, 1, 2, 3, 5, 8, -4)),
    "x": (pa.float64(), (0.0, -0.0, 0.5, 1.0, None, math.nan, 1.25, math.inf, 0.1, 0.7, 1e17, -1e17)),
    "q": (pa.float32(), (0.5, None, math.nan, 0.25, 1.25, -2.0)),
    "s": (pa.string(), ("a", "b", None, "", "é", "ab", "B", "ba 7")),
    "b": (pa.bool_(), (True, False, None)),
}
CLOCKS: dict[str, tuple[pa.DataType, str | None]] = {
    "us": (pa.int64(), "us"),
    "ms": (pa.int64(), "ms"),
    "utc": (pa.timestamp("us", "UTC"), None),
}


@dataclass(frozen=True)
class Given(Feed):
    """A stream with its rows; a file's name is a source's, too."""

    @property
    def by_column(self) -> bool:
        return self.stream.source_column is not None


def given(name: str, seed: int, *, rows: int = 40, names: tuple[Any, ...] = (0,), columns: str = "kpixqsb", span: int = 30,
          clock: str = "us", back: int = 0, beyond: int = 0, **options: Any) -> Given:  # fmt: skip
    """A stream whose sources' times may run back by `back`, which is declared, and by `beyond` more, which is not."""
    chance = random.Random(f"golden {name} {seed}")
    kind, unit = CLOCKS[clock]
    sources = {}
    for source in names:
        count = rows // len(names)
        times, highest = [], 0
        for moment in sorted(chance.randrange(span) for _ in range(count)):
            times.append(max(moment, highest) - chance.randint(0, back + beyond))
            highest = max(highest, moment)
        arrays = {"ts": pa.array([1_000 + ts for ts in times], pa.int64()).cast(kind)}
        for column in columns:
            arrays[column] = pa.array([chance.choice(VALUES[column][1]) for _ in range(count)], VALUES[column][0])
        if options.get("source") == "src":
            arrays["src"] = pa.array([source] * count)
        if options.get("seq") == "n":
            arrays["n"] = pa.array([10 * at for at in range(count)], pa.int64())
        sources[source] = pa.table(arrays)
    arrival = [source for source in sources for _ in range(rows // len(names))]
    chance.shuffle(arrival)
    if unit is not None:
        options["unit"] = unit
    if back:
        options["disorder"] = back * (1000 if clock == "ms" else 1)
    return Given(plait.stream(name, **options), sources[names[0]].schema, sources, tuple(arrival))


A, B, C = given("a", 1), given("b", 2), given("c", 3, rows=24)
TEXT_NAMES, INTEGER_NAMES = ("a", "B", "é"), (10, 2, -7)
NAMED = given("a", 4, rows=45, names=TEXT_NAMES, sources=list(TEXT_NAMES))
LOOSE_NAMED = given("a", 5, rows=45, names=TEXT_NAMES)
COUNTED = given("b", 6, names=(0, 1), sources=2)
BY_TEXT = given("a", 7, rows=45, names=TEXT_NAMES, source="src", sources=list(TEXT_NAMES))
BY_NUMBER = given("b", 8, rows=45, names=INTEGER_NAMES, source="src")
BY_SEQ = given("a", 9, names=INTEGER_NAMES[:2], source="src", seq="n")
SEQ_ALONE = given("b", 10, seq="n", back=3)
CONTENT = given("a", 11, seq="content", span=12)
CONTENT_TOO = given("b", 12, names=("u", "v"), source="src", seq="content", back=2)
DISORDER = given("a", 13, back=4)
LATE = given("a", 14, back=2, beyond=4, late="drop")
LATE_NAMED = given("b", 15, names=("u", "v"), source="src", back=1, beyond=3, late="drop", sources=["v", "u"])
UTC_A, UTC_B = given("a", 16, clock="utc"), given("b", 17, clock="utc", names=(0, 1))
MS = given("a", 18, clock="ms", back=2)
FILES = given("a", 19, names=("p000.parquet", "p001.parquet", "p002.parquet"), rows=42, source=plait.FILE)
SIX = given("a", 20, rows=60, names=tuple(range(6)), sources=6)
DENSE = given("a", 21, rows=60, span=5)
SURE_A, SURE_B = given("a", 22, columns="i"), given("b", 23, columns="i")
EMPTY = given("b", 24, rows=0)


# --- users' functions ---------------------------------------------------------------------------------------


def near_or_less(l: Any, r: Any) -> bool:
    if l.k > r.k:
        return l.k - r.k <= 1
    return l.x < r.x


def same_text(l: Any, r: Any) -> bool:
    return l.s == r.s and l.p != r.p


def rooted(l: Any, r: Any) -> bool:
    return math.sqrt(l.p + r.p) > 1.5


def even_row(row: Any) -> bool:
    return row.i % 2 == 0 and row.p > 1


def nothing() -> int:
    return 0


def folded(state: int, i: int) -> int:
    return (31 * state + i) % 1_000_003


def faded(state: float, x: Any) -> float:
    return state if x is None else state * 0.5 + x


def start() -> float:
    return 1.0


def seen(state: int, k: Any, s: Any) -> int:
    return state + (k is None) + 2 * (s is None)


def both(one: int, other: int) -> int:
    return one + other


def halved(state: int) -> float:
    return state / 2


FOLDED = plait.custom("i", init=nothing, add=folded, type="int64")
FADED = plait.custom("x", init=start, add=faded, type="float64")
SEEN = plait.custom(["k", "s"], init=nothing, add=seen, merge=both, result=halved, type="float64")


def by_i(t: Any) -> int:
    return t.i % 3


def by_p(t: Any) -> Any:
    return None if t.p is None else t.p % 2


def several(t: Any) -> Any:
    if t.p is None:
        return plait.ALL
    return ([], [2, 0], {1}, 0)[t.p % 4]


def to_all(t: Any) -> Any:
    return plait.ALL


def at_zero(t: Any) -> int:
    return 0


def counted(state: list[Any], t: Any) -> list[Any]:
    state.append(t.ts)
    return [(len(state), t.x)]


def told(state: list[Any], t: Any) -> Iterator[Any]:
    state.append(t.s)
    yield ("".join(s or "-" for s in state[-3:]), t.p)
    if t.p != 2:
        yield (t.s, None)


def alarmed(state: list[Any], t: Any) -> Iterator[Any]:
    state.append(t.p)
    yield plait.timer(t.ts + 2)
    yield (len(state), t.p)
    yield plait.timer(t.ts + 1 + len(state))


def rung(state: list[Any], at: int) -> list[Any]:
    return [(-len(state), at % 1000), (None, at % 7)]


def met(state: dict[str, Any], t: Any) -> list[Any]:
    state[t.stream] = t.p
    return [(",".join(f"{name}={state[name]}" for name in sorted(state)), t.ts)]


def kept(state: list[Any], t: Any) -> list[Any]:
    state.append(t)
    return [] if len(state) % 3 else [(state[-2].s, sum(row.i for row in state[-3:]))]


def begun(bucket: int) -> dict[str, int]:
    return {"left": 3 + bucket}


def chained(state: dict[str, int], t: Any) -> list[Any]:
    state["left"] += 1
    return [(0, t.ts), plait.timer(t.ts + 1)]


def chained_on(state: dict[str, int], at: int) -> list[Any]:
    state["left"] -= 1
    return [(state["left"], at), *([plait.timer(at + 1)] if state["left"] > 0 else [])]


def zeros() -> Any:
    return np.zeros(2, np.int64)


def added(state: Any, t: Any) -> Iterator[Any]:
    state[0] += t.i
    state[1] += 1
    if state[1] % 2 == 0:
        yield (state[0], t.ts)


def added_and_timed(state: Any, t: Any) -> Iterator[Any]:
    state[0] += t.i
    state[1] += 1
    if state[1] % 2 == 0:
        yield (state[0], t.ts)
    yield plait.timer(t.ts + 3)


def added_at(state: Any, at: int) -> Iterator[Any]:
    yield (-state[0], at)


def by_found(t: Any) -> Any:
    return None if t.a_k is None else t.a_k % 2


INTS = pa.schema([("u", pa.int64()), ("v", pa.int64())])
INT_FLOAT = pa.schema([("u", pa.int64()), ("v", pa.float64())])
TEXT_INT = pa.schema([("u", pa.string()), ("v", pa.int64())])

# --- queries ------------------------------------------------------------------------------------------------


def group(query: plait.Query, *feeds: Given) -> Group:
    found = {each.stream.name: each for each in feeds}
    return Group(query, tuple(found[name] for name in query.streams()), "")


def joined(left: Given, right: Given, on: Any = None, **options: Any) -> Group:
    return group(plait.join(left.stream, right.stream, on=on, **options), left, right)


def asof(left: Given, right: Given, **options: Any) -> Group:
    return group(plait.asof(left.stream, right.stream, **options), left, right)


def aggregated(feed: Given, **options: Any) -> Group:
    return group(plait.aggregate(feed.stream, **options), feed)


def operated(*feeds: Given, **options: Any) -> Group:
    return group(plait.operator([each.stream for each in feeds], **options), *feeds)


EQUAL = "l.k = r.k"
BAND = "abs(l.i - r.i) <= 1"
COUNT = {"n": plait.count()}
NUMBERS = {
    "n": plait.count(), "sum_i": plait.sum("i"), "sum_x": plait.sum("x"), "mean": plait.mean("x"), "var": plait.var("q"),
    "least": plait.min("x"), "most": plait.max("i"),
}  # fmt: skip
TEXTS = {
    "first": plait.first("s"), "last": plait.last("x"), "kinds": plait.distinct("s"), "least": plait.min("s"),
    "all": plait.collect("x"),
}  # fmt: skip
WHERE = {
    "sql": plait.count_where("row.k >= 1 or row.x < 0.5"), "traced": plait.count_where(lambda row: ~(row.x < 1)),
    "text": plait.count_where(plait.text("s").matches(r"^[ab]+")), "opaque": plait.count_where(even_row),
    "first": plait.first_where("s", "row.k = 1"), "like": plait.first_where("x", plait.text("s").like("%a%")),
}  # fmt: skip


def joins() -> dict[str, Group]:
    return {
        "join within, every pair": joined(A, B, within=1),
        "join within, equal": joined(A, B, EQUAL, within=3),
        "join within, equal, left": joined(A, B, EQUAL, within=2, how="left"),
        "join within, equal, semi": joined(A, B, EQUAL, within=2, how="semi"),
        "join within, equal, anti": joined(A, B, EQUAL, within=2, how="anti"),
        "join within, band": joined(A, B, BAND, within=4),
        "join within, band, left": joined(A, B, BAND, within=(0, 2), how="left"),
        "join within, two bands": joined(A, B, "abs(l.i - r.i) <= 2 and l.x - r.x between -1 and 1.5", within=(3, 5)),
        "join before only": joined(A, B, EQUAL, within=(4, 0)),
        "join after only, anti": joined(A, B, "l.i < r.i", within=(0, 3), how="anti"),
        "join within nothing": joined(A, B, within=0),
        "join traced": joined(A, B, lambda l, r: (l.k == r.k) & (l.x + r.x > 0.5) | l.p.is_null(), within=3),
        "join traced, between": joined(A, B, lambda l, r: (l.i - r.i).between(-1, 2), within=3, how="semi"),
        "join traced, arithmetic": joined(A, B, lambda l, r: (l.i + r.p) % 3 == plait.minimum(l.k, r.i), within=3),
        "join inequality": joined(A, B, "l.x < r.x", within=2),
        "join sql, cast": joined(A, B, "cast(l.x as bigint) = r.k or l.b is null and r.b", within=2),
        "join floats equal": joined(A, B, "l.x = r.x", within=4),
        "join text equal": joined(A, B, "l.s = r.s", within=3),
        "join text equal, left": joined(A, B, "l.s = r.s and l.p <> r.p", within=3, how="left"),
        "join text conditions": joined(A, B, "l.s like '%a%' and length(l.s) >= length(r.s)", within=3),
        "join text traced": joined(A, B, lambda l, r: l.s.contains("b") | r.s.starts_with("a"), within=1),
        "join opaque": joined(A, B, near_or_less, within=2),
        "join opaque text": joined(A, B, same_text, within=4),
        "join opaque math, left": joined(A, B, rooted, within=1, how="left"),
        "join last": joined(A, B, EQUAL, last=4),
        "join last, every pair": joined(A, B, last=2),
        "join last, opaque": joined(NAMED, COUNTED, near_or_less, last=5),
        "join tumbling": joined(A, B, EQUAL, tumbling=5),
        "join tumbling, band": joined(BY_TEXT, BY_NUMBER, BAND, tumbling=4),
        "join with itself": joined(A, A, "l.k = r.k and l.i < r.i", within=3),
        "join last with itself": joined(A, A, EQUAL, last=3),
        "join names declared": joined(NAMED, COUNTED, EQUAL, within=3),
        "join names undeclared": joined(LOOSE_NAMED, BY_NUMBER, EQUAL, within=3),
        "join by column, left": joined(BY_TEXT, BY_NUMBER, EQUAL, within=2, how="left"),
        "join by seq": joined(BY_SEQ, SEQ_ALONE, EQUAL, within=3),
        "join by content": joined(CONTENT, CONTENT_TOO, EQUAL, within=2),
        "join disorder": joined(DISORDER, SEQ_ALONE, EQUAL, within=3, how="anti"),
        "join late dropped": joined(LATE, LATE_NAMED, EQUAL, within=3),
        "join late dropped, left": joined(LATE, B, BAND, within=2, how="left"),
        "join moments": joined(UTC_A, UTC_B, "l.ts < r.ts and l.k = r.k", within="3us"),
        "join milliseconds": joined(MS, given("b", 25, clock="ms"), EQUAL, within="3ms", name="found"),
        "join files": joined(FILES, B, EQUAL, within=3),
        "join with nothing": joined(A, EMPTY, within=3, how="left"),
    }


def asofs() -> dict[str, Group]:
    return {
        "asof": asof(A, B),
        "asof inner": asof(A, B, how="inner", within=2),
        "asof by": asof(A, B, by="k"),
        "asof by, within, inner": asof(A, B, by="s", within=5, how="inner"),
        "asof by two": asof(NAMED, COUNTED, by=["p", "s"]),
        "asof by pair": asof(A, B, by=[("k", "i"), ("x", "x")], within=9),
        "asof disorder": asof(DISORDER, LATE_NAMED, by="k", within=6),
        "asof moments, inner": asof(UTC_A, UTC_B, by="b", how="inner", within="5us"),
        "asof with itself": asof(A, A, by="k", within=4),
    }


def aggregates() -> dict[str, Group]:
    return {
        "aggregate tumbling": aggregated(A, size="5us", compute=NUMBERS),
        "aggregate tumbling by": aggregated(A, size="5us", by="k", compute=NUMBERS),
        "aggregate sliding": aggregated(SIX, size="6us", advance="2us", compute=NUMBERS),
        "aggregate sliding by": aggregated(NAMED, size="6us", advance="4us", by=["p", "s"], compute=NUMBERS),
        "aggregate with gaps": aggregated(A, size="2us", advance="5us", by="x", compute=COUNT),
        "aggregate texts": aggregated(A, size="5us", by="k", compute=TEXTS),
        "aggregate texts, sliding": aggregated(BY_TEXT, size="7us", advance="3us", compute=TEXTS),
        "aggregate where": aggregated(A, size="6us", by="p", compute=WHERE),
        "aggregate where, sliding": aggregated(BY_SEQ, size="6us", advance="2us", compute=WHERE),
        "aggregate custom": aggregated(A, size="6us", compute={"f": FOLDED, "d": FADED}),
        "aggregate custom merged": aggregated(A, size="6us", advance="3us", by="b", compute={"s": SEEN, **COUNT}),
        "aggregate custom by": aggregated(DENSE, size="2us", by="p", compute={"f": FOLDED, "s": SEEN}),
        "aggregate tuples": aggregated(A, size=4, compute=NUMBERS),
        "aggregate tuples by": aggregated(A, size=3, advance=2, by="k", compute=NUMBERS),
        "aggregate tuples, texts": aggregated(DENSE, size=5, advance=1, by="s", compute=TEXTS),
        "aggregate tuples, gaps": aggregated(CONTENT, size=2, advance=3, by="k", compute={"f": FOLDED, **COUNT}),
        "aggregate content": aggregated(CONTENT, size="4us", by="s", compute=TEXTS),
        "aggregate late dropped": aggregated(LATE, size="4us", by="k", compute=NUMBERS),
        "aggregate disorder": aggregated(MS, size="4ms", advance="2ms", by="s", compute=NUMBERS),
        "aggregate moments": aggregated(UTC_A, size="6us", by="k", compute={"at": plait.max("ts"), **COUNT}),
        "aggregate files": aggregated(FILES, size="5us", by="b", compute=TEXTS),
        "aggregate undeclared": aggregated(BY_NUMBER, size="5us", compute={**COUNT, "kinds": plait.distinct("x")}),
    }


def operators() -> dict[str, Group]:
    return {
        "operator counting": operated(A, buckets=2, route=by_p, state=list, process=counted, output=INT_FLOAT),
        "operator of several buckets": operated(NAMED, buckets=3, route=several, state=list, process=told, output=TEXT_INT),
        "operator of two streams": operated(A, B, buckets=1, route=at_zero, state=dict, process=met, output=TEXT_INT),
        "operator keeping rows": operated(BY_TEXT, buckets=3, route=by_i, state=list, process=kept, output=TEXT_INT),
        "operator with timers": operated(A, buckets=3, route=several, state=list, process=alarmed, on_timer=rung, output=INTS),
        "operator with chained timers": operated(A, COUNTED, buckets=2, route=to_all, state=begun, process=chained,
                                                 on_timer=chained_on, output=INTS),
        "operator compiled": operated(SURE_A, buckets=3, route=by_i, state=zeros, process=added, output=INTS),
        "operator compiled, timers": operated(SURE_A, SURE_B, buckets=3, route=by_i, state=zeros, process=added_and_timed,
                                              on_timer=added_at, output=INTS),
    }  # fmt: skip


def dags() -> dict[str, Group]:
    inner = plait.join(A.stream, B.stream, on=EQUAL, within=2, name="j")
    left = plait.join(A.stream, B.stream, on=BAND, within=1, how="left", name="j")
    windows = plait.aggregate(
        A.stream, size="4us", by="k", compute={"n": plait.count(), "all": plait.collect("i")}, name="w"
    )
    tuples = plait.aggregate(B.stream, size=3, advance=2, by="k", compute={"last": plait.last("x")}, name="t")
    spans = plait.aggregate(A.stream, size="6us", advance="3us", by="s", compute={"n": plait.count()})
    op = plait.operator(
        inner, buckets=2, route=by_found, state=list, process=over_join, on_timer=rung, output=INTS, name="o"
    )
    return {
        "dag aggregate of join": group(plait.aggregate(inner, size="5us", by="a_k", compute={
            "n": plait.count(), "x": plait.sum("a_x"), "s": plait.collect("b_s")}), A, B),
        "dag aggregate of left join": group(plait.aggregate(left, size=4, advance=3, compute={
            "n": plait.count(), "first": plait.first("b_i"), "most": plait.max("a_s")}), A, B),
        "dag join of aggregate": group(plait.join(windows, B.stream, on="w.k = r.k", within=3), A, B),
        "dag join of joins": group(plait.join(inner, C.stream, on="l.a_k = r.k and l.b_i <= r.i", within=2), A, B, C),
        "dag asof of aggregate": group(plait.asof(A.stream, tuples, by="k", within=8), A, B),
        "dag operator of join": group(op, A, B),
        "dag aggregate of operator": group(plait.aggregate(op, size="4us", by="u", compute=COUNT), A, B),
        "dag diamond": group(plait.join(spans, spans, on="l.s = r.s", within=3, how="semi"), A),
        "dag two aggregates": group(plait.join(windows, tuples, on=EQUAL, last=3), A, B),
    }  # fmt: skip


def outer() -> dict[str, Group]:
    """What came after the record was made: its entries stand behind the others."""
    right = plait.join(A.stream, B.stream, on=BAND, within=(1, 3), how="right", name="j")
    full = plait.join(A.stream, B.stream, on=EQUAL, within=(3, 1), how="full", name="j")
    first = plait.dedup(A.stream, by="k", within=4, name="d")
    return {
        "join within, equal, right": joined(A, B, EQUAL, within=2, how="right"),
        "join within, equal, full": joined(A, B, EQUAL, within=(4, 1), how="full"),
        "join within, band, right": joined(A, B, BAND, within=(3, 0), how="right"),
        "join within, band, full": joined(A, B, BAND, within=1, how="full"),
        "join text equal, full": joined(BY_TEXT, BY_NUMBER, "l.s = r.s and l.p <> r.p", within=(0, 3), how="full"),
        "join late dropped, full": joined(LATE, LATE_NAMED, EQUAL, within=3, how="full"),
        "join with itself, full": joined(A, A, "l.k = r.k and l.i < r.i", within=2, how="full"),
        "join from nothing, right": joined(EMPTY, B, within=3, how="right"),
        "dedup": group(plait.dedup(A.stream, by="k", within=5), A),
        "dedup by two": group(plait.dedup(BY_TEXT.stream, by=["x", "s"], within=9), BY_TEXT),
        "dedup of one ts": group(plait.dedup(CONTENT.stream, by="i", within=0), CONTENT),
        "dedup late dropped": group(plait.dedup(LATE.stream, by="q", within=3), LATE),
        "dedup moments": group(plait.dedup(UTC_A.stream, by=["b"], within="7us"), UTC_A),
        "dag aggregate of right join": group(plait.aggregate(right, size=4, advance=3, compute={
            "n": plait.count(), "first": plait.first("a_i"), "most": plait.max("b_s")}), A, B),
        "dag dedup of full join": group(plait.dedup(full, by=["a_k", "b_i"], within=3), A, B),
        "dag full join of dedup": group(plait.join(first, B.stream, on=EQUAL, within=2, how="full"), A, B),
        "dag aggregate of dedup": group(plait.aggregate(first, size="5us", by="s", compute={
            "n": plait.count(), "all": plait.collect("i")}), A),
    }  # fmt: skip


def over_join(state: list[Any], t: Any) -> list[Any]:
    state.append(t.ts)
    return [plait.timer(t.ts + 1), (len(state) % 5, t.ts % 1000)]


def asofs_otherwise() -> dict[str, Group]:
    """As-of that does not look back from the same ts. Without `exact` it is what as-of was when the record was made first: these
    entries are that record's.
    """
    tuples = plait.aggregate(B.stream, size=3, advance=2, by="k", compute={"last": plait.last("x")}, name="t")
    before = {
        "asof, not exact": asof(A, B, exact=False),
        "asof inner, not exact": asof(A, B, how="inner", within=2, exact=False),
        "asof by, not exact": asof(A, B, by="k", exact=False),
        "asof by, within, inner, not exact": asof(A, B, by="s", within=5, how="inner", exact=False),
        "asof by two, not exact": asof(NAMED, COUNTED, by=["p", "s"], exact=False),
        "asof by pair, not exact": asof(A, B, by=[("k", "i"), ("x", "x")], within=9, exact=False),
        "asof disorder, not exact": asof(DISORDER, LATE_NAMED, by="k", within=6, exact=False),
        "asof moments, inner, not exact": asof(UTC_A, UTC_B, by="b", how="inner", within="5us", exact=False),
        "asof with itself, not exact": asof(A, A, by="k", within=4, exact=False),
        "dag asof of aggregate, not exact": group(plait.asof(A.stream, tuples, by="k", within=8, exact=False), A, B),
    }
    forward, nearest = {"direction": "forward"}, {"direction": "nearest"}
    waits = {
        "asof forward": asof(A, B, within=3, **forward),
        "asof forward by, inner": asof(A, B, by="s", within=5, how="inner", **forward),
        "asof forward by two": asof(NAMED, COUNTED, by=["p", "s"], within=9, **forward),
        "asof forward, not exact": asof(DISORDER, LATE_NAMED, by="k", within=6, exact=False, **forward),
        "asof forward with itself": asof(A, A, by="k", within=4, **forward),
        "asof nearest": asof(A, B, within=3, **nearest),
        "asof nearest by": asof(A, B, by="k", within=9, **nearest),
        "asof nearest, not exact": asof(A, B, by=[("k", "i")], within=9, exact=False, **nearest),
        "asof nearest, moments, inner": asof(UTC_A, UTC_B, by="b", how="inner", within="5us", **nearest),
        "asof nearest with itself": asof(A, A, by="k", within=4, **nearest),
        "dag asof nearest of aggregate": group(plait.asof(A.stream, tuples, by="k", within=8, **nearest), A, B),
        "dag aggregate of asof forward": group(plait.aggregate(
            plait.asof(A.stream, B.stream, by="k", within=5, **forward), size="4us", by="a_k", compute=COUNT), A, B),
    }  # fmt: skip
    return before | waits


#: New kinds come last: which way a query is run on Spark goes by its place.
KINDS: tuple[Callable[[], dict[str, Group]], ...] = (joins, asofs, aggregates, operators, dags, outer, asofs_otherwise)
QUERIES: dict[str, Group] = {name: made for kind in KINDS for name, made in kind().items()}
