"""Who takes the next step: every schedule with few preemptions, or random ones with a seed.

A thread is a generator that yields before each step (`tests.explore.twin`). A preemption takes the turn from a thread that could
have gone on. Most faults of concurrent code show with two or three of them (CHESS; loom bounds them too), and with a bound the
number of schedules is polynomial in the number of steps; switches at the end of a thread or when it goes to sleep are free, and
all of them are tried. `explore` goes by the bound: all schedules without a preemption, then all with one at any step from the
first on, then all with two. It leaves out only what is another schedule in disguise:

- A step at a word that no other thread touches, or that all only read, is no place for a preemption: one before the thread's
  next step gives the same. Which words these are is learnt as runs go on, and what was put off for a word that turns out to be
  shared is run after all.
- A run in which a thread was preempted before a step, and nobody did anything meanwhile that the step could tell, goes on as one
  that was preempted later: what differs from it afterwards is tried there.

Neither changes what a run's checks see: of calls it is the latest beginning and the earliest end that count.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Thread = Generator[Any, None, Any]
#: Makes a fresh start: the threads, and what to call once all have ended (it raises if something is wrong).
Scenario = Callable[["Clock"], tuple[list[Thread], Callable[[], None]]]

# What a thread yields: None before a step that may have to do with anything; what an atomic step is called with, the words and
# the place first, two of them if it only reads; or a Sleep.
Request = Any


class Sleep(NamedTuple):
    """A thread that sleeps: it can go on once the word is another one."""

    words: Any
    at: int
    expected: Any


class Clock:
    """Counts the steps of a run, so that a history can say what came before what; knows whose turn it is."""

    def __init__(self) -> None:
        self.now = 0
        self.thread = -1  # nobody's: what is done outside the run
        self._places = 0

    def places(self, words: int) -> int:
        """Names for an array's words, the first of them: the same in every run, as scenarios make their arrays in one order."""
        self._places += words
        return self._places - words


class Words(list[int]):
    """Plain memory whose words have names. What has none may be anybody's, so that each of its steps is one to preempt at."""

    def __init__(self, words: list[int], clock: Clock) -> None:
        super().__init__(words)
        self.base = clock.places(len(words))


class Deadlock(AssertionError):
    """Every thread that has not ended sleeps: a wake-up was lost."""


class Endless(AssertionError):
    """A run took far more steps than it should: some loop makes no progress."""


class Failure(AssertionError):
    """A run went wrong; `choices` repeats it. `preemptions`: so many it had; if it was explored, none with fewer goes wrong."""

    def __init__(self, choices: list[int], cause: BaseException, preemptions: int = 0) -> None:
        super().__init__(f"{type(cause).__name__}: {cause} [schedule {_short(choices)}]")
        self.choices, self.cause, self.preemptions = choices, cause, preemptions


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
    """One execution: threads stand before their first step. `ahead`: what each is about to do."""

    def __init__(self, scenario: Scenario) -> None:
        self.clock = Clock()
        self.threads, self.finish = scenario(self.clock)
        self.asleep: dict[int, Sleep] = {}
        self.ahead: list[Request] = [None] * len(self.threads)
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
        self.ahead[number] = request
        if type(request) is Sleep:
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


class _Step(NamedTuple):
    """A step of a run: who took it, who else was able, and what it touched (-1: anything), reading or writing."""

    thread: int
    able: list[int]
    place: int
    writes: bool


def _next_step(run: _Run, thread: int, able: list[int]) -> _Step:
    request = run.ahead[thread]
    base = getattr(request[0], "base", -1) if request is not None else -1
    if base < 0:
        return _Step(thread, able, -1, True)
    return _Step(thread, able, base + request[1], len(request) > 2 and type(request) is not Sleep)


class _Past:
    """What has happened so far, as far as it matters: of each thread what it did, and what it could tell of others by then.

    Two runs with the same past are in the same state, as threads are deterministic. It is kept as a hash of 64 bits a thread.
    """

    def __init__(self, threads: int) -> None:
        self._known = [0] * threads
        self._written: dict[int, int] = {}
        self._read: dict[int, int] = {}  # since it was written; in no order
        self._all = 0  # the last step that may have to do with anything

    def add(self, step: _Step) -> None:
        thread, _, place, writes = step
        if place < 0:
            self._all = self._known[thread] = hash((thread, *self._known))
            return
        known = hash(
            (self._known[thread], place, self._written.get(place, 0), self._all, writes and self._read.get(place, 0))
        )
        self._known[thread] = known
        if writes:
            self._written[place], self._read[place] = known, 0
        else:
            self._read[place] = self._read.get(place, 0) + known & 0xFFFF_FFFF_FFFF_FFFF

    def state(self, turn: int) -> int:
        """With whose turn it is, or -1 if that is open."""
        return hash((turn, *self._known))


def follow(scenario: Scenario, choices: list[int], *, most_steps: int = 20_000) -> None:
    """Repeat one schedule; after its last choice each thread runs to its end."""
    _execute(scenario, [], choices, most_steps)


def _repeat(run: _Run, past: _Past, steps: list[_Step]) -> None:
    """Take steps that another run took from the same start. They do what they did there, so nothing is asked of them again."""
    for step in steps:
        if run.asleep:
            run.able()
        past.add(step)
        run.step(step.thread)


