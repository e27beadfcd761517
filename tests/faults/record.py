"""What came of the faults: a count for each kind, the differences in words, and the table."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

OUTCOMES = ("same", "refused", "differs")

#: So many differences of a run are printed.
SHOWN = 5


@dataclass
class Record:
    """Of one run of the harness, with one seed.

    Attributes:
        seed: Every fault is drawn from it.
        most: A kind stops after so many faults of its own.
        until: A kind stops at this moment of `time.monotonic`, too.
    """

    seed: int
    most: int
    until: float = float("inf")
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    def tell(self, kind: str, outcome: str, words: str = "") -> None:
        """One fault of a kind and what came of it; `words` say of a difference how to see it again."""
        found = self.counts.setdefault(kind, dict.fromkeys(OUTCOMES, 0))
        found[outcome] += 1
        if outcome == "differs":
            self.differences.append(f"{kind}: {words}")
            if len(self.differences) <= SHOWN:
                sys.stdout.write(f"\nDIFFERS {kind}: {words[:3000]}\n")

    def injected(self, *kinds: str) -> int:
        """How many faults of these kinds there were so far; of none named, of all."""
        return sum(sum(found.values()) for kind, found in self.counts.items() if not kinds or kind in kinds)

    def goes_on(self, *kinds: str) -> bool:
        """Whether there are more faults of these kinds to come."""
        return self.injected(*kinds) < self.most and time.monotonic() < self.until

    def table(self) -> str:
        """In Markdown."""
        lines = [
            "| kind | injected | same bytes | refused by name | bytes that differ | seed |",
            "|---|---|---|---|---|---|",
        ]
        total = dict.fromkeys(OUTCOMES, 0)
        for kind, found in self.counts.items():
            lines.append(self._line(kind, found, str(self.seed)))
            total = {name: total[name] + found[name] for name in OUTCOMES}
        return "\n".join([*lines, self._line("all", total, "")])

    @staticmethod
    def _line(kind: str, found: dict[str, int], seed: str) -> str:
        injected = sum(found.values())
        return f"| {kind} | {injected:,} | {found['same']:,} | {found['refused']:,} | {found['differs']:,} | {seed} |"
