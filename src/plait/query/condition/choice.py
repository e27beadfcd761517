"""Values that are chosen or put together of several: `when`, `coalesce` and `concat`, of whatever a function is called with.

A condition's function is called with symbols when it is traced, with values when the reference judges it, and with Python's own
values when it does not trace. Symbols and values have methods for each of these (`_case`, `_coalesced`, `_concat`); the first
argument that has one is asked. Where none has, it is plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait.errors import QueryError

Branches = tuple[tuple[Any, Any], ...]


class When:
    """A choice that is not finished: `otherwise` ends it. It begins with `plait.when`.

    The examples of its methods go on from this one.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> rows = {"readings": {"ts": [1, 2, 3], "c": [-3, 12, None]}}
        >>> def made(column):
        ...     '''The values of a column that is computed.'''
        ...     return readings.select(made=column).run(rows)["made"].to_pylist()
        >>> made(lambda row: plait.when(row.c < 0, "ice").otherwise("water"))
        ['ice', 'water', 'water']
    """

    __slots__ = ("_branches",)

    def __init__(self, branches: Branches) -> None:
        self._branches = branches

    def when(self, condition: object, value: object) -> When:
        """One more branch: it is taken where no branch before it is, and its condition is true.

        Args:
            condition: A condition on columns.
            value: A column, an expression or a constant; None is NULL.

        Returns:
            The longer choice.

        Raises:
            QueryError: When the query is bound: the condition is no truth value.

        Example:
            >>> made(lambda row: plait.when(row.c < 0, "ice").when(row.c > 9, "warm").otherwise(None))
            ['ice', 'warm', None]
        """
        return When((*self._branches, (condition, value)))

    def otherwise(self, value: object) -> Any:
        """The value where no branch is taken, which ends the choice.

        Args:
            value: A column, an expression or a constant; None is NULL.

        Returns:
            The value of the first branch whose condition is true, else this one.

        Raises:
            QueryError: When the query is bound: a branch's condition is no truth value, or values of different kinds are mixed.

        Example:
            >>> made(lambda row: plait.when(row.c > 0, row.c).otherwise(0) + 1)
            [1, 13, 1]
        """
        given = [each for branch in self._branches for each in branch]
        return _ask("_case", [*given, value], (self._branches, value), self._plainly)

    def _plainly(self, branches: Branches, otherwise: object) -> object:
        return next((value for condition, value in branches if condition), otherwise)


def when(condition: object, value: object) -> When:
    """A value that depends on conditions: SQL's CASE. It goes on with `.when(...)` and ends with `.otherwise(value)`.

    Args:
        condition: A condition on columns. Where it is unknown (a comparison with NULL or NaN) the branch is not taken.
        value: A column, an expression or a constant; None is NULL.

    Returns:
        The choice, which `.otherwise(value)` turns into a value. Its type is the common one of all branches: numbers are promoted
        as NumPy 2 does, integers among themselves stay integers; text goes with text.

    Raises:
        QueryError: When the query is built: `.otherwise(value)` is missing. When it is bound: the condition is no truth value.

    Example:
        >>> import plait
        >>> bids = plait.stream("bids", unit="s")
        >>> def size(row):
        ...     return plait.when(row.price >= 100, "large").when(row.price >= 10, "fair").otherwise("low")
        >>> bids.select(size=size).run({"bids": {"ts": [1, 2, 3], "price": [500, 3, 10]}})["size"].to_pylist()
        ['large', 'low', 'fair']
    """
    return When(((condition, value),))


def unfinished(about: str) -> QueryError:
    """The error for a choice that was left without `otherwise`."""
    return QueryError(
        f"{about} has a plait.when(...) without .otherwise(...)",
        why="nothing says what it is where no branch is taken",
        do="End it with .otherwise(value); .otherwise(None) gives NULL",
    )


def coalesce(*values: object) -> Any:
    """The first of several values that is not NULL.

    Args:
        *values: Columns, expressions or constants. NaN is a value.

    Returns:
        That value, or NULL. Its type is the common one of all values, as that of `when`.

    Raises:
        QueryError: No value is given.

    Example:
        >>> import plait
        >>> bids = plait.stream("bids", unit="s")
        >>> known = bids.select(price=lambda row: plait.coalesce(row.price, row.guess, 0))
        >>> known.run({"bids": {"ts": [1, 2, 3], "price": [5, None, None], "guess": [4, 4, None]}})["price"].to_pylist()
        [5, 4, 0]
    """
    if not values:
        raise QueryError("coalesce() of nothing", do="Pass at least one value")
    return _ask("_coalesced", values, (values,), lambda given: next((each for each in given if each is not None), None))


def concat(*texts: object) -> Any:
    """Several texts, one after the other: SQL's `||`.

    Args:
        *texts: Columns of text, expressions or constants.

    Returns:
        A text; NULL if one of them is.

    Raises:
        QueryError: No text is given; when the query is bound, one of them is no text.

    Example:
        >>> import plait
        >>> people = plait.stream("people", unit="s")
        >>> named = people.select(name=lambda row: plait.concat(row.first, " ", row.last))
        >>> named.run({"people": {"ts": [1, 2], "first": ["Ada", None], "last": ["Lovelace", "Hopper"]}})["name"].to_pylist()
        ['Ada Lovelace', None]
    """
    if not texts:
        raise QueryError("concat() of nothing", do="Pass at least one text")
    return _ask("_concat", texts, (texts,), lambda given: None if None in given else "".join(given))


def _ask(method: str, given: Sequence[object], arguments: tuple[Any, ...], plain: Callable[..., Any]) -> Any:
    for each in given:
        asked = getattr(type(each), method, None)
        if asked is not None:
            return asked(each, *arguments)
    return plain(*arguments)
