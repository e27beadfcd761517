"""Partitioned joins whose tables change by chance, every few tuples, from a recorded seed: strategies for tests."""

from __future__ import annotations

from plait.threads.join.strategies import partitioned, registry
from plait.threads.join.strategies.plan import Parts, Plan, Wish


def restless(seed: int, every: int) -> str:
    """A strategy that draws another table every so many tuples; its name."""
    name = f"restless {seed} {every}"

    def plan(wish: Wish) -> Plan:
        made = partitioned.plan(wish)
        assert made.parts is not None
        return Plan(name, made.seats, made.layout, "", parts=Parts(made.parts.line, restless=(seed, every)))

    if name not in registry.names():
        registry.register(registry.Strategy(name=name, plan=plan))
    return name
