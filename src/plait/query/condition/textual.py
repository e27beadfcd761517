"""Conditions on text: what they may say, so that every executor's answer is the same.

A regular expression is Python's, read as ASCII (`\\d`, `\\w`, `\\s` and `\\b` know ASCII only), and is searched for. Executors
match with RE2, the reference with Python's `re`. Without look-around, back-references and flags both decide whether a text
holds a word of one regular language; so what is allowed here is just that, and it is written anew for RE2 from Python's own
reading of it, character by character. `$`, which Python also finds before a last newline, is refused: `\\Z` is the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from re import _constants as sre  # type: ignore[attr-defined]  # Python's own reading of a pattern has no public name
from re import _parser  # type: ignore[attr-defined]  # as above
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import QueryError

#: Operators of `expression.Text`: those that take a pattern, and those that take none.
PATTERNS: Final = ("matches", "like", "contains", "starts_with", "ends_with")
PLAIN: Final = ("length", "ascii_lower")

_MOST: Final = 1000  # what RE2 repeats at most
_RANGES: Final = {
    sre.CATEGORY_DIGIT: "0-9",
    sre.CATEGORY_NOT_DIGIT: r"\x{0}-/:-\x{10FFFF}",
    sre.CATEGORY_SPACE: r"\x{9}-\x{D}\x{20}",
    sre.CATEGORY_NOT_SPACE: r"\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{10FFFF}",
    sre.CATEGORY_WORD: "0-9A-Z_a-z",
    sre.CATEGORY_NOT_WORD: r"\x{0}-/:-@\x{5B}-\x{5E}\x{60}\x{7B}-\x{10FFFF}",
}
_PLACES: Final = {
    sre.AT_BEGINNING: r"\A",
    sre.AT_BEGINNING_STRING: r"\A",
    sre.AT_END_STRING: r"\z",
    sre.AT_BOUNDARY: r"\b",
}


def check(op: str, pattern: object) -> str:
    """A pattern that may stand in a condition, checked once when the query is built."""
    if not isinstance(pattern, str):
        raise QueryError(
            f"{op}({pattern!r}) takes a text",
            why="a pattern is a constant of the condition, the same for all rows",
            do=f"Pass a str, such as {op}('abc')",
        )
    if op in ("matches", "like"):
        try:
            pc.match_substring_regex(pa.array([""]), re2(op, pattern))
        except pa.ArrowInvalid as error:
            raise QueryError(f"{op}({pattern!r}) is too much for RE2: {error}", do="Repeat less") from error
    return pattern


def re2(op: str, pattern: str) -> str:
    r"""The expression that RE2 has to find for `matches` and `like`.

    >>> re2("like", "a%")
    '\\Aa[\\x{0}-\\x{10FFFF}]*\\z'
    """
    if op == "like":
        return _like(pattern)
    try:
        parsed = _parser.parse(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise QueryError(
            f"matches({pattern!r}) is no regular expression: {error}", do="Escape what is meant as it stands with \\"
        ) from error
    if parsed.state.flags & ~re.ASCII:
        raise _refused(pattern, "flags")
    return "".join(_one(pattern, *item) for item in parsed)


def _refused(pattern: str, what: str) -> QueryError:
    return QueryError(
        f"matches({pattern!r}) uses {what}",
        why="executors match with RE2, the reference with Python's re, and there the two could differ",
        do="Use characters, classes, | ( ) * + ? {m,n} ^ and the dot, \\Z for the end, \\b, and \\d \\w \\s of ASCII; for upper "
        "and lower case alike, ascii_lower()",
    )


def _one(pattern: str, op: Any, value: Any) -> str:
    """One item of Python's reading of a pattern, written for RE2; refused if the two could differ there."""
    match op:
        case sre.LITERAL:
            return _character(value)
        case sre.NOT_LITERAL:
            return f"[^{_character(value)}]"
        case sre.ANY:
            return r"[^\x{A}]"
        case sre.IN:
            return _class(value)
        case sre.BRANCH:
            return f"(?:{'|'.join(_all(pattern, branch) for branch in value[1])})"
        case sre.SUBPATTERN if not (value[1] or value[2]):
            return f"(?:{_all(pattern, value[3])})"
        case sre.MAX_REPEAT | sre.MIN_REPEAT:
            least, most, inner = value
            if max(least, 0 if most is sre.MAXREPEAT else most) > _MOST:
                raise _refused(pattern, f"a repetition of more than {_MOST}")
            return f"(?:{_all(pattern, inner)}){{{least},{'' if most is sre.MAXREPEAT else most}}}"
        case sre.AT if value in _PLACES:
            return _PLACES[value]
        case _:
            raise _refused(pattern, f"{str(op if op is not sre.AT else value).lower()}")


def _all(pattern: str, items: Any) -> str:
    return "".join(_one(pattern, *item) for item in items)


def _class(items: Any) -> str:
    out = ""
    for op, value in items:
        match op:
            case sre.NEGATE:
                out += "^"
            case sre.LITERAL:
                out += _character(value)
            case sre.RANGE:
                out += f"{_character(value[0])}-{_character(value[1])}"
            case _:  # \d \w \s and their opposites: there are no others in a class
                assert op is sre.CATEGORY
                out += _RANGES[value]
    return f"[{out}]"


