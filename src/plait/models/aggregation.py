"""What multiway aggregation costs: four stages, which thread does which of them, and what that lets through.

V. Gulisano, Y. Nikolakopoulos, D. Cederman, M. Papatriantafilou, P. Tsigas, «Efficient data streaming multiway aggregation
through concurrent algorithmic designs and new abstract data types», ACM TOPC 4(2), 2017; sections 2, 3, 4 (figure 2), 5
(figures 3 to 6) and 7.3 (figures 8 to 12). The paper states costs in words and numbers no formula.

A tuple is *added* (fetched from its input), *merged* with the other inputs' by time, used to *update* the windows that it is
in, and results are *output* (section 3). Designs differ in who does what:

    design     input threads I_t      update threads U_t    output thread O_t
    mq         add                                          merge, update, output
    tuml_sc    add, merge                                   update, output
    tuml_mc    add, merge             update                output
    wiml       add, merge, update                           output

There are as many input threads as inputs, and one output thread. The slowest kind of threads sets the throughput (section 7.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Literal

from plait.errors import QueryError
from plait.models.checks import counted, not_negative, positive

__all__ = [
    "DESIGNS", "Costs", "Durations", "durations", "gate_merge", "queue_merge", "results_per_tuple", "windows_per_tuple",
]  # fmt: skip

#: The designs of figure 2; `mq` stands for the lock-free multi-queue too, whose stages have other costs.
DESIGNS = ("mq", "tuml_sc", "tuml_mc", "wiml")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The four stages of section 3, seconds a tuple that comes in.

    Attributes:
        add_s: Fetching it from its input.
        merge_s: Merging and sorting it with the other inputs' (S-Merge): `queue_merge` or `gate_merge`; 0 for `wiml`, which sorts
            nothing.
        update_s: Updating all windows it is in: `windows_per_tuple` times what one window costs.
        output_s: Producing results, a tuple's share of it: `results_per_tuple` times what one result costs.

    Raises:
        QueryError: A cost is below zero, or all are zero.

    Example:
        >>> from plait.models import aggregation
        >>> aggregation.Costs(add_s=1e-6, merge_s=2e-6, update_s=5e-6, output_s=1e-6).update_s
        5e-06
    """

    add_s: float
    merge_s: float
    update_s: float
    output_s: float

    def __post_init__(self) -> None:
        not_negative(add_s=self.add_s, merge_s=self.merge_s, update_s=self.update_s, output_s=self.output_s)
        positive(total=self.add_s + self.merge_s + self.update_s + self.output_s)


@dataclass(frozen=True, kw_only=True)
class Durations:
    """How long each kind of threads works on a tuple: what figures 8 and 10 show.

    Attributes:
        input_s: An input thread I_t, on a tuple of its own input; seconds.
        update_s: An update thread U_t, on any tuple; 0 where there are none; seconds.
        output_s: The output thread O_t, on any tuple; seconds.

    Raises:
        QueryError: A duration is below zero, or all are zero.

    Example:
        Section 7.3, WiML on 20 inputs: an input thread processes 22,000 tuples a second, the output thread 2 million.

        >>> from plait.models import aggregation
        >>> wiml = aggregation.Durations(input_s=1 / 22_000, output_s=1 / 2_000_000)
        >>> round(wiml.tuples_per_s(inputs=20))
        440000
    """

    input_s: float
    output_s: float
    update_s: float = 0.0

    def __post_init__(self) -> None:
        not_negative(input_s=self.input_s, update_s=self.update_s, output_s=self.output_s)
        positive(total=self.input_s + self.update_s + self.output_s)

    def tuples_per_s(self, inputs: int, updaters: int = 1, cores: int | None = None) -> float:
        """What comes through: the slowest kind of threads, section 7.3.

        Args:
            inputs: How many inputs there are, and so input threads.
            updaters: How many update threads there are; each sees every tuple.
            cores: Where there are fewer cores than threads, all work of a tuple is spread over them: a second bound, which the
                paper, with 24 hardware threads, does without. None: as the paper has it.

        Returns:
            Tuples a second of all inputs together.

        Raises:
            QueryError: A number of threads or cores is not at least 1.

        Example:
            >>> wiml.tuples_per_s(inputs=200) == 1 / wiml.output_s
            True
            >>> round(wiml.tuples_per_s(inputs=20, cores=2))
            43521
        """
        counted(inputs=inputs, updaters=updaters)
        slowest = max(self.input_s / inputs, self.update_s, self.output_s)
        if cores is not None:
            counted(cores=cores)
            work = self.input_s + self.update_s * updaters + self.output_s
            slowest = max(slowest, work / cores)
        return 1 / slowest

    def bottleneck(self, inputs: int) -> Literal["input", "update", "output"]:
        """Which threads are the slowest.

        Args:
            inputs: How many inputs there are, and so input threads.

        Returns:
            "input", "update" or "output"; of equal ones the last.

        Raises:
            QueryError: There is no input.

        Example:
            >>> wiml.bottleneck(inputs=20), wiml.bottleneck(inputs=200)
            ('input', 'output')
        """
        counted(inputs=inputs)
        slowest = max(self.input_s / inputs, self.update_s, self.output_s)
        if self.output_s == slowest:
            return "output"
        return "update" if self.update_s == slowest else "input"


