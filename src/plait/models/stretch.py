"""STRETCH's section 8: how far virtual shared-nothing parallelism scales, and how far pure shared-nothing does.

H. Najdataei, Y. Nikolakopoulos, M. Papatriantafilou, P. Tsigas, V. Gulisano, «STRETCH: Scalable and Elastic Deterministic
Streaming Analysis with Virtual Shared-Nothing Parallelism», DEBS 2019; section 8 with table 1 and figure 3. The paper does
not number its formulas.

Input threads hand tuples over, n processing threads process them, output threads merge what comes out; the slowest of the
three sets the rate. *Pure* shared-nothing (P_SN) routes tuples to threads and merges n streams of results. *Virtual*
shared-nothing (V_SN) shares them through a gate; the price is contention. Symbols, seconds a tuple:

    d^I, d^P, d^O    input_s, process_s, output_s    of one input, processing and output thread
    d^R_n, P_SN      route_s                         routing to n threads; a coefficient: times n
    d^C_n, V_SN      contend_s                       synchronization and congestion with n threads; a coefficient: times n
    d^M_n, P_SN      merge_pure_s                    merging the results of n threads; a coefficient: times n log2 n
    d^M_n, V_SN      merge_virtual_s                 the same through a gate
    d^P_n            process_s / n + see_s           of each of n processing threads; see_s in V_SN alone

Table 1 writes log(n) without a base. It is 2: with it the model breaks even at 6 and 11 threads, as figure 3 has it; with e
virtual parallelism would go on to 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Literal

from plait.errors import QueryError
from plait.models.checks import counted, not_negative, positive

__all__ = ["TABLE_1", "Costs", "Kind", "Stages", "stages", "scales_to", "virtual_scales_better"]

#: Virtual or pure shared-nothing parallelism, V_SN or P_SN.
Kind = Literal["virtual", "pure"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The variables of section 8, seconds a tuple.

    Attributes:
        input_s: Of an input thread, d^I.
        process_s: Of a processing thread that does all the work, d^P; each of n takes an n-th.
        output_s: Of an output thread, d^O.
        route_s: Routing tuples, P_SN: d^R_n is this times n.
        contend_s: Synchronization and congestion at the gate, V_SN: d^C_n is this times n.
        merge_pure_s: Merging results in order, P_SN: d^M_n is this times n log2 n.
        merge_virtual_s: Merging results in order, V_SN: d^M_n is this times n log2 n.
        see_s: What each processing thread pays for every tuple, its own or another's, V_SN. The paper allows for it («extra-costs
            incurred by T^P's threads to chose which tuples to process»); table 1 has none.

    Raises:
        QueryError: A cost is below zero, or there is nothing to process.

    Example:
        >>> from plait.models import stretch
        >>> stretch.Costs(input_s=1e-6, process_s=16e-6, output_s=1e-6).route_s
        0.0
    """

    input_s: float
    process_s: float
    output_s: float
    route_s: float = 0.0
    contend_s: float = 0.0
    merge_pure_s: float = 0.0
    merge_virtual_s: float = 0.0
    see_s: float = 0.0

    def __post_init__(self) -> None:
        positive(process_s=self.process_s)
        not_negative(input_s=self.input_s, output_s=self.output_s, route_s=self.route_s, contend_s=self.contend_s)
        not_negative(merge_pure_s=self.merge_pure_s, merge_virtual_s=self.merge_virtual_s, see_s=self.see_s)


#: Table 1 with d^I for the unit of time: d^P = 16 d^I, d^O = d^I, d^R = 0.1 d^I n, d^C = 0.01 d^I n, and
#: d^M = 0.1 d^I n log n (P_SN) or 0.01 d^I n log n (V_SN).
TABLE_1 = Costs(
    input_s=1.0, process_s=16.0, output_s=1.0, route_s=0.1, contend_s=0.01, merge_pure_s=0.1, merge_virtual_s=0.01
)


