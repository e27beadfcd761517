"""Small and nasty streams, every kind of window and function, on every design: against the definition, and keys."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.strategies import Case
from tests.threads.delivery import on_threads

from plait_bench import multi_queues

KEY = "_plait_key"
EXAMPLES = examples(20)

DESIGNS: dict[str, dict[str, Any]] = {
    "one update thread": {"strategy": "tuml_sc"},
    "update threads by key": {"workers": 3},  # without a key, one
    **{name: {"strategy": name} for name in multi_queues.NAMES},
}
#: What the W-Hive can merge.
MERGING = (
    "n",
    "sum_k",
    "sum_x",
    "mean_q",
    "var_x",
    "min_x",
    "max_k",
    "first_x",
    "last_k",
    "first_k_where",
    "count_where",
)
batch = st.sampled_from((1, 3, None))
WIML = ("wiml", "wiml_shared")


def held_against_all(case: Case, options: dict[str, Any], seed: int) -> None:
    got = on_threads(case, seed=seed, **options)
    assert_same(got.drop_columns([KEY]), case.expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys: pa.Table = case.query.reference(case.data, keys=True)
    assert got.column(KEY).to_pylist() == keys.column(KEY).to_pylist()


@pytest.mark.parametrize("design", DESIGNS)
@settings(max_examples=EXAMPLES)
@given(case=strategies.span_aggregates(), batch=batch, seed=st.integers(0, 2**16))
def test_windows_of_time(design: str, case: Case, batch: int | None, seed: int) -> None:
    held_against_all(case, DESIGNS[design] | {"batch": batch}, seed)


@settings(max_examples=examples(2 * 20))
@given(case=strategies.span_aggregates(functions=MERGING), seed=st.integers(0, 2**16), wiml=st.sampled_from(WIML))
def test_windows_of_time_updated_by_those_who_push(case: Case, seed: int, wiml: str) -> None:
    held_against_all(case, {"strategy": wiml}, seed)


@pytest.mark.parametrize("design", DESIGNS)
@settings(max_examples=EXAMPLES)
@given(case=strategies.count_aggregates(), batch=batch, seed=st.integers(0, 2**16))
def test_windows_of_tuples(design: str, case: Case, batch: int | None, seed: int) -> None:
    held_against_all(case, DESIGNS[design] | {"batch": batch}, seed)
