"""An interrupt at any moment of a compiled operator's work comes out as itself, and never as another error or as nothing."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import numpy as np
from tests.threads.test_timers import SCHEMA, operator

import plait
from plait.core.machine.kept import keep
from plait.core.machine.shield import njit
from plait.core.operator.compiled import made_for
from plait.core.operator.machine_steps import no_timers, take_timer, with_timer
from plait.query.bind import bind


class Struck(BaseException):
    pass


def kept(step: Any) -> Any:
    """A step by itself, as it is compiled, from the cache: an operator has them compiled into its own code."""
    return keep(
        njit(**{name: step.targetoptions[name] for name in ("nogil", "error_model", "boundscheck")})(step.py_func)
    )


def test_strikes_come_out_as_themselves() -> None:
    bound = bind(operator(plait.stream("a", unit="us"), compiled=True), {"a": SCHEMA})
    made, why = made_for(bound, None)
    assert made is not None, why
    buckets: Any = made.buckets(0, 1)
    ts, zeros = np.arange(4, dtype=np.int64), np.zeros(4, np.int64)
    numbers = np.array([[5] * 4, [1] * 4, [3] * 4][: made.width], np.int64)
    armed, struck, got = False, 0, Counter[str]()

    def handler(*_: object) -> None:
        nonlocal armed, struck
        if armed:
            armed, struck = False, struck + 1
            raise Struck

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1.37e-4)
    try:
        while struck < 2000:
            try:
                armed = True
                for _ in range(50):
                    buckets.take(ts, zeros, 0, zeros[:1], zeros[:1], numbers, None)
                    buckets.next_timer()
                armed = False
            except BaseException as error:
                armed = False
                got[type(error).__name__] += 1
            buckets.timers = no_timers()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(got) == {"Struck"}
    assert got["Struck"] > 0.99 * struck > 10, "one in a finalizer is Python's to lose"


def test_timers_come_out_in_order_whatever_the_order_they_went_in() -> None:
    chance = np.random.default_rng(7)
    ends = [np.iinfo(np.int64).min, np.iinfo(np.int64).max]
    timers, expected = no_timers(), []
    put, take = kept(with_timer), kept(take_timer)
    for _ in range(2000):
        if timers[0, 0] and chance.random() < 0.4:
            assert take(timers) == min(expected)
            expected.remove(min(expected))
        else:
            at = int(chance.choice(ends)) if chance.random() < 0.1 else int(chance.integers(-50, 50))
            expected.append((at, int(chance.integers(0, 4))))
            timers = put(timers, *expected[-1])
    assert [take(timers) for _ in range(timers[0, 0])] == sorted(expected)
