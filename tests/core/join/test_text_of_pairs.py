"""Conditions that put text of both rows together, of which a part is a function of one row's: that part is a column by then."""

from itertools import cycle, islice

import pyarrow as pa
import pytest

import plait

TEXTS = ["", "a", "A", "ab", "B", None, "é", "É!", "aB", "b"]

CONDITIONS = [
    "concat(l.s, lower(r.s)) = 'aa'",
    "l.s = concat(l.s, lower(r.s))",
    "concat(lower(l.s), upper(r.s)) = 'aB'",
    "length(concat(trim(l.s), upper(r.s))) > 2",
    "concat(lower(l.s), r.s) LIKE 'a%b'",
    "substring(concat(lower(l.s), lower(r.s)), 2, 1) = 'b'",
    "CASE WHEN l.k > r.k THEN lower(l.s) ELSE upper(r.s) END = 'a'",
    "CASE WHEN length(lower(l.s)) > r.k THEN concat(l.s, lower(r.s)) END = concat(upper(l.s), r.s)",
    "coalesce(lower(l.s), upper(r.s)) = r.s",
    "nullif(lower(l.s), lower(r.s)) = 'ab'",
    "lower(concat(upper(l.s), r.s)) = lower(concat(l.s, upper(r.s)))",
]


@pytest.mark.parametrize("on", CONDITIONS)
def test_pairs_are_the_references(on: str) -> None:
    left, right = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(left, right, on=on, within=9)
    data = {
        "a": pa.table({"ts": range(20), "s": pa.array(TEXTS * 2), "k": [k % 3 for k in range(20)]}),
        "b": pa.table(
            {"ts": range(30), "s": pa.array(islice(cycle(TEXTS[::-1]), 30)), "k": [k % 4 for k in range(30)]}
        ),
    }
    want = query.reference(data)
    assert 0 < len(want) < 20 * 19  # neither all nor none
    assert query.run(data).equals(want)
    with query.on_threads(schemas={name: table.schema for name, table in data.items()}, workers=2) as run:
        for name, table in data.items():
            run.push(name, None, table)
        run.drain()
        assert pa.Table.from_batches(run.results(), run.schema).equals(want)
