"""One value as a condition sees it: NULL, NaN, exact integers, floats of two widths, three-valued logic.

A traced condition is judged by calling the user's own function with rows of these, so nothing of the tracer, the terms
or the kernels has a part in the verdict. `kind` is the value's type; a literal of the user's is *weak* and takes the
width of what it meets. Integers are Python's, hence exact; floats are NumPy scalars.

Rules, all in design.md, section 1: a comparison with NULL or NaN is unknown; arithmetic with NULL is NULL; integers are
exact, at any size; float32 with float32 stays float32; SQL's division and modulo by zero are NULL, Python's `//` and `%`
of integers too.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US = dt.timedelta(microseconds=1)
_DAY = 86_400_000_000
_FROM_2000 = (dt.date(2000, 1, 1) - _EPOCH.date()).days
_ERA = (dt.date(2400, 1, 1) - dt.date(2000, 1, 1)).days  # of 400 years: the calendar repeats itself

INT_RANGES = {
    f"{sign}int{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
FLOATS = {"float32": np.float32, "float64": np.float64, "weakfloat": np.float64}


class Value:
    """`v` is None for NULL (and, of kind bool, for unknown).

    `kind` is a type's name (`int32`, `float64`, `bool`, `text`, `bytes`, `null`) or `weakint`, `weakfloat` for a
    constant. No truth value can be asked of one: a function that does (`if`, `and`) did not trace, and gets Python's
    values instead. Every operator gives a new one.
    """

    __slots__ = ("kind", "v")
    __hash__ = None  # type: ignore[assignment]  # what `==` makes is no truth value
    __array_ufunc__ = None

    def __init__(self, kind: str, v: Any) -> None:
        self.kind, self.v = kind, v

    def __repr__(self) -> str:
        return f"{self.kind}({self.v})"

    def __bool__(self) -> bool:
        raise TypeError("a condition that traced asks for a truth value on real rows")

    def is_null(self) -> Value:
        return Value("bool", self.v is None)

    def cast(self, to: str) -> Value:
        return cast(self, to)

    def between(self, low: Any, high: Any) -> Value:
        return compare(">=", self, value_of(low)) & compare("<=", self, value_of(high))

    def matches(self, pattern: str) -> Value:
        return self._of_text("bool", lambda v: re.search(pattern, v, re.ASCII) is not None)

    def like(self, pattern: str) -> Value:
        wild = {"%": ".*", "_": "."}
        parts = re.findall(r"\\.|[^\\]", pattern, re.DOTALL)
        expression = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
        return self._of_text("bool", lambda v: re.fullmatch(expression, v, re.DOTALL) is not None)

    def contains(self, part: str) -> Value:
        return self._of_text("bool", lambda v: part in v)

    def starts_with(self, part: str) -> Value:
        return self._of_text("bool", lambda v: v.startswith(part))

    def ends_with(self, part: str) -> Value:
        return self._of_text("bool", lambda v: v.endswith(part))

    def length(self) -> Value:
        return self._of_text("int64", len)

    def ascii_lower(self) -> Value:
        return self._of_text("text", lambda v: "".join(c.lower() if "A" <= c <= "Z" else c for c in v))

    def lower(self) -> Value:
        return self._of_text("text", str.lower)

    def upper(self) -> Value:
        return self._of_text("text", str.upper)

    def trim(self, characters: str = " ") -> Value:
        return self._of_text("text", lambda v: v.strip(characters) if characters else v)

    def ltrim(self, characters: str = " ") -> Value:
        return self._of_text("text", lambda v: v.lstrip(characters) if characters else v)

    def rtrim(self, characters: str = " ") -> Value:
        return self._of_text("text", lambda v: v.rstrip(characters) if characters else v)

    def substring(self, start: int, length: int | None = None) -> Value:
        """The characters at the places from `start` on, of which the first is 1; -1 is the last one."""

        def part(v: str) -> str:
            first = start if start > 0 else 1 if start == 0 else len(v) + 1 + start
            end = len(v) if length is None else first + length - 1
            return "".join(c for place, c in enumerate(v, 1) if first <= place <= end)

        return self._of_text("text", part)

    def split_part(self, separator: str, part: int) -> Value:
        found = self.split_at(separator, part - 1 if part > 0 else part)
        return found if self.v is None or found.v is not None else Value("text", "")

    def split_at(self, separator: str, part: int) -> Value:
        """The part of this number, from 0; counted from the end below 0. NULL if there is none."""
        return self._of_text("text", lambda v: dict(_numbered(v.split(separator))).get(part))

    def replace(self, old: str, new: str) -> Value:
        return self._of_text("text", lambda v: new.join(v.split(old)))

    def regexp_extract(self, pattern: str, group: int = 1) -> Value:
        def part(v: str) -> str:
            found = re.search(pattern, v, re.ASCII)
            return (found.group(group) or "") if found else ""

        return self._of_text("text", part)

    def year(self) -> Value:
        return self._of_date(lambda day, years: day.year + years)

    def month(self) -> Value:
        return self._of_date(lambda day, years: day.month)

    def day(self) -> Value:
        return self._of_date(lambda day, years: day.day)

    def weekday(self) -> Value:
        return self._of_date(lambda day, years: day.weekday())

    def hour(self) -> Value:
        return Value("int64", None if self.v is None else self.v % _DAY // 3_600_000_000)

    def minute(self) -> Value:
        return Value("int64", None if self.v is None else self.v % 3_600_000_000 // 60_000_000)

    def second(self) -> Value:
        return Value("int64", None if self.v is None else self.v % 60_000_000 // 1_000_000)

    def _of_date(self, function: Callable[[dt.date, int], int]) -> Value:
        """Of a day, as Python's calendar has it. That has no days before the year 1 or after 9999; but the calendar repeats
        itself every 400 years, so the day is looked up in one of the years 2000 to 2399, and `years` have to be added.
        """
        if self.v is None:
            return Value("int64", None)
        eras, day = divmod(self.v // _DAY - _FROM_2000, _ERA)
        return Value("int64", function(dt.date(2000, 1, 1) + dt.timedelta(days=day), 400 * eras))

    def _case(self, branches: Sequence[tuple[Any, Any]], otherwise: Any) -> Value:
        return choose([(value_of(condition), value_of(value)) for condition, value in branches], value_of(otherwise))

    def _coalesced(self, values: Sequence[Any]) -> Value:
        return coalesce([value_of(value) for value in values])

    def _concat(self, parts: Sequence[Any]) -> Value:
        return concat([value_of(part) for part in parts])

    def _of_text(self, kind: str, function: Callable[[str], Any]) -> Value:
        return Value(kind, None if self.v is None else function(self.v))

    def _least(self, other: Any) -> Value:
        return pick(self, value_of(other), larger=False)

    def _greatest(self, other: Any) -> Value:
        return pick(self, value_of(other), larger=True)

    def __neg__(self) -> Value:
        return Value(self.kind, None if self.v is None else -self.v)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return Value(self.kind, None if self.v is None else abs(self.v))

    def __invert__(self) -> Value:
        return Value("bool", None if self.v is None else not self.v)

    def __add__(self, o: Any) -> Value:
        return arithmetic("+", self, value_of(o))

    def __radd__(self, o: Any) -> Value:
        return arithmetic("+", value_of(o), self)

    def __sub__(self, o: Any) -> Value:
        return arithmetic("-", self, value_of(o))

    def __rsub__(self, o: Any) -> Value:
        return arithmetic("-", value_of(o), self)

    def __mul__(self, o: Any) -> Value:
        return arithmetic("*", self, value_of(o))

    def __rmul__(self, o: Any) -> Value:
        return arithmetic("*", value_of(o), self)

    def __truediv__(self, o: Any) -> Value:
        return arithmetic("/", self, value_of(o))

    def __rtruediv__(self, o: Any) -> Value:
        return arithmetic("/", value_of(o), self)

    def __floordiv__(self, o: Any) -> Value:
        return arithmetic("//", self, value_of(o))

    def __rfloordiv__(self, o: Any) -> Value:
        return arithmetic("//", value_of(o), self)

    def __mod__(self, o: Any) -> Value:
        return arithmetic("%", self, value_of(o))

    def __rmod__(self, o: Any) -> Value:
        return arithmetic("%", value_of(o), self)

    def __eq__(self, o: object) -> Value:  # type: ignore[override]  # three-valued, no bool
        return compare("==", self, value_of(o))

    def __ne__(self, o: object) -> Value:  # type: ignore[override]  # three-valued, no bool
        return compare("!=", self, value_of(o))

    def __lt__(self, o: object) -> Value:
        return compare("<", self, value_of(o))

    def __le__(self, o: object) -> Value:
        return compare("<=", self, value_of(o))

    def __gt__(self, o: object) -> Value:
        return compare(">", self, value_of(o))

    def __ge__(self, o: object) -> Value:
        return compare(">=", self, value_of(o))

    def __and__(self, o: Any) -> Value:
        a, b = self.v, value_of(o).v
        return Value("bool", False if a is False or b is False else None if a is None or b is None else True)

    __rand__ = __and__

    def __or__(self, o: Any) -> Value:
        a, b = self.v, value_of(o).v
        return Value("bool", True if a is True or b is True else None if a is None or b is None else False)

    __ror__ = __or__


def _numbered(parts: list[str]) -> list[tuple[int, str]]:
    """Parts with the numbers that each has: from 0 on, and from the end."""
    return [(k, part) for at, part in enumerate(parts) for k in (at, at - len(parts))]


def choose(branches: Sequence[tuple[Value, Value]], otherwise: Value) -> Value:
    """The value of the first branch whose condition is true, in the kind that all values have in common."""
    kind = kind_of_all([*(value.kind for _, value in branches), otherwise.kind])
    found = next((value for condition, value in branches if condition.v is True), otherwise)
    return Value(kind, to_float(found.v, kind) if kind in FLOATS and found.v is not None else found.v)


def coalesce(values: Sequence[Value]) -> Value:
    """The first value that is not NULL, in the kind that all have in common."""
    return choose([(Value("bool", value.v is not None), value) for value in values], Value("null", None))


def concat(parts: Sequence[Value]) -> Value:
    """Texts, one after the other; NULL if one of them is."""
    return Value("text", None if any(part.v is None for part in parts) else "".join(part.v for part in parts))


def value_of(x: Any) -> Value:
    """A value, or a constant that the user's function holds.

    Spans and moments become microseconds. A NumPy scalar keeps its width; Python's own numbers are weak.
    """
    if isinstance(x, Value):
        return x
    if isinstance(x, np.generic) and not isinstance(x, (str, bytes)):
        return cast(value_of(x.item()), x.dtype.name)
    if x is None or isinstance(x, bool):
        return Value("null" if x is None else "bool", x)
    if isinstance(x, int):
        return Value("weakint", x)
    if isinstance(x, float):
        return Value("weakfloat", np.float64(x))
    if isinstance(x, (str, bytes)):
        return Value("text" if isinstance(x, str) else "bytes", x)
    if isinstance(x, dt.timedelta):
        return Value("weakint", x // _US)
    if isinstance(x, dt.datetime):
        return Value("weakint", ((x if x.tzinfo else x.replace(tzinfo=dt.UTC)) - _EPOCH) // _US)
    if isinstance(x, dt.date):
        return Value("weakint", (x - _EPOCH.date()) // _US)
    raise TypeError(f"a condition combines a column with a {type(x).__name__}")


@functools.cache
def common_kind(a: str, b: str) -> str:
    """The kind two numbers meet in: NumPy 2's, but integers never turn into floats among themselves.

    A weak number takes the other's kind, except that a float constant makes a float64 of an integer. Of uint64 with a
    signed type the kind is called int64, and the integers stay exact whatever it is called.
    """
    if a == "null" or b == "null":
        return b if a == "null" else a
    weak_a, weak_b = a.startswith("weak"), b.startswith("weak")
    if weak_a and weak_b:
        return "weakint" if a == b == "weakint" else "weakfloat"
    if weak_a or weak_b:
        weak, strong = (a, b) if weak_a else (b, a)
        return "float64" if weak == "weakfloat" and strong in INT_RANGES else strong
    both_ints = a in INT_RANGES and b in INT_RANGES
    if both_ints and {a, b} & {"uint64"} and a != b and not (a.startswith("u") and b.startswith("u")):
        return "int64"
    return np.result_type(a, b).name


def kind_of_all(kinds: Sequence[str]) -> str:
    """The kind of a choice between values of these kinds: NumPy's of all numbers at once, but integers stay integers."""
    found = [kind for kind in dict.fromkeys(kinds) if kind != "null"]
    if len(found) <= 1:
        return found[0] if found else "null"
    if all(kind.startswith("weak") for kind in found):
        return "weakfloat"
    weak = {"weakint": 0, "weakfloat": 0.0}
    name = np.result_type(*(weak[kind] if kind in weak else np.dtype(kind) for kind in found)).name
    only_integers = all(kind in INT_RANGES or kind == "weakint" for kind in found)
    return "int64" if only_integers and name not in INT_RANGES else name


