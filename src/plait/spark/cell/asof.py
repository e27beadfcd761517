"""As-of in a cell: for each left tuple the last right one at or before it, the first at or after it, or the closer of the two.

Looking back, every left tuple is decided when it is released. Those released later come after all right tuples released so
far, of which only the last of each `by` value can still be a partner: that is all that is kept. Looking ahead, a left tuple
waits until the frontier has passed the moment at which it is decided (`undecided`); of the right tuples those are kept that
lie behind one that waits, or will lie behind one to come.

Where it runs: in a cell's task, once a batch. Stored are tuples alone: left ones until the frontier has passed them, or what
they wait for; right ones until all of their chunk are further away than `within` allows, or older than the oldest row of
`latest`. After a restart `latest` and `undecided` are computed from them again.

Which tuples find which is `core.join.asof`'s to say, which takes a batch in one pass over both sides. Held by
tests/spark/test_joins.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.core.join.asof import Found, Sides, decided
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

    @property
    def rows_held(self) -> dict[int, int]:
        own = (self.undecided, self.latest)
        return {side: self.pending[side].num_rows + own[side].num_rows for side in (0, 1)}

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results:
        """The left tuples' partners among what is kept and what has become ready.

        In a replay only what is kept is brought up to date. What is decided by then has had its results.
        """
        left = pa.concat_tables([self.undecided, ready[0]]).combine_chunks()
        right = pa.concat_tables([self.latest, ready[1]]).combine_chunks()
        self._counts.comparisons += left.num_rows  # each looks at one right tuple, if there is any
        found = decided(self.node, self._sides(left, right), frontier)
        out = self._given_out(left, right, found) if results else self.nothing
        self.undecided = left.take(pa.array(found.waiting)).combine_chunks()
        self.latest = right.take(pa.array(found.kept)).combine_chunks()
        return out

    def _sides(self, left: pa.Table, right: pa.Table) -> Sides:
        """What the core needs of both: times, and a number for each different `by` value; -1 where NULL or NaN keeps it from
        equalling anything.
        """
        pairs = ((left.column(a), right.column(b)) for a, b in self.node.by)
        left_codes, right_codes = joint_numbers(pairs, left.num_rows, right.num_rows)
        codes = 1 + int(max(left_codes.max(initial=-1), right_codes.max(initial=-1)))
        own = _places_of(left, right) if self.node.one_stream else None
        return Sides(times(left), left_codes, times(right), right_codes, codes, own)

    def _given_out(self, left: pa.Table, right: pa.Table, found: Found) -> Results:
        """Left tuples with their partners.

        Looking back the left tuple is the trigger, and where there is no partner the empty key stands in the place of its key.
        Looking ahead a result has no trigger. Its key is (its ts, a mark that sorts after all tuples), then the left tuple's.
        """
        n, place = len(found.done), found.partner
        if n == 0:
            return self.nothing
        rows = left.take(pa.array(found.done))
        own = as_array(rows.column(formats.KEY), pa.binary())
        columns = self.columns(pa.array(found.ts), rows, right.take(pa.array(place, mask=place < 0)))
        if self.node.waits:
            return Results(columns, pa.concat_arrays([keys.at_last(found.ts), own]), np.arange(n), n + np.arange(n))
        others, at = distinct(place[place >= 0])
        none = pa.array([b""], pa.binary())  # the partner of a left tuple that has none
        known = as_array(right.column(formats.KEY).take(pa.array(others, pa.int64())), pa.binary())
        second = np.full(n, n, np.int64)
        second[place >= 0] = n + 1 + at
        return Results(columns, pa.concat_arrays([own, none, known]), np.arange(n), second)

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


def _places_of(left: pa.Table, right: pa.Table) -> np.ndarray:
    """Where each left tuple stands itself among the right ones, -1 where it does not. They are of one stream."""
    mine, others = (keys.without_input(as_array(t.column(formats.KEY), pa.binary())) for t in (left, right))
    found = pc.index_in(mine, value_set=others)
    places: np.ndarray = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return places
