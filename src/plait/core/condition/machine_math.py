"""What proven conditions find under the name `math`: the same values, and the same errors, as Python's own.

Machine code gives NaN for the square root of a negative number, and Python raises.
"""

from __future__ import annotations

import math
from math import e, fabs, inf, isfinite, isinf, isnan, nan, pi, tau

from plait.core.machine.shield import njit

__all__ = ["e", "fabs", "inf", "isfinite", "isinf", "isnan", "nan", "pi", "sqrt", "tau"]


# `math.sqrt` in machine code, with Python's error for a negative number. NaN and -0.0 give what they give in Python.
@njit(nogil=True, error_model="python")
def sqrt(x: float) -> float:
    if x < 0:
        raise ValueError("math domain error")
    return math.sqrt(x)
