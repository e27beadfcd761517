"""Text functions: what is allowed, and that RE2, as executors use it, and Python's `re`, as the reference does, agree on it."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

import plait
from plait import QueryError
from plait.query import bind
from plait.query.condition.regular import re2
from plait.reference.values import Value

SCHEMA = pa.schema({"ts": pa.int64(), "c": pa.string(), "n": pa.int64(), "y": pa.binary()})

#: Characters on which the two could differ: what is a space, a word, a digit or a line's end, of one byte and of more.
CHARACTERS = "aZ09_ \t\n\v\f\r.-@\\[]^$|%é٣\u00a0\u2028İ\U0001f600\x00\x1c"
texts = st.text(st.sampled_from(CHARACTERS), max_size=6)

atoms = st.sampled_from([
    ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\b", "^", r"\A", r"\Z", "a", "é", r"\.", r"\\", "[a-z]", "[^a]", r"[\s\d]",
    r"[^\w.]", r"[\S]", "[]a]", "[a^-]", "[[:a]", "(?:)", r"\x00", "[\U0001f600é]",
])  # fmt: skip


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,1}", "{1,}", "*?", "+?"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, repeats).map(lambda two: f"({two[0]}){two[1]}"),
    )


patterns = st.recursive(atoms, combined, max_leaves=6)


@pytest.mark.filterwarnings("ignore:Possible nested set")
@settings(max_examples=examples(400))
@given(pattern=patterns, values=st.lists(texts, min_size=1, max_size=6))
@example(pattern=r"\s", values=["\v"])
@example(pattern=r"a\Z", values=["a\n", "a"])
@example(pattern=r"\S", values=["\v", "\x1c"])
def test_re2_finds_what_python_finds(pattern: str, values: list[str]) -> None:
    found = pc.match_substring_regex(pa.array(values), re2("matches", pattern)).to_pylist()
    assert found == [re.search(pattern, value, re.ASCII) is not None for value in values]


def like(pattern: str, value: str) -> bool:
    """The definition, a character at a time."""
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(like(pattern[1:], value[at:]) for at in range(len(value) + 1))
    if pattern[0] == "_":
        return bool(value) and like(pattern[1:], value[1:])
    literal, rest = (pattern[1], pattern[2:]) if pattern[0] == "\\" else (pattern[0], pattern[1:])
    return value[:1] == literal and like(rest, value[1:])


@settings(max_examples=examples(300))
@given(
    parts=st.lists(st.sampled_from(["%", "_", "a", "é", "\n", r"\%", r"\_", "\\\\", ".", "$"]), max_size=4), value=texts
)
def test_like(parts: list[str], value: str) -> None:
    pattern = "".join(parts)
    want = like(pattern, value)
    assert pc.match_substring_regex(pa.array([value]), re2("like", pattern)).to_pylist() == [want]
    assert Value("text", value).like(pattern).v is want


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"a$", "at_end"), (r"(?i)a", "flags"), (r"(?=a)", "assert"), (r"(?!a)b", "assert_not"), (r"(a)\1", "groupref"),
        (r"a{2000}", "a repetition of more than 1000"), (r"\Ba", "at_non_boundary"), ("(?i:a)", "subpattern"),
        ("a++", "possessive_repeat"), ("(?>a)", "atomic_group"), ("(", "no regular expression"), ("a**", "multiple repeat"),
        (r"(\w{900}){900}", "too much for RE2"),
    ],
)  # fmt: skip
def test_what_could_differ_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(QueryError, match=what):
        plait.text("c").matches(pattern)


def bound(where: object) -> plait.Query:
    query = plait.aggregate(plait.stream("s", unit="us"), size="1us", compute={"n": plait.count_where(where)})  # type: ignore[arg-type]
    bind(query, {"s": SCHEMA})
    return query


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (lambda r: r.n.contains("a"), "`contains` of int64"),
        (lambda r: r.y.length() > 1, "`length` of bytes"),
        (lambda r: r.c.contains(7), r"contains\(7\) takes a text"),
        (lambda r: r.c.like("a\\b"), "escapes nothing"),
        ("c like n", "with 'n', which is no constant"),
        ("n like 'a%'", "`like` of int64"),
        ("substring(c, n) = 'a'", "which is no constant"),
        ("substring(c, 1, -1) = 'a'", "substring of length -1"),
        ("split_part(c, '', 1) = 'a'", "empty separator"),
        ("split_part(c, 'a', 0) = 'a'", "counted from 1"),
        ("split(c, 'a')[-1] = 'a'", "counted from 0"),
        ("replace(c, '', 'a') = 'a'", "replace of an empty text"),
        ("regexp_extract(c, '(a*)*') = 'a'", "a repetition of what may be empty"),
        ("regexp_extract(c, 'a', 2) = 'a'", "The pattern has no groups"),
        ("regexp_extract(c, 'a', -1) = 'a'", "counted from 1"),
        (lambda r: r.c.trim(7) == "a", r"trim\(7\) takes a text"),
        (lambda r: r.c.substring("a") == "a", "substring is given 'a' as its start"),
        (lambda r: plait.concat(r.c, 1) == "a", "`concat` of an integer"),
        (lambda r: r.c + "a" == "a", "put together by concat"),
        (lambda r: r.n.hour() == 1, "`hour` of a column of type int64"),
        (lambda r: (r.n + 1).hour() == 1, "`hour` of something that is no column"),
        (lambda r: plait.when(r.n, 1).otherwise(2) == 1, "a CASE whose condition is int64"),
        (lambda r: plait.when(r.n > 0, 1).otherwise("a") == 1, "a CASE of an integer and text"),
        (lambda r: plait.when(r.n > 0, True), r"has a plait.when\(...\) without"),
        (lambda r: plait.when(r.n > 0, plait.when(r.n > 1, 1)).otherwise(2) == 1, r"has a plait.when\(...\) without"),
        ("c ilike 'a%'", "LIKE, RLIKE, contains"),
        ("c like 'a!%' escape '!'", "Escape"),
    ],
)
def test_refused_where(where: object, what: str) -> None:
    with pytest.raises(QueryError, match=what):
        bound(where)


def test_a_condition_says_what_it_asks() -> None:
    query = bound(
        (plait.text("c").ascii_lower().matches(r"\d+") & ~plait.text("c").contains("x")) | plait.text("c").like("a%")
    )
    assert (
        r"((matches(ascii_lower(row.c), '\\d+') and (not contains(row.c, 'x'))) or like(row.c, 'a%'))"
        in query.explain()
    )
    assert "not starts_with(row.c, 'a')" in bound("not startswith(row.c, 'a')").explain()
    with pytest.raises(QueryError, match="names no column"):
        plait.text("")
    for call in (plait.concat, plait.coalesce):
        with pytest.raises(QueryError, match="of nothing"):
            call()
