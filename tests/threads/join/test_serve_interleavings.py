"""The loop of an elastic join's threads under the scheduler, as it is compiled: `serve.serve`, while shares change hands.

Two shares of ScaleJoin, two threads that serve them, and one that asks for another map and then ends the sources. All schedules
with one preemption. Every run is checked as those of `test_loop_interleavings` are: the sequence is the definition's whoever
has served which share, and nothing that a share owns is raced for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.explore.schedule import Failure, explore
from tests.threads.join.loop_scenarios import SERVE, Served, Tuple

from plait.threads.join.strategies import scalejoin
from plait.threads.join.strategies.plan import Wish

EPOCHS = "plait.threads.gate.epochs"
TUPLES = (Tuple(0, 1), Tuple(1, 2))
MAPS = {"provision": ([0, 0], [0, 1]), "decommission": ([0, 1], [0, 0]), "rebalance": ([0, 1], [1, 0])}


def scenario(name: str, faults: dict[str, list[tuple[str, str]]] | None = None) -> Any:
    return Served(scalejoin.plan(Wish(2)), TUPLES, MAPS[name], faults=faults).scenario(feeding=True, reading=False)


@pytest.mark.parametrize(
    "name", ["provision", *(pytest.param(name, marks=pytest.mark.slow) for name in ("decommission", "rebalance"))]
)
def test_every_schedule_with_one_preemption(name: str) -> None:
    without, with_one = explore(scenario(name), preemptions=1)
    assert without > 5
    assert with_one > 500


class Mutant(NamedTuple):
    module: str
    old: str
    new: str
    case: str
    found: str
    needs: int = 1


MUTANTS = {
    "asleep though all shares have ended": Mutant(
        SERVE, "            if idle and load_acquire(e, epochs.ENDED) < e[epochs.SHARES]:\n", "            if idle:\n",
        "provision", "Deadlock",
    ),
    "a share that is handed on is served once more": Mutant(
        SERVE, "                epochs.hand_on(gate, e, me, share, epoch, now)\n",
        "                epochs.hand_on(gate, e, me, share, epoch, now)\n"
        "                serve_share(gate, c, arena, table[share])\n",
        "provision", "",
    ),
    "the last share ends and nobody is woken": Mutant(
        SERVE, "            epochs.wake_threads(gate, e)\n", "            pass\n", "decommission", "Deadlock", 0,
    ),
    "a share is given away before its words are written": Mutant(
        EPOCHS, "    store_release(e, s + PASSED, epoch)\n"
        "    # Last: whoever acquires it may touch the share, and these words, at once.\n    store_release(e, s + OWNER, to)\n",
        "    store_release(e, s + OWNER, to)\n    store_release(e, s + PASSED, epoch)\n", "provision", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    module, old, new, case, words, needs = MUTANTS[name]
    with pytest.raises(Failure, match=words) as found:
        explore(scenario(case, {module: [(old, new)]}), preemptions=needs, most_steps=4000)
    assert found.value.preemptions == needs
