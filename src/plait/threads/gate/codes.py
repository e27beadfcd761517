"""What compiled gate functions answer instead of raising. Zero and above is a number of tuples.

Compiled callers only compare a number, and most codes are no errors to them but a reason to wait or to come again.
Where one is an error, `gates.Gate.refused` says so once Python is back. FULL and STUCK say «not now»: the caller may
try again. INSIDE, NOT_TAKEN and DRAINING say that another call stands in the way; what they mean for the caller is
said at each function that gives them.
"""

from __future__ import annotations

from typing import Final

DONE: Final = -1  # every source has ended and this reader has read everything
CLOSED_CODE: Final = -2  # the gate was closed
FULL: Final = -3  # too many ready tuples unread: wait for the readers, or give up
STUCK: Final = -4  # too many unready tuples: another source holds the frontier; waiting may be for ever
LATE: Final = -5  # a ts below what the source has promised
UNSORTED: Final = -6  # within one source and ts, seq does not rise
INSIDE: Final = -7  # another thread is inside a call for this source or reader
GONE: Final = -8  # the source has ended or was removed; the reader was removed
BEHIND: Final = -9  # an announced source would start below what a reader has already been promised
NOT_TAKEN: Final = -10  # another call of this kind took effect instead
DRAINING: Final = -11  # the slot's former source still has tuples that some reader has not read
LAST_READER: Final = -12  # without readers nothing could ever leave the gate
