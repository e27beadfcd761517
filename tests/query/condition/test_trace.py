"""Which functions trace, to what; which are opaque, which columns they read, and which are refused."""

import datetime as dt
import functools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import plait
from plait import QueryError
from plait.query.condition.expression import Binary, Cast, Column, Expr, Literal, Unary
from plait.query.condition.predicate import predicate
from plait.query.condition.trace import Untraceable, _loaded, as_expr, columns_read, trace

LX, RA = Column(0, "x"), Column(1, "a")
NAMES = ("quotes", "trades")
SIDES = {"quotes": 0, "trades": 1, "l": 0, "r": 1, "left": 0, "right": 1}


def on(function: Any) -> Any:
    return predicate(function, NAMES, SIDES)


# --- what traces --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda l, r: l.x + r.a, Binary("add", LX, RA)),
        (lambda l, r: l.x - r.a, Binary("sub", LX, RA)),
        (lambda l, r: l.x * r.a, Binary("mul", LX, RA)),
        (lambda l, r: l.x / r.a, Binary("div", LX, RA)),
        (lambda l, r: l.x // r.a, Binary("floordiv", LX, RA)),
        (lambda l, r: l.x % r.a, Binary("mod", LX, RA)),
        (lambda l, r: 1 + l.x, Binary("add", Literal(1), LX)),
        (lambda l, r: 1 - l.x, Binary("sub", Literal(1), LX)),
        (lambda l, r: 2 * l.x, Binary("mul", Literal(2), LX)),
        (lambda l, r: 1 / l.x, Binary("div", Literal(1), LX)),
        (lambda l, r: 1 // l.x, Binary("floordiv", Literal(1), LX)),
        (lambda l, r: 1 % l.x, Binary("mod", Literal(1), LX)),
        (lambda l, r: l.x == r.a, Binary("eq", LX, RA)),
        (lambda l, r: l.x != r.a, Binary("ne", LX, RA)),
        (lambda l, r: l.x < r.a, Binary("lt", LX, RA)),
        (lambda l, r: l.x <= r.a, Binary("le", LX, RA)),
        (lambda l, r: l.x > r.a, Binary("gt", LX, RA)),
        (lambda l, r: l.x >= r.a, Binary("ge", LX, RA)),
        (lambda l, r: l.x > 1, Binary("gt", LX, Literal(1))),
        (lambda l, r: l.x & r.a, Binary("and", LX, RA)),
        (lambda l, r: l.x | r.a, Binary("or", LX, RA)),
        (lambda l, r: True & l.x, Binary("and", LX, Literal(True))),
        (lambda l, r: False | l.x, Binary("or", LX, Literal(False))),
        (lambda l, r: ~l.x, Unary("not", LX)),
        (lambda l, r: -l.x, Unary("neg", LX)),
        (lambda l, r: +l.x, LX),
        (lambda l, r: abs(l.x), Unary("abs", LX)),
        (lambda l, r: l.x.is_null(), Unary("is_null", LX)),
        (lambda l, r: l.x.cast("int8"), Cast(LX, "int8")),
        (lambda l, r: l.x.between(1, r.a), Binary("and", Binary("ge", LX, Literal(1)), Binary("le", LX, RA))),
        (lambda l, r: plait.minimum(l.x, r.a), Binary("least", LX, RA)),
        (lambda l, r: plait.maximum(3, r.a), Binary("greatest", RA, Literal(3))),
        (lambda l, r: sum([l.x, r.a]), Binary("add", Binary("add", Literal(0), LX), RA)),
        (lambda l, r: l["x"] == r["a"], Binary("eq", LX, RA)),
        (lambda l, r: l["a b"], Column(0, "a b")),
        (lambda l, r: True, Literal(True)),
        (lambda l, r: np.bool_(False), Literal(False)),
    ],
)
def test_operators(function: Any, expected: Expr) -> None:
    assert trace(function) == expected


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        (3, Literal(3)),
        (2.5, Literal(2.5)),
        (True, Literal(True)),
        ("a", Literal("a")),
        (b"a", Literal(b"a")),
        (math.nan, Literal(math.nan)),
        (np.int8(3), Cast(Literal(3), "int8")),
        (np.uint64(3), Cast(Literal(3), "uint64")),
        (np.float32(0.1), Cast(Literal(float(np.float32(0.1))), "float32")),
        (np.float64(0.5), Cast(Literal(0.5), "float64")),
        (np.bool_(True), Cast(Literal(True), "bool")),
        (np.str_("a"), Literal("a")),
        (np.bytes_(b"a"), Literal(b"a")),
        (dt.timedelta(seconds=1), Literal(1_000_000)),
        (dt.date(1970, 1, 2), Literal(86_400_000_000)),
        (dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), Literal(1_000_000)),
        (dt.datetime(1970, 1, 1, 0, 0, 1), Literal(1_000_000)),  # noqa: DTZ001
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), Literal(0)),
    ],
)
def test_constants(constant: Any, expected: Expr) -> None:
    found = as_expr(constant)
    assert found == expected
    assert type(getattr(found, "value", 0)) is not np.str_
    assert trace(lambda l, r: l.x == constant) == Binary("eq", LX, expected)
    assert trace(lambda l, r: constant == l.x) == Binary("eq", LX, expected)


