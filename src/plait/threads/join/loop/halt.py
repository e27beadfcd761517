"""HALT: the word that makes every worker return to Python, and the calls that wake whoever sleeps through it."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray

from plait.threads.atomics import fetch_add, store_release, wake_all
from plait.threads.atomics.native import compiled, pointer_at
from plait.threads.gate import epochs
from plait.threads.gate.layout import READY_EVENT
from plait.threads.join.loop import layout as o

RUNNING: Final = 0
STILL: Final = 1
STOPPING: Final = 2


@compiled
def halt(gate, control, value):
    """Set HALT, then wake all: a sleeper looks at HALT between saying that it will sleep and sleeping."""
    store_release(control, o.HALT, value)
    fetch_add(gate, READY_EVENT, 1)
    wake_all(gate, READY_EVENT)
    for event in (o.ROOM_EVENT, o.FEED_EVENT, o.OUT_EVENT):
        fetch_add(control, event, 1)
        wake_all(control, event)
    if control[o.EPOCHS]:
        epochs.wake_threads(gate, carray(pointer_at(control[o.EPOCHS]), (1 << 40,), dtype=np.int64))
