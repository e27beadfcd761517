"""Turn a Python condition into an expression by calling it once with symbolic rows.

A function traces when it only does arithmetic, comparisons, ``& | ~``, ``abs`` and the methods below on columns.
``if``, ``and``, ``or``, ``not`` and loops ask a symbol for its truth, which it does not have: such a function is
*opaque*. An opaque function is taken as it is; which columns it reads is found in its bytecode, since it is not
called on a pair in which one of them is NULL.
"""

from __future__ import annotations

import datetime as dt
import dis
from collections.abc import Callable
from types import CodeType, MethodType
from typing import Any

import numpy as np

from plait.errors import QueryError
from plait.query.condition.choice import Branches, When, unfinished
from plait.query.condition.expression import (
    CAST_TYPES,
    Binary,
    Case,
    Cast,
    Column,
    Concat,
    Expr,
    Literal,
    Unary,
    coalesced,
)
from plait.query.condition.text_calls import TextCalls

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class Untraceable(BaseException):
    """The function needs a value where there is only a symbol. No `Exception`: a function may catch those itself."""


class Symbol(TextCalls):
    """A column inside a condition's function, or what has been made of one. Every operator and method gives a larger one.

    A condition reads columns as `row.column` or `row["column"]`. It may use `+ - * / // %`, comparisons, `& | ~`, `abs`,
    `plait.minimum`, `plait.maximum`, `plait.when`, `plait.coalesce`, `plait.concat` and the methods here, with those of text and
    moments (`TextCalls`); such a condition is *traced*, and follows the rules of
    docs/semantics.md for NULL, NaN and integers. One that uses `if`, `and`, `or`, `not` or loops is taken as it is.
    The examples of its methods go on from this one.

    Example:
        >>> import plait
        >>> def matching(condition, **columns):
        ...     '''For how many rows of these columns the condition is true.'''
        ...     query = plait.aggregate(plait.stream("s", unit="s"), size="1h", compute={"n": plait.count_where(condition)})
        ...     rows = {"ts": range(len(next(iter(columns.values())))), **columns}
        ...     return query.reference({"s": rows})["n"].to_pylist()[0]
        >>> matching(lambda row: (row.x > 1) & ~(row.y == row.x), x=[1, 2, 3], y=[1, 2, 4])
        1
    """

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]  # what `==` makes is no truth value
    __array_ufunc__ = None  # NumPy scalars on the left hand over to our reflected operators

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __bool__(self) -> bool:
        raise Untraceable("it asks for the truth of a column (`if`, `and`, `or`, `not` or a chained comparison)")

    def __repr__(self) -> str:
        return "<column>"

    def __str__(self) -> str:
        raise Untraceable("it makes text of a column")

    def is_null(self) -> Symbol:
        """Whether the value is NULL.

        Returns:
            A condition, which is true or false and never unknown.

        Example:
            >>> matching(lambda row: row.x.is_null(), x=[1, None])
            1
        """
        return Symbol(Unary("is_null", self.expr))

    def cast(self, to: str) -> Symbol:
        """The value in another type. What does not fit becomes NULL; floats lose their fraction.

        Args:
            to: "bool", "int8" to "int64", "uint8" to "uint64", "float32" or "float64".

        Returns:
            A number or truth value.

        Raises:
            QueryError: There is no such type.

        Example:
            >>> matching(lambda row: row.x.cast("int8").is_null(), x=[1, 1000])
            1
        """
        if to not in CAST_TYPES:
            raise QueryError(f"cast({to!r}) names no type", do=f"Use one of {', '.join(CAST_TYPES)}")
        return Symbol(Cast(self.expr, to))

    def between(self, low: object, high: object) -> Symbol:
        """Whether the value lies between two others, both included.

        Args:
            low: A column or a constant.
            high: A column or a constant.

        Returns:
            A condition.

        Raises:
            QueryError: One of the two is None.

        Example:
            >>> matching(lambda row: row.x.between(2, row.y), x=[1, 2, 3], y=[9, 2, 2])
            1
        """
        return (self >= low) & (self <= high)

    def _made(self, expr: Expr) -> Symbol:
        return Symbol(expr)

    def _case(self, branches: Branches, otherwise: object) -> Symbol:
        made = tuple((_or_null(condition), _or_null(value)) for condition, value in branches)
        return Symbol(Case(made, _or_null(otherwise)))

    def _coalesced(self, values: tuple[object, ...]) -> Symbol:
        return Symbol(coalesced([_or_null(value) for value in values]))

    def _concat(self, parts: tuple[object, ...]) -> Symbol:
        return Symbol(Concat(tuple(_or_null(part) for part in parts)))

    def _least(self, other: object) -> Symbol:
        return _binary("least", self, other)

    def _greatest(self, other: object) -> Symbol:
        return _binary("greatest", self, other)

    def __neg__(self) -> Symbol:
        return Symbol(Unary("neg", self.expr))

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return Symbol(Unary("abs", self.expr))

    def __invert__(self) -> Symbol:
        return Symbol(Unary("not", self.expr))

    def __add__(self, o: object) -> Symbol:
        return _binary("add", self, o)

    def __radd__(self, o: object) -> Symbol:
        return _binary("add", o, self)

    def __sub__(self, o: object) -> Symbol:
        return _binary("sub", self, o)

    def __rsub__(self, o: object) -> Symbol:
        return _binary("sub", o, self)

    def __mul__(self, o: object) -> Symbol:
        return _binary("mul", self, o)

    def __rmul__(self, o: object) -> Symbol:
        return _binary("mul", o, self)

    def __truediv__(self, o: object) -> Symbol:
        return _binary("div", self, o)

    def __rtruediv__(self, o: object) -> Symbol:
        return _binary("div", o, self)

    def __floordiv__(self, o: object) -> Symbol:
        return _binary("floordiv", self, o)

    def __rfloordiv__(self, o: object) -> Symbol:
        return _binary("floordiv", o, self)

    def __mod__(self, o: object) -> Symbol:
        return _binary("mod", self, o)

    def __rmod__(self, o: object) -> Symbol:
        return _binary("mod", o, self)

    def __eq__(self, o: object) -> Symbol:  # type: ignore[override]  # an expression, no bool
        return _binary("eq", self, o)

    def __ne__(self, o: object) -> Symbol:  # type: ignore[override]  # an expression, no bool
        return _binary("ne", self, o)

    def __lt__(self, o: object) -> Symbol:
        return _binary("lt", self, o)

    def __le__(self, o: object) -> Symbol:
        return _binary("le", self, o)

    def __gt__(self, o: object) -> Symbol:
        return _binary("gt", self, o)

    def __ge__(self, o: object) -> Symbol:
        return _binary("ge", self, o)

    def __and__(self, o: object) -> Symbol:
        return _binary("and", self, o)

    __rand__ = __and__

    def __or__(self, o: object) -> Symbol:
        return _binary("or", self, o)

    __ror__ = __or__


