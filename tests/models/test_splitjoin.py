"""SplitJoin's equations 1 to 6: what follows from one another, and the numbers of its section 7."""

from __future__ import annotations

import pytest

from plait.errors import QueryError
from plait.models import splitjoin

#: 28 join cores over windows of 2^21 tuples (figures 12 and 16): one core's sub-window of each.
CORES = 28
SUB_WINDOW = 2**21 // CORES
#: 4,400 tuples a second (both streams) are what 28 cores sustain; each compares every tuple with its sub-window.
COMPARISON = 1 / (4400 * SUB_WINDOW)


def test_the_window_that_4400_tuples_a_second_fill() -> None:
    """«... an input rate of 4400 tuples/second, which roughly translates to window sizes of 2^21 for each stream», 15 minutes."""
    filled = 4400 / 2 * 15 * 60
    assert filled == pytest.approx(2**21, rel=0.06)


def test_equation_1_term_by_term() -> None:
    made = splitjoin.handshake_processing_latency(
        CORES, SUB_WINDOW, hop_s=1e-5, monitor_s=1e-6, comparison_s=COMPARISON, collect_s=2e-3
    )
    assert made == pytest.approx(1e-5 + 27 * 1.1e-5 + SUB_WINDOW * COMPARISON + 2e-3)


def test_equation_2_meets_in_the_middle_of_the_chain() -> None:
    assert splitjoin.handshake_visiting_latency(5, 100, 1.0, 0.5, 0.0) == 1 + 2 * 1.5
    assert splitjoin.handshake_visiting_latency(1, 100, 1.0, 0.5, 0.1) == 1 + 5


def test_equations_3_4_and_5_are_one_where_cores_and_hops_are_equal() -> None:
    """«Assuming the communication times are roughly equal» gives 4, «homogeneous cores» and T_Col split up give 5."""
    hop, gather = 2e-6, 2e-6 * splitjoin.depth(16, 2)
    by_path = splitjoin.processing_latency_by_path([[hop] * 4] * 16, SUB_WINDOW, [COMPARISON] * 16, gather)
    by_core = splitjoin.processing_latency_by_core([hop] * 16, 2, SUB_WINDOW, [COMPARISON] * 16, gather)
    assert by_path == pytest.approx(by_core)
    assert by_core == pytest.approx(splitjoin.processing_latency(16, SUB_WINDOW, hop, COMPARISON))


def test_the_slowest_core_decides() -> None:
    slow = [COMPARISON] * 15 + [10 * COMPARISON]
    many = splitjoin.processing_latency_by_core([0.0] * 16, 2, SUB_WINDOW, slow, 0.0)
    assert many == pytest.approx(10 * SUB_WINDOW * COMPARISON)


def test_equation_5_has_a_tree_at_either_end() -> None:
    assert splitjoin.processing_latency(16, 1, 1.0, 0.0, fan_out=2, fan_in=4) == pytest.approx(4 + 2)


def test_equation_6_is_half_a_window_behind_the_tree() -> None:
    made = splitjoin.visiting_latency(CORES, SUB_WINDOW, 1e-3, COMPARISON, fan_out=4)
    assert made == pytest.approx(1e-3 * splitjoin.depth(CORES, 4) + SUB_WINDOW / 2 * COMPARISON)


def test_one_grows_with_the_logarithm_and_the_other_with_the_cores() -> None:
    """Section 7.1: at 4 cores both are alike, and the gap widens; O(log_b k) against O(k) with sub-windows of one size."""
    hop = 1e-3

    def split(cores: int) -> float:
        return splitjoin.visiting_latency(cores, SUB_WINDOW, hop, COMPARISON)

    def handshake(cores: int) -> float:
        return splitjoin.handshake_visiting_latency(cores, SUB_WINDOW, hop, 0.0, COMPARISON)

    assert split(8) - split(4) == pytest.approx(split(32) - split(16)) == pytest.approx(hop)
    assert handshake(64) - handshake(32) == pytest.approx(2 * (handshake(32) - handshake(16)))
    assert handshake(4) / split(4) < 1.6
    assert 2.5 < handshake(CORES) / split(CORES) < 4  # 3.3 in figure 13: 8.1 ms and 26 ms


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(QueryError, match="fan_out=1"):
        splitjoin.depth(8, 1)
    with pytest.raises(QueryError, match="2 paths and 1 costs"):
        splitjoin.processing_latency_by_path([[1], [1]], 1, [1], 0)
    with pytest.raises(QueryError, match="hop_s is empty"):
        splitjoin.processing_latency_by_core([], 2, 1, [], 0)
    with pytest.raises(QueryError, match="cost=-1"):
        splitjoin.processing_latency_by_path([[-1]], 1, [1], 0)
