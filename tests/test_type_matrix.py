"""Cells of the matrix of `type_matrix`: a sample of each role here, all of it in the soak."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from tests.type_matrix import LAYOUTS, ROLES, TYPES, data, on_threads, outcome, wrong

#: Compiled anew for every type, which takes a second each.
_COMPILED = ("join equal", "join function")

#: Cells that were wrong, each of another kind.
FOUND = [
    ("null", "plain", "collect"), ("list of nulls", "plain", "first"), ("struct of views", "codes", "collect"),
    ("struct", "codes", "first"), ("struct", "under", "collect"), ("struct of ns", "plain", "collect"),
    ("duration[ns]", "plain", "distinct"), ("date32", "plain", "distinct"), ("list of days", "plain", "content"),
    ("struct of struct", "plain", "content"), ("date32", "plain", "as-of by"), ("ts[s]", "sliced", "as-of by"),
    ("map", "plain", "custom"), ("map of times", "codes", "operator"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "how", "role"), FOUND)
def test_cells_that_were_wrong(name: str, how: str, role: str) -> None:
    assert [found for seed in range(3) if (found := wrong(name, how, role, seed)) is not None] == []


@pytest.mark.parametrize("role", [role for role in ROLES if role not in _COMPILED])
def test_a_sample_of_types_and_layouts(role: str) -> None:
    dice = random.Random(f"sample {role}")
    cells = [(dice.choice(list(TYPES)), dice.choice(LAYOUTS), role, dice.randrange(1_000)) for _ in range(8)]
    assert {cell: found for cell in cells if (found := wrong(*cell)) is not None} == {}


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_all_types_and_layouts(role: str) -> None:
    cells = [(name, how, role, seed) for name in TYPES for how in LAYOUTS for seed in range(2)]
    assert {cell: found for cell in cells if (found := wrong(*cell)) is not None} == {}


def test_the_matrix_computes_something() -> None:
    """Not all is refused: each role takes some type, and its result has rows."""
    for role, name in (("collect", "struct of ns"), ("by", "string"), ("as-of by", "date32"), ("time us", "int32")):
        cells = [data(name, "plain", role, seed) for seed in range(9)]
        found = [outcome(lambda cell=cell: on_threads(*cell)) for cell in cells]
        assert any(isinstance(table, pa.Table) and table.num_rows for table in found), role
    assert isinstance(data("string", "codes", "by", 1)[1]["s"].column("x").type, pa.DictionaryType)
