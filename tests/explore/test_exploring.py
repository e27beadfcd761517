"""The scheduler, the race finder and the linearizability check, on cases whose answer is known."""

from __future__ import annotations

import pytest
from tests.explore import races
from tests.explore.linearize import Call, linearizes
from tests.explore.schedule import Clock, Deadlock, Failure, Sleep, explore, follow, sample

# Threads as `twin.load` makes them: a bare `yield` before every step.


def lost_update(clock):
    words = [0]

    def increment():
        yield
        old = words[0]
        yield
        words[0] = old + 1

    def finish():
        assert words[0] == 2

    return [increment(), increment()], finish


def test_a_lost_update_needs_one_preemption():
    assert explore(lost_update, preemptions=0) == [2]
    with pytest.raises(Failure) as caught:
        explore(lost_update, preemptions=1)
    with pytest.raises(Failure):
        follow(lost_update, caught.value.choices)
    with pytest.raises(AssertionError, match=r"seed \d+"):
        sample(lost_update, seed=1, runs=100, switch=0.5)


def test_every_schedule_is_run_once():
    seen = []

    def scenario(clock):
        order = []

        def thread(name):
            for _ in range(3):
                yield
                order.append(name)

        return [thread("a"), thread("b")], lambda: seen.append("".join(order))

    assert sum(explore(scenario, preemptions=99)) == len(set(seen)) == 20  # 6 over 3


def test_a_lost_wake_up_is_a_deadlock():
    def scenario(clock):
        words = [0]

        def sleeper():
            yield Sleep(words, 0, 0)

        def other():
            yield

        return [sleeper(), other()], lambda: None

    with pytest.raises(Failure) as caught:
        explore(scenario, preemptions=0)
    assert isinstance(caught.value.cause, Deadlock)


@pytest.mark.parametrize("release", [True, False])
def test_a_plain_word_must_be_published(release):
    def scenario(clock):
        words = races.Memory([0, 0], clock, 2)

        def writer():
            yield
            words[0] = 7
            yield
            if release:
                races.store_release(words, 1, 1)
            else:
                words[1] = 1

        def reader():
            yield
            if races.load_acquire(words, 1) == 1:
                assert words[0] == 7

        return [writer(), reader()], lambda: None

    if release:
        explore(scenario, preemptions=2)
    else:
        with pytest.raises(Failure) as caught:
            explore(scenario, preemptions=2)
        assert isinstance(caught.value.cause, races.RaceError)


def register(state, call):
    if call.name == "write":
        return call.asked[0]
    return state if call.answered == state else None


def test_linearizability_of_a_register():
    write, old, new = Call("write", (1,), None, 0, 10), Call("read", (), 0, 5, 6), Call("read", (), 1, 2, 3)
    assert linearizes(0, register, [write, old])
    assert linearizes(0, register, [write, new])
    assert not linearizes(0, register, [write, new, old]), "the old value after the new one"
    assert not linearizes(0, register, [write, Call("read", (), 0, 11, 12)]), "the old value after the write has ended"


def test_the_clock_knows_whose_turn_it_is():
    turns = []

    def scenario(clock: Clock):
        def thread(number):
            yield
            turns.append((number, clock.thread))

        return [thread(0), thread(1)], lambda: turns.append((-1, clock.thread))

    explore(scenario, preemptions=0)
    assert all(number == turn for number, turn in turns)
