"""How long a tuple takes through a gate: contenders of `gate`, each at the same rate, on the same data.

Latency counts from the moment when a tuple was due (`gate_pace`) to when the one reader has it, so readiness is in it: a tuple
waits until every source is past it. Contenders take turns, and every run is checked as `gate`'s are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from plait_bench.gate import CONTENDERS, Contender, expected, pass_through, streams


def latencies(
    sources: int, batch: int, rate: float, seconds: float, *, runs: int, contenders: Sequence[Contender] = CONTENDERS
) -> list[dict[str, Any]]:
    """How long a tuple takes from when it is due to when the one reader has it, at a rate that all contenders are given."""
    columns, seq = streams(sources, max(int(rate * seconds / sources), batch))
    gap_ns, answer = sources * 1e9 / rate, expected(columns)
    taken: dict[str, list[np.ndarray]] = {contender.name: [] for contender in contenders}
    for _ in range(runs):
        for contender in contenders:
            due_ns = time.monotonic_ns() + 5_000_000 + (seq * gap_ns).astype(np.int64)
            read_ns = np.zeros((sources, len(seq)), np.int64)
            pass_through(contender, columns, seq, 1, batch, answer, due_ns=due_ns, read_ns=read_ns)
            taken[contender.name].append((read_ns - due_ns) / 1e6)
    return [
        {
            "contender": name,
            "sources": sources,
            "batch": batch,
            "rate": rate,
            "mean_ms": statistics.median(float(ms.mean()) for ms in found),
            "p50_ms": statistics.median(float(np.median(ms)) for ms in found),
        }
        for name, found in taken.items()
    ]
