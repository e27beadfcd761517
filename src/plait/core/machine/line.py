"""How far apart words lie that different threads write: two cache lines, since processors fetch lines in pairs."""

from __future__ import annotations

from typing import Final

LINE: Final = 16  # words of 64 bits
