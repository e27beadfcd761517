"""Machine code kept on disk, which never stands in the way of a run.

The rule: *a cache makes a run quicker or does nothing.* What can't be read is compiled anew and written over; what can't
be written (a read-only folder, a full disk) is compiled and not kept; any number of processes may read and write at once.
Numba's own cache raises in all these cases, until somebody deletes its files.

Many processes often begin at once (Spark's workers do), and want the same functions. One of them compiles each, and the others
wait for it, leave their processors to it, and load what it has kept.

Numba's files hold pickles: an index of signatures, and one file a signature. Here each bears a hash of its bytes, and a
data file the key of what it holds, since two processes that begin at once may give one name to two signatures.

plait's own functions are kept in one folder a user (`plait.core.machine.folder`), so that a new clone or environment compiles
nothing that is there already; a user's stay where Numba keeps them, and so does everything where `NUMBA_CACHE_DIR` is set.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import pickle
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile

from plait import trust
from plait.core.machine.folder import cache_folder, own
from plait.core.machine.shield import out_of_reach
from plait.core.machine.stamp import stamp_of

#: How long to wait for another process that compiles the same function. It may have been stopped: then it is compiled here too.
PATIENCE_S = 30.0
_LOOK_S = 0.02
#: Machine code of other stamps of a function goes when the function is compiled again after so long. Who still runs it,
#: with an older version of plait, compiles it once more.
FORGET_S = 90 * 86_400.0


class _Damaged(OSError):
    """An `OSError`, since Numba takes that for a file that is gone."""


def _checked(data: bytes) -> bytes:
    """The first 32 bytes are the SHA-256 of the rest."""
    digest, rest = data[:32], data[32:]
    if hashlib.sha256(rest).digest() != digest:
        raise _Damaged("the file is not as it was written")
    return rest


class _File(IndexDataCacheFile):
    """Numba's file of an index and its data, with a hash before each, and the key inside of the data."""

    def _dump(self, obj: Any) -> bytes:
        data: bytes = super()._dump(obj)  # type: ignore[no-untyped-call]  # Numba's own, as all below
        return hashlib.sha256(data).digest() + data

    def _load_index(self) -> dict[Any, Any]:
        """Nothing, if it can't be read: it will be written over."""
        try:
            with open(self._index_path, "rb") as file:
                data = file.read()
            # Numba writes its version in front, as a pickle: compared as bytes, so that nothing is unpickled before the hash is.
            version = pickle.dumps(self._version, protocol=-1)
            if not data.startswith(version):
                return {}
            stamp, overloads = pickle.loads(_checked(data[len(version) :]))
        except Exception:
            return {}
        return dict(overloads) if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            return pickle.loads(_checked(file.read()))

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        found = super().load(key)  # type: ignore[no-untyped-call]
        return found[1] if found is not None and found[0] == key else None


class _Cache(FunctionCache):
    """Of one function. Its files bear its stamp in their names: it is computed when the first is wanted.

    The stamp is a part of the files' names: code from before an edit is not found, and not overwritten either, so two
    versions of plait may share a folder.
    """

    def __init__(self, function: Any, compiled: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._of = weakref.ref(compiled)
        # With the whole name of its module: functions of many folders lie in one.
        name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._name = f"{name}.py{sys.version_info[0]}{sys.version_info[1]}"
        self._own: _File | None = None
        self._shared = _is_plaits(function) and not config.CACHE_DIR  # type: ignore[attr-defined]

    def file(self) -> _File:
        if self._own is None:
            stamp = stamp_of(self._of())
            if self._shared:
                own(cache_folder())
                self._cache_path = own(cache_folder() / "machine")
            elif (found := trust.doubt(Path(self._cache_path).parent)) is not None:  # a user's, beside the source
                raise PermissionError(found)
            self._own = _File(self._cache_path, f"{self._name}-{stamp[:20]}", stamp)  # type: ignore[no-untyped-call]
        self._cache_file = self._own
        return self._own

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While a function is compiled that nobody has kept yet: no other process does so, for as long as it has patience."""
        with contextlib.ExitStack() as held:
            with contextlib.suppress(Exception):
                held.enter_context(_turn(Path(self.file()._index_path)))
            yield

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with contextlib.suppress(Exception):  # whatever is wrong with it, it can be compiled
            self.file()
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(Exception):
            self.file()
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
            if self._shared:
                self._forget()

    def _forget(self) -> None:
        """Files of this function's older stamps that nobody has written to for long, so that the folder does not only grow."""
        oldest = time.time() - FORGET_S
        for path in Path(self._cache_path).glob(f"{self._name}-*"):
            if (
                not path.name.startswith(f"{self.file()._index_name.removesuffix('.nbi')}.")
                and path.stat().st_mtime < oldest
            ):
                path.unlink(missing_ok=True)


def _is_plaits(function: Any) -> bool:
    return function.__module__.split(".")[0] in ("plait", "plait_bench")


@contextlib.contextmanager
def _turn(index: Path) -> Iterator[None]:
    """Not needed where an index is, nor any more once there is one. The system takes the lock from a process that dies."""
    if index.exists():
        yield
        return
    place = index.with_suffix(".lock")
    with open(place, "wb") as file:
        until = time.monotonic() + PATIENCE_S
        while not (index.exists() or _locked(file) or time.monotonic() > until):
            time.sleep(_LOOK_S)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                place.unlink()


def _locked(file: Any) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def keep(compiled: Any) -> Any:
    """Have a function of Numba's keep its machine code.

    The function is given back, changed. Where Numba finds no folder for it, it is compiled and not kept.
    """
    with contextlib.suppress(Exception):  # there is no folder for it
        compiled._cache = cache = _Cache(compiled.__wrapped__, compiled)
        compiled.alone = cache.alone
    return compiled


def kept_callback(function: Any, signature: str, **options: Any) -> Any:
    """As `numba.cfunc` with `cache=True`.

    `signature` is Numba's text of a C function's type. It is compiled now; its `address` is for compiled code to call.
    """
    from numba.core import sigutils
    from numba.core.ccallback import CFunc

    normal = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]
    made = keep(CFunc(function, normal, locals={}, options=options))
    out_of_reach(made.compile)
    return made
