"""GROUP BY, aggregate functions and HAVING: an aggregate, and the SELECT list over its rows.

Rows are grouped by a window of event time: `window(ts, size, advance)` or `session_window(ts, gap)`. In place of one, an edge of
an earlier window will do: rows with the same edge have the same event time, so they share a tumbling window as long as the
step from one such window to the next. Whatever else stands in GROUP BY is the key.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from plait.query.aggregate import Aggregate, SpanWindow, aggregate
from plait.query.condition.sql_functions import DIALECT
from plait.query.functions import Function
from plait.query.select import expressions, joins
from plait.query.select.calls import Calls, is_call
from plait.query.select.items import Item
from plait.query.select.relation import OWN, TS, Clock, Relation, edges, named
from plait.query.select.source import Source, identifier

_WINDOWS: Final = ("window", "session_window")
_EDGES: Final = {"start": "window_start", "end": "window_end"}


@dataclass(frozen=True)
class Window:
    """The window of a GROUP BY.

    Attributes:
        options: Those of `plait.aggregate`.
        word: What stands before `.start` and `.end`; None for the windows of rows that have an edge in common.
        node: The call in the text.
        shift_us: By how much ts is later than that of the rows, where all of a group have the same. Else None.
    """

    options: dict[str, Any]
    word: str | None
    node: exp.Expr
    shift_us: int | None = None


#: An expression of GROUP BY, its column's name, and the column or the text that makes it.
Key = tuple[exp.Expr, str, str]


def asked(source: Source, select: exp.Select, items: list[Item]) -> bool:
    """Whether a SELECT aggregates."""
    for item in items:
        expressions.check(source, item.value, clause="SELECT", aggregates=True)
    return bool(
        select.args.get("group")
        or select.args.get("having")
        or any(is_call(each) for item in items for each in item.value.walk() if not isinstance(each, exp.Star))
    )


def grouped(source: Source, select: exp.Select, relation: Relation, items: list[Item]) -> tuple[Relation, list[Item]]:
    """The aggregate of a SELECT, filtered by HAVING, and its list over the aggregate's rows."""
    window, keys = _keys(source, select, relation, items)
    work = _Grouping(source, relation, window, keys, {item.name: item for item in items if item.name})
    made = [work.item(item) for item in items]
    having = select.args.get("having")
    parts = expressions.conjuncts(having.this if having else None)
    for part in parts:
        expressions.check(source, part, clause="HAVING", aggregates=True)
    kept = [work.over(part) for part in parts]
    found = work.relation()
    return joins.filtered(source, found, kept, parts), made


def _keys(source: Source, select: exp.Select, relation: Relation, items: list[Item]) -> tuple[Window, list[Key]]:
    """The window of GROUP BY, and its other expressions."""
    group = select.args.get("group")
    given = _listed(source, group, relation, items)
    windows = [_window(source, relation, each) for each in given if _is_window(each)]
    if len(windows) > 1:
        raise source.refuse(windows[1].node, "GROUP BY has two windows", do="Group by one")
    keys: list[Key] = []
    for each in given:
        if not _is_window(each):
            expressions.check(source, each, clause="GROUP BY")
            keys.append((each, *_key(source, relation, items, each, len(keys) + 1)))
    window = windows[0] if windows else _winsets(relation, [made for _, _, made in keys])
    if window is None:
        first = group or next((each for item in items for each in item.value.walk() if is_call(each)), items[0].value)
        raise source.refuse(
            source.word(("GROUP BY",), group.expressions[0]) if group and group.expressions else first,
            "the aggregate has no window of time",
            why="streams are endless: without a window no group is ever complete",
            do=f"Add GROUP BY window({_time(relation)}, '10 seconds'), or session_window({_time(relation)}, '5 minutes')",
        )
    return window, keys


