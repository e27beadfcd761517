"""HALT: the word that makes every worker return to Python, and the calls that wake whoever sleeps through it."""

from __future__ import annotations

import numpy as np
from numba import carray

from plait.core.machine.line import LINE
from plait.threads import words as shared
from plait.threads.atomics import fetch_add, store_release, wake_all
from plait.threads.atomics.native import compiled, pointer_at
from plait.threads.gate import epochs
from plait.threads.gate.words import READY_EVENT


@compiled
def halt(gate, control, value):
    """Set HALT, then wake all: a sleeper looks at HALT between saying that it will sleep and sleeping.

    `value` is RUNNING, STILL or STOPPING. RUNNING wakes too, which costs little and happens seldom. The order matters:
    a sleeper that looked before the store finds the event's counter raised, and does not sleep.
    """
    store_release(control, shared.HALT, value)
    fetch_add(gate, READY_EVENT, 1)
    wake_all(gate, READY_EVENT)
    for event in range(control[shared.EVENTS]):
        at = shared.CONTROL_WORDS + event * LINE
        fetch_add(control, at, 1)
        wake_all(control, at)
    if control[shared.EPOCHS]:
        epochs.wake_threads(gate, carray(pointer_at(control[shared.EPOCHS]), (1 << 40,), dtype=np.int64))
