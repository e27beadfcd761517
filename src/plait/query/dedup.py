"""Of tuples with one key, the first within a span: what comes soon after one that was kept is dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plait.errors import QueryError
from plait.query.arguments import Duration, by_name
from plait.query.base import Node, Query, check_name, check_node
from plait.schema import duration_us, listed


@dataclass(frozen=True, kw_only=True)
class Dedup(Query):
    """Tuples without those that repeat one. It is built by `plait.dedup`.

    Attributes:
        name: See `Query`.
        input: The stream or query that it reads.
        by: The key's columns: tuples with equal ones repeat one another.
        within_us: For how long after a tuple that was kept others of its key are dropped, in microseconds.

    Example:
        >>> import plait
        >>> plait.dedup(plait.stream("clicks"), by="user", within="5s").by
        ('user',)
    """

    input: Node
    by: tuple[str, ...]
    within_us: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)


@by_name
def dedup(
    input: Node, *, by: str | Iterable[str] | None = None, within: Duration | None = None, name: str | None = None
) -> Dedup:
    """Keep the first of equal tuples: drop what comes within a span after the last one of its key that was kept.

    A tuple is dropped if and only if the last kept tuple of its key has ts >= its own ts - within. What was dropped does not
    count: of tuples that go on repeating, one is kept each time the span is over. Tuples are judged in total order, so of
    several at one ts the first is kept. Keys are compared as those of aggregates: NULL is a key, NaN is one, and -0.0 is 0.0.

    Args:
        input: A stream or a query.
        by: The key's column, or several.
        within: The span, a duration. 0 drops only what has the same ts.
        name: What other queries call this one.

    Returns:
        A `Dedup`, which is a `Query`. Its rows have `ts`, then the input's columns; a stream's time column that is called `ts` is
        the rows' `ts`. They are in the input's order.

    Raises:
        QueryError: An argument has no meaning.

    Example:
        >>> import plait
        >>> clicks = plait.stream("clicks", unit="s")
        >>> query = plait.dedup(clicks, by="user", within="5s")
        >>> rows = {"ts": [1, 2, 6, 7], "user": ["ann", "bob", "ann", "ann"]}
        >>> query.reference({"clicks": rows}).to_pylist()
        [{'ts': 1000000, 'user': 'ann'}, {'ts': 2000000, 'user': 'bob'}, {'ts': 7000000, 'user': 'ann'}]
    """
    check_node(input, "input of dedup")
    keys = listed(by)
    for key in keys:
        if not isinstance(key, str) or not key:
            raise QueryError(f"by={by!r} names no columns", do="Pass a column's name or a list of them")
        if keys.count(key) > 1:
            raise QueryError(f"by={by!r} names {key!r} twice", do="Name it once")
    if not keys:
        raise QueryError(
            f"dedup with by={by!r}",
            why="nothing says which tuples repeat one another",
            do="Name the columns of which equal values make a repetition",
        )
    if within is None:
        raise QueryError(
            "dedup with within=None",
            why="streams are endless: a key that is remembered for ever is never forgotten",
            do="Pass a duration such as within='10 minutes'",
        )
    query = Dedup(
        name=None if name is None else check_name(name),
        input=input,
        by=keys,
        within_us=duration_us(within, "within"),
    )
    query.streams()
    return query
