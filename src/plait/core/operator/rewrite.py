"""A user's functions rewritten for Numba: the same text, with every step one that does as Python does, or raises.

Each expression has one kind (int, float, bool, text), found from the columns, the state and the constants; each name keeps
its kind, and has a value wherever it is read, since Python's names may change and machine code's can't. So the kind says
which step of `machine_steps` stands for an operator. What has no such step (`**` and `%` of floats, functions of libraries
other than IEEE's own, slices of the state, loops over anything but `range`, arithmetic with bools) is not compiled, and the
reason is told. Constants that a function uses by name are written into the text.

A generator that yields rows and timers has no one type, so `yield x` becomes (0, 0, columns ...) for a row and
(1, at, zeros ...) for a timer; a route's `plait.ALL` and None become codes. Writes to the state go through `put`, which keeps
what was there.

Example: `state[0] += t.x` with a state and a column of int64 becomes `plait_put(state, plait_log, plait_int64((0)),
plait_int64(plait_add_ints(state[plait_int64((0))], t.c0)))`: the sum is checked, and what was in the state is logged
before it is written.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from plait.core.operator.buckets import EVERY, NONE
from plait.query.operator import ALL, timer

MINE = "plait_"  # how every name begins that is not the user's
_ENDS = (-(1 << 63), (1 << 63) - 1)
_KINDS = {bool: "bool", int: "int", float: "float", str: "text"}
_OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
_ALIKE = (ast.Add, ast.Sub, ast.Mult)  # of floats: IEEE's in both
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor)
_EQUAL = (ast.Eq, ast.NotEq)
_ZEROS = {"int": "0", "float": "0.0", "bool": "False"}


class NotCompiled(Exception):
    """Why a function runs in plain Python."""


class UserFunction:
    """A user's function as a syntax tree, and the columns of its tuple that it reads.

    `role` is "route", "process" or "on_timer". `node` is its syntax tree, a lambda's made into a `def`. `row` is the name
    of the parameter that is a tuple (None for `on_timer`), `reads` the columns that it reads by that name. The function's
    text must be at hand: one typed into an interpreter without a file has none.
    """

    def __init__(self, role: str, function: Callable[..., Any]) -> None:
        if not isinstance(function, FunctionType):
            raise NotCompiled(f"{role} is a {type(function).__name__}, not a function")
        if function.__closure__:
            raise NotCompiled(f"{role} uses variables of the function around it")
        try:
            text = textwrap.dedent(inspect.getsource(function))
            found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
        except (OSError, TypeError, SyntaxError) as error:
            raise NotCompiled(f"the text of {role} is not to be had alone; write it with def") from error
        if len(found) != 1:
            raise NotCompiled(f"{role} holds functions of its own, or stands on a line with others; write it with def")
        self.role, self.function = role, function
        node = found[0]
        if isinstance(node, ast.Lambda):
            node = ast.fix_missing_locations(ast.FunctionDef(role, node.args, [ast.Return(node.body)], [], lineno=1))
        self.node: ast.FunctionDef = node
        if node.decorator_list:
            raise NotCompiled(f"{role} has a decorator")
        self.yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in ast.walk(node))
        self.parameters = self._parameters(node.args)
        if role == "process" and not self.yields and any(isinstance(n, ast.Return) and n.value for n in ast.walk(node)):
            raise NotCompiled("process returns its outputs; only those that it yields are compiled")
        self.row = self.parameters[0] if role == "route" else self.parameters[1] if role == "process" else None
        self.reads = {name for n in ast.walk(node) if (name := column_read(n, self.row)) is not None}

    def _parameters(self, given: ast.arguments) -> list[str]:
        names = [a.arg for a in (*given.posonlyargs, *given.args)]
        if len(names) != (1 if self.role == "route" else 2) or given.vararg or given.kwarg or given.kwonlyargs:
            raise NotCompiled(f"{self.role} has other parameters than it is called with")
        return names


def column_read(node: ast.AST, row: str | None) -> str | None:
    """The column that `t.column` or `t["column"]` reads."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == row:
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == row:
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return node.slice.value
        raise NotCompiled("a column is named by something other than text")
    return None


class Typed:
    """An expression's new text, and its kind.

    `kind` is "int", "float", "bool" or "text". Text can only be compared, and be asked whether it is empty.
    """

    def __init__(self, text: str, kind: str) -> None:
        self.text, self.kind = text, kind


