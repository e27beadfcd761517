"""The sentence of why results wait, and what it offers to copy: whatever names are, a copy does what it says and nothing else."""

from __future__ import annotations

import ast
import shlex
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.core import held
from plait.core.held import InFile, OnSpark, OnThreads, clock, printable, reason, span
from plait.core.metrics import Metrics, PartStats, SourceStats
from plait.order import AFTER_ALL, BEFORE_ALL

NOON = 1_763_542_933_000_000  # 2025-11-19 09:02:13


def source(name: Any, progress: int, silent_s: float, **more: Any) -> SourceStats:
    heard = None if progress == BEFORE_ALL else 1.0
    return SourceStats(stream="quotes", source=name, progress=progress, silent_s=silent_s, heard_at=heard, **more)


def run(*sources: SourceStats, waiting: int = 18_204, **more: Any) -> Metrics:
    holder = min((each for each in sources if not each.ended), key=lambda each: each.progress, default=None)
    if holder is not None:
        holder.holds = True
    told = {
        "holder": (None, None) if holder is None else (holder.stream, holder.source),
        "frontier": AFTER_ALL if holder is None else holder.progress,
        "newest": NOON + 60_000_000, "waiting": {"quotes": waiting}, "rows": 50_000, "results": 7,
    }  # fmt: skip
    return Metrics(sources=sources, **(told | more))


def test_the_sentence() -> None:
    found = reason(run(source("y", NOON, 41.4), source("x", NOON + 9_000_000, 0.3)), OnThreads())
    assert found.kind == held.HELD
    assert found.words == "Held at 09:02:13 by source quotes/y, silent for 41 s; 18,204 rows wait"
    assert [each.copy for each in found.remedies] == [
        f"run.heartbeat('quotes', 'y', {NOON + 60_000_000})",
        "run.close('quotes', 'y')",
        'plait.stream(\'quotes\', ..., idle_after="30s", behind="drop")',
    ]


def wait_for_reader(run: Metrics) -> Metrics:
    part = PartStats()
    part.waiting_for = held.FOR_READER  # type: ignore[attr-defined]
    run.__class__ = type("Run", (Metrics,), {"parts": property(lambda self: (part,))})
    return run


BUSY = source("x", NOON, 0.2)

