"""Is there an order of the calls, agreeing with what came before what, in which a sequential object answers the same?

Linearizability, decided by Wing and Gong's search: take any call that began before every call not yet placed had
ended, ask the model whether it may answer so next, go on, and step back where it may not. Small histories only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One call of a history: what was asked and answered, and the steps between which it ran."""

    name: str
    asked: tuple[Any, ...]
    answered: Any
    began: int
    ended: int

    def __str__(self) -> str:
        asked = ", ".join(map(str, self.asked))
        return f"{self.name}({asked}) -> {self.answered} [{self.began}..{self.ended}]"


#: Gives the state after the call, or None if the object may not answer so in this state.
Model = Callable[[Any, Call], Hashable | None]


def linearizes(start: Hashable, model: Model, history: Sequence[Call]) -> bool:
    """Whether the history can be put in an order that the model accepts."""
    calls = sorted(history, key=lambda call: call.ended)
    tried: set[tuple[frozenset[int], Hashable]] = set()

    def place(left: tuple[int, ...], state: Hashable) -> bool:
        if not left:
            return True
        key = (frozenset(left), state)
        if key in tried:
            return False
        tried.add(key)
        limit = calls[left[0]].ended  # the first to end among those left: nothing that began later may go before it
        for number in left:
            if calls[number].began > limit:
                continue
            after = model(state, calls[number])
            if after is not None and place(tuple(other for other in left if other != number), after):
                return True
        return False

    return place(tuple(range(len(calls))), start)


def require(start: Hashable, model: Model, history: Sequence[Call]) -> None:
    if not linearizes(start, model, history):
        lines = "\n  ".join(str(call) for call in sorted(history, key=lambda call: call.began))
        raise AssertionError(f"no order of these calls explains their answers:\n  {lines}")