@dataclass(frozen=True)
class Stages:
    """What each of the three kinds of threads needs for a tuple, with n processing threads. Figure 3 draws their inverses.

    Attributes:
        input_s: Of an input thread: d^I + d^R_n, or d^I + d^C_n; seconds.
        process_s: Of each processing thread: d^P_n; seconds.
        output_s: Of an output thread: d^O + d^M_n; seconds.

    Example:
        >>> from plait.models import stretch
        >>> stretch.stages("pure", stretch.TABLE_1, 4)
        Stages(input_s=1.4, process_s=4.0, output_s=1.8)
    """

    input_s: float
    process_s: float
    output_s: float

    @property
    def tuples_per_s(self) -> float:
        """What comes through: the inverse of the slowest stage."""
        return 1 / max(self.input_s, self.process_s, self.output_s)

    def on_cores(self, threads: int, cores: int, inputs: int = 1) -> float:
        """What comes through where there are fewer cores than busy threads: a second bound, which the paper does without.

        Args:
            threads: Processing threads, n.
            cores: Cores that input, processing and output threads share.
            inputs: Input threads, if `input_s` is what one of so many adds to a tuple.

        Returns:
            Tuples a second: of the slowest stage, or of all work of a tuple spread over the cores.

        Raises:
            QueryError: There is no thread, no core, or no input.

        Example:
            >>> stretch.stages("pure", stretch.TABLE_1, 4).on_cores(threads=4, cores=2)
            0.10416666666666667
        """
        counted(threads=threads, cores=cores, inputs=inputs)
        work = self.input_s * inputs + self.process_s * threads + self.output_s
        return min(self.tuples_per_s, cores / work)

    @property
    def bottleneck(self) -> Literal["input", "processing", "output"]:
        """Which threads are the slowest; the processing ones, where others are just as slow."""
        if self.process_s >= max(self.input_s, self.output_s):
            return "processing"
        return "input" if self.input_s >= self.output_s else "output"


def stages(kind: Kind, costs: Costs, threads: int) -> Stages:
    """The costs of the three stages with n processing threads, section 8.

    Args:
        kind: "virtual" (V_SN) or "pure" (P_SN).
        costs: The machine's and the operator's.
        threads: Processing threads, n.

    Returns:
        Seconds a tuple of each stage.

    Raises:
        QueryError: The kind is none of these, or there is no thread.

    Example:
        >>> from plait.models import stretch
        >>> stretch.stages("virtual", stretch.TABLE_1, 16).bottleneck
        'output'
    """
    counted(threads=threads)
    if kind not in ("virtual", "pure"):
        raise QueryError(f"kind={kind!r} is no kind of parallelism", do="Use 'virtual' or 'pure'")
    hand_over = costs.contend_s if kind == "virtual" else costs.route_s
    merge = costs.merge_virtual_s if kind == "virtual" else costs.merge_pure_s
    return Stages(
        costs.input_s + hand_over * threads,
        costs.process_s / threads + (costs.see_s if kind == "virtual" else 0.0),
        costs.output_s + merge * threads * log2(threads),
    )


def scales_to(kind: Kind, costs: Costs, limit: int = 4096) -> int:
    """The break-even point: the highest n whose processing threads are still the slowest stage, section 8.

    Beyond it another processing thread makes the others slower and nothing faster.

    Args:
        kind: "virtual" (V_SN) or "pure" (P_SN).
        costs: The machine's and the operator's.
        limit: Where to stop looking: threads that there are at most.

    Returns:
        Processing threads; 0 where even one of them waits for the other stages.

    Raises:
        QueryError: The kind is none of these, or the limit is no number of threads.

    Example:
        Figure 3's break-even points.

        >>> from plait.models import stretch
        >>> stretch.scales_to("pure", stretch.TABLE_1), stretch.scales_to("virtual", stretch.TABLE_1)
        (6, 11)
    """
    counted(limit=limit)
    threads = 0
    while threads < limit and stages(kind, costs, threads + 1).bottleneck == "processing":
        threads += 1
    return threads


def virtual_scales_better(costs: Costs, threads: int) -> bool:
    """Whether n threads lie where virtual parallelism scales and pure does not, by section 8's last pair of inequalities.

    d^I + d^C_n < d^P_n < d^I + d^R_n and d^O + d^M_n (virtual) < d^P_n < d^O + d^M_n (pure). It is enough and not needed:
    with table 1 it holds for 9 to 11 threads, and virtual parallelism lets more through from 7 on, where only pure's output
    is too slow.

    Args:
        costs: The machine's and the operator's.
        threads: Processing threads, n.

    Returns:
        True where both inequalities hold.

    Raises:
        QueryError: There is no thread.

    Example:
        >>> from plait.models import stretch
        >>> [n for n in range(1, 20) if stretch.virtual_scales_better(stretch.TABLE_1, n)]
        [9, 10, 11]
    """
    pure, virtual = stages("pure", costs, threads), stages("virtual", costs, threads)
    needed = virtual.process_s
    return virtual.input_s < needed < pure.input_s and virtual.output_s < needed < pure.output_s
