"""Is a user's function the same in machine code as in Python? Compiled only where this module can prove it.

The rule: *an opaque condition is compiled only if no value that is in the data can make machine code and Python
differ.* Everything else is judged by Python, which is slow, and right, and `explain` says why.

They differ where an integer leaves 64 bits (Python's have no end, a machine word wraps around), where a large integer
meets a float (Python compares the two exactly, a machine rounds the integer first), where a name has no value yet, and
in every library function that is not IEEE's own. So the function is walked through once, as Numba reads it, with what
each value can be: an integer with the least and the greatest it can reach (from the minima and maxima of the data), a
float, a truth value, text, or a constant. Only steps that are known to be the same in both are let through. There are
no loops in what is let through, so the walk ends, and a value's bounds are never too narrow.

Example: a function that holds `l.x * r.y > 10`, with x and y in (-1000, 1000) is proven: the product lies in (-10^6,
10^6). With x and y in (-2^40, 2^40) it is not, since the product may have 80 bits. If the data grow from the first to the
second, the proof is made again, fails, and Python takes over from there (tests/core/condition/test_proof.py).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any, Final

from plait.core.condition import bounds
from plait.core.condition.bounds import Interval

#: Integers up to here are floats as they stand, so that a comparison with a float loses nothing.
_EXACT_IN_FLOAT: Final = (-(1 << 53), 1 << 53)
_DEEPEST: Final = 8  # functions that call one another

_COMPARE = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_EQUAL = (operator.eq, operator.ne)
_WHOLE: Final = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv", operator.mod: "mod",
}  # fmt: skip
_BITS = (operator.and_, operator.or_, operator.xor)
_REAL = (operator.add, operator.sub, operator.mul, operator.truediv)
_OF_FLOATS = (math.isnan, math.isinf, math.isfinite, math.fabs)
MATH_NAMES: Final = ("sqrt", "isnan", "isinf", "isfinite", "fabs", "pi", "e", "tau", "inf", "nan")


class Unproven(Exception):
    """Why a function is left to Python."""


@dataclass(frozen=True)
class Known:
    """What a value can be. `kind`: whole, real, truth, text, none; mixed (one of several, of which only the truth may be
    asked); thing (a constant that is no number: `value`); row (`fields`).

    `low` and `high` are of whole numbers only. `value` is there for a constant: an exponent or an index has to be one.
    `fields` of a row are by column.
    """

    kind: str
    low: int = 0
    high: int = 0
    value: Any = None
    fields: Any = None

    @property
    def interval(self) -> Interval:
        return self.low, self.high


REAL, TRUTH, TEXT, NONE, MIXED = (Known(kind) for kind in ("real", "truth", "text", "none", "mixed"))
_TESTED = ("whole", "real", "truth", "mixed", "none")  # what `if` may be asked of


def whole(interval: Interval) -> Known:
    """An integer that lies in this interval. Raises where 64 bits do not hold the interval: that is the whole of the
    proof for integers.
    """
    if not bounds.fits(interval, bounds.INT64):
        raise Unproven("it may reckon with integers beyond 64 bits")
    return Known("whole", *interval)


def prove(function: FunctionType, arguments: list[Known]) -> Known:
    """What the function gives; raises `Unproven` at the first step that is not known to be the same in Python.

    `arguments` are two rows. Nothing is compiled or called: Numba only reads the bytecode.
    """
    return _walk(function, arguments, ())


def _walk(function: FunctionType, arguments: list[Known], callers: tuple[FunctionType, ...]) -> Known:
    """What a function gives when it is called with these arguments. `callers` are the functions around this one, for
    calls inside of calls. Keyword arguments, defaults and `*` are left to Python.
    """
    if function in callers or len(callers) >= _DEEPEST:
        raise Unproven(f"its function {function.__name__!r} calls itself")
    code = function.__code__
    if len(arguments) != code.co_argcount or code.co_kwonlyargcount or code.co_flags & 0x0C or function.__defaults__:
        raise Unproven(f"{function.__name__!r} is called with more or fewer arguments than it names")
    return _Walk(_blocks(function), arguments, (*callers, function)).result()


def _blocks(function: FunctionType) -> dict[int, Any]:
    """The function as Numba reads it, in basic blocks by label. What Numba can't read is not compiled."""
    from numba.core import compiler

    try:
        found: dict[int, Any] = compiler.run_frontend(function).blocks  # type: ignore[no-untyped-call]  # Numba's own
    except Exception as error:
        raise Unproven(f"Numba can't read it ({type(error).__name__})") from error
    return found


