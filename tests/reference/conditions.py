"""Conditions on a pair, each written in every form a join takes, with its truth by definition.

SQL text and a traced function use three-valued logic, in which a comparison with NULL or NaN is unknown. An opaque
function is Python's: it is not called if a column it reads is NULL, and NaN compares as Python says. So the forms of
one condition agree on all rows but those with NULL or NaN, and `truth` is asked for the form.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import plait

Row = dict[str, Any]


# --- three-valued logic -------------------------------------------------------------------------------------


def known(*values: Any) -> bool:
    return not any(v is None or (isinstance(v, float) and math.isnan(v)) for v in values)


def compare(sign: Callable[[Any, Any], bool], a: Any, b: Any) -> bool | None:
    return sign(a, b) if known(a, b) else None


def both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def either(a: bool | None, b: bool | None) -> bool | None:
    return negated(both(negated(a), negated(b)))


def negated(a: bool | None) -> bool | None:
    return None if a is None else not a


def minus(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a - b


def distance(a: Any, b: Any) -> Any:
    difference = minus(a, b)
    return None if difference is None else abs(difference)


# --- the forms ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """`reads` are the columns of either side that the opaque form reads."""

    name: str
    sql: str | None
    traced: Callable[[Any, Any], Any] | None
    three_valued: Callable[[Row, Row], bool | None]
    opaque: Callable[[Any, Any], Any] | None = None
    reads: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    python: Callable[[Row, Row], bool] | None = None

    def __repr__(self) -> str:
        return self.name

    def has(self, form: str) -> bool:
        return self.written(form) is not None or (self.name == "every pair" and form == "sql")

    def written(self, form: str) -> Any:
        return {"sql": self.sql, "traced": self.traced, "opaque": self.opaque}[form]

    def truth(self, form: str) -> Callable[[Row, Row], bool | None]:
        if form != "opaque":
            return self.three_valued

        def called(l: Row, r: Row) -> bool:
            python = self.python
            assert python is not None
            read = [row[column] for row, columns in zip((l, r), self.reads, strict=True) for column in columns]
            return None not in read and bool(python(l, r))

        return called


def _equal_k(l: Any, r: Any) -> bool:
    if l.k == r.k:  # noqa: SIM103  what an opaque function looks like
        return True
    return False


def _near_k(l: Any, r: Any) -> bool:
    return -1 <= l.k - r.k <= 1


def _near_x(l: Any, r: Any) -> bool:
    return l.x - r.x <= 0.5 and r.x - l.x <= 0.5


def _not_below(l: Any, r: Any) -> bool:
    return not l.x < r.x


def _k_or_s(l: Any, r: Any) -> bool:
    def same(column: str) -> bool:
        return l.s == r.s if column == "s" else l.k == r.k

    return same("k") or same("s")


def _sum_above(l: Any, r: Any) -> bool:
    return l["p"] + 1 > r["k"] and True


def _listed(l: Any, r: Any) -> bool:
    return l.k in (0, 2) and r.s != "a"


CONDITIONS = (
    Condition("every pair", None, None, lambda l, r: True),
    Condition("never", "1 = 0", lambda l, r: False, lambda l, r: False),
    Condition(
        "equal k", "l.k = r.k", lambda l, r: l.k == r.k, lambda l, r: compare(operator.eq, l["k"], r["k"]),
        _equal_k, (("k",), ("k",)), lambda l, r: l["k"] == r["k"],
    ),
    Condition(
        "k within 1", "abs(l.k - r.k) <= 1", lambda l, r: abs(l.k - r.k) <= 1,
        lambda l, r: compare(operator.le, distance(l["k"], r["k"]), 1),
        _near_k, (("k",), ("k",)), lambda l, r: abs(l["k"] - r["k"]) <= 1,
    ),
    Condition(
        "x within 0.5", "l.x - r.x between -0.5 and 0.5", lambda l, r: (l.x - r.x).between(-0.5, 0.5),
        lambda l, r: compare(operator.le, distance(l["x"], r["x"]), 0.5),
        _near_x, (("x",), ("x",)), lambda l, r: abs(l["x"] - r["x"]) <= 0.5,
    ),
    Condition(
        "x not below x", "not l.x < r.x", lambda l, r: ~(l.x < r.x),
        lambda l, r: negated(compare(operator.lt, l["x"], r["x"])),
        _not_below, (("x",), ("x",)), lambda l, r: not l["x"] < r["x"],
    ),
    Condition(
        "equal k or equal s", "l.k = r.k or l.s = r.s", lambda l, r: (l.k == r.k) | (l.s == r.s),
        lambda l, r: either(compare(operator.eq, l["k"], r["k"]), compare(operator.eq, l["s"], r["s"])),
        _k_or_s, (("s", "k"), ("s", "k")), lambda l, r: l["k"] == r["k"] or l["s"] == r["s"],
    ),
    Condition(
        "p + 1 above k", "l.p + 1 > r.k", lambda l, r: r.k < 1 + l.p,
        lambda l, r: compare(operator.gt, minus(l["p"], -1), r["k"]),
        _sum_above, (("p",), ("k",)), lambda l, r: l["p"] + 1 > r["k"],
    ),
    Condition(
        "listed k and another s", "l.k in (0, 2) and r.s <> 'a'",
        lambda l, r: ((l.k == 0) | (l.k == 2)) & (r.s != "a"),
        lambda l, r: both(None if l["k"] is None else l["k"] in (0, 2), compare(operator.ne, r["s"], "a")),
        _listed, (("k",), ("s",)), lambda l, r: l["k"] in (0, 2) and r["s"] != "a",
    ),
    Condition(
        "only one x is null", "(l.x is null and r.x is not null) or (l.x is not null and r.x is null)",
        lambda l, r: (l.x.is_null() & ~r.x.is_null()) | (~l.x.is_null() & r.x.is_null()),
        lambda l, r: (l["x"] is None) != (r["x"] is None),
    ),
    # float64 meets float32: both as float64, in which 0.1 and the float32 nearest to 0.1 differ.
    Condition(
        "x is not q", "l.x <> r.q", lambda l, r: l.x != r.q, lambda l, r: compare(operator.ne, l["x"], r["q"]),
    ),
    # A literal is weak: it takes the column's width, in which the two are equal.
    Condition(
        "q is 0.1", "r.q = 0.1", lambda l, r: r.q == 0.1,
        lambda l, r: compare(operator.eq, r["q"], float(np.float32(0.1))),
    ),
    Condition(
        "least and greatest", "least(l.k, r.k) >= 0 and greatest(l.k, r.k, 1) = 1",
        lambda l, r: (plait.minimum(l.k, r.k) >= 0) & (plait.maximum(plait.maximum(l.k, r.k), 1) == 1),
        lambda l, r: both(
            compare(operator.ge, min((k for k in (l["k"], r["k"]) if k is not None), default=None), 0),
            compare(operator.eq, max(k for k in (l["k"], r["k"], 1) if k is not None), 1),
        ),
    ),
    Condition(
        "same moment", "l.ts = r.ts", lambda l, r: l.ts == r.ts, lambda l, r: l["ts"] == r["ts"],
        lambda l, r: l.ts == r.ts and True, (("ts",), ("ts",)), lambda l, r: l["ts"] == r["ts"],
    ),
)  # fmt: skip
