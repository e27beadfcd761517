"""A bucket's state as bytes, for the state store.

Plain pickle where it can: data, and classes that Python finds by their module. Classes of a script or a notebook are not
found so: those that the operator's functions know go by name, so that after a restart they are the same classes as the
functions', whatever the script has made of them; others go with their code.

What a state holds of plait's own (tuples, errors, timers) goes by names that `formats` has for good, never by a module's path.

Functions themselves travel in the plan, those of modules that are not installed with their code (`carry`): a task has
another working folder and another path to look for modules.

Where it runs: in a cell's task, for each bucket that a batch has touched, and when a cell's contents are loaded; `carry`
on the driver, when the query is planned. Held by tests/spark/test_operators.py and tests/spark/test_formats.py.
"""

from __future__ import annotations

import inspect
import io
import os
import pickle
import sys
import sysconfig
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from plait.errors import RunError
from plait.query.operator import Operator
from plait.spark import formats

#: How pickle says that it can't: a class or function that it does not find, an object that refuses, one nested too deep.
UNPICKLED = (pickle.PicklingError, AttributeError, TypeError, RecursionError)


def carry(functions: Iterable[Any]) -> None:
    """Have functions of modules that are not installed pickled with their code.

    Without it cloudpickle would store such a function by the name of its module, and the worker would fail to import it.
    """
    from pyspark import cloudpickle

    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    for function in functions:
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        if module is None or file is None or module.__name__.split(".")[0] in ("plait", "__main__"):
            continue
        if not any(os.path.abspath(file).startswith(folder + os.sep) for folder in installed):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class Pickled:
    """Both ways, for one operator.

    Attributes:
        classes: Classes that the operator's functions name, by module and qualified name. These are stored by name.
        names: The same by the class's id, for the way out.
    """

    def __init__(self, node: Operator) -> None:
        self.classes: dict[tuple[str, str], type] = {}
        seen: set[int] = set()
        for function in (node.state, node.process, node.on_timer, node.route):
            self._classes_of(function, seen)
        self.names = {id(kind): name for name, kind in self.classes.items()}

    def _classes_of(self, value: Any, seen: set[int]) -> None:
        """Classes that a function names, itself or in functions it calls."""
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, type):
            self.classes[(value.__module__, value.__qualname__)] = value
            return
        code = getattr(value, "__code__", None)
        if code is None:
            return
        outside = inspect.getclosurevars(value)
        for inner in (*outside.globals.values(), *outside.nonlocals.values()):
            if inspect.isfunction(inner) or isinstance(inner, type):
                self._classes_of(inner, seen)

    def body(self, bucket: int, state: Any, timers: Iterable[int]) -> bytes:
        """A bucket as it is stored and sent."""
        return formats.sealed(formats.body(formats.Bucket(bucket, sorted(set(timers))), self._dump(bucket, state)))

    def bucket(self, data: bytes, what: str = "The state of a bucket in the checkpoint") -> tuple[int, Any, list[int]]:
        """The same bucket again: its number, state and timers."""
        head, rest = formats.parse(data, stored=what)
        assert isinstance(head, formats.Bucket)
        return head.bucket, self._load(rest), head.timers

    def _dump(self, bucket: int, state: Any) -> bytes:
        """Bytes of a state: plain pickle first, since it is quicker and works for data; then with classes by name or by
        value.
        """
        try:
            return _dump_plain(state)
        except UNPICKLED:
            pass  # a class that is not found by its module, perhaps
        try:
            return self._dump_named(state)
        except UNPICKLED as error:
            raise RunError(
                f"The state of bucket {bucket} can't be pickled: {error}",
                why="on Spark a bucket's state is stored between batches, and may go on in another process",
                do="Keep data in it, and open files, locks or connections in process",
            ) from error

    def _dump_named(self, state: Any) -> bytes:
        """With cloudpickle. Known classes that no module has become persistent ids; what is plait's goes by its stored
        names.
        """
        from pyspark import cloudpickle

        names, out = self.names, io.BytesIO()

        class Named(cloudpickle.Pickler):
            def persistent_id(self, value: Any) -> Any:
                return names.get(id(value)) if isinstance(value, type) and not _found(value) else None

            def reducer_override(self, value: Any) -> Any:
                found = formats.reduced(value)
                return super().reducer_override(value) if found is NotImplemented else found  # type: ignore[no-untyped-call]

        Named(out, pickle.HIGHEST_PROTOCOL).dump(state)  # type: ignore[no-untyped-call]
        return out.getvalue()

    def _load(self, data: pa.Buffer) -> Any:
        """A state from its bytes, with the functions' own classes for those stored by name. A class that is gone is refused
        by name.
        """
        classes = self.classes

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, name: Any) -> Any:
                if name not in classes:
                    raise RunError(
                        f"The checkpoint holds states of class {name[1]!r}, which the operator's functions do not know",
                        why="classes of a script are found again by their name",
                        do="Name it as it was, or use another checkpoint folder",
                    )
                return classes[name]

        return Unpickler(io.BytesIO(data)).load()


class _Plain(pickle.Pickler):
    """Plain pickle, but for what is plait's own."""

    def reducer_override(self, value: Any) -> Any:
        return formats.reduced(value)


def _dump_plain(state: Any) -> bytes:
    out = io.BytesIO()
    _Plain(out, pickle.HIGHEST_PROTOCOL).dump(state)
    return out.getvalue()


def _found(kind: type) -> bool:
    """Whether Python finds a class by its module and name."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind
