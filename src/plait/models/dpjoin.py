"""DP-Join's bandwidth, optimal parallelism and latency: equations 1 to 9.

D. Buono, T. De Matteis, G. Mencagli, «A High-Throughput and Low-Latency Parallelization of Window-based Stream Joins on
Multicores», IEEE ISPA 2014; sections 3.3.3, 4, 5.2 and 5.3. Equation 1 says what the maximum bandwidth depends on and has no
formula of its own; equation 4 is it for a join. Symbols:

    λx, λy     rate_x, rate_y   tuples a second of the streams X (left) and Y (right)
    Tw         window_s         the window, seconds
    Wx, Wy                      tuples of a window: λ Tw
    p          hit_rate         how many of all comparisons find a pair, 0 to 1
    Ton        comparison_s     evaluating the condition on one pair, seconds
    m, n       rows, columns    workers: X's window is partitioned among rows, Y's among columns
    B          bandwidth        joined pairs a second (the paper writes tuples/sec)
    Nopt                        the fewest workers that reach the maximum bandwidth
"""

from __future__ import annotations

from math import ceil, isqrt
from typing import Literal

from plait.errors import QueryError
from plait.models.checks import counted, not_negative, positive, share

__all__ = [
    "Layout", "best_layout", "joined", "max_bandwidth", "mean_latency", "offered_bandwidth", "optimal_workers", "result_latency",
    "scalability", "slower_latency", "stream_latency", "symmetric_latency",
]  # fmt: skip

#: The shapes of DP-Join: m x 1, m x n with both at least 2, and m x m.
Layout = Literal["linear", "rectangular", "square"]


def result_latency(produced_s: float, x_s: float, y_s: float) -> float:
    """Latency of one result, equation 2: t_r - max(t_x, t_y).

    Args:
        produced_s: When the result was produced, t_r, seconds.
        x_s: When the tuple of X came, t_x, seconds.
        y_s: When the tuple of Y came, t_y, seconds.

    Returns:
        Seconds.

    Raises:
        QueryError: The result was produced before its later tuple came.

    Example:
        >>> from plait.models import dpjoin
        >>> dpjoin.result_latency(produced_s=10.5, x_s=8.0, y_s=10.0)
        0.5
    """
    if produced_s < max(x_s, y_s):
        raise QueryError(
            f"A result at {produced_s} s of tuples at {x_s} s and {y_s} s",
            why="a result comes after both of its tuples",
            do="Take all three times from one clock",
        )
    return produced_s - max(x_s, y_s)


def joined(rate_x: float, rate_y: float, window_s: float, hit_rate: float, seconds: float) -> float:
    """Pairs that are joined in an interval, equation 3: Ω = [λx (t1 - t0) Wy + λy (t1 - t0) Wx] p = 2 λx λy (t1 - t0) Tw p.

    Args:
        rate_x: Tuples a second of X, λx.
        rate_y: Tuples a second of Y, λy.
        window_s: The window Tw, seconds.
        hit_rate: How many of all comparisons find a pair, p.
        seconds: The interval's length, t1 - t0.

    Returns:
        Pairs.

    Raises:
        QueryError: A number is not above zero, or the hit rate is none.

    Example:
        >>> from plait.models import dpjoin
        >>> dpjoin.joined(rate_x=10, rate_y=20, window_s=5, hit_rate=0.5, seconds=3)
        3000.0
    """
    positive(rate_x=rate_x, rate_y=rate_y, window_s=window_s, seconds=seconds)
    share(hit_rate=hit_rate)
    return 2.0 * rate_x * rate_y * seconds * window_s * hit_rate


def max_bandwidth(rate_x: float, rate_y: float, window_s: float, hit_rate: float) -> float:
    """Pairs a second that the streams give, if workers keep up: equation 4 (and 1 for a join), B_max = 2 λx λy Tw p.

    Args:
        rate_x: Tuples a second of X, λx.
        rate_y: Tuples a second of Y, λy.
        window_s: The window Tw, seconds.
        hit_rate: How many of all comparisons find a pair, p.

    Returns:
        Pairs a second.

    Raises:
        QueryError: A number is not above zero, or the hit rate is none.

    Example:
        Section 5.2.1: two streams of 2,100 tuples a second, 300 seconds, p = 3.6 · 10⁻⁶.

        >>> from plait.models import dpjoin
        >>> round(dpjoin.max_bandwidth(2100, 2100, 300, 3.6e-6))
        9526
    """
    return joined(rate_x, rate_y, window_s, hit_rate, 1.0)


