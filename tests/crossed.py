"""Of a test whose parameters are crossed, `make test` runs some sets; the soak runs all of them.

`@pytest.mark.crossed` says that its parameters are independent of one another: what goes wrong for a set does so, nearly always,
for one value of one of them. So every value of every parameter is run, and every fourth set besides, whichever it is. The other
sets are marked slow. Which these are follows from the order of the sets alone: the same ones every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BESIDES = 4


def left_to_the_soak(sets: Iterable[Mapping[str, Any]]) -> list[bool]:
    """Of each set of parameters whether it shows nothing for the first time, and is not a fourth one either."""
    seen: dict[str, list[Any]] = {}
    found = []
    for number, values in enumerate(sets):
        new = [name for name, value in values.items() if not any(value is other for other in seen.get(name, ()))]
        for name in new:
            seen.setdefault(name, []).append(values[name])
        found.append(not new and number % BESIDES != 0)
    return found
