"""The benchmark of cores runs, small: workers agree, and ratios are between rows of one run."""

from __future__ import annotations

import os

import pytest

from plait_bench import cores


@pytest.mark.parametrize(
    ("machine", "workers", "most"),
    [(1, [1], 1), (2, [1, 2], 2), (4, [1, 2, 3, 4], 3), (6, [1, 2, 4, 5], 4), (16, [1, 2, 4, 8, 15, 16], 15)],
)
def test_how_many_workers_there_are(machine: int, workers: list[int], most: int) -> None:
    assert cores.counts(machine) == workers
    assert cores.most(workers) == most


def test_every_study_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    made = cores.run(quick=True)
    speeds = {(row["case"], row["contender"]): row.get("tuples_per_s") for row in made["rows"]}
    assert {case for case, _ in speeds} == {"band", "equality", "scan", "wiml"}
    assert made["ratios"]["band_2_workers_vs_1"] == speeds["band", "2 workers"] / speeds["band", "1 workers"]
    assert set(made["ratios"]) == {
        *(f"{case}_2_workers_vs_1" for case in ("band", "equality", "scan")),
        *(f"{case}_skewed_vs_balanced" for case in ("band", "equality")),
        "scan_vs_bare_kernels", "wiml_2_threads_vs_1", "wiml_2_workers_vs_1",
    }  # fmt: skip
