"""Joins: which pairs of tuples are results, and what a result looks like.

A kind of window is a class here, with what a query has to know of it. How far back it reaches is said in its record in
`core.join.reach`, from which every executor takes it; the reference has its own rule for it.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

from plait.errors import QueryError
from plait.query.arguments import Direction, Duration, PairCondition, by_name
from plait.query.arguments import How as HowName
from plait.query.base import Node, Query, check_name, check_node
from plait.query.condition.predicate import Predicate, predicate
from plait.query.stream import Stream
from plait.schema import duration_text, duration_us, listed, tuple_count


@dataclass(frozen=True, kw_only=True)
class How:
    """What one kind of join gives out. Sides are 0, left, and 1, right.

    pairs  which pairs are results: "every" one, of each left row the "first", or "none"
    alone  the sides whose rows are results, too, where they have found no partner
    shown  the sides whose columns a result has
    """

    pairs: str = "every"
    alone: tuple[int, ...] = ()
    shown: tuple[int, ...] = (0, 1)

    @property
    def whole(self) -> tuple[int, ...]:
        """The sides of whose rows somebody must know whether they have found any partner at all."""
        return (0,) if self.pairs != "every" else self.alone

    @property
    def nullable(self) -> tuple[int, ...]:
        """The sides whose columns are NULL in some results: a row of the other side stands there alone."""
        return tuple(1 - side for side in self.alone if 1 - side in self.shown)


#: Every kind of join that there is.
HOWS: Mapping[str, How] = {
    "inner": How(),
    "left": How(alone=(0,)),
    "right": How(alone=(1,)),
    "full": How(alone=(0, 1)),
    "semi": How(pairs="first", shown=(0,)),
    "anti": How(pairs="none", alone=(0,), shown=(0,)),
}
DIRECTIONS = ("backward", "forward", "nearest")


#: Every kind of window that there is.
WINDOWS: list[type[Window]] = []


class Window(ABC):
    """A kind of window. Classes that derive from it are in `WINDOWS` by that."""

    #: What messages call it: "a ... window".
    name: ClassVar[str]

    #: Whether it says when a row can find no partner any more, as every `how=` but "inner" needs it to.
    ends: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for word in ("name", "ends"):
            if word not in vars(cls):
                raise TypeError(f"the kind of window {cls.__name__} does not say its `{word}`: see plait.query.join")
        WINDOWS.append(cls)

    @abstractmethod
    def describe(self) -> str:
        """For `explain`. On Spark it is part of what a checkpoint knows a query by."""


@dataclass(frozen=True)
class TimeWindow(Window):
    """`-before <= r.ts - l.ts <= after`, in microseconds."""

    before_us: int
    after_us: int

    name: ClassVar[str] = "time"
    ends: ClassVar[bool] = True

    def describe(self) -> str:
        if self.before_us == self.after_us:
            return f"within {duration_text(self.before_us)}"
        return f"right from {duration_text(self.before_us)} before to {duration_text(self.after_us)} after left"


@dataclass(frozen=True)
class CountWindow(Window):
    """The earlier tuple is among the last `count` of its stream that precede the later one."""

    count: int

    name: ClassVar[str] = "count"
    ends: ClassVar[bool] = False

    def describe(self) -> str:
        return f"last {self.count} tuples"


@dataclass(frozen=True)
class TumblingWindow(Window):
    """Both tuples fall into the same `[k*size, (k+1)*size)`."""

    size_us: int

    name: ClassVar[str] = "tumbling"
    ends: ClassVar[bool] = False

    def describe(self) -> str:
        return f"tumbling {duration_text(self.size_us)}"


@dataclass(frozen=True)
class TumblingCountWindow(Window):
    """The earlier tuple is in the window that its stream is in when the later one comes: its k-th `count` tuples."""

    count: int

    name: ClassVar[str] = "tumbling count"
    ends: ClassVar[bool] = False

    def describe(self) -> str:
        return f"tumbling {self.count} tuples"


@dataclass(frozen=True, kw_only=True)
class Join(Query):
    """A join of two inputs over a window. It is built by `plait.join`.

    Attributes:
        name: See `Query`.
        left: The left input, a stream or a query.
        right: The right input.
        predicate: The condition, as it was written and as it was understood.
        window: A `TimeWindow`, `CountWindow`, `TumblingWindow` or `TumblingCountWindow`.
        how: "inner", "left", "right", "full", "semi" or "anti".

    Example:
        >>> import plait
        >>> plait.join(plait.stream("a"), plait.stream("b"), last=100).window
        CountWindow(count=100)
    """

    left: Node
    right: Node
    predicate: Predicate
    window: Window
    how: str

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left, then right."""
        return (self.left, self.right)


