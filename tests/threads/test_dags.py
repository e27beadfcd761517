"""Queries over queries on threads: the definitions' rows and the reference's nested keys, however they are run."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import dags
from tests.reference.judge import assert_same
from tests.strategies import Case
from tests.threads.delivery import on_threads

KEY = "_plait_key"
#: More of them for a soak.
EXAMPLES = int(os.environ.get("PLAIT_EXAMPLES", "12"))

#: `operator_over_join` needs operators on threads.
SHAPES = tuple(shape for shape in dags.SHAPES if shape is not dags.operator_over_join)

OPTIONS = st.sampled_from((
    {}, {"workers": 1}, {"workers": 3}, {"batch": 1}, {"workers": 2, "batch": 3, "capacity": 2, "unread_results": 1, "stall_after_s": 5.0},
))  # fmt: skip


def held_against_all(case: Case, options: dict[str, Any], seed: int) -> None:
    got = on_threads(case, seed=seed, **options)
    assert_same(got.drop_columns([KEY]), case.expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys: pa.Table = case.query.reference(case.data, keys=True)
    assert got.column(KEY).to_pylist() == keys.column(KEY).to_pylist()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data(), options=OPTIONS, seed=st.integers(0, 2**16))
def test_dag(shape: Any, data: st.DataObject, options: dict[str, Any], seed: int) -> None:
    held_against_all(data.draw(dags.dags(shapes=(shape,))), options, seed)
