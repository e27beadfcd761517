"""What a compiled function is made of, as one hash: its own code, and everything that its code reaches.

The rule: *machine code is kept under the stamp of all it was made from, and of nothing else.* Numba's own cache looks at the
time of the file a function stands in, and not at the functions and constants it takes from other files: after an edit there it
would go on running old code, and after an edit of a comment here it compiles again. So a stamp goes the way that Numba goes:
from a function's instructions to the globals they name, and on from there. Docstrings, comments and line numbers are left out.
"""

from __future__ import annotations

import hashlib
import sys
import types
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: By function and options of the compiler; the function stands with it, so that its id stays its own.
_known: dict[tuple[int, str], tuple[Any, str]] = {}


def stamp_of(function: Any) -> str:
    """A hash of a function of Numba's, or of Python's, and of what it reaches.

    Hexadecimal, 64 characters. Functions of Numba, NumPy and Python's library are told by name alone.
    """
    text = f"{sys.version_info[:2]} {_Reach().told(function)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Reach:
    """One way through the functions. A function that is met inside itself is told by how many lie between.

    `open` are the functions that are being told, by id, the outermost first. A function inside a loop of calls has no
    stamp of its own: what was told of it depends on where the walk came in, so it is not kept in `_known`.
    """

    def __init__(self) -> None:
        self.open: list[int] = []
        self.lowest = 0  # how far up the last loop reached: what is inside one is no function's own stamp

    def told(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, (tuple, list, frozenset)):
            parts = [self.told(each) for each in value]
            return f"({', '.join(sorted(parts) if isinstance(value, frozenset) else parts)})"
        if isinstance(value, (np.ndarray, np.generic)):
            return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
        function = _function(value)
        if function is None:
            return _named(value)
        options = repr(sorted(getattr(value, "targetoptions", {}).items()))
        if (id(function), options) in _known:
            return _known[id(function), options][1]
        if id(function) in self.open:
            at = self.open.index(id(function))
            self.lowest = min(self.lowest, at)
            return f"^{len(self.open) - at} {options}"
        return self._told_function(function, options)

    def _told_function(self, function: types.FunctionType, options: str) -> str:
        depth, outer = len(self.open), self.lowest
        self.open.append(id(function))
        self.lowest = depth
        parts = [_instructions(function.__code__, function.__doc__), self.told(function.__defaults__), options]
        parts += [self.told(cell.cell_contents) for cell in function.__closure__ or ()]
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                parts.append(f"{name}: {self._global(function.__globals__[name], function)}")
        self.open.pop()
        text = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        if self.lowest >= depth:
            _known[id(function), options] = (function, text)
        self.lowest = min(outer, self.lowest)
        return text

    def _global(self, value: Any, function: types.FunctionType) -> str:
        """A module of plait or of the user's is told by those of its attributes that the function may name."""
        if not isinstance(value, types.ModuleType):
            return self.told(value)
        if _installed(value.__name__):
            return value.__name__
        names = sorted(name for name in _names(function.__code__) if name in vars(value))
        return f"{{{', '.join(f'{name}: {self.told(vars(value)[name])}' for name in names)}}}"


def _function(value: Any) -> types.FunctionType | None:
    """The Python text behind something that Numba compiles, if it is plait's or the user's to change."""
    for way in ("py_func", "_defn", "_pyfunc"):  # a function of Numba's, an intrinsic, a callback
        value = getattr(value, way, value)
    return value if isinstance(value, types.FunctionType) and not _installed(value.__module__) else None


def _installed(module: str | None) -> bool:
    top = (module or "").split(".")[0]
    return top in ("numba", "llvmlite", "numpy") or top in sys.stdlib_module_names


def _named(value: Any) -> str:
    """Something that does not change: a type of Numba's or NumPy's, a function of a library, a class."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"{getattr(value, '__module__', '')}.{name}" if isinstance(name, str) else f"{type(value).__name__} {value}"


def _instructions(code: types.CodeType, doc: str | None) -> str:
    """co_consts[0] is the docstring where there is one, and is left out. Functions inside are told the same way."""
    constants = [
        _instructions(each, _doc(each)) if isinstance(each, types.CodeType) else repr(each)
        for at, each in enumerate(code.co_consts)
        if at > 0 or doc is None or each != doc
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount, code.co_flags)
    return repr((code.co_code.hex(), names, constants))


def _doc(code: types.CodeType) -> str | None:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) and not code.co_name.startswith("<") else None


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= _names(each)
    return found
