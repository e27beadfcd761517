"""`cli.measuring`: every figure is measured, by steps that do what their words say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from plait.cli import measuring
from plait.core.calibration import Costs, this_machine
from plait.errors import RunError
from plait.threads.gate import RingGate, SkipListGate


@pytest.mark.again
def test_every_figure_is_measured() -> None:
    told: list[str] = []
    made = measuring.measure(told.append, quick=True)
    assert len(told) == len(set(told)) == 5
    assert made.machine == this_machine()
    assert made.measured.endswith("Z")
    assert set(vars(made.costs)) == {each.name for each in fields(Costs)}
    assert all(value < 1e-3 for value in vars(made.costs).values())  # seconds, each of one small step


def test_windows_are_as_wide_as_asked_for_and_conditions_as_rare() -> None:
    _, _, compared, results = measuring._preloaded(10, 500, measuring.ALWAYS, 1)
    # A tuple every millisecond in each stream: one on either side of its own, 10 before and 10 after; the ends have fewer.
    assert compared == results == sum(min(500, at + 11) - max(0, at - 10) for at in range(500))
    assert measuring._preloaded(10, 500, measuring.RARE, 1)[2:] == (compared, 0)
    assert measuring._preloaded(10, 500, measuring.ALWAYS, 4)[2:] == (compared, results)


@pytest.mark.parametrize("kind", [RingGate, SkipListGate])
def test_all_that_goes_into_a_gate_comes_out(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(seconds > 0 for seconds in measuring._through(kind, 2, 3, 4096))
    lost = type("Lost", (), {"read_waiting": staticmethod(lambda *given: 0), "add_waiting": kind.kind.add_waiting})  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "kind", lost)
    with pytest.raises(RunError, match="0 tuples came through"):
        measuring._through(kind, 2, 1, 1024)


def test_what_noise_makes_cheaper_costs_nothing() -> None:
    assert measuring._slope(2.0, 1.0, 3) == 0
    assert measuring._slope(1.0, 4.0, 3) == 1


def test_the_least_of_each_counts_and_cases_take_turns() -> None:
    turns: list[str] = []

    def case(name: str, *figures: tuple[float, ...]) -> Callable[[], tuple[float, ...]]:
        left = list(figures)
        return lambda: (turns.append(name), left.pop(0))[1]  # type: ignore[func-returns-value]

    found = measuring._least({"a": case("a", (3.0, 1.0), (2.0, 5.0)), "b": case("b", (7.0,), (8.0,))}, 2)
    assert found == {"a": (2.0, 1.0), "b": (7.0,)}
    assert turns == ["a", "b", "a", "b"]


def test_an_interrupt_ends_the_run_that_is_measured() -> None:
    query = measuring._query(1, measuring.RARE, held=False)
    schema = measuring._stream(1, 1).schema
    run = query.on_threads(schemas={"left_in": schema, "right_in": schema})
    with pytest.raises(KeyboardInterrupt), run, measuring._reading(run):
        raise KeyboardInterrupt
    with pytest.raises(RunError, match="stopped"):
        run.drain()
