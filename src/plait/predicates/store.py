"""Kernel modules on disk, named by the hash of everything they were made from, and imported from there.

Numba keys its cache by the file and by nothing behind it, so a name must change with the text, with the generator and
with the versions that compile it. A module is written to a temporary file and linked into place: whoever comes second
keeps the first one's file, and nobody reads half of one. Its time stamp is fixed, because Numba's cache holds only as
long as the stamp does. All that another machine needs is the text (`install`).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Final

from plait.errors import RunError

_STAMP: Final = 1_000_000_000  # the modification time of every module: see above
_loaded: dict[tuple[str, str], ModuleType] = {}


@dataclass(frozen=True)
class KernelText:
    """A module to be: what an executor sends to its workers."""

    name: str
    text: str


@functools.cache
def generator_digest() -> str:
    """A hash of the sources that turn a condition into text."""
    out = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        out.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return out.hexdigest()


@functools.cache
def _versions() -> str:
    libraries = (f"{name} {version(name)}" for name in ("numba", "llvmlite", "numpy"))
    return f"{sys.version_info[:2]} {' '.join(libraries)}"


def kernel_text(text: str, *, identity: str | None = None) -> KernelText:
    """Name a module. `identity` stands for the text where equal modules may be spelled differently (marshal)."""
    what = "\0".join((identity if identity is not None else text, generator_digest(), _versions()))
    return KernelText(f"plait_kernel_{hashlib.sha256(what.encode()).hexdigest()[:32]}", text)


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where modules live: as given, else `PLAIT_CACHE_DIR`, else under the user's cache folder."""
    if folder is not None:
        return Path(folder)
    given = os.environ.get("PLAIT_CACHE_DIR")
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    usual = Path(home) / "plait" / "kernels"
    try:
        usual.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"plait-kernels-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    return usual if os.access(usual, os.W_OK) else Path(tempfile.gettempdir()) / f"plait-kernels-{os.getuid()}"


def install(kernel: KernelText, folder: str | os.PathLike[str] | None = None) -> Path:
    """The module's file, written if it is not there. Any number of processes may do this at once."""
    place = cache_folder(folder)
    path = place / f"{kernel.name}.py"
    if path.exists():
        return path
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=place, prefix=f".{kernel.name}.", suffix=".tmp")
    except OSError as error:
        raise RunError(
            f"Kernels can't be written to {place}: {error}",
            do="Name a folder you can write to in PLAIT_CACHE_DIR or cache_dir=",
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(kernel.text)
        os.chmod(temporary, 0o644)
        os.utime(temporary, (_STAMP, _STAMP))
        try:
            os.link(temporary, path)  # fails if someone was faster; their file is as good
        except FileExistsError:
            pass
        except OSError:
            os.replace(temporary, path)  # a file system without links
            return path
        os.unlink(temporary)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return path


def load(kernel: KernelText, folder: str | os.PathLike[str] | None = None) -> ModuleType:
    """Import a module from its text, by way of the cache folder."""
    key = (kernel.name, str(cache_folder(folder)))
    module = _loaded.get(key)
    if module is None:
        path = install(kernel, folder)
        spec = importlib.util.spec_from_file_location(kernel.name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[kernel.name] = module  # Numba's cache unpickles by module name
        spec.loader.exec_module(module)
        _loaded[key] = module
    return module


def load_plain(text: str) -> ModuleType:
    """Run a module written without Numba; nothing touches the disk."""
    module = ModuleType("plait_plain_kernel")
    exec(compile(text, "<plait kernel>", "exec"), module.__dict__)
    return module
