"""The as-of benchmark runs, small: contenders agree, and ratios are between rows of one run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from plait.errors import RunError
from plait_bench import asof


def test_everybody_finds_the_same_quotes() -> None:
    made = asof.run(quick=True)
    rates = {row["contender"]: row["rows_per_s"] for row in made["rows"]}
    assert set(rates) >= {"run", "pushed"}
    assert made["ratios"]["run_vs_pushed"] == rates["run"] / rates["pushed"]
    assert set(made["ratios"]) == {"run_vs_pushed", *(f"run_vs_{name}_asof" for name in set(rates) - {"run", "pushed"})}
    assert {row["results"] for row in made["rows"]} == {50_000}


def test_another_answer_is_told() -> None:
    ours = asof.pushed(asof.tables(2_000))
    wrong = ours.set_column(ours.schema.get_field_index("bid"), "bid", pa.array([1.0] * 2_000))
    with pytest.raises(RunError, match="rival disagrees with plait in column 'bid'"):
        asof._agree(ours, wrong, "rival")
