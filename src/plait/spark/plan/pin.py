"""What a user's function means, as text: the same in every process for the same function, another for any other.

The rule: **a function is pinned with everything that it reaches.** Its code; the values it closes over, its defaults and its own
attributes; the globals that its code names, and those of functions inside it; of an object the class and the attributes, of
a partial or a bound method what it is bound to, of a module of the user's the names that the code takes from it; and so on
from there. What cannot be told apart by value (a module that is handed on as a whole, an object that does not say what is in it)
is named in `Pinned.loose`, and a checkpoint is then not resumed without a word from the user.

No addresses, no line numbers, no paths, no order of sets: a function that is moved to another place stays what it is. What is
installed (Python's own modules, packages, plait) goes by name: another version of it is not another query.

Where it runs: on the driver, once for each call of `on_spark`. What comes out is a digest in the checkpoint's card and in
each cell's state (`resume`). Why not pickle the function and compare bytes: a pickle names what it finds in a module, and
says nothing of what is there. Held by tests/spark/test_pinning.py.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plait.spark.plan import code_text

#: Values whose `repr` is all there is to them.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range)

#: Of a class, what Python and its helpers keep there for themselves.
_MACHINERY = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__qualname__", "__firstlineno__",
    "__static_attributes__", "__slots__", "__match_args__", "__parameters__", "__orig_bases__", "__abstractmethods__", "__hash__",
    "__dataclass_fields__", "__dataclass_params__", "__annotate_func__", "__annotations_cache__", "_abc_impl",
})  # fmt: skip

#: Words in a function with which it can ask a module for any name.
_DYNAMIC = frozenset({"getattr", "vars", "__dict__", "globals", "eval", "exec", "import_module", "__import__"})


#: Text and bytes of this length stand for themselves no more.
_LONG = 4096


def _digest(value: str | bytes) -> str:
    """What stands for long text or bytes."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return f"{type(value).__name__} {hashlib.sha256(data).hexdigest()}"


@dataclass
class Pinned:
    """What functions mean.

    Attributes:
        text: Everything that was reached. It is not stored: its digest is.
    """

    text: str
    loose: list[str] = field(default_factory=list)  # what the text can't tell, in words

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def pinned(functions: Iterable[Any]) -> Pinned:
    """What these functions mean, together.

    Several functions share one walk, so what two of them reach is told once.
    """
    walk = _Walk()
    try:
        return Pinned("\n".join(walk.value(function, "the function") for function in functions), walk.loose)
    except RecursionError:
        return Pinned("", ["something that is nested too deep to be told"])


