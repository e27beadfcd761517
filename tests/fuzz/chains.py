"""Chains and DAGs of all relational pieces in any order, each beside the same thing in DuckDB's SQL.

where, select, drop, rename, union, dedup, aggregates (spans, tuples, sessions; `where=` and expressions), joins of every kind and
as-of in every direction, up to five deep, over streams and over one another; some of them as SQL text (`chain_sql`). What a piece
means is told to DuckDB at the same time (`chain_tables`), and not read from plait's own tree: so DuckDB judges names of columns,
rows, values and order of the whole chain, by rules that no executor has a part in.

Numbers are small, and NULL is among them: what overflows, NaN and opaque functions are the other shapes' business.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from tests.fuzz import chain_functions, chain_sql, chain_tables
from tests.fuzz.chain_functions import NUMBERS
from tests.fuzz.chain_tables import quoted
from tests.fuzz.feeds import Draw

import plait

#: Columns of the streams. Those that only tell sources apart are carried along, and not judged.
COLUMNS = {"k": "int64", "j": "int64", "i": "int32", "p": "int8", "s": "string", "b": "bool"}
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Node:
    """A stream or a query, its columns with their types in order, and its table in DuckDB.

    A stream's time column is among its columns as `ts`, of type "time", as long as nothing has dropped it; so is a query's `ts`.
    Columns of type "other" are not judged.
    """

    node: Any
    columns: dict[str, str]
    table: str

    @property
    def is_query(self) -> bool:
        """Whether its rows keep `ts` in front: not if they are a stream's, changed one by one."""
        found = self.node
        while type(found).__name__ == "RowByRow":
            found = found.input
        return not isinstance(found, plait.Stream)

    def of(self, *types: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in types]


@dataclass(frozen=True)
class Told:
    """What DuckDB is told: statements that make tables from those of the streams, the last table and its columns."""

    statements: tuple[str, ...]
    table: str
    columns: dict[str, str]


def drawn(draw: Draw) -> Draw:
    """What streams of chains are made of."""
    return replace(draw, columns="".join(c for c in COLUMNS if c in draw.columns), wide_integers=False,
                   clocks=tuple(c for c in (0, 0, 3) if c in draw.clocks))  # fmt: skip


