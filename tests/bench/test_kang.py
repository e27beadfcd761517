"""Both orders of the three-step procedure, on ScaleJoin's example (section II, figure 1) and on the band join.

The figure is a picture; what the text says of it is held here: the window is 4, t1 and t4 are compared though 5 apart, and t2 is
purged by t5, so that t3, were it to come after t5, would miss it. The ts below are the least that agree with that.
"""

from __future__ import annotations

import functools

import pyarrow as pa
import pytest

from plait_bench import band, kang
from plait_bench.kang import Tuple, compared

SIZE_US = 4
#: name -> its stream and ts
FIGURE_1 = {"t1": Tuple(0, 1), "t2": Tuple(1, 2), "t3": Tuple(0, 4), "t4": Tuple(1, 6), "t5": Tuple(1, 7)}
IN_ORDER = ("t1", "t2", "t3", "t4", "t5")


def pairs(tuples: dict[str, Tuple], names: tuple[str, ...], order: kang.Order) -> set[tuple[str, str]]:
    """Who is compared with whom, the earlier one's name first."""
    by_number = [[name for name in names if tuples[name].side == side] for side in (0, 1)]
    return {
        (by_number[1 - side][other], by_number[side][number])
        for side, number, others in compared((tuples[name] for name in names), SIZE_US, order=order)
        for other in others
    }


def test_figure_1_in_the_original_order() -> None:
    # t1 and t4 are 5 apart, t1 and t5 6: no R tuple has come since that would have purged t1.
    assert pairs(FIGURE_1, IN_ORDER, "original") == {
        ("t1", "t2"), ("t2", "t3"), ("t1", "t4"), ("t3", "t4"), ("t1", "t5"), ("t3", "t5"),
    }  # fmt: skip


def test_figure_1_in_the_changed_order() -> None:
    assert pairs(FIGURE_1, IN_ORDER, "changed") == {("t1", "t2"), ("t2", "t3"), ("t3", "t4"), ("t3", "t5")}


@pytest.mark.parametrize("order", ["original", "changed"])
def test_a_late_tuple_misses_who_was_purged(order: kang.Order) -> None:
    """Section III's example: t3 after t5. Either order needs tuples that are ready; the changed one purges by t3's own ts."""
    late = ("t1", "t2", "t4", "t5", "t3")
    assert (("t2", "t3") in pairs(FIGURE_1, late, order)) == (order == "changed")


def test_an_unrelated_tuple_takes_a_pair_away_in_the_original_order() -> None:
    # One more tuple of t1's stream, just before t4: it purges t1, which t4 would have been compared with.
    more = {**FIGURE_1, "other": Tuple(0, 6)}
    names = ("t1", "t2", "t3", "other", "t4", "t5")

    def without_it(order: kang.Order) -> set[tuple[str, str]]:
        return {pair for pair in pairs(more, names, order) if "other" not in pair}

    assert pairs(FIGURE_1, IN_ORDER, "original") - without_it("original") == {("t1", "t4"), ("t1", "t5")}
    assert without_it("changed") == pairs(FIGURE_1, IN_ORDER, "changed")


def test_the_changed_order_is_every_pair_of_the_window() -> None:
    tuples = {f"t{k}": Tuple(k * k % 3 % 2, 3 * k + k % 2) for k in range(40)}
    names = tuple(tuples)
    expected = {
        (one, two) for at, two in enumerate(names) for one in names[:at]
        if tuples[one].side != tuples[two].side and tuples[two].ts_us - tuples[one].ts_us <= SIZE_US
    }  # fmt: skip
    assert pairs(tuples, names, "changed") == expected
    assert pairs(tuples, names, "original") > expected


@functools.cache
def streams() -> dict[str, pa.Table]:
    return band.data(20, 30)


def test_the_band_join_by_the_changed_order_is_plait_s() -> None:
    results = band.query(within_s=5, band=400).reference(streams())
    assert kang.band_join(streams(), 5_000_000, order="changed", band=400).results == results.num_rows > 50


def test_the_orders_differ_by_few_of_a_steady_stream_s_pairs() -> None:
    """Between two tuples of a stream little time passes: its window is purged soon."""
    original, changed = (kang.band_join(streams(), 5_000_000, order=order) for order in ("original", "changed"))
    assert changed.comparisons < original.comparisons < 1.02 * changed.comparisons