def test_literals_of_different_types_differ() -> None:
    assert len({Literal(1), Literal(1.0), Literal(True), Literal("1"), Literal(None)}) == 5
    assert Literal(0.0) != Literal(-0.0)
    assert Literal(math.nan) == Literal(math.nan)


@pytest.mark.parametrize("constant", [1j, [1], (1, 2), {"a": 1}, object(), np.datetime64("2024-01-01"), np.float16(1)])
def test_other_constants_do_not_trace(constant: Any) -> None:
    with pytest.raises(Untraceable, match="it combines a column with a"):
        as_expr(constant)


def helper(value: Any, limit: int) -> Any:
    return abs(value) <= limit


LIMITS = {"x": 10}


def test_helpers_closures_defaults_and_globals_trace() -> None:
    limit = 10
    expected = Binary("le", Unary("abs", Binary("sub", LX, RA)), Literal(10))
    assert trace(lambda l, r: helper(l.x - r.a, limit)) == expected
    assert trace(lambda l, r, limit=limit: abs(l.x - r.a) <= limit) == expected
    assert trace(lambda l, r: abs(l.x - r.a) <= LIMITS["x"]) == expected
    assert trace(lambda *rows: abs(rows[0].x - rows[1].a) <= 10) == expected
    assert trace(Near(10)) == expected
    assert trace(Near(10).judge) == expected
    assert trace(functools.partial(near_within, 10)) == expected


class Near:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, l: Any, r: Any) -> Any:
        return self.judge(l, r)

    def judge(self, l: Any, r: Any) -> Any:
        return abs(l.x - r.a) <= self.limit

    def jump(self, l: Any, r: Any) -> bool:
        return bool(l.x > self.limit and r.a > self.limit)

    @classmethod
    def leap(cls, l: Any, r: Any) -> bool:
        return bool(l.x and r.a)

    @staticmethod
    def hop(l: Any, r: Any) -> bool:
        return bool(l.x and r.a)


def near_within(limit: int, l: Any, r: Any) -> Any:
    return abs(l.x - r.a) <= limit


def test_a_condition_on_one_row() -> None:
    assert trace(lambda row: row.x > 1, rows=1) == Binary("gt", LX, Literal(1))


# --- what is opaque -----------------------------------------------------------------------------------------


def with_if(l: Any, r: Any) -> bool:
    if l.x > 1:
        return bool(r.a > 2)
    return False


def with_loop(l: Any, r: Any) -> bool:
    for i in range(3):
        if l.x == i:
            return True
    return bool(r.a == 3)


def with_locals(l: Any, r: Any) -> bool:
    x = l.x
    limit = 3
    a, b = r.a, r.b
    return bool((x > limit and a > b) or l.y)


def with_try(l: Any, r: Any) -> bool:
    try:
        return bool(l.x > r.a)
    except Exception:
        return False


def with_match(l: Any, r: Any) -> bool:
    match l.x:
        case 1 | 2:
            return True
        case other:
            return bool(other == r.a)


def with_inner(l: Any, r: Any) -> bool:
    def above(limit: int) -> bool:
        def deeper() -> bool:
            return bool(r["b c"] > limit)

        return bool(l.x > limit and deeper())

    return above(3)


def with_class(l: Any, r: Any) -> bool:
    class Pair:
        first = l.x
        second = r.a

    return bool(Pair.first > Pair.second)


def with_deleted(l: Any, r: Any) -> bool:
    x = l.x
    del l
    return bool(x and r.a)


