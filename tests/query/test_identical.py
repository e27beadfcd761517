"""What «identical» means: values and their order, and nothing about how they are cut."""

import math
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.order import encode
from plait.query.identical import KEY, Difference, difference, digest

VALUES = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), "v": [0.5, None, math.nan], "s": ["a", None, ""]})


@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4))
def test_chunks_do_not_count(cuts: list[int], others: list[int]) -> None:
    def cut(table: pa.Table, at: list[int]) -> pa.Table:
        edges = [0, *sorted(at), len(table)]
        return pa.concat_tables(table.slice(a, b - a) for a, b in pairwise(edges))

    assert digest(cut(VALUES, cuts)) == digest(cut(VALUES, others))
    assert difference(cut(VALUES, cuts), cut(VALUES, others)) is None


def test_what_lies_under_a_null_does_not_count() -> None:
    buffers = [pa.py_buffer(bytes([0b101])), pa.py_buffer(bytes([1, 99, 3]))]
    dirty = pa.table({"v": pa.Array.from_buffers(pa.int8(), 3, buffers)})
    clean = pa.table({"v": pa.array([1, None, 3], pa.int8())})
    assert digest(dirty) == digest(clean)


def test_how_text_is_packed_does_not_count() -> None:
    plain = pa.table({"s": pa.array(["a", "b", "a"])})
    packed = pa.table({"s": pa.array(["a", "b", "a"]).dictionary_encode()})
    other = pa.table({"s": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), ["b", "a"])})
    assert digest(packed) == digest(other)
    assert difference(packed, other) is None
    assert difference(plain, packed) is not None  # of another type
    lists = [pa.table({"s": pa.ListArray.from_arrays([0, 1, 3], t["s"].combine_chunks())}) for t in (packed, other)]
    assert difference(*lists) is None
    views = pa.table({"s": pa.array(["a text that is too long to be inline", "", None], pa.string_view())})
    assert difference(views, pa.concat_tables([views.slice(0, 1), views.slice(1)])) is None
    changed = pa.table({"s": pa.array(["a text that is too long to be inline", "b", None], pa.string_view())})
    assert difference(views, changed) == Difference(1, "row", "{'s': ''}", "{'s': 'b'}")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("v", [0.5, 0.0, math.nan]),
        ("v", [0.5, None, 0.0]),
        ("v", [0.5 + 2**-53, None, math.nan]),
        ("s", ["a", "", ""]),
        ("ts", [1, 2, 4]),
    ],
)
def test_the_first_row_that_differs_is_shown(column: str, values: list[object]) -> None:
    at = VALUES.column_names.index(column)
    got = VALUES.set_column(at, column, pa.array(values, VALUES.schema.field(column).type))
    row = next(i for i in range(3) if not VALUES.slice(i, 1).column(column).equals(got.slice(i, 1).column(column)))
    found = difference(VALUES, got)
    assert found is not None
    assert (found.what, found.row) == ("row", row if column != "v" or values[2] else 2)
    assert found.expected != found.got


def test_zeros_have_a_sign() -> None:
    found = difference(pa.table({"v": [0.0]}), pa.table({"v": [-0.0]}))
    assert found is not None
    assert (found.expected, found.got) == ("{'v': 0.0}", "{'v': -0.0}")


def test_moments_beyond_python_s_years_are_shown_as_numbers() -> None:
    one, other = (pa.table({"ts": pa.array([2**62, at], pa.timestamp("us", "UTC"))}) for at in (2**61, -(2**62)))
    assert difference(one, other) == Difference(1, "row", f"{{'ts': {2**61}}}", f"{{'ts': {-(2**62)}}}")
    assert difference(one, one.slice(0, 1)) == Difference(1, "number of rows", f"{{'ts': {2**61}}}", "no row")


def test_missing_and_extra_rows() -> None:
    fewer = difference(VALUES, VALUES.slice(0, 2))
    assert fewer is not None
    assert (fewer.row, fewer.what, fewer.got) == (2, "number of rows", "no row")
    more = difference(VALUES.slice(0, 2), VALUES)
    assert more is not None
    assert (more.row, more.expected) == (2, "no row")
    assert difference(VALUES.slice(0, 0), VALUES.slice(3)) is None


def test_columns_are_compared_first() -> None:
    found = difference(VALUES, VALUES.rename_columns(["ts", "w", "s"]))
    assert found is not None
    assert (found.row, found.what) == (None, "columns")


# --- looser orders ------------------------------------------------------------------------------------------


def keyed(*pairs: tuple[int, int]) -> pa.Table:
    """Rows with the keys of join results: a trigger's and a partner's."""
    keys = [encode(((trigger, 0, 0, 1), (partner, 1, 0, 1))) for trigger, partner in pairs]
    return pa.table({"t": [t for t, _ in pairs], "p": [p for _, p in pairs], KEY: pa.array(keys, pa.binary())})


STRICT = keyed((1, 0), (2, 0), (2, 1), (3, 2))


def test_trigger_order_leaves_partners_open() -> None:
    swapped = keyed((1, 0), (2, 1), (2, 0), (3, 2))
    assert difference(STRICT, swapped, "trigger") is None
    assert difference(STRICT, swapped, "none") is None
    assert difference(STRICT, swapped) is not None


def test_triggers_stay_in_order() -> None:
    found = difference(STRICT, keyed((2, 0), (1, 0), (2, 1), (3, 2)), "trigger")
    assert found is not None
    assert (found.row, found.what) == (1, "trigger out of order")


def test_no_order_still_wants_the_same_rows() -> None:
    shuffled = keyed((3, 2), (2, 1), (1, 0), (2, 0))
    assert difference(STRICT, shuffled, "none") is None
    assert difference(STRICT, keyed((3, 2), (2, 1), (1, 0), (2, 2)), "none") is not None
    assert difference(STRICT, keyed((3, 2), (2, 1), (1, 0), (2, 0), (2, 0)), "none") is not None
