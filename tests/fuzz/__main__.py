"""python -m tests.fuzz threads | spark | inputs: see the package, and `tests.fuzz.inputs`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.fuzz import pool, runner
from tests.fuzz.conditions import SIZE
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw

#: Switches of known faults, off by `--without`.
SWITCHES = (*("endless_timers", "opaque_text", "wide_integers", "dictionary_sources", "views_beside_seq", "late", "equal_rows"),
            *("first_pushes", "dictionaries", "interrupts"))  # fmt: skip


def planned(options: argparse.Namespace) -> runner.Plan:
    draw, ways = Draw(conditions=options.conditions), Ways(compiled=options.compiled)
    for name in options.without:
        if hasattr(draw, name):
            draw = replace(draw, **{name: False})
        else:
            ways = replace(ways, **{name: False})
    if options.shapes:
        draw = replace(draw, shapes=tuple(options.shapes))
    flags = f" --conditions {options.conditions}" if options.conditions != SIZE else ""
    flags += f" --compiled {options.compiled}" if options.compiled != SIZE else ""
    flags += f" --without {' '.join(options.without)}" if options.without else ""
    flags += f" --shapes {' '.join(options.shapes)}" if options.shapes else ""
    return runner.Plan(options.seed, draw, ways, flags)


def main(given: list[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    if given[:1] == ["inputs"]:
        from tests.fuzz.inputs import run

        return run.main(given[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("executor", choices=("threads", "spark"))
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--case", type=int, help="just this one, in this process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=3, help="Spark: cases that run at once in the session")
    parser.add_argument("--conditions", type=int, default=SIZE, help="how many of the pool's conditions")
    parser.add_argument("--compiled", type=int, default=SIZE, help="how many of these are compiled, not run as Python")
    parser.add_argument("--without", nargs="*", default=[], choices=SWITCHES, help="kinds of cases to leave out")
    parser.add_argument("--shapes", nargs="*", help="kinds of queries: join asof spans counts operator dag rows chain")
    options = parser.parse_args(given)
    plan = planned(options)
    if options.executor == "spark":
        from tests.fuzz import spark

        return spark.main(plan, options)
    cases = range(options.first, options.first + options.cases)
    if options.case is not None:
        cases = range(options.case, options.case + 1)
    found: list[int] = []
    done, began, said = 0, time.monotonic(), 0.0

    def each(case: int, difference: str | None) -> None:
        nonlocal done, said
        done += 1
        if difference is not None:
            found.append(case)
            sys.stdout.write(f"\n{difference}\n\n")
        if time.monotonic() - said > 10:
            said = time.monotonic()
            pool.progress(len(cases), began, done, len(found))

    pool.run(
        lambda case: runner.check(plan, case),
        cases,
        processes=0 if options.case is not None else options.processes,
        each=each,
    )
    pool.progress(len(cases), began, done, len(found))
    if found:
        sys.stdout.write(f"differences in cases {found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
