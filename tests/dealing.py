"""How tests are dealt to xdist's workers: groups first and whole, then what else a module has, by the piece.

With `--dist loadgroup` as it comes, tests of no group are dealt one by one. A worker waits for the number of the next test
before it begins the one it has: nine thousand times, for tests of a millisecond. And for each the controller walks all that it
has ever dealt to that worker. Here a unit is a group, or at most PIECE tests of one module, which find what their module has
loaded and computed; a unit that is done is forgotten. Groups go first, since they are long: one that began last would run alone
in the end, with the other workers idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

#: Enough that waiting does not show; few enough that no worker has much left when the others are done.
PIECE = 16


class Dealing(LoadGroupScheduling):
    """As loadgroup, but for tests of no group, and for what goes first. Of pieces the larger go first, as xdist has it."""

    _unit_of: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._unit_of is None:
            assert self.collection is not None
            self._unit_of = units(self.collection, super()._split_scope)
        return self._unit_of[nodeid]

    def _assign_work_unit(self, node: WorkerController) -> None:
        group = next((unit for unit in self.workqueue if "/" not in unit), None)
        if group is not None:
            self.workqueue.move_to_end(group, last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        dealt = self.assigned_work[node]
        for unit in [unit for unit, tests in dealt.items() if all(tests.values())]:
            del dealt[unit]


def units(nodeids: list[str], group_of: Callable[[str], str]) -> dict[str, str]:
    """The unit of each test: its group's name, or its module's path with the number of a piece."""
    found: dict[str, str] = {}
    seen: dict[str, int] = {}
    for nodeid in nodeids:
        group = group_of(nodeid)
        if group == nodeid:  # it has none
            module = nodeid.partition("::")[0]
            place = seen[module] = seen.get(module, -1) + 1
            group = f"{module}/{place // PIECE}"
        found[nodeid] = group
    return found
