"""SplitJoin's latencies beside those of low-latency handshake join: equations 1 to 6.

M. Najafi, M. Sadoghi, H.-A. Jacobsen, «SplitJoin: A Scalable, Low-latency Stream Join Architecture with Adjustable Ordering
Precision», USENIX ATC 2016; section 6. Definition 3: *processing latency* is the time until a tuple has been compared with
all of the other window and all results are produced. Definition 4: *visiting latency* is the time until two tuples are
compared. Symbols:

    k        cores            join cores
    w        sub_window       tuples of one core's sub-window
    b, c     fan_out, fan_in  branching of the distribution tree and of the result gathering tree
    T_CL     hop_s            handing a tuple from one node to the next, seconds
    T_ML     monitor_s        looking after tuples in flight between two cores of handshake join, seconds
    T_P      comparison_s     comparing one pair, seconds
    T_Col    collect_s        collecting all results, seconds

Depths are log_b k as the paper has them, not rounded to whole levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log

from plait.errors import QueryError
from plait.models.checks import counted, not_negative

__all__ = [
    "depth", "handshake_processing_latency", "handshake_visiting_latency", "processing_latency", "processing_latency_by_core",
    "processing_latency_by_path", "visiting_latency",
]  # fmt: skip


def depth(cores: int, fan_out: int) -> float:
    """Levels of a tree over k cores: log_b k, as equations 4 to 6 have it.

    Args:
        cores: Join cores, k.
        fan_out: Children of a node, b (or c, of the gathering tree).

    Returns:
        Levels; no whole number, where k is no power of b.

    Raises:
        QueryError: There is no core, or a node has fewer than two children.

    Example:
        >>> from plait.models import splitjoin
        >>> splitjoin.depth(cores=16, fan_out=2), splitjoin.depth(cores=16, fan_out=4)
        (4.0, 2.0)
    """
    counted(cores=cores)
    counted(2, fan_out=fan_out)
    return log(cores) / log(fan_out)


def handshake_processing_latency(
    cores: int, sub_window: int, hop_s: float, monitor_s: float, comparison_s: float, collect_s: float
) -> float:
    """Processing latency of low-latency handshake join, equation 1: T_CL + (k - 1) x (T_CL + T_ML) + w x T_P + T_Col.

    Linear in the cores: a tuple is passed on from core to core.

    Args:
        cores: Join cores, k.
        sub_window: Tuples of a core's sub-window, w.
        hop_s: Handing a tuple to the next core, T_CL, seconds.
        monitor_s: Looking after tuples in flight, T_ML, seconds.
        comparison_s: Comparing one pair, T_P, seconds.
        collect_s: Collecting the results, T_Col, seconds.

    Returns:
        Seconds.

    Raises:
        QueryError: A cost is below zero, or there is no core.

    Example:
        >>> from plait.models import splitjoin
        >>> splitjoin.handshake_processing_latency(cores=5, sub_window=1000, hop_s=2, monitor_s=1, comparison_s=0.5, collect_s=10)
        524.0
    """
    counted(cores=cores, sub_window=sub_window)
    not_negative(hop_s=hop_s, monitor_s=monitor_s, comparison_s=comparison_s, collect_s=collect_s)
    return float(hop_s + (cores - 1) * (hop_s + monitor_s) + sub_window * comparison_s + collect_s)


def handshake_visiting_latency(
    cores: int, sub_window: int, hop_s: float, monitor_s: float, comparison_s: float
) -> float:
    """Mean visiting latency of low-latency handshake join, equation 2: T_CL + ⌈(k - 1) / 2⌉ x (T_CL + T_ML) + (w / 2) x T_P.

    Two tuples meet at the middle of the chain, in the mean. The brackets around (k - 1) / 2 are not legible in the text that
    plait was written from; they are read as rounding up. For an odd number of cores that makes no difference.

    Args:
        cores: Join cores, k.
        sub_window: Tuples of a core's sub-window, w.
        hop_s: Handing a tuple to the next core, T_CL, seconds.
        monitor_s: Looking after tuples in flight, T_ML, seconds.
        comparison_s: Comparing one pair, T_P, seconds.

    Returns:
        Seconds.

    Raises:
        QueryError: A cost is below zero, or there is no core.

    Example:
        >>> from plait.models import splitjoin
        >>> splitjoin.handshake_visiting_latency(cores=5, sub_window=1000, hop_s=2, monitor_s=1, comparison_s=0.5)
        258.0
    """
    counted(cores=cores, sub_window=sub_window)
    not_negative(hop_s=hop_s, monitor_s=monitor_s, comparison_s=comparison_s)
    return hop_s + ceil((cores - 1) / 2) * (hop_s + monitor_s) + sub_window / 2 * comparison_s


def processing_latency_by_path(
    paths: Sequence[Sequence[float]], sub_window: int, comparison_s: Sequence[float], collect_s: float
) -> float:
    """Processing latency of SplitJoin whatever its tree, equation 3: max over cores i of (Σ_j T_C[i, j] + w x T_P[i]) + T_Col.

    Args:
        paths: For each core, what each hop of its way down costs, T_C of path i at depth j, seconds.
        sub_window: Tuples of a core's sub-window, w.
        comparison_s: For each core, comparing one pair, T_P of core i, seconds.
        collect_s: Collecting the results, T_Col, seconds.

    Returns:
        Seconds.

    Raises:
        QueryError: A cost is below zero, or there are not as many paths as cores.

    Example:
        The second core's last hop is slow.

        >>> from plait.models import splitjoin
        >>> splitjoin.processing_latency_by_path([[1, 1], [1, 5]], sub_window=10, comparison_s=[2, 2], collect_s=3)
        29.0
    """
    if len(paths) != len(comparison_s) or not paths:
        raise QueryError(
            f"{len(paths)} paths and {len(comparison_s)} costs of a comparison",
            why="every join core has one of each",
            do="Give as many of one as of the other, and at least one",
        )
    counted(sub_window=sub_window)
    for cost in (collect_s, *comparison_s, *(hop for path in paths for hop in path)):
        not_negative(cost=cost)
    slowest = max(sum(path) + sub_window * each for path, each in zip(paths, comparison_s, strict=True))
    return float(slowest + collect_s)


def processing_latency_by_core(
    hop_s: Sequence[float], fan_out: int, sub_window: int, comparison_s: Sequence[float], collect_s: float
) -> float:
    """Processing latency of SplitJoin, equal hops on a path, equation 4: max over i of (T_C[i] x log_b k + w x T_P[i]) + T_Col.

    Args:
        hop_s: For each core, what one hop of its path costs, T_C of path i, seconds.
        fan_out: Children of a node of the distribution tree, b.
        sub_window: Tuples of a core's sub-window, w.
        comparison_s: For each core, comparing one pair, T_P of core i, seconds.
        collect_s: Collecting the results, T_Col, seconds.

    Returns:
        Seconds.

    Raises:
        QueryError: A cost is below zero, or there are not as many hops as cores.

    Example:
        >>> from plait.models import splitjoin
        >>> splitjoin.processing_latency_by_core([1, 1, 1, 3], fan_out=2, sub_window=10, comparison_s=[2] * 4, collect_s=3)
        29.0
    """
    if not hop_s:
        raise QueryError(
            "hop_s is empty", why="a join has at least one core", do="Give the cost of a hop for each core"
        )
    levels = depth(len(hop_s), fan_out)
    return processing_latency_by_path([[each * levels] for each in hop_s], sub_window, comparison_s, collect_s)


def processing_latency(
    cores: int, sub_window: int, hop_s: float, comparison_s: float, fan_out: int = 2, fan_in: int = 2
) -> float:
    """Processing latency of SplitJoin with equal cores and hops, equation 5: T_CL x log_b k + w x T_P + T_CL x log_c k.

    Logarithmic in the cores, as long as a core's sub-window stays as large as it is.

    Args:
        cores: Join cores, k.
        sub_window: Tuples of a core's sub-window, w.
        hop_s: Handing a tuple to the next node, T_CL, seconds.
        comparison_s: Comparing one pair, T_P, seconds.
        fan_out: Children of a node of the distribution tree, b.
        fan_in: Children of a node of the result gathering tree, c; the paper's is a 2-ary one.

    Returns:
        Seconds.

    Raises:
        QueryError: A cost is below zero, there is no core, or a node has fewer than two children.

    Example:
        >>> from plait.models import splitjoin
        >>> splitjoin.processing_latency(cores=16, sub_window=1000, hop_s=2, comparison_s=0.5)
        516.0
    """
    counted(sub_window=sub_window)
    not_negative(hop_s=hop_s, comparison_s=comparison_s)
    return hop_s * depth(cores, fan_out) + sub_window * comparison_s + hop_s * depth(cores, fan_in)


def visiting_latency(cores: int, sub_window: int, hop_s: float, comparison_s: float, fan_out: int = 2) -> float:
    """Mean visiting latency of SplitJoin, equation 6: T_CL x log_b k + (w / 2) x T_P.

    Args:
        cores: Join cores, k.
        sub_window: Tuples of a core's sub-window, w.
        hop_s: Handing a tuple to the next node, T_CL, seconds.
        comparison_s: Comparing one pair, T_P, seconds.
        fan_out: Children of a node of the distribution tree, b.

    Returns:
        Seconds.

    Raises:
        QueryError: A cost is below zero, there is no core, or a node has fewer than two children.

    Example:
        >>> from plait.models import splitjoin
        >>> splitjoin.visiting_latency(cores=16, sub_window=1000, hop_s=2, comparison_s=0.5)
        258.0
    """
    counted(sub_window=sub_window)
    not_negative(hop_s=hop_s, comparison_s=comparison_s)
    return hop_s * depth(cores, fan_out) + sub_window / 2 * comparison_s
