"""A function's code as text, and the names in it, without where it stands: no line numbers, no path, no comments.

The source is what stays the same from one Python to the next, so it is taken where there is one; a function typed into a
prompt, or made by `exec`, has only its instructions. Of several lambdas in one line Python's `inspect` gives the whole line for
each: the instructions know the columns they come from, and tell which one it is.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import textwrap
import types
from dataclasses import dataclass
from typing import Any

#: Instructions that take a name from outside of all functions.
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


@dataclass(frozen=True)
class Names:
    """The names in a function's code.

    Attributes:
        globals: Looked up outside of all functions.
        imports: As written, with a dot for each package to go up.
        all: Those two, and attributes: what the code may take from a module.
    """

    globals: frozenset[str]
    imports: frozenset[str]  # modules imported inside, as written, with dots in front where they are relative
    all: frozenset[str]  # attributes too


def text(code: types.CodeType) -> str:
    """Arguments, and the source without comments and layout, or the instructions where there is no source."""
    arguments = f"({', '.join(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])})"
    return arguments + (_source(code) or instructions(code))


def _source(code: types.CodeType) -> str | None:
    """The source, parsed and written anew, so that blanks, line breaks and comments don't count; None where there is none.

    `inspect` may find lines that are no whole statement (a lambda in the midst of a call, an edited file). Then there is
    no source.
    """
    try:
        found = _lambda(code) if code.co_name == "<lambda>" else textwrap.dedent(inspect.getsource(code))
        return None if found is None else ast.unparse(ast.parse(found))
    except (OSError, TypeError, SyntaxError, ValueError, IndentationError):
        return None


def _lambda(code: types.CodeType) -> str | None:
    """What a lambda returns, cut out of its file by the places of its instructions."""
    places = [p for p in code.co_positions() if None not in p and (p[0], p[2]) != (p[1], p[3])]
    lines = linecache.getlines(code.co_filename)
    if not places or not lines:
        return None
    first_line, first = min((p[0], p[2]) for p in places)
    last_line, last = max((p[1], p[3]) for p in places)
    cut = [line.encode() for line in lines[first_line - 1 : last_line]]  # type: ignore[operator]
    cut[-1] = cut[-1][:last]
    cut[0] = cut[0][first:]
    return f"({b''.join(cut).decode()})"


def instructions(code: types.CodeType) -> str:
    """Code without a source: what it does, with the names and constants that it does it with."""
    constants = [instructions(c) if inspect.iscode(c) else constant(c) for c in code.co_consts]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, constants))


def constant(value: Any) -> str:
    """A constant of the code, as text. Python keeps `x in {...}` as a frozenset, which has another order in each process."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(constant, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(constant, value))})"
    return repr(value)


def names(code: types.CodeType) -> Names:
    """The names in a function and in all that is defined inside it."""
    taken, imports, every = set(), set(), set(code.co_names)
    level = 0
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBAL:
            taken.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            imports.add("." * level + instruction.argval)
        if instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(instruction.argval) is int:
            level = instruction.argval  # an import is told how many packages to go up just before
    for inner in code.co_consts:
        if inspect.iscode(inner):
            found = names(inner)
            taken |= found.globals
            imports |= found.imports
            every |= found.all
    return Names(frozenset(taken), frozenset(imports), frozenset(every))