@functools.cache
def _folders() -> tuple[str, ...]:
    """Where Python and its packages are installed."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = [sysconfig.get_path(name) for name in names] + [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(os.path.abspath(folder) + os.sep for folder in found)


@functools.cache
def _beside_its_wheel(package: str, folder: str) -> bool:
    """Whether a package was put into this folder by an installer, which leaves the wheel's papers there (`pip install
    --target`, a cluster's own folders). An editable one has its papers elsewhere: it is the user's."""
    names = importlib.metadata.packages_distributions().get(package, [])
    found = [importlib.metadata.distribution(name) for name in names]
    return any(d.read_text("WHEEL") is not None and os.path.abspath(str(d.locate_file(""))) == folder for d in found)


def installed(name: str | None) -> bool:
    """Whether a module is not the user's own: Python's, a package's, plait's.

    A module without a file is Python's own, or one that was made at run time: that is the user's. The last test is for
    packages that lie outside of Python's folders.
    """
    if not name or name == "__main__":
        return False
    if name.split(".")[0] == "plait" or name in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.modules and file is None:
        return name.split(".")[0] in sys.stdlib_module_names
    if file is None:
        return False
    path = os.path.abspath(file)
    above = len(name.split(".")) + (os.path.basename(path).startswith("__init__."))
    return path.startswith(_folders()) or _beside_its_wheel(
        name.split(".")[0], os.sep.join(path.split(os.sep)[:-above])
    )


class _Walk:
    """One description: what was met before is told by its number, so that what names itself comes to an end.

    Attributes:
        met: The number of each object that was told, by its id.
        open: Ids of containers that are being told, the outermost first. One that holds itself is told by how far up it
            is.
        loose: What can't be compared, in words for the user.
    """

    def __init__(self, outer: tuple[int, ...] = ()) -> None:
        self.met: dict[int, int] = {}
        self.alive: list[Any] = []  # an id is an object's only as long as it lives
        self.open: tuple[int, ...] = outer  # containers that are being told
        self.loose: list[str] = []

    def value(self, value: Any, where: str) -> str:
        """Text for anything; `where` says in words how it was come upon.

        Values whose text says all come first. Containers are told again wherever they are met, since two equal lists and
        one list that is met twice mean the same. Functions, classes and objects are told once, and by their number after
        that.
        """
        kind = type(value)
        if kind in _PLAIN:
            return repr(value) if kind not in (str, bytes) or len(value) < _LONG else _digest(value)
        if kind in (list, tuple, dict, set, frozenset, types.MappingProxyType):
            return self._container(value, where)
        if isinstance(value, (np.ndarray, np.generic)) and kind.__module__.startswith("numpy"):
            return self._array(value, where)
        if (name := _named(value)) is not None:
            return name
        if id(value) in self.met:
            return f"#{self.met[id(value)]}"
        self.met[id(value)] = len(self.met)
        self.alive.append(value)
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> str:
        """A function, class, module, method, partial, property or any other object, by what it is made of."""
        if inner := getattr(value, "py_func", None):  # what Numba has compiled
            return self.value(inner, where)
        if isinstance(value, types.FunctionType):
            return self._function(value, where)
        if isinstance(value, types.ModuleType):
            return self._module(value, frozenset(), where)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, (types.MethodType, types.BuiltinMethodType)):
            bound_to = self.value(getattr(value, "__self__", None), f"what {where} is bound to")
            return f"method({self.value(getattr(value, '__func__', value.__name__), where)}, {bound_to})"
        if isinstance(value, functools.partial):
            return f"partial({self.value([value.func, list(value.args), value.keywords], where)})"
        if isinstance(value, (classmethod, staticmethod)):
            return f"{type(value).__name__}({self.value(value.__func__, where)})"
        if isinstance(value, property):
            return f"property({self.value([value.fget, value.fset, value.fdel], where)})"
        if isinstance(value, functools.cached_property):
            return f"property({self.value(value.func, where)})"
        if type(value).__name__ == "_lru_cache_wrapper":
            return f"cached({self.value(value.__wrapped__, where)})"
        if isinstance(value, types.CellType):
            return self.value(value.cell_contents, where) if _filled(value) else "nothing yet"
        return self._instance(value, where)

    def _container(self, value: Any, where: str) -> str:
        """Dicts in their own order, which a program can see. Sets sorted by text, since theirs differs from process to
        process.
        """
        if id(value) in self.open:
            return f"^{len(self.open) - self.open.index(id(value))}"
        outer, self.open = self.open, (*self.open, id(value))
        try:
            if isinstance(value, (set, frozenset)):
                return f"{type(value).__name__}{{{', '.join(sorted(self._alone(v, where) for v in value))}}}"
            if isinstance(value, Mapping):
                told = (f"{self.value(k, where)}: {self.value(v, f'{where}, {k!r:.40}')}" for k, v in value.items())
                return f"{{{', '.join(told)}}}"
            return f"{type(value).__name__}[{', '.join(self.value(v, where) for v in value)}]"
        finally:
            self.open = outer

    def _alone(self, value: Any, where: str) -> str:
        """Of something in a set: told without what was met before, since sets have another order in each process."""
        walk = _Walk(self.open)
        text = walk.value(value, where)
        self.loose += walk.loose
        return text

    def _array(self, value: Any, where: str) -> str:
        """An array by type, shape and a digest of its bytes; one of objects by these."""
        if value.dtype.hasobject:
            return f"{value.dtype} {value.shape} {self.value(value.tolist(), where)}"
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"

    def _function(self, function: types.FunctionType, where: str) -> str:
        """Its code, and each value that it takes from outside, by name: what it closes over, globals that the code names,
        defaults, attributes. A global that is not there yet is left out; the code names it all the same.
        """
        code = function.__code__
        parts = [code_text.text(code)]
        taken: dict[str, Any] = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        named = code_text.names(code)
        for name in sorted(named.globals):
            if name in function.__globals__:
                taken[name] = function.__globals__[name]
        taken |= {f"default {n}": v for n, v in enumerate(function.__defaults__ or ())} | (
            function.__kwdefaults__ or {}
        )
        taken |= {f".{k}": v for k, v in vars(function).items() if k != "__wrapped__"}
        for name in sorted(taken):
            value = taken[name]
            if isinstance(value, types.CellType) and _filled(value):
                value = value.cell_contents
            told = f"{name!r} of {function.__name__}"
            if isinstance(value, types.ModuleType):
                parts.append(f"{name} = {self._module(value, named.all, told)}")
            else:
                parts.append(f"{name} = {self.value(value, told)}")
        parts += [f"import {name}: {self._imported(function, name, named.all)}" for name in sorted(named.imports)]
        return "\n".join(parts)

    def _imported(self, function: types.FunctionType, name: str, names: frozenset[str]) -> str:
        """A module that a function imports when it is called.

        If it is loaded, by the names that the function takes from it. If it is not, by its file's bytes: to import it
        could have effects.
        """
        try:
            absolute = importlib.util.resolve_name(name, function.__globals__.get("__package__") or "")
            if (module := sys.modules.get(absolute)) is not None:
                return self._module(module, names, f"module {absolute}")
            spec = importlib.util.find_spec(absolute)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None or not os.path.isfile(spec.origin):
            return name
        if os.path.abspath(spec.origin).startswith(_folders()):
            return name
        with open(spec.origin, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def _module(self, module: types.ModuleType, names: frozenset[str], where: str) -> str:
        """A module by what the code that names it takes from it.

        Which names those are can't be known if the code asks for names at run time (`getattr` and its like): then the
        module is loose.
        """
        if installed(module.__name__):
            return module.__name__
        taken = sorted(name for name in names if name in vars(module))
        if not taken or names & _DYNAMIC:
            self.loose.append(f"{where}: the module {module.__name__!r}, used as a whole")
        parts = []
        for name in taken:
            value, told = vars(module)[name], f"{module.__name__}.{name}"
            if isinstance(value, types.ModuleType):
                if id(value) not in self.met:
                    self.met[id(value)] = len(self.met)
                    parts.append(f"{name} = {self._module(value, names, told)}")
            else:
                parts.append(f"{name} = {self.value(value, told)}")
        return f"module({'; '.join(parts)})"

    def _class(self, kind: type) -> str:
        """Bases, fields with their defaults, members and methods. What Python adds by itself is left out, since it differs
        by version.
        """
        parts = [self.value(base, f"class {kind.__name__}") for base in kind.__bases__]
        if issubclass(kind, enum.Enum):
            members = {name: member.value for name, member in kind.__members__.items()}
            parts.append(self.value(members, f"class {kind.__name__}"))
        elif dataclasses.is_dataclass(kind):
            fields = [
                [f.name, self._default(f.default), self._default(f.default_factory)] for f in dataclasses.fields(kind)
            ]
            parts.append(repr(fields))
        for name, value in sorted(vars(kind).items()):
            generated = getattr(getattr(value, "__code__", None), "co_qualname", "").startswith("__create_fn__")
            slot = isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
            hidden = issubclass(kind, enum.Enum) and not isinstance(
                value, (types.FunctionType, property, classmethod, staticmethod)
            )
            if name not in _MACHINERY and not generated and not slot and not hidden:
                parts.append(f".{name} = {self.value(value, f'{kind.__name__}.{name}')}")
        return f"class {kind.__name__}({'; '.join(parts)})"

    def _default(self, value: Any) -> str:
        return "" if value is dataclasses.MISSING else self.value(value, "a field's default")

    def _instance(self, value: Any, where: str) -> str:
        """An object by its class and what it holds: its attributes or, where it says so itself, what pickle would store."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            return f"{self.value(kind, where)}.{value.name}"
        own = (
            not installed(kind.__module__) and "__reduce__" not in dir_of(kind) and "__reduce_ex__" not in dir_of(kind)
        )
        if own and "__getstate__" not in dir_of(kind) and not _inherits_data(kind):
            return f"{self.value(kind, where)} {self._attributes(value, where)}"
        try:
            reduce = copyreg.dispatch_table.get(kind)
            made = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception as error:  # whatever an object of any package may raise
            self.loose.append(f"{where}: a {kind.__name__}, which does not tell what is in it ({error})")
            return kind.__name__
        if isinstance(made, str):
            return f"{kind.__module__} {made}"
        parts: list[Any] = [list(p) if isinstance(p, Iterator) else p for p in made]
        return f"{self.value(kind, where)} {self.value(parts, where)}"

    def _attributes(self, value: Any, where: str) -> str:
        """What an object holds in its dict and in slots, by name."""
        held = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    held[name] = getattr(value, name)
        told = (f"{name}: {self.value(held[name], f'{where}.{name}')}" for name in sorted(held))
        return f"{{{', '.join(told)}}}"


def dir_of(kind: type) -> set[str]:
    """The names that a class and its bases define, but for what every object has."""
    return {name for base in kind.__mro__ if base is not object for name in vars(base)}


def _inherits_data(kind: type) -> bool:
    """Whether a class is built on one whose values are no attributes: a list, a dict, a number."""
    return any(base is not object and installed(base.__module__) and not _abstract(base) for base in kind.__mro__)


def _abstract(base: type) -> bool:
    """Whether a base only says what methods there are."""
    return base.__module__ in ("abc", "typing", "collections.abc", "_collections_abc")


def _filled(cell: types.CellType) -> bool:
    """Whether a variable that is closed over has a value yet."""
    try:
        cell.cell_contents  # noqa: B018  (asking is all there is to it)
    except ValueError:
        return False
    return True


def _named(value: Any) -> str | None:
    """The name of something installed that Python finds by it: functions, classes, ufuncs, Python's own constants."""
    if isinstance(value, types.ModuleType) or not (callable(value) or isinstance(value, type)):
        return None
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else None)
    if not isinstance(name, str) or not isinstance(module, str) or not installed(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}.{name}" if found is value else None
