"""Regular expressions and LIKE, written for RE2 so that every executor's answer is the same.

A regular expression is Python's, read as ASCII (`\\d`, `\\w`, `\\s` and `\\b` know ASCII only), and is searched for. Executors
match with RE2, the reference with Python's `re`. Without look-around, back-references and flags both decide whether a text
holds a word of one regular language; so what is allowed here is just that, and it is written anew for RE2 from Python's own
reading of it, character by character. `$`, which Python also finds before a last newline, is refused: `\\Z` is the end.

Where a part of the match is asked for (`extracting`), both take the leftmost match and of several the one that prefers earlier
branches and, of `*`, more. They are known to differ where something is repeated that may be empty, so that is refused there.
"""

from __future__ import annotations

import re
from re import _constants as sre  # type: ignore[attr-defined]  # Python's own reading of a pattern has no public name
from re import _parser  # type: ignore[attr-defined]  # as above
from typing import Any, Final

from plait.errors import QueryError

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


def re2(op: str, pattern: str) -> str:
    r"""The expression that RE2 has to find for `matches` and `like`.

    >>> re2("like", "a%")
    '\\Aa[\\x{0}-\\x{10FFFF}]*\\z'
    """
    return _like(pattern) if op == "like" else _Writer("matches", pattern).whole(_parsed("matches", pattern))


def extracting(pattern: str, group: int) -> str:
    r"""The expression that RE2 has to find for `regexp_extract`: what is asked for is its group `part`.

    >>> extracting(r"id=(\d+)", 1)
    'id\\x{3D}(?P<part>(?:[0-9]){1,})'
    """
    parsed = _parsed("regexp_extract", pattern)
    groups = parsed.state.groups - 1
    if group > groups:
        raise QueryError(
            f"regexp_extract({pattern!r}, {group}) asks for group {group}",
            why=f"the pattern has {groups or 'no'} group{'s' if groups != 1 else ''} in brackets",
            do="Number groups by their opening brackets, from 1; 0 is the whole match",
        )
    text = _Writer("regexp_extract", pattern, group).whole(parsed)
    return text if group else f"(?P<part>{text})"


def _parsed(op: str, pattern: str) -> Any:
    """Python's reading of a pattern."""
    try:
        parsed = _parser.parse(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise QueryError(
            f"{op}({pattern!r}) is no regular expression: {error}", do="Escape what is meant as it stands with \\"
        ) from error
    if parsed.state.flags & ~re.ASCII:
        raise _refused(op, pattern, "flags")
    return parsed


def _refused(op: str, pattern: str, what: str) -> QueryError:
    return QueryError(
        f"{op}({pattern!r}) uses {what}",
        why="executors match with RE2, the reference with Python's re, and there the two could differ",
        do="Use characters, classes, | ( ) * + ? {m,n} ^ and the dot, \\Z for the end, \\b, and \\d \\w \\s of ASCII; for upper "
        "and lower case alike, ascii_lower()",
    )


class _Writer:
    """Writes Python's reading of a pattern for RE2; refuses where the two could differ. `group` is the one to extract."""

    def __init__(self, op: str, pattern: str, group: int | None = None) -> None:
        self.op, self.pattern, self.group = op, pattern, group

    def whole(self, parsed: Any) -> str:
        try:
            return self.text(parsed)
        except RecursionError:
            raise _refused(self.op, self.pattern, "groups in groups, deeper than can be read") from None

    def text(self, items: Any) -> str:
        return "".join(self._one(*item) for item in items)

    def _one(self, op: Any, value: Any) -> str:
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
                return f"(?:{'|'.join(self.text(branch) for branch in value[1])})"
            case sre.SUBPATTERN if not (value[1] or value[2]):
                return f"({'?P<part>' if self.group and value[0] == self.group else '?:'}{self.text(value[3])})"
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                return self._repeated(*value, lazy=op is sre.MIN_REPEAT)
            case sre.AT if value in _PLACES:
                return _PLACES[value]
            case _:
                raise _refused(self.op, self.pattern, f"{str(op if op is not sre.AT else value).lower()}")

    def _repeated(self, least: int, most: Any, inner: Any, *, lazy: bool) -> str:
        if max(least, 0 if most is sre.MAXREPEAT else most) > _MOST:
            raise _refused(self.op, self.pattern, f"a repetition of more than {_MOST}")
        if self.group is not None and inner.getwidth()[0] == 0:
            raise _refused(self.op, self.pattern, "a repetition of what may be empty")
        return f"(?:{self.text(inner)}){{{least},{'' if most is sre.MAXREPEAT else most}}}{'?' if lazy else ''}"


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
