"""Which index serves a condition, decided by its terms and by what is observed, and why (for `explain`).

    equality                hash; with bands and long chains, a grid keyed by the equality
    two bands               2-D grid
    one band                1-D grid
    inequality              sorted chunks
    anything else           blocked scan

Short windows are scanned: a few hundred comparisons cost less than one walk. Where probes spend their budgets (one hot
key, one crowded box, a band wider than the data) the index rests for a growing number of batches and is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plait.core.condition.leaves import Shape
from plait.core.condition.terms import Band
from plait.errors import QueryError

KINDS = ("auto", "scan", "hash", "grid", "sorted")
SCAN_BELOW = 1024  # rows in a probe's range
CHAIN_LONG = 12  # steps a probe, beyond which a key alone tells too little
REST_LONGEST = 64


def dimensions(shape: Shape) -> tuple[Band, ...]:
    """The bands an index may use: the two narrowest, or one inequality."""
    found = shape.terms
    return found.bands[:2] or found.inequalities[:1]


def possible(shape: Shape) -> tuple[str, ...]:
    """Every index that can serve a condition, the usual choice first.

    Any of these gives the same pairs; the choice is one of speed alone, which tests/core/join/test_indexes.py holds.
    """
    found, kinds = shape.terms, []
    if found.equalities:
        kinds.append("hash")
    if found.bands:
        kinds.append("grid")
    if found.bands or found.inequalities:
        kinds.append("sorted")
    return (*kinds, "scan")


def check_index(index: str, shape: Shape) -> None:
    """For the option `index=`: an unknown name, or an index that the condition has no term for, is a `QueryError`."""
    if index not in KINDS:
        raise QueryError(f"index={index!r} is no index", do=f"Use one of {', '.join(KINDS)}")
    if index != "auto" and index not in possible(shape):
        raise QueryError(
            f"index={index!r} can't serve this condition",
            why="it holds no " + {"hash": "equality", "grid": "band", "sorted": "band or inequality"}[index],
            do=f"Use one of {', '.join(possible(shape))}, or leave the choice to plait",
        )


@dataclass
class Choice:
    """The present choice for probes into one side's window.

    `kind` is the index that is meant to serve, `why` the reason for the last decision, in words. `rest` counts batches
    that are scanned until the index is tried again; `next_rest` is how many it will be the next time: 1, 2, 4 ... up to
    REST_LONGEST. `switched`: a hash has made way for a grid, which happens once.
    """

    shape: Shape
    forced: str = "auto"
    kind: str = ""
    why: str = "nothing has been probed yet"
    rest: int = 0  # batches still to be scanned
    next_rest: int = 1
    switched: bool = field(default=False)

    def __post_init__(self) -> None:
        self.kind = possible(self.shape)[0] if self.forced == "auto" else self.forced

    def pick(self, rows_per_probe: float) -> str:
        """The index for the next batch of probes.

        `rows_per_probe` is how many rows of the window a probe's range has on average: what a scan would cost.
        """
        if self.forced != "auto":
            self.why = "it was asked for (index=)"
            return self.forced
        if self.kind == "scan":
            self.why = "no term of the condition serves an index"
            return "scan"
        if rows_per_probe < SCAN_BELOW:
            self.why = f"a probe meets {rows_per_probe:.0f} rows: too few for an index"
            return "scan"
        if self.rest > 0:
            self.rest -= 1
            self.why = f"most probes of the {self.kind} index met more rows than a scan is worth"
            return "scan"
        self.why = f"a probe would meet {rows_per_probe:.0f} rows by scanning"
        return self.kind

    def observe(self, probes: int, over: int, steps: int) -> None:
        """What the last batch cost on the index.

        `probes` were asked, `over` of them gave up, `steps` rows were looked at. If more than a quarter gave up, the
        index rests.
        """
        if self.forced != "auto" or probes == 0:
            return
        if self.kind == "hash" and not self.switched and self.shape.terms.bands and steps > CHAIN_LONG * probes:
            self.kind, self.switched = "grid", True
            return
        if 4 * over > probes:
            self.rest, self.next_rest = self.next_rest, min(2 * self.next_rest, REST_LONGEST)
        else:
            self.next_rest = 1
