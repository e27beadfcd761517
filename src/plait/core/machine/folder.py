"""Where plait keeps what it has made on this machine: kernels, machine code, calibrations.

One folder a user, whatever clone or environment plait runs from: machine code is kept under the stamp of what it was made from
(`plait.core.machine.stamp`), so that versions of plait share it without harm, and a new clone compiles nothing that another
has compiled. It may be deleted at any time.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """As given, else `PLAIT_CACHE_DIR`, else under the user's cache folder.

    The folder is not made here if it was named. Where the home folder can't be written, one in the system's folder for
    temporary files serves.
    """
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
