"""The scheduler, the race finder and the linearizability check, on cases whose answer is known."""

from __future__ import annotations

from random import Random

import pytest
from tests.explore import races
from tests.explore.linearize import Call, linearizes
from tests.explore.schedule import Clock, Deadlock, Failure, Sleep, Words, explore, follow, sample

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


def test_those_with_fewer_preemptions_come_first():
    """And all with one come from every step on, the first too: what goes wrong at a thread's first step is found."""
    with pytest.raises(Failure) as caught:
        explore(lost_update, preemptions=5)
    assert caught.value.preemptions == 1


def steps_of(random, places):
    """What a thread does: places that it reads, or adds to what it has read last."""
    return [(random.randrange(places), random.random() < 0.5) for _ in range(random.randint(2, 5))]


def outcomes(programs, preemptions, *, named):
    """All that can come of these threads with so many preemptions: words at the end, and what each has read."""
    seen = set()

    def scenario(clock):
        words = Words([0] * 3, clock) if named else [0] * 3
        read = [[] for _ in programs]

        def thread(own, program):
            last = own + 1
            for place, writes in program:
                if writes:
                    yield words, place, last
                    words[place] = last = 3 * last + words[place]
                else:
                    yield words, place
                    last = words[place]
                    read[own].append(last)

        return [thread(k, program) for k, program in enumerate(programs)], lambda: seen.add(repr((words[:], read)))

    runs = explore(scenario, preemptions=preemptions)
    return seen, sum(runs)


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_out_is_found_elsewhere(seed):
    """With memory that has names schedules are left out, without none: what can come of a program is the same."""
    random = Random(seed)
    programs = [steps_of(random, 3) for _ in range(random.randint(2, 3))]
    for preemptions in range(3):
        few, left = outcomes(programs, preemptions, named=True)
        every, runs = outcomes(programs, preemptions, named=False)
        assert few == every
        assert left <= runs


def test_little_is_run_of_threads_that_share_nothing():
    programs = [[(k, True)] * 5 for k in range(3)]
    assert outcomes(programs, 2, named=True)[1] < outcomes(programs, 2, named=False)[1] / 50


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
