"""Planted bugs in the threads executor: the short form's cases must notice each.

A mutant is a module compiled again with one piece of its text replaced, its names put in the place of the original's wherever
plait uses them. If a piece of text is no longer there, the code was rewritten: plant the same slip in the new text.
"""

from __future__ import annotations

import importlib
import inspect
import random
import sys
from dataclasses import dataclass, replace
from types import ModuleType

import pyarrow as pa
import pytest
from tests.fuzz import bounded, deliveries, judge, runner
from tests.fuzz.deliveries import Ways
from tests.fuzz.feeds import Draw


@dataclass(frozen=True)
class Mutant:
    name: str
    module: str
    shapes: tuple[str, ...]
    first: int  # the case that noticed it when this was written, and so the first to be asked
    old: str
    new: str

    def __repr__(self) -> str:
        return self.name


MUTANTS = (
    Mutant("late: <= for <", "plait.core.sources", ("counts",), 72, "np.ndarray = ts < bound",
           "np.ndarray = ts <= bound"),
    Mutant("late: no disorder", "plait.core.sources", ("counts",), 152,
           "bound = before if slack == 0 else np.maximum(before, BEFORE_ALL + slack) - slack", "bound = before"),
    Mutant("sources in the order of first sight", "plait.threads.input.intake", ("counts",), 32,
           "rank: Any = name.encode() if isinstance(name, str) else name", "rank: Any = len(self.inlets)"),
    Mutant("ties inside a source by content backwards", "plait.threads.input.sequence", ("counts",), 144,
           "key=lambda k: (all_ts[k], tie[k]))", "key=lambda k: (all_ts[k], bytes(255 - b for b in tie[k])))"),
    Mutant("a window that is a microsecond wider", "plait.threads.join.memory", ("join",), 48,
           "w[o.BACK], w[o.BACK + 1] = reach.back", "w[o.BACK], w[o.BACK + 1] = reach.back[0], reach.back[1] + 1"),
    Mutant("as-of: at one ts left tuples come first", "plait.threads.join.asof_memory", ("asof",), 0,
           'return node.direction == "nearest" or node.exact == (node.direction == "backward")', "return False"),
    Mutant("dedup: a span half as long", "plait.core.dedup", ("spans", "counts"), 0,
           "np.uint64(self.within_us), self._last", "np.uint64(self.within_us // 2), self._last"),
    Mutant("a row is alone if one worker says so", "plait.threads.join.memory", ("join",), 0,
           "len(plan.seats) // seat.probe_every[side] if", "1 if"),
    Mutant("dictionary entries for values", "plait.encodings", ("join", "counts"), 22,
           "return plain_array(array.dictionary).take(array.indices)",
           "return plain_array(array.dictionary).take(array.indices.fill_null(0))"),
)  # fmt: skip


#: Slips in bounded runs, which the whole tables in slabs notice.
IN_SLABS = (
    Mutant("slabs: sources in the order of first sight", "plait.threads.bounded.intake", ("join",), 0,
           "sorted(intake.inlets.values(), key=lambda each: each.rank)", "list(intake.inlets.values())"),
    Mutant("slabs: tuples at the frontier are released", "plait.threads.bounded.intake", ("join", "asof"), 0,
           'int(np.searchsorted(times, ts, "left"))', 'int(np.searchsorted(times, ts, "right"))'),
    Mutant("slabs: ranges that do not overlap", "plait.threads.bounded.join", ("join",), 0,
           "min(self._first(side, sides, min(starts)), begin[side])", "begin[side]"),
    Mutant("slabs: one row of the window too few is kept", "plait.threads.bounded.join", ("join",), 0,
           "rows.since(self._first(s, sides, frontier))",
           "rows.since(min(self._first(s, sides, frontier) + 1, len(rows)))"),
    Mutant("slabs: the left tuple is always the trigger", "plait.threads.bounded.join", ("join",), 0,
           "by_left = order[pairs.trigger] == 0", "by_left = order[pairs.trigger] >= 0"),
    Mutant("slabs: the last job first", "plait.threads.bounded.side_by_side", ("join",), 0,
           "self._jobs.append(_Opened(job))", "self._jobs.appendleft(_Opened(job))"),
    Mutant("slabs: a tuple finds itself", "plait.threads.bounded.asof", ("asof",), 0,
           "if self.node.one_stream else None", "if False else None"),
    Mutant("slabs: what is kept of a value is not its last", "plait.core.join.asof", ("asof",), 0,
           "np.sort(_near(node, sides, last, frontier))", "np.sort(_near(node, sides, last, frontier))[:-1]"),
    Mutant("as-of: of two as near the one ahead", "plait.core.join.asof", ("asof",), 0,
           "np.where(to_ahead < to_behind, ahead, behind)", "np.where((to_ahead <= to_behind) & (ahead >= 0), ahead, behind)"),
    Mutant("as-of: who waits is decided at the frontier", "plait.core.join.asof", ("asof",), 0,
           "over = sides.left_ts < frontier - later", "over = sides.left_ts <= frontier - later"),
)  # fmt: skip


