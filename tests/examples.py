"""How often what is random is tried: of what a test asks for, a sixth in `make test` (6 at least), four times all in the soak.

The rule: *what `make test` leaves out is repetition.* Every property and every scenario runs there; the soak draws others, and
more of them. Where a scenario is run for several parameters at once: `tests.crossed`.
`make soak` sets PLAIT_SOAK to 1; a higher number makes it so many times longer.
"""

from __future__ import annotations

import os

SOAK = int(os.environ.get("PLAIT_SOAK", "0"))


def examples(count: int) -> int:
    return 4 * count * SOAK if SOAK else max(6, count // 6)
