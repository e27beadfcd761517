"""Predicates as frozen trees: what a condition says about one pair of rows, with no notion of how it runs.

A traced Python function and SQL text both become these nodes. Every rule of the value semantics is visible as
a node or an operator name, so that two readers (a kernel generator, an interpreter) can't differ silently:

- Python's ``/ // %`` and SQL's ``/ %`` are different operators (`div floordiv mod` against `sqldiv sqlmod`).
- Logic is three-valued; a comparison with NULL or NaN is unknown; a pair matches only if the root is true.
- Text functions take constants beside their text, and are nodes of their own (`Text`); texts put together are `Concat`.
- A choice (`Case`) is the value of its first branch whose condition is true; unknown goes on to the next.
- Integers are exact whatever their width. Floats keep their width under NumPy 2 promotion; literals are weak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plait.errors import QueryError

#: Operators of `Binary`, by family. Names are shared by the tracer, the SQL parser and every evaluator.
ARITHMETIC: Final = ("add", "sub", "mul", "div", "floordiv", "mod", "sqldiv", "sqlmod", "least", "greatest")
COMPARISON: Final = ("eq", "ne", "lt", "le", "gt", "ge")
LOGIC: Final = ("and", "or")
#: Operators of `Unary`.
UNARY: Final = ("neg", "abs", "not", "is_null")
#: Operators of `Unary` that take a column of moments or days apart, in UTC. Of `weekday` Monday is 0.
TIME_PARTS: Final = ("year", "month", "day", "hour", "minute", "second", "weekday")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the left (side 0) or right (side 1) row; `side` None is SQL's unqualified name, not yet bound."""

    side: int | None
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: bool, int, float, text, bytes, or None for NULL. Numbers are weak, as in NumPy 2."""

    value: bool | int | float | str | bytes | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are equal in Python and different here; NaN equals itself, and zeros have a sign.
        return isinstance(other, Literal) and (type(self.value), repr(self.value)) == (
            type(other.value),
            repr(other.value),
        )

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator of `UNARY` or `TIME_PARTS` on one value."""

    op: str
    arg: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator of `ARITHMETIC`, `COMPARISON` or `LOGIC` on two values."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Cast:
    """To a type by name (`int8` .. `uint64`, `float32`, `float64`, `bool`); what does not fit becomes NULL."""

    arg: Expr
    to: str


