"""What the models refuse, in one form of words: a number that no machine and no stream can have."""

from __future__ import annotations

import math

from plait.errors import QueryError


def positive(**given: float) -> None:
    """Refuse what is no number above zero, by its name."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise QueryError(
                f"{name}={value!r}", why="the model divides and multiplies by it", do="Pass a number above zero"
            )


def not_negative(**given: float) -> None:
    """Refuse what is no number of at least zero, by its name."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise QueryError(f"{name}={value!r}", why="a cost is never below zero", do="Pass zero or a number above it")


def counted(least: int = 1, **given: int) -> None:
    """Refuse what is no whole number of at least `least`, by its name."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise QueryError(f"{name}={value!r}", why="it counts things", do=f"Pass a whole number of at least {least}")


def share(**given: float) -> None:
    """Refuse what is no part of a whole, 0 to 1, by its name."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise QueryError(f"{name}={value!r}", why="it is a probability", do="Pass a number from 0 to 1")
