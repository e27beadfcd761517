"""Parts of moments, which count microseconds since 1970 in UTC: arithmetic on integers alone, so any moment has them.

Days become dates by counting from 1 March of the year 0: so the odd day of a leap year is the last one of a year. The calendar
repeats itself every 400 years. tests/core/condition/test_texts.py holds it against Python's calendar.
"""

from __future__ import annotations

from typing import Final

import numpy as np

_DAY: Final = 86_400_000_000
_WITHIN_DAY: Final = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def part(op: str, micros: np.ndarray) -> np.ndarray:
    """One of `expression.TIME_PARTS` of every moment; int64, or Python's integers where `micros` are."""
    if op in _WITHIN_DAY:
        unit, most = _WITHIN_DAY[op]
        return np.asarray(micros // unit % most)
    days = micros // _DAY
    if op == "weekday":
        return np.asarray((days + 3) % 7)  # 1970 began on a Thursday
    days = days + 719_468  # since 1 March of the year 0
    era, day = days // 146_097, days % 146_097  # of 400 years
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day = day - (365 * year + year // 4 - year // 100)
    month = (5 * day + 2) // 153  # March is 0
    after = month // 10  # January and February are the next year's
    if op == "year":
        return np.asarray(era * 400 + year + after)
    return np.asarray(month + 3 - 12 * after if op == "month" else day - (153 * month + 2) // 5 + 1)
