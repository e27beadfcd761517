"""Users' own aggregate functions, compiled where that can't change a bit of the result.

`init` and `result` stay Python, once a window; `add`, once a tuple, is compiled by Numba if its typed code holds nothing but what
is the same there and in Python: arithmetic + - * / and comparisons of doubles, which are IEEE's in both; comparisons of
integers; and integers that grow by little. That last is where they differ: Python's integers have no end, and compiled ones wrap.
So an integer may only be added to, or have taken away, a constant or a column of at most 32 bits, and a column of 64 bits may
only be compared or become a float. With no loops, at most ADDS such
steps a tuple and ROWS tuples a window, none leaves 62 bits. Every value has one type throughout, as it has in Python:
a sum that begins with the integer 0 and goes on as a float is left to Python.

What is not proven so is not compiled, with the reason for `explain`. A call that raises is done again by Python, which says why.
As in conditions, constants that a function uses by name are read when the query is built.

What goes in: the row numbers of many windows at once, as offsets into columns. What comes out: each window's last state.
Order within a window is the total order, and states are added to one tuple after another, as `reference.folds` does. The
compiled form and the plain one are held against each other in tests/core/aggregate/test_users.py.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types
from numba.core import ir

from plait.core.machine.shield import njit

ADDS = 16
ROWS = 1 << 24
LARGEST = 1 << 60  # of an integer that a state begins with

#: A column's values as `add` gets them, by Arrow's name of the type; the narrow ones are what integers may be added.
KINDS = {"double": types.float64, "float": types.float64, "int64": types.int64, "bool": types.boolean}
NARROW = ("int8", "int16", "int32", "uint8", "uint16")
_TYPES = {float: types.float64, int: types.int64, bool: types.boolean}
_ARRAYS = {types.float64: np.float64, types.int64: np.int64, types.boolean: np.bool_}

_COMPARE = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_FLOATS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
)
_ADD = (operator.add, operator.sub, operator.iadd, operator.isub)


_WIDE = "it reckons with integers of 64 bits, which have no end in Python"


class Unproven(Exception):
    """Why a function is left to Python."""


class Fold:
    """`add` over the rows of many windows at once; `states` gives each window's state, or None where Python has to.

    `state` are the Numba types of a state's numbers; `_alone`: the state is one number and no tuple; `_kinds` are Arrow's
    names of the column types. The compiled loop runs over all windows in one call.
    """

    def __init__(self, add: Callable[..., Any], state: tuple[Any, ...], alone: bool, kinds: tuple[str, ...]) -> None:
        self.state, self._alone, self._kinds = state, alone, kinds
        self._fold = _compiled(add, state, alone, kinds)

    def states(self, init: Callable[[], Any], offsets: np.ndarray, columns: list[np.ndarray]) -> list[Any] | None:
        """`offsets` has one entry more than windows: window w has the rows offsets[w] up to, not with, offsets[w + 1] of
        `columns`.

        `init` is called by Python, once a window, in the order of windows: it may be anything, and may not give the same
        each time. None is given where a state is of another type than the first was, where it begins so large that the
        proof does not hold, or where a window has more than ROWS tuples. Then Python computes all of these windows.
        """
        begun = [parts_of(init())[0] for _ in range(len(offsets) - 1)]
        if any(tuple(_TYPES.get(type(v)) for v in state) != self.state or _large(state) for state in begun):
            return None
        if len(offsets) > 1 and int(np.diff(offsets).max()) > ROWS:
            return None
        first = [np.array([state[k] for state in begun], _ARRAYS[kind]) for k, kind in enumerate(self.state)]
        out = [np.empty_like(column) for column in first]
        given = [np.ascontiguousarray(c, _ARRAYS[_kind(kind)]) for c, kind in zip(columns, self._kinds, strict=True)]
        try:
            self._fold(offsets, *first, *given, *out)
        except ZeroDivisionError:  # all that proven code can raise
            return None  # Python raises it again
        found = [column.tolist() for column in out]
        return found[0] if self._alone else list(zip(*found, strict=True))


def fold(init: Callable[[], Any], add: Callable[..., Any], kinds: tuple[str, ...]) -> Fold | str:
    """The compiled function for columns of these types, or why there is none.

    `kinds` are Arrow's names of the types of the columns that `add` gets, in order. A text that is given back is a reason
    for `explain`. `init` is called here, to see what a state is like.
    """
    state, alone = parts_of(init())
    typed = tuple(_TYPES.get(type(v)) for v in state)
    if None in typed or not state:
        return f"its state is {type(init()).__name__}, not numbers or a tuple of numbers"
    if any(kind not in KINDS and kind not in NARROW for kind in kinds):
        return f"it reads a column of type {next(k for k in kinds if k not in KINDS and k not in NARROW)}"
    try:
        return _made(add, typed, alone, kinds)
    except Unproven as why:
        return str(why)
    except TypeError:  # a function that can't be hashed
        return "it is no plain function"


def parts_of(state: Any) -> tuple[tuple[Any, ...], bool]:
    """The numbers of a state, and whether it is one alone."""
    return (state, False) if type(state) is tuple else ((state,), True)


def _large(state: tuple[Any, ...]) -> bool:
    return any(type(v) is int and abs(v) > LARGEST for v in state)


def _kind(name: str) -> Any:
    return KINDS.get(name, types.int64)


@lru_cache(maxsize=64)
def _made(add: Callable[..., Any], state: tuple[Any, ...], alone: bool, kinds: tuple[str, ...]) -> Fold:
    return Fold(add, state, alone, kinds)


def _compiled(add: Callable[..., Any], state: tuple[Any, ...], alone: bool, kinds: tuple[str, ...]) -> Any:
    """Compile `add` for these types, prove its typed code, and compile the loop around it. `Unproven` says why not.

    The state must come back in the type in which it went in. A state that is int64 at first and float64 after one tuple
    would be one number in machine code and another in Python.
    """
    whole = state[0] if alone else types.Tuple(state)
    signature = (whole, *(_kind(kind) for kind in kinds))
    try:
        made = njit(nogil=True, error_model="python")(add)
        made.compile(signature)
        typed = made.overloads[signature]
    except Exception as error:
        raise Unproven(f"Numba can't compile it ({type(error).__name__})") from error
    if typed.signature.return_type != whole:
        raise Unproven(
            f"its state is {whole} and becomes {typed.signature.return_type}: begin with what it will be, such as 0.0"
        )
    _Proof(typed.type_annotation, kinds).check()
    return njit(nogil=True)(_text(made, len(state), alone, len(kinds)))


def _text(add: Any, parts: int, alone: bool, columns: int) -> Callable[..., None]:
    """The loop over windows and their rows, as a function of Numba's to be. It holds as many parameters as there are numbers
    in a state and columns, so it is written for each case.
    """
    first, out = [f"i{k}" for k in range(parts)], [f"o{k}" for k in range(parts)]
    given = [f"c{k}" for k in range(columns)]
    state = "i0[w]" if alone else f"({''.join(f'{name}[w], ' for name in first)})"
    lines = [
        f"def folded({', '.join(['offsets', *first, *given, *out])}):",
        "    for w in range(len(offsets) - 1):",
        f"        state = {state}",
        "        for k in range(offsets[w], offsets[w + 1]):",
        f"            state = add({', '.join(['state', *(f'{name}[k]' for name in given)])})",
        *(f"        {name}[w] = state{'' if alone else f'[{k}]'}" for k, name in enumerate(out)),
    ]
    made: dict[str, Any] = {"add": add}
    exec("\n".join(lines), made)  # text made here, of numbers alone
    folded: Callable[..., None] = made["folded"]
    return folded


class _Proof:
    """Goes through a function's typed code; raises `Unproven` at the first thing that is not known to be the same in Python.

    The proof is over Numba's intermediate code, after types were found: what is judged is what will be compiled. A name
    that is assigned in two places may hold two things, so only names of `once` are trusted to be small, wide or a
    function.

    `adds` counts the places where integers are added. There is no loop, so each runs at most once a tuple. ADDS places of
    less than 2^32 each, over ROWS tuples, and a state of at most LARGEST at first: below 2^62.
    """

    def __init__(self, code: Any, kinds: tuple[str, ...]) -> None:
        self.code, self.kinds, self.adds = code, ("", *kinds), 0
        # Of variables that are assigned once: those that hold a small constant or a narrow column, and functions.
        targets = Counter(s.target.name for b in code.blocks.values() for s in b.body if isinstance(s, ir.Assign))
        self.once = {name for name, times in targets.items() if times == 1}
        self.small: set[str] = set()
        self.wide: set[str] = set()  # a column of 64 bits: it may be compared and become a float, and go nowhere else
        self.functions: dict[str, Any] = {}

    def check(self) -> None:
        labels = sorted(self.code.blocks)
        for label in labels:
            for statement in self.code.blocks[label].body:
                self._statement(label, statement)
        if self.adds > ADDS:
            raise Unproven(f"it adds integers in more than {ADDS} places")

    def _statement(self, label: int, statement: Any) -> None:
        """One statement of the typed code. A jump to a label that is not above this one is a loop: then steps a tuple
        have no bound.
        """
        match statement:
            case ir.Assign():
                self._assign(statement.target.name, statement.value)
            case ir.Del() | ir.Return():
                return
            case ir.Jump() | ir.Branch():
                if any(to <= label for to in statement.get_targets()):
                    raise Unproven("it has a loop")
            case _:
                raise Unproven(f"it holds `{statement}`")

    def _type(self, name: str) -> Any:
        return types.unliteral(self.code.typemap[name])

    def _assign(self, target: str, value: Any) -> None:
        match value:
            case ir.Arg():
                if self.kinds[value.index] in NARROW:
                    self.small |= {target} & self.once
                elif self.kinds[value.index] == "int64":
                    self._widened(target)
            case ir.Const() | ir.Global() | ir.FreeVar():
                self._constant(target, value.value)
            case ir.Var():
                self._same(target, value.name)
                if target in self.once and value.name in self.functions:
                    self.functions[target] = self.functions[value.name]
                if value.name in self.small:
                    self.small |= {target} & self.once
                if value.name in self.wide:
                    self._widened(target)
            case ir.Expr():
                self._expression(target, value)
            case _:
                raise Unproven(f"it holds `{value}`")

    def _widened(self, name: str) -> None:
        if name not in self.once:
            raise Unproven(_WIDE)
        self.wide.add(name)

    def _not_wide(self, *names: str) -> None:
        if self.wide & {*names}:
            raise Unproven(_WIDE)

    def _same(self, target: str, source: str) -> None:
        if self._type(target) != self._type(source):
            raise Unproven(f"a value is {self._type(source)} here and {self._type(target)} there")

    def _constant(self, target: str, value: Any) -> None:
        if type(value) is int and abs(value) < 1 << 31:
            self.small |= {target} & self.once
        elif any(value is known for known in (bool, float, abs, min, max)):  # not `in`: arrays have no one truth value
            if target in self.once:
                self.functions[target] = value
        elif type(value) not in (float, bool):
            raise Unproven(f"it uses {value!r}")

    def _expression(self, target: str, value: Any) -> None:
        match value.op:
            case "exhaust_iter" | "static_getitem":
                return
            case "build_tuple":
                self._not_wide(*(item.name for item in value.items))
            case "cast":
                self._not_wide(value.value.name)
                self._same(target, value.value.name)
            case "phi":
                for each in value.incoming_values:
                    if each is not ir.UNDEFINED:
                        self._not_wide(each.name)
                        self._same(target, each.name)
            case "binop" | "inplace_binop":
                self._binary(value.fn if value.op == "binop" else value.immutable_fn, value.lhs.name, value.rhs.name)
            case "unary":
                self._not_wide(value.value.name)
                self._unary(value.fn, self._type(value.value.name))
            case "call":
                self._call(value)
            case _:
                raise Unproven(f"it holds `{value}`")

    def _unary(self, function: Any, kind: Any) -> None:
        if not (function is operator.neg and kind in (types.float64, types.int64)) and not (
            function is operator.not_ and kind == types.boolean
        ):
            raise Unproven(f"it takes {function.__name__} of {kind}")

    def _binary(self, function: Any, left: str, right: str) -> None:
        """One operator of the typed code. int64 with int64: comparisons are the same in both; only sums with a small
        number are counted and allowed. int64 with float64: arithmetic rounds the integer first in both, but a comparison
        is exact in Python, so the integer must be small.
        """
        kinds = (self._type(left), self._type(right))
        if kinds == (types.float64, types.float64) and function in (*_FLOATS, *_COMPARE):
            return
        if set(kinds) == {types.float64, types.int64}:
            # The integer is rounded to a double by both; but Python compares the two exactly.
            whole = left if kinds[0] == types.int64 else right
            if function in _FLOATS or (function in _COMPARE and whole in self.small):
                return
        if kinds == (types.int64, types.int64):
            if function in _COMPARE:
                return
            self._not_wide(left, right)
            if function in _ADD and (left in self.small or right in self.small):
                self.adds += 1
                return
            raise Unproven(f"it takes {function.__name__} of integers, which have no end in Python")
        raise Unproven(f"it takes {function.__name__} of {kinds[0]} and {kinds[1]}")

    def _call(self, value: Any) -> None:
        function = self.functions.get(value.func.name)
        if function is not float:
            self._not_wide(*(each.name for each in value.args))
        kinds = [self._type(each.name) for each in value.args]
        allowed = {
            abs: [[types.float64], [types.int64]],
            float: [[types.float64], [types.int64]],
            bool: [[types.boolean]],
            min: [[types.float64] * 2, [types.int64] * 2],
            max: [[types.float64] * 2, [types.int64] * 2],
        }
        if function is None or value.kws or value.vararg or kinds not in allowed[function]:
            raise Unproven(f"it calls {getattr(function, '__name__', 'a function')} of {', '.join(map(str, kinds))}")
