"""What the command says to the shell.

Scripts go by these, so they don't change. 2 is Click's own code for wrong usage, too; 130 is a shell's for an interrupt.
"""

from __future__ import annotations

from typing import Final

DONE: Final = 0
DIFFERENT: Final = 1  # `verify` found a difference, or `bench papers` a shape that does not hold
BAD_INPUT: Final = 2  # or usage
FAULT: Final = 3  # of plait's own
INTERRUPTED: Final = 130
