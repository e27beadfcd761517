"""Chains of all pieces: DuckDB and the reference agree, and bugs planted in the reference are noticed.

Executors are compared with one another elsewhere; a slip that all of them share is seen only from outside.
"""

from __future__ import annotations

import random

import pytest
from tests.examples import examples
from tests.fuzz import duck, judge, queries, runner
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw
from tests.fuzz.test_mutants import Mutant, plant

PLAN = runner.Plan(61001, Draw(shapes=("chain",)), Ways())
GROUPS = examples(160)


def said(number: int) -> str | None:
    """What DuckDB has against the reference's answer, which is computed now."""
    made = queries.group(random.Random(f"{PLAN.seed}:{number}"), PLAN.draw)
    return duck.judged(made, judge.answer(made))


def test_duckdb_and_the_reference_agree() -> None:
    told = {number: found for number in range(GROUPS) if (found := said(number)) is not None}
    assert not told


def test_every_piece_is_drawn_and_most_chains_are_judged() -> None:
    groups = [queries.group(random.Random(f"{PLAN.seed}:{number}"), PLAN.draw) for number in range(120)]
    text = "\n".join(each.described() for each in groups)
    for words in ("where ", "select ", "drop ", "rename ", "union", "dedup by", "windows of sessions", "tuples every",
                  "us every", "inner join", "left join", "right join", "full join", "semi join", "anti join", "tumbling",
                  "last right tuple", "first right tuple", "nearest", "sql: SELECT", "UNION ALL", "ASOF JOIN", "GROUP BY",
                  "HAVING", "FILTER", "% 2", "quantile", "median", "top("):  # fmt: skip
        assert words in text, words
    judged = [each for each in groups if all(feed.stream.seq != "content" for feed in each.feeds)]
    assert len(judged) > 80
    assert sum(judge.answer(each).table is not None for each in judged) > 70


MUTANTS = (
    Mutant("dedup: what was dropped counts", "plait.reference.dedup", (), 318,
           "            return\n        self.kept[key] = row.ts", "            self.kept[key] = row.ts\n            return\n"
           "        self.kept[key] = row.ts"),
    Mutant("dedup: a span one shorter", "plait.reference.dedup", (), 0,
           ">= row.ts - self.within_us", "> row.ts - self.within_us"),
    Mutant("sessions: one longer", "plait.reference.aggregate", (), 116,
           "if rows[-1].ts + self.gap <= ts", "if rows[-1].ts + self.gap < ts"),
    Mutant("joins: the waits of both sides changed over", "plait.reference.join", (), 52,
           "waits = (self.window.after_us, self.window.before_us)", "waits = (self.window.before_us, self.window.after_us)"),
    Mutant("as-of: nearest ahead on a tie", "plait.reference.join", (), 589,
           "each.ahead.row.ts - ts < ts - each.behind.row.ts", "each.ahead.row.ts - ts <= ts - each.behind.row.ts"),
    Mutant("as-of: a tuple is its own partner", "plait.reference.join", (), 0,
           "(self.node.one_stream and right.key == left.key)", "False"),
    Mutant("union: by ts alone", "plait.reference.row_by_row", (), 0,
           "((row.ts, input, *row.key),)", "((row.ts, -input, *row.key),)"),
    Mutant("top: equal ones backwards", "plait.reference.folds", (), 330,
           "key=lambda pair: pair[0], reverse=True)[:k]", "key=lambda pair: pair[0])[::-1][:k]"),
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=repr)
def test_a_planted_bug_is_noticed(mutant: Mutant) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(mutant, monkeypatch)
        order = (*range(mutant.first, 700), *range(mutant.first))
        noticed = next((number for number in order if said(number) is not None), None)
    assert noticed is not None
    assert said(noticed) is None, "it differs without the bug, too"