def to_float(v: Any, kind: str) -> Any:
    """A number in a float kind. Beyond the largest float an integer is infinite.

    Rounded once, to nearest, ties to even.
    """
    if type(v) is FLOATS[kind]:
        return v
    try:
        with np.errstate(all="ignore"):
            return FLOATS[kind](_rounded_to_24_bits(v) if kind == "float32" and isinstance(v, int) else v)
    except OverflowError:
        return FLOATS[kind](math.inf if v > 0 else -math.inf)


def _rounded_to_24_bits(v: int) -> int:
    """To float32's precision, ties to even, in one step: by way of float64 it would be rounded twice."""
    extra = abs(v).bit_length() - 24
    if extra <= 0:
        return v
    whole, rest = divmod(abs(v), 1 << extra)
    half = 1 << (extra - 1)
    whole += rest > half or (rest == half and whole & 1)
    return (whole << extra) * (1 if v > 0 else -1)


_INT_OPS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FLOAT_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide, "//": np.floor_divide, "%": np.mod,
    "sql/": np.true_divide, "sql%": np.fmod,
}  # fmt: skip


def arithmetic(op: str, a: Value, b: Value) -> Value:
    """`op` as Python writes it; `sql/` and `sql%` are SQL's, NULL for a zero divisor, the sign of the dividend."""
    kind = common_kind(a.kind, b.kind)
    if op in ("/", "sql/") and kind not in FLOATS:
        kind = "weakfloat" if kind == "weakint" else "float64"
    if a.v is None or b.v is None:
        return Value(kind, None)
    if kind in FLOATS:
        x, y = to_float(a.v, kind), to_float(b.v, kind)
        if op.startswith("sql") and y == 0:
            return Value(kind, None)
        with np.errstate(all="ignore"):
            return Value(kind, _FLOAT_OPS[op](x, y))
    if op in ("//", "%", "sql%") and b.v == 0:
        return Value(kind, None)
    if op == "sql%":
        return Value(kind, (-1 if a.v < 0 else 1) * (abs(a.v) % abs(b.v)))
    return Value(kind, _INT_OPS[op](a.v, b.v))