class Chain:
    """Draws one. `stream` makes a stream with its feed: (name, columns) -> the stream and its schema."""

    def __init__(
        self, chance: random.Random, step_us: int, stream: Callable[[str, str], tuple[Any, pa.Schema]]
    ) -> None:
        self.chance, self.step_us, self._stream = chance, step_us, stream
        self.schemas: dict[str, pa.Schema] = {}
        self.notes: list[str] = []
        self._nodes: list[Node] = []
        self._statements: dict[str, str] = {}

    def told(self, node: Node) -> Told:
        """What it takes to make the node's table: branches that came to nothing are left out."""
        needed = {node.table}
        for table, statement in reversed(self._statements.items()):
            needed |= set(re.findall(r"\bn\d+\b", statement)) if table in needed else set()
        chosen = (statement for table, statement in self._statements.items() if table in needed)
        return Told(tuple(chosen), node.table, node.columns)

    def made(self, node: Any, columns: dict[str, str], select: str, note: str) -> Node:
        """A node whose table is what `select` gives."""
        table = f"n{len(self._statements)}"
        self._statements[table] = f"create or replace temp table {table} as {select}"
        self._nodes.append(Node(node, columns, table))
        self.notes.append(f"{table} = {note}")
        return self._nodes[-1]

    def name(self, letter: str, number: int = 0) -> str:
        """A new column's."""
        return f"{letter}{len(self._statements)}{number}"

    def _named(self, query: Any) -> Any:
        """Some queries have a name, which stands in front of columns that both sides have."""
        return query.named(f"q{len(self._statements)}") if self.chance.random() < 0.3 else query

    # --- a whole chain ---

    def query(self) -> Node:
        """The last node is a query."""
        node = self.source()
        for _ in range(self.chance.choice((1, 2, 2, 3, 3, 4, 5))):
            node = self.grown(node)
        return node if isinstance(node.node, plait.Query) else self._where(node)

    def source(self) -> Node:
        chance = self.chance
        name = chance.choice("aab" if len(self.schemas) < 2 else "abc")
        known = next((n for n in self._nodes if isinstance(n.node, plait.Stream) and n.node.name == name), None)
        if known is not None:
            return known
        stream, schema = self._stream(name, "".join(chance.sample(list(COLUMNS), chance.choice((2, 3)))) + "k")
        self.schemas[name] = schema
        columns = {f.name: COLUMNS.get(f.name, "time" if f.name == "ts" else "other") for f in schema}
        self._nodes.append(Node(stream, columns, f"s_{name}"))
        return self._nodes[-1]

    def grown(self, node: Node) -> Node:
        """The node with a piece more. A piece that can't be made of it gives None, and another is drawn."""
        ways = (self._where, self._where, self._select, self._select, self._less, self._rename, self._union, self._dedup,
                self._aggregate, self._aggregate, self._join, self._join, self._asof, self._asof)  # fmt: skip
        pieces = [*ways, *(partial(piece, self) for piece in chain_sql.PIECES)]
        for _ in range(6):
            found = self.chance.choice(pieces)(node)
            if found is not None:
                return found
        return node

    def other(self, node: Node) -> Node:
        """What a node meets: a stream, another node of the DAG, itself, or a branch of its own."""
        drawn = self.chance.random()
        if drawn < 0.5:
            return self.source()
        if drawn < 0.7:
            return self.chance.choice(self._nodes)
        return node if drawn < 0.8 else self.grown(self.source())

    # --- expressions: text that means the same to both ---

    def condition(self, node: Node) -> str | None:
        chance = self.chance
        atoms = []
        if numbers := node.of(*NUMBERS):
            a, b = chance.choice(numbers), chance.choice(numbers)
            atoms += [f"{a} >= {chance.choice((0, 1))}", f"{a} <> {b}", f"{a} - {b} between -1 and 2", f"{a} is null",
                      f"{a} in (0, 1)", f"{a} % 2 = 0", f"not ({a} < {b})", f"{a} is not null"]  # fmt: skip
        if texts := node.of("string"):
            a = chance.choice(texts)
            atoms += [f"{a} = 'a'", f"{a} <> 'b'", f"{a} is not null"]
        if truths := node.of("bool"):
            atoms += [chance.choice(truths), f"not {chance.choice(truths)}"]
        if not atoms:
            return None
        text = chance.choice(atoms)
        if chance.random() < 0.3:
            text = f"({text}) {chance.choice(('and', 'or'))} ({chance.choice(atoms)})"
        return text

    def _value(self, node: Node) -> tuple[str, str] | None:
        """An expression and its type."""
        chance, numbers, texts = self.chance, node.of(*NUMBERS), node.of("string")
        if texts and chance.random() < 0.2:
            return f"length({chance.choice(texts)})", "int64"
        if not numbers:
            return None
        a, b = chance.choice(numbers), chance.choice(numbers)
        return chance.choice((
            (f"{a} + 1", "int64"), (f"{a} - {b}", "int64"), (f"abs({a})", "int64"), (f"{a} % 3", "int64"), (f"-{a}", "int64"),
            (f"least({a}, {b})", "int64"), (f"greatest({a}, 0)", "int64"), (f"{a} > {b}", "bool"), (f"{a} / 2", "float64"),
            (f"{a} = 1 or {b} is null", "bool"), ("7", "int64"), (f"2 * {a} - {b}", "int64"),
        ))  # fmt: skip

    def on(self, left: Node, right: Node) -> str | None:
        """A condition on two rows, l and r."""
        chance = self.chance
        atoms = [f"l.{a} = r.{b}" for a, b in zip(left.of("string"), right.of("string"), strict=False)]
        pairs = [(a, b) for a in left.of(*NUMBERS) for b in right.of(*NUMBERS)]
        if pairs:
            a, b = chance.choice(pairs)
            atoms += [f"l.{a} = r.{b}", f"l.{a} = r.{b}", f"abs(l.{a} - r.{b}) <= 1", f"l.{a} < r.{b}", f"l.{a} + r.{b} > 1",
                      f"l.{a} = r.{b} and l.{a} >= 0", f"l.{a} is null or r.{b} = 1"]  # fmt: skip
        return chance.choice(atoms) if atoms else None

    # --- row by row ---

    def _where(self, node: Node) -> Node:
        given = self.condition(node) or "1 = 1"
        select = f"select * from {node.table} where {given}"
        return self.made(node.node.where(given), node.columns, select, f"{node.table} where {given}")

    def selected(self, node: Node) -> tuple[list[str], dict[str, tuple[str, str]]]:
        """Columns that stay, and new ones: expressions with their types."""
        names = [name for name in node.columns if name != "ts" or not node.is_query]
        kept = self.chance.sample(names, min(len(names), self.chance.choice((1, 2, 3))))
        drawn = [self._value(node) for _ in range(self.chance.choice((0, 1, 2)))]
        return kept, {self.name("z", n): value for n, value in enumerate(drawn) if value is not None}

    def projected(self, node: Node, columns: dict[str, str], made: dict[str, tuple[str, str]]) -> str:
        items = [f"{made[n][0]} as {quoted(n)}" if n in made else quoted(n) for n in columns if n != "ts"]
        return f"select {', '.join(['ts', 'pos', *items])} from {node.table}"

    def _select(self, node: Node) -> Node | None:
        kept, made = self.selected(node)
        if not kept and not made:
            return None
        columns = {"ts": "time"} if node.is_query else {}
        columns |= {name: node.columns[name] for name in kept} | {name: kind for name, (_, kind) in made.items()}
        select = node.node.select(*kept, **{name: text for name, (text, _) in made.items()})
        return self.made(select, columns, self.projected(node, columns, made), f"{node.table} select {kept} {made}")

    def _less(self, node: Node) -> Node | None:
        names = [name for name in node.columns if name != "ts"]
        if len(names) < 2:
            return None
        gone = self.chance.choice(names)
        columns = {n: kind for n, kind in node.columns.items() if n != gone}
        return self.made(node.node.drop(gone), columns, self.projected(node, columns, {}), f"{node.table} drop {gone}")

    def _rename(self, node: Node) -> Node | None:
        names = [name for name in node.columns if name != "ts"]
        if len(names) < 2:
            return None
        a, b = self.chance.sample(names, 2)
        new = {a: b, b: a} if self.chance.random() < 0.5 else {a: self.name("y")}
        columns = {new.get(n, n): kind for n, kind in node.columns.items()}
        items = [f"t.{quoted(n)} as {quoted(new.get(n, n))}" for n in node.columns if n != "ts"]
        renamed = node.node.rename(**{n: o for o, n in new.items()})
        select = f"select {', '.join(['ts', 'pos', *items])} from {node.table} t"
        return self.made(renamed, columns, select, f"{node.table} rename {new}")

    # --- union and dedup ---

    def alike(self, node: Node, other: Node) -> Pairs | None:
        """Columns of both that have the same types."""
        pairs: Pairs = []
        for name, kind in node.columns.items():
            same = [n for n, k in other.columns.items() if k == kind and n not in [p[1] for p in pairs]]
            if same and kind not in ("other", "time", "list") and len(pairs) < 3:
                pairs.append((name, self.chance.choice(same)))
        return pairs or None

    def _union(self, node: Node) -> Node | None:
        other = self.other(node)
        pairs = self.alike(node, other)
        if pairs is None:
            return None
        sides = [(node, 0), (other, 1)] if self.chance.random() < 0.5 else [(other, 1), (node, 0)]
        made = [each.node.select(**{f"u{n}": pair[side] for n, pair in enumerate(pairs)}) for each, side in sides]
        return self.united(plait.union(*made), sides, pairs)

    def united(self, query: Any, sides: list[tuple[Node, int]], pairs: Pairs) -> Node:
        first, side = sides[0]
        columns = {"ts": "time"} | {f"u{n}": first.columns[pair[side]] for n, pair in enumerate(pairs)}
        table = chain_tables.union([(each.table, [pair[side] for pair in pairs]) for each, side in sides])
        return self.made(self._named(query), columns, table, f"union of {first.table}, {sides[1][0].table}")

    def _dedup(self, node: Node) -> Node | None:
        keys = node.of(*NUMBERS, "string", "bool")
        if not keys:
            return None
        by = self.chance.sample(keys, min(len(keys), self.chance.choice((1, 1, 2))))
        within = self.chance.choice((0, 1, 2, 5)) * self.step_us
        query = self._named(plait.dedup(node.node, by=by, within=within))
        columns = {"ts": "time"} | {n: kind for n, kind in node.columns.items() if n != "ts"}
        return self.made(
            query, columns, chain_tables.dedup(node.table, by, within), f"{node.table} dedup {by} {within}"
        )

    # --- joins ---

    def paired(self, left: Node, right: Node, names: chain_tables.Names) -> dict[str, str]:
        return {"ts": "time"} | {name: (left, right)[side].columns[own] for name, (side, own) in names.items()}

    def _names(self, left: Node, right: Node | None, called: tuple[Any, Any]) -> chain_tables.Names | None:
        """A join's columns after `ts`; one that stands twice, or is `ts`, has its side's name in front. None if two would
        have one name.
        """
        prefix = ("left", "right") if None in called or called[0] == called[1] else called
        sides = [(0, name) for name in left.columns] + [
            (1, name) for name in (right.columns if right is not None else ())
        ]
        every = ["ts", *(name for _, name in sides)]
        found = [(f"{prefix[side]}_{name}" if every.count(name) > 1 else name, (side, name)) for side, name in sides]
        return dict(found) if len({"ts", *dict(found)}) > len(found) else None

    def _two(self, node: Node) -> tuple[Node, Node]:
        other = self.other(node)
        return (node, other) if self.chance.random() < 0.5 else (other, node)

    def _join(self, node: Node) -> Node | None:
        chance, (left, right) = self.chance, self._two(node)
        on = self.on(left, right)
        kind = chance.choice(("within", "within", "within", "tumbling", "last", "tumbling_count"))
        how = chance.choice(("inner", "left", "right", "full", "semi", "anti")) if kind == "within" else "inner"
        names = self._names(left, right if how not in ("semi", "anti") else None, (left.node.name, right.node.name))
        if names is None:
            return None
        before = after = 0
        width: Any = chance.choice((1, 2, 3, 7))
        if kind == "within":
            before, after = width = tuple(chance.choice((0, 1, 2, 4)) * self.step_us for _ in range(2))
            fits = f"r.ts - l.ts between {-before} and {after}"
        elif kind == "tumbling":
            width *= self.step_us
            fits = chain_tables.same_window(width)
        else:
            fits = chain_tables.last_tuples(left.table, right.table, width, tumbling=kind == "tumbling_count")
        query = self._named(plait.join(left.node, right.node, on=on, how=how, **{kind: width}))
        table = chain_tables.join(left.table, right.table, names, f"({fits}) and ({on or 'true'})", how, before, after)
        note = f"{left.table} {how} join {right.table} {kind} {width} on {on}"
        return self.made(query, self.paired(left, right, names), table, note)

    # --- as-of ---

    def by(self, left: Node, right: Node) -> Pairs:
        found = [(a, b) for a, k in left.columns.items() for b, o in right.columns.items()
                 if (k in NUMBERS and o in NUMBERS) or (k == o and k in ("string", "bool"))]  # fmt: skip
        return [self.chance.choice(found)] if found and self.chance.random() < 0.6 else []

    def fits(self, left: Node, right: Node, by: Pairs) -> list[str]:
        """Which rows may be partners, but for their times: equal ones, and not the row itself."""
        same = left.node == right.node
        return [f"l.{quoted(a)} = r.{quoted(b)}" for a, b in by] + (["r.pos <> l.pos"] if same else [])

    def _asof(self, node: Node) -> Node | None:
        chance, (left, right) = self.chance, self._two(node)
        names = self._names(left, right, (left.node.name, right.node.name))
        if names is None:
            return None
        direction = chance.choice(("backward", "forward", "nearest"))
        steps = chance.choice((None, 0, 2) if direction == "backward" else (0, 1, 3))
        within = None if steps is None else steps * self.step_us
        exact, how, by = chance.random() < 0.6, chance.choice(("left", "inner")), self.by(left, right)
        query = plait.asof(left.node, right.node, by=by, within=within, exact=exact, direction=direction, how=how)
        table = chain_tables.asof(
            left.table, right.table, names, self.fits(left, right, by), within, exact, direction, how
        )
        note = f"{left.table} as-of {right.table} {direction} {within} exact {exact} {how} by {by}"
        return self.made(self._named(query), self.paired(left, right, names), table, note)

    # --- aggregates ---

    def may_be_keys(self, node: Node) -> list[str]:
        """Columns that an aggregate may go by: its own names are taken."""
        return [name for name in node.of(*NUMBERS, "string", "bool") if name not in ("window_start", "window_end")]

    def _keys(self, node: Node) -> dict[str, tuple[str, str]]:
        """A key's columns: how each is made, and its type."""
        keys = self.may_be_keys(node)
        by = self.chance.sample(keys, min(len(keys), self.chance.choice((0, 1, 1, 2))))
        found = {name: (name, node.columns[name]) for name in by}
        if (numbers := node.of(*NUMBERS)) and self.chance.random() < 0.25:
            found[self.name("odd")] = f"{self.chance.choice(numbers)} % 2", "int64"
        return found

    def _aggregate(self, node: Node) -> Node | None:
        chance, by = self.chance, self._keys(node)
        drawn = {self.name("f", n): chain_functions.drawn(self, node) for n in range(chance.choice((1, 2, 3)))}
        kind = chance.choice(("spans", "tuples", "session"))
        width = chance.choice(((1, 1), (3, 2), (2, 2), (2, 3), (4, 1)))
        if kind != "tuples":
            width = (width[0] * self.step_us, width[1] * self.step_us)
        size, advance = (width if kind == "tuples" else (f"{width[0]}us", f"{width[1]}us"))  # fmt: skip
        options: dict[str, Any] = {"session": size} if kind == "session" else {"size": size, "advance": advance}
        edge = "int64" if kind == "tuples" else "time"
        columns = {"ts": "time", "window_start": edge, "window_end": edge}
        columns |= {name: kind for name, (_, kind) in by.items()} | {name: kind for name, (_, _, kind) in drawn.items()}
        query = plait.aggregate(node.node, by={name: text for name, (text, _) in by.items()},
                                compute={name: function for name, (function, _, _) in drawn.items()}, **options)  # fmt: skip
        table = chain_tables.windows(node.table, kind, width, {name: text for name, (text, _) in by.items()},
                                     {name: text for name, (_, text, _) in drawn.items()})  # fmt: skip
        return self.made(self._named(query), columns, table, f"{node.table} aggregate {options} by {by} {list(drawn)}")
