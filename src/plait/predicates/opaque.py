"""A Python function that does not trace, written into the text of a module and compiled by Numba as it is.

Its bytecode travels inside the text (marshal, base64), with the constants, modules and functions it uses by name: the
module needs neither the user's file nor a pickle, only the same version of Python. What the function uses by name is
read when the query is built; a later change of such a global is not seen.

It is given int64 (uint64 stays), float64, bool, and text that compares by equality. It runs on exactly the pairs of the
window whose columns are not NULL, unless its bytecode shows that it can't fail and has no loop: then calling it on
other numbers changes nothing.
"""

from __future__ import annotations

import base64
import builtins
import dis
import hashlib
import io
import keyword
import marshal
import math
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from plait.errors import QueryError
from plait.predicates.leaves import Shape

WORKS = (
    "Use arithmetic, comparisons (of text: == and !=), `if`, loops, `math`, NumPy scalar functions and functions made "
    "of these, or write the condition as an expression or SQL text"
)
_PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None))


def function_of(shape: Shape) -> FunctionType:
    function = shape.predicate.source
    assert isinstance(function, FunctionType)  # columns_read has refused everything else
    return function


# --- the text -----------------------------------------------------------------------------------------------


def row_fields(shape: Shape, side: int) -> list[str]:
    names = [leaf.expr.name for leaf in shape.leaves[side]]  # type: ignore[union-attr]  # all are columns
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise QueryError(
                f"The condition reads column {name!r}, which can't be a field of a compiled row",
                why="a function that does not trace reads columns as `row.name`, and names can't start with _",
                do="Rename the column, or write the condition as an expression or SQL text",
            )
    return names


def call_text(shape: Shape, names: dict[tuple[int, int], str]) -> str:
    """The call for one pair, with columns widened to Python's own numbers."""
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
                values.append(f"{widened(leaf.kind)}({name})")
        rows.append(f"{row}({', '.join(values)})")
    return f"holds({rows[0]}, {rows[1]})"


def widened(kind: str) -> str:
    if kind == "uint64":
        return "uint64"
    return "float64" if "float" in kind else "int64"


def function_text(shape: Shape, *, plain: bool) -> str:
    """Definitions of the rows, of everything the function uses, and of `holds(left_row, right_row)`."""
    writer = _Embedder(plain)
    name = writer.function(function_of(shape))
    fields = [row_fields(shape, side) for side in (0, 1)]
    return f"""
from types import FunctionType
import base64
import io
import marshal

{_PLAIN_ROWS if plain else "from plait.predicates.rows import as_text, truth"}
LeftRow = {"by_name" if plain else ""}(namedtuple("LeftRow", {fields[0]!r}))
RightRow = {"by_name" if plain else ""}(namedtuple("RightRow", {fields[1]!r}))


def _function(code, names, closure):
    cells = tuple((lambda value: (lambda: value).__closure__[0])(value) for value in closure)
    code = marshal.loads(base64.b85decode(code))
    return FunctionType(code, dict(names, __builtins__=__builtins__), code.co_name, None, cells)


{"".join(writer.lines)}

@compiled
def holds(left, right):
    return truth({name}(left, right))
"""


_PLAIN_ROWS = """
from plait.predicates.columns import constant_code


truth = bool


class as_text:
    def __init__(self, code):
        self.code = code

    def __eq__(self, other):
        return self.code == (constant_code(other) if isinstance(other, str) else other.code)


def by_name(row):
    return type(row.__name__, (row,), {"__getitem__": lambda self, name: getattr(self, name)})

"""


class _Embedder:
    """Writes a function and what it uses as assignments, each thing once."""

    def __init__(self, plain: bool) -> None:
        self.plain = plain
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._kept: list[object] = []  # ids stay taken as long as the objects live
        self._open: set[int] = set()  # functions being written

    def function(self, function: FunctionType) -> str:
        if id(function) in self._open:
            raise QueryError(
                f"The condition uses {function.__name__!r} ({place(function.__code__)}), which calls itself",
                why="a compiled condition can't recurse",
                do=WORKS,
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
        code = base64.b85encode(marshal.dumps(function.__code__)).decode()
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
        self.lines.append(f"{name} = {made}\n" if self.plain else f"{name} = njit({options})({made})\n")
        return name

    def value(self, value: Any, function: FunctionType, name: str) -> str:
        """The text of something a function uses by name."""
        if isinstance(value, FunctionType):
            return self.function(value)
        inner = getattr(value, "py_func", None)  # a function already under Numba
        if isinstance(inner, FunctionType):
            return self.function(inner)
        if isinstance(value, ModuleType):
            return f"__import__('importlib').import_module({value.__name__!r})"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float({str(value)!r})"
        if isinstance(value, _PLAIN_VALUES):
            return repr(value)
        if isinstance(value, np.generic):
            return f"np.{value.dtype.name}({value.item()!r})"
        if isinstance(value, tuple) and type(value) is tuple:
            return "(" + "".join(f"{self.value(v, function, name)}, " for v in value) + ")"
        if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= 1 << 20:
            buffer = io.BytesIO()
            np.save(buffer, value)
            return f"np.load(io.BytesIO(base64.b85decode({base64.b85encode(buffer.getvalue()).decode()!r})))"
        if isinstance(value, type) or callable(value):
            module, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
            if module in ("builtins", "math", "numpy", "operator") and attribute.isidentifier():
                return f"__import__('importlib').import_module({module!r}).{attribute}"
        raise QueryError(
            f"The condition {function.__name__!r} ({place(function.__code__)}) uses {name!r}, a {type(value).__name__}",
            why="a compiled condition can hold numbers, text, tuples of these, small arrays, modules and functions",
            do=WORKS,
        )


def place(code: CodeType, line: int | None = None) -> str:
    return f"{code.co_filename}, line {line or code.co_firstlineno}"


def codes_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from codes_of(const)


def globals_used(function: FunctionType) -> dict[str, Any]:
    """The names a function loads from its module, with their present values. Builtins are left to the compiler."""
    used: dict[str, Any] = {}
    for code in codes_of(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
                continue
            name = str(step.argval)
            if name in function.__globals__:
                used[name] = function.__globals__[name]
            elif not hasattr(builtins, name):
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
    """Whether the bytecode shows that no numbers make the function raise or loop; if in doubt, no."""
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
    """A name for the function's meaning and line numbers; marshal's own bytes vary with reference counts."""
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


def reached(function: FunctionType) -> Iterator[tuple[FunctionType, list[Any]]]:
    """A function and all functions it reaches by name, each with the values it uses."""
    found: set[int] = set()
    waiting = [function]
    while waiting:
        function = waiting.pop()
        if id(function) in found:
            continue
        found.add(id(function))
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        values = [*globals_used(function).values(), *cells, *(function.__defaults__ or ())]
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


def digest_all(shape: Shape) -> str:
    """The digests of a function and of all functions it reaches by name."""
    return " ".join(digest(function) for function, _ in reached(function_of(shape)))
