"""Who takes the next step: every schedule with few preemptions, the first so many of them, or random ones with a seed.

A thread is a generator that yields before each atomic step (`tests.explore.twin`). A preemption takes the turn from a
thread that could have gone on. Most faults of concurrent code show with two or three of them (CHESS; loom bounds them
too), and with a bound the number of schedules is polynomial in the number of steps; switches at the end of a thread or
when it goes to sleep are free, and all of them are tried. Where `most_runs` ends it, only those that differ late in a run
have been.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from typing import Any

Thread = Generator[Any, None, Any]
#: Makes a fresh start: the threads, and what to call once all have ended (it raises if something is wrong).
Scenario = Callable[["Clock"], tuple[list[Thread], Callable[[], None]]]


class Clock:
    """Counts the steps of a run, so that a history can say what came before what; knows whose turn it is."""

    def __init__(self) -> None:
        self.now = 0
        self.thread = -1  # nobody's: what is done outside the run


class Deadlock(AssertionError):
    """Every thread that has not ended sleeps: a wake-up was lost."""


class Endless(AssertionError):
    """A run took far more steps than it should: some loop makes no progress."""


class Failure(AssertionError):
    """A run went wrong; `choices` repeats it."""

    def __init__(self, choices: list[int], cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause} [schedule {_short(choices)}]")
        self.choices, self.cause = choices, cause


def _short(choices: list[int]) -> str:
    """Runs of one thread as thread*steps."""
    runs: list[list[int]] = []
    for choice in choices:
        if runs and runs[-1][0] == choice:
            runs[-1][1] += 1
        else:
            runs.append([choice, 1])
    return " ".join(f"{thread}*{steps}" for thread, steps in runs)


class _Run:
    """One execution: threads stand before their first step."""

    def __init__(self, scenario: Scenario) -> None:
        self.clock = Clock()
        self.threads, self.finish = scenario(self.clock)
        self.asleep: dict[int, tuple[Any, int, int]] = {}
        self.alive: list[int] = []
        for number, thread in enumerate(self.threads):
            if self._advance(thread, number):
                self.alive.append(number)

    def _advance(self, thread: Thread, number: int) -> bool:
        self.clock.thread = number
        try:
            request = next(thread)
        except StopIteration:
            return False
        if request is not None:
            self.asleep[number] = request
        return True

    def able(self) -> list[int]:
        if not self.asleep:
            return self.alive
        self.clock.thread = -1  # the looks below are nobody's
        for number, (words, at, expected) in list(self.asleep.items()):
            if words[at] != expected:
                del self.asleep[number]
        return [number for number in self.alive if number not in self.asleep]

    def step(self, number: int) -> None:
        self.clock.now += 1
        if not self._advance(self.threads[number], number):
            self.alive = [other for other in self.alive if other != number]


def follow(scenario: Scenario, choices: list[int], *, most_steps: int = 20_000) -> None:
    """Repeat one schedule; after its last choice each thread runs to its end."""
    _execute(scenario, iter(choices), most_steps)


def _execute(scenario: Scenario, prefix: Iterator[int], most_steps: int) -> tuple[list[int], list[list[int]]]:
    """Take the prefix's choices, then go on with the same thread as long as it is able: choices, and who was able."""
    run = _Run(scenario)
    choices: list[int] = []
    options: list[list[int]] = []
    current = -1
    try:
        while run.alive:
            able = run.able()
            if not able:
                raise Deadlock(f"threads {run.alive} all sleep")
            if len(choices) > most_steps:
                raise Endless(f"more than {most_steps} steps")
            chosen = next(prefix, -1)
            if chosen not in able:
                chosen = current if current in able else able[0]
            current = chosen
            choices.append(chosen)
            options.append(able)
            run.step(chosen)
        run.clock.thread = -1
        run.finish()
    except Exception as cause:
        raise Failure(choices, cause) from cause
    return choices, options


def explore(scenario: Scenario, *, preemptions: int, most_runs: int | None = None, most_steps: int = 20_000) -> int:
    """Run every schedule with at most so many preemptions, or the first `most_runs`; gives how many were run.

    Each run is the child of the one it first differs from: it repeats that one's choices up to a step at which another
    thread was able, lets that one go on instead, and counts a preemption if the first could have.
    """
    pending: list[tuple[list[int], int]] = [([], 0)]
    runs = 0
    while pending:
        prefix, used = pending.pop()
        choices, options = _execute(scenario, iter(prefix), most_steps)
        runs += 1
        if most_runs is not None and runs >= most_runs:
            break
        for at in range(len(prefix), len(choices)):
            able = options[at]
            if len(able) == 1:
                continue
            before = choices[at - 1] if at else -1
            cost = used + (1 if before in able else 0)
            if cost <= preemptions:
                pending.extend(([*choices[:at], other], cost) for other in able if other != choices[at])
    return runs


def sample(scenario: Scenario, *, seed: int, runs: int, switch: float = 0.2, most_steps: int = 50_000) -> None:
    """Run random schedules; a failure names the seed of its run, and `sample(seed=that, runs=1)` repeats it."""
    for number in range(seed, seed + runs):
        rng = random.Random(number)
        try:
            _execute_random(scenario, rng, switch, most_steps)
        except Failure as failure:
            raise AssertionError(f"seed {number}: {failure}") from failure


def _execute_random(scenario: Scenario, rng: random.Random, switch: float, most_steps: int) -> None:
    run = _Run(scenario)
    choices: list[int] = []
    current = -1
    try:
        while run.alive:
            able = run.able()
            if not able:
                raise Deadlock(f"threads {run.alive} all sleep")
            if len(choices) > most_steps:
                raise Endless(f"more than {most_steps} steps")
            if current not in able or rng.random() < switch:
                current = rng.choice(able)
            choices.append(current)
            run.step(current)
        run.clock.thread = -1
        run.finish()
    except Exception as cause:
        raise Failure(choices, cause) from cause
