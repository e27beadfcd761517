"""A random query with its streams, from a seed: joins, as-of, aggregates, operators, and compositions of these."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from tests.fuzz import chains, programs, values
from tests.fuzz.conditions import ON_ROWS, Condition, pool
from tests.fuzz.feeds import Draw, Feed, Setting, feed, setting

import plait
from plait.query.bind import bind
from plait.query.condition.types import column_type
from plait.query.join import side_names

#: A condition's number that no `--compiled` reaches: its kernels run as Python.
UNCOMPILED = 1 << 30


@dataclass(frozen=True)
class Group:
    """A query and its data. `text` describes the query where `explain` does not."""

    query: plait.Query
    feeds: tuple[Feed, ...]
    text: str
    on: tuple[Condition, ...] = ()
    endless: bool = False  # an operator whose timers set timers
    told: chains.Told | None = None  # the whole query in DuckDB's words

    def described(self) -> str:
        return "\n".join((self.text, self.query.explain(), *(each.described() for each in self.feeds)))


class Maker:
    """Draws one group. Streams are called a, b and c."""

    def __init__(self, chance: random.Random, draw: Draw) -> None:
        self.chance, self.draw = chance, draw
        self.setting: Setting = setting(chance, draw)
        self.feeds: dict[str, Feed] = {}
        self.notes: list[str] = []
        self.conditions: list[Condition] = []
        self.endless = False
        self.told: chains.Told | None = None

    def us(self, steps: int) -> int:
        return steps * self.setting.step_us

    def duration(self, steps: int) -> str:
        return f"{self.us(steps)}us"

    def stream(self, name: str, needs: frozenset[str] | str) -> plait.Stream:
        chance, draw = self.chance, self.draw
        extra = chance.sample(draw.columns, chance.choice((0, 0, 1, 2)))
        columns = "".join(sorted({*needs, *extra} - {"ts"}))
        self.feeds[name] = feed(chance, name, columns, self.setting, draw)
        return self.feeds[name].stream

    def condition(self) -> Condition:
        while True:
            found = self.chance.choice(pool(self.draw.conditions))
            read = found.reads[0] | found.reads[1]
            if read <= set(self.draw.columns) and (found.kind != "opaque" or self.draw.opaque_text or "s" not in read):
                self.notes.append(f"on {found.text}")
                self.conditions.append(found)
                return found

    # --- single operators ---

    def join(self, *, left: str = "a", right: str = "b") -> plait.Query:
        chance, on = self.chance, self.condition()
        if chance.random() < 0.12:
            both = self.stream(left, on.reads[0] | on.reads[1])
            return self.joined(both, both, on)
        return self.joined(self.stream(left, on.reads[0]), self.stream(right, on.reads[1]), on)

    def joined(self, left: Any, right: Any, on: Condition, **options: Any) -> plait.Query:
        chance = self.chance
        kind = chance.choice(("within", "within", "within", "last", "tumbling"))
        if kind == "last":
            counted = {chance.choice(("last", "tumbling_count")): chance.choice((1, 2, 3, 7, 40))}
            return plait.join(left, right, on=on.on, **counted, **options)
        if kind == "tumbling":
            return plait.join(left, right, on=on.on, tumbling=self.us(chance.choice((1, 2, 3, 5))), **options)
        steps = [chance.choice((0, 1, 2, 5)) for _ in range(2)]
        within: Any = tuple(map(self.us, steps)) if chance.random() < 0.5 else self.us(steps[0])
        how = chance.choice(("inner", "inner", "left", "semi", "anti"))
        if how == "left":
            # What came later: drawn from what was drawn before, so that a case of an older seed is otherwise what it was.
            how = random.Random(f"{on.text} {within}").choice(("left", "right", "full", "full"))
        return plait.join(left, right, on=on.on, within=within, how=how, **options)

    def asof(self) -> plait.Query:
        chance = self.chance
        by = chance.choice(("", "k", "s", "x", "ps", "u", "e", "t", "q", "b", "y"))
        pairs: list[Any] = [name for name in by if name in self.draw.columns]
        if chance.random() < 0.15:
            pairs = [("k", "i")] if chance.random() < 0.5 else [("x", "q")]  # of two types
        needs = [frozenset(p[side] if isinstance(p, tuple) else p for p in pairs) for side in (0, 1)]
        left = self.stream("a", needs[0])
        right = self.stream("b", needs[1]) if chance.random() < 0.85 or needs[0] != needs[1] else left
        return plait.asof(left, right, by=pairs, how=chance.choice(("left", "inner")), **self.looking())

    def looking(self) -> dict[str, Any]:
        """Where an as-of join looks, and how far."""
        chance = self.chance
        direction = chance.choice(("backward", "forward", "nearest"))
        age = chance.choice((None, 0, 1, 3) if direction == "backward" else (0, 1, 3, 8))
        within = None if age is None else self.us(age)
        return {"within": within, "exact": chance.random() < 0.6, "direction": direction}

    def spans(self) -> plait.Query:
        chance = self.chance
        size, advance = chance.choice(((1, 1), (2, 1), (3, 3), (4, 3), (5, 2), (2, 5), (6, 6)))
        by, compute, needs = self.computed()
        return plait.aggregate(
            self.stream("a", needs), size=self.duration(size), advance=self.duration(advance), by=by, compute=compute
        )

    def counts(self) -> plait.Query:
        if self.chance.random() < 0.3:
            by, compute, needs = self.computed()
            return plait.aggregate(self.stream("a", needs), session=self.duration(2), by=by, compute=compute)
        size, advance = self.chance.choice(((1, 1), (2, 1), (3, 3), (3, 2), (1, 3), (2, 4), (5, 1)))
        by, compute, needs = self.computed()
        return plait.aggregate(self.stream("a", needs), size=size, advance=advance, by=by, compute=compute)

    def computed(self) -> tuple[tuple[str, ...], dict[str, Any], frozenset[str]]:
        """Keys, functions and the columns they read."""
        chance = self.chance
        by = tuple(
            c
            for c in chance.choice(("", "", "k", "x", "s", "qp", "e", "t", "b", "u", "y", "w"))
            if c in self.draw.columns
        )
        chosen = chance.sample(FUNCTIONS, chance.choice((1, 1, 2, 4)))
        compute, needs = {}, set(by)
        for number, make in enumerate(chosen):
            function, read = make(chance)
            if set(read) <= set(self.draw.columns):
                compute[f"f{number}"] = function
                needs |= set(read)
        return by, compute or {"n": plait.count()}, frozenset(needs)

    def operator(self) -> plait.Query:
        chance = self.chance
        program = chance.choice([p for p in programs.PROGRAMS if self.draw.endless_timers or not p.endless])
        inputs = [self.stream(name, program.needs) for name in chance.choice(("a", "a", "ab", "bac"))]
        if chance.random() < 0.15:
            inputs.append(inputs[0])
        self.notes.append(f"program {program.name}")
        self.endless = program.endless
        return program.query(inputs)

    # --- row by row ---

    def rows(self) -> plait.Query:
        """Rows changed one by one: of streams that operators read, of results, and in unions."""
        chance = self.chance
        made: Callable[[], plait.Query] = chance.choice(
            (
                self._alone,
                self._union,
                self._join_of_rows,
                self._aggregate_of_rows,
                self._of_results,
                self._operator_of_rows,
            )
        )
        return made()

    def _changed(self, name: str, keep: str = "k") -> Any:
        """A stream's rows after a filter, a selection, or both in any order. They have `keep`, and maybe z0 and z1."""
        chance = self.chance
        _, where, reads = chance.choice([each for each in ON_ROWS if set(each[2]) <= set(self.draw.columns)])
        chosen = chance.sample([each for each in VALUES if set(each[2]) <= set(self.draw.columns)], 2)
        node: Any = self.feeds[name].stream if name in self.feeds else None
        if node is None:
            node = self.stream(name, frozenset(reads) | {*keep} | {c for each in chosen for c in each[2]})
        present = set(self.feeds[name].schema.names)
        if {*keep} - present:
            return node
        if set(reads) <= present and chance.random() < 0.7:
            node = node.where(where)
            self.notes.append(f"{name} where {reads}")
        if all(set(each[2]) <= present for each in chosen) and chance.random() < 0.6:
            node = node.select(*keep, **{f"z{n}": each[1] for n, each in enumerate(chosen)})
            self.notes.append(f"{name} select {', '.join(each[0] for each in chosen)}")
        return node

    def _alone(self) -> plait.Query:
        node = self._changed("a")
        return node if isinstance(node, plait.Query) else node.where(lambda row: ~row.k.is_null())  # type: ignore[no-any-return]

    def _union(self) -> plait.Query:
        names = self.chance.choice(("a", "ab", "ba", "aba", "abc"))
        found = [self._changed(name) for name in names]
        made = plait.union(*(each.select(k="k", n=str(number)) for number, each in enumerate(found)))
        return made if self.chance.random() < 0.5 else made.where("k >= 1")

    def _join_of_rows(self) -> plait.Query:
        names = self.chance.choice(("ab", "ab", "aa"))
        left, right = (self._changed(name) for name in names)
        made = self.joined(left, right, Condition("l.k = r.k", "l.k = r.k", (frozenset("k"), frozenset("k")), "sql"))
        both = getattr(made, "how", "inner") not in ("semi", "anti")
        column = ("left_k" if names == "aa" else "a_k") if both else "k"
        return made if self.chance.random() < 0.5 else made.select(z=f"{column} % 2").where("z >= 0")

    def _aggregate_of_rows(self) -> plait.Query:
        node = self._changed("a")
        by = self.chance.choice(((), ("k",), ("k % 2",), {"half": "k / 2"}))
        compute = {"n": plait.count(), "s": plait.max("k % 3"), "first": plait.first("k")}
        if self.chance.random() < 0.5:
            compute["twice"] = plait.collect(lambda row: row.k % 5)
        return plait.aggregate(node, size=self.duration(3), advance=self.duration(2), by=by, compute=compute)

    def _of_results(self) -> plait.Query:
        windows = self._aggregate(self._changed("a"), "k", by=("k",))
        made = windows.where("n >= 1").select("n", twice="n * 2", key=lambda row: row.k)
        if self.chance.random() < 0.5:
            return made
        other = self._changed("b")
        return self.joined(made, other, Condition("l.key = r.k", "l.key = r.k", (frozenset(), frozenset("k")), "sql"))

    def _operator_of_rows(self) -> plait.Query:
        program = self.chance.choice([p for p in programs.PROGRAMS if not p.endless])
        nodes = []
        for name in self.chance.choice(("a", "ab")):
            node = self.stream(name, frozenset(program.needs) | {"k"})
            nodes.append(node.where("k >= 0"))
        self.notes.append(f"program {program.name}")
        return program.query(nodes)

    def deduped(self, query: plait.Query, shape: str) -> plait.Query:
        """Some queries, without what repeats among their results; and in the place of some aggregates, their stream without it.

        It came later: drawn from what was drawn before, so that a case of an older seed is otherwise what it was.
        """
        chance = random.Random(f"{shape} {query.explain()} {sorted(self.feeds)}")
        schemas = {name: each.schema for name, each in self.feeds.items()}
        over_stream = shape in ("spans", "counts") and chance.random() < 0.3
        if not over_stream and chance.random() > 0.08:
            return query
        node: Any = self.feeds["a"].stream if over_stream else query
        schema = schemas["a"] if over_stream else bind(query, schemas).schema
        columns = [field.name for field in schema if column_type(field.type) is not None and field.name != "ts"]
        if not columns:
            return query
        by = chance.sample(columns, min(len(columns), chance.choice((1, 1, 2))))
        return plait.dedup(node, by=by, within=self.us(chance.choice((0, 1, 2, 5))))

    # --- compositions ---

    def chain(self) -> plait.Query:
        """All relational pieces in any order; nothing of it is compiled for the case alone."""
        self.draw = chains.drawn(self.draw)
        self.setting = replace(setting(self.chance, self.draw), rows=self.chance.choice((2, 6, 10, 16)))

        def stream(name: str, columns: str) -> tuple[plait.Stream, pa.Schema]:
            return self.stream(name, columns), self.feeds[name].schema

        made = chains.Chain(self.chance, self.setting.step_us, stream)
        node = made.query()
        self.notes += made.notes
        self.told = made.told(node)
        self.conditions.append(Condition("a chain's", None, (frozenset(), frozenset()), "sql", number=UNCOMPILED))
        return node.node  # type: ignore[no-any-return]

    def dag(self) -> plait.Query:
        made: Callable[[], plait.Query] = self.chance.choice(
            (self._aggregate_of_join, self._join_of_aggregate, self._join_of_joins, self._asof_of_aggregate,
             self._operator_over_join, self._diamond)
        )  # fmt: skip
        return made()

    def _aggregate(self, node: Any, column: str, by: tuple[str, ...] = (), **options: Any) -> plait.Query:
        compute = {"n": plait.count(), "first": plait.first(column), "all": plait.collect(column)}
        if self.chance.random() < 0.5:
            compute = {"n": plait.count(), "last": plait.last(column), "most": plait.max(column)}
        if self.chance.random() < 0.5:
            return plait.aggregate(
                node, size=self.duration(3), advance=self.duration(2), by=by, compute=compute, **options
            )
        return plait.aggregate(node, size=3, advance=2, by=by, compute=compute, **options)

    def _inner_join(self) -> plait.Query:
        on = self.condition()
        left, right = self.stream("a", on.reads[0] | {"k"}), self.stream("b", on.reads[1] | {"k"})
        return self.joined(left, right, on, name="j")

    def _aggregate_of_join(self) -> plait.Query:
        join = self._inner_join()
        both = getattr(join, "how", "inner") not in ("semi", "anti")
        column = "a_k" if both else "k"
        return self._aggregate(join, column, by=(column,) if self.chance.random() < 0.5 else ())

    def _join_of_aggregate(self) -> plait.Query:
        windows = self._aggregate(self.stream("a", "k"), "k", by=("k",), name="w")
        other = self.feeds["a"].stream if self.chance.random() < 0.3 else self.stream("b", "k")
        sides = (windows, other) if self.chance.random() < 0.5 else (other, windows)
        return self.joined(*sides, Condition("l.k = r.k", "l.k = r.k", (frozenset("k"), frozenset("k")), "sql"))

    def _join_of_joins(self) -> plait.Query:
        inner, other = self._inner_join(), self.stream("c", "k")
        sides = (inner, other) if self.chance.random() < 0.5 else (other, inner)
        return self.joined(*sides, pool(1)[0])

    def _asof_of_aggregate(self) -> plait.Query:
        windows = self._aggregate(self.stream("b", "k"), "k", by=("k",), name="w")
        left: Any = self.feeds["b"].stream if self.chance.random() < 0.3 else self.stream("a", "k")
        sides = (left, windows) if self.chance.random() < 0.6 else (windows, left)
        sides = sides if self.chance.random() < 0.85 else (windows, windows)
        made = plait.asof(*sides, by="k" if self.chance.random() < 0.6 else None, **self.looking())
        return made if self.chance.random() < 0.7 else self._aggregate(made, f"{side_names(*sides)[0]}_k")

    def _operator_over_join(self) -> plait.Query:
        join = self._inner_join()
        both = getattr(join, "how", "inner") not in ("semi", "anti")
        run = programs.over_join("a_k" if both else "k")
        made = run.query(join)
        return made if self.chance.random() < 0.5 else self._aggregate(made, "v", by=("u",))

    def _diamond(self) -> plait.Query:
        stream = self.stream("a", "ks")
        one = self._aggregate(stream, "k", by=("s",))
        other = one if self.chance.random() < 0.5 else self._aggregate(stream, "k", by=("s",))
        return self.joined(one, other, Condition("l.s = r.s", "l.s = r.s", (frozenset("s"), frozenset("s")), "sql"))


