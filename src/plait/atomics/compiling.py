"""How shared-memory code is compiled: without the GIL, cached, and never from a stale cache.

Numba's cache looks at the file a function stands in, not at the files of the functions it calls: after an edit
elsewhere it would go on running old code. So the stamp of every function compiled here is a hash of all source
files of the packages that hold such code, the caller's own among them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit, uint64

#: In compiled code an index of this type lets LLVM vectorise a loop. Mixing it with int64 gives a float: cast both.
unsigned = uint64


@cache
def _stamp(folder: Path) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for place in sorted({Path(__file__).parent, folder}):
        for file in sorted(place.glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def compiled(function: Callable[..., Any]) -> Any:
    """Mark a function that takes atomic steps, or calls one that does: in the twin it becomes a generator."""
    return _cached(njit(nogil=True, error_model="numpy", boundscheck=False)(function), function)


def pure(function: Callable[..., Any]) -> Any:
    """Mark a function without atomic steps: in the twin it stays a plain function."""
    return _cached(njit(nogil=True, error_model="numpy", boundscheck=False)(function), function)


def _cached(dispatcher: Any, function: Callable[..., Any]) -> Any:
    dispatcher.enable_caching()
    stamp = _stamp(Path(function.__code__.co_filename).parent)
    # The stamp is compared for equality only, so any value that pickles will do.
    dispatcher._cache._cache_file._source_stamp = stamp
    return dispatcher
