"""A process that dies before its nth change of a folder: every step at which a kill could come, one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DIED = 77
_CHANGES = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


def killed_at(step: int, folder: Path, action: Callable[[], Any]) -> bool:
    """Do it in a process of its own, which dies before its nth change of the folder; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = step

        def touched(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            if event == "open" and not int(arguments[2]) & (os.O_WRONLY | os.O_RDWR):
                return  # reading changes nothing
            if event in _CHANGES and any(str(folder) in str(argument) for argument in arguments[:2]):
                left -= 1
                if left < 0:
                    os._exit(DIED)

        sys.addaudithook(touched)
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, DIED), f"the child failed: {code}"
    return code == DIED