def group(chance: random.Random, draw: Draw) -> Group:
    maker = Maker(chance, draw)
    shape = chance.choice(draw.shapes)
    made = getattr(maker, shape)()
    query = made if shape == "chain" else maker.deduped(made, shape)
    read = query.streams()
    return Group(
        query, tuple(maker.feeds[name] for name in read), "; ".join([shape, *maker.notes]), tuple(maker.conditions),
        maker.endless, maker.told,
    )  # fmt: skip


# --- expressions of one row ---------------------------------------------------------------------------------


def _opaque(row: Any) -> int:
    return 1 if row.i > 0 else -1


#: What a column is made of: words, the expression, the columns it reads. Some overflow at the ends of their types.
VALUES: tuple[tuple[str, Any, str], ...] = (
    ("k + 1", "k + 1", "k"),
    ("x * 2", lambda row: row.x * 2, "x"),
    ("q + x", "q + x", "qx"),
    ("p * i", "row.p * i", "pi"),
    ("|i|", lambda row: abs(row.i), "i"),
    ("u % 3", "u % 3", "u"),
    ("k // 2", lambda row: row.k // 2, "k"),
    ("k / 0", "k / 0", "k"),
    ("int(x)", "cast(x as int)", "x"),
    ("k > 0", "k > 0 or x < 1", "kx"),
    ("len(s)", lambda row: row.s.length(), "s"),
    ("lower(s)", lambda row: row.s.ascii_lower(), "s"),
    ("least(k, i)", lambda row: plait.minimum(row.k, row.i), "ki"),
    ("7", lambda row: 7, ""),
    ("'a'", "'a'", ""),
    ("opaque", (_opaque, "int64"), "i"),
    ("e", "e", "e"),
    ("t", "t", "t"),
    ("-u", "-u", "u"),
    ("case k", "case when k > 0 then k * 4 when x > 0 then i else p end", "kxip"),
    ("case s", "case s when 'a' then upper(w) when '' then e else s || '-' || e end", "swe"),
    ("when", lambda row: plait.when(row.q > 0, row.q).when(row.b, row.k).otherwise(None), "qbk"),
    ("coalesce", "coalesce(x, q, i, 0)", "xqi"),
    ("nullif y", "nullif(y, y)", "y"),
    (
        "words",
        lambda row: plait.concat(row.s.lower().substring(-2, 1), row.w.replace("a", "é"), row.e.split_part("a", -1)),
        "swe",
    ),
    ("extract", "regexp_extract(w, '(a+)(b?)', 2)", "w"),
    ("times", "year(t) * 1000 + month(t) * 100 + day(d) + hour(t) + second(t)", "td"),
)

# --- aggregate functions ------------------------------------------------------------------------------------

Made = Callable[[random.Random], tuple[Any, str]]


def _of(make: Callable[[str], Any], columns: str) -> Made:
    def made(chance: random.Random) -> tuple[Any, str]:
        column = chance.choice(columns)
        return make(column), column

    return made


def _count_where(chance: random.Random) -> tuple[Any, str]:
    _, where, reads = chance.choice(ON_ROWS)
    return plait.count_where(where), reads


def _first_where(chance: random.Random) -> tuple[Any, str]:
    _, where, reads = chance.choice(ON_ROWS)
    column = chance.choice("kxsutm")
    return plait.first_where(column, where), reads + column


def _of_two(make: Callable[[str, str], Any], columns: str, others: str) -> Made:
    def made(chance: random.Random) -> tuple[Any, str]:
        column, other = chance.choice(columns), chance.choice(others)
        return make(column, other), column + other

    return made


def _only(chance: random.Random) -> tuple[Any, str]:
    """Any function of one column that sees some tuples only."""
    _, where, reads = chance.choice(ON_ROWS)
    kind, columns = chance.choice(ONLY)
    column = chance.choice(columns)
    return kind(column, where=where), reads + column


#: Made once: what Numba compiles of them is then compiled once. NULL is seen by the first and the last.
CUSTOM = (
    (plait.custom("p", init=lambda: 1, add=lambda state, p: 3 * state % 1_000_003 + (7 if p is None else p), type="int64"), "p"),
    (plait.custom("x", init=lambda: 0.0, add=lambda state, x: state if x is None else state * 0.5 + x, type="float64"), "x"),
    (plait.custom(["k", "s"], init=int, add=lambda n, k, s: n + (k is None) + (s is None), merge=int.__add__,
                  result=lambda n: n / 2, type="float64"), "ks"),
)  # fmt: skip


def _custom(chance: random.Random) -> tuple[Any, str]:
    return chance.choice(CUSTOM)


EVERY_COLUMN = "".join(values.COLUMNS)
NUMBERS, ORDERED = "kipuoxq", "kipuoxqbswytdgm"
ONLY: tuple[tuple[Callable[..., Any], str], ...] = (
    (plait.sum, "ipoxq"), (plait.mean, NUMBERS), (plait.var, NUMBERS), (plait.std, NUMBERS), (plait.median, NUMBERS),
    (plait.min, ORDERED), (plait.max, ORDERED), (plait.first, EVERY_COLUMN), (plait.last, EVERY_COLUMN),
    (plait.collect, EVERY_COLUMN), (plait.distinct, EVERY_COLUMN), (plait.mode, EVERY_COLUMN),
)  # fmt: skip
FUNCTIONS: tuple[Made, ...] = (
    lambda chance: (plait.count(), ""),
    _of(plait.sum, "kipuoxq"), _of(plait.sum, "ipoxq"), _of(plait.mean, "kipuoxq"), _of(plait.var, "kipuoxq"),
    _of(plait.min, "kipuoxqbswytdgm"), _of(plait.max, "kipuoxqbswytdgm"), _of(plait.first, EVERY_COLUMN),
    _of(plait.last, EVERY_COLUMN), _of(plait.collect, EVERY_COLUMN), _of(plait.distinct, EVERY_COLUMN),
    _count_where, _first_where, _custom, _only,
    _of(plait.std, NUMBERS), _of(plait.median, NUMBERS), _of(plait.mode, EVERY_COLUMN),
    lambda chance: _of(partial(plait.quantile, q=chance.choice((0, 0.1, 0.25, 0.5, 0.9, 1))), ORDERED)(chance),
    lambda chance: _of(partial(plait.quantile, q=chance.random(), interpolate=True), NUMBERS)(chance),
    _of_two(plait.covar, NUMBERS, NUMBERS), _of_two(plait.corr, NUMBERS, NUMBERS),
    _of_two(plait.arg_min, EVERY_COLUMN, ORDERED), _of_two(plait.arg_max, EVERY_COLUMN, ORDERED),
    _of_two(lambda column, by: plait.top(column, 2, by), EVERY_COLUMN, ORDERED),
)  # fmt: skip