def _listed(source: Source, group: exp.Group | None, relation: Relation, items: list[Item]) -> list[exp.Expr]:
    """The expressions of GROUP BY. A number is a place in the SELECT list, a name that is no column an alias there."""
    if group is None:
        return []
    for arg, value in group.args.items():
        if value and arg != "expressions":
            raise source.refuse(
                source.word(("GROUP BY",), group.expressions[0] if group.expressions else None),
                f"GROUP BY ... {arg.upper().replace('_', ' ')} makes groups of several kinds",
                do="Name the columns, and write a SELECT for each kind of group",
            )
    found = []
    for each in group.expressions:
        alike = [item for item in items if isinstance(each, exp.Column) and not each.table and item.name == each.name]
        if isinstance(each, exp.Literal) and not each.is_string and 0 < int(each.name) <= len(items):
            each = items[int(each.name) - 1].value
        elif alike and not _is_column(relation, each):
            each = alike[0].value
        if isinstance(each, (exp.Cube, exp.Rollup, exp.GroupingSets)):
            raise source.refuse(each, "groups of several kinds", do="Write a SELECT for each kind of group")
        found.append(each)
    return found


def _is_column(relation: Relation, column: exp.Column) -> bool:
    known = [name.lower() for part in relation.parts for name in part.columns or ()]
    return column.name.lower() in known


def _is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _WINDOWS


def _time(relation: Relation) -> str:
    """A column that a window may be of."""
    return next((name for name, clock in relation.clocks.items() if clock.own), TS)


def _window(source: Source, relation: Relation, call: exp.Expr) -> Window:
    """What `window(...)` and `session_window(...)` say."""
    word, given = call.name.lower(), call.expressions
    most = 4 if word == "window" else 2
    if not 2 <= len(given) <= most:
        raise source.refuse(
            call,
            f"{word} has {len(given)} arguments",
            do="Write window(ts, '30 seconds', '3 seconds') or session_window(ts, '5 minutes')",
        )
    time = given[0]
    clock = relation.clocks.get(relation.find(source, time)) if isinstance(time, exp.Column) else None
    if clock is None or not clock.own:
        raise source.refuse(
            time,
            f"{word} is of the rows' event time, and this is something else",
            why="rows come in the order of their event time, and a window is complete when that has passed",
            do=f"Write {word}({_time(relation)}, ...)",
        )
    lengths = [expressions.literal_duration(source, each) for each in given[1:]]
    if len(lengths) == 3 and lengths[2].split()[0].lstrip("0.") != "":
        raise source.refuse(
            given[3], "windows begin at whole multiples of their step, counted from 1970", do="Leave it out"
        )
    names = ("size", "advance") if word == "window" else ("session",)
    return Window(dict(zip(names, lengths, strict=False)), word, call)


def _winsets(relation: Relation, keys: list[str]) -> Window | None:
    """The tumbling window that rows share which have the same edge of an earlier window."""
    for key in keys:
        clock = relation.clocks.get(key)
        if clock is not None and clock.exact and clock.step_us is not None:
            return Window({"size": f"{clock.step_us} us"}, None, exp.Null(), clock.step_us - 1 - clock.phase_us)
    return None


def _key(source: Source, relation: Relation, items: list[Item], node: exp.Expr, at: int) -> tuple[str, str]:
    """A key's name, and the column or the text that makes it. An expression is called as the SELECT list calls it."""
    if isinstance(node, exp.Column):
        name = relation.find(source, node)
        return name, name
    made = joins.own_words(source, relation, node).sql(DIALECT, comments=False)
    names = [item.name for item in items if item.name and item.value.sql(DIALECT) == node.sql(DIALECT)]
    return (names or [f"key_{at}"])[0], made


