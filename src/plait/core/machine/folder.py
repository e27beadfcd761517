"""Where plait keeps what it has made on this machine: kernels, machine code, calibrations.

One folder a user, whatever clone or environment plait runs from: machine code is kept under the stamp of what it was made from
(`plait.core.machine.stamp`), so that versions of plait share it without harm, and a new clone compiles nothing that another
has compiled. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from plait import trust


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """As given, else `PLAIT_CACHE_DIR`, else under the user's cache folder.

    The folder is not made here if it was named. Where the home folder can't be written, one in the system's folder for
    temporary files serves. What is found there runs: ask `own` before.
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


def own(folder: Path) -> Path:
    """The folder, made if it is not there, for this user alone; PermissionError if others may have written what lies in it.

    What lies there runs as code, and the folder for temporary files is everybody's: anybody may make a folder of this name first.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    if (found := trust.doubt(folder)) is not None:
        raise PermissionError(
            f"{found}, and what lies there would run: chmod it, remove it, or name it in {trust.VARIABLE}"
        )
    return folder