def windows_per_tuple(size: float, advance: float) -> int:
    """How many windows a tuple is in: size / advance, rounded up, section 2.

    Args:
        size: The window's size WS, in any unit of time.
        advance: Its advance WA, in the same unit.

    Returns:
        Windows; of a size that is no multiple of the advance, what a tuple is in at most.

    Raises:
        QueryError: A number is not above zero.

    Example:
        Table 2's queries w and W.

        >>> from plait.models import aggregation
        >>> aggregation.windows_per_tuple(20, 2), aggregation.windows_per_tuple(40, 2)
        (10, 20)
    """
    positive(size=size, advance=advance)
    return max(1, ceil(size / advance))


def results_per_tuple(keys: int, advance_s: float, tuples_per_s: float) -> float:
    """How many results a tuple brings: a window closes every advance and gives one result a key, sections 2 and 7.3.

    Args:
        keys: Distinct values of the group-by parameter K that a window has.
        advance_s: The window's advance WA, seconds.
        tuples_per_s: Tuples a second of all inputs together.

    Returns:
        Results for each tuple that comes in.

    Raises:
        QueryError: A number is not above zero.

    Example:
        >>> from plait.models import aggregation
        >>> aggregation.results_per_tuple(keys=243, advance_s=3, tuples_per_s=8100)
        0.01
    """
    counted(keys=keys)
    positive(advance_s=advance_s, tuples_per_s=tuples_per_s)
    return keys / (advance_s * tuples_per_s)


def queue_merge(look_s: float, inputs: int) -> float:
    """S-Merge over one queue an input: linear in the inputs, section 3.

    Every queue's first tuple is looked at for every tuple that is taken. A lock-free skip list has the same cost, since it
    does not know which tuples are ready (sections 3 and 7.2).

    Args:
        look_s: Looking at one queue, seconds.
        inputs: How many inputs there are.

    Returns:
        Seconds a tuple.

    Raises:
        QueryError: The cost is below zero, or there is no input.

    Example:
        >>> from plait.models import aggregation
        >>> aggregation.queue_merge(look_s=2.0, inputs=20)
        40.0
    """
    not_negative(look_s=look_s)
    counted(inputs=inputs)
    return float(look_s * inputs)


def gate_merge(step_s: float, inputs: int) -> float:
    """S-Merge in a T-Gate: logarithmic, sections 3 and 5.1.

    An input goes on from its last tuple, so what it has to pass are the other inputs' tuples since then: about one each.

    Args:
        step_s: Passing one tuple's shortcut, seconds.
        inputs: How many inputs there are.

    Returns:
        Seconds a tuple; of a single input one step.

    Raises:
        QueryError: The cost is below zero, or there is no input.

    Example:
        >>> from plait.models import aggregation
        >>> aggregation.gate_merge(step_s=2.0, inputs=16), aggregation.queue_merge(look_s=2.0, inputs=16)
        (10.0, 32.0)
    """
    not_negative(step_s=step_s)
    counted(inputs=inputs)
    return step_s * (1 + log2(inputs))


def durations(design: str, costs: Costs, updaters: int = 1) -> Durations:
    """How long each kind of threads works on a tuple, by who does which stage: figure 2, figures 3 to 6.

    Args:
        design: One of `DESIGNS`.
        costs: Of the four stages.
        updaters: Update threads of `tuml_mc`. Each updates its own keys, so an n-th of the tuples, if keys are spread evenly.

    Returns:
        Seconds a tuple of input, update and output threads.

    Raises:
        QueryError: The design is none of these, or there is no update thread.

    Example:
        >>> from plait.models import aggregation
        >>> costs = aggregation.Costs(add_s=1.0, merge_s=2.0, update_s=8.0, output_s=1.0)
        >>> aggregation.durations("tuml_sc", costs)
        Durations(input_s=3.0, output_s=9.0, update_s=0.0)
        >>> aggregation.durations("tuml_mc", costs, updaters=4)
        Durations(input_s=3.0, output_s=1.0, update_s=2.0)
    """
    counted(updaters=updaters)
    add, merge, update, output = costs.add_s, costs.merge_s, costs.update_s, costs.output_s
    if design == "mq":
        return Durations(input_s=add, output_s=merge + update + output)
    if design == "tuml_sc":
        return Durations(input_s=add + merge, output_s=update + output)
    if design == "tuml_mc":
        return Durations(input_s=add + merge, update_s=update / updaters, output_s=output)
    if design == "wiml":
        return Durations(input_s=add + merge + update, output_s=output)
    raise QueryError(f"design={design!r} is no design", do=f"Use one of {', '.join(map(repr, DESIGNS))}")
