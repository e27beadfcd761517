"""Tests are dealt to workers by groups and pieces: each once, groups whole and first, a module's others in short runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.dealing import PIECE, Dealing

GROUP = [f"tests/spark/test_z.py::test_{k}@spark" for k in range(3)]
LONG = [f"tests/test_a.py::test_[{k}]" for k in range(2 * PIECE + 5)]
SHORT = ["tests/b/test_b.py::test_it[a@b]", "tests/b/test_b.py::test_that"]


class Worker:
    """What the scheduler asks of a worker, and what it was sent."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.sent: list[list[int]] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def dealt(number: int) -> tuple[Dealing, list[Worker], list[list[str]]]:
    """Workers by turns finish a test each, until all is done. What was dealt, in order."""
    options = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(getvalue=lambda name: ["popen"] * number, option=options, hook=None)
    nodeids = [*LONG, *SHORT, *GROUP]
    scheduler, workers = Dealing(config), [Worker() for _ in range(number)]
    for worker in workers:
        scheduler.add_node(worker)  # type: ignore[arg-type]
        scheduler.add_node_collection(worker, nodeids)  # type: ignore[arg-type]
    scheduler.schedule()
    done = [0] * number
    while scheduler.has_pending:
        for at, worker in enumerate(workers):
            waiting = [index for unit in worker.sent for index in unit][done[at] :]
            if waiting:
                scheduler.mark_test_complete(worker, waiting[0])  # type: ignore[arg-type]
                done[at] += 1
    return scheduler, workers, [[nodeids[index] for index in unit] for worker in workers for unit in worker.sent]


def test_each_test_is_dealt_once_in_groups_and_pieces() -> None:
    _, _, units = dealt(2)
    assert sorted(test for unit in units for test in unit) == sorted([*LONG, *SHORT, *GROUP])
    assert sorted(units) == sorted([GROUP, SHORT, LONG[:PIECE], LONG[PIECE : 2 * PIECE], LONG[2 * PIECE :]])


def test_groups_go_first_though_others_are_longer() -> None:
    _, workers, _ = dealt(2)
    assert workers[0].sent[0] == [len(LONG) + len(SHORT) + k for k in range(len(GROUP))]


def test_what_is_done_is_forgotten_and_workers_are_let_go() -> None:
    scheduler, workers, _ = dealt(3)
    assert all(not units for units in scheduler.assigned_work.values())
    assert scheduler.tests_finished
    assert all(worker.shutting_down for worker in workers)
