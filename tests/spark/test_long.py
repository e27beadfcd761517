"""What a long run must not do: grow. And how large a window may be on a small machine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.spark import long_run

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def samples(**spec: Any) -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, long_run.__file__, json.dumps(spec)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"batch"')]


def test_ten_windows_leave_state_checkpoint_and_memory_flat() -> None:
    """A window is ten batches; the run is ten windows long after the first has filled."""
    found = samples(batches=120, rows=2_000, window=20_000, values=40_000, memory="1g", every=1)
    early = [s for s in found if 30 <= s["batch"] < 60]
    late = [s for s in found if s["batch"] >= 90]
    assert late[-1]["results"] > 3 * found[30]["results"] > 0
    # Spark cleans up from time to time, so the checkpoint is a saw: what lies at the foot of it must not rise.
    foot = [min(s["checkpoint"] for s in some) for some in (early, late)]
    assert foot[1] <= 1.25 * foot[0], [s["checkpoint"] for s in found[::10]]
    peak = [max(s["rss"] for s in some) for some in (early, late)]
    assert peak[1] <= 1.15 * peak[0], [s["rss"] >> 20 for s in found[::10]]


def test_a_window_of_a_million_tuples_a_stream_fits_in_eight_gib() -> None:
    found = samples(batches=13, rows=100_000, window=1_000_000, values=4_000_000, memory="3g", every=1)
    assert found[-1]["results"] > 100_000
    assert max(s["rss"] for s in found) < 8 << 30, [s["rss"] >> 20 for s in found]
