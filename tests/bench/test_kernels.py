"""The benchmark's own checks: contenders agree, ratios are between rows of one run, the form is the project's."""

from __future__ import annotations

import json
import shutil

import pytest

import plait_bench
from plait.errors import QueryError
from plait_bench import kernels


def test_scans_agree_and_give_their_ratios() -> None:
    rows = kernels._scans(quick=True)
    ratios = kernels._ratios(rows)
    assert {"scan_traced_vs_numpy", "scan_opaque_vs_numpy", "scan_2_threads_vs_1"} <= set(ratios)
    assert ("scan_traced_vs_cpp" in ratios) == (shutil.which("g++") is not None)
    assert all(ratio > 0 for ratio in ratios.values())
    result = {"bench": "kernels", "machine": {}, "rows": rows, "ratios": ratios}
    assert json.loads(json.dumps(result)) == result
    plait_bench.report(result)


def test_indexes_give_their_ratios() -> None:
    row = {"threads": 1, "window": 1_000_000, "comparisons_per_s": 1.0}
    rows = [
        row | {"what": "grid index", "tuples_per_s": 50.0},
        row | {"what": "hash index", "tuples_per_s": 300.0},
        row | {"what": "scan traced, as a join", "tuples_per_s": 1.0},
    ]
    assert kernels._ratios(rows) == {"grid_1m_vs_scan": 50.0, "hash_1m_vs_scan": 300.0}


def test_an_unknown_benchmark_is_refused() -> None:
    assert "kernels" in plait_bench.names()
    with pytest.raises(QueryError, match="There is no benchmark"):
        plait_bench.load("nothing")
