"""What compiled loops need besides atomic steps, and the twin has no word for: addresses, calls through them, the clock.

Code that uses these is not explored by the scheduler; what it shares with other threads it still shares through atomic steps.
"""

from plait.core.machine.marks import compiled, inner, made_ready
from plait.threads.atomics.intrinsics import address_of, call_at, pointer_at
from plait.threads.atomics.sleep import clock_ns, nap

__all__ = ["address_of", "call_at", "clock_ns", "compiled", "inner", "made_ready", "nap", "pointer_at"]
