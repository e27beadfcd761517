"""What `plait bench spark-join --only size20m` sees of memory, and how its rows are made. The run itself is Spark's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from plait.spark.publish.collect import BatchReport
from plait.spark.publish.stats import CellStats, SparkStats
from plait_bench import spark_memory


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is looked at in /proc, which this system has not"
)
def test_resident_memory_of_this_process_and_of_those_below_a_jvm(tmp_path: Path) -> None:
    java, python, ready = tmp_path / "java", tmp_path / "python3", tmp_path / "ready"
    java.symlink_to("/bin/sh")
    python.symlink_to(sys.executable)
    worker = f"import pathlib, time; held = b'x' * 50_000_000; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    command = ["java", "-c", f'"{python}" -c "{worker}"; :']
    # A driver of its own: this process may have a JVM for other tests.
    begun = f"import subprocess, time; subprocess.Popen({command!r}, executable={str(java)!r}); time.sleep(60)"
    environment = os.environ | {"PYTHONHOME": sys.base_prefix}
    driver = subprocess.Popen([sys.executable, "-c", begun], env=environment, start_new_session=True)
    try:
        while not ready.exists():
            assert driver.poll() is None
        found = spark_memory.resident(driver.pid)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert 0 < found["python"] < 50_000_000
    assert 0 < found["jvm"] < 50_000_000
    (size,) = [size for name, size in found.items() if name.startswith("worker")]
    assert size > 50_000_000


def test_data_is_made_file_by_file(tmp_path: Path) -> None:
    folder = spark_memory._written(tmp_path / "a", 1, 2_500, 1_000, 1_000)
    files = sorted(folder.iterdir())
    assert [pq.read_metadata(file).num_rows for file in files] == [1_000, 1_000, 500]
    ts = pq.read_table(folder)["ts"].to_pylist()
    assert ts == [1_000_000_000 + k * 1_000 for k in range(2_500)]


def test_rows_and_ratios() -> None:
    def batch(number: int) -> Any:
        held = min(number + 1, 4) * 100
        cells = (
            CellStats(cell=0, held=held // 2, held_bytes=10**6),
            CellStats(cell=1, held=held // 2, held_bytes=10**6),
        )
        return float(number + 1), BatchReport(
            number, 5, SparkStats(rows=10 * (number + 1), copies=11 * (number + 1), held=held, cells=cells)
        )

    told = [batch(number) for number in range(20)]
    most = {phase: {"jvm": 10**9, "python": 2 * 10**8, "worker": 10**8 * min(phase + 1, 5)} for phase in range(20)}
    rows = spark_memory._rows("size20m", 0.0, told, most)
    assert [row["contender"] for row in rows] == [f"tenth {k}" for k in range(1, 11)] + ["plait stream"]
    assert [row["worker_mb"] for row in rows] == [200, 400, *[500] * 9]
    assert (rows[0]["held_rows"], rows[0]["held_mb"], rows[0]["results"]) == (200, 2.0, 10)
    assert rows[-1]["tuples"] == 200
    ratios = spark_memory.ratios(rows)
    assert ratios == {f"size20m_{who}_last_vs_filled": pytest.approx(1) for who in ("jvm", "python", "worker", "state")}
