"""Multi-queues, which the aggregation paper starts from (sections 3 and 5.3): a queue a source, and one thread that looks at all.

Importing this package makes `on_threads(strategy=...)` know `NAMES`, for aggregates: the same rows as every design.
"""

from __future__ import annotations

from typing import Any, ClassVar

from plait.errors import QueryError
from plait.threads.aggregate.designs import Kind, register
from plait.threads.gate import Gate
from plait_bench.multi_queues import queues

NAMES = ("mq", "mq_lockfree")


class QueueGate(Gate):
    """A queue for each source under a lock, and one reader that looks at all of them: MQ of the aggregation paper."""

    kind: ClassVar[Any] = queues
    store: ClassVar[str] = "nodes"
    locked = True

    def __init__(self, *, slots: int, readers: int, capacity: int, pending: int) -> None:
        super().__init__(slots=slots, readers=readers, capacity=capacity, pending=pending)
        if readers > 1:
            raise QueryError(f"A multi-queue with {readers} readers", why="a tuple is dequeued once")
        self.words[queues.LOCKED] = int(self.locked)

    def drained(self, slot: int) -> bool:
        """It keeps no count of what was read, so no slot is used again."""
        return False


class LockFreeQueueGate(QueueGate):
    """The same with lock-free queues: MQ_LF."""

    locked = False


register(Kind(name="mq", gate=QueueGate))
register(Kind(name="mq_lockfree", gate=LockFreeQueueGate))