def _joined(a: Known, b: Known) -> Known:
    """One of the two."""
    if a.kind == b.kind == "whole":
        return Known("whole", min(a.low, b.low), max(a.high, b.high))
    if a == b:
        return a
    if a.kind == b.kind and a.kind in ("real", "truth", "text"):
        return Known(a.kind)
    if a.kind in _TESTED and b.kind in _TESTED:
        return MIXED
    raise Unproven(f"a value is {a.kind} here and {b.kind} there")


class _Walk:
    """One call. Blocks are taken in the order of their labels, which is an order of execution where nothing jumps back.

    `entering` has, for each block that something leads to, what each name can be when it begins: joined over all ways
    that lead there. `kinds` is stricter than Numba: a name of the user's keeps one kind in the whole function, since
    machine code gives it one type.
    """

    def __init__(self, blocks: dict[int, Any], arguments: list[Known], callers: tuple[FunctionType, ...]) -> None:
        self.blocks, self.arguments, self.callers = blocks, arguments, callers
        self.entering: dict[int, dict[str, Known]] = {min(blocks): {}}
        self.kinds: dict[str, str] = {}  # of names in the user's text: each has one kind throughout
        self.given: list[Known] = []

    def result(self) -> Known:
        from numba.core import ir

        for label in sorted(self.blocks):
            names = self.entering.get(label)
            if names is None:
                continue  # nothing leads there
            for step in self.blocks[label].body:
                match step:
                    case ir.Assign():
                        self._assign(names, step.target.name, self._value(names, step.value))
                    case ir.Del():
                        pass
                    case ir.Return():
                        self.given.append(self._read(names, step.value.name))
                    case ir.Jump() | ir.Branch():
                        self._leave(label, names, step)
                    case _:
                        raise Unproven(f"it holds `{step}`")
        found = self.given[0] if self.given else NONE
        for other in self.given[1:]:
            found = _joined(found, other)
        return found

    def _leave(self, label: int, names: dict[str, Known], step: Any) -> None:
        """What is known at the end of a block is known where the next ones begin. All ways into a block are known before
        it is walked, since nothing jumps back. A name that only some ways give a value has none: to read it would raise
        in Python and be rubbish in machine code.
        """
        for target in step.get_targets():
            if target <= label:
                raise Unproven("it has a loop")
            before = self.entering.get(target)
            if before is None:
                self.entering[target] = dict(names)
            else:  # a name without a value on one of the ways has none
                self.entering[target] = {n: _maybe(before[n], names[n]) for n in before if n in names}

    def _assign(self, names: dict[str, Known], name: str, value: Known) -> None:
        """A name gets a value. Names that begin with `$` are Numba's own, for steps of an expression."""
        if not name.startswith("$") and self.kinds.setdefault(name, value.kind) != value.kind:
            raise Unproven(f"{name!r} is {self.kinds[name]} here and {value.kind} there")
        # A number under a name is no constant any more: Numba may not see through the name.
        names[name] = value if name.startswith("$") or value.kind == "thing" else replace(value, value=None)

    def _read(self, names: dict[str, Known], name: str) -> Known:
        found = names.get(name)
        if found is None:
            raise Unproven(f"{name.split('.')[0]!r} may have no value yet")
        if found.kind == "torn":
            raise Unproven(f"{name.split('.')[0]!r} is not always of one kind")
        return found

    def _value(self, names: dict[str, Known], value: Any) -> Known:
        from numba.core import ir

        match value:
            case ir.Arg():
                return self.arguments[value.index]
            case ir.Const() | ir.Global() | ir.FreeVar():
                return _constant(value.value)
            case ir.Var():
                return self._read(names, value.name)
            case ir.Expr():
                return self._expression(names, value)
        raise Unproven(f"it holds `{value}`")

    def _expression(self, names: dict[str, Known], value: Any) -> Known:
        def read(var: Any) -> Known:
            return self._read(names, var.name)

        match value.op:
            case "cast":
                return read(value.value)
            case "getattr":
                return _attribute(read(value.value), value.attr)
            case "getitem" | "static_getitem":
                at = value.index if value.op == "static_getitem" else read(value.index).value
                return _attribute(read(value.value), at, item=True)
            case "build_tuple":
                items = [read(item) for item in value.items]
                if any(item.value is None for item in items):
                    raise Unproven("it makes a tuple of columns")
                return Known("thing", value=tuple(item.value for item in items))
            case "binop":
                return _binary(value.fn, read(value.lhs), read(value.rhs))
            case "inplace_binop":
                return _binary(value.immutable_fn, read(value.lhs), read(value.rhs))
            case "unary":
                return _unary(value.fn, read(value.value))
            case "call":
                if value.kws or value.vararg or value.varkwarg:
                    raise Unproven("it calls a function by names or with `*`")
                return self._call(read(value.func), [read(each) for each in value.args])
        raise Unproven(f"it uses `{value.op}`")

    def _call(self, called: Known, given: list[Known]) -> Known:
        function = called.value
        inner = getattr(function, "py_func", function)  # a function already under Numba
        if isinstance(inner, FunctionType):
            if any(each.kind in ("thing", "row") for each in given):
                raise Unproven(f"it hands {inner.__name__!r} something that is no value of a column")
            found = _walk(inner, [replace(each, value=None) for each in given], self.callers)
            if found.kind == "mixed":
                raise Unproven(f"{inner.__name__!r} gives values of several kinds")
            return found
        return _builtin(function, given)