@pytest.mark.parametrize(
    ("function", "left", "right", "why"),
    [
        (with_if, "x", "a", "truth of a column"),
        (with_loop, "x", "a", "truth of a column"),
        (with_locals, "x y", "a b", "truth of a column"),
        (with_try, "x", "a", "truth of a column"),
        (with_match, "x", "a", "truth of a column"),
        (with_inner, "x", "b c", "truth of a column"),
        (with_class, "x", "a", "truth of a column"),
        (with_deleted, "x", "a", "truth of a column"),
        (lambda l, r: l.x > 1 and r.a > 1, "x", "a", "truth of a column"),
        (lambda l, r: not l.x, "x", "", "truth of a column"),
        (lambda l, r: 0 < l.x < r.a, "x", "a", "truth of a column"),
        (lambda l, r: l.x > 1 if r.a else l.y > 1, "x y", "a", "truth of a column"),
        (lambda l, r: l["x"] > 1 or r["a"] > 1, "x", "a", "truth of a column"),
        (lambda l, r: l.x in (1, r.a), "x", "a", "truth of a column"),
        (lambda l, r: any(l.x == v for v in (1, 2)) or r.a, "x", "a", "truth of a column"),
        (lambda l, r: 1 in [l.x + v for v in (r.a, 2)], "x", "a", "truth of a column"),
        (lambda l, r: dict.fromkeys((r.a,), l.x), "x", "a", "raises TypeError"),
        (lambda l, r: (lambda k: l.x > k and r.a > k)(3), "x", "a", "truth of a column"),
        (lambda l, r, k=3: max(k, l.x) > max(k, r.a), "x", "a", "truth of a column"),
        (lambda l, r: helper(l.x, 3) and helper(r.a, 3), "x", "a", "truth of a column"),
        (lambda l, r: l.x**2 < r.a, "x", "a", "raises TypeError"),
        (lambda l, r: math.sqrt(l.x) < r.a, "x", "a", "raises TypeError"),
        (lambda l, r: int(l.x) == r.a, "x", "a", "raises TypeError"),
        (lambda l, r: round(l.x) == r.a, "x", "a", "raises TypeError"),
        (lambda l, r: np.sqrt(l.x) == r.a, "x", "a", "raises TypeError"),
        (lambda l, r: len(l.s) == r.a, "s", "a", "raises TypeError"),
        (lambda l, r: l.s[0] == r.a, "s", "a", "raises TypeError"),
        (lambda l, r: hash(l.s) == r.a, "s", "a", "raises TypeError"),
        (lambda l, r: l.s.startswith("a") and r.s.upper() == "A", "s", "s", "raises AttributeError"),
        (lambda l, r: str(l.x) == r.s, "x", "s", "makes text of a column"),
        (lambda l, r: f"{l.x}" == r.s, "x", "s", "makes text of a column"),
        (lambda l, r: f"{l.x:03d}" == r.s, "x", "s", "raises TypeError"),
        (lambda l, r: "%s" % l.x == r.s, "x", "s", "makes text of a column"),  # noqa: UP031
        (lambda l, r: isinstance(l.x, int), "x", "", "does not follow from comparing"),
        (lambda l, r: l.x is None, "x", "", "does not follow from comparing"),
        (lambda l, r: l.x == 1j, "x", "", "with a complex"),
        (Near(3).jump, "x", "a", "truth of a column"),
        (Near.leap, "x", "a", "truth of a column"),
        (Near.hop, "x", "a", "truth of a column"),
    ],
)
def test_opaque_functions_and_the_columns_they_read(function: Any, left: str, right: str, why: str) -> None:
    found = on(function)
    assert found.kind == "opaque"
    assert found.expr is None
    expected = ["b c"] if right == "b c" else right.split()
    assert (sorted(found.reads[0]), sorted(found.reads[1])) == (left.split(), expected)
    assert why in found.why_opaque


def test_an_opaque_condition_on_one_row() -> None:
    found = plait.count_where(lambda row: row.x > 1 and row.y > 1).where
    assert found is not None
    assert (found.kind, found.reads) == ("opaque", (("x", "y"), ()))


def test_a_column_is_read_once_however_often() -> None:
    assert columns_read(lambda l, r: l.x or l["x"] or (lambda: l.x)()) == (("x",), ())


# --- what escapes -------------------------------------------------------------------------------------------


def keep(*rows: Any, **more: Any) -> bool:
    return True


def assigned(l: Any, r: Any) -> bool:
    a = l
    return bool(a.x or r.a)


def unpacked(l: Any, r: Any) -> bool:
    a, b = l, r
    return bool(a.x or b.a)


def swapped(l: Any, r: Any) -> bool:
    l, r = r, l
    return bool(l.x or r.x)


def assigned_after_a_store(l: Any, r: Any) -> bool:
    limit = 3
    a = l
    return bool(a.x > limit or r.a)


def passed_after_a_store(l: Any, r: Any) -> bool:
    limit = 3
    return bool(keep(r, limit) and l.x)


def matched(l: Any, r: Any) -> bool:
    match l:
        case object(x=1):
            return True
    return bool(r.a)


def yielded_inside(l: Any, r: Any) -> bool:
    def inner() -> Any:
        return l

    return bool(inner().x or r.a)


def looped(l: Any, r: Any) -> bool:
    return any(row.x for row in (l, r))


def made_global(l: Any, r: Any) -> bool:
    global KEPT
    KEPT = l
    return bool(r.a)


def set_on(l: Any, r: Any) -> bool:
    l.x = 5
    return bool(r.a)


NAME = "x"


