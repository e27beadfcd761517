"""A Python function that does not trace, written into the text of a module and compiled by Numba as it is.

Only what `proof` has proven to be the same in machine code as in Python gets here (`why_python`); the rest is called as it
is (`judge`). Its bytecode travels inside the text (marshal, base 85), with the constants, modules and functions it uses by
name: the module needs neither the user's file nor a pickle, only the same version of Python. What a compiled function uses
by name is read when the query is built; a later change of such a global is not seen.

It is given int64, float64, bool, and text that compares by equality. It runs on exactly the pairs of the window whose
columns are not NULL, unless its bytecode shows that it can't fail and has no loop: then calling it on other numbers
changes nothing.
"""

from __future__ import annotations

import base64
import builtins
import dis
import hashlib
import keyword
import marshal
import math
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from plait.core.condition import proof
from plait.core.condition.leaves import Leaf, Shape
from plait.errors import QueryError
from plait.query.condition.types import is_float, is_int

_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None))


def function_of(shape: Shape) -> FunctionType:
    """The user's function. It has bytecode: what has none was refused when the query was built."""
    function = shape.predicate.source
    assert hasattr(function, "__code__")  # columns_read has refused everything else; it may be a bound method
    return function  # type: ignore[return-value]


def why_python(shape: Shape, intervals: tuple[tuple[Any, ...], tuple[Any, ...]]) -> str:
    """Why Python has to judge an opaque condition whose integer columns lie in these intervals; "" if nothing says so.

    `intervals` are by side and leaf: where the data's integers lie so far, None for what is no integer. The same function
    may be proven for small values and not for large ones, so this is asked again when an interval grows.
    """
    function = shape.predicate.source
    if not isinstance(function, FunctionType):
        return f"the condition is a {type(function).__name__}"
    rows = []
    try:
        for side in (0, 1):
            pairs = zip(shape.leaves[side], intervals[side], strict=True)
            fields = {_field(leaf): _known(leaf, interval) for leaf, interval in pairs}
            rows.append(proof.Known("row", fields=fields))
        proof.prove(function, rows)
        function_text(shape, named=True)
    except QueryError as why:
        return f"{function.__name__!r} can't be compiled: {str(why).splitlines()[0]}"
    except proof.Unproven as why:
        return f"{function.__name__!r} can't be proven to be the same in machine code: {why}"
    return ""


def _field(leaf: Leaf) -> str:
    """The column of a leaf as a field of a compiled row, which is a named tuple: those names can't begin with `_`, be
    keywords, or hold blanks.
    """
    name: str = leaf.expr.name  # type: ignore[union-attr]  # an opaque function's leaves are columns
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise proof.Unproven(f"it reads column {name!r}, whose name a compiled row can't have")
    return name


def _known(leaf: Leaf, interval: Any) -> proof.Known:
    """What the proof may assume of a column's values."""
    if is_int(leaf.kind):
        return proof.whole(interval or (0, 0))
    if is_float(leaf.kind):
        return proof.REAL
    if leaf.kind in ("bool", "text"):
        return proof.TRUTH if leaf.kind == "bool" else proof.TEXT
    raise proof.Unproven(f"it reads column {leaf.expr.name!r}, of {leaf.kind}")  # type: ignore[union-attr]


# --- the text -----------------------------------------------------------------------------------------------


def call_text(shape: Shape, names: dict[tuple[int, int], str]) -> str:
    """The call for one pair: integers in 64 bits, which the proof says they fit, and floats in double precision."""
    rows = []
    for side, row in enumerate(("LeftRow", "RightRow")):
        values = []
        for k, leaf in enumerate(shape.leaves[side]):
            name = names[side, k]
            if leaf.kind == "bool":
                values.append(f"{name} == uint8(1)")
            elif leaf.kind == "text":
                values.append(f"as_text({name})")
            else:
                values.append(f"{'float64' if is_float(leaf.kind) else 'int64'}({name})")
        rows.append(f"{row}({', '.join(values)})")
    return f"holds({rows[0]}, {rows[1]})"


