"""The twin of code that knows memory by its address (`plait.threads.atomics.native`): one flat space of words for a whole run.

Compiled loops find arrays by addresses that stand in other arrays. In the twin an address is eight times a place in one memory,
so that what one array's release passes on, another array's plain words profit from: as in a machine, and as `races` needs it.
Arrays that the product has made are `adopted`: their contents when a run begins are theirs, and their own addresses lead to them.
"""

from __future__ import annotations

import ast
import struct
from typing import Any

import numpy as np
from tests.explore import races, twin
from tests.explore.schedule import Clock, Sleep

from plait.core.machine.line import address as real_address

NATIVE = ("ints", "pointer_at", "clock_ns", "inner", "floats", "octets", "nap", "call_at", "address_of")


class View:
    """Words from a place of the space on, indexed as an array of one dimension, or of rows of `width` words."""

    def __init__(self, space: Any, at: int, width: int = 0) -> None:
        self.space, self.at, self.width, self.base = space, at, width, at

    def _place(self, index: Any) -> int:
        return self.at + (int(index[0]) * self.width + int(index[1]) if isinstance(index, tuple) else int(index))

    def __getitem__(self, index: Any) -> Any:
        if type(index) is int:
            return self.space.memory[self.at + index]
        if isinstance(index, slice):
            return View(self.space, self.at + index.start)
        return int(self.space.memory[self._place(index)])

    def __setitem__(self, index: Any, value: int) -> None:
        self.space.memory[self._place(index)] = int(value)

    def view(self, kind: Any) -> View:
        """The same words as floats, whose bits they hold."""
        assert kind is np.float64
        return _Floats(self.space, self.at, self.width)


class _Floats(View):
    """Words that hold the bits of floats."""

    def __getitem__(self, index: Any) -> Any:
        return struct.unpack("d", struct.pack("q", self.space.memory[self._place(index)]))[0]

    def __setitem__(self, index: Any, value: float) -> None:
        self.space.memory[self._place(index)] = struct.unpack("q", struct.pack("d", float(value)))[0]


class Space:
    """All memory of a run. `words` gives some of it, zeroed; `made` puts the finder of races under it, once all is laid out."""

    def __init__(self) -> None:
        self.memory: Any = [0] * 16  # no array lies at 0
        self.adopted: dict[int, View | np.ndarray] = {}
        self._laid_out: list[int] = []
        self.clock, self.woken = Clock(), dict[int, int]()  # of naps
        #: Arrays in which code may point anywhere: those of bytes, a word each here, and what is lent.
        self._inside: list[tuple[int, int, View | np.ndarray]] = []

    def words(self, count: int) -> View:
        view = View(self, len(self.memory))
        self.memory += [0] * count
        return view

    def adopt(self, array: np.ndarray) -> View:
        """An array of the product's that threads share: of one dimension, or rows."""
        view = self.words(array.size)
        view.width = array.shape[1] if array.ndim == 2 else 0
        bits = array.view(np.int64) if array.dtype == np.float64 else array
        self.memory[view.at :] = bits.reshape(-1).tolist()
        self.adopted[real_address(array)] = view
        if array.itemsize == 1:
            self._inside.append((real_address(array), array.size, view))
        return view

    def lend(self, array: np.ndarray) -> None:
        """An array of the product's that one thread at a time uses for itself: it stays where it is."""
        self.adopted[real_address(array)] = array
        if array.ndim == 1:
            self._inside.append((real_address(array), array.nbytes, array))

    def keep(self) -> None:
        """What was laid out is what every run begins with."""
        self._laid_out = list(self.memory)

    def begin(self, clock: Clock, threads: int) -> None:
        self.memory = list(self._laid_out)
        self.made(clock, threads)

    def made(self, clock: Clock, threads: int) -> None:
        self.clock, self.woken = clock, {}
        self.memory = races.Memory(self.memory, clock, threads)

    def at(self, address: int, width: int = 0) -> Any:
        """What lies at an address."""
        found = self.adopted.get(int(address))
        if found is not None:
            return found
        for first, size, found in self._inside:
            if first < address < first + size:
                at = int(address) - first
                return View(self, found.at + at) if isinstance(found, View) else found[at // found.itemsize :]
        return View(self, int(address) // 8, width)


class _Changes:
    """How many words of a memory have become others: what a thread sleeps on that would look again and again.

    `woken` keeps how many there were when it went on, by thread: what has changed since then it may have missed.
    """

    def __init__(self, memory: races.Memory, woken: dict[int, int], thread: int) -> None:
        self._memory, self._woken, self._thread = memory, woken, thread
        self.expected = woken.get(thread, -1)

    def __getitem__(self, _: int) -> int:
        now = self._memory.changes
        if now != self.expected:
            self._woken[self._thread] = now
        return now


def address(view: View) -> int:
    return 8 * view.at


def load_acquire(words: View, at: int) -> int:
    return races.load_acquire(words.space.memory, words.at + int(at))


def store_release(words: View, at: int, value: int) -> None:
    races.store_release(words.space.memory, words.at + int(at), int(value))


def fetch_add(words: View, at: int, value: int) -> int:
    return races.fetch_add(words.space.memory, words.at + int(at), int(value))


def cas(words: View, at: int, expected: int, value: int) -> bool:
    return races.cas(words.space.memory, words.at + int(at), int(expected), int(value))


class NativeTwin(twin.Twin):
    """Twins of these modules. `space` is the memory that addresses are places of: a new one for every run.

    `kernels`: what is called at an address, with the words of its block.
    """

    def __init__(self, modules: tuple[str, ...], *, patches: twin.Patches | None = None) -> None:
        super().__init__(modules, patches=patches)
        self.space = Space()
        self.kernels: dict[int, Any] = {}
        own: dict[str, Any] = {
            "load_acquire": load_acquire, "store_release": store_release, "fetch_add": fetch_add, "cas": cas,
            "ints": lambda at, n: self.space.at(at), "octets": lambda at, n: self.space.at(at), "pointer_at": lambda at: at,
            "floats": lambda at, n: self.space.at(at).view(np.float64),
            "clock_ns": lambda w, at: 0, "inner": twin.compiled, "nap": self._nap,
            "call_at": lambda kernel, block: self.kernels[kernel](self.space, self.space.at(block)),
            "address_of": self._address_of,
        }  # fmt: skip
        self.steps |= dict.fromkeys(NATIVE) | own

    def _nap(self, _: int) -> Sleep:
        """Whoever naps looks again when something has changed since it looked last: else it would find what it has found."""
        words = _Changes(self.space.memory, self.space.woken, self.space.clock.thread)
        return Sleep(words, 0, words.expected)

    def _address_of(self, array: np.ndarray, at: int) -> int:
        """Below zero: where a part lies an array may begin that is known by another shape."""
        part = array[at:]
        self.space.adopted[-real_address(part)] = part
        return -real_address(part)

    def _carray(self, at: int, shape: Any, dtype: Any) -> Any:
        found = self.space.at(at, shape[1] if isinstance(shape, tuple) else 0)
        return found.view(dtype) if dtype is np.float64 else found

    def _bind_imports(self, tree: ast.Module, space: dict[str, Any]) -> tuple[list[ast.stmt], set[str]]:
        found = super()._bind_imports(tree, space)
        if "carray" in space:
            space["carray"] = self._carray
        for name, value in space.items():
            space[name] = getattr(value, "py_func", value)  # what is compiled into loops is plain Python in the twin's
        return found
