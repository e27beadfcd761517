"""plait's own words in an error of Spark's.

What plait raises in a task, or where results are published, reaches the user inside an exception of Spark's, between its stack
traces and the query's plan. `told` finds it there. A query that `write_ordered` has started says it again as the end of its
message.
"""

from __future__ import annotations

import re
from typing import Any

from plait import errors

_RAISED = re.compile(r"^plait\.errors\.(\w+): ", re.MULTILINE)
#: Where an error's text ends in Spark's: a blank line, the JVM's stack, or what Spark says of its own.
_ENDS = re.compile(r"\n(?=\s*\n|\tat |\s+at | SQLSTATE: |Driver stacktrace:|=== |\[)|\n?\Z")
#: Where the text of the first failure ends: the rest repeats it.
_REPEATS = re.compile(r"^\s+at [\w.$/]+\(|^Caused by: |^Driver stacktrace:|^JVM stacktrace:", re.MULTILINE)


def told(error: BaseException) -> errors.PlaitError | None:
    r"""What plait said, found in an error of Spark's.

    Args:
        error: Any exception: from `awaitTermination()`, `query.exception()`, or an action on a batch DataFrame.

    Returns:
        The error that plait raised. None if it said nothing.

    Example:
        >>> import plait.spark
        >>> plait.spark.told(RuntimeError("Task failed:\nplait.errors.LateError: ts 3 is late.\n\tat java.lang.Thread"))
        LateError('ts 3 is late.')
        >>> plait.spark.told(RuntimeError("no memory")) is None
        True
    """
    if isinstance(error, errors.PlaitError):
        return error
    text = str(error)
    found = list(_RAISED.finditer(text))
    if not found:
        return None
    # The first failure's last error: those before it are what it came from.
    ends = _REPEATS.search(text, found[0].end())
    said = [match for match in found if ends is None or match.start() < ends.start()][-1]
    end = _ENDS.search(text, said.end())
    assert end is not None
    kind = getattr(errors, said[1], errors.RunError)
    made: errors.PlaitError = kind(text[said.end() : end.start()])
    return made


def telling(query: Any, publisher: Any) -> Any:
    """A started query whose errors end with plait's words, and that has its publisher with it, which knows what the run tells."""
    from pyspark.sql.streaming.query import StreamingQuery

    class Telling(StreamingQuery):
        """Spark's own, but for how it fails."""

        def awaitTermination(self, timeout: int | None = None) -> bool | None:
            return _telling(lambda: super(Telling, self).awaitTermination(timeout))  # type: ignore[no-any-return]

        def processAllAvailable(self) -> None:
            _telling(super().processAllAvailable)

        def exception(self) -> Any:
            error = super().exception()
            return None if error is None else _ending_with_words(error)

    made = Telling.__new__(Telling)
    made.__dict__.update(query.__dict__, _plait=publisher)
    return made


def _telling(action: Any) -> Any:
    from pyspark.errors import StreamingQueryException

    try:
        return action()
    except StreamingQueryException as error:
        raise _ending_with_words(error) from None


def _ending_with_words(error: Any) -> Any:
    """The same error, of the same kind, with a longer text."""
    said = told(error)
    if said is None:
        return error
    kind = type(error)

    text = f"{error}\n\n{type(said).__name__}: {said}"

    class Told(kind):  # type: ignore[misc, valid-type]
        def __str__(self) -> str:
            return text

    Told.__name__, Told.__qualname__, Told.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    made = Told.__new__(Told)
    made.__dict__.update(error.__dict__)
    return made
