"""Planted bugs: each is a small slip in the reference, and the cases of this folder must notice it.

A mutant is a module of `plait.reference` compiled again with one piece of its text replaced, and put in the place of
the original for one test. What judges it are fixed cases, the same in every run, drawn from the strategies of the
tests. If a piece of text is no longer there, the reference was rewritten: plant the same slip in the new text.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests import strategies
from tests.reference import expressions
from tests.reference.dags import dags
from tests.reference.judge import judge, on_reference
from tests.reference.programs import PROGRAMS, operators
from tests.reference.schedules import Schedule, assert_results, deliver
from tests.strategies import Case

# What is drawn for one mutant judges the others too.
pytestmark = pytest.mark.xdist_group("mutants of the reference")

ENDING = tuple(program for program in PROGRAMS if program.name != "ticks")


def sample(strategy: st.SearchStrategy[Case], count: int) -> Callable[[], list[Case]]:
    """The first cases a strategy gives from a fixed seed."""

    def draw() -> list[Case]:
        found: list[Case] = []

        @seed(20240607)
        @settings(max_examples=count, phases=[Phase.generate], database=None, derandomize=False, deadline=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(strategy)
        def collect(case: Case) -> None:
            found.append(case)

        collect()
        return found

    return draw


def as_a_table(case: Case) -> None:
    judge(case, on_reference)


def step_by_step(case: Case) -> None:
    """Delivered in steps, with heartbeats and ends, so that coming out too early or too late is noticed as well."""
    assert_results(deliver(case, Schedule(case, 7)), case)


Check = Callable[[Case], None]

#: Larger streams than in the other tests, and fewer of them: what matters here is how much one case can notice.
MANY: dict[str, Any] = {"max_rows": 16}
ALL = tuple(strategies.FUNCTIONS)
ROUNDED = (0.1, 0.7, 1e17, -1e17)

#: By what they exercise: how a case is run, where it comes from, and how many.
SAMPLES: dict[str, tuple[Check, Callable[[], list[Case]]]] = {
    "time": (as_a_table, sample(strategies.time_joins(**MANY), 80)),
    "unmatched": (as_a_table, sample(strategies.time_joins(hows=("left", "right", "full", "anti"), **MANY), 60)),
    "count": (as_a_table, sample(strategies.count_joins(**MANY), 30)),
    "tumbling": (as_a_table, sample(strategies.tumbling_joins(**MANY), 30)),
    "tumbling count": (as_a_table, sample(strategies.tumbling_count_joins(**MANY), 30)),
    "asof": (as_a_table, sample(strategies.asof_joins(**MANY), 60)),
    "spans": (as_a_table, sample(strategies.span_aggregates(functions=ALL, **MANY), 60)),
    "sums": (as_a_table, sample(strategies.span_aggregates(functions=("sum_x",), values={"x": ROUNDED}), 30)),
    "counts": (as_a_table, sample(strategies.count_aggregates(functions=ALL, **MANY), 30)),
    "operators": (as_a_table, sample(operators(), 60)),
    "dags": (as_a_table, sample(dags(), 100)),
    "sql": (as_a_table, lambda: expressions.fixed_cases("sql", 220)),
    "python": (as_a_table, lambda: expressions.fixed_cases("python", 220)),
    "delivery": (step_by_step, sample(
        st.one_of(strategies.time_joins(hows=("left", "full", "anti"), declared=True),
                  operators(programs=ENDING, declared=True), strategies.span_aggregates(declared=True),
                  strategies.count_aggregates(declared=True)), 120)),
}  # fmt: skip


@functools.cache
def cases_of(name: str) -> list[Case]:
    return SAMPLES[name][1]()


def notices(name: str, first: int | None = None) -> str | None:
    """What the first case to notice says, of all or of the `first` few."""
    check = SAMPLES[name][0]
    for case in cases_of(name)[:first]:
        try:
            check(case)
        except Exception as difference:
            return f"{type(difference).__name__}: {difference}"
    return None


@pytest.mark.parametrize("name", SAMPLES)
def test_the_reference_itself_passes(name: str) -> None:
    assert notices(name) is None


# --- planting -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    module: str
    name: str
    noticed_by: str
    old: str
    new: str

    def __repr__(self) -> str:
        return self.name


def plant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the changed module, and let every module of the reference use it instead of the original."""
    original = importlib.import_module(f"plait.reference.{mutant.module}")
    source = inspect.getsource(original)
    assert source.count(mutant.old) == 1, (
        f"{mutant.old!r} stands {source.count(mutant.old)} times in {mutant.module}.py"
    )
    twin = ModuleType(original.__name__)
    twin.__dict__.update(__file__=original.__file__, __package__=original.__package__)
    code = compile(source.replace(mutant.old, mutant.new), f"{original.__file__} with {mutant.name}", "exec")
    exec(code, twin.__dict__)
    for name, value in vars(original).items():
        if name.startswith("__"):
            continue
        for user in [m for n, m in sys.modules.items() if n.startswith("plait.reference")]:
            if vars(user).get(name) is value:
                monkeypatch.setattr(user, name, vars(twin)[name])