class _Grouping:
    """Collects the functions that a SELECT list and HAVING ask for, and puts columns of the aggregate in their places."""

    def __init__(
        self, source: Source, relation: Relation, window: Window, keys: list[Key], items: dict[str, Item]
    ) -> None:
        self.source, self.input, self.window, self.items = source, relation, window, items
        self.keys = {name: made for _, name, made in keys}
        self.expressions = {node.sql(DIALECT): name for node, name, _ in keys if not isinstance(node, exp.Column)}
        self.calls = Calls(source, lambda node: joins.own_words(source, relation, node))
        self.compute: dict[str, Function] = {}
        self.hidden: dict[str, str] = {}
        self.places: dict[str, exp.Expr] = {}

    def item(self, item: Item) -> Item:
        """An entry of the SELECT list over the aggregate's rows."""
        if is_call(item.value) and item.name is not None:
            if item.name in self.compute:
                raise self.source.refuse(item.node, f"two columns are called {item.name!r}", do="Give one another name")
            self.compute[item.name] = self.calls.function(item.value)
            self.places[item.name] = item.value
            return dataclasses.replace(item, value=exp.column(identifier(item.name)), done=True)
        return dataclasses.replace(item, value=self.over(item.value), done=True)

    def over(self, node: exp.Expr) -> exp.Expr:
        """An expression with the aggregate's columns in place of keys, edges and functions."""
        return node.copy().transform(self._replaced)

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        edge = self._edge(node)
        if edge is not None:
            return exp.column(identifier(edge))
        if is_call(node):
            return exp.column(identifier(self._computed(node)))
        if self.expressions and node.sql(DIALECT) in self.expressions:
            return exp.column(identifier(self.expressions[node.sql(DIALECT)]))
        if not isinstance(node, exp.Column):
            return node
        if self.window.word is not None and not node.table and node.name.lower() == self.window.word:
            raise self.source.refuse(
                node,
                "a window as a whole is no column",
                do=f"Write {node.name}.start and {node.name}.end, each with AS",
            )
        alias = self.items.get(node.name) if not node.table and not _is_column(self.input, node) else None
        if alias is not None and is_call(alias.value):
            return exp.column(identifier(node.name))
        name = self.input.find(self.source, node)
        if name in self.keys:
            return exp.column(identifier(name))
        raise self.source.refuse(
            node,
            f"the column {node.name!r} is neither grouped by nor in an aggregate function",
            why="a group has many values of it",
            do="Add it to GROUP BY, or write first(...), max(...) or another function of it",
        )

    def _edge(self, node: exp.Expr) -> str | None:
        """The column that `window.start` or `window(...).end` is."""
        if isinstance(node, exp.Dot) and _is_window(node.this):
            if self.window.word is None or node.this.sql(DIALECT).lower() != self.window.node.sql(DIALECT).lower():
                raise self.source.refuse(node.this, "GROUP BY has another window", do="Write window.start")
            return _EDGES.get(node.expression.name.lower())
        if isinstance(node, exp.Column) and self.window.word is not None and node.table.lower() == self.window.word:
            return _EDGES.get(node.name.lower())
        return None

    def _computed(self, call: exp.Expr) -> str:
        """The column of a function that stands inside of an expression, or in HAVING."""
        text = call.sql(DIALECT)
        for name, item in self.items.items():
            if name in self.compute and item.value.sql(DIALECT) == text:
                return name
        if text not in self.hidden:
            function = self.calls.function(call)
            taken = {*self.keys, *self.items, *self.compute}
            at = 1
            while (name := f"{function.kind}_{at}") in taken:
                at += 1
            self.compute[name] = function
            self.places[name] = call
            self.hidden[text] = name
        return self.hidden[text]

    def relation(self) -> Relation:
        """The aggregate. One that computes nothing counts: its rows are the groups that there are."""
        compute = self.compute or {"count_1": self.calls.function(exp.Count(this=exp.Star()))}
        by = self.keys if self.expressions else list(self.keys)
        given: dict[str, Any] = {"input": self.input.node, "by": by, **self.window.options}
        word = self.source.word(("GROUP BY",))
        with self.source.at(self.window.node if self.source.span(self.window.node) else word):
            node = aggregate(**given, compute=compute)
        for name, function in compute.items():
            with self.source.at(self.places.get(name, word)):
                self.source.bind(aggregate(**given, compute={name: function}))
        columns = (TS, "window_start", "window_end", *self.keys, *compute)
        return named(node, "", columns, {TS: OWN} | edges(node.window) | self._key_clocks(node))

    def _key_clocks(self, node: Aggregate) -> dict[str, Clock]:
        """Clocks among the keys. A row's ts is its window's last microsecond: later than its tuples' by less than its length."""
        clocks = {key: self.input.clocks[key] for key in self.keys if key in self.input.clocks}
        if not isinstance(node.window, SpanWindow):
            return {}
        late = (0, node.window.size_us - 1) if self.window.shift_us is None else (self.window.shift_us,) * 2
        return {key: clock.later(*late) for key, clock in clocks.items()}
