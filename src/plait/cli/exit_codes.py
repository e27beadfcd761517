"""What the command says to the shell."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
DIFFERENT: Final = 1  # `verify` found a difference
BAD_INPUT: Final = 2  # or usage
FAULT: Final = 3  # of plait's own
INTERRUPTED: Final = 130
