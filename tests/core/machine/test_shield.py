"""An interrupt while Numba compiles strikes who waits, and Numba goes on as if nothing had been."""

from __future__ import annotations

import signal
import threading
from typing import Any

import numba
import pytest
from numba.core import event

from plait.core.machine.shield import njit, out_of_reach


class Struck(BaseException):
    pass


class _Strikes(event.Listener):
    """A signal to the main thread as soon as a compilation begins, whoever compiles."""

    def __init__(self) -> None:
        self.by: list[threading.Thread] = []
        self.struck = threading.Event()

    def on_start(self, _: Any) -> None:
        if not self.by:
            self.by.append(threading.current_thread())
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            if self.by[0] is not threading.main_thread():
                assert self.struck.wait(60)

    def on_end(self, _: Any) -> None:
        pass


@pytest.fixture
def strikes() -> Any:
    made = _Strikes()

    def handler(*_: object) -> None:
        made.struck.set()
        raise Struck

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with event.install_listener("numba:compile", made):
            yield made
    finally:
        signal.signal(signal.SIGUSR1, before)


def twice() -> Any:
    return njit(nogil=True)(lambda x: x + x)


def test_the_waiting_caller_is_struck_and_the_function_is_compiled_all_the_same(strikes: _Strikes) -> None:
    function = twice()
    with pytest.raises(Struck):
        function(2)
    assert strikes.by[0] is not threading.main_thread()
    strikes.by[0].join(60)
    assert len(function.overloads) == 1
    assert function(2) == 4
    assert function(2.5) == 5.0


def test_errors_of_the_compiler_reach_the_caller() -> None:
    with pytest.raises(numba.TypingError):
        njit(nogil=True)(lambda x: x + "a")(1)


def test_inside_a_function_that_is_being_compiled_nobody_waits_for_another_thread() -> None:
    inner = twice()
    outer = numba.njit(lambda x: inner(x) + 1)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(outer(3)), daemon=True)
    thread.start()
    thread.join(60)
    assert found == [7]


def test_out_of_reach_gives_what_the_call_gives() -> None:
    assert out_of_reach(lambda a, b: (a, b), 1, 2) == (1, 2)
