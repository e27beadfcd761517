"""The twin of code that knows memory by its address (`plait.threads.atomics.native`): one flat space of words for a whole run.

Compiled loops find arrays by addresses that stand in other arrays. In the twin an address is eight times a place in one memory,
so that what one array's release passes on, another array's plain words profit from: as in a machine, and as `races` needs it.
"""

from __future__ import annotations

import ast
from typing import Any

from tests.explore import races, twin
from tests.explore.schedule import Clock

NATIVE = ("ints", "pointer_at", "clock_ns", "inner", "floats", "octets", "nap", "call_at")


class View:
    """Words from a place of the space on, indexed as an array of one dimension, or of rows of `width` words."""

    def __init__(self, space: Any, at: int, width: int = 0) -> None:
        self.space, self.at, self.width = space, at, width

    def _place(self, index: Any) -> int:
        return self.at + (int(index[0]) * self.width + int(index[1]) if isinstance(index, tuple) else int(index))

    def __getitem__(self, index: Any) -> int:
        return int(self.space[self._place(index)])

    def __setitem__(self, index: Any, value: int) -> None:
        self.space[self._place(index)] = int(value)


class Space:
    """All memory of a run. `words` gives some of it, zeroed; `made` puts the finder of races under it, once all is laid out."""

    def __init__(self) -> None:
        self.memory: Any = [0] * 16  # no array lies at 0

    def words(self, count: int) -> View:
        view = View(self, len(self.memory))
        self.memory += [0] * count
        return view

    def made(self, clock: Clock, threads: int) -> None:
        self.memory = races.Memory(self.memory, clock, threads)

    def __getitem__(self, at: int) -> int:
        return int(self.memory[at])

    def __setitem__(self, at: int, value: int) -> None:
        self.memory[at] = value


def address(view: View) -> int:
    return 8 * view.at


def load_acquire(words: View, at: int) -> int:
    return races.load_acquire(words.space.memory, words.at + int(at))


def store_release(words: View, at: int, value: int) -> None:
    races.store_release(words.space.memory, words.at + int(at), int(value))


def fetch_add(words: View, at: int, value: int) -> int:
    return races.fetch_add(words.space.memory, words.at + int(at), int(value))


class NativeTwin(twin.Twin):
    """Twins of these modules. `space` is the memory that addresses are places of: a new one for every run."""

    def __init__(self, modules: tuple[str, ...], *, patches: twin.Patches | None = None) -> None:
        super().__init__(modules, patches=patches)
        self.space = Space()
        own: dict[str, Any] = {
            "load_acquire": load_acquire, "store_release": store_release, "fetch_add": fetch_add,
            "ints": lambda at, n: View(self.space, int(at) // 8), "pointer_at": lambda at: int(at) // 8,
            "clock_ns": lambda w, at: 0, "inner": twin.compiled,
        }  # fmt: skip
        self.steps |= dict.fromkeys(NATIVE) | own

    def _bind_imports(self, tree: ast.Module, space: dict[str, Any]) -> tuple[list[ast.stmt], set[str]]:
        found = super()._bind_imports(tree, space)
        if "carray" in space:
            space["carray"] = lambda at, shape, dtype: View(self.space, at, shape[1] if isinstance(shape, tuple) else 0)
        return found
