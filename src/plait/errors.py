"""What went wrong, in words a user can act on.

Every message has up to three parts: the *fact* with its values, *why* it is refused, and what to *do*.
The command line turns each of these into exit code 2 and prints no traceback.
"""

from __future__ import annotations


class PlaitError(Exception):
    """Base of everything plait raises on purpose."""

    def __init__(self, fact: str, *, why: str = "", do: str = "") -> None:
        self.fact, self.why, self.do = fact, why, do
        why, do = (text[:1].upper() + text[1:] for text in (why, do))
        super().__init__(" ".join(_sentence(part) for part in (fact, why, do) if part))

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword arguments do not pickle by themselves, and these cross process borders.
        return (_rebuild, (type(self), self.fact, self.why, self.do))


def _rebuild(kind: type[PlaitError], fact: str, why: str, do: str) -> PlaitError:
    return kind(fact, why=why, do=do)


def _sentence(text: str) -> str:
    return text if text[-1] in ".!?" else text + "."


class QueryError(PlaitError, ValueError):
    """A query that can't mean anything: found when it is built or bound to its columns."""


class DataError(PlaitError, ValueError):
    """Rows that break what their stream declares: a null time, a column of another type, a broken file."""


class LateError(DataError):
    """A tuple ran further back than its source's disorder allows (`late="error"`)."""


class BehindError(DataError):
    """A tuple below the released frontier came from a source that was not holding it (`behind="error"`)."""


class PendingError(DataError):
    """More tuples wait for the frontier than the run may hold; the message names who holds it."""


class RunError(PlaitError, RuntimeError):
    """A run used in a way its life cycle forbids, or an executor that is not there."""


def counted(number: int, noun: str) -> str:
    """A number of things, in words: 1 worker, 2 workers."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def user_raised(error: Exception, called: str, why: str) -> RunError:
    """An error of a user's function, with what it was called with: no fault of plait's."""
    return RunError(f"{called} raised {type(error).__name__}: {error}", why=why)
