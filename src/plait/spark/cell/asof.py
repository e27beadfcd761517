"""As-of in a cell: the last right tuple before each left one.

Every left tuple released at a frontier comes after all right tuples released before, so of those only the last of each
`by` value can still be a partner: that is all that is kept.

Where it runs: in a cell's task, once a batch. Stored are tuples alone: left ones until the frontier has passed them,
right ones until all of their chunk are older than `within` allows, or older than the oldest row of `latest`. After a
restart `latest` is computed from them again.

The obvious way, one pass over both sides in order, would be a loop in Python. Here a batch is two sorts and two searches
in NumPy. Held by tests/spark/test_joins.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core.metrics import Counts
from plait.core.values import joint_numbers
from plait.encodings import as_array
from plait.query.bind import Bound
from plait.query.join import Asof
from plait.spark import formats
from plait.spark.cell.cell import LivePairs, crowded
from plait.spark.cell.results import Results, distinct
from plait.spark.formats import Chunk, Step, times


class LiveAsof(LivePairs):
    """An as-of join's contents of one cell.

    Attributes:
        node: The query's node: `by`, `within_us`, `how`.
        latest: Of the right tuples released so far the last one of each `by` value, in total order. Rows with a NULL or
            NaN in `by` are not in it, since they equal nothing.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Asof)
        super().__init__(bound)
        self.node = bound.node
        self.latest = self.schemas[1].empty_table()
        self._counts = Counts()

    @property
    def counts(self) -> Counts:
        return self._counts

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results:
        """The left tuples' partners among what is kept and what has become ready.

        In a replay only `latest` is brought up to date. Left tuples of stored chunks have had their results.
        """
        left = ready[0]
        right = pa.concat_tables([self.latest, ready[1]]).combine_chunks()
        left_codes, right_codes = self._codes(left, right)
        found = self._partners(left, right, left_codes, right_codes) if results else np.zeros(0, np.int64)
        out = self._results(left, right, found) if results else self.nothing
        self._counts.comparisons += left.num_rows  # each looks at one right tuple, if there is any
        self.latest = self._last_of_each(right, right_codes, frontier)
        return out

    def _codes(self, left: pa.Table, right: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """A number for each different `by` value; -1 where NULL or NaN keeps it from equalling anything."""
        pairs = ((left.column(a), right.column(b)) for a, b in self.node.by)
        return joint_numbers(pairs, left.num_rows, right.num_rows)

    def _partners(self, left: pa.Table, right: pa.Table, left_codes: np.ndarray, right_codes: np.ndarray) -> np.ndarray:
        """For each left tuple the position of its partner, or -1.

        A right tuple is found by one number: its value's code, then its place in `right`. Sorted, the last number below
        (the left tuple's code, the first place that is not before it) is the partner, if it has the same code. `within`
        is checked after that: if the last one is too old, all before it are older.
        """
        before = np.searchsorted(times(right), times(left), "left")  # at one ts the left input comes first
        size = right.num_rows + 1
        by_value = np.sort(right_codes * size + np.arange(right.num_rows))
        at = np.searchsorted(by_value, left_codes * size + before, "left") - 1
        candidate = by_value[np.maximum(at, 0)] if len(by_value) else np.zeros(len(at), np.int64)
        fits = (at >= 0) & (left_codes >= 0) & (candidate // size == left_codes)
        found = np.where(fits, candidate % size, -1)
        if self.node.within_us is not None and right.num_rows:
            oldest = times(left) - self.node.within_us  # not the age, which may be more than 63 bits hold
            found = np.where((found >= 0) & (times(right)[np.maximum(found, 0)] >= oldest), found, -1)
        return found

    def _results(self, left: pa.Table, right: pa.Table, found: np.ndarray) -> Results:
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
        positions = pa.array(found, mask=found < 0)
        partner = right.take(positions)
        own = as_array(left.column(formats.KEY), pa.binary())
        others, place = distinct(found[found >= 0])
        none = pa.array([b""], pa.binary())  # the partner of a left tuple that has none
        known = as_array(right.column(formats.KEY).take(pa.array(others, pa.int64())), pa.binary())
        second = np.full(n, n, np.int64)
        second[found >= 0] = n + 1 + place
        columns = self.columns(left.column(formats.TS), left, partner)
        return Results(columns, pa.concat_arrays([own, none, known]), np.arange(n), second)

    def _last_of_each(self, right: pa.Table, codes: np.ndarray, frontier: int) -> pa.Table:
        """What of the right tuples a later left one may still find."""
        # The last position of each code: unique() finds first ones, so it looks from the end.
        kept = (
            np.sort(len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]) if len(codes) else np.zeros(0, int)
        )
        kept = kept[codes[kept] >= 0]
        if self.node.within_us is not None:
            kept = kept[times(right)[kept] >= frontier - self.node.within_us]
        return right.take(pa.array(kept, pa.int64())).combine_chunks()

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """All rows that are still needed, if most of the stored ones are not.

        With `within` chunks go by their age (`outlived`), and nothing has to be written anew. Without it one old row can
        hold its whole chunk, so the last rows of each value are now and then written as one chunk.
        """
        if self.node.within_us is not None or not crowded(held, self.latest.num_rows + self.pending_rows):
            return None
        return {0: self.pending[0], 1: pa.concat_tables([self.latest, self.pending[1]])}

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Left tuples go when they are released. Right ones go when no left tuple can find them."""
        input, max_ts = chunk.input, chunk.last_ts
        if max_ts >= frontier:
            return False
        if input == 0:
            return True
        if self.node.within_us is not None:
            return max_ts < frontier - self.node.within_us
        # Without a bound a chunk stays as long as one of its rows is the last of its value. Rows are told by their ts:
        # a chunk with none of the kept ones' may go.
        kept = times(self.latest)
        return len(kept) == 0 or int(kept.min()) > max_ts
