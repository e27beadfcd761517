"""A join by trying every pair: what process() must give, spelled out over positions of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from plait.core.join.window import JoinWindow
from plait.query.join import CountWindow, TimeWindow, TumblingCountWindow, TumblingWindow, Window


@dataclass(frozen=True)
class Run:
    """A merged, totally ordered run: which side each tuple is of, and each side's rows and times."""

    side: np.ndarray
    ts: tuple[np.ndarray, np.ndarray]
    batches: tuple[pa.RecordBatch, pa.RecordBatch]


def merged(left_ts: list[int], right_ts: list[int], left: pa.RecordBatch, right: pa.RecordBatch) -> Run:
    """At equal times left precedes right, as inputs are ordered."""
    every = sorted([(t, 0) for t in left_ts] + [(t, 1) for t in right_ts])
    side = np.array([s for _, s in every], np.uint8)
    return Run(side, (np.array(sorted(left_ts), np.int64), np.array(sorted(right_ts), np.int64)), (left, right))


def expected(run: Run, window: Window, matches: Callable[[int, int], bool]) -> list[tuple[int, int, int]]:
    """(trigger's position, left row, right row), by trigger, then partner."""
    out, seen = [], ([], [])  # type: ignore[var-annotated]
    for at, s in enumerate(run.side):
        row = len(seen[s])
        mine = int(run.ts[s][row])
        partners = seen[1 - s]
        for k, other in enumerate(partners):
            theirs = int(run.ts[1 - s][other])
            l_ts, r_ts = (mine, theirs) if s == 0 else (theirs, mine)
            if isinstance(window, TimeWindow):
                inside = -window.before_us <= r_ts - l_ts <= window.after_us
            elif isinstance(window, CountWindow):
                inside = k >= len(partners) - window.count
            elif isinstance(window, TumblingCountWindow):
                inside = k // window.count == (len(partners) - 1) // window.count
            else:
                assert isinstance(window, TumblingWindow)
                inside = l_ts // window.size_us == r_ts // window.size_us
            l, r = (row, other) if s == 0 else (other, row)
            if inside and matches(l, r):
                out.append((at, l, r))
        seen[s].append(row)
    return out


def processed(join: JoinWindow, run: Run, cuts: list[int]) -> list[tuple[int, int, int]]:
    """The same by process(), the run being cut into several at the given positions."""
    out, edges = [], [0, *sorted(cuts), len(run.side)]
    done = [0, 0]
    for begin, end in pairwise(edges):
        side = run.side[begin:end]
        counts = [int((side == s).sum()) for s in (0, 1)]
        parts = tuple(run.batches[s].slice(done[s], counts[s]) for s in (0, 1))
        ts = tuple(run.ts[s][done[s] : done[s] + counts[s]] for s in (0, 1))
        pairs = join.process(side, parts, ts)  # type: ignore[arg-type]
        out += list(zip((pairs.trigger + begin).tolist(), pairs.left.tolist(), pairs.right.tolist(), strict=True))
        done = [done[0] + counts[0], done[1] + counts[1]]
    return out