def plant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    original = importlib.import_module(mutant.module)
    source = inspect.getsource(original)
    assert source.count(mutant.old) == 1, f"{mutant.old!r} stands {source.count(mutant.old)} times in {mutant.module}"
    twin = ModuleType(original.__name__)
    twin.__dict__.update(__file__=original.__file__, __package__=original.__package__)
    # Data classes look their module up by name.
    monkeypatch.setitem(sys.modules, original.__name__, twin)
    exec(
        compile(source.replace(mutant.old, mutant.new), f"{original.__file__} with {mutant.name}", "exec"),
        twin.__dict__,
    )
    for name, value in vars(original).items():
        if name.startswith("__"):
            continue
        for user in [m for n, m in list(sys.modules.items()) if n.startswith("plait.") and m is not twin]:
            if vars(user).get(name) is value:
                monkeypatch.setattr(user, name, vars(twin)[name])


PLAN = runner.Plan(7, Draw(conditions=12), Ways(compiled=0, interrupts=False))


def differs(plan: runner.Plan, case: int) -> bool:
    """Or ends in Arrow's own error: a bug where rows come in may not let the reference get to an answer."""
    try:
        group, answer = runner.group_of(plan, case // runner.DELIVERIES)
    except pa.ArrowException:
        return True
    return judge.judged(answer, deliveries.carried_out(group, runner.delivered(plan, case, group))) is not None


def differs_in_slabs(plan: runner.Plan, group: int) -> bool:
    """Of a group's whole tables."""
    made, answer = runner.group_of(plan, group)
    ways = bounded.carried_out(made, random.Random(f"{plan.seed}:slabs {group}"), plan.ways)
    return any(judge.judged(answer, got) is not None for got in ways)


@pytest.mark.parametrize("mutant", IN_SLABS, ids=repr)
def test_a_planted_bug_is_noticed_in_slabs(mutant: Mutant) -> None:
    plan = replace(PLAN, draw=replace(PLAN.draw, shapes=mutant.shapes))
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(mutant, monkeypatch)
        order = (*range(mutant.first, 300), *range(mutant.first))
        noticed = next((group for group in order if differs_in_slabs(plan, group)), None)
    assert noticed is not None
    assert not differs_in_slabs(plan, noticed), "it differs without the bug, too"


@pytest.mark.parametrize("mutant", MUTANTS, ids=repr)
def test_a_planted_bug_is_noticed(mutant: Mutant) -> None:
    """By one of so many cases, which is all right without the bug. Nothing is compiled for a condition, to be quick."""
    plan = replace(PLAN, draw=replace(PLAN.draw, shapes=mutant.shapes))
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(mutant, monkeypatch)
        order = (*range(mutant.first, 400), *range(mutant.first))
        noticed = next((case for case in order if differs(plan, case)), None)
    assert noticed is not None
    assert not differs(plan, noticed), "it differs without the bug, too"
