"""A cost model after STRETCH's section 8: how far virtual and pure shared-nothing parallelism scale.

Input threads hand tuples over, n processing threads process them, output threads merge what comes out; the slowest of
the three sets the rate. Pure shared-nothing routes: each tuple is copied to every processing thread that needs it, here
by an input thread for each (the paper has one for all), and the output thread merges n streams. Virtual shared-nothing
shares: all processing threads read one copy from a gate, and the merge is shared out among them; the price is
contention. Times are seconds a tuple:

    d_input, d_output     of the input and output threads, with one processing thread
    d_process             of one processing thread that does all the work; n of them take d_process / n each
    d_see                 what it costs a processing thread to see a tuple at all: both kinds broadcast here
    d_copy, d_share       what each further processing thread adds for the input threads: copying (pure), contention
                          (virtual)
    d_merge_...           what each further one adds for the output thread, times log2 n: (n - 1) log2 n in all

Where there are fewer cores than threads that are busy, all of the work of a tuple is spread over the cores: a second
bound, which the paper, with 36 cores, does without. The model as the paper has it, with n and n log n where this one
counts from the second thread on, and without d_see and cores, is `plait.models.stretch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    d_input: float
    d_process: float
    d_output: float
    d_see: float
    d_copy: float
    d_share: float
    d_merge_pure: float
    d_merge_virtual: float
    cores: int


@dataclass(frozen=True)
class Stages:
    """Seconds a tuple of each stage, with n processing threads; `input` is that of all `pushers` together."""

    input: float
    process: float
    output: float
    workers: int
    cores: int
    pushers: int = 1

    @property
    def tuples_per_s(self) -> float:
        return 1 / max(*self._stages.values(), self._work)

    @property
    def bottleneck(self) -> str:
        stages = self._stages
        slowest = max(stages, key=lambda name: stages[name])
        return slowest if self._work <= stages[slowest] else "cores"

    @property
    def _stages(self) -> dict[str, float]:
        return {"input": self.input / self.pushers, "processing": self.process, "output": self.output}

    @property
    def _work(self) -> float:
        return (self.input + self.process * self.workers + self.output) / self.cores


def virtual(costs: Costs, n: int) -> Stages:
    more = n - 1
    return Stages(
        costs.d_input + costs.d_share * more,
        costs.d_process / n + costs.d_see,
        costs.d_output + costs.d_merge_virtual * more * math.log2(max(n, 2)),
        n,
        costs.cores,
    )


def pure(costs: Costs, n: int) -> Stages:
    more = n - 1
    return Stages(
        costs.d_input + costs.d_copy * more,
        costs.d_process / n + costs.d_see,
        costs.d_output + costs.d_merge_pure * more * math.log2(max(n, 2)),
        n,
        costs.cores,
        pushers=n,
    )
