"""As-of in a cell: for each left tuple the last right one at or before it, the first at or after it, or the closer of the two.

Looking back, every left tuple is decided when it is released. Those released later come after all right tuples released so
far, of which only the last of each `by` value can still be a partner: that is all that is kept. Looking ahead, a left tuple
waits until the frontier has passed the moment at which it is decided (`undecided`); of the right tuples those are kept that
lie behind one that waits, or will lie behind one to come.

Where it runs: in a cell's task, once a batch. Stored are tuples alone: left ones until the frontier has passed them, or what
they wait for; right ones until all of their chunk are further away than `within` allows, or older than the oldest row of
`latest`. After a restart `latest` and `undecided` are computed from them again.

The obvious way, one pass over both sides in order, would be a loop in Python. Here a batch is two sorts and a few searches
in NumPy. Held by tests/spark/test_joins.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.core.metrics import Counts
from plait.core.values import joint_numbers
from plait.encodings import as_array
from plait.errors import DataError
from plait.order import AFTER_ALL
from plait.query.bind import Bound
from plait.query.join import Asof
from plait.spark import formats
from plait.spark.cell.cell import LivePairs, crowded
from plait.spark.cell.results import Results, distinct
from plait.spark.formats import Chunk, Step, times


class LiveAsof(LivePairs):
    """An as-of join's contents of one cell.

    Attributes:
        node: The query's node: `by`, `within_us`, `exact`, `direction`, `how`.
        latest: Of the right tuples released so far those that a result to come may name, in total order. Looking back that is the
            last one of each `by` value. Rows with a NULL or NaN in `by` are not in it, since they equal nothing.
        undecided: Left tuples that were released and wait for later right ones, in total order. Looking back there are none.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Asof)
        super().__init__(bound)
        self.node = bound.node
        self.latest = self.schemas[1].empty_table()
        self.undecided = self.schemas[0].empty_table()
        self._counts = Counts()

    @property
    def counts(self) -> Counts:
        return self._counts

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results:
        """The left tuples' partners among what is kept and what has become ready.

        In a replay only what is kept is brought up to date. What is decided by then has had its results.
        """
        left = pa.concat_tables([self.undecided, ready[0]]).combine_chunks()
        right = pa.concat_tables([self.latest, ready[1]]).combine_chunks()
        self._counts.comparisons += left.num_rows  # each looks at one right tuple, if there is any
        if self.node.waits:
            return self._decided(left, right, frontier, results=results)
        found = _Candidates(self.node, left, right)
        out = self._paired(left, right, found.behind()) if results else self.nothing
        self.latest = right.take(pa.array(self._last_of_each(right, found.right_codes, frontier))).combine_chunks()
        return out

    # --- looking back ---

    def _paired(self, left: pa.Table, right: pa.Table, found: np.ndarray) -> Results:
        """Left tuples with their partners, in the order of the left ones. The left tuple is always the trigger.

        With `how="inner"` those without a partner are left out. Else they have NULLs, and the empty key in the place of
        the partner's.
        """
        if self.node.how == "inner":
            kept = np.flatnonzero(found >= 0)
            left, found = left.take(pa.array(kept)), found[kept]
        n = left.num_rows
        if n == 0:
            return self.nothing
        partner = right.take(pa.array(found, mask=found < 0))
        own = as_array(left.column(formats.KEY), pa.binary())
        others, place = distinct(found[found >= 0])
        none = pa.array([b""], pa.binary())  # the partner of a left tuple that has none
        known = as_array(right.column(formats.KEY).take(pa.array(others, pa.int64())), pa.binary())
        second = np.full(n, n, np.int64)
        second[found >= 0] = n + 1 + place
        columns = self.columns(left.column(formats.TS), left, partner)
        return Results(columns, pa.concat_arrays([own, none, known]), np.arange(n), second)

    def _last_of_each(self, right: pa.Table, codes: np.ndarray, frontier: int) -> np.ndarray:
        """The places of the right tuples that lie behind a left one to come: the last of each code, if it is near enough."""
        # The last position of each code: unique() finds first ones, so it looks from the end.
        kept = (
            np.sort(len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1])
            if len(codes)
            else np.zeros(0, np.int64)
        )
        kept = kept[codes[kept] >= 0]
        if self.node.within_us is not None:
            kept = kept[times(right)[kept] >= frontier - self.node.within_us]
        return kept

    # --- looking ahead ---

    def _decided(self, left: pa.Table, right: pa.Table, frontier: int, *, results: bool) -> Results:
        """Results of the left tuples that are decided below the frontier; the others wait.

        One that has a right tuple ahead below the frontier is decided, since that is the first. Who waits has none, but may have
        one behind: it is kept along.
        """
        found = _Candidates(self.node, left, right)
        ahead, behind = found.ahead(), np.full(left.num_rows, -1)
        if self.node.direction == "nearest":
            behind = found.behind()
        partner, later = self._chosen(times(left), times(right), ahead, behind)
        # Not the moment itself, which may be more than 63 bits hold.
        done = times(left) < frontier - later if frontier < AFTER_ALL else np.ones(len(later), bool)
        out = self._given_out(left, right, np.flatnonzero(done), partner, later) if results else self.nothing
        waiting = np.flatnonzero(~done)
        self.undecided = left.take(pa.array(waiting)).combine_chunks()
        needed = np.zeros(0, np.int64)
        if self.node.direction == "nearest":
            named = behind[waiting]
            needed = np.union1d(named[named >= 0], self._last_of_each(right, found.right_codes, frontier))
        self.latest = right.take(pa.array(needed, pa.int64())).combine_chunks()
        return out

    def _chosen(self, left: np.ndarray, right: np.ndarray, ahead: np.ndarray, behind: np.ndarray
                 ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Of each left tuple the place of its partner, or -1, and how much later that is decided.

        `left` and `right` are times. Of two that are as near the one behind is taken.
        """
        assert self.node.within_us is not None
        far = np.int64(AFTER_ALL)
        to_ahead, to_behind = np.full(len(left), far), np.full(len(left), far)
        for to, place in ((to_ahead, ahead), (to_behind, behind)):
            some = place >= 0
            to[some] = np.abs(right[place[some]] - left[some])
        partner = np.where(to_ahead < to_behind, ahead, behind)
        return partner, np.where(partner >= 0, np.minimum(to_ahead, to_behind), self.node.within_us)

    def _given_out(self, left: pa.Table, right: pa.Table, done: np.ndarray, partner: np.ndarray, later: np.ndarray
                   ) -> Results:  # fmt: skip
        """Results of these left tuples by moment, then in the order of the left ones.

        Such a result has no trigger. Its key is (its ts, a mark that sorts after all tuples), then the left tuple's.
        """
        if self.node.how == "inner":
            done = done[partner[done] >= 0]
        beyond = done[times(left)[done] > AFTER_ALL - later[done]]
        if len(beyond):
            raise DataError(
                f"A result's ts, {int(times(left)[beyond[0]])} + {int(later[beyond[0]])}, lies beyond 64 bits",
                why="a ts this near to the end of time, and a reach this long, have a sum that can't be counted",
                do="Use a shorter within=, or leave such tuples out",
            )
        done = done[np.argsort(times(left)[done] + later[done], kind="stable")]
        n, ts, place = len(done), times(left)[done] + later[done], partner[done]
        if n == 0:
            return self.nothing
        rows = left.take(pa.array(done))
        own = as_array(rows.column(formats.KEY), pa.binary())
        columns = self.columns(pa.array(ts), rows, right.take(pa.array(place, mask=place < 0)))
        return Results(columns, pa.concat_arrays([keys.at_last(ts), own]), np.arange(n), n + np.arange(n))

    # --- what the state holds ---

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """All rows that are still needed, if most of the stored ones are not.

        With `within` chunks go by their age (`outlived`), and nothing has to be written anew. Without it one old row can
        hold its whole chunk, so the last rows of each value are now and then written as one chunk.
        """
        if self.node.within_us is not None or not crowded(held, self.latest.num_rows + self.pending_rows):
            return None
        return {0: self.pending[0], 1: pa.concat_tables([self.latest, self.pending[1]])}

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Left tuples go when they are released, or can wait no longer. Right ones go when no left tuple can find them.

        A right tuple that has decided a left one stays as long as that one would have waited: so that after a restart it is
        decided again, and not given out a second time.
        """
        input, max_ts, within = chunk.input, chunk.last_ts, self.node.within_us
        if max_ts >= frontier:
            return False
        if input == 0:
            return within is None or not self.node.waits or max_ts < frontier - within
        if within is not None:
            # Of a left tuple that waits the one behind may be as far away as that one may wait.
            return max_ts < frontier - (2 * within if self.node.direction == "nearest" else within)
        # Without a bound a chunk stays as long as one of its rows is the last of its value. Rows are told by their ts:
        # a chunk with none of the kept ones' may go.
        kept = times(self.latest)
        return len(kept) == 0 or int(kept.min()) > max_ts


class _Candidates:
    """For each left tuple the right one that lies behind it, and the one that lies ahead. Both tables are in total order.

    A right tuple is found by one number: its value's code, then its place in `right`. In `by_value` these are sorted, so that the
    neighbours of (the left tuple's code, the first place that is not before it) are the two, if they have the same code.
    """

    def __init__(self, node: Asof, left: pa.Table, right: pa.Table) -> None:
        self.node, self.left_ts, self.right_ts = node, times(left), times(right)
        # A number for each different `by` value; -1 where NULL or NaN keeps it from equalling anything.
        pairs = ((left.column(a), right.column(b)) for a, b in node.by)
        self.left_codes, self.right_codes = joint_numbers(pairs, left.num_rows, right.num_rows)
        self.size = right.num_rows + 1
        self.by_value = np.sort(self.right_codes * self.size + np.arange(right.num_rows))
        self.own = _places_of(left, right) if node.one_stream else np.full(left.num_rows, -1)

    def behind(self) -> np.ndarray:
        """The place of the last right tuple at or before each left one, or -1; before it, without `exact`."""
        end = np.searchsorted(self.right_ts, self.left_ts, "right" if self.node.exact else "left")
        at = np.searchsorted(self.by_value, self.left_codes * self.size + end, "left") - 1
        return self._near_enough(at, -1)

    def ahead(self) -> np.ndarray:
        """The place of the first right tuple at or after each left one, or -1; after it, without `exact`."""
        begin = np.searchsorted(self.right_ts, self.left_ts, "left" if self.node.exact else "right")
        at = np.searchsorted(self.by_value, self.left_codes * self.size + begin, "left")
        return self._near_enough(at, 1)

    def _near_enough(self, at: np.ndarray, step: int) -> np.ndarray:
        """What stands at these places of `by_value`, or one step further if that is the left tuple itself; -1 if it is of another
        code, or too far away. If the first one is too far away, all beyond it are.
        """
        found = self._of_code(at)
        found = np.where((found >= 0) & (found == self.own), self._of_code(at + step), found)
        if self.node.within_us is not None and len(self.right_ts):
            ts, within = self.right_ts[np.maximum(found, 0)], self.node.within_us
            # Not the distance, which may be more than 63 bits hold.
            near = ts >= self.left_ts - within if step < 0 else ts - within <= self.left_ts
            found = np.where((found >= 0) & near, found, -1)
        return found

    def _of_code(self, at: np.ndarray) -> np.ndarray:
        """The right tuples' places that stand here, -1 where none of the left tuple's code does."""
        there = (at >= 0) & (at < len(self.by_value)) & (self.left_codes >= 0)
        if not len(self.by_value):
            return np.full(len(at), -1)
        candidate = self.by_value[np.clip(at, 0, len(self.by_value) - 1)]
        return np.where(there & (candidate // self.size == self.left_codes), candidate % self.size, -1)


def _places_of(left: pa.Table, right: pa.Table) -> np.ndarray:
    """Where each left tuple stands itself among the right ones, -1 where it does not. They are of one stream."""
    mine, others = (keys.without_input(as_array(t.column(formats.KEY), pa.binary())) for t in (left, right))
    found = pc.index_in(mine, value_set=others)
    places: np.ndarray = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places
