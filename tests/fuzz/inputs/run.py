"""python -m tests.fuzz inputs: many cases by hand, with what came of them."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.inputs import hammer
from tests.fuzz.inputs.hammer import Tally
from tests.fuzz.inputs.kinds import KINDS


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz inputs")
    parser.add_argument("--kind", nargs="*", default=list(KINDS), metavar="KIND", help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--cases", type=int, default=10_000, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--case", type=int, help="just this one, in this process")
    options = parser.parse_args(given)
    unknown = [name for name in options.kind if name not in KINDS]
    if unknown:
        parser.error(f"there is no kind {unknown[0]!r}: there are {', '.join(KINDS)}")
    if options.case is not None:
        for name in options.kind:
            outcome, words, value = hammer.one(KINDS[name], options.seed, options.case)
            sys.stdout.write(f"{name}: {outcome}\n{words}\ninput: {value!r}\n")
        return 0
    return 1 if sum([_many(name, options) for name in options.kind]) else 0


def _many(name: str, options: argparse.Namespace) -> int:
    """All cases of a kind, a line about them, and each kind of finding once."""
    tally, began = Tally(), time.monotonic()
    hammer.run(KINDS[name], options.seed, range(options.first, options.first + options.cases), tally)
    seconds = time.monotonic() - began
    counts = f"{tally.ran[hammer.TAKEN]:,} taken, {tally.ran[hammer.REFUSED]:,} refused"
    sys.stdout.write(
        f"{name}: {options.cases:,} inputs of seed {options.seed}, {counts}, {tally.times.total()} findings of "
        f"{len(tally.findings)} kinds, {options.cases / seconds:,.0f}/s\n"
    )
    for what, (case, words) in tally.findings.items():
        sys.stdout.write(
            f"  {tally.times[what]} x {what}\n{words}\n"
            f"  again: python -m tests.fuzz inputs --kind {name} --seed {options.seed} --case {case}\n"
        )
    sys.stdout.flush()
    return len(tally.findings)