@dataclass(frozen=True, kw_only=True)
class Asof(Query):
    """An as-of join. It is built by `plait.asof`.

    Attributes:
        name: See `Query`.
        left: The input whose tuples look for a partner.
        right: The input that has the partners.
        by: Pairs of a left and a right column that must be equal.
        within_us: How far away in time a partner may be, in microseconds. None: any distance.
        how: "left" or "inner".
        exact: Whether a right tuple at the left one's own ts is a candidate.
        direction: "backward", "forward" or "nearest".

    Example:
        >>> import plait
        >>> plait.asof(plait.stream("a"), plait.stream("b"), by=["k", ("x", "y")]).by
        (('k', 'k'), ('x', 'y'))
    """

    left: Node
    right: Node
    by: tuple[tuple[str, str], ...]
    within_us: int | None
    how: str
    exact: bool = True
    direction: str = "backward"

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left, then right."""
        return (self.left, self.right)

    @property
    def one_stream(self) -> bool:
        """Whether both inputs are the same stream or query: then a tuple is no candidate for itself. Equal ones are the same."""
        return self.left is self.right or self.left == self.right

    @property
    def waits(self) -> bool:
        """Whether a left tuple may have to wait for later right ones: its result then has the ts at which it is decided."""
        return self.direction != "backward"


def side_names(left: Node, right: Node) -> tuple[str, str]:
    """What the two inputs are called in SQL, messages and column prefixes: their names if these differ."""
    names = (left.name, right.name)
    return ("left", "right") if None in names or names[0] == names[1] else (str(names[0]), str(names[1]))


@overload
def join(
    left: Node, right: Node, *, within: Duration | tuple[Duration, Duration], on: PairCondition | None = None,
    how: HowName = "inner", name: str | None = None,
) -> Join: ...  # fmt: skip
@overload
def join(
    left: Node,
    right: Node,
    *,
    last: int,
    on: PairCondition | None = None,
    how: Literal["inner"] = "inner",
    name: str | None = None,
) -> Join: ...
@overload
def join(
    left: Node, right: Node, *, tumbling: Duration, on: PairCondition | None = None, how: Literal["inner"] = "inner",
    name: str | None = None,
) -> Join: ...  # fmt: skip
@overload
def join(
    left: Node, right: Node, *, tumbling_count: int, on: PairCondition | None = None, how: Literal["inner"] = "inner",
    name: str | None = None,
) -> Join: ...  # fmt: skip
@by_name
def join(
    left: Node,
    right: Node,
    *,
    on: PairCondition | None = None,
    within: Duration | tuple[Duration, Duration] | None = None,
    last: int | None = None,
    tumbling: Duration | None = None,
    tumbling_count: int | None = None,
    session: Duration | None = None,
    how: str = "inner",
    name: str | None = None,
) -> Join:
    """Join two streams or queries over a window.

    Exactly one of `within`, `last`, `tumbling` and `tumbling_count` is given. A result's ts is the later one of the pair.
    Results come by their later tuple, then by the earlier one. A row without a partner comes when none can come any more, after
    the other results at that ts: a left row at its ts + after, a right one at its ts + before; left ones before right ones. The
    same stream on both sides is read once, and each of its tuples also meets itself unless `on` excludes it.

    Args:
        left: A stream or a query.
        right: A stream or a query.
        on: The condition: a function of the two rows, left first, or SQL text. None: every pair in the window.
        within: Time window: a duration, or (before, after) for `-before <= right.ts - left.ts <= after`.
        last: Count window: the earlier tuple is among the last N of its stream that precede the later one.
        tumbling: Tumbling window: both tuples fall into the same `[k*T, (k+1)*T)`.
        tumbling_count: Tumbling window of N tuples. A stream's first N tuples are its first window, the next N its second, and so
            on. A tuple meets those of the window that the other stream is in: the one of the last tuple before it.
        session: Refused, with the reason. `plait.aggregate` has sessions.
        how: "inner"; with `within` also "left", "right" and "full", which keep rows that find no partner, with NULLs in its
            place, "semi", which keeps each left row that finds one, and "anti", which keeps each that finds none.
        name: What other queries call this one.

    Returns:
        A `Join`, which is a `Query`. Its rows have `ts`, the left columns, then the right ones. "semi" and "anti" have no right
        columns. A name that stands twice gets its stream's name in front.

    Raises:
        QueryError: There is no window or there are several, or an argument has no meaning.

    Example:
        >>> import plait
        >>> quotes, trades = plait.stream("quotes", unit="s"), plait.stream("trades", unit="s")
        >>> near = plait.join(quotes, trades, on=lambda q, t: abs(q.bid - t.price) <= 1, within="5s", how="left")
        >>> rows = {"quotes": {"ts": [1, 9], "bid": [10, 20]}, "trades": {"ts": [3], "price": [11]}}
        >>> near.reference(rows).select(["ts", "bid", "price"]).to_pylist()
        [{'ts': 3000000, 'bid': 10, 'price': 11}, {'ts': 14000000, 'bid': 20, 'price': None}]
    """
    check_node(left, "left input of join")
    check_node(right, "right input of join")
    if session is not None:
        raise QueryError(
            f"A join over sessions (session={session!r})",
            why="which tuples share a session is known only once it has ended, and a tuple in between may make one of two: "
            "pairs would have to be taken back",
            do="Join within=..., or aggregate each stream by session= and join these",
        )
    window = _window(within, last, tumbling, tumbling_count)
    if not isinstance(how, str) or how not in HOWS:
        raise QueryError(f"how={how!r} is no kind of join", do=f"Use one of {', '.join(map(repr, HOWS))}")
    if how != "inner" and not window.ends:
        raise QueryError(
            f"how={how!r} with a {window.name} window",
            why="only a time window says when a row can find no partner any more",
            do="Use within=, or how='inner'",
        )
    names = side_names(left, right)
    sides = {names[0]: 0, names[1]: 1, "left": 0, "right": 1, "l": 0, "r": 1}
    if left.name != right.name:  # an input that has a name can be called by it, though the other has none
        sides |= {node.name: side for side, node in enumerate((left, right)) if node.name is not None}
    query = Join(
        name=None if name is None else check_name(name),
        left=left,
        right=right,
        predicate=predicate(on, names, sides),
        window=window,
        how=how,
    )
    query.streams()
    return query


def _window(within: Any, last: Any, tumbling: Any, tumbling_count: Any) -> Window:
    """The one window that was given."""
    options = {"within": within, "last": last, "tumbling": tumbling, "tumbling_count": tumbling_count}
    given = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise QueryError(
            f"A join needs exactly one window; given: {' and '.join(given) or 'none'}",
            why="streams are endless: a window says how long a tuple waits for partners",
            do="Pass one of within='5 minutes', last=1000, tumbling='1 hour', tumbling_count=1000",
        )
    kinds: dict[str, type[CountWindow] | type[TumblingCountWindow]] = {
        "last": CountWindow,
        "tumbling_count": TumblingCountWindow,
    }
    for name, kind in kinds.items():
        count = options[name]
        if count is not None:
            return kind(tuple_count(count, f"{name}={count!r}"))
    if tumbling is not None:
        return TumblingWindow(duration_us(tumbling, "tumbling", zero=False))
    if isinstance(within, (tuple, list)):
        if len(within) != 2:
            raise QueryError(f"within={within!r} has {len(within)} parts", do="Pass one duration or (before, after)")
        return TimeWindow(duration_us(within[0], "within (before)"), duration_us(within[1], "within (after)"))
    both = duration_us(within, "within")
    return TimeWindow(both, both)


@overload
def asof(
    left: Node, right: Node, *, by: str | Iterable[str | tuple[str, str]] | None = None, within: Duration | None = None,
    exact: bool = True, direction: Literal["backward"] = "backward", how: Literal["left", "inner"] = "left",
    name: str | None = None,
) -> Asof: ...  # fmt: skip
@overload
def asof(
    left: Node, right: Node, *, within: Duration, direction: Direction, by: str | Iterable[str | tuple[str, str]] | None = None,
    exact: bool = True, how: Literal["left", "inner"] = "left", name: str | None = None,
) -> Asof: ...  # fmt: skip
@by_name
def asof(
    left: Node,
    right: Node,
    *,
    by: str | Iterable[str | tuple[str, str]] | None = None,
    within: Duration | None = None,
    exact: bool = True,
    direction: str = "backward",
    how: str = "left",
    name: str | None = None,
) -> Asof:
    """Find for each left tuple one right tuple: the last at or before it, the first at or after it, or the closer of the two.

    Several right tuples at one ts are told apart by total order: backward takes the last of them, forward the first. Where
    both are as near, nearest takes the one behind. With the same stream or query on both sides (equal ones are the same; one
    that is filtered or has other columns is another) a tuple is no candidate for itself.

    A result's ts is the moment at which it is decided. Backward that is the left tuple's. Forward it is the right tuple's, or
    `left.ts + within` if there is none. Nearest it is the right tuple's if that lies ahead, as much after the left tuple as the
    right one lies before it, or `left.ts + within` if there is none. Results at one ts come in the order of their left tuples.

    Args:
        left: A stream or a query.
        right: A stream or a query.
        by: Columns that must be equal: a name, or a list of names or (left, right) pairs. NULL equals nothing.
        within: How far away in time the right tuple may be. None: any distance, which only backward can have.
        exact: Whether a right tuple at the very same ts matches.
        direction: Where to look: "backward", "forward" or "nearest".
        how: "left" keeps left tuples that find none, with NULLs; "inner" drops them.
        name: What other queries call this one.

    Returns:
        An `Asof`, which is a `Query`. Its rows have `ts`, the left columns, then the right ones.

    Raises:
        QueryError: An argument has no meaning, or forward and nearest have no `within`.

    Example:
        >>> import plait
        >>> trades, quotes = plait.stream("trades", unit="s"), plait.stream("quotes", unit="s")
        >>> rows = {"trades": {"ts": [3, 20], "size": [7, 8]}, "quotes": {"ts": [1, 3, 4], "bid": [10, 11, 12]}}
        >>> plait.asof(trades, quotes, within="5s").reference(rows).select(["ts", "size", "bid"]).to_pylist()
        [{'ts': 3000000, 'size': 7, 'bid': 11}, {'ts': 20000000, 'size': 8, 'bid': None}]
        >>> after = plait.asof(trades, quotes, within="5s", exact=False, direction="forward")
        >>> after.reference(rows).select(["ts", "size", "bid"]).to_pylist()
        [{'ts': 4000000, 'size': 7, 'bid': 12}, {'ts': 25000000, 'size': 8, 'bid': None}]
    """
    check_node(left, "left input of asof")
    check_node(right, "right input of asof")
    if not isinstance(how, str) or how not in ("left", "inner"):
        raise QueryError(f"how={how!r} is no kind of as-of join", do="Use 'left' or 'inner'")
    if not isinstance(exact, bool):
        raise QueryError(
            f"exact={exact!r} is neither true nor false",
            do="Pass True if a right tuple at the same ts matches, else False",
        )
    if direction not in DIRECTIONS:
        near = difflib.get_close_matches(str(direction), DIRECTIONS, n=1)
        raise QueryError(
            f"direction={direction!r} is no direction",
            why=f"there are {', '.join(map(repr, DIRECTIONS))}",
            do=f"Did you mean {near[0]!r}?" if near else "Use one of them",
        )
    if direction != "backward" and within is None:
        raise QueryError(
            f"direction={direction!r} without within=",
            why="a right tuple may come at any time: nothing says when a left one has waited long enough",
            do="Pass within='10s', or direction='backward'",
        )
    query = Asof(
        name=None if name is None else check_name(name),
        left=left,
        right=left if left == right else right,  # equal queries are one: it is computed once, and a tuple knows itself
        by=_by(by),
        within_us=None if within is None else duration_us(within, "within"),
        how=how,
        exact=exact,
        direction=direction,
    )
    query.streams()
    return query


def _by(by: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of columns from what `by=` may say."""
    pairs = []
    for item in () if by is None else listed(by):
        pair = (item, item) if isinstance(item, str) else item
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(c, str) and c for c in pair)):
            raise QueryError(
                f"by={by!r} names no columns", do="Pass a column, or a list of columns or (left, right) pairs"
            )
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


__all__ = [
    "DIRECTIONS",
    "HOWS",
    "WINDOWS",
    "Asof",
    "CountWindow",
    "How",
    "Join",
    "Stream",
    "TimeWindow",
    "TumblingCountWindow",
    "TumblingWindow",
    "Window",
    "asof",
    "join",
    "side_names",
]
