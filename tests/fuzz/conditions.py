"""A finite pool of conditions, the same in every run: kernels are compiled once, and cached over runs.

Each is a text, of SQL or of a Python function that traces, or an opaque function; with the columns it reads of either side.
The pool is drawn from a seed of its own, ordered so that its beginning has a little of everything: short runs take that.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import plait

SIZE = 288
WRITTEN = 240  # of the first kinds, of which the rest stand among
NUMBERS = "kjipuoxqtdg"


@dataclass(frozen=True)
class Condition:
    """`text` is what a report shows. `on` is what `plait.join` takes."""

    text: str
    on: str | Callable[..., Any] | None
    reads: tuple[frozenset[str], frozenset[str]]
    kind: str  # "sql", "traced", "opaque"
    sql: str | None = None  # the same as SQL text, where there is one: for a judge that reads only that
    number: int = 0  # in the pool


def _reads(text: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(re.findall(r"\bl\.(\w)\b", text)), frozenset(re.findall(r"\br\.(\w)\b", text))


# --- atoms: Python and SQL text of the same -----------------------------------------------------------------


def _pair(chance: random.Random) -> tuple[str, str]:
    """Two columns to compare: mostly of one type, as users do."""
    one = chance.choice(NUMBERS)
    return one, one if chance.random() < 0.6 else chance.choice(NUMBERS)


def _band(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    n = chance.choice((0, 1, 2, 5))
    return f"abs(l.{a} - r.{b}) <= {n}", f"abs(l.{a} - r.{b}) <= {n}"


def _uneven(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    low, high = chance.choice(((-1, 2), (0, 1), (-3, 0)))
    return f"(l.{a} - r.{b}).between({low}, {high})", f"l.{a} - r.{b} between {low} and {high}"


def _equal(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    return f"l.{a} == r.{b}", f"l.{a} = r.{b}"


def _shifted(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    n = chance.choice((1, 2, 2**62, -1))
    return f"l.{a} + {n} == r.{b}", f"l.{a} + {n} = r.{b}"


def _less(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    sign = chance.choice(("<", "<=", ">", ">="))
    return f"l.{a} {sign} r.{b}", f"l.{a} {sign} r.{b}"


def _other(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    return f"l.{a} != r.{b}", f"l.{a} <> r.{b}"


def _product(chance: random.Random) -> tuple[str, str]:
    a, b, c = (chance.choice(NUMBERS) for _ in range(3))
    return f"l.{a} * r.{b} - l.{c} > 1", f"l.{a} * r.{b} - l.{c} > 1"


def _remainder(chance: random.Random) -> tuple[str, str]:
    a, b = (chance.choice("kipuxq") for _ in range(2))
    n = chance.choice((2, 3, -2))
    return f"(l.{a} + r.{b}) % {n} == 1", f"(l.{a} + r.{b}) % {abs(n)} = 1"


def _quotient(chance: random.Random) -> tuple[str, str]:
    a, b = (chance.choice("kipuxq") for _ in range(2))
    return f"l.{a} // 2 == r.{b} // 2", f"l.{a} / 2 >= r.{b}"


def _division(chance: random.Random) -> tuple[str, str]:
    a, b = (chance.choice("kjipuoxq") for _ in range(2))
    return f"l.{a} / r.{b} > 0.5", f"l.{a} / r.{b} > 0.5"


def _null(chance: random.Random) -> tuple[str, str]:
    a, b = (chance.choice(NUMBERS + "sb") for _ in range(2))
    return f"l.{a}.is_null() | ~r.{b}.is_null()", f"l.{a} is null or r.{b} is not null"


def _cast(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    to, sql = chance.choice((("int32", "int"), ("int64", "bigint"), ("float64", "double"), ("float32", "float")))
    return f"l.{a}.cast('{to}') == r.{b}", f"cast(l.{a} as {sql}) = r.{b}"


def _extreme(chance: random.Random) -> tuple[str, str]:
    a, b = _pair(chance)
    return f"plait.minimum(l.{a}, r.{b}) >= 0", f"least(l.{a}, r.{b}) >= 0"


def _text(chance: random.Random) -> tuple[str, str]:
    a, b = (chance.choice("swe") for _ in range(2))
    return chance.choice((
        (f"l.{a} == r.{b}", f"l.{a} = r.{b}"),
        (f"l.{a} != r.{b}", f"l.{a} <> r.{b}"),
        (f"l.{a}.contains('a') & (r.{b} == 'b')", f"contains(l.{a}, 'a') and r.{b} = 'b'"),
        (f"l.{a}.length() == r.{b}.length()", f"length(l.{a}) = length(r.{b})"),
        (f"l.{a}.starts_with('a') | r.{b}.like('%b')", f"startswith(l.{a}, 'a') or r.{b} like '%b'"),
    ))  # fmt: skip


def _bytes_or_bool(chance: random.Random) -> tuple[str, str]:
    return chance.choice((("l.y == r.y", "l.y = r.y"), ("l.b == r.b", "l.b = r.b"), ("l.y != r.y", "l.y <> r.y")))


def _moment(chance: random.Random) -> tuple[str, str]:
    return chance.choice((("l.ts == r.ts", "l.ts = r.ts"), ("l.ts < r.ts", "l.ts < r.ts")))


ATOMS = (_band, _equal, _less, _text, _uneven, _band, _equal, _other, _shifted, _product, _remainder, _division, _null,
         _cast, _extreme, _quotient, _bytes_or_bool, _moment)  # fmt: skip


def _chosen(chance: random.Random) -> tuple[str, str]:
    """A choice as an operand of an equality or a band, of one side or of both."""
    a, b = _pair(chance)
    c = chance.choice(NUMBERS)
    return chance.choice((
        (f"plait.when(l.{c} > 0, l.{a}).otherwise(1) == r.{b}", f"case when l.{c} > 0 then l.{a} else 1 end = r.{b}"),
        (f"abs(plait.when(l.{c} > 0, l.{a}).otherwise(None) - r.{b}) <= 1",
         f"abs(case when l.{c} > 0 then l.{a} end - r.{b}) <= 1"),
        (f"plait.when(l.{c} > r.{b}, l.{a}).when(r.{b} > 1, 2).otherwise(r.{b}) > 0",
         f"case when l.{c} > r.{b} then l.{a} when r.{b} > 1 then 2 else r.{b} end > 0"),
        (f"plait.coalesce(l.{a}, r.{b}, 0) == r.{c}", f"coalesce(l.{a}, r.{b}, 0) = r.{c}"),
        (f"plait.when(l.{a} == r.{b}, None).otherwise(l.{a}) < r.{c}", f"nullif(l.{a}, r.{b}) < r.{c}"),
        (f"plait.when(l.b, l.{a} > r.{b}).otherwise(r.b)", f"case when l.b then l.{a} > r.{b} else r.b end"),
        (f"plait.when(l.{c} > r.{c}, l.s).otherwise('a') == r.s", f"case when l.{c} > r.{c} then l.s else 'a' end = r.s"),
    ))  # fmt: skip


def _worded(chance: random.Random) -> tuple[str, str]:
    """Functions of text; what is put together of both rows is judged pair by pair."""
    a, b = (chance.choice("sswe") for _ in range(2))
    return chance.choice((
        (f"l.{a}.lower() == r.{b}.upper().lower()", f"lower(l.{a}) = lower(upper(r.{b}))"),
        (f"plait.concat(l.{a}, r.{b}) == plait.concat(r.{b}, l.{a})", f"l.{a} || r.{b} = r.{b} || l.{a}"),
        (f"plait.concat(l.{a}, '/', r.{b}).length() > 2", f"length(l.{a} || '/' || r.{b}) > 2"),
        (f"l.{a}.substring(1, 1) == r.{b}.replace('a', 'b')", f"substring(l.{a}, 1, 1) = replace(r.{b}, 'a', 'b')"),
        (f"l.{a}.split_part('a', 1) == r.{b}.trim('b')", f"split_part(l.{a}, 'a', 1) = trim(both 'b' from r.{b})"),
        (f"l.{a}.regexp_extract('(a|b)', 1) == r.{b}", f"regexp_extract(l.{a}, '(a|b)', 1) = r.{b}"),
        (f"plait.coalesce(l.{a}, r.{b}) == 'a'", f"coalesce(l.{a}, r.{b}) = 'a'"),
        ("l.t.hour() == r.d.weekday()", "hour(l.t) = weekday(r.d)"),
    ))  # fmt: skip


#: They came later, and are drawn from a seed of their own: the conditions before them are what they were, with their kernels.
LATER = (_chosen, _worded)


def _written(chance: random.Random, number: int, atoms: tuple[Any, ...] = ATOMS) -> Condition:
    """One atom, or two joined: an index serves the first, and the second is judged on what it finds."""
    python, sql = atoms[number % len(atoms)](chance)
    if chance.random() < 0.45:
        other = chance.choice(ATOMS)(chance)
        sign, word = chance.choice((("&", "and"), ("&", "and"), ("|", "or"), ("& ~", "and not")))
        python, sql = f"({python}) {sign}({other[0]})", f"({sql}) {word} ({other[1]})"
    if chance.random() < 0.5:
        return Condition(sql, sql, _reads(sql), "sql", sql)
    text = f"lambda l, r: {python}"
    return Condition(text, eval(text, {"plait": plait}), _reads(text), "traced", sql)


# --- opaque functions ---------------------------------------------------------------------------------------


def near_or_less(l: Any, r: Any) -> bool:
    if l.k > r.k:
        return l.k - r.k <= 1
    return l.x < r.x


def chain(l: Any, r: Any) -> bool:
    return -1 <= l.i - r.i <= 1 and l.p != r.p


def ratio(l: Any, r: Any) -> bool:
    return r.x != 0 and l.x / r.x > 0.5


def listed(l: Any, r: Any) -> bool:
    return l.p in (0, 2) or r.i in (1, -1)


def not_below(l: Any, r: Any) -> bool:
    return not l.q < r.q


def wide(l: Any, r: Any) -> bool:
    return l.k + r.k > 0 and l.u >= r.u


def same_text(l: Any, r: Any) -> bool:
    return l.s == r.s and l.p == r.p


def sized_text(l: Any, r: Any) -> bool:
    return f"{l.s}-{r.p}" == f"{r.s}-{l.p}" or str(l.p) == r.s


OPAQUE = (near_or_less, chain, ratio, listed, not_below, wide, same_text, sized_text)

OPAQUE_READS = {
    "near_or_less": ("kx", "kx"), "chain": ("ip", "ip"), "ratio": ("x", "x"), "listed": ("p", "i"), "not_below": ("q", "q"),
    "wide": ("ku", "ku"), "same_text": ("sp", "sp"), "sized_text": ("sp", "sp"),
}  # fmt: skip


def _opaque(function: Callable[..., Any]) -> Condition:
    left, right = OPAQUE_READS[function.__name__]
    return Condition(function.__name__, function, (frozenset(left), frozenset(right)), "opaque")


EVERY = Condition("every pair", None, (frozenset(), frozenset()), "sql", "true")


@functools.cache
def pool(size: int = SIZE) -> tuple[Condition, ...]:
    """The first conditions of the pool: its order is fixed, so a shorter one is a beginning of a longer one."""
    chance, later = random.Random(20_240_607), random.Random(20_261_118)
    found = [EVERY]
    for number in range(WRITTEN):
        if number % 5 == 3:
            found.append(_written(later, number // 5, LATER))
        if number % (WRITTEN // len(OPAQUE)) == 4:
            found.append(_opaque(OPAQUE[number // (WRITTEN // len(OPAQUE))]))
        found.append(_written(chance, number))
    return tuple(replace(each, number=at) for at, each in enumerate(found[:size]))


#: Conditions on one row, for `count_where` and `first_where`; with the columns they read.
ON_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("k >= 1", "row.k >= 1", "k"),
    ("~(x < 1)", lambda row: ~(row.x < 1), "x"),
    ("q = 0.1 or p > 0", "row.q = 0.1 or row.p > 0", "qp"),
    ("s = 'a'", "row.s = 'a'", "s"),
    ("s contains a", plait.text("s").contains("a"), "s"),
    ("w matches", plait.text("w").matches(r"a+b?"), "w"),
    ("u > i", "row.u > row.i", "ui"),
    ("t is null", lambda row: row.t.is_null(), "t"),
    ("case k", "case when row.k > 0 then row.s = 'a' when row.k is null then true end", "ks"),
    ("lower(e)", lambda row: row.e.lower().trim("b") == "", "e"),
)
