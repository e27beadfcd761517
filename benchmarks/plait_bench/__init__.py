"""Benchmarks by name. Each measures plait beside its peers, on the same data and in one run.

A benchmark is a module with `run(quick=False)`, which gives one object: `{"bench", "machine", "rows", "ratios"}`.
Rows are flat; ratios are between rows of the same run, and are what the project's claims rest on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from plait.errors import QueryError

_MODULES = {
    "kernels": "plait_bench.kernels",
    "gate": "plait_bench.gate",
    "spark-join": "plait_bench.spark_join",
    "aggregate": "plait_bench.aggregate",
    "spark-aggregate": "plait_bench.spark_aggregate",
    "aggregate-queries": "plait_bench.aggregate_queries",
    "asof": "plait_bench.asof",
    "join": "plait_bench.join",
    "elastic": "plait_bench.elastic",
    "cores": "plait_bench.cores",
    "elastic-operators": "plait_bench.elastic_operators",
    # The papers' studies, a function each.
    "join-workers": "plait_bench.join_studies:workers",
    "join-balance": "plait_bench.join_studies:skew",
    "join-latency": "plait_bench.join_studies:latency",
    "join-punctuation": "plait_bench.join_studies:punctuation",
    "join-ordering": "plait_bench.join_studies:ordering",
    "join-gathering": "plait_bench.join_studies:gathering",
    "join-stages": "plait_bench.join_studies:stages",
    "join-selectivity": "plait_bench.join_studies:selectivity",
    "join-peers": "plait_bench.join_studies:against",
    "aggregate-rates": "plait_bench.aggregate_studies:rates",
    "aggregate-workers": "plait_bench.aggregate_studies:workers",
    "aggregate-batches": "plait_bench.aggregate_studies:batches",
    # All figures and tables of the papers, in one report.
    "papers": "plait_bench.papers",
}
Result = dict[str, Any]


def names() -> list[str]:
    return list(_MODULES)


def load(name: str) -> Callable[..., Result]:
    """The `run` of a benchmark."""
    if name not in _MODULES:
        raise QueryError(f"There is no benchmark {name!r}", do=f"Choose one of {', '.join(_MODULES)}")
    module, _, function = _MODULES[name].partition(":")
    run: Callable[..., Result] = getattr(importlib.import_module(module), function or "run")
    return run


def report(result: Result) -> None:
    """Print a result for a person."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{result['bench']}[/bold]  " + ", ".join(f"{k} {v}" for k, v in result["machine"].items()))
    # A table for each case, with the columns that it has.
    for case in dict.fromkeys(row.get("case") for row in result["rows"]):
        rows = [row for row in result["rows"] if row.get("case") == case]
        columns = list(dict.fromkeys(key for row in rows for key in row if key != "case"))
        table = Table(*columns, title=case, title_justify="left")
        for row in rows:
            table.add_row(*(cell(row.get(column)) for column in columns))
        console.print(table)
    ratios = Table("ratio", "value")
    for name, value in result["ratios"].items():
        ratios.add_row(name, cell(value))
    console.print(ratios)


def cell(value: Any) -> str:
    """A value of a row, as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