def compare(op: str, a: Value, b: Value) -> Value:
    """Unknown if either side is NULL or NaN; integers exactly, else in the common float kind.

    Two integers compare by size, whatever their kinds. An integer and a float are both brought to the common float kind
    first. Text by equality, booleans by equality.
    """
    if a.v is None or b.v is None:
        return Value("bool", None)
    x, y = a.v, b.v
    kind = common_kind(a.kind, b.kind) if isinstance(x, (int, np.floating)) and not isinstance(x, bool) else ""
    if kind in FLOATS:
        x, y = to_float(x, kind), to_float(y, kind)
        if x != x or y != y:
            return Value("bool", None)
    return Value("bool", bool(_COMPARISONS[op](x, y)))


def pick(a: Value, b: Value, *, larger: bool) -> Value:
    """SQL's least and greatest: NULL gives way, NaN is above all numbers.

    Of 0.0 and -0.0 the first is the least and the last the greatest, as the sort leaves them.
    """
    kind = common_kind(a.kind, b.kind)
    numbers = [to_float(x.v, kind) if kind in FLOATS else x.v for x in (a, b) if x.v is not None]
    if not numbers:
        return Value(kind, None)
    ordered = sorted(numbers, key=lambda n: (bool(n != n), 0 if n != n else n))
    return Value(kind, ordered[-1] if larger else ordered[0])


def cast(a: Value, to: str) -> Value:
    """Into another kind; what does not fit becomes NULL, floats lose their fraction, nothing wraps around.

    NaN as a boolean is unknown, infinity is true.
    """
    v = a.v
    if v is None:
        return Value(to, None)
    if to in FLOATS:
        return Value(to, to_float(int(v) if isinstance(v, bool) else v, to))
    if isinstance(v, np.floating) and not np.isfinite(v):
        return Value(to, True if to == "bool" and np.isinf(v) else None)
    if to == "bool":
        return Value(to, bool(v != 0))
    whole = int(v)
    low, high = INT_RANGES[to]
    return Value(to, whole if low <= whole <= high else None)