def scalability(bandwidth: float, of_one: float) -> float:
    """Scalability, equation 5: S = B of m x n workers / B of one worker.

    Args:
        bandwidth: Pairs a second of m x n workers.
        of_one: Pairs a second of one worker.

    Returns:
        How many times as much; m x n is perfect.

    Raises:
        QueryError: A number is not above zero.

    Example:
        >>> from plait.models import dpjoin
        >>> dpjoin.scalability(bandwidth=6200, of_one=1550)
        4.0
    """
    positive(bandwidth=bandwidth, of_one=of_one)
    return bandwidth / of_one


def offered_bandwidth(rows: int, columns: int, comparison_s: float, hit_rate: float) -> float:
    """Pairs a second that m x n workers find at most, equation 6: B = m n p / Ton.

    Of any layout with as many workers: it holds below the optimal parallelism degree.

    Args:
        rows: Rows of workers, m.
        columns: Columns of workers, n.
        comparison_s: Evaluating the condition on one pair, Ton, seconds.
        hit_rate: How many of all comparisons find a pair, p.

    Returns:
        Pairs a second.

    Raises:
        QueryError: A number is not above zero, or the hit rate is none.

    Example:
        >>> from plait.models import dpjoin
        >>> round(dpjoin.offered_bandwidth(rows=2, columns=3, comparison_s=2.32e-9, hit_rate=3.6e-6))
        9310
    """
    counted(rows=rows, columns=columns)
    positive(comparison_s=comparison_s)
    share(hit_rate=hit_rate)
    return rows * columns * hit_rate / comparison_s


def optimal_workers(
    rate_x: float, rate_y: float, window_s: float, comparison_s: float, layout: Layout = "linear"
) -> int:
    """The optimal parallelism degree N_opt: the fewest workers whose output rate is the maximum bandwidth, section 3.3.3.

    Equations 4 and 6 set equal: m n = 2 λx λy Tw Ton, in which the hit rate cancels. A square layout needs a square number, a
    rectangular one a number that is no prime.

    Args:
        rate_x: Tuples a second of X, λx.
        rate_y: Tuples a second of Y, λy.
        window_s: The window Tw, seconds.
        comparison_s: Evaluating the condition on one pair, Ton, seconds.
        layout: "linear" (m x 1), "rectangular" (m x n, both at least 2) or "square" (m x m).

    Returns:
        Workers.

    Raises:
        QueryError: A number is not above zero, or the layout is none of these.

    Example:
        Figure 6 with p / Ton = 1,550 pairs a second of one worker.

        >>> from plait.models import dpjoin
        >>> [dpjoin.optimal_workers(2100, 2100, 300, 3.6e-6 / 1550, shape) for shape in ("linear", "rectangular", "square")]
        [7, 8, 9]
    """
    positive(comparison_s=comparison_s)
    workers = max(1, ceil(joined(rate_x, rate_y, window_s, 1.0, comparison_s)))
    if layout == "linear":
        return workers
    if layout == "square":
        side = isqrt(workers)
        return workers if side * side == workers else (side + 1) ** 2
    if layout == "rectangular":
        while not any(workers % side == 0 for side in range(2, isqrt(workers) + 1)):
            workers += 1
        return workers
    raise QueryError(f"layout={layout!r} is no layout", do="Use 'linear', 'rectangular' or 'square'")


def stream_latency(other_window: float, comparison_s: float, parts: int) -> float:
    """Mean latency of the tuples of one stream, equation 7: L^x ≈ Wy Ton / (2 n).

    A tuple of X is compared by the n workers of its row, each with a part of Y's window; a partner lies in its middle, in the
    mean. The paper's sum gives half a comparison more, (Wy / n + 1) Ton / 2, and drops it.

    Args:
        other_window: Tuples of the other stream's window: Wy for a tuple of X, Wx for one of Y.
        comparison_s: Evaluating the condition on one pair, Ton, seconds.
        parts: Into how many parts that window is cut: n columns for Y's, m rows for X's.

    Returns:
        Seconds.

    Raises:
        QueryError: A number is not above zero.

    Example:
        >>> from plait.models import dpjoin
        >>> dpjoin.stream_latency(other_window=100, comparison_s=0.5, parts=5)
        5.0
    """
    not_negative(other_window=other_window)
    positive(comparison_s=comparison_s)
    counted(parts=parts)
    return other_window * comparison_s / (2 * parts)


