"""The short form: the same inputs in every run, some at each door. `python -m tests.fuzz inputs` is the long one."""

from __future__ import annotations

import multiprocessing
import os
import random
import time

import pytest
from tests.fuzz.inputs import hammer, mutate
from tests.fuzz.inputs.hammer import Kind, Tally
from tests.fuzz.inputs.kinds import KINDS

import plait

SEED = 7
#: Inputs at a door here; at those whose inputs cost more, fewer.
USUAL, FEW = 600, {"python": 60, "arguments": 100, "rows": 40, "patterns": 200, "jsonl": 300, "toml": 300, "calls": 300}


def told(tally: Tally) -> str:
    return "\n\n".join(
        f"{tally.times[what]} x {what}, first case {case}:\n{words}" for what, (case, words) in tally.findings.items()
    )


@pytest.mark.parametrize("name", KINDS)
def test_inputs_are_taken_or_refused(name: str) -> None:
    tally, cases = Tally(), FEW.get(name, USUAL)
    hammer.run(KINDS[name], SEED, range(cases), tally)
    assert not tally.findings, told(tally)
    assert sum(tally.ran.values()) == cases


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", KINDS)
def test_many_inputs(name: str) -> None:
    """Other inputs than the short form's."""
    tally = Tally()
    hammer.run(KINDS[name], SEED, range(1_000_000, 1_000_000 + 20 * FEW.get(name, USUAL)), tally)
    assert not tally.findings, told(tally)


def test_a_case_is_a_function_of_its_number() -> None:
    for name in ("sql", "parquet", "bodies", "toml", "arguments"):
        assert hammer.made(KINDS[name], 3, 17) == hammer.made(KINDS[name], 3, 17)
        assert any(hammer.made(KINDS[name], 3, n) != hammer.made(KINDS[name], 4, n) for n in range(5))


# --- the hammer itself notices -------------------------------------------------------------------------------


def _number(rng: random.Random) -> str:
    return "abc" * rng.randint(1, 3)


def _some(rng: random.Random) -> str:
    return rng.choice(["raise", "end", "fine", "fine", "fine", "fine"])


def _bad(given: str) -> None:
    if given == "raise":
        raise KeyError(given)
    if given == "end":
        os.abort()


def _slow(given: str) -> None:
    until = time.process_time() + 60
    while time.process_time() < until:
        pass


def _large(given: str) -> None:
    bytearray(500 << 20)[::4096] = b"x" * (500 << 8)


def _wordless(given: str) -> None:
    raise plait.DataError(" ")


def _without_memory(given: str) -> None:
    bytearray(100 << 30)


@pytest.mark.parametrize(
    ("door", "what"),
    [
        (_slow, "longer than 1 s of work"), (_large, "MB and more of memory"), (_wordless, "without words"),
        (_without_memory, "MemoryError"),
    ],
)  # fmt: skip
def test_what_is_a_finding(door: object, what: str) -> None:
    tally = Tally()
    hammer.run(Kind("bad", _number, door, limit_s=1.0), 1, range(1), tally)  # type: ignore[arg-type]
    assert [what in found for found in tally.findings] == [True], told(tally)


def test_a_process_that_ends_is_told_by_its_case_and_another_goes_on() -> None:
    tally, kind, cases = Tally(), Kind("bad", _some, _bad), range(30)
    made = [hammer.made(kind, 1, case) for case in cases]
    hammer.run(kind, 1, cases, tally)
    found = {what.split(" in ")[0]: case for what, (case, _) in tally.findings.items()}
    assert found == {"KeyError": made.index("raise"), "ended its process with -6": made.index("end")}
    assert sorted(tally.times.values()) == sorted((made.count("raise"), made.count("end")))
    assert tally.ran[hammer.TAKEN] == made.count("fine")
    assert not multiprocessing.active_children()


def test_an_input_is_made_smaller() -> None:
    assert mutate.smaller("a" * 500 + "!" + "b" * 300, lambda text: "!" in text) == "!"
    assert mutate.smaller(b"\0" * 100 + b"x", lambda data: b"x" in data) == b"x"
