"""How many examples a property has: a third in `make test`, four times as many as it asks for in the soak.

The rule: *what `make test` leaves out is repetition.* Every property runs there; the soak (`make soak` sets PLAIT_SOAK) draws
others, and more of them.
"""

from __future__ import annotations

import os

SOAK = os.environ.get("PLAIT_SOAK") == "1"


def examples(count: int) -> int:
    return 4 * count if SOAK else max(6, count // 3)