def function_text(shape: Shape, *, named: bool) -> str:
    """Definitions of the rows, of everything the function uses, and of `holds(left_row, right_row)`.

    `named`: with a digest in the place of each function's bytecode, since marshal spells equal functions differently. That
    text is the module's identity: it holds every constant that the function uses, as the module does.
    """
    writer = _Embedder(named)
    name = writer.function(function_of(shape))
    fields = [[_field(leaf) for leaf in shape.leaves[side]] for side in (0, 1)]
    return f"""
from types import FunctionType
import base64
import marshal

from plait.core.condition.rows import as_text, truth

LeftRow = namedtuple("LeftRow", {fields[0]!r})
RightRow = namedtuple("RightRow", {fields[1]!r})


def _function(code, names, closure):
    cells = tuple((lambda value: (lambda: value).__closure__[0])(value) for value in closure)
    code = marshal.loads(base64.b85decode(code))
    return FunctionType(code, dict(names, __builtins__=__builtins__), code.co_name, None, cells)


{"".join(writer.lines)}

@compiled
def holds(left, right):
    return truth({name}(left, right))
"""


class _Embedder:
    """Writes a function and what it uses as assignments, each thing once.

    Closures, defaults and globals are values in the text, so the module is closed: nothing of the user's process is
    needed to load it. `_names` is by id of a function, so a function that two others use is written once.
    """

    def __init__(self, named: bool) -> None:
        self.named = named
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # ids stay taken as long as the objects live
        self._open: set[int] = set()  # functions being written

    def function(self, function: FunctionType) -> str:
        if id(function) in self._open:
            raise QueryError(
                f"The condition uses {function.__name__!r} ({place(function.__code__)}), which calls itself",
                why="a compiled condition can't recurse",
            )
        if id(function) in self._names:
            return self._names[id(function)]
        self._open.add(id(function))
        name = f"function_{len(self._names)}"
        self._names[id(function)] = name
        self._kept.append(function)
        used = {key: self.value(value, function, key) for key, value in sorted(globals_used(function).items())}
        cells = [
            self.value(cell.cell_contents, function, free)
            for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        ]
        spelled = base64.b85encode(marshal.dumps(function.__code__)).decode()
        code = digest(function) if self.named else spelled
        names = ", ".join(f"{key!r}: {value}" for key, value in used.items())
        made = f"_function({code!r}, {{{names}}}, [{', '.join(cells)}])"
        if function.__defaults__:
            defaults = ", ".join(self.value(v, function, "a default") for v in function.__defaults__)
            self.lines.append(f"{name}_py = {made}\n{name}_py.__defaults__ = ({defaults},)\n")
            made = f"{name}_py"
        self._open.discard(id(function))
        # Spelled out, since a kernel's own options would be inherited: a division by zero raises, as it would in the
        # function itself, and an index out of range does not read another's memory.
        options = 'nogil=True, error_model="python", boundscheck=True'
        self.lines.append(f"{name} = njit({options})({made})\n")
        return name

    def value(self, value: Any, function: FunctionType, name: str) -> str:
        """The text of something a function uses by name."""
        if isinstance(value, FunctionType):
            return self.function(value)
        inner = getattr(value, "py_func", None)  # a function already under Numba
        if isinstance(inner, FunctionType):
            return self.function(inner)
        if value is math or value is math.sqrt:
            machine = "__import__('importlib').import_module('plait.core.condition.machine_math')"
            return machine if value is math else f"{machine}.sqrt"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})"
        if isinstance(value, _PLAIN_VALUES):
            return repr(value)
        if isinstance(value, tuple) and type(value) is tuple:
            return "(" + "".join(f"{self.value(v, function, name)}, " for v in value) + ")"
        if isinstance(value, type) or callable(value):
            module, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
            if module in ("builtins", "math") and attribute.isidentifier():
                return f"__import__('importlib').import_module({module!r}).{attribute}"
        raise QueryError(
            f"The condition {function.__name__!r} ({place(function.__code__)}) uses {name!r}, a {type(value).__name__}",
            why="a compiled condition can hold numbers, text, tuples of these, `math` and functions",
        )


def place(code: CodeType, line: int | None = None) -> str:
    return f"{code.co_filename}, line {line or code.co_firstlineno}"


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and those of the functions and comprehensions inside it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes_of(const)