def _call(name: str, *given: Typed | str, kind: str) -> Typed:
    return Typed(f"{MINE}{name}({', '.join(g if isinstance(g, str) else g.text for g in given)})", kind)


class Expressions:
    """Expressions of one function. `names` are those that have a value here, with their kinds.

    `kept` is the name of the state's parameter. `locals` are its parameters and all names that it assigns: a name of
    these that is not in `names` has no value yet on some way, and is refused.
    """

    def __init__(self, user: UserFunction, columns: dict[str, Typed], state: tuple[str, int]) -> None:
        """`columns`: how each column is read. `state`: the kind of its numbers, and its dimensions."""
        self.user, self.columns, self.state = user, columns, state
        self.names: dict[str, str] = {}
        self.kept = None if user.role == "route" else user.parameters[0]
        if user.role == "on_timer":
            self.names[user.parameters[1]] = "int"
        # As in Python, a name that is assigned anywhere in a function is nowhere a global.
        code = user.function.__code__
        self.locals = {*code.co_varnames, *code.co_cellvars}
        if any(name.startswith(MINE) for name in (*self.locals, *code.co_names)):
            raise NotCompiled(f"{user.role} uses a name that begins with {MINE}")

    def no(self, what: str) -> NotCompiled:
        """The exception, to be raised: role and reason, as `explain` shows them."""
        return NotCompiled(f"{self.user.role} {what}")

    def typed(self, node: ast.expr) -> Typed:
        """The new text of an expression and its kind. Whatever is not listed here is not compiled: a new kind of node is
        refused until somebody has thought about it.
        """
        column = column_read(node, self.user.row)
        if column is not None:
            return self.columns[column]
        match node:
            case ast.Constant():
                return self.constant(node.value)
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._item(node)
            case ast.BinOp():
                return self.binary(node.op, self.typed(node.left), self.typed(node.right))
            case ast.UnaryOp():
                return self._unary(node)
            case ast.Compare():
                return self._compared(node)
            case ast.BoolOp():
                word = " and " if isinstance(node.op, ast.And) else " or "
                values = [self.typed(v) for v in node.values]
                return Typed(f"({word.join(v.text for v in values)})", self._same(values))
            case ast.IfExp():
                test, a, b = self.test(node.test), self.typed(node.body), self.typed(node.orelse)
                return Typed(f"({a.text} if {test} else {b.text})", self._same([a, b]))
            case ast.Call():
                return self._called(node)
        raise self.no(f"uses {type(node).__name__}")

    def _same(self, values: list[Typed]) -> str:
        """The one kind of all these values. `a and b` gives one of its operands: machine code needs them to be of one
        kind.
        """
        kinds = {v.kind for v in values}
        if len(kinds) > 1:
            raise self.no(f"has a value that is {' or '.join(sorted(kinds))}")
        return kinds.pop()

    def test(self, node: ast.expr) -> str:
        """What `if` asks: only whether it is true."""
        if isinstance(node, ast.BoolOp):
            word = " and " if isinstance(node.op, ast.And) else " or "
            return f"({word.join(self.test(v) for v in node.values)})"
        value = self.typed(node)
        return f"{MINE}bool({value.text})" if value.kind != "text" else f"({MINE}len({value.text}) > 0)"

    # --- values ---

    def constant(self, value: Any) -> Typed:
        """A constant, spelled so that no name of the user can change it. -2^63 is refused as well: Python's text has it
        as the negation of 2^63, which no word holds.
        """
        kind = _KINDS.get(type(value))
        if kind is None:
            raise self.no(f"uses {value!r}, a {type(value).__name__}")
        if kind == "int" and not _ENDS[0] < value <= _ENDS[1]:
            raise self.no(f"uses {value}, beyond 64 bits")
        if kind == "float" and not math.isfinite(value):
            return Typed(f"{MINE}nan" if math.isnan(value) else f"({'-' if value < 0 else ''}{MINE}inf)", kind)
        return Typed(f"({value!r})", kind)

    def _name(self, name: str) -> Typed:
        """What a name stands for. A global is read now, and its value written into the text: a later change is not
        seen.
        """
        if name in self.names:
            return Typed(name, self.names[name])
        if name in self.user.parameters:
            raise self.no(f"uses {name!r} as a whole")
        if name in self.locals:
            raise self.no(f"may read {name!r} before it has a value")
        scope = self.user.function.__globals__
        if name not in scope:
            raise self.no(f"uses {name!r}, which is no number")
        return self.constant(scope[name])

    def _global(self, node: ast.expr) -> Any:
        """What a name that is no local, or a module's attribute, stands for."""
        scope = self.user.function.__globals__
        if isinstance(node, ast.Name) and node.id not in self.locals:
            builtins = scope["__builtins__"]
            return scope.get(node.id, (builtins if isinstance(builtins, dict) else vars(builtins)).get(node.id))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in self.locals:
            return getattr(scope.get(node.value.id), node.attr, None)
        return None

    def is_(self, node: ast.expr | None, thing: Any) -> bool:
        return node is not None and self._global(node) is thing

    def _attribute(self, node: ast.Attribute) -> Typed:
        if isinstance(node.value, ast.Name) and self._global(node.value) is math:
            found = getattr(math, node.attr, None)
            if type(found) is float:
                return self.constant(found)
        raise self.no(f"uses .{node.attr}")

    def index(self, node: ast.Subscript) -> str:
        """The place in the state that a subscript names.

        Indices are checked by Numba when the code runs (`boundscheck`): one that is out of range is Python's to raise.
        """
        if not (isinstance(node.value, ast.Name) and node.value.id == self.kept):
            raise self.no("takes an item of something that is not the state")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) != self.state[1]:
            raise self.no("takes more than one number of the state at once")
        found = [self._int(part, "an index") for part in parts]
        return found[0] if len(found) == 1 else f"({', '.join(found)})"

    def _int(self, node: ast.expr, what: str) -> str:
        if isinstance(node, ast.Slice):
            raise self.no("takes a slice of the state")
        value = self.typed(node)
        if value.kind != "int":
            raise self.no(f"has {value.kind} as {what}")
        return f"{MINE}int64({value.text})"

    def _item(self, node: ast.Subscript) -> Typed:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            at = node.slice
            of = node.value.value
            if (
                isinstance(of, ast.Name)
                and of.id == self.kept
                and isinstance(at, ast.Constant)
                and type(at.value) is int
            ):
                return Typed(f"{self.kept}.shape[{at.value}]", "int")
        return Typed(f"{self.kept}[{self.index(node)}]", self.state[0])

    # --- operators ---

    def binary(self, op: ast.operator, a: Typed, b: Typed) -> Typed:
        """An operator of two values. int with int by a checked step. If one is a float, the other is rounded to one, as
        Python does; + - * are IEEE's then. bool has no arithmetic here, though Python's has.
        """
        kinds, name = (a.kind, b.kind), _OPERATORS.get(type(op))
        if kinds == ("int", "int"):
            if isinstance(op, _BITS):
                return Typed(f"({a.text} {_sign(op)} {b.text})", "int")
            if name is not None:
                return _call(f"{name}_ints", a, b, kind="float" if name == "div" else "int")
        if kinds == ("bool", "bool") and isinstance(op, _BITS):
            return Typed(f"({a.text} {_sign(op)} {b.text})", "bool")
        if set(kinds) <= {"int", "float"}:
            a, b = (x if x.kind == "float" else Typed(f"{MINE}float64({x.text})", "float") for x in (a, b))
            if isinstance(op, _ALIKE):
                return Typed(f"({a.text} {_sign(op)} {b.text})", "float")
            if isinstance(op, ast.Div):
                return _call("div_floats", a, b, kind="float")
        raise self.no(f"takes {type(op).__name__} of {kinds[0]} and {kinds[1]}")

    def _unary(self, node: ast.UnaryOp) -> Typed:
        if isinstance(node.op, ast.Not):
            return Typed(f"(not {self.test(node.operand)})", "bool")
        a = self.typed(node.operand)
        if a.kind == "float" and isinstance(node.op, (ast.USub, ast.UAdd)):
            return Typed(f"({'-' if isinstance(node.op, ast.USub) else ''}{a.text})", "float")
        if a.kind == "int":
            if isinstance(node.op, ast.USub):
                return _call("neg_int", a, kind="int")
            return Typed(f"({'~' if isinstance(node.op, ast.Invert) else ''}{a.text})", "int")
        raise self.no(f"takes {type(node.op).__name__} of {a.kind}")

    def _compared(self, node: ast.Compare) -> Typed:
        """A comparison, or a chain of them. `a < b < c` is (a < b) and (b < c): b is computed twice, which shows nowhere,
        since expressions have no effects. `x is None` is false: rows with NULL in a column that is read never come here.
        """
        sides, found = [node.left, *node.comparators], []
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            if isinstance(op, (ast.Is, ast.IsNot)):
                if not (isinstance(right, ast.Constant) and right.value is None):
                    raise self.no("uses `is`")
                self.typed(left)  # a number: NULLs are Python's
                found.append(str(isinstance(op, ast.IsNot)))
            elif isinstance(op, (ast.In, ast.NotIn)):
                found.append(self._among(op, left, right))
            else:
                found.append(self._pair(op, self.typed(left), self.typed(right)))
        return Typed(f"({' and '.join(found)})", "bool")

    def _pair(self, op: ast.cmpop, a: Typed, b: Typed) -> str:
        """One comparison. int with float: Python compares exactly, so the integer must be one that a float holds
        (`in_float`), or Python is asked.
        """
        kinds = {a.kind, b.kind}
        if kinds == {"int", "float"}:
            a, b = (x if x.kind == "float" else _call("in_float", x, kind="float") for x in (a, b))
        elif len(kinds) > 1 or (kinds <= {"bool", "text"} and not isinstance(op, _EQUAL)):
            raise self.no(f"compares {a.kind} with {b.kind}")
        return f"({a.text} {_sign(op)} {b.text})"

    def _among(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> str:
        if not isinstance(right, (ast.Tuple, ast.List, ast.Set)) or not right.elts:
            raise self.no("uses `in`")
        item, options = self.typed(left), [self.typed(e) for e in right.elts]
        if self._same([item, *options]) == "float":
            raise self.no("uses `in` of floats")
        text = " or ".join(f"{item.text} == {option.text}" for option in options)
        return f"(not ({text}))" if isinstance(op, ast.NotIn) else f"({text})"

    # --- calls ---

    def _called(self, node: ast.Call) -> Typed:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.no("calls a function by names or with `*`")
        function = self._global(node.func)
        if (
            function is len
            and len(node.args) == 1
            and isinstance(node.args[0], ast.Name)
            and node.args[0].id == self.kept
        ):
            return Typed(f"{MINE}len({self.kept})", "int")
        given = [self.typed(a) for a in node.args]
        kinds = [g.kind for g in given]
        if function in (min, max) and len(given) > 1 and set(kinds) in ({"int"}, {"float"}):
            made = given[0]
            for other in given[1:]:
                made = _call("least" if function is min else "greatest", made, other, kind=made.kind)
            return made
        found = _CALLS.get((function, kinds[0])) if len(given) == 1 and _hashable(function) else None
        if found is None:
            raise self.no(f"calls {ast.unparse(node.func)} of {', '.join(kinds) or 'nothing'}")
        return Typed(found[0].format(given[0].text), found[1])


def _sign(op: ast.AST) -> str:
    return {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Lt: "<",
            ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}[type(op)]  # fmt: skip


def _hashable(thing: Any) -> bool:
    return getattr(type(thing), "__hash__", None) is not None


#: What may be called: the text, and the kind of what it gives.
_CALLS: dict[tuple[Any, str], tuple[str, str]] = {
    (abs, "int"): (f"{MINE}abs_int({{}})", "int"), (abs, "float"): (f"{MINE}abs({{}})", "float"),
    (int, "int"): ("({})", "int"), (int, "bool"): (f"{MINE}int64({{}})", "int"), (int, "float"): (f"{MINE}int_of({{}})", "int"),
    (float, "int"): (f"{MINE}float64({{}})", "float"), (float, "float"): ("({})", "float"),
    (bool, "int"): (f"{MINE}bool({{}})", "bool"),
    (bool, "float"): (f"{MINE}bool({{}})", "bool"), (bool, "bool"): ("({})", "bool"),
    (math.sqrt, "int"): (f"{MINE}sqrt({MINE}float64({{}}))", "float"), (math.sqrt, "float"): (f"{MINE}sqrt({{}})", "float"),
    (math.fabs, "float"): (f"{MINE}abs({{}})", "float"), (math.trunc, "float"): (f"{MINE}int_of({{}})", "int"),
    (math.floor, "float"): (f"{MINE}floor({{}})", "int"), (math.ceil, "float"): (f"{MINE}ceil({{}})", "int"),
    (math.isnan, "float"): (f"{MINE}isnan({{}})", "bool"), (math.isinf, "float"): (f"{MINE}isinf({{}})", "bool"),
    (math.isfinite, "float"): (f"{MINE}isfinite({{}})", "bool"),
}  # fmt: skip


class Writer(Expressions):
    """A function's text for the module.

    `outputs` are the output's columns with their kinds. `kinds` are those of all names; `names` those that have a value
    at this point of the text. `temporaries` counts the names that this has made.
    """

    def __init__(self, user: UserFunction, columns: dict[str, Typed], state: tuple[str, int],
                 outputs: list[tuple[str, str]]) -> None:  # fmt: skip
        super().__init__(user, columns, state)
        self.outputs = outputs
        self.kinds: dict[str, str] = dict(self.names)  # of every name, throughout the function
        self.temporaries = 0

    def function(self) -> str:
        """The text of one function for the module. A route that ends without a return names no bucket."""
        given = [*self.user.parameters, *([] if self.user.role == "route" else [f"{MINE}log"])]
        body = self._block(self.user.node.body, 1)
        if self.user.role == "route":
            body.append(f"    return {NONE}")
        head = "@njit(nogil=True, error_model='python', boundscheck=True)"
        return "\n".join(["", "", head, f"def {MINE}{self.user.role}({', '.join(given)}):", *body, ""])

    # --- statements: each gives its lines; `names` follows what has a value after it ---

    def _block(self, body: list[ast.stmt], depth: int) -> list[str]:
        lines = []
        for statement in body:
            lines += [f"{'    ' * depth}{line}" for line in self._statement(statement)]
        return lines or [f"{'    ' * depth}pass"]

    def _statement(self, node: ast.stmt) -> list[str]:
        match node:
            case ast.Assign():
                return self._assigned(node.targets, node.value)
            case ast.AnnAssign() if node.value is not None:
                return self._assigned([node.target], node.value)
            case ast.AugAssign():
                load = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
                return self._stored(node.target, self.binary(node.op, self.typed(load), self.typed(node.value)))
            case ast.If():
                return self._if(node)
            case ast.While() | ast.For() if not node.orelse:
                return self._loop(node)
            case ast.Expr(value=ast.Yield(value=value)):
                return [f"yield {self._yielded(value)}"]
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return ["pass"]
            case ast.Return():
                return self._return(node.value)
            case ast.Break() | ast.Continue():
                return ["break" if isinstance(node, ast.Break) else "continue"]
        what = node.value if isinstance(node, ast.Expr) else node
        raise self.no(f"holds {type(what).__name__}")

    def _assigned(self, targets: list[ast.expr], value: ast.expr) -> list[str]:
        """As Python does: all values first, then the targets from left to right."""
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        lines, made = [], []
        for part in parts:
            found, name = self.typed(part), f"{MINE}{self.temporaries}"
            self.temporaries += 1
            lines.append(f"{name} = {found.text}")
            made.append(Typed(name, found.kind))
        for target in targets:
            into = target.elts if isinstance(target, ast.Tuple) else [target]
            if len(into) != len(made) or isinstance(target, ast.Tuple) != isinstance(value, ast.Tuple):
                raise self.no("assigns a tuple")
            for one, given in zip(into, made, strict=True):
                lines += self._stored(one, given)
        return lines

    def _stored(self, target: ast.expr, value: Typed) -> list[str]:
        if isinstance(target, ast.Name):
            self._named(target.id, value.kind)
            return [f"{target.id} = {value.text}"]
        if not isinstance(target, ast.Subscript):
            raise self.no(f"assigns to {ast.unparse(target)}")
        at, kind = self.index(target), self.state[0]
        if value.kind not in ("int", "float") or (kind, value.kind) == ("int", "float"):
            raise self.no(f"puts {value.kind} into a state of {kind}")
        return [f"{MINE}put({self.kept}, {MINE}log, {at}, {MINE}{kind}64({value.text}))"]

    def _named(self, name: str, kind: str) -> None:
        if name in self.user.parameters:
            raise self.no(f"assigns to its parameter {name!r}")
        if name not in self.locals:
            raise self.no(f"assigns to the global {name!r}")
        if self.kinds.setdefault(name, kind) != kind:
            raise self.no(f"has {name!r} as {self.kinds[name]} here and {kind} there")
        self.names[name] = kind

    def _if(self, node: ast.If) -> list[str]:
        """Both ways of an `if`. After it only those names have a value that both ways give one. A way that ends in a
        return, break or continue does not come out.
        """
        lines, before = [f"if {self.test(node.test)}:"], dict(self.names)
        lines += self._block(node.body, 1)
        after, self.names = self.names, before
        if node.orelse:
            lines += ["else:", *self._block(node.orelse, 1)]
        ways = [n for n, body in ((after, node.body), (self.names, node.orelse)) if not (body and _leaves(body[-1]))]
        self.names = {name: kind for name, kind in (ways or [before])[0].items() if all(name in way for way in ways)}
        return lines

    def _loop(self, node: ast.While | ast.For) -> list[str]:
        """A loop, and its body. A body may run no time at all: what it assigns has no value afterwards."""
        before = dict(self.names)
        if isinstance(node, ast.While):
            head = f"while {self.test(node.test)}:"
        else:
            call = node.iter
            if (
                not (isinstance(call, ast.Call) and self.is_(call.func, range) and 1 <= len(call.args) <= 3)
                or call.keywords
            ):
                raise self.no("loops over something other than range")
            given = [f"{MINE}in_range({self._int(a, 'a bound')})" for a in call.args]
            if len(given) == 3:
                given[2] = given[2].replace("in_range", "in_step", 1)
            if not isinstance(node.target, ast.Name):
                raise self.no("loops with more than one name")
            self._named(node.target.id, "int")
            head = f"for {node.target.id} in {MINE}range({', '.join(given)}):"
        lines = [head, *self._block(node.body, 1)]
        self.names = before
        return lines

    def _return(self, value: ast.expr | None) -> list[str]:
        if self.user.role == "route":
            return [f"return {self._bucket(value)}"]
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            raise self.no("returns a value")
        return ["return"]

    def _bucket(self, value: ast.expr | None) -> str:
        """What a route returns, as a code of `buckets`."""
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return str(NONE)
        if self.is_(value, ALL):
            return str(EVERY)
        if isinstance(value, ast.IfExp):
            return f"({self._bucket(value.body)} if {self.test(value.test)} else {self._bucket(value.orelse)})"
        if isinstance(value, (ast.Tuple, ast.List, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            raise NotCompiled("route names several buckets")
        found = self.typed(value)
        if found.kind != "int":
            raise self.no(f"returns {found.kind}")
        return f"{MINE}bucket_number({found.text})"

    def _yielded(self, value: ast.expr | None) -> str:
        """Every item of the generator has one type: a flag, a time, and the columns."""
        zeros = [_ZEROS[kind] for _, kind in self.outputs]
        if isinstance(value, ast.Call) and self.is_(value.func, timer) and len(value.args) == 1 and not value.keywords:
            return f"({', '.join(['1', self._int(value.args[0], 'a time'), *zeros])})"
        names = [name for name, _ in self.outputs]
        if isinstance(value, ast.Dict):
            given = {k.value: v for k, v in zip(value.keys, value.values, strict=True) if isinstance(k, ast.Constant)}
            if set(given) != set(names) or len(value.keys) != len(names):
                raise self.no("yields a dict that does not name every column")
            items = [given[name] for name in names]
        elif isinstance(value, ast.Tuple) and len(value.elts) == len(names):
            items = value.elts
        else:
            raise self.no("yields something that is no row spelled out")
        shown = [self._output(name, kind, item) for (name, kind), item in zip(self.outputs, items, strict=True)]
        return f"({', '.join(['0', f'{MINE}int64(0)', *shown])})"

    def _output(self, name: str, kind: str, item: ast.expr) -> str:
        found = self.typed(item)
        if (kind, found.kind) == ("float", "int"):
            return f"{MINE}in_float({found.text})"
        if kind != found.kind:
            raise self.no(f"yields {found.kind} where {name!r} is {kind}")
        return f"{MINE}{kind}64({found.text})" if kind != "bool" else f"{MINE}bool({found.text})"


def _leaves(last: ast.stmt) -> bool:
    """Whether nothing after it runs."""
    return isinstance(last, (ast.Return, ast.Break, ast.Continue))
