"""python -m tests.faults --seed S --faults N --kinds ...: see the package."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import sys
import time
from collections.abc import Iterator

from tests.faults.kinds import GROUPS, KINDS
from tests.faults.record import Record


@contextlib.contextmanager
def watched(seconds: float) -> Iterator[None]:
    """A kind that hangs ends the process, and says where it stood."""
    assert sys.__stderr__ is not None
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--faults", type=int, help="of each kind; without it the short form, which has its own number of each"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="a kind injects nothing more after so long")
    parser.add_argument("--kinds", nargs="+", default=["all"], metavar="KIND", help="kinds, or groups of them")
    parser.add_argument("--list", action="store_true", help="name the kinds and the groups")
    options = parser.parse_args(given)
    if options.list:
        for group, names in GROUPS.items():
            sys.stdout.write(f"{group}: {' '.join(names)}\n")
        return 0
    names = [name for word in options.kinds for name in GROUPS.get(word, (word,))]
    if unknown := [name for name in names if name not in KINDS]:
        parser.error(f"there is no kind {', '.join(unknown)}: --list names them")
    whole = Record(options.seed, 0)
    for name in dict.fromkeys(names):
        most = KINDS[name].short if options.faults is None else options.faults
        if most == 0:
            continue
        record = Record(options.seed, most, time.monotonic() + 60 * options.minutes)
        began = time.monotonic()
        with watched(1200 + 60 * min(options.minutes, 600)):
            KINDS[name].inject(name, record)
        sys.stdout.write(f"{name}: {record.injected():,} faults in {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()
        whole.counts |= record.counts
        whole.differences += record.differences
    sys.stdout.write(whole.table() + "\n")
    return 1 if whole.differences else 0


if __name__ == "__main__":
    sys.exit(main())
