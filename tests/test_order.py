"""The total order: keys as bytes, values inside keys, lateness, readiness and the frontier."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plait.errors import DataError
from plait.order import AFTER_ALL, AFTER_INPUTS, BEFORE_ALL, TS_MAX, TS_MIN, Key, decode, encode, key_value
from plait.reference.intake import sort_value

timestamps = st.integers(TS_MIN, TS_MAX) | st.integers(-3, 3)
integers = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**80), 2**80)
floats = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, 5e-324])
texts = st.text(st.sampled_from("\x00\x01a\xff\u0100\U0001f600") | st.characters(), max_size=4)
raws = st.binary(max_size=4) | st.lists(st.sampled_from([0, 1, 255]), max_size=4).map(bytes)

# Values of one column: the kinds that may meet in one place of two keys.
columns = st.sampled_from([integers, floats | st.just(math.nan), texts, raws, st.booleans()]).map(
    lambda kind: kind | st.none()
)


@st.composite
def two_keys(draw: st.DrawFn, depth: int = 2) -> tuple[Key, Key]:
    """Two keys of one shape, as two tuples have that meet in one input; equal in front as often as not."""
    sources = draw(st.sampled_from([st.integers(0, 3), raws]))
    seqs = draw(st.sampled_from(["position", "column", "content", "nested"][: 4 if depth else 3]))
    if seqs == "nested":
        inner = two_keys(depth=depth - 1)
        first, second = draw(inner)
        tails: list[Key] = [first, second if draw(st.booleans()) else first]
    else:
        column = draw(columns)
        values = {
            "position": st.integers(0, 3).map(lambda n: (n,)),
            "column": column.map(lambda v: (key_value(v),)),
            "content": st.lists(column, max_size=3).map(lambda row: (tuple(key_value(v) for v in row),)),
        }[seqs]
        tails = [(draw(sources), *draw(values)) for _ in range(2)]
    front = (draw(timestamps), draw(st.integers(0, 2) | st.just(AFTER_INPUTS)))
    other = front if draw(st.booleans()) else (draw(timestamps), draw(st.integers(0, 2)))
    return (front, *tails[0]), (other, *tails[1])


# --- keys as bytes ------------------------------------------------------------------------------------------


@given(two_keys())
def test_bytes_are_ordered_as_keys_are(keys: tuple[Key, Key]) -> None:
    a, b = keys
    assert (encode(a) < encode(b)) == (a < b)
    assert (encode(a) == encode(b)) == (a == b)


@given(st.lists(st.tuples(timestamps, st.integers(0, 1), st.integers(0, 2), st.integers(0, 9)), max_size=20))
def test_bytes_sort_tuples_of_a_stream(keys: list[Key]) -> None:
    assert sorted(keys, key=encode) == sorted(keys)


@pytest.mark.parametrize("kind", [integers, floats, texts.map(lambda s: s.encode("utf-8", "surrogatepass")), raws])
def test_bytes_are_ordered_as_single_values_are(kind: st.SearchStrategy[object]) -> None:
    @given(kind, kind)
    def check(a: object, b: object) -> None:
        assert (encode((a,)) < encode((b,))) == (a < b)  # type: ignore[operator]
        assert (encode((a,)) == encode((b,))) == (a == b)

    check()


@given(texts, texts)
def test_text_is_ordered_by_its_bytes(a: str, b: str) -> None:
    def raw(text: str) -> bytes:
        return text.encode("utf-8", "surrogatepass")

    assert (encode((a,)) < encode((b,))) == (raw(a) < raw(b))
    assert encode((a,)) == encode((raw(a),))


@given(st.lists(integers, max_size=3), st.lists(integers, max_size=3))
def test_a_key_comes_before_what_it_begins(a: list[int], b: list[int]) -> None:
    assert (encode(tuple(a)) < encode(tuple(b))) == (tuple(a) < tuple(b))
    assert (encode((tuple(a), 0)) < encode((tuple(b), 0))) == ((tuple(a), 0) < (tuple(b), 0))


@given(raws, raws, st.integers(0, 3), st.integers(0, 3))
def test_what_follows_text_does_not_reach_into_it(a: bytes, b: bytes, m: int, n: int) -> None:
    assert (encode((a, m)) < encode((b, n))) == ((a, m) < (b, n))
    assert (encode(((a,), m)) < encode(((b,), n))) == (((a,), m) < ((b,), n))


@given(two_keys())
def test_decoding_gives_the_key_back(keys: tuple[Key, Key]) -> None:
    for key in keys:
        assert decode(encode(key)) == key


@given(st.integers(-(2**2040) + 1, 2**2040 - 1))
@example(2**63).via("the first integer beyond 64 bits")
@example(-(2**63) - 1).via("the first one below")
@example(2**2040 - 1).via("the longest")
@example(-(2**2040) + 1).via("the longest below")
def test_long_integers_come_back(n: int) -> None:
    assert decode(encode((n, 7))) == (n, 7)


@given(st.integers(-(2**200), 2**200), st.integers(-(2**200), 2**200))
def test_long_integers_keep_their_order(a: int, b: int) -> None:
    assert (encode((a,)) < encode((b,))) == (a < b)


def test_both_zeros_are_one_key() -> None:
    assert encode((-0.0,)) == encode((0.0,))
    assert encode((True,)) == encode((1,))


@pytest.mark.parametrize("value", [None, 1.5j, [1], {"a": 1}])
def test_only_values_of_keys_are_encoded(value: object) -> None:
    with pytest.raises(TypeError, match=f"no key holds a {type(value).__name__}"):
        encode((value,))


# --- the kinds of keys that the module's head lists ---------------------------------------------------------


def test_results_stand_by_trigger_then_partner() -> None:
    left, right = (10, 0, 0, 1), (10, 1, 0, 1)
    earlier, later = (9, 0, 0, 1), (9, 0, 0, 2)
    results = [(left, earlier), (left, later), (right, earlier), (right, left)]
    assert sorted(results, key=encode) == results


def test_what_heads_a_moment_without_an_input_follows_all_inputs() -> None:
    results = [
        ((10, 0, 0, 1), (9, 1, 0, 1)),
        ((10, 7, 0, 1), (9, 1, 0, 1)),
        ((10, AFTER_INPUTS), (5, 0, 0, 1)),
        ((11, 0, 0, 1), (9, 1, 0, 1)),
    ]
    assert sorted(results, key=encode) == results
    assert sorted(results) == results


def test_a_left_row_without_a_partner_has_a_key() -> None:
    assert encode(((1, 0, 0, 1), ())) < encode(((1, 0, 0, 1), (0, 1, 0, 1))) < encode(((1, 0, 0, 2), ()))


@given(timestamps, timestamps, two_keys())
def test_the_next_operator_puts_ts_and_input_in_front(first_ts: int, second_ts: int, keys: tuple[Key, Key]) -> None:
    a, b = ((first_ts, 0, *keys[0]), (second_ts, 0, *keys[1]))
    assert (encode(a) < encode(b)) == ((first_ts, keys[0]) < (second_ts, keys[1]))


# --- values inside keys -------------------------------------------------------------------------------------


def test_numbers_come_before_nan_and_nan_before_null() -> None:
    values = [-math.inf, -1.5, 0.0, 1.5, math.inf, math.nan, None]
    backwards = values[::-1]
    assert sorted(backwards, key=key_value) == values
    assert sorted(backwards, key=lambda v: encode(key_value(v))) == values


def test_text_is_a_key_by_bytes_and_not_by_code_units() -> None:
    # In UTF-16 the surrogates of the first sort below the second.
    assert key_value("\U0001f600") > key_value("\uffff")
    assert key_value("\udc80") == (0, b"\xed\xb2\x80")  # a lone surrogate has bytes too


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (None, (2,)),
        (math.nan, (1,)),
        (-math.nan, (1,)),
        (-0.0, (0, 0.0)),
        (3, (0, 3)),
        (True, (0, 1)),
        ("ä", (0, b"\xc3\xa4")),
        (b"\x00", (0, b"\x00")),
        ([1, None], (0, ((0, 1), (2,)))),
        ((), (0, ())),
        ({"a": "x", "b": math.nan}, (0, ((0, b"x"), (1,)))),
    ],
)
def test_values_as_parts_of_keys(value: object, key: Key) -> None:
    assert key_value(value) == key
    assert math.copysign(1, key_value(-0.0)[1]) == 1
    assert type(key_value(value)[-1]) is not bool


@given(columns.flatmap(lambda column: st.tuples(column, column)))
def test_the_reference_orders_values_alike(pair: tuple[object, object]) -> None:
    a, b = pair
    assert (key_value(a) < key_value(b)) == (sort_value(a) < sort_value(b))
    assert (key_value(a) == key_value(b)) == (sort_value(a) == sort_value(b))


def test_what_has_no_order_is_no_key() -> None:
    with pytest.raises(DataError, match="Python type complex"):
        key_value(1j)


def test_limits() -> None:
    assert (TS_MIN, TS_MAX) == (-(2**62), 2**62)
    assert BEFORE_ALL < TS_MIN
    assert AFTER_ALL > TS_MAX
    assert AFTER_INPUTS == 2**31 - 1
