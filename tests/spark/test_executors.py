"""1, 2 and 4 executors of one core, on a local cluster and a standalone master: what they are sent and hold is what is projected.

Shapes and not speed: copies, bytes and state are counted, of each cell and of each executor.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.spark import counted_runs, feeds
from tests.spark.test_faults import cluster

import plait.connectors
from plait.connectors.dump import write_folder
from plait.spark.keep.counting import counted
from plait.spark.keep.projection import lines, projected

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("faults")]

LEFT, RIGHT = 12_000, 6_000
KINDS = ("grid", "hash", "band", "see_all")


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    chance, found = np.random.default_rng(19), {}
    for stream, number in zip(counted_runs.QUERY.streams().values(), (LEFT, RIGHT), strict=True):
        columns = {
            "ts": np.sort(chance.integers(0, 1_000_000, number)), "k": chance.integers(0, 60, number),
            "x": chance.random(number) * 1e5,
        }  # fmt: skip
        found[stream.name] = plait.connectors.feed(stream, pa.table(columns))
    return found


@pytest.fixture
def folder(rows: dict[str, Any], tmp_path: Path) -> Path:
    for name, feed in rows.items():
        files = write_folder(feed, tmp_path / name, rows_per_file=feed.rows // 4)
        for number, file in enumerate(files):
            os.utime(file, (1_700_000_000 + number,) * 2)
    return tmp_path


def told(folder: Path, master: str, executors: int, kinds: tuple[str, ...], *settings: str) -> dict[str, Any]:
    """What the runs have told, in a process group of its own."""
    command = [sys.executable, counted_runs.__file__, str(folder), master, str(executors), ",".join(kinds), *settings]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(folder / "local")}
    child = subprocess.Popen(command, start_new_session=True, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=environment)  # fmt: skip
    try:
        out, err = child.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    assert child.returncode == 0, err[-3000:]
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def compare(rows: dict[str, Any], found: dict[str, Any], executors: int) -> None:
    """Copies exactly, bytes within a tenth: by what one cell counts of the same rows in this process."""
    (one,) = counted(counted_runs.QUERY, rows)
    by_kind = {each.layout.kind: each for each in projected(one, executors)}
    results = set()
    for kind, run in found.items():
        made, cells, own = by_kind[kind], run["cells"], run["executors"]
        assert run["rows"] == LEFT + RIGHT
        results.add(run["results"])
        assert len(cells) == executors
        assert made.copies * run["rows"] == pytest.approx(sum(cell["copies"] for cell in cells), rel=1e-12), kind
        sent = sum(cell["shuffled_bytes"] for cell in cells)
        assert made.bytes * run["rows"] == pytest.approx(sent, rel=0.1), kind
        even = 0.1 if kind in ("grid", "see_all") else 1e-12
        assert made.busiest * run["rows"] == pytest.approx(max(cell["copies"] for cell in cells), rel=even), kind
        assert made.held == pytest.approx(max(cell["held"] for cell in cells), rel=even), kind
        # Executors have worked on all of it between them, and have all cells.
        assert 1 <= len(own) <= executors
        for name in counted_runs.TOLD:
            assert sum(each[name] for each in own) == sum(cell[name] for cell in cells), (kind, name)
        assert sum(each["cells"] for each in own) == executors
        # What the checkpoint's own counts project for as many executors is what they are.
        says = f" {made.copies:.2f} copies and "
        (line,) = [text for text in run["projected"][str(executors)] if text.strip().startswith(AS[kind])]
        assert says in line
        told_bytes = float(line.partition(" copies and ")[2].partition(" bytes")[0].replace(",", ""))
        assert told_bytes * run["rows"] == pytest.approx(sent, rel=0.1), kind
    assert len(results) == 1, "every layout has the same results"


AS = {"grid": "a grid", "hash": "by hash", "band": "by band", "see_all": "all see all"}


@pytest.mark.again
def test_two_executors_of_a_local_cluster(rows: dict[str, Any], folder: Path) -> None:
    found = told(folder, "local-cluster[2,1,1024]", 2, ("grid", "band"))
    compare(rows, found, 2)
    assert len(found["grid"]["executors"]) == 2, "each has a cell"
    # From the counts of two executors to those of one and of four: the same lines as from one cell's.
    (one,) = counted(counted_runs.QUERY, rows)
    for number in (1, 4):
        wanted = lines([one], number, "")[1:]
        for line, other in zip(wanted[::2], found["grid"]["projected"][str(number)][::2], strict=True):
            assert " copies and " in line
            assert line.partition(" copies")[0] == other.partition(" copies")[0]


@pytest.mark.slow
@pytest.mark.parametrize("executors", [1, 2, 4])
def test_executors_of_a_local_cluster(rows: dict[str, Any], folder: Path, executors: int) -> None:
    compare(rows, told(folder, f"local-cluster[{executors},1,1024]", executors, KINDS), executors)


@pytest.mark.slow
@pytest.mark.parametrize("executors", [1, 2, 4])
def test_executors_of_a_standalone_master(rows: dict[str, Any], folder: Path, executors: int) -> None:
    hosts = [f"127.0.0.{number}" for number in range(1, executors + 1)]
    with cluster(folder, *hosts) as made:
        found = told(folder, made.address, executors, KINDS, "spark.driver.host=127.0.0.1")
    compare(rows, found, executors)
    tables = {name: feeds.published(folder / name) for name in rows}
    expected = counted_runs.QUERY.run(tables)  # on threads: the reference would take minutes
    for kind in KINDS:
        feeds.assert_identical(feeds.published(folder / kind / "out"), expected)
