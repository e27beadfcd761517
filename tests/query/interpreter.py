"""What a condition's tree means, written from the rules alone: the third opinion beside the reference and `types`.

- Integers are Python's, so + - * // % and comparisons are exact; `//` and `%` by zero give NULL.
- Where an integer meets a float, or is divided by `/`, both become floats of the type that NumPy 2 promotes to; a
  literal takes the type of what it meets, save that a float literal makes an integer column float64.
- NULL goes through arithmetic and comparisons; logic is Kleene's; a comparison with NaN is unknown.
- SQL's `/` and `%` are NULL for a zero divisor, and its remainder has the sign of the dividend.
- least and greatest skip NULL, and NaN is above all numbers.
- A cast to an integer drops the fraction; what does not fit, and NaN, becomes NULL.
"""

from fractions import Fraction
from math import copysign, inf, isinf, isnan, nan, trunc
from typing import Any, NamedTuple

import numpy as np

from plait.query.condition.expression import Binary, Cast, Column, Expr, Literal, Unary

Rows = tuple[dict[str, "Typed"], dict[str, "Typed"]]

INTS = {
    f"{u}int{n}": (0, 2**n - 1) if u else (-(2 ** (n - 1)), 2 ** (n - 1) - 1)
    for u in ("", "u")
    for n in (8, 16, 32, 64)
}


class Typed(NamedTuple):
    """A value and its type; floats are Python's, already rounded to that type; None is NULL or unknown."""

    kind: str
    value: Any


def evaluate(expr: Expr, rows: Rows) -> Typed:
    match expr:
        case Column(side, name):
            assert side is not None
            return rows[side][name]
        case Literal(value):
            kinds = {bool: "bool", int: "weakint", float: "weakfloat", str: "text", bytes: "bytes", type(None): "null"}
            return Typed(kinds[type(value)], value)
        case Cast(arg, to):
            return convert(evaluate(arg, rows).value, to)
        case Unary("is_null", arg):
            return Typed("bool", evaluate(arg, rows).value is None)
        case Unary(op, arg):
            kind, value = evaluate(arg, rows)
            if op == "not":
                return Typed("bool", None if value is None else not value)
            return Typed(kind, None if value is None else -value if op == "neg" else abs(value))
        case Binary("and" | "or" as op, left, right):
            sides = {evaluate(left, rows).value, evaluate(right, rows).value}
            decisive = op == "or"
            return Typed("bool", decisive if decisive in sides else None if None in sides else not decisive)
        case Binary(op, left, right):
            return combine(op, evaluate(left, rows), evaluate(right, rows))


def combine(op: str, a: Typed, b: Typed) -> Typed:
    if op in ("eq", "ne", "lt", "le", "gt", "ge"):
        return Typed("bool", None if a.value is None or b.value is None else compare(op, a, b))
    kind = meet(a.kind, b.kind)
    if op in ("least", "greatest"):
        return Typed(kind, pick(op, kind, a.value, b.value))
    if op in ("div", "sqldiv") and "int" in kind:
        kind = "weakfloat" if kind == "weakint" else "float64"
    if a.value is None or b.value is None:
        return Typed(kind, None)
    x, y = (v if "int" in kind else rounded(v, kind) for v in (a.value, b.value))
    if y == 0 and op in (("floordiv", "mod", "sqlmod") if "int" in kind else ("sqldiv", "sqlmod")):
        return Typed(kind, None)
    if op == "sqlmod":
        return Typed(kind, remainder(x, y))
    if "int" in kind:
        exact = {"add": x + y, "sub": x - y, "mul": x * y}
        return Typed(kind, exact[op] if op in exact else (x // y if op == "floordiv" else x % y))
    arrays = [np.array([v], np.float32 if kind == "float32" else np.float64) for v in (x, y)]
    with np.errstate(all="ignore"):
        ufunc = {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "floordiv": np.floor_divide,
            "mod": np.remainder,
        }
        return Typed(kind, float(ufunc.get(op, np.divide)(*arrays)[0]))


def meet(a: str, b: str) -> str:
    if "null" in (a, b):
        return b if a == "null" else a
    strong = [kind for kind in (a, b) if not kind.startswith("weak")]
    if not strong:
        return "weakfloat" if "weakfloat" in (a, b) else "weakint"
    if len(strong) == 1:
        return "float64" if "weakfloat" in (a, b) and strong[0] in INTS else strong[0]
    joint = str(np.promote_types(a, b))
    # NumPy has no integer for int64 and uint64 together; integers are exact here, and stay integers.
    return "int64" if a in INTS and b in INTS and "float" in joint else joint


def rounded(value: float, kind: str) -> float:
    """A number as a float of that type; beyond the largest it is infinite."""
    try:
        wide = float(value)
    except OverflowError:
        wide = copysign(inf, value)
    if kind != "float32":
        return wide
    with np.errstate(over="ignore"):
        return float(np.array([wide]).astype(np.float32)[0])


def compare(op: str, a: Typed, b: Typed) -> bool | None:
    x, y = a.value, b.value
    if a.kind not in ("bool", "text", "bytes") and "float" in (kind := meet(a.kind, b.kind)):
        x, y = rounded(x, kind), rounded(y, kind)
        if isnan(x) or isnan(y):
            return None
    if op in ("eq", "ne"):
        return bool((x == y) == (op == "eq"))
    return bool({"lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[op])


def pick(op: str, kind: str, a: Any, b: Any) -> Any:
    given = [v if "float" not in kind else rounded(v, kind) for v in (a, b) if v is not None]
    if len(given) < 2:
        return given[0] if given else None
    x, y = given
    y_is_larger = isnan(y) or (not isnan(x) and x <= y) if "float" in kind else x <= y
    return (x if y_is_larger else y) if op == "least" else (y if y_is_larger else x)


def remainder(x: Any, y: Any) -> Any:
    """With the sign of the dividend; exact, for floats too, since the result always is one."""
    if isinstance(x, float) and (isnan(x) or isnan(y) or isinf(x)):
        return nan
    if isinstance(x, float) and isinf(y):
        return x
    exact = Fraction(x) - Fraction(y) * trunc(Fraction(x) / Fraction(y))
    return copysign(float(exact), x) if isinstance(x, float) else int(exact)


def convert(value: Any, to: str) -> Typed:
    if value is None:
        return Typed(to, None)
    if to.startswith("float"):
        return Typed(to, rounded(value, to))
    if isinstance(value, float) and isnan(value):
        return Typed(to, None)
    if to == "bool":
        return Typed(to, value != 0)
    if isinstance(value, float) and isinf(value):
        return Typed(to, None)
    low, high = INTS[to]
    return Typed(to, trunc(value) if low <= trunc(value) <= high else None)
