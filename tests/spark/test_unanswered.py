"""A cell's state in a task: answers of the state server that say nothing are read when they must be known, and none is lost."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import RunError
from plait.spark.cell.state import Unanswered
from plait.spark.plan import settings


class Server:
    """Spark's end of a task's socket, and PySpark's client on it: an answer for each message, in order."""

    def __init__(self, refuses: int | None = None) -> None:
        self.kept: dict[int, bytes] = {}
        self.refuses, self.asked, self.answers = refuses, 0, deque[tuple[int, str, bytes]]()
        self.waited = 0

    def _receive_proto_message(self) -> tuple[int, str, bytes]:
        self.waited += 1
        return self.answers.popleft()

    def answer(self, value: bytes = b"") -> None:
        self.asked += 1
        self.answers.append((1, "no space left", b"") if self.asked == self.refuses else (0, "", value))

    # A handle and a map of PySpark's, as far as `Unanswered` uses them.
    @property
    def _statefulProcessorApiClient(self) -> Server:
        return self

    def getMapState(self, *variable: Any) -> Server:
        self.answer()
        self._checked()
        return self

    def getValue(self, key: tuple[int]) -> tuple[bytes] | None:
        self.answer(self.kept.get(key[0], b""))
        found = self._checked()
        return (found,) if found else None

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:
        self.kept[key[0]] = value[0]
        self.answer()
        self._checked()

    def removeKey(self, key: tuple[int]) -> None:
        self.kept.pop(key[0], None)
        self.answer()
        self._checked()

    def _checked(self) -> bytes:
        status, message, value = self._receive_proto_message()
        assert status == 0, message
        return value


CALLS = st.lists(
    st.tuples(st.sampled_from(["get", "put", "drop"]), st.integers(0, 3), st.binary(min_size=1, max_size=4))
)


@given(CALLS)
def test_values_are_those_of_who_waits(calls: list[tuple[str, int, bytes]]) -> None:
    """Whatever is asked in whatever order: each value is the answer to its own question."""
    server, plain = Server(), dict[int, bytes]()
    store = Unanswered(server)
    for what, key, value in calls:
        if what == "get":
            found = store.getValue((key,))
            assert (None if found is None else found[0]) == plain.get(key)
        elif what == "put":
            store.updateValue((key,), (value,))
            plain[key] = value
        else:
            store.removeKey((key,))
            plain.pop(key, None)
    store.close()
    assert not server.answers
    assert server.waited == server.asked == 1 + len(calls)
    assert server._receive_proto_message.__func__ is Server._receive_proto_message  # type: ignore[attr-defined]


def test_nothing_is_waited_for_before_it_must_be_known() -> None:
    server = Server()
    store = Unanswered(server)
    store.updateValue((1,), (b"x",))
    store.removeKey((1,))
    assert server.waited == 0
    assert store.getValue((1,)) is None
    assert server.waited == 4


@pytest.mark.parametrize("refused", [1, 2, 3, 4])
def test_a_write_that_failed_fails_the_task(refused: int) -> None:
    server = Server(refuses=refused)

    def task() -> None:
        store = Unanswered(server)
        store.updateValue((1,), (b"x",))
        store.getValue((1,))
        store.updateValue((2,), (b"y",))
        store.close()

    with pytest.raises((RunError, AssertionError), match="o space left"):
        task()


def test_a_query_starts_with_settings_of_its_own(spark: Any) -> None:
    (key,) = settings.OF_A_SCAN
    with settings.starting(spark, scans=False):
        assert spark.conf.get(key, None) is None
    with settings.starting(spark, scans=True):
        assert spark.conf.get(key) == settings.OF_A_SCAN[key]
    assert spark.conf.get(key, None) is None
    spark.conf.set(key, "FALLBACK")
    try:
        with settings.starting(spark, scans=True):
            assert spark.conf.get(key) == "FALLBACK"
        assert spark.conf.get(key) == "FALLBACK"
    finally:
        spark.conf.unset(key)
