"""A case that hangs or takes its process down is reported by its number, and the others are run all the same."""

from __future__ import annotations

import os
import signal

from tests.fuzz import pool


def _check(case: int) -> str | None:
    if case == 2:
        while True:
            signal.pause()
    if case == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    if case == 5:
        raise ValueError("of the fuzzer's own")
    return "differs" if case == 6 else None


def test_what_becomes_of_cases() -> None:
    told: dict[int, str | None] = {}
    pool.run(_check, range(9), processes=2, each=told.__setitem__, hangs_after_s=0.5, share=4)
    assert sorted(told) == list(range(9))
    assert "hangs" in (told[2] or "")
    assert "in _check" in (told[2] or "")
    assert "ended its process with -9" in (told[4] or "")
    assert "of the fuzzer's own" in (told[5] or "")
    assert told[6] == "differs"
    assert sorted(case for case, said in told.items() if said is None) == [0, 1, 3, 7, 8]