CASES = {
    "silent": (
        run(source("y", NOON, 5)), "held",
        "Held at 09:02:13 by source quotes/y, silent for 5.0 s; 18,204 rows wait",
    ),
    "as all": (
        run(source("y", NOON, 50), source("x", NOON + 1, 49)), "held",
        "Held at 09:02:13 by source quotes/y, silent for 50 s, as all sources are; 18,204 rows wait",
    ),
    "one row": (
        run(source("y", NOON, 5), waiting=1), "held",
        "Held at 09:02:13 by source quotes/y, silent for 5.0 s; 1 row waits",
    ),
    "never": (
        run(source("y", BEFORE_ALL, 200)), "held",
        "Held at the start by source quotes/y, not heard of for 3 min 20 s; 18,204 rows wait",
    ),
    "no source": (
        run(source(None, BEFORE_ALL, 3)), "held",
        "Held at the start by stream quotes, of which no source is known since 3.0 s; 18,204 rows wait",
    ),
    "flowing": (
        run(BUSY), "flowing",
        "Results flow, up to 09:02:13, 1 min 0 s behind the newest; source quotes/x is the slowest source; 18,204 rows wait",
    ),
    "idle": (
        run(source("x", NOON, 500), waiting=0), "idle",
        "Nothing waits: results are out up to 09:02:13, 1 min 0 s behind the newest",
    ),
    "nothing came": (
        run(source("x", BEFORE_ALL, 500), waiting=0), "idle",
        "Nothing waits: no row has come, of which results could be; source quotes/x has not spoken",
    ),
    "workers": (
        run(source("x", NOON, 0.2), unread=20_000), "workers",
        "Workers are behind: 20,000 rows are ready, and wait for them",
    ),
    "reader": (
        wait_for_reader(run(source("y", NOON, 50))), "reader",
        "Results wait to be read: 7 are out, and workers have no room for more",
    ),
    "all idle": (
        run(source("y", NOON, 50, idle=True), holder=(None, None), frontier=NOON), "idle",
        "All sources are idle: results are out up to 09:02:13; 18,204 rows wait",
    ),
    "ending": (
        run(source("y", AFTER_ALL, 50, ended=True)), "idle",
        "The input has ended: what is left of the results is on its way",
    ),
    "ended": (run(phase="ended"), "ended", "The input has ended, and every result is out: 7"),
    "stopped": (run(phase="stopped"), "stopped", "The run was stopped: what was not read of its results is lost"),
    "failed": (run(phase="failed: LateError"), "failed", "The run has failed with LateError: its log says which row or call"),
    "starting": (
        Metrics(phase="starting", holder=("quotes", None)), "starting",
        "Starting: the columns of stream quotes are not known before its first rows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_reason(case: str) -> None:
    told, kind, words = CASES[case]
    found = reason(told, OnThreads())
    assert (found.kind, found.words) == (kind, words)
    assert kind in held.KINDS


def test_an_idle_source_is_not_blamed() -> None:
    told = run(source("x", NOON, 0.1), source("y", NOON, 99, idle=True))
    for each in told.sources:
        each.holds = False
    told.holder = ("quotes", "y")
    assert "source quotes/x is the slowest" in reason(told).words


def test_every_kind_has_a_case() -> None:
    assert {kind for _, kind, _ in CASES.values()} == set(held.KINDS)


def test_where_batches_take_long_silence_does_too() -> None:
    told = run(source("y", NOON, 5))
    assert reason(told, silent_after_s=6).kind == held.FLOWING
    assert reason(told, silent_after_s=5).kind == held.HELD


def test_nobody_can_speak_for_a_source_of_files() -> None:
    (remedy,) = reason(run(source("y", NOON, 41)), InFile()).remedies
    assert tomllib.loads(remedy.copy) == {"streams": {"quotes": {"idle_after": "30s", "behind": "drop"}}}
    assert reason(run(source("y", NOON, 41)), None).remedies == ()


def test_spans_and_moments_are_short() -> None:
    assert [span(s) for s in (0.04, 9.94, 41.9, 200, 7500, 270_000)] == [
        "0.0 s", "9.9 s", "41 s", "3 min 20 s", "2 h 5 min", "3 d 3 h",
    ]  # fmt: skip
    assert clock(NOON, NOON + 1) == "09:02:13"
    assert clock(NOON, NOON + 86_400_000_000) == "2025-11-19 09:02:13"
    assert clock(1_500_000, 2_000_000) == "1.5 s"


# --- names from data ------------------------------------------------------------------------------------------

NAMES = st.text(max_size=40) | st.integers() | st.sampled_from(
    ["'; rm -rf / #", '"); import os; ("', "$(reboot)", "`reboot`", "a\nb", "\x1b[31m", "\u202eevil", "\x7f", "a\\", "{}", "'''"]
)  # fmt: skip


def called(text: str) -> tuple[str, list[Any]]:
    """A call, and its arguments: nothing else stands there."""
    (one,) = ast.parse(text).body
    assert isinstance(one, ast.Expr)
    assert isinstance(one.value, ast.Call)
    given = [*one.value.args, *(word.value for word in one.value.keywords)]
    return ast.unparse(one.value.func), [ast.literal_eval(each) for each in given]


@given(stream=st.text(max_size=40), name=NAMES, ts=st.integers(0, 2**62))
def test_a_copied_call_names_the_source_and_does_nothing_else(stream: str, name: Any, ts: int) -> None:
    assert called(OnThreads().heartbeat(stream, name, ts)) == ("run.heartbeat", [stream, name, ts])
    assert called(OnThreads().end(stream, name)) == ("run.close", [stream, name])


@given(stream=st.text(max_size=40), name=NAMES, ts=st.integers(0, 2**62))
def test_a_copied_command_names_the_source_and_does_nothing_else(stream: str, name: Any, ts: int) -> None:
    folder = "/data/it's mine/control"
    for command, function, given_ in (
        (OnSpark(folder).heartbeat(stream, name, ts), "plait.spark.heartbeat", [folder, stream, ts, name]),
        (OnSpark(folder).end(stream, name), "plait.spark.end", [folder, stream, name]),
    ):
        assert command.isascii()
        assert "\n" not in command
        python, flag, code = shlex.split(command)
        assert (python, flag) == ("python", "-c")
        load, call = code.split("; ", 1)
        assert load == "import plait.spark"
        assert called(call) == (function, given_)


@given(stream=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_a_copied_declaration_names_the_stream(stream: str) -> None:
    assert list(tomllib.loads(InFile().idle(stream))["streams"]) == [stream]


@given(name=NAMES)
def test_a_name_is_one_line_of_plain_letters(name: Any) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert len(shown) <= held.NAME_LENGTH
    told = run(replace(source(name, NOON, 41)))
    assert reason(told, OnThreads()).words.isprintable()
