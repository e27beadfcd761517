"""What can be asked of a column of text or of moments inside a condition's function: the methods that a `Symbol` has for them.

Each is a node of its own in the tree; its constants are checked here, when the function is traced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from plait.query.condition import textual
from plait.query.condition.expression import Expr, Text, Unary

if TYPE_CHECKING:
    from plait.query.condition.trace import Symbol


class TextCalls(ABC):
    """Methods of a `Symbol` that is text, or a moment. Characters are Unicode's code points; NULL gives NULL; times are in UTC.

    The examples of its methods go on from this one.

    Example:
        >>> import plait
        >>> words = plait.stream("words", unit="s", schema={"ts": "int64", "x": "string", "at": "timestamp"})
        >>> rows = {"words": {"ts": [1, 2], "x": ["a/b/c", None], "at": [1_709_214_645_000_000, None]}}
        >>> def made(column):
        ...     '''The values of a column that is computed of these rows.'''
        ...     return words.select(made=column).run(rows)["made"].to_pylist()
        >>> made(lambda row: row.x.upper())
        ['A/B/C', None]
    """

    __slots__ = ()

    expr: Expr

    @abstractmethod
    def _made(self, expr: Expr) -> Symbol: ...

    def matches(self, pattern: str) -> Symbol:
        r"""Whether a regular expression is found in the text; see `plait.text` for what it may use.

        Args:
            pattern: The regular expression, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The pattern is no text, is no regular expression, or uses more than is allowed.

        Example:
            >>> made(lambda row: row.x.matches(r"^[a-c/]+\Z"))
            [True, None]
        """
        return self._text("matches", pattern)

    def like(self, pattern: str) -> Symbol:
        """Whether SQL's LIKE holds: `%` is any text, `_` is one character.

        Args:
            pattern: The pattern of the whole text, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The pattern is no text, or has a backslash that escapes nothing.

        Example:
            >>> made(lambda row: row.x.like("a%"))
            [True, None]
        """
        return self._text("like", pattern)

    def contains(self, part: str) -> Symbol:
        """Whether a part stands anywhere in the text.

        Args:
            part: The part, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The part is no text.

        Example:
            >>> made(lambda row: row.x.contains("B"))
            [False, None]
        """
        return self._text("contains", part)

    def starts_with(self, part: str) -> Symbol:
        """Whether the text begins with a part.

        Args:
            part: The part, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The part is no text.

        Example:
            >>> made(lambda row: row.x.starts_with("a"))
            [True, None]
        """
        return self._text("starts_with", part)

    def ends_with(self, part: str) -> Symbol:
        """Whether the text ends with a part.

        Args:
            part: The part, a constant.

        Returns:
            A condition.

        Raises:
            QueryError: The part is no text.

        Example:
            >>> made(lambda row: row.x.ends_with("a"))
            [False, None]
        """
        return self._text("ends_with", part)

    def length(self) -> Symbol:
        """How many characters the text has.

        Returns:
            A number.

        Example:
            >>> made(lambda row: row.x.length())
            [5, None]
        """
        return self._made(Text("length", self.expr))

    def ascii_lower(self) -> Symbol:
        """The text with A to Z as a to z. Other letters stay as they are.

        Returns:
            A text.

        Example:
            >>> made(lambda row: row.x.ascii_lower())
            ['a/b/c', None]
        """
        return self._made(Text("ascii_lower", self.expr))

    def lower(self) -> Symbol:
        """The text in small letters: Unicode's full mapping, as Python's `str.lower`.

        Returns:
            A text.

        Example:
            >>> made(lambda row: plait.concat(row.x, "ÀΣ").lower())
            ['a/b/càς', None]
        """
        return self._made(Text("lower", self.expr))

    def upper(self) -> Symbol:
        """The text in capitals: Unicode's full mapping, as Python's `str.upper`.

        Returns:
            A text.

        Example:
            >>> made(lambda row: plait.concat(row.x, "ß").upper())
            ['A/B/CSS', None]
        """
        return self._made(Text("upper", self.expr))

    def trim(self, characters: str = " ") -> Symbol:
        """The text without some characters at both ends.

        Args:
            characters: Each of them goes; a constant.

        Returns:
            A text.

        Raises:
            QueryError: The characters are no text.

        Example:
            >>> made(lambda row: row.x.trim("ac"))
            ['/b/', None]
        """
        return self._made(Text("trim", self.expr, textual.trimmed("trim", characters)))

    def ltrim(self, characters: str = " ") -> Symbol:
        """The text without some characters at its beginning.

        Args:
            characters: Each of them goes; a constant.

        Returns:
            A text.

        Raises:
            QueryError: The characters are no text.

        Example:
            >>> made(lambda row: row.x.ltrim("ac"))
            ['/b/c', None]
        """
        return self._made(Text("ltrim", self.expr, textual.trimmed("ltrim", characters)))

    def rtrim(self, characters: str = " ") -> Symbol:
        """The text without some characters at its end.

        Args:
            characters: Each of them goes; a constant.

        Returns:
            A text.

        Raises:
            QueryError: The characters are no text.

        Example:
            >>> made(lambda row: row.x.rtrim("ac"))
            ['a/b/', None]
        """
        return self._made(Text("rtrim", self.expr, textual.trimmed("rtrim", characters)))

    def substring(self, start: int, length: int | None = None) -> Symbol:
        """A part of the text, by places: SQL's `substring`, as Spark has it.

        Args:
            start: The first character, counted from 1; 0 is 1, too; below 0 it counts from the end. A constant.
            length: How many characters, counted from there, also where they lie before the text; None: all. A constant.

        Returns:
            A text, empty where the text has no such characters.

        Raises:
            QueryError: A place is no whole number, or the length is below 0.

        Example:
            >>> made(lambda row: plait.concat(row.x.substring(3, 2), row.x.substring(-1)))
            ['b/c', None]
        """
        return self._made(Text("substring", self.expr, textual.substring(start, length)))

    def split_part(self, separator: str, part: int) -> Symbol:
        """One of the parts between separators.

        Args:
            separator: What stands between parts, taken as it is; a constant.
            part: Which one, counted from 1, or from the end: -1 is the last. A constant.

        Returns:
            A text, empty where there is no such part.

        Raises:
            QueryError: The separator is no text, or empty; the part is no whole number, or 0.

        Example:
            >>> made(lambda row: row.x.split_part("/", 2))
            ['b', None]
        """
        return self._made(Text("split_part", self.expr, textual.split("split_part", separator, part)))

    def replace(self, old: str, new: str) -> Symbol:
        """The text with every occurrence of a part replaced, from left to right.

        Args:
            old: The part, taken as it is; a constant.
            new: What stands there instead; a constant.

        Returns:
            A text.

        Raises:
            QueryError: One of the two is no text, or the part is empty.

        Example:
            >>> made(lambda row: row.x.replace("/", ", "))
            ['a, b, c', None]
        """
        return self._made(Text("replace", self.expr, textual.replaced(old, new)))

    def regexp_extract(self, pattern: str, group: int = 1) -> Symbol:
        r"""What the first match of a regular expression has in a group.

        Args:
            pattern: The regular expression, a constant; see `plait.text` for what it may use. Here nothing may be
                repeated that may be empty.
            group: Which group in brackets, counted from 1; 0 is the whole match.

        Returns:
            A text, empty where there is no match, or the group has no part in it.

        Raises:
            QueryError: The pattern is no text, is no regular expression, uses more than is allowed, or has no such group.

        Example:
            >>> made(lambda row: row.x.regexp_extract(r"/(\w)/"))
            ['b', None]
        """
        return self._made(Text("regexp_extract", self.expr, textual.extracted(pattern, group)))

    def year(self) -> Symbol:
        """The year of a moment or a day, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.year())
            [2024, None]
        """
        return self._made(Unary("year", self.expr))

    def month(self) -> Symbol:
        """The month of a moment or a day, from 1, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.month())
            [2, None]
        """
        return self._made(Unary("month", self.expr))

    def day(self) -> Symbol:
        """The day of a month, from 1, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.day())
            [29, None]
        """
        return self._made(Unary("day", self.expr))

    def hour(self) -> Symbol:
        """The hour of a moment, from 0 to 23, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.hour())
            [13, None]
        """
        return self._made(Unary("hour", self.expr))

    def minute(self) -> Symbol:
        """The minute of a moment, from 0 to 59, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.minute())
            [50, None]
        """
        return self._made(Unary("minute", self.expr))

    def second(self) -> Symbol:
        """The whole second of a moment, from 0 to 59, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.second())
            [45, None]
        """
        return self._made(Unary("second", self.expr))

    def weekday(self) -> Symbol:
        """The day of the week: Monday is 0, Sunday 6, in UTC.

        Returns:
            A number.

        Raises:
            QueryError: When the query is bound: it is no column of timestamps or dates.

        Example:
            >>> made(lambda row: row.at.weekday())
            [3, None]
        """
        return self._made(Unary("weekday", self.expr))

    def _text(self, op: str, pattern: object) -> Symbol:
        return self._made(Text(op, self.expr, (textual.check(op, pattern),)))
