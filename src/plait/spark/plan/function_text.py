"""A user's function as text in a query's fingerprint.

For the plainest functions this is the text by which checkpoints have known them from the first version on: the source, and the
values that it takes from outside. Wherever that text leaves something open (see `_Text.whole`), the digest of all that the
function reaches (`pin`) follows it. So the plain ones keep their fingerprints, and nothing is left unpinned.

Where it runs: on the driver, for each call of `on_spark`. A change of what this gives for a plain function makes every
checkpoint with such a function another query's. So what it gives for those is left as it is, odd as some of it looks.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from plait.spark.plan import code_text, pin

#: Modules whose names mean one thing each: what a function calls by such a name is told by its own text.
_TELLING = frozenset({
    "builtins", "math", "_operator", "operator", "datetime", "decimal", "fractions", "collections", "itertools", "functools",
    "json", "re", "statistics",
})  # fmt: skip


def meaning(functions: Iterable[Any]) -> str:
    """What functions mean, None among them for those that are not there.

    The texts of all functions stand one after the other, in the order given. One digest follows for all of them, if one
    of them needs it.
    """
    given, text = list(functions), _Text()
    try:
        told = "".join(text.function(function) for function in given)
    except RecursionError:  # a value that is nested too deep: `pin` says so
        told, text.whole = "", False
    return told if text.whole else f"{told}\npinned {pin.pinned(given).digest}"


class _Text:
    """One description.

    Attributes:
        whole: Nothing that a function reaches was left out so far. False has `meaning` add the digest of `pin`.
    """

    def __init__(self) -> None:
        self.whole = True  # nothing that a function reaches was left out

    def function(self, function: Any, seen: tuple[Any, ...] = ()) -> str:
        """A function's text, and the values it takes from outside of it."""
        code = getattr(function, "__code__", None)
        if code is None or function in seen:
            self.whole &= function is None or function in seen or _telling(function, None)
            return getattr(function, "__qualname__", type(function).__qualname__)
        try:
            text = inspect.getsource(function)
        except (OSError, TypeError):
            text = repr((code.co_code.hex(), [code_text.constant(c) for c in code.co_consts if not inspect.iscode(c)]))
            self.whole = False
        outside = inspect.getclosurevars(function)
        taken: dict[str, Any] = dict(outside.globals) | dict(outside.nonlocals)
        self._look(function, text, frozenset(outside.globals))
        taken |= {f"default {n}": v for n, v in enumerate(function.__defaults__ or ())} | (
            function.__kwdefaults__ or {}
        )
        return text + "".join(
            f"\n{name} = {self.value(name, taken[name], (*seen, function))}" for name in sorted(taken)
        )

    def _look(self, function: Any, text: str, seen_globals: frozenset[str]) -> None:
        """Whether the source is this function's and no other's, and shows all the names that it takes."""
        if not isinstance(function, types.FunctionType) or vars(function):
            self.whole = False  # a method, bound to something; or attributes, among them what a decorator has wrapped
            return
        if function.__name__ == "<lambda>" and text.count("lambda") > 1:
            self.whole = False
        named = code_text.names(function.__code__)
        inner = {name for name in named.globals if name in function.__globals__} - seen_globals
        self.whole &= not inner and not any(not pin.installed(name.lstrip(".")) for name in named.imports)

    def value(self, name: str, value: Any, seen: tuple[Any, ...]) -> str:
        """Text that is the same in every process: no addresses, and sets in one order."""
        kind = type(value)
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self.whole &= kind in (type(None), bool, int, float, complex, str, bytes)
            return repr(value)
        if isinstance(value, (list, tuple, set, frozenset, Mapping)):
            self.whole &= kind in (list, tuple, set, frozenset, dict)
            return self._container(name, value, seen)
        if inspect.ismodule(value):
            self.whole &= pin.installed(value.__name__)
            return value.__name__
        if isinstance(value, (np.ndarray, np.generic)):
            self.whole &= not value.dtype.hasobject
            data = repr(value.shape).encode() if value.dtype.hasobject else value.tobytes()
            return f"{value.dtype} {value.shape} {hashlib.sha256(data).hexdigest()}"
        inner = getattr(value, "py_func", value)  # what Numba has compiled
        if inspect.isfunction(inner):
            return self.function(inner, seen)
        self.whole &= _telling(value, name)
        return kind.__qualname__

    def _container(self, name: str, value: Any, seen: tuple[Any, ...]) -> str:
        """Text of a container. One that holds itself is not whole: `pin` can tell it."""
        if any(value is outer for outer in seen):
            self.whole = False
            return "itself"
        seen = (*seen, value)
        if isinstance(value, Mapping):
            told = (f"{self.value(name, k, seen)}: {self.value(name, v, seen)}" for k, v in value.items())
            return f"{{{', '.join(told)}}}"
        parts = [self.value(name, v, seen) for v in value]
        return f"{{{', '.join(sorted(parts))}}}" if isinstance(value, (set, frozenset)) else f"[{', '.join(parts)}]"


def _telling(value: Any, name: str | None) -> bool:
    """Whether the name under which a function knows something of Python's own says what it is."""
    own, module = getattr(value, "__name__", None), getattr(value, "__module__", None)
    return callable(value) and module in _TELLING and own is not None and name in (None, own) and not _bound(value)


def _bound(value: Any) -> bool:
    """Whether something callable belongs to an object, as `"a".join` does, of which its name says nothing."""
    return not isinstance(getattr(value, "__self__", None), (types.ModuleType, type(None)))
