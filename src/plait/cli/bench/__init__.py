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
    "kernels": "plait.cli.bench.kernels",
    "gate": "plait.cli.bench.gate",
    "spark-join": "plait.cli.bench.spark_join",
}
Result = dict[str, Any]


def names() -> list[str]:
    return list(_MODULES)


def load(name: str) -> Callable[..., Result]:
    """The `run` of a benchmark."""
    if name not in _MODULES:
        raise QueryError(f"There is no benchmark {name!r}", do=f"Choose one of {', '.join(_MODULES)}")
    run: Callable[..., Result] = importlib.import_module(_MODULES[name]).run
    return run


def report(result: Result) -> None:
    """Print a result for a person."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{result['bench']}[/bold]  " + ", ".join(f"{k} {v}" for k, v in result["machine"].items()))
    columns = list(dict.fromkeys(key for row in result["rows"] for key in row))
    table = Table(*columns)
    for row in result["rows"]:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console.print(table)
    ratios = Table("ratio", "value")
    for name, value in result["ratios"].items():
        ratios.add_row(name, _cell(value))
    console.print(ratios)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