def _execute(scenario: Scenario, known: list[_Step], choices: list[int], most_steps: int,
             seen: Mapping[int, int] = MappingProxyType({}), cost: int = 0) -> tuple[list[_Step], list[int]]:  # fmt: skip
    """Take another run's first steps, then these choices, then go on with the same thread as long as it is able.

    Gives all steps, and the states before those that were not known. Ends where a state was `seen` with no more preemptions
    than `cost`: what follows is known.
    """
    run = _Run(scenario)
    steps = list(known)
    states: list[int] = []
    current, given, past = -1, len(known) + len(choices), _Past(len(run.threads))
    try:
        if known:
            _repeat(run, past, known)
            current = known[-1].thread
        while run.alive:
            able = run.able()
            if not able:
                raise Deadlock(f"threads {run.alive} all sleep")
            if len(steps) > most_steps:
                raise Endless(f"more than {most_steps} steps")
            state = past.state(current if current in able else -1)
            if len(steps) < given:
                chosen = choices[len(states)]
            elif seen.get(state, cost + 1) <= cost:
                return steps, states
            else:
                chosen = current
            if chosen not in able:
                chosen = able[0]
            current = chosen
            step = _next_step(run, chosen, able)
            steps.append(step)
            states.append(state)
            past.add(step)
            run.step(chosen)
        run.clock.thread = -1
        run.finish()
    except Exception as cause:
        raise Failure([step.thread for step in steps], cause, cost) from cause
    return steps, states


class _Branch(NamedTuple):
    """A schedule to be run: another run's steps up to one of them, another thread there, and so many preemptions in all."""

    steps: list[_Step]
    at: int
    other: int
    cost: int


class _Shared:
    """Which words more than one thread has touched, in any run so far, and the schedules that were put off for the others."""

    def __init__(self) -> None:
        self._readers: dict[int, int] = {}  # threads by place, a bit each
        self._writers: dict[int, int] = {}
        self._put_off: dict[tuple[int, int, bool], list[_Branch]] = {}

    def tells(self, step: _Step) -> bool:
        """Whether the step can tell what another thread has done, or another what it does."""
        if step.place < 0:
            return True
        others = self._writers.get(step.place, 0)
        if step.writes:
            others |= self._readers.get(step.place, 0)
        return others & ~(1 << step.thread) != 0

    def put_off(self, step: _Step, branches: list[_Branch]) -> None:
        self._put_off.setdefault((step.place, step.thread, step.writes), []).extend(branches)

    def learn(self, steps: list[_Step]) -> list[_Branch]:
        """Note what a run touched; gives what need not be put off any longer."""
        news = set()
        for step in steps:
            if step.place >= 0:
                known = self._writers if step.writes else self._readers
                before = known.get(step.place, 0)
                if not before >> step.thread & 1:
                    known[step.place] = before | 1 << step.thread
                    news.add(step.place)
        due: list[_Branch] = []
        if news:
            for key in [key for key in self._put_off if key[0] in news]:
                place, thread, writes = key
                if self.tells(_Step(thread, [], place, writes)):
                    due += self._put_off.pop(key)
        return due


def explore(scenario: Scenario, *, preemptions: int, most_steps: int = 20_000) -> list[int]:
    """Run every schedule with at most so many preemptions, those with fewer first; gives how many had 0, 1, 2 ... of them.

    Each run is the child of the one it first differs from: it repeats that one's choices up to a step at which another
    thread was able, lets that one go on instead, and counts a preemption if the first could have.
    """
    waiting: list[deque[_Branch]] = [deque() for _ in range(preemptions + 1)]
    waiting[0].append(_Branch([], 0, -1, 0))
    runs, shared = [0] * (preemptions + 1), _Shared()
    seen: dict[int, int] = {}  # states, and the least number of preemptions
    while (cost := next((k for k, some in enumerate(waiting) if some), -1)) >= 0:
        origin = waiting[cost].popleft()
        choices = [origin.other] if origin.steps else []
        steps, states = _execute(scenario, origin.steps[: origin.at], choices, most_steps, seen, cost)
        runs[cost] += 1
        for due in shared.learn(steps[origin.at :]):
            waiting[due.cost].append(due)
        differs = origin.at + len(choices)
        for at in range(differs, _until(steps, differs)):
            step = steps[at]
            seen[states[at - origin.at]] = cost
            if len(step.able) == 1:
                continue
            price = cost + (at > 0 and steps[at - 1].thread in step.able)
            if price <= preemptions:
                branches = [_Branch(steps, at, other, price) for other in step.able if other != step.thread]
                if price == cost or shared.tells(step):
                    waiting[price].extend(branches)
                else:
                    shared.put_off(step, branches)
    return runs


def _until(steps: list[_Step], differs: int) -> int:
    """Where a run becomes another one in disguise: as soon as who was preempted before step `differs` goes on, if for nothing."""
    if differs < 2 or (preempted := steps[differs - 2].thread) not in steps[differs - 1].able:
        return len(steps)
    meanwhile: list[_Step] = []
    for at in range(differs - 1, len(steps)):
        step = steps[at]
        if step.thread == preempted:
            return len(steps) if any(_conflict(step, other) for other in meanwhile) else at + 1
        meanwhile.append(step)
    return len(steps)


def _conflict(one: _Step, other: _Step) -> bool:
    return one.place < 0 or other.place < 0 or (one.place == other.place and (one.writes or other.writes))


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
