"""Functions of text and choices over whole columns: the reference's values, in every layout of the same texts."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

import plait
from plait.query.condition.regular import extracting
from plait.query.identical import difference

S = plait.stream("s", unit="us")

#: Of one byte and of more, of which other cases are longer, or depend on where they stand; blanks that are no spaces.
CHARACTERS = "aAbz0 /,.\t\n\u00a0éÉßİıΣσςǅﬁ\U00010400\U0001f600\x00e\u0301"
texts = st.text(st.sampled_from(CHARACTERS), max_size=7)
small = st.integers(-9, 9)
functions = st.one_of(
    st.sampled_from([("lower",), ("upper",), ("ascii_lower",), ("length",)]),
    st.tuples(st.sampled_from(["trim", "ltrim", "rtrim"]), st.one_of(st.just(" "), texts)),
    st.tuples(st.just("substring"), small, st.one_of(st.none(), st.integers(0, 9))),
    st.tuples(st.just("split_part"), texts.filter(bool), small.filter(bool)),
    st.tuples(st.just("replace"), texts.filter(bool), texts),
    st.tuples(st.sampled_from(["contains", "starts_with", "ends_with"]), texts),
)


def layouts(values: list[str | None]) -> dict[str, Any]:
    """The same texts in every way that Arrow may hold them."""
    half = len(values) // 2
    plainly = pa.array(values, pa.string())
    longer = pa.array(["before", *values, None, "after"], pa.string())
    coded = pa.DictionaryArray.from_arrays(
        pa.array([None if v is None else k + 1 for k, v in enumerate(values)], pa.int32()),
        pa.array(["unused", *("" if v is None else v for v in values)]),
    )
    return {
        "string": plainly, "large": plainly.cast(pa.large_string()), "view": plainly.cast(pa.string_view()),
        "dictionary": coded,
        "slice": longer.slice(1, len(values)), "view slice": longer.cast(pa.string_view()).slice(1, len(values)),
        "chunks": pa.chunked_array([plainly.slice(0, half), longer.slice(1 + half, len(values) - half)]),
    }  # fmt: skip


def of_text(name: str, *constants: Any) -> Any:
    return lambda row: getattr(row.x, name)(*constants)


@settings(max_examples=examples(100))
@given(function=functions, values=st.lists(st.none() | texts, min_size=1, max_size=6))
@example(function=("lower",), values=["ΑΣ", "ΑΣ.", "İ", "I", "ǅ"])
@example(function=("upper",), values=["ß", "ﬁ", "ΰ", "a", None])
@example(function=("substring", -5, 3), values=["abc", "", "é"])
@example(function=("substring", 0, 2), values=["abc"])
@example(function=("trim", ""), values=[" a "])
@example(function=("split_part", "aa", 2), values=["aaaaa", "aa", "a"])
def test_values_are_the_references_in_every_layout(function: tuple[Any, ...], values: list[str | None]) -> None:
    query = S.select(z=of_text(*function), n=lambda row: plait.concat(row.x, "-", row.x))
    expected = query.reference({"s": pa.table({"ts": range(len(values)), "x": pa.array(values, pa.string())})})
    for layout, column in layouts(values).items():
        found = query.run({"s": pa.table({"ts": range(len(values)), "x": column})})
        assert difference(expected, found) is None, layout


def test_definitions() -> None:
    """What each function means, written by hand."""
    table = pa.table({"ts": [0], "x": ["aB/é/c "]})
    meant = {
        "lower(x)": "ab/é/c ", "upper(x)": "AB/É/C ", "length(x)": 7, "trim(x)": "aB/é/c", "ltrim(x)": "aB/é/c ",
        "rtrim(x)": "aB/é/c", "trim(BOTH ' c' FROM x)": "aB/é/", "trim('\t')": "\t", "substring(x, 2, 3)": "B/é",
        "substr(x, 4)": "é/c ", "substring(x, -3)": "/c ", "substring(x, -9, 3)": "a", "substring(x, 0, 1)": "a",
        "substring(x, 8)": "", "substring(x, 1, 0)": "", "split_part(x, '/', 2)": "é", "split_part(x, '/', -1)": "c ",
        "split_part(x, '/', 4)": "", "split(x, '/')[1]": "é", "split(x, '/')[3]": None,
        "replace(x, '/', '')": "aBéc ", "replace(x, '/')": "aBéc ", "concat(x, '!')": "aB/é/c !", "x || NULL": None,
        "x || ''": "aB/é/c ",
        "regexp_extract(x, '(.)/(.)', 2)": "é", "regexp_extract(x, 'B(x)?')": "",
        "startswith(x, 'aB')": True, "endswith(x, 'c')": False, "contains(x, 'é')": True, "x LIKE '%c_'": True,
        "x RLIKE '/.'": True,
        "upper('ß')": "SS", "lower('ΑΣ')": "ας", "length('a\U0001f600')": 2,
    }  # fmt: skip
    for words, value in meant.items():
        query = S.select(z=f"coalesce({words}, NULL)" if "NULL" in words else words)
        for run in (query.reference, query.run):
            assert run({"s": table})["z"].to_pylist() == [value], words


# --- regular expressions ------------------------------------------------------------------------------------

atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\b", "^", r"\Z", "é", "ab", "(?:a|ab)", "(?:)"])


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??", "{0,2}?"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, repeats).map(lambda two: f"(?:{two[0]}){two[1]}"),
        inner.map(lambda one: f"({one})"),
    )


@settings(max_examples=examples(240))
@given(
    pattern=st.recursive(atoms, combined, max_leaves=7),
    values=st.lists(st.text(st.sampled_from("abé 1\n"), max_size=6), min_size=1, max_size=6),
    data=st.data(),
)
@example(pattern="((a)|b)+", values=["ab", "ba", "aab"], data=None)
def test_re2_extracts_what_python_extracts(pattern: str, values: list[str], data: Any) -> None:
    groups = re.compile(pattern).groups
    for group in range(groups + 1) if data is None else [data.draw(st.integers(0, groups))]:
        try:
            extracting(pattern, group)
        except plait.QueryError:
            return  # something that may be empty is repeated
        query = S.select(z=of_text("regexp_extract", pattern, group))
        table = pa.table({"ts": range(len(values)), "x": values})
        assert query.run({"s": table})["z"].to_pylist() == query.reference({"s": table})["z"].to_pylist()


# --- choices ------------------------------------------------------------------------------------------------


def test_a_branch_that_is_not_taken_has_no_say() -> None:
    """It does not raise, and an unknown condition goes on to the next one. Its type has a say."""
    table = pa.table({
        "ts": range(4), "k": [2**62, 1, None, 7], "x": [1.5, float("nan"), 2.5, None], "s": ["a", "b", None, "d"],
    })  # fmt: skip
    meant: dict[str, tuple[list[Any], pa.DataType]] = {
        "CASE WHEN k < 10 THEN k * 4 ELSE k END": ([2**62, 4, None, 28], pa.int64()),
        "CASE WHEN x > 2 THEN 'high' WHEN k > 1 THEN 'much' ELSE s END": (["much", "b", "high", "much"], pa.string()),
        "CASE k WHEN 1 THEN 1 WHEN 7 THEN 0.5 END": ([None, 1.0, None, 0.5], pa.float64()),
        "CASE WHEN s = 'a' THEN NULL WHEN s = 'b' THEN k % 0 ELSE 5 END": ([None, None, 5, 5], pa.int64()),
        "if(x > 0, k, 0)": ([2**62, 0, None, 0], pa.int64()),
        "coalesce(k, 0)": ([2**62, 1, 0, 7], pa.int64()),
        "coalesce(x, k)": ([1.5, None, 2.5, 7.0], pa.float64()),
        "nullif(k, 7)": ([2**62, 1, None, None], pa.int64()),
        "CASE WHEN s IS NULL THEN 'none' ELSE upper(s) END": (["A", "B", "none", "D"], pa.string()),
        "CASE WHEN k = 1 THEN k > 0 ELSE NULL END": ([None, True, None, None], pa.bool_()),
        "CASE WHEN CASE WHEN k > 1 THEN x > 1 END THEN 1 ELSE 2 END": ([1, 2, 2, 2], pa.int64()),
    }
    for words, (values, kind) in meant.items():
        query = S.select(z=words)
        for run in (query.reference, query.run):
            found = run({"s": table})["z"]
            given = [None if isinstance(v, float) and v != v else v for v in found.to_pylist()]
            assert (given, found.type) == (values, kind), words


def test_kinds_of_all_branches_together() -> None:
    """int16 and uint16 with float32: two at a time the type would depend on the order of the branches."""
    table = pa.table({
        "ts": [0, 1], "a": pa.array([1, 2], pa.int16()), "b": pa.array([3, 4], pa.uint16()),
        "f": pa.array([0.5, 0.25], pa.float32()), "u": pa.array([2**64 - 1, 0], pa.uint64()),
        "y": pa.array([b"x", None], pa.binary()),
    })  # fmt: skip
    for words, kind in (
        ("CASE WHEN ts = 0 THEN a WHEN ts = 1 THEN b ELSE f END", pa.float32()),
        ("CASE WHEN ts = 0 THEN f WHEN ts = 1 THEN a ELSE b END", pa.float32()),
        ("CASE WHEN ts = 0 THEN a ELSE 0.1 END", pa.float64()),
        ("CASE WHEN ts = 0 THEN f ELSE 0.1 END", pa.float32()),
        ("CASE WHEN ts = 0 THEN u ELSE 0 END", pa.uint64()),
        ("CASE WHEN ts = 1 THEN u ELSE a END", pa.int64()),
        ("coalesce(y, y)", pa.binary()),
    ):
        query = S.select(z=words)
        expected = query.reference({"s": table})
        assert expected.schema.field("z").type == kind, words
        assert difference(expected, query.run({"s": table})) is None, words


def test_in_python_as_in_sql() -> None:
    table = pa.table({"ts": range(3), "k": [1, None, 5], "s": ["a", None, "b"]})
    for words, function in (
        ("CASE WHEN k > 2 THEN 'much' WHEN k > 0 THEN s ELSE NULL END",
         lambda row: plait.when(row.k > 2, "much").when(row.k > 0, row.s).otherwise(None)),
        ("coalesce(k, 0) + 1", lambda row: plait.coalesce(row.k, 0) + 1),
        ("s || '-' || s", lambda row: plait.concat(row.s, "-", row.s)),
        ("CASE WHEN true THEN 1 ELSE k END", lambda row: plait.when(True, 1).otherwise(row.k)),
    ):  # fmt: skip
        one, other = S.select(z=words), S.select(z=function)
        expected = one.reference({"s": table})
        for found in (other.reference({"s": table}), one.run({"s": table}), other.run({"s": table})):
            assert difference(expected, found) is None, words


def test_plain_values_in_a_function_that_does_not_trace() -> None:
    def function(row: Any) -> Any:
        size = plait.when(row.k > 2, "much").when(row.k > 1, None).otherwise("few")
        return plait.concat(size, "!") if row.k != 2 else plait.coalesce(size, "some")

    query = S.select(z=(function, "string"))
    table = pa.table({"ts": range(3), "k": [1, 2, 3]})
    for run in (query.reference, query.run):
        assert run({"s": table})["z"].to_pylist() == ["few!", "some", "much!"]


# --- times --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**17), 10**17), min_size=1, max_size=8))
@example([-1, 0, 951_782_400_000_000, 951_868_799_999_999, -62_135_596_800_000_001, -(2**63), 2**63 - 1])
def test_parts_of_moments(values: list[int | None]) -> None:
    table = pa.table({
        "ts": range(len(values)), "t": pa.array(values, pa.timestamp("us", "UTC")), "n": pa.array(values, pa.timestamp("s")),
        "d": pa.array([None if v is None else v % 2**32 - 2**31 for v in values], pa.int32()).view(pa.date32()),
    })  # fmt: skip
    parts = ("year", "month", "day", "hour", "minute", "second", "weekday")
    query = S.select(**{f"{name}_{part}": f"{part}({name})" for name in "tnd" for part in parts})
    assert difference(query.reference({"s": table}), query.run({"s": table})) is None
