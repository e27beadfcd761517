"""Kernel modules on disk, named by the hash of everything they were made from, and run from there.

A name changes with the text and with the versions that compile it; what the text imports is in the stamp of its machine code
(`plait.core.machine.stamp`). A module is written to a temporary file and linked into place: whoever comes second
keeps the first one's file, and nobody reads half of one. All that another machine needs is the text (`install`).

As `plait.core.machine.kept` has it, a cache makes a run quicker or does nothing: a file ends with a hash of its text, one that is
damaged is written anew, and where nothing can be written the text is run as it is, and compiled for this process alone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import CodeType, ModuleType

from plait.core.machine.folder import cache_folder, own
from plait.errors import RunError

_loaded: dict[tuple[str, str], ModuleType] = {}


@dataclass(frozen=True)
class KernelText:
    """A module to be: what an executor sends to its workers."""

    name: str
    text: str


@functools.cache
def taught_digest() -> str:
    """A hash of what modules teach Numba by importing it: no name in their text reaches it (`plait.core.machine.stamp`)."""
    return hashlib.sha256(Path(__file__).with_name("rows.py").read_bytes()).hexdigest()


@functools.cache
def _versions() -> str:
    libraries = (f"{name} {version(name)}" for name in ("numba", "llvmlite", "numpy"))
    return f"{sys.version_info[:2]} {' '.join(libraries)}"


def kernel_text(text: str, *, identity: str | None = None) -> KernelText:
    """Name a module. `identity` stands for the text where equal modules may be spelled differently (marshal)."""
    what = "\0".join((identity if identity is not None else text, taught_digest(), _versions()))
    return KernelText(f"plait_kernel_{hashlib.sha256(what.encode()).hexdigest()[:32]}", text)


def _sealed(text: str) -> str:
    """The text with its hash as a comment at the end: still a module of Python."""
    return f"{text}\n# {hashlib.sha256(text.encode()).hexdigest()}\n"


def _whole(path: Path) -> bool:
    """Whether a file is there and as it was written."""
    try:
        found = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return _sealed(found.rpartition("\n# ")[0]) == found


def install(kernel: KernelText, folder: str | os.PathLike[str] | None = None) -> Path:
    """The module's file, written if it is not there, or damaged. Any number of processes may do this at once."""
    place = cache_folder(folder)
    path, temporary = place / f"{kernel.name}.py", ""
    try:
        own(place)
    except OSError as error:
        raise _not_written(place, error) from error
    if _whole(path):
        return path
    try:
        descriptor, temporary = tempfile.mkstemp(dir=place, prefix=f".{kernel.name}.", suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_sealed(kernel.text))
        os.chmod(temporary, 0o644)
        _put(temporary, path)
    except OSError as error:
        raise _not_written(place, error) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    return path


def _not_written(place: Path, error: OSError) -> RunError:
    return RunError(
        f"Kernels can't be written to {place}: {error}",
        do="Name a folder you can write to in PLAIT_CACHE_DIR or cache_dir=",
    )


def _put(temporary: str, path: Path) -> None:
    """A finished file under its name. Who was faster has made one that is as good, unless it is damaged by now."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        if not _whole(path):
            os.replace(temporary, path)
    except OSError:
        os.replace(temporary, path)  # a file system without links


def load(kernel: KernelText, folder: str | os.PathLike[str] | None = None) -> ModuleType:
    """Run a module, by way of the cache folder if there is one that can be written.

    Modules are kept by name and folder for the life of the process. A warning, not an error, where nothing can be
    written: the run is slower and right.
    """
    key = (kernel.name, str(cache_folder(folder)))
    module = _loaded.get(key)
    if module is None:
        # From the text, and not by import: that would keep bytecode on disk, one more file that may be damaged.
        try:
            path = install(kernel, folder)
            text, name = path.read_text(encoding="utf-8"), str(path)
        except (RunError, OSError) as error:
            warnings.warn(f"{error}. Kernels are compiled for this process alone", RuntimeWarning, stacklevel=2)
            text, name = kernel.text, f"<{kernel.name}>"
        module = ModuleType(kernel.name)
        sys.modules[kernel.name] = module  # Numba's cache unpickles by module name
        module.__file__ = name
        exec(compile(text, name, "exec"), module.__dict__)
        _loaded[key] = module
    return module


def load_plain(text: str) -> ModuleType:
    """Run a module written without Numba; nothing touches the disk."""
    module = ModuleType("plait_plain_kernel")
    exec(_compiled(text), module.__dict__)
    return module


@functools.lru_cache(maxsize=64)
def _compiled(text: str) -> CodeType:
    """A run's windows each load the same few texts."""
    return compile(text, "<plait kernel>", "exec")
