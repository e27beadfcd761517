"""What a study of the report is: one figure or table of a paper, measured here under its own label.

A study varies what its figure varies and says what it found in four forms: rows (all the data), panels (the picture, with the
paper's own points where its text has them), one sentence, and claims. A claim is a shape that the paper says its figure has,
decided from the rows by a rule that stands in the study: it holds or it does not. Absolute figures are this machine's and are
no claim.

A claim may need more cores than there are (`cores`) or more time than a quick run takes (`quick=False`); it is then shown and
not judged, and the report says so. A study one of whose claims failed is measured again, twice at most, before that is believed:
machines are shared, and a busy second makes any curve bend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeVar

Row = Mapping[str, Any]
Size = Literal["quick", "usual", "full"]
T = TypeVar("T")

#: The papers in the order of the report, by the names that labels begin with.
PAPERS = {
    "scalejoin": "ScaleJoin",
    "splitjoin": "SplitJoin",
    "dpjoin": "DP-Join",
    "stretch": "STRETCH",
    "aggregation": "Multiway aggregation",
}


@dataclass(frozen=True)
class Scale:
    """How much a study may do. It can be a key of a cache, so that figures that share a sweep measure it once.

    Attributes:
        size: `"quick"`, a look of about two seconds a study; `"usual"`, under a minute on two cores; `"full"`, as much data
            with as many workers as a machine with many cores has, in about as long.
        cores: Of this machine.
        attempt: 0, or how often a study was measured before: another key for caches.
    """

    size: Size = "usual"
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    attempt: int = 0

    def pick(self, quick: T, usual: T, full: T | None = None) -> T:
        """One of them by size. Without `full`, the usual one serves large machines too."""
        if self.size == "full" and full is not None:
            return full
        return quick if self.size == "quick" else usual

    def workers(self, *numbers: int, beyond: int = 2) -> tuple[int, ...]:
        """Those numbers of workers that are at most `beyond` times the cores."""
        return tuple(n for n in numbers if n <= beyond * self.cores)


@dataclass(frozen=True)
class Line:
    """A curve, or a group of bars. `published` points are the paper's; all others were measured here."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    published: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes of a figure. `x` and `y` say what they show, with its unit."""

    x: str
    y: str
    lines: Sequence[Line]
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    bars: bool = False


@dataclass(frozen=True)
class Claim:
    """A shape that the paper's figure has.

    Attributes:
        says: The shape in words.
        holds: Whether these rows have it.
        shown: The numbers that decide it.
        cores: How many cores it takes to show; with fewer it is not judged.
        quick: Whether a quick run can decide it.
        instead: Where it does not hold here for a reason that was measured: what differs and by which figure that is known. It is
            then reported as explained, and fails nothing.
    """

    says: str
    holds: bool
    shown: str
    cores: int = 1
    quick: bool = True
    instead: str = ""

    def verdict(self, scale: Scale) -> Literal["holds", "fails", "explained", "not judged"]:
        if scale.cores < self.cores or (scale.size == "quick" and not self.quick):
            return "not judged"  # it might hold, or not, by chance
        if self.holds:
            return "holds"
        return "explained" if self.instead else "fails"


@dataclass(frozen=True)
class Found:
    """What a study measured.

    Attributes:
        sentence: What it shows, in one sentence with its numbers.
        rows: All the data, flat.
        panels: The picture; none for a table.
        claims: The shapes, at least one.
        departs: What is different from the paper's experiment, and why.
    """

    sentence: str
    rows: Sequence[Row]
    claims: Sequence[Claim]
    panels: Sequence[Panel] = ()
    departs: str = ""


@dataclass(frozen=True)
class Study:
    """A figure or table, and the function that measures it.

    Attributes:
        paper: A key of `PAPERS`.
        label: `"figure 5"`, `"table 2"`: what the paper numbers it.
        title: What the figure shows, in our words.
        measure: Makes the runs.
        published: What the paper reports of it, in one sentence of ours with its numbers.
    """

    paper: str
    label: str
    title: str
    measure: Callable[[Scale], Found]
    published: str = ""

    @property
    def name(self) -> str:
        """As `--only` takes it: `scalejoin-5`, `stretch-table-2`."""
        return f"{self.paper}-{self.label.removeprefix('figure ').replace(' ', '-')}"


@dataclass(frozen=True)
class Outcome:
    """A study that was made: what is written down, line by line, and what the page is drawn from."""

    name: str
    paper: str
    label: str
    title: str
    published: str
    size: Size
    seconds: float
    tries: int
    machine: Mapping[str, Any]
    found: Found
    verdicts: Sequence[str]

    @property
    def failed(self) -> list[str]:
        """The claims that do not hold, with their numbers."""
        pairs = zip(self.found.claims, self.verdicts, strict=True)
        return [f"{claim.says}: {claim.shown}" for claim, verdict in pairs if verdict == "fails"]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Outcome:
        found = line["found"]
        panels = [Panel(**{**p, "lines": [Line(**each) for each in p["lines"]]}) for p in found["panels"]]
        claims = [Claim(**each) for each in found["claims"]]
        return cls(**{**line, "found": Found(**{**found, "panels": panels, "claims": claims})})


def rising(values: Sequence[float], tolerance: float = 0.0) -> bool:
    """Whether no value is below the one before it by more than that part of it."""
    return all(b >= a * (1 - tolerance) for a, b in pairwise(values))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent p of the power law y ~ x^p that fits best, in logarithms."""
    import numpy as np

    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])