#: Module -> (what is wrong, the sample that notices, the text, what stands there instead).
PLANTED: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "join": (
        ("window: < for <= after", "time", "right.ts - left.ts <= after", "right.ts - left.ts < after"),
        ("window: < for <= before", "time", "-before <= right.ts", "-before < right.ts"),
        ("purge of left rows off by one", "time", "left[0].row.ts > after", "left[0].row.ts >= after"),
        ("purge of right rows off by one", "time", "right[0].row.ts > before", "right[0].row.ts >= before"),
        ("purge with the sides swapped", "time", "left[0].row.ts > after", "left[0].row.ts > before"),
        ("unmatched row one microsecond early", "unmatched",
         "self._emit_unmatched(entry, input, moment)", "self._emit_unmatched(entry, input, moment - 1)"),
        ("unmatched row decided too early", "unmatched", "if moment >= ts:", "if moment > ts:"),
        ("unmatched row decided too late", "delivery", "if moment >= ts:", "if moment >= ts - 1:"),
        ("unmatched rows wait as the other side's do", "unmatched",
         "(self.window.after_us, self.window.before_us)", "(self.window.before_us, self.window.after_us)"),
        ("unmatched rows of both sides in one order of theirs", "dags", "AFTER_INPUTS + input", "AFTER_INPUTS"),
        ("a right row's match is not noted", "unmatched",
         "left.matched = right.matched = True", "left.matched = True"),
        ("semi at every match", "time", 'self.how == "semi" and first', 'self.how == "semi"'),
        ("ts of the partner", "time",
         "Row(trigger.row.ts, key, (trigger.row.ts, *left.row.values, *right",
         "Row(partner.row.ts, key, (partner.row.ts, *left.row.values, *right"),
        ("key: partner before trigger", "dags",
         "key = (trigger.full_key, partner.full_key)", "key = (partner.full_key, trigger.full_key)"),
        ("unmatched rows before the others in a key", "dags", "AFTER_INPUTS = 2**31 - 1", "AFTER_INPUTS = -1"),
        ("count window of N + 1", "count", "len(own) > self.window.count", "len(own) > self.window.count + 1"),
        ("count window of N - 1", "count", "len(own) > self.window.count", "len(own) >= self.window.count"),
        ("tumbling window shifted", "tumbling",
         "left.ts // size == right.ts // size", "(left.ts - 1) // size == (right.ts - 1) // size"),
        ("tumbling purge a window early", "tumbling",
         "side[0].row.ts // size < ts // size", "side[0].row.ts // size <= ts // size"),
        ("tumbling count: a window of one more", "tumbling count",
         "len(own) == self.window.count", "len(own) == self.window.count + 1"),
        ("tumbling count: emptied by the tuple that fills it", "tumbling count",
         "own.clear()\n        own.append(new)",
         "own.clear()\n        own.append(new)\n"
         "        if isinstance(self.window, TumblingCountWindow) and len(own) == self.window.count:\n            own.clear()"),
        ("as-of: the first, not the last", "asof",
         "return max(fitting, key=lambda entry: entry.full_key, default=None)",
         "return min(fitting, key=lambda entry: entry.full_key, default=None)"),
        ("as-of: distance < for <=", "asof",
         "abs(left.ts - right.ts) > self.node.within_us", "abs(left.ts - right.ts) >= self.node.within_us"),
        ("as-of: inner keeps what finds none", "asof",
         'if partner is None and self.node.how == "inner":', "if False:"),
        ("as-of: the same ts never matches", "asof", "(not self.node.exact or", "(True or"),
        ("as-of: the same ts always matches", "asof", "(not self.node.exact or", "(False or"),
        ("as-of: a tuple is its own partner", "asof", "self.node.one_stream and", "False and"),
        ("as-of: the last ahead, not the first", "asof", "if each.ahead is None and self._fits", "if self._fits"),
        ("as-of: ahead on a tie", "asof",
         "each.ahead.row.ts - ts < ts - each.behind.row.ts", "each.ahead.row.ts - ts <= ts - each.behind.row.ts"),
        ("as-of: what lies behind is decided at once", "asof",
         "return ts + (ts - each.behind.row.ts), each.behind", "return ts, each.behind"),
        ("as-of: one that finds none is decided a microsecond early", "asof",
         "return ts + self.node.within_us, None", "return ts + max(self.node.within_us - 1, 0), None"),
        ("as-of: results at one ts as they were decided", "asof",
         "sorted(decided, key=lambda d: (d[0], d[1].full_key))", "sorted(decided[::-1], key=lambda d: d[0])"),
        ("as-of: too much is forgotten", "asof", "while len(alike) > 1 and alike[1].row.ts < row.ts:", "while alike:"),
    ),
    "intake": (
        ("tie-break by source dropped", "time",
         "(source.rank, self._seq(source, values, at))", "(0, self._seq(source, values, at))"),
        ("sources in the order of first sight", "time",
         "rank: Any = name.encode() if isinstance(name, str) else name", "rank: Any = len(self.sources)"),
        ("seq backwards", "time", "return source.delivered\n", "return -source.delivered\n"),
        ("late: <= for <", "time",
         "ts < source.largest - stream.disorder_us", "ts <= source.largest - stream.disorder_us"),
        ("late: one microsecond of grace", "time",
         "ts < source.largest - stream.disorder_us", "ts < source.largest - stream.disorder_us - 1"),
        ("late: no disorder", "time", "ts < source.largest - stream.disorder_us", "ts < source.largest"),
        ("progress without disorder", "delivery", "else self.largest - disorder_us", "else self.largest"),
        ("heartbeat lowered by disorder", "delivery",
         "return max(spoken, self.heartbeat)", "return max(spoken, self.heartbeat - disorder_us)"),
        ("ready: <= for <", "delivery", "self.pending[0][0] < frontier", "self.pending[0][0] <= frontier"),
        ("a silent source does not hold", "delivery",
         "spoken = NEVER if self.largest is None", "spoken = FOREVER if self.largest is None"),
        ("an ended source holds", "delivery",
         "if self.ended:\n            return FOREVER\n", "if False:\n            return FOREVER\n"),
        ("NULL sorts first", "spans", "        return (2,)", "        return (-1,)"),
        ("NaN is many groups", "spans", "if value != value:", "if False:"),
    ),
    "run": (
        ("inputs in the wrong order", "time", "arrived += [(row.ts, number,", "arrived += [(row.ts, -number,"),
        ("time does not pass before a tuple", "unmatched", "            self.machine.pass_time(ts)\n", ""),
    ),
    "aggregate": (
        ("winset end off by one", "delivery", "if start + self.size <= ts", "if start + self.size < ts"),
        ("winset closes too early", "spans", "if start + self.size <= ts", "if start + self.size <= ts + 1"),
        ("window closed at its end", "spans",
         "self.advance + self.size > row.ts", "self.advance + self.size >= row.ts"),
        ("window's ts is its end", "spans", "self.emit(end - 1, (end - 1, *group), start", "self.emit(end, (end, *group), start"),
        ("winset by first sight", "spans", "for group in sorted(winset)", "for group in winset"),
        ("truncating division", "spans", "last = row.ts // self.advance", "last = int(row.ts / self.advance)"),
        ("-0.0 as a group's name", "spans", "one_form(rows[0].values[at])", "rows[0].values[at]"),
        ("tuple window of N + 1", "counts", "if len(recent) > self.size:", "if len(recent) > self.size + 1:"),
        ("tuple windows from k = 1", "counts", "if start >= 0 and", "if start > 0 and"),
        ("tuple windows shifted", "counts", "start % self.advance == 0", "(start + 1) % self.advance == 0"),
    ),
    "folds": (
        ("sum by adding floats", "sums", "return rounded(exact_sum(values))", "return float(sum(values))"),
        ("variance of the population", "spans", "for v in values) / (len(values) - 1)", "for v in values) / len(values)"),
        ("last is the first", "spans", "rows[-1].values[at]", "rows[0].values[at]"),
        ("mean counts NULL", "spans",
         "if row.values[at] is not None]\n        return of_values",
         "if row.values[at] is not None] or [0]\n        return of_values"),
        ("largest ignores NaN", "spans", "max(values, key=sort_value)", "max(values)"),
        ("minimum keeps the sign of zero", "spans", "return one_form(min(", "return (min("),
    ),
    "values": (
        ("NaN compares as false, not as unknown", "python",
         'x != x or y != y:\n            return Value("bool", None)',
         'x != x or y != y:\n            return Value("bool", False)'),
        ("NULL compares as false", "python",
         'if a.v is None or b.v is None:\n        return Value("bool", None)\n    x',
         'if a.v is None or b.v is None:\n        return Value("bool", False)\n    x'),
        ("literals are strong", "time", 'weak == "weakfloat" and strong in INT_RANGES', 'weak == "weakfloat"'),
        ("SQL's % by Python's rule", "sql", "(-1 if a.v < 0 else 1) * (abs(a.v) % abs(b.v))", "a.v % b.v"),
        ("integers meet floats too soon", "sql", 'return "int64"\n    return np', "pass\n    return np"),
        ("NULL wins in least", "sql",
         "if x.v is not None]\n    if not numbers", "if x.v is not None]\n    if len(numbers) < 2"),
    ),
    "condition": (
        ("an opaque function is called on NULL", "time",
         "l.values[i] is None for i in left_at", "False for i in left_at"),
        ("a pair with unknown matches", "python",
         "value_of(function(*arguments)).v is True", "value_of(function(*arguments)).v is not False"),
    ),
    "operator": (
        ("timer after the tuples at its time", "operators",
         "self.timers[0][0] <= limit", "self.timers[0][0] < limit"),
        ("timer's output at its own time", "operators",
         "self._emit(outputs, at - 1, ((at - 1,", "self._emit(outputs, at, ((at,"),
        ("buckets backwards", "operators",
         "for bucket in named})", "for bucket in named}, reverse=True)"),
        ("timers end with the last tuple", "operators", "if ts == FOREVER else ts", "* 0 if ts == FOREVER else ts"),
    ),
}  # fmt: skip

MUTANTS = [Mutant(module, *planted) for module, all_planted in PLANTED.items() for planted in all_planted]


@pytest.mark.parametrize("module", PLANTED)
def test_a_module_compiled_again_without_a_bug_is_not_noticed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the planting itself would be what is noticed below."""
    for name in {noticed_by for _, noticed_by, _, _ in PLANTED[module]}:
        cases_of(name)
        plant(Mutant(module, "no change", name, "from __future__", "from __future__"), monkeypatch)
        assert notices(name, first=20) is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=repr)
def test_a_planted_bug_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    cases_of(mutant.noticed_by)  # drawn before the bug is there
    plant(mutant, monkeypatch)
    assert notices(mutant.noticed_by) is not None