def _maybe(a: Known, b: Known) -> Known:
    """As `_joined`, for a name that nobody may ask for any more."""
    try:
        return _joined(a, b)
    except Unproven:
        return Known("torn")


def _constant(value: Any) -> Known:
    """What a constant can be: itself. Only exact types: a subclass of int may do anything."""
    if value is None:
        return NONE
    if type(value) is bool:
        return replace(TRUTH, value=value)
    if type(value) is int:
        return replace(whole((value, value)), value=value)
    if type(value) is float:
        return replace(REAL, value=value)
    if type(value) is str:
        return replace(TEXT, value=value)
    return Known("thing", value=value)


def _attribute(of: Known, name: Any, *, item: bool = False) -> Known:
    if of.kind == "row" and isinstance(name, str) and name in of.fields:
        found: Known = of.fields[name]
        return found
    if not item and of.value is math and name in MATH_NAMES:
        return _constant(getattr(math, name))
    what = of.value.__name__ if isinstance(of.value, ModuleType) else of.kind
    raise Unproven(f"it uses `{what}.{name}`")


def _named(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _binary(function: Any, a: Known, b: Known) -> Known:
    """What an operator gives of two values. Floats: + - * / are IEEE's in both. `**`, `%` and `//` of floats are not let
    through: libraries differ there. A division by zero raises in both.
    """
    kinds = (a.kind, b.kind)
    if kinds == ("whole", "whole"):
        return _of_wholes(function, a, b)
    if set(kinds) <= {"whole", "real"}:
        if function in _REAL:
            return REAL
        if function in _COMPARE:
            number = a if a.kind == "whole" else b
            if "whole" in kinds and not bounds.fits(number.interval, _EXACT_IN_FLOAT):
                raise Unproven("it compares integers beyond 2^53 with floats")
            return TRUTH
    if kinds == ("truth", "truth") and function in (*_BITS, *_EQUAL):
        return TRUTH
    if kinds == ("text", "text") and function in _EQUAL and (a.value is None or b.value is None):
        return TRUTH
    if function is operator.contains:  # a in b comes as contains(b, a)
        return _among(b, a)
    raise Unproven(f"it takes `{_named(function)}` of {a.kind} and {b.kind}")


def _of_wholes(function: Any, a: Known, b: Known) -> Known:
    """What an operator gives of two integers. The least int64 divided by -1 does not fit, and the machine traps or wraps;
    so a dividend whose negation does not fit is refused. For & | ^ both operands are widened to whole bits: the result
    has no more bits than the wider one.
    """
    if function in _COMPARE:
        return TRUTH
    if function in _WHOLE:
        if function in (operator.floordiv, operator.mod):
            whole((-a.high, -a.low))  # the least integer divided by -1 has no word, nor has the machine's remainder
        return whole(bounds.binary(_WHOLE[function], a.interval, b.interval))
    if function in _BITS:
        return whole(bounds.union(bounds.rounded(a.interval), bounds.rounded(b.interval)) or a.interval)
    if function is operator.truediv:
        if not all(bounds.fits(each.interval, _EXACT_IN_FLOAT) for each in (a, b)):
            raise Unproven("it divides integers beyond 2^53")
        return REAL
    if function is operator.pow and type(b.value) is int and 0 <= b.value <= 64:
        reach = max(abs(a.low), abs(a.high)) ** b.value
        return whole((0 if b.value % 2 == 0 else -reach, max(reach, 1)))
    raise Unproven(f"it takes `{_named(function)}` of integers")


def _among(item: Known, options: Known) -> Known:
    """`x in (1, 2, 3)`"""
    numbers = options.value
    if item.kind == "whole" and type(numbers) is tuple and numbers and all(type(n) is int for n in numbers):
        for number in numbers:
            whole((number, number))
        return TRUTH
    raise Unproven("it uses `in`")


def _unary(function: Any, a: Known) -> Known:
    if function is operator.not_ and a.kind in ("whole", "real", "truth"):
        return TRUTH
    if function is operator.neg and a.kind in ("whole", "real"):
        return whole(bounds.unary("neg", a.interval)) if a.kind == "whole" else REAL
    if function is operator.pos and a.kind in ("whole", "real"):
        return replace(a, value=None)
    if function is operator.invert and a.kind == "whole":
        return whole((-1 - a.high, -1 - a.low))
    raise Unproven(f"it takes `{_named(function)}` of {a.kind}")


def _builtin(function: Any, given: list[Known]) -> Known:
    kinds = [each.kind for each in given]
    if function is bool and len(given) == 1 and kinds[0] in _TESTED:
        return TRUTH
    if function is abs and kinds in (["whole"], ["real"]):
        return REAL if kinds == ["real"] else whole(bounds.unary("abs", given[0].interval))
    if function in (min, max) and len(given) >= 2 and set(kinds) in ({"whole"}, {"real"}):
        if kinds[0] == "real":
            return REAL
        pick = min if function is min else max
        return whole((pick(each.low for each in given), pick(each.high for each in given)))
    if function is float and kinds in (["whole"], ["real"]):
        return REAL
    if function is int and kinds == ["whole"]:
        return replace(given[0], value=None)
    if function is math.sqrt and kinds in (["whole"], ["real"]):
        return REAL
    if function in _OF_FLOATS and kinds == ["real"]:
        return REAL if function is math.fabs else TRUTH
    raise Unproven(f"it calls `{_named(function)}` of {', '.join(kinds) or 'nothing'}")