@dataclass(frozen=True, slots=True)
class Text:
    """A function of text: `op` is one of `textual.RESULTS`, `constants` is what it is given beside the text."""

    op: str
    arg: Expr
    constants: tuple[str | int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Concat:
    """Texts, one after the other. NULL if one of them is."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch, a (condition, value), whose condition is true; `otherwise` if there is none."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr

    @property
    def values(self) -> tuple[Expr, ...]:
        """What it may come to, in order."""
        return (*(value for _, value in self.branches), self.otherwise)


Expr = Column | Literal | Unary | Binary | Cast | Text | Concat | Case

CAST_TYPES: Final = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
)  # fmt: skip


def children(expr: Expr) -> tuple[Expr, ...]:
    """The nodes right below a node."""
    match expr:
        case Unary(_, arg) | Cast(arg, _) | Text(_, arg, _):
            return (arg,)
        case Binary(_, left, right):
            return (left, right)
        case Concat(parts):
            return parts
        case Case(branches, otherwise):
            return (*(node for branch in branches for node in branch), otherwise)
        case _:
            return ()


def rebuilt(expr: Expr, below: Callable[[Expr], Expr]) -> Expr:
    """The same node over what `below` makes of the nodes right below it."""
    match expr:
        case Unary(op, arg):
            return Unary(op, below(arg))
        case Cast(arg, to):
            return Cast(below(arg), to)
        case Text(op, arg, constants):
            return Text(op, below(arg), constants)
        case Binary(op, left, right):
            return Binary(op, below(left), below(right))
        case Concat(parts):
            return Concat(tuple(below(part) for part in parts))
        case Case(branches, otherwise):
            return Case(tuple((below(condition), below(value)) for condition, value in branches), below(otherwise))
        case _:
            return expr


def coalesced(values: Sequence[Expr]) -> Expr:
    """The first of several values that is not NULL."""
    *first, last = values
    return Case(tuple((Unary("not", Unary("is_null", value)), value) for value in first), last) if first else last


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


#: How many nodes may stand one below another: every reader of a tree walks down it, and Python ends at 1,000 calls. And how many
#: there may be: `x IN (1, 2, 5) IN (1, 2, 5) ...` is short, and has three times as many nodes with each list.
DEEPEST: Final = 250
MOST_NODES: Final = 20_000


def too_deep(what: str) -> QueryError:
    """The refusal of an expression that is nested beyond `DEEPEST`, or beyond what a parser can read."""
    return QueryError(
        f"{what} is nested too deeply",
        why=f"an expression has at most {DEEPEST} levels; a AND b AND c has one for each, and so has a list of IN",
        do="Join with a stream that holds the values, or compute a part of it as a column with select",
    )


#: Characters of an SQL text, at most: a parser takes seconds for more.
LONGEST_TEXT: Final = 100_000


def check_text(text: str, what: str) -> None:
    """Refuse an SQL text that is too long, or holds halves of characters, which no column's name can have."""
    if len(text) > LONGEST_TEXT:
        raise QueryError(
            f"{what} has {len(text):,} characters", why=f"{LONGEST_TEXT:,} are read at most", do="Join with a stream"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"{what} holds {text[error.start]!r} as its character {error.start + 1}",
            why="that is half of one",
            do="Mend the text",
        ) from None


def check_size(expr: Expr, what: str) -> None:
    """Refuse an expression that is nested too deeply, or too large, in words and not by the end of the stack or of patience."""
    # The same node may hang below several: a traced function that doubles a value n times has n nodes, and 2^n ways down to them.
    level: dict[int, tuple[Expr, int]] = {id(expr): (expr, 1)}
    nodes = depth = 0
    while level:
        depth, nodes = depth + 1, nodes + sum(ways for _, ways in level.values())
        if depth > DEEPEST:
            raise too_deep(what)
        if nodes > MOST_NODES:
            raise QueryError(
                f"{what} is too large",
                why=f"written out it has more than {MOST_NODES:,} parts: what stands in a list, BETWEEN or CASE counts each time",
                do="Compute a part of it as a column with select",
            )
        below: dict[int, tuple[Expr, int]] = {}
        for node, ways in level.values():
            for child in children(node):
                below[id(child)] = (child, ways + below.get(id(child), (child, 0))[1])
        level = below


def columns(expr: Expr) -> tuple[Column, ...]:
    """The columns an expression reads, each once, in order of appearance.

    >>> columns(Binary("lt", Column(0, "x"), Binary("add", Column(1, "a"), Column(0, "x"))))
    (Column(side=0, name='x'), Column(side=1, name='a'))
    """
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Column)))


_SIGN = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip


def text(expr: Expr, names: Sequence[str] = ("left", "right")) -> str:
    """The expression for a person to read.

    Args:
        expr: The tree.
        names: What the left and the right row are called.

    >>> text(Binary("le", Unary("abs", Binary("sub", Column(0, "x"), Column(1, "a"))), Literal(10)), ("quotes", "trades"))
    '(abs((quotes.x - trades.a)) <= 10)'
    """
    match expr:
        case Column(side, name):
            return name if side is None else f"{names[side]}.{name}"
        case Literal(None):
            return "NULL"
        case Literal(value):
            return repr(value)
        case Unary(op, arg) if op == "abs" or op in TIME_PARTS:
            return f"{op}({text(arg, names)})"
        case Unary("is_null", arg):
            return f"({text(arg, names)} is null)"
        case Unary(op, arg):
            return f"({'-' if op == 'neg' else 'not '}{text(arg, names)})"
        case Cast(arg, to):
            return f"cast({text(arg, names)} as {to})"
        case Text(op, arg, constants):
            return f"{op}({', '.join([text(arg, names), *(repr(constant) for constant in constants)])})"
        case Concat(parts):
            return f"concat({', '.join(text(part, names) for part in parts)})"
        case Case(branches, otherwise):
            said = " ".join(f"when {text(c, names)} then {text(v, names)}" for c, v in branches)
            return f"case {said} else {text(otherwise, names)} end"
        case Binary(op, left, right) if op in _SIGN:
            return f"({text(left, names)} {_SIGN[op]} {text(right, names)})"
        case Binary(op, left, right):
            return f"{op}({text(left, names)}, {text(right, names)})"