def _character(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\x{{{code:X}}}"


def _like(pattern: str) -> str:
    """LIKE's pattern as an expression of the whole text."""
    out, escaped = "", False
    for each in pattern:
        if escaped and each not in "%_\\":
            break
        if each == "\\" and not escaped:
            escaped = True
            continue
        wild = not escaped and each in "%_"
        out += {"%": r"[\x{0}-\x{10FFFF}]*", "_": r"[\x{0}-\x{10FFFF}]"}[each] if wild else _character(ord(each))
        escaped = False
    if escaped:
        raise QueryError(
            f"LIKE {pattern!r} has a \\ that escapes nothing", do="Escape %, _ or \\ with it, or write it twice"
        )
    return rf"\A{out}\z"


class OfText:
    """A text column in a condition on one row, or a condition made of one. It begins with `plait.text("column")`.

    Conditions are combined by `& | ~`. Where the column is NULL the answer is unknown. The examples of its methods go on from
    this one.

    Example:
        >>> import plait
        >>> comment = plait.text("comment")
        >>> def matching(condition, *comments):
        ...     '''How many of the comments the condition is true for.'''
        ...     query = plait.aggregate(plait.stream("s", unit="s"), size="1h", compute={"n": plait.count_where(condition)})
        ...     return query.reference({"s": {"ts": range(len(comments)), "comment": comments}})["n"].to_pylist()[0]
        >>> matching(comment.contains("spam") & ~comment.starts_with("no"), "spam", "no spam", "ham")
        1
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __call__(self, row: Any) -> Any:
        return self._read(row)

    def _then(self, method: str, *arguments: Any) -> OfText:
        return OfText(lambda row: getattr(self(row), method)(*arguments))

    def matches(self, pattern: str) -> OfText:
        r"""Whether a regular expression is found in the text.

        It is Python's, read as ASCII, of a subset on which RE2 and Python's `re` can't differ: characters, classes, the dot, `|`,
        groups, repetition, `^`, `\Z`, `\b` and `\d \w \s`.

        Args:
            pattern: The regular expression, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The pattern is no text, is no regular expression, or uses more than the subset.

        Example:
            >>> matching(comment.matches(r"\b\d{3}\b"), "call 555 now", "5555")
            1
        """
        return self._then("matches", check("matches", pattern))

    def like(self, pattern: str) -> OfText:
        r"""Whether SQL's LIKE holds: `%` is any text, `_` is one character, `\` escapes these.

        Args:
            pattern: The pattern of the whole text, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The pattern is no text, or has a `\` that escapes nothing.

        Example:
            >>> matching(comment.like("a_c%"), "abcd", "ac", "xabc")
            1
        """
        return self._then("like", check("like", pattern))

    def contains(self, part: str) -> OfText:
        """Whether a part stands anywhere in the text.

        Args:
            part: The part, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The part is no text.

        Example:
            >>> matching(comment.contains("b"), "abc", "B")
            1
        """
        return self._then("contains", check("contains", part))

    def starts_with(self, part: str) -> OfText:
        """Whether the text begins with a part.

        Args:
            part: The part, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The part is no text.

        Example:
            >>> matching(comment.starts_with("ab"), "abc", "cab")
            1
        """
        return self._then("starts_with", check("starts_with", part))

    def ends_with(self, part: str) -> OfText:
        """Whether the text ends with a part.

        Args:
            part: The part, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The part is no text.

        Example:
            >>> matching(comment.ends_with("ab"), "abc", "cab")
            1
        """
        return self._then("ends_with", check("ends_with", part))

    def ascii_lower(self) -> OfText:
        """The text with A to Z as a to z. Other letters stay as they are.

        Returns:
            A text, to go on from.

        Example:
            >>> matching(comment.ascii_lower().contains("spam"), "SPAM", "ham")
            1
        """
        return self._then("ascii_lower")

    def __and__(self, other: OfText) -> OfText:
        return OfText(lambda row: self(row) & other(row))

    def __or__(self, other: OfText) -> OfText:
        return OfText(lambda row: self(row) | other(row))

    def __invert__(self) -> OfText:
        return OfText(lambda row: ~self(row))


def text(column: str) -> OfText:
    r"""Begin a condition on a text column, for `count_where` and `first_where`.

    Args:
        column: The column's name.

    Returns:
        The column. Its methods `matches`, `like`, `contains`, `starts_with` and `ends_with` make conditions, which `& | ~`
        combine.

    Raises:
        QueryError: No column is named.

    Example:
        >>> import plait
        >>> numbers = plait.count_where(plait.text("comment").matches(r"\d+"))
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"n": numbers})
        >>> query.reference({"s": {"ts": [1, 2, 3], "comment": ["call 555", "hello", None]}})["n"].to_pylist()
        [1]
    """
    if not isinstance(column, str) or not column:
        raise QueryError(f"text({column!r}) names no column", do="Write plait.text('column')")
    return OfText(lambda row: row[column])
