"""Joins against all pairs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import definitions as define
from tests import strategies
from tests.examples import examples
from tests.reference.conditions import CONDITIONS
from tests.reference.judge import Execute, assert_same, judge
from tests.strategies import Case, Given

import plait
from plait import LateError, PlaitError

EDGE = 2**62


@given(case=strategies.time_joins(hows=("inner",)))
def test_inner_join(case: Case, execute: Execute) -> None:
    judge(case, execute)


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
@given(data=st.data())
def test_other_joins(data: st.DataObject, how: str, execute: Execute) -> None:
    judge(data.draw(strategies.time_joins(hows=(how,))), execute)


@given(case=strategies.count_joins())
def test_count_window(case: Case, execute: Execute) -> None:
    judge(case, execute)


@given(case=strategies.tumbling_joins() | strategies.tumbling_count_joins())
def test_tumbling_window(case: Case, execute: Execute) -> None:
    judge(case, execute)


@given(case=strategies.asof_joins())
def test_asof(case: Case, execute: Execute) -> None:
    judge(case, execute)


@pytest.mark.parametrize("condition", CONDITIONS, ids=repr)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_forms_of_a_condition(data: st.DataObject, condition: Any, execute: Execute) -> None:
    """SQL text, traced and opaque functions of one condition, over the same rows."""
    left, right = data.draw(strategies.pairs_of_streams(max_rows=6, layouts=("one",)))
    how = data.draw(st.sampled_from(strategies.HOWS))
    for form in ("sql", "traced", "opaque"):
        if condition.has(form):
            judge(strategies.make_join(left, right, how, ("within", (2, 1)), condition, form), execute)


# --- late tuples --------------------------------------------------------------------------------------------


@given(given=strategies.streams("a", late="drop", layouts=("one", "text column", "names", "seq column")))
def test_late_tuples_are_dropped_with_a_word_or_refused(given: Given) -> None:
    strict = plait.stream("a", unit="us", source=given.stream.source, sources=given.stream.sources,
                          seq=given.stream.seq, disorder=given.stream.disorder_us)  # fmt: skip
    refusing = plait.aggregate(strict, size=1, compute={"n": plait.count()})
    dropping = plait.aggregate(given.stream, size=1, compute={"n": plait.count()})
    if not given.late:
        assert refusing.reference({"a": given.data}).num_rows == len(given.relation.tuples)
        return
    with pytest.raises(LateError, match="is late"):
        refusing.reference({"a": given.data})
    with pytest.warns(UserWarning, match=f"stream 'a': {len(given.late)} late tuples? dropped"):
        assert dropping.reference({"a": given.data}).num_rows == len(given.relation.tuples)


# --- examples to read ---------------------------------------------------------------------------------------


def marks(times: list[int], names: str) -> pa.Table:
    return pa.table({"ts": times, "of": list(names)})


def pairs(table: pa.Table) -> list[str]:
    """Each row as its ts and the marks of its tuples."""
    names = [n for n in table.schema.names if n.endswith("of")]
    return [f"{row['ts']}:" + "".join(row[n] or "-" for n in names) for row in table.to_pylist()]


A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")


def test_results_follow_the_trigger_then_the_partner() -> None:
    """At one ts the left input comes first, so of equal times the right tuple is the trigger."""
    table = plait.join(A, B, within=1).reference({"a": marks([1, 1, 2], "xyz"), "b": marks([1, 2], "mn")})
    assert pairs(table) == ["1:xm", "1:ym", "2:zm", "2:xn", "2:yn", "2:zn"]


def test_an_unmatched_row_follows_all_results_at_its_ts() -> None:
    data = {"a": marks([1, 3], "xy"), "b": marks([3, 4], "mn")}
    on = "l.of = 'y'"
    assert pairs(plait.join(A, B, on=on, within=(0, 2), how="left").reference(data)) == ["3:ym", "3:x-", "4:yn"]
    assert pairs(plait.join(A, B, on=on, within=(0, 2), how="anti").reference(data)) == ["3:x"]
    assert pairs(plait.join(A, B, on=on, within=(0, 2), how="semi").reference(data)) == ["3:y"]


def test_unmatched_rows_at_one_ts_come_by_input() -> None:
    """The left row x waits 1, to 5. The right row m waits 4, to 5, too: it is the older one, and comes after x all the same."""
    data = {"a": marks([4, 9], "xy"), "b": marks([1, 9], "mn")}
    on, within = "l.of = 'y' and r.of = 'n'", (4, 1)
    assert pairs(plait.join(A, B, on=on, within=within, how="right").reference(data)) == ["5:-m", "9:yn"]
    assert pairs(plait.join(A, B, on=on, within=within, how="full").reference(data)) == ["5:x-", "5:-m", "9:yn"]
    assert pairs(plait.join(A, B, on="false", within=within, how="full").reference(data)) == [
        "5:x-", "5:-m", "10:y-", "13:-n"
    ]  # fmt: skip


def test_a_tuple_meets_itself_unless_excluded() -> None:
    data = {"a": marks([1, 1, 2], "xyz")}
    assert pairs(plait.join(A, A, within=0).reference(data)) == ["1:xx", "1:yx", "1:xy", "1:yy", "2:zz"]
    assert pairs(plait.join(A, A, within=0, on="l.of <> r.of").reference(data)) == ["1:yx", "1:xy"]


def as_of(data: Any, right: Any = B, **options: Any) -> list[str]:
    return pairs(plait.asof(A, right, **options).reference(data))


def test_as_of_a_tuple_is_no_candidate_for_itself() -> None:
    data = {"a": marks([1, 1, 2], "xyz")}
    assert as_of(data, A) == ["1:xy", "1:yx", "2:zy"]
    assert as_of(data, A, exact=False) == ["1:x-", "1:y-", "2:zy"]
    assert as_of(data, A, direction="forward", within=3) == ["1:xy", "1:yx", "5:z-"]
    assert as_of(data, A, direction="forward", within=3, exact=False) == ["2:xz", "2:yz", "5:z-"]
    assert as_of(data, A, direction="nearest", within=3) == ["1:xy", "1:yx", "3:zy"]
    assert as_of(data, A, direction="nearest", within=3, exact=False) == ["2:xz", "2:yz", "3:zy"]


def test_as_of_a_tuple_of_the_same_query_is_itself() -> None:
    data = {"a": marks([1, 5], "xy")}
    one, equal = (plait.aggregate(A, size="1us", by="of", compute={"n": plait.count()}) for _ in range(2))
    assert plait.asof(one, one).reference(data)["right_of"].to_pylist() == [None, "x"]
    assert plait.asof(one, equal).reference(data)["right_of"].to_pylist() == [None, "x"]
    assert plait.asof(one, equal.named("other")).reference(data)["right_of"].to_pylist() == ["x", "y"]


def test_as_of_at_the_same_ts() -> None:
    """Ties go by total order: the last of those behind, the first of those ahead."""
    data = {"a": marks([5], "x"), "b": marks([5, 5, 7], "mno")}
    assert as_of(data) == ["5:xn"]
    assert as_of(data, exact=False) == ["5:x-"]
    assert as_of(data, direction="forward", within=9) == ["5:xm"]
    assert as_of(data, direction="forward", within=9, exact=False) == ["7:xo"]
    assert as_of(data, direction="nearest", within=9) == ["5:xn"]
    assert as_of(data, direction="nearest", within=9, exact=False) == ["7:xo"]


def test_as_of_has_the_ts_at_which_it_is_decided() -> None:
    """Results at one ts come in the order of their left tuples, whatever has decided them."""
    data = {"a": marks([4, 5, 6], "xyz"), "b": marks([2, 7, 8], "mno")}
    assert as_of(data, direction="forward", within=2) == ["6:x-", "7:yn", "7:zn"]
    assert as_of(data, direction="forward", within=2, how="inner") == ["7:yn", "7:zn"]
    assert as_of(data, direction="nearest", within=3) == ["6:xm", "7:yn", "7:zn"]
    # 3 and 7 are as far from 5: the one behind is taken, and that is known at 7.
    data["b"] = marks([3, 7, 8], "mno")
    assert as_of(data, direction="nearest", within=3) == ["5:xm", "7:ym", "7:zn"]
    data["b"] = marks([30], "m")
    assert as_of(data, direction="nearest", within=3) == ["7:x-", "8:y-", "9:z-"]


def test_sources_given_by_name_stand_in_the_order_of_their_names() -> None:
    """Where neither a column nor a declaration orders them: integers by size, also below zero."""
    data = {"a": {0: marks([1], "z"), -1: marks([1], "m"), 1: marks([1], "p")}, "b": marks([1], "-")}
    assert pairs(plait.join(A, B, within=0).reference(data)) == ["1:m-", "1:z-", "1:p-"]


@pytest.mark.parametrize("order", ["strict", "trigger", "none"])
def test_every_order_is_served(order: str) -> None:
    data = {"a": marks([1, 2], "xy"), "b": marks([1], "m")}
    assert pairs(plait.join(A, B, within=1).reference(data, order=order)) == ["1:xm", "2:ym"]


# --- the ends of time ---------------------------------------------------------------------------------------


def moments(*times: int) -> pa.Table:
    return pa.table({"ts": pa.array(times, pa.int64())})


def test_windows_reach_across_all_of_time() -> None:
    """Two tuples 2^63 us apart, and the longest window there is: half of it."""
    query = plait.join(A, B, within=EDGE)
    table = query.reference({"a": moments(-EDGE, EDGE), "b": moments(-EDGE, 0, EDGE)})
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (-EDGE, -EDGE, -EDGE), (0, -EDGE, 0), (EDGE, EDGE, 0), (EDGE, EDGE, EDGE),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["left", "anti"])
@pytest.mark.parametrize("ts", [EDGE, EDGE - 1, EDGE - 2])
def test_no_unmatched_row_is_lost_at_the_end_of_time(how: str, ts: int) -> None:
    """Its ts is l.ts + after, here about 2^63: if that is too much, an error says so; silence is no answer."""
    query = plait.join(A, B, within=EDGE, how=how)
    try:
        table = query.reference({"a": moments(ts), "b": moments()})
    except PlaitError:
        return
    assert table["ts"].to_pylist() == [ts + EDGE]


# --- types of time ------------------------------------------------------------------------------------------

DAY = 86_400_000_000
_DAYS = [0, 1, 1, 3, -2]

#: The same moments, counted in days, as every type a time column may have.
TIMES: dict[str, tuple[pa.Array, str | None, pa.DataType]] = {
    **{f"integer {unit}": (pa.array([d * n for d in _DAYS]), unit, pa.int64())
       for unit, n in (("s", 86_400), ("ms", 86_400_000), ("us", DAY), ("ns", DAY * 1000), ("day", 1))},
    **{f"naive {unit}": (pa.array([d * n for d in _DAYS]).cast(pa.timestamp(unit)), unit, pa.timestamp("us"))
       for unit, n in (("s", 86_400), ("ms", 86_400_000), ("us", DAY), ("ns", DAY * 1000))},
    **{f"zoned {unit}": (pa.array([d * n for d in _DAYS]).cast(pa.timestamp(unit, "Asia/Tokyo")), None,
                         pa.timestamp("us", "UTC"))
       for unit, n in (("s", 86_400), ("ms", 86_400_000), ("us", DAY), ("ns", DAY * 1000))},
    "date32": (pa.array(_DAYS, pa.int32()).cast(pa.date32()), "day", pa.int64()),
    "date64": (pa.array([d * 86_400_000 for d in _DAYS]).cast(pa.date64()), "day", pa.int64()),
    "int8 day": (pa.array(_DAYS, pa.int8()), "day", pa.int64()),
}  # fmt: skip


@pytest.mark.parametrize("kind", TIMES)
def test_moments_are_the_same_in_every_type(kind: str) -> None:
    times, unit, ts_type = TIMES[kind]
    schema = pa.schema([("ts", pa.int64()), ("of", pa.string())])
    relation, _ = define.stream(schema, {0: [(d * DAY, name) for d, name in zip(_DAYS, "abcde", strict=True)]},
                                disorder=5 * DAY)  # fmt: skip
    expected = define.join(relation, relation, define.within(2 * DAY, 0), lambda l, r: True, how="left", after=0)
    stream = plait.stream("a", unit=unit, disorder="5 days")
    query = plait.join(stream, stream, within=("2 days", 0), how="left")
    table = query.reference({"a": pa.table({"ts": times, "of": list("abcde")})})
    assert table.schema.field("ts").type == ts_type
    assert table.schema.field("left_ts").type == times.type
    shown = ["ts", "left_of", "right_of"]
    got = table.select(shown).set_column(0, "ts", table["ts"].cast(pa.int64()))
    assert_same(got, expected.table().select(shown))


def test_moments_of_two_types_meet_as_microseconds() -> None:
    a, b = plait.stream("a", unit="s"), plait.stream("b")
    zoned = pa.array([1_000_000, 2_500_000]).cast(pa.timestamp("us", "UTC"))
    table = plait.join(a, b, within="1s").reference({"a": pa.table({"ts": [1, 2]}), "b": pa.table({"ts": zoned})})
    assert table.schema.field("ts").type == pa.int64()
    assert table["ts"].to_pylist() == [1_000_000, 2_000_000, 2_500_000]