def mean_latency(
    rate_x: float,
    rate_y: float,
    window_s: float,
    comparison_s: float,
    rows: int,
    columns: int,
    share_x: float | None = None,
) -> float:
    """Mean latency of m x n workers, equation 8: L = px L^x + py L^y.

    Args:
        rate_x: Tuples a second of X, λx.
        rate_y: Tuples a second of Y, λy.
        window_s: The window Tw, seconds.
        comparison_s: Evaluating the condition on one pair, Ton, seconds.
        rows: Rows of workers, m: into how many parts X's window is cut.
        columns: Columns of workers, n: into how many parts Y's window is cut.
        share_x: How many of the tuples are of X, px; py is the rest. None: by the rates.

    Returns:
        Seconds.

    Raises:
        QueryError: A number is not above zero, or the share is no probability.

    Example:
        With shares by the rates, m and n can be swapped whatever the rates are: more tuples of Y, each with fewer comparisons.

        >>> from plait.models import dpjoin
        >>> three, five = (dpjoin.mean_latency(1000, 3000, 300, 2.32e-9, *shape) for shape in ((3, 5), (5, 3)))
        >>> round(three * 1e3, 3), round(five * 1e3, 3)
        (0.139, 0.139)
    """
    positive(rate_x=rate_x, rate_y=rate_y, window_s=window_s)
    counted(rows=rows, columns=columns)
    of_x = rate_x / (rate_x + rate_y) if share_x is None else share_x
    share(share_x=of_x)
    latency_x = stream_latency(rate_y * window_s, comparison_s, columns)
    latency_y = stream_latency(rate_x * window_s, comparison_s, rows)
    return of_x * latency_x + (1 - of_x) * latency_y


def symmetric_latency(tuples_per_s: float, window_s: float, comparison_s: float, rows: int, columns: int) -> float:
    """Mean latency of m x n workers with equal rates, equation 9: L = λ Ton Tw (m + n) / (4 m n).

    The paper prints a factor p behind (m + n). It does not follow from equations 7 and 8, in which p cancels, and with it the
    latency of figure 8 would be about a nanosecond where a millisecond was measured. It is left out here.

    Args:
        tuples_per_s: Tuples a second of either stream, λ.
        window_s: The window Tw, seconds.
        comparison_s: Evaluating the condition on one pair, Ton, seconds.
        rows: Rows of workers, m.
        columns: Columns of workers, n.

    Returns:
        Seconds.

    Raises:
        QueryError: A number is not above zero.

    Example:
        Of layouts with as many workers the square one has the least: it has the least m + n.

        >>> from plait.models import dpjoin
        >>> [round(dpjoin.symmetric_latency(1000, 300, 2.32e-9, *shape) * 1e3, 3) for shape in ((4, 4), (2, 8), (16, 1))]
        [0.087, 0.109, 0.185]
    """
    positive(tuples_per_s=tuples_per_s, window_s=window_s, comparison_s=comparison_s)
    counted(rows=rows, columns=columns)
    return tuples_per_s * comparison_s * window_s * (rows + columns) / (4 * rows * columns)


def slower_latency(
    rate_x: float, rate_y: float, window_s: float, comparison_s: float, rows: int, columns: int
) -> float:
    """The larger of L^x and L^y, each by equation 7: what plait lays out by, where the paper only appeals to intuition.

    Section 5.3.2 says of streams with different rates that the mean (equation 8) no longer tells, and that a rectangular layout
    balances both windows. Balanced they are where the slower of the two kinds of tuples is as fast as it can be.

    Args:
        rate_x: Tuples a second of X, λx.
        rate_y: Tuples a second of Y, λy.
        window_s: The window Tw, seconds.
        comparison_s: Evaluating the condition on one pair, Ton, seconds.
        rows: Rows of workers, m.
        columns: Columns of workers, n.

    Returns:
        Seconds.

    Raises:
        QueryError: A number is not above zero.

    Example:
        >>> from plait.models import dpjoin
        >>> [round(dpjoin.slower_latency(1000, 3000, 300, 2.32e-9, *shape) * 1e3, 3) for shape in ((3, 5), (5, 3))]
        [0.209, 0.348]
    """
    positive(rate_x=rate_x, rate_y=rate_y, window_s=window_s)
    latency_x = stream_latency(rate_y * window_s, comparison_s, columns)
    latency_y = stream_latency(rate_x * window_s, comparison_s, rows)
    return max(latency_x, latency_y)


def best_layout(workers: int, rate_x: float, rate_y: float) -> tuple[int, int]:
    """The layout m x n with the least `slower_latency`; of equal ones the squarer, sections 4.3 and 5.3.

    Args:
        workers: How many workers there are, m n.
        rate_x: Tuples a second of X, λx.
        rate_y: Tuples a second of Y, λy.

    Returns:
        Rows and columns, (m, n).

    Raises:
        QueryError: A number is not above zero.

    Example:
        Figure 9's streams, of 1,000 and 3,000 tuples a second; and equal ones.

        >>> from plait.models import dpjoin
        >>> dpjoin.best_layout(15, 1000, 3000), dpjoin.best_layout(16, 1000, 1000)
        ((3, 5), (4, 4))
    """
    counted(workers=workers)
    shapes = [(rows, workers // rows) for rows in range(1, workers + 1) if workers % rows == 0]
    return min(shapes, key=lambda shape: (slower_latency(rate_x, rate_y, 1.0, 1.0, *shape), abs(shape[0] - shape[1])))
