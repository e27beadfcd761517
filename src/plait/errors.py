"""What went wrong, in words a user can act on.

Every message has up to three parts: the *fact* with its values, *why* it is refused, and what to *do*.
The command line turns each of these into exit code 2 and prints no traceback.
"""

from __future__ import annotations

import re


class PlaitError(Exception):
    """Base of every error that plait raises on purpose.

    The message is made of up to three sentences: the fact with its values, the reason, and what to do. Each is also an attribute.
    An error keeps them when it is pickled, so it crosses process borders whole.

    Args:
        fact: What is wrong, with the values that were given.
        why: Why that is refused.
        do: What to do about it.

    Example:
        >>> import plait
        >>> try:
        ...     plait.stream("quotes", unit="fortnight")
        ... except plait.PlaitError as error:
        ...     print(error.fact, "->", error.do)
        Stream 'quotes': unit='fortnight' is no unit of time -> Use one of 'ns', 'us', 'ms', 's', 'day'
    """

    def __init__(self, fact: str, *, why: str = "", do: str = "") -> None:
        fact, why, do = map(_shown, (fact, why, do))
        self.fact, self.why, self.do = fact, why, do
        why, do = (text[:1].upper() + text[1:] for text in (why, do))
        super().__init__(" ".join(_sentence(part) for part in (fact, why, do) if part))

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword arguments do not pickle by themselves, and these cross process borders.
        return (_rebuild, (type(self), self.fact, self.why, self.do))


def _rebuild(kind: type[PlaitError], fact: str, why: str, do: str) -> PlaitError:
    return kind(fact, why=why, do=do)


#: Characters of a part of a message, at most: what was given is told in it, and may be of any length.
_LONGEST, _KEPT = 4_000, 1_900


#: Passwords and keys where they stand in addresses and settings: `scheme://user:secret@host`, `;password=secret`, and values of
#: settings that are called so. Words with blanks around their `=` are a condition's, and stay. No part of a pattern is without
#: end: a message may hold a million characters that were given.
_IN_URI = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://)[^/\s'\"@]*:[^/\s'\"@]*@", re.IGNORECASE)
_NAMED = re.compile(
    r"((?:[?&;, ]|^)(?:[\w.-]{0,60}[.-])?"
    r"(?:password|passwd|pwd|secret|secret[._-]?key|access[._-]?key|api[._-]?key|token|sig|sasl\.jaas\.config)=)"
    r"(?:\"[^\"]*\"|'[^']*'|[^\s&;,'\"]+)",
    re.IGNORECASE,
)


def _shown(text: str) -> str:
    """A part of a message as a terminal and a log can have it: without secrets, not for pages, without halves of characters."""
    text = _IN_URI.sub(r"\1***@", _NAMED.sub(r"\1***", text))
    if len(text) > _LONGEST:
        gone = len(text) - 2 * _KEPT
        text = f"{text[:_KEPT].rstrip()} ... ({gone} characters left out) ... {text[-_KEPT:].lstrip()}"
    return text.encode("utf-8", "backslashreplace").decode()


def _sentence(text: str) -> str:
    return text if text[-1] in ".!?" else text + "."


class QueryError(PlaitError, ValueError):
    """A query that can't mean anything.

    It is raised when the query is built, or when its columns become known. It is a `ValueError` too.

    Example:
        >>> import plait
        >>> plait.join(plait.stream("a"), plait.stream("b"))
        Traceback (most recent call last):
        plait.errors.QueryError: A join needs exactly one window; given: none. ...
    """


class DataError(PlaitError, ValueError):
    """Rows, files or folders that break what was declared of them: a null time, another type, a broken file.

    It is a `ValueError` too.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()})
        >>> query.reference({"readings": {"ts": [1, None]}})
        Traceback (most recent call last):
        plait.errors.DataError: Stream 'readings', row 1: time column 'ts' is NULL. Every tuple needs an event time.
    """


class LateError(DataError):
    """A tuple ran further back in time than its source's `disorder=` allows, and the stream has `late="error"`.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s", disorder="1s")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()})
        >>> query.reference({"readings": {"ts": [5, 3]}})
        Traceback (most recent call last):
        plait.errors.LateError: Stream 'readings', source 0, row 1: ts 3000000 is late, 2000000 us behind 5000000 before it. ...
    """


class BehindError(DataError):
    """A tuple lies below the released frontier, its source was not holding it, and the stream has `behind="error"`.

    Such a source was not declared and turned up late, or came back after `idle_after=`.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s", source="feed")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()})
        >>> with query.on_threads() as run:
        ...     run.push("readings", None, {"ts": [1, 40], "feed": ["x", "x"]})
        ...     run.push("readings", None, {"ts": [2], "feed": ["y"]})
        Traceback (most recent call last):
        plait.errors.BehindError: Stream 'readings', source 'y', row 0: ts 2000000 is behind the frontier 40000000, ...
    """


class PendingError(DataError):
    """More tuples wait for the frontier than the run may hold. The message names the source that holds the frontier.

    The limits are `on_threads(pending=)`, `on_spark(max_pending=)` and `max_pending` in a TOML file.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s", source="feed", sources=["x", "y"])
        >>> query = plait.aggregate(readings, size="10s", compute={"all": plait.collect("ts")})
        >>> with query.on_threads(pending=4) as run:
        ...     run.push("readings", None, {"ts": [1, 2, 3, 4, 5], "feed": ["x"] * 5})
        Traceback (most recent call last):
        plait.errors.PendingError: source 'x' of stream 'readings' has 4 tuples that wait for the frontier, which is held by
        source 'y' of stream 'readings': it has not spoken. ...
    """


class RunError(PlaitError, RuntimeError):
    """A run was used in a way that its life cycle forbids, an executor is not there, or a user's function raised.

    It is a `RuntimeError` too.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s", schema={"ts": "int64"})
        >>> run = plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads()
        >>> run.stop()
        >>> run.drain()
        Traceback (most recent call last):
        plait.errors.RunError: The run was stopped. Call on_threads again for a new run.
    """


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "worker"), counted(2, "worker")
    ('1 worker', '2 workers')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def user_raised(error: Exception, called: str, why: str) -> RunError:
    """The error for a user's function that raised. It names the function's arguments: the fault is not plait's.

    Args:
        error: What the function raised.
        called: The call in words, with its arguments.
        why: Why that stops the run.
    """
    return RunError(f"{called} raised {type(error).__name__}: {error}", why=why)
