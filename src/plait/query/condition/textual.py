"""Functions of text: what they are, what constants they take, and `plait.text`.

Every function but `concat` takes one text and constants, which are checked here, once, when the query is built. Characters are
Unicode's code points, counted from 1; NULL gives NULL. docs/semantics.md says what each one means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import QueryError
from plait.query.condition.regular import extracting, re2

#: Operators of `expression.Text`, and the type of what each gives.
RESULTS: Final = {
    "matches": "bool", "like": "bool", "contains": "bool", "starts_with": "bool", "ends_with": "bool",
    "length": "int64",
    "ascii_lower": "text", "lower": "text", "upper": "text", "trim": "text", "ltrim": "text", "rtrim": "text",
    "substring": "text", "split_part": "text", "split_at": "text", "replace": "text", "regexp_extract": "text",
}  # fmt: skip

Constants = tuple[str | int | None, ...]


def check(op: str, pattern: object) -> str:
    """A pattern that may stand in a condition, checked once when the query is built."""
    pattern = _text(op, pattern)
    if op in ("matches", "like"):
        _compiled(op, pattern, lambda: pc.match_substring_regex(pa.array([""]), re2(op, pattern)))
    return pattern


def _text(op: str, given: object) -> str:
    if not isinstance(given, str):
        raise QueryError(
            f"{op}({given!r}) takes a text",
            why="a pattern is a constant of the condition, the same for all rows",
            do=f"Pass a str, such as {op}('abc')",
        )
    return given


def _whole(op: str, given: object, what: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not -_FAR <= given <= _FAR:
        raise QueryError(
            f"{op} is given {given!r} as its {what}",
            why=f"it is a constant, a whole number within {_FAR}, the same for all rows",
            do="Pass an int",
        )
    return given


_FAR: Final = 2**31 - 1


def _compiled(op: str, pattern: str, compile: Callable[[], object]) -> None:
    try:
        compile()
    except pa.ArrowInvalid as error:
        raise QueryError(f"{op}({pattern!r}) is too much for RE2: {error}", do="Repeat less") from error


def trimmed(op: str, characters: object) -> Constants:
    """Of `trim`, `ltrim` and `rtrim`: the characters that go."""
    return (_text(op, characters),)


def substring(start: object, length: object) -> Constants:
    """Of `substring`: where it begins, from 1, or from the end below 0; and how long it is, None for all."""
    place = _whole("substring", start, "start")
    if length is None:
        return (place, None)
    if _whole("substring", length, "length") < 0:
        raise QueryError(f"substring of length {length!r}", why="nothing is that short", do="Pass a length from 0 on")
    return (place, _whole("substring", length, "length"))


def split(op: str, separator: object, part: object) -> Constants:
    """Of `split_part` and `split_at`: what stands between parts, and which part. The first counts from 1, the second from 0."""
    if not _text(op, separator):
        raise QueryError(f"{op} with an empty separator", why="it stands everywhere", do="Use substring")
    if _whole(op, part, "part") == 0 and op == "split_part":
        raise QueryError(
            "split_part(..., 0)", why="parts are counted from 1, or from the end by -1, -2 ...", do="Pass 1"
        )
    if _whole(op, part, "part") < 0 and op == "split_at":
        raise QueryError(
            f"split(...)[{part}]", why="parts are counted from 0 there", do="Use split_part: -1 is the last part"
        )
    return (_text(op, separator), _whole(op, part, "part"))


def replaced(old: object, new: object) -> Constants:
    """Of `replace`: what goes, and what comes."""
    if not _text("replace", old):
        raise QueryError("replace of an empty text", why="it stands everywhere", do="Name what is to be replaced")
    return (_text("replace", old), _text("replace", new))


def extracted(pattern: object, group: object) -> Constants:
    """Of `regexp_extract`: the pattern, and the group of it."""
    text, number = _text("regexp_extract", pattern), _whole("regexp_extract", group, "group")
    if number < 0:
        raise QueryError(f"regexp_extract with group {number}", do="Groups are counted from 1; 0 is the whole match")
    _compiled("regexp_extract", text, lambda: pc.extract_regex(pa.array([""]), extracting(text, number)))
    return (text, number)


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