class SymbolicRow:
    """Any attribute or key is a column of that name."""

    __slots__ = ("__read", "__side")

    def __init__(self, side: int) -> None:
        self.__side = side
        self.__read = False

    def __repr__(self) -> str:
        return "<row>"

    def __getattr__(self, name: str) -> Symbol:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Symbol:
        if not isinstance(name, str):
            raise Untraceable("it indexes a row by something that is no column name")
        self.__read = True
        return Symbol(Column(self.__side, name))


def _binary(op: str, left: object, right: object) -> Symbol:
    """A larger symbol of two values, one of which may be a constant."""
    return Symbol(Binary(op, as_expr(left), as_expr(right)))


def _or_null(value: object) -> Expr:
    """As `as_expr`, where None may stand for NULL."""
    return Literal(None) if value is None else as_expr(value)


def as_expr(value: object) -> Expr:
    """A symbol's expression, or a Python constant as a literal. Moments and spans of time become microseconds."""
    match value:
        case Symbol():
            return value.expr
        case np.generic() if value.dtype.name in CAST_TYPES:
            # A NumPy scalar has a width of its own, unlike a Python number.
            return Cast(Literal(value.item()), value.dtype.name)
        case np.str_() | np.bytes_():
            return Literal(value.item())
        case bool() | int() | float() | str() | bytes():
            return Literal(value)
        case dt.timedelta() | dt.datetime() if (
            getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) % 1000
        ):
            raise QueryError(
                f"A condition or expression holds {value!r}, which is no whole microsecond",
                why="time is counted in microseconds, and nothing is rounded silently",
            )
        case dt.timedelta():
            return Literal(value // _MICROSECOND)
        case dt.datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return Literal((aware - _EPOCH) // _MICROSECOND)
        case dt.date():
            return Literal((value - _EPOCH.date()) // _MICROSECOND)
        case None:
            raise QueryError(
                "A condition compares a column with None",
                why="a comparison with NULL is unknown and never matches",
                do="Use `.is_null()` or `~column.is_null()`",
            )
        case When():
            raise unfinished("A condition or expression")
        case _:
            raise Untraceable(f"it combines a column with a {type(value).__name__}")


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two values in a condition: SQL's `least`.

    Args:
        a: A column or a constant.
        b: A column or a constant.

    Returns:
        The smaller one. NULL and NaN give way to the other value.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s",
        ...                         compute={"n": plait.count_where(lambda row: plait.minimum(row.x, row.y) < 2)})
        >>> query.reference({"s": {"ts": [1, 2], "x": [1, 5], "y": [3, None]}})["n"].to_pylist()
        [1]
    """
    return _pick(a, b, "_least", lambda x, y: y if _is_nan(x) or y < x else x)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two values in a condition: SQL's `greatest`.

    Args:
        a: A column or a constant.
        b: A column or a constant.

    Returns:
        The larger one. NULL gives way to the other value; NaN wins.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s",
        ...                         compute={"n": plait.count_where(lambda row: plait.maximum(row.x, row.y) > 4)})
        >>> query.reference({"s": {"ts": [1, 2], "x": [1, 5], "y": [3, None]}})["n"].to_pylist()
        [1]
    """
    return _pick(a, b, "_greatest", lambda x, y: x if _is_nan(x) or y < x else y)


def _pick(a: Any, b: Any, method: str, plain: Callable[[Any, Any], Any]) -> Any:
    """`minimum` and `maximum` of symbols, of the reference's values, which have the methods too, and of plain ones."""
    for one, other in ((a, b), (b, a)):
        if hasattr(one, method):
            return getattr(one, method)(other)
    if a is None or b is None:
        return b if a is None else a
    return plain(a, b)


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def trace(function: Callable[..., Any], rows: int = 2, *, constant: bool = False, about: str = "The condition") -> Expr:
    """The expression a condition on `rows` rows computes; raises `Untraceable` with the reason if it has none.

    `constant`: what it computes may be any value, and need not depend on its rows. `about` is what messages call it.
    """
    symbolic = [SymbolicRow(side) for side in range(rows)]
    try:
        result = function(*symbolic)
    except (Untraceable, QueryError):
        raise
    except NameError as error:
        # It would fail on real rows too.
        raise QueryError(
            f"{about} uses a name that does not exist: {error}", do="Define it first, or correct the spelling"
        ) from error
    except Exception as error:
        raise Untraceable(f"it raises {type(error).__name__} on symbolic columns: {error}") from error
    if isinstance(result, Symbol):
        return result.expr
    if isinstance(result, (bool, np.bool_)) or (constant and result is not None):
        if any(row._SymbolicRow__read for row in symbolic):
            raise Untraceable("it reads columns, and what it returns does not follow from comparing them")
        return Literal(bool(result)) if isinstance(result, np.bool_) else as_expr(result)
    if isinstance(result, When):
        raise unfinished(about)
    raise QueryError(
        f"{about} returns {result!r}, which is no {'expression' if constant else 'condition'}",
        why="it must compare columns of its rows",
        do="Return an expression such as `abs(l.x - r.a) <= 10`",
    )


def columns_read(
    function: Callable[..., Any], rows: int = 2, *, about: str = "The condition"
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the left and right row that an opaque function mentions, wherever it does."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        raise QueryError(
            f"{about} is a {type(function).__name__}, not a Python function",
            why="which columns it reads can't be seen from outside",
            do="Wrap it in a `def` or `lambda`",
        )
    found: tuple[dict[str, None], dict[str, None]] = ({}, {})
    first = 1 if isinstance(function, MethodType) else 0  # a bound method has `self` in front
    _scan(code, dict(zip(code.co_varnames[first : first + rows], found, strict=False)), about)
    return tuple(found[0]), tuple(found[1])


def _scan(code: CodeType, rows: dict[str, dict[str, None]], about: str) -> None:
    """Find where code loads one of its rows, and note the column that is read of it; inner functions included.

    A row that is used in another way than by reading a column is refused: it could read any column.
    """
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "RESUME", "NOP", "COPY_FREE_VARS")]
    cells = {*code.co_cellvars, *code.co_freevars}
    for at, step in enumerate(steps):
        loaded = _loaded(step)
        # The load of a cell itself makes an inner function, whose own code is scanned below.
        names = [n for n in loaded if n in rows and not (n in cells and "DEREF" not in step.opname)]
        if not names:
            continue
        column = _column_after(steps, at)
        if column is None or loaded[-1] != names[-1] or len(names) != 1:
            raise QueryError(
                f"{about} uses its row {names[0]!r} as a whole (line {step.positions and step.positions.lineno})",
                why="plait must know which columns it reads, to leave out pairs in which one of them is NULL",
                do=f"Read columns by name, as `{names[0]}.column`, and pass those on",
            )
        rows[names[0]][column] = None
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner = {n: found for n, found in rows.items() if n in const.co_freevars}
            _scan(const, inner, about)


def _loaded(step: dis.Instruction) -> tuple[str, ...]:
    """The local variables that an instruction loads; since Python 3.13 one may store or load two at a time."""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    if step.opname == "STORE_FAST_LOAD_FAST":
        return names[1:]
    local = step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT"))
    return names if local else ()


def _column_after(steps: list[dis.Instruction], at: int) -> str | None:
    """The column that is read of a row just loaded, by attribute or by key; None for any other use."""
    following = steps[at + 1 : at + 3]
    if following and following[0].opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return str(following[0].argval)
    if (
        len(following) == 2
        and following[0].opname == "LOAD_CONST"
        and isinstance(following[0].argval, str)
        and (following[1].opname == "BINARY_SUBSCR" or following[1].argrepr == "[]")
    ):
        return following[0].argval
    return None
