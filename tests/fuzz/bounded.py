"""One more delivery of a group: whole tables by `query.run`, in slabs that are cut at random; what can't go in slabs is left out.

Two ways a group: slabs as small as they can be, and another draw. Chunks, slabs, ranges, threads, keys and indexes are drawn.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

from tests.fuzz.deliveries import Ways
from tests.fuzz.judge import Got
from tests.fuzz.queries import Group
from tests.threads.bounded.slabs import feeds_of, goes_in_slabs, in_slabs

from plait.core.condition.leaves import shape
from plait.core.join.choice import possible
from plait.errors import PlaitError
from plait.query.bind import bind
from plait.query.join import Join


def carried_out(group: Group, chance: random.Random, ways: Ways) -> Iterator[Got]:
    """What each way gives, however it ends."""
    data = {each.stream.name: each.data() for each in group.feeds}
    for rows in (1, chance.choice((2, 5, 17, 1 << 18))):
        got = Got()
        sizes = random.Random(chance.random())
        options = _options(chance, group, ways)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # late tuples that are dropped are announced
            try:
                feeds = feeds_of(group.query, data, lambda: sizes.choice((1, 2, 3, 100)))  # noqa: B023
                if not goes_in_slabs(group.query, feeds, options):
                    return
                few = chance.choice((1, 2, 7))
                got.table = in_slabs(group.query, feeds, options, rows=rows, few=few)
            except Exception as error:
                got.error = error
        yield got


def _options(chance: random.Random, group: Group, ways: Ways) -> dict[str, Any]:
    options: dict[str, Any] = {"keys": chance.random() < 0.7, "workers": chance.choice((1, 2, 3))}
    if chance.random() < ways.plain or any(each.number >= ways.compiled for each in group.on):
        options["plain"] = True
    if isinstance(group.query, Join) and chance.random() < 0.5:
        try:
            bound = bind(group.query, {each.stream.name: each.schema for each in group.feeds})
        except PlaitError:
            return options
        assert bound.predicate is not None
        left, right = (each.schema for each in bound.inputs)
        options["index"] = chance.choice(possible(shape(bound.predicate, left, right)))
    return options
