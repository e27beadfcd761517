from __future__ import annotations

import inspect
import pickle
from dataclasses import replace

import pytest

import plait
from plait.query.operator import Operator


def made(state: object) -> Operator:
    found = plait.operator(
        plait.stream("s"), buckets=2, route=lambda t: 0, state=state, process=max, output={"n": "int64"}
    )
    assert isinstance(found, Operator)
    return found


@pytest.mark.parametrize(
    ("state", "first"), [(list, []), (int, 0), (str, ""), (lambda b: b + 1, 4), (lambda b=7: b, 7)]
)
def test_how_a_state_is_made_is_found_once(state: object, first: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads make states. Python can't parse signatures in several of them at once: it may raise a SystemError."""
    query = made(state)
    again = replace(query, buckets=3)

    def refused(_: object) -> None:
        raise AssertionError("a signature is looked at when a state is made")

    monkeypatch.setattr(inspect, "signature", refused)
    assert query.first_state(3) == again.first_state(3) == first


def test_it_travels() -> None:
    assert pickle.loads(pickle.dumps(replace(made(dict), route=max))).first_state(1) == {}
