"""ScaleJoin's bounds: how many comparisons a join costs, and what n processing threads can sustain.

V. Gulisano, Y. Nikolakopoulos, M. Papatriantafilou, P. Tsigas, «ScaleJoin: a Deterministic, Disjoint-Parallel and Skew-Resilient
Stream Join», IEEE Big Data 2015; section II («Computational cost of stream joins») and section VI («Bounds of expected results»).
The paper does not number its formulas. Its symbols:

    WS       window_s         the window, seconds
    T        tuples_per_s     tuples a second of one stream; R and S have the same rate
    C_max    c_max            comparisons a second that one processing thread makes at most
    T_max                     tuples a second of one stream that this thread sustains
    n        threads          processing threads

The rates that section VI reports (5,100 t/s for 4 billion c/s and 5 minutes) are of both streams together: twice T.
"""

from __future__ import annotations

from math import sqrt

from plait.models.checks import counted, positive

__all__ = ["comparisons", "max_comparisons", "max_tuples"]


def comparisons(window_s: float, tuples_per_s: float, other_per_s: float | None = None) -> float:
    """Comparisons a second of a join: 2 x WS x T², section II.

    Each window has rate x WS tuples, and every tuple is compared with the other stream's window. The paper has one rate for both
    streams; with two it is 2 x WS x T_R x T_S, as DP-Join's equation 3 has it too.

    Args:
        window_s: The window WS, in seconds.
        tuples_per_s: The rate T of either stream; of R, if `other_per_s` is given.
        other_per_s: The rate of S. None: the same.

    Returns:
        Comparisons a second.

    Raises:
        QueryError: A number is not above zero.

    Example:
        The paper's own: 10 minutes, 500 tuples a second.

        >>> from plait.models import scalejoin
        >>> scalejoin.comparisons(window_s=600, tuples_per_s=500)
        300000000.0
    """
    other = tuples_per_s if other_per_s is None else other_per_s
    positive(window_s=window_s, tuples_per_s=tuples_per_s, other_per_s=other)
    return 2.0 * window_s * tuples_per_s * other


def max_comparisons(c_max: float, threads: int = 1) -> float:
    """Comparisons a second of n threads at most: n x C_max, section VI.

    Args:
        c_max: What one processing thread makes, C_max, comparisons a second.
        threads: How many there are, n.

    Returns:
        Comparisons a second.

    Raises:
        QueryError: A number is not above zero.

    Example:
        >>> from plait.models import scalejoin
        >>> scalejoin.max_comparisons(c_max=100e6, threads=48)
        4800000000.0
    """
    positive(c_max=c_max)
    counted(threads=threads)
    return threads * float(c_max)


def max_tuples(c_max: float, window_s: float, threads: int = 1) -> float:
    """Tuples a second of each stream that n threads sustain: √n x T_max, T_max = √(C_max / (2 x WS)), section VI; the root law.

    Four times the threads carry twice the rate: windows grow with the rate, so comparisons grow with its square.

    Args:
        c_max: What one processing thread makes, C_max, comparisons a second.
        window_s: The window WS, in seconds.
        threads: How many there are, n.

    Returns:
        Tuples a second of one stream; both together bring twice as many.

    Raises:
        QueryError: A number is not above zero.

    Example:
        >>> from plait.models import scalejoin
        >>> one, four = (scalejoin.max_tuples(c_max=100e6, window_s=300, threads=n) for n in (1, 4))
        >>> round(one), round(four)
        (408, 816)
    """
    positive(c_max=c_max, window_s=window_s)
    counted(threads=threads)
    return sqrt(threads) * sqrt(c_max / (2.0 * window_s))