def globals_used(function: FunctionType, *, strict: bool = True) -> dict[str, Any]:
    """The names a function loads from its module, with their present values. Builtins are left to the compiler.

    `strict` refuses a name that has no value; Python itself only does when it gets there.
    """
    used: dict[str, Any] = {}
    for code in codes_of(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue
            name = str(step.argval)
            if name in function.__globals__:
                used[name] = function.__globals__[name]
            elif strict and not hasattr(builtins, name):
                line = step.positions.lineno if step.positions else None
                raise QueryError(f"The condition uses a name that does not exist: {name!r} ({place(code, line)})")
    return used


# --- what it can do -----------------------------------------------------------------------------------------

_HARMLESS_CALLS: tuple[Callable[..., Any], ...] = (abs, min, max, bool, float)
_HARMLESS = (
    "LOAD_FAST", "STORE_FAST", "LOAD_CONST", "LOAD_ATTR", "LOAD_GLOBAL", "LOAD_DEREF", "COMPARE_OP", "UNARY_", "POP_",
    "RETURN_", "RESUME", "CACHE", "NOP", "PUSH_NULL", "PRECALL", "CALL", "COPY", "SWAP", "JUMP_FORWARD", "JUMP_IF",
    "TO_BOOL", "NOT_TAKEN", "EXTENDED_ARG", "COPY_FREE_VARS", "IS_OP", "LOAD_SMALL_INT", "STORE_FAST_",
)  # fmt: skip


def cannot_fail(shape: Shape) -> bool:
    """Whether the bytecode shows that no numbers make the function raise or loop; if in doubt, no.

    If so, a scan may call it on pairs outside of the probe's range, or of dead rows, and throw the answers away: that is
    what makes the loop free of branches. If not, each pair is looked at by itself (`source._careful_scan`).
    """
    function = function_of(shape)
    code = function.__code__
    if any(isinstance(const, CodeType) for const in code.co_consts):
        return False
    loaded: list[object] = []
    before = step = None
    for following in dis.get_instructions(code):
        before, step = step, following
        if step.opname == "BINARY_OP":
            if step.argrepr == "[]" and before is not None and isinstance(before.argval, str):
                continue  # row["column"], as Python 3.14 spells it
            if step.argrepr.rstrip("=") not in ("+", "-", "*", "&", "|", "^"):
                return False
        elif step.opname == "CALL_FUNCTION_EX" or "BACKWARD" in step.opname:
            return False
        elif step.opname == "BINARY_SUBSCR" and before is not None and isinstance(before.argval, str):
            pass  # row["column"]; any other index was refused when the columns were looked for
        elif not step.opname.startswith(_HARMLESS):
            return False
        elif step.opname == "LOAD_GLOBAL":
            loaded.append(function.__globals__.get(step.argval, getattr(builtins, step.argval, None)))
    return all(isinstance(v, _PLAIN_VALUES) or any(v is f for f in _HARMLESS_CALLS) for v in loaded)


# --- its name ---------------------------------------------------------------------------------------------------


def digest(function: FunctionType) -> str:
    """A name for the function's meaning and line numbers; marshal's own bytes vary with reference counts.

    Line numbers and the file's name are in it, since errors show them. Constants are told by type and value: 1 and 1.0
    and True differ.
    """
    out = hashlib.sha256()

    def add(code: CodeType) -> None:
        table = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
        out.update(repr((table, code.co_firstlineno, code.co_linetable, code.co_filename)).encode())
        for const in code.co_consts:
            if isinstance(const, CodeType):
                add(const)
            else:
                out.update(repr((type(const).__name__, const)).encode())

    add(function.__code__)
    return out.hexdigest()


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # asking is all there is
    except ValueError:
        return False
    return True


def reached(function: FunctionType) -> Iterator[tuple[FunctionType, list[Any]]]:
    """A function and all functions it reaches by name, each with the values it uses.

    Cells that have no value yet are left out. Each function comes once, also where functions call each other in a ring.
    """
    found: set[int] = set()
    waiting = [function]
    while waiting:
        function = waiting.pop()
        if id(function) in found:
            continue
        found.add(id(function))
        cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        values = [*globals_used(function, strict=False).values(), *cells, *(function.__defaults__ or ())]
        yield function, values
        inner = [getattr(value, "py_func", value) for value in values]
        waiting += [value for value in inner if isinstance(value, FunctionType)]


def constants(shape: Shape) -> tuple[str, ...]:
    """All text a function may compare a column with."""
    found: dict[str, None] = {}

    def note(value: Any) -> None:
        if isinstance(value, str):
            found[value] = None
        elif isinstance(value, (tuple, frozenset)):
            for inner in value:
                note(inner)

    for function, values in reached(function_of(shape)):
        for code in codes_of(function.__code__):
            note(code.co_consts)
        note(tuple(values))
    return tuple(sorted(found))
