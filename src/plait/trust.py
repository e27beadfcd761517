"""Who else could have written a file that is run as code: machine code, kernels, pickles.

plait keeps two things on disk that run when they are read: what it has compiled (`core.machine.folder`), and the states of
users' operators in a checkpoint, which are pickles. Whoever can write there can have this process do anything. A hash in the file
would not help, since who writes the file writes the hash; a signature needs a key that lies somewhere with the same rights. So
the rights themselves are looked at: *files that run belong to this process's user, or to root, and nobody else can write them*.

A group may write where it is the user's own, with no other member: that is how many systems make folders. `PLAIT_TRUSTED` names
folders whose files are taken whoever may write them, with `:` between: on stores that have no owners, and where others are meant
to. Where there are no such rights (Windows), nothing is refused. Rights of the folders above are not looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

#: Folders that are trusted as they are.
VARIABLE = "PLAIT_TRUSTED"


def doubt(path: Path, *, owner: bool = True) -> str | None:
    """Who else than this process's user may have written a file or folder, in words; None if nobody.

    `owner`: whether it has to be this user's, or root's. A link is followed: what counts is what it leads to.
    """
    if os.name != "posix" or _named(path):
        return None
    found = path.stat()
    if owner and found.st_uid not in (os.geteuid(), 0):
        return f"{str(path)!r} belongs to {_user(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return f"everybody may write to {str(path)!r}"
    if found.st_mode & stat.S_IWGRP and not _alone_in(found.st_gid):
        return f"the group {found.st_gid} may write to {str(path)!r}"
    return None


def doubt_below(folder: Path, *, owner: bool = True) -> str | None:
    """The same of a folder and all that lies in it. A link in it is a doubt, too: it may lead to what others write."""
    if _named(folder):
        return None
    for path in _all(folder):
        try:
            if path != folder and path.is_symlink():
                return f"{str(path)!r} is a link"
            if (found := doubt(path, owner=owner)) is not None:
                return found
        except FileNotFoundError:  # gone meanwhile
            continue
    return None


def _all(folder: Path) -> Iterator[Path]:
    yield folder
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


def _named(path: Path) -> bool:
    """Whether `PLAIT_TRUSTED` names it, or a folder that it lies in."""
    here = os.path.abspath(path)
    given = [os.path.abspath(each) for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    return any(here == each or here.startswith(each.rstrip(os.sep) + os.sep) for each in given)


def _user(number: int) -> str:
    try:
        import pwd

        return f"{pwd.getpwuid(number).pw_name!r} (user {number})"
    except (ImportError, KeyError):
        return f"user {number}"


def _alone_in(group: int) -> bool:
    """Whether a group is this user's own: its first one, with no other member."""
    if group != os.getegid():
        return False
    try:
        import grp
        import pwd

        own = pwd.getpwuid(os.geteuid()).pw_name
        return set(grp.getgrgid(group).gr_mem) <= {own}
    except (ImportError, KeyError):  # a group or user without a name has no members that anybody could tell
        return True