@pytest.mark.parametrize(
    ("function", "row"),
    [
        (assigned, "l"),
        (unpacked, "l"),
        (swapped, "r"),
        (assigned_after_a_store, "l"),
        (passed_after_a_store, "r"),
        (matched, "l"),
        (yielded_inside, "l"),
        (looped, "l"),
        (made_global, "l"),
        (set_on, "l"),
        (lambda l, r: (a := l).x or a.y, "l"),
        (lambda l, r: keep(l) and r.a, "l"),
        (lambda l, r: keep(r.a, r) and l.x, "r"),
        (lambda l, r: keep(l, r) and l.x, "l"),
        (lambda l, r: keep(row=l) and l.x, "l"),
        (lambda l, r: keep(*[l]) and l.x, "l"),
        (lambda l, r: getattr(l, "x") or r.a, "l"),  # noqa: B009
        (lambda l, r: l[NAME] or r.a, "l"),
        (lambda l, r: l["x" + NAME] or r.a, "l"),
        (lambda l, r: {"row": l}["row"].x or r.a, "l"),
        (lambda l, r: [l, r][0].x or r.a, "l"),
        (lambda l, r: (l if r.a else r).x or l.x, "l"),
        (lambda l, r: (lambda q=l: q.x)() or r.a, "l"),
        (lambda l, r: (lambda q: q.x)(l) or r.a, "l"),
        (lambda l, r: [q.x for q in (l,)] and r.a, "l"),
        (lambda l, r: l < r or l.x, "l"),
        (lambda l, r: l and r.a, "l"),
        (lambda *rows: rows[0].x or rows[1].a, "rows"),
        (lambda l, *rest: l.x or rest[0].a, "rest"),
    ],
)
def test_a_row_that_escapes_is_refused(function: Any, row: str) -> None:
    with pytest.raises(QueryError, match=f"uses its row '{row}' as a whole") as caught:
        columns_read(function)
    assert f"`{row}.column`" in caught.value.do


def test_the_line_is_named() -> None:
    def spread(l: Any, r: Any) -> bool:
        if l.x:
            return keep(r)
        return False

    line = spread.__code__.co_firstlineno + 2
    with pytest.raises(QueryError, match=rf"row 'r' as a whole \(line {line}\)"):
        columns_read(spread)


def test_names_that_only_look_like_rows_do_not_matter() -> None:
    class Other:
        l = r = 1

    def attribute(l: Any, r: Any) -> bool:
        return bool(Other.l and Other().r and l.x)

    def inner_parameter(l: Any, r: Any) -> bool:
        def own(l: int) -> int:
            return l + 1

        return bool(own(1) and l.x and "l" and r.a)

    assert columns_read(attribute) == (("x",), ())
    assert columns_read(inner_parameter) == (("x",), ("a",))


@pytest.mark.parametrize("function", [Near(3), functools.partial(with_if), print, dict])
def test_what_has_no_code_to_look_into(function: Any) -> None:
    with pytest.raises(QueryError, match="not a Python function"):
        columns_read(function)


# --- minimum and maximum on plain values --------------------------------------------------------------------


def test_minimum_and_maximum_serve_opaque_functions_too() -> None:
    assert (plait.minimum(1, 2), plait.maximum(1, 2)) == (1, 2)
    assert plait.minimum("a", "b") == "a"


# --- bytecode of other Pythons ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opname", "argval", "loaded"),
    [
        ("LOAD_FAST", "l", ("l",)),
        ("LOAD_FAST_CHECK", "l", ("l",)),
        ("LOAD_FAST_BORROW", "l", ("l",)),
        ("LOAD_FAST_AND_CLEAR", "l", ("l",)),
        ("LOAD_FAST_LOAD_FAST", ("k", "l"), ("k", "l")),
        ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", ("k", "l"), ("k", "l")),
        ("STORE_FAST_LOAD_FAST", ("k", "l"), ("l",)),
        ("LOAD_DEREF", "l", ("l",)),
        ("LOAD_CLOSURE", "l", ("l",)),
        ("LOAD_CLASSDEREF", "l", ("l",)),
        ("LOAD_FROM_DICT_OR_DEREF", "l", ("l",)),
        ("STORE_FAST", "l", ()),
        ("STORE_FAST_STORE_FAST", ("k", "l"), ()),
        ("LOAD_GLOBAL", "l", ()),
        ("LOAD_NAME", "l", ()),
        ("LOAD_ATTR", "l", ()),
        ("LOAD_CONST", "l", ()),
        ("LOAD_SMALL_INT", 3, ()),
    ],
)
def test_instructions_that_load_local_variables(opname: str, argval: Any, loaded: tuple[str, ...]) -> None:
    step: Any = SimpleNamespace(opname=opname, argval=argval)
    assert _loaded(step) == loaded
