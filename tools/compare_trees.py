"""DP-Join in two source trees by turns: `python tools/compare_trees.py OTHER [rounds] [cases ...]`.

OTHER is a folder with `src` and `benchmarks`: a worktree of another commit, or a copy of this one that was changed. Each tree
has a process of its own, that stays. Both join the same tuples, the papers' band join with few results, in cases such as
grid-2x2 (index and layout), one after the other; who begins changes from round to round. Both must find the same number of
results. Printed are the medians of both, and the median of the rounds' ratios, this tree's time by the other's, with the middle
half of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CASES = [f"{index}-{layout}" for index in ("scan", "grid") for layout in ("2x1", "1x2", "2x2", "4x1")]
CHILD = """
import json, sys
from plait_bench.band import data, query
from plait_bench.join_runs import flat_out
given = {"scan": (query(60, 2), data(400, 600)), "grid": (query(300, 2), data(500, 1600))}
for line in sys.stdin:
    index, rows, columns = json.loads(line)
    made = flat_out(*given[index], index=index, strategy="dpjoin", workers=rows * columns, layout=(rows, columns))
    print(json.dumps([made.seconds, made.table.num_rows]), flush=True)
"""


class Tree:
    """A source tree, and the process that runs joins of it."""

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join(str(folder / name) for name in ("src", "benchmarks"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD], env={**os.environ, "PYTHONPATH": path}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def join(self, case: str) -> tuple[float, int]:
        """Seconds, and the number of results."""
        index, layout = case.split("-")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([index, *map(int, layout.split("x"))]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"A tree's process has ended with {self._process.wait()}: see what it printed")
        seconds, results = json.loads(answer)
        return seconds, results


def main() -> None:
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    trees = Tree(HERE), Tree(Path(sys.argv[1]).resolve())
    for case in sys.argv[3:] or CASES:
        found = {tree.join(case)[1] for tree in trees}  # untimed: something may have to be compiled
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            for k in (0, 1) if number % 2 else (1, 0):
                seconds, results = trees[k].join(case)
                times[k].append(seconds)
                found.add(results)
        if len(found) > 1:
            raise SystemExit(f"{case}: the trees found {sorted(found)} results")
        ratios = sorted(own / other for own, other in zip(*times, strict=True))
        middle = ratios[rounds // 4], ratios[-1 - rounds // 4]
        own, other = map(statistics.median, times)
        print(f"{case}: {own:.3f} s, the other {other:.3f} s; ratio {statistics.median(ratios):.3f}, "
              f"half of the rounds between {middle[0]:.3f} and {middle[1]:.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
