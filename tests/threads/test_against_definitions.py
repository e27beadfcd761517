"""Small and nasty streams, every kind of join and window, on every strategy: against the definition and the reference's keys."""

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

KEY = "_plait_key"
EXAMPLES = examples(12)

PLANS: dict[str, dict[str, Any]] = {
    "sequential": {"strategy": "sequential", "workers": 1},
    "scalejoin 2": {"strategy": "scalejoin", "workers": 2},
    "scalejoin 3": {"strategy": "scalejoin", "workers": 3},
    "splitjoin 3": {"strategy": "splitjoin", "workers": 3, "fan_out": 1},
    "splitjoin 7": {"strategy": "splitjoin", "workers": 7},
    "dpjoin 2 x 3": {"strategy": "dpjoin", "layout": (2, 3)},
    "dpjoin 1 x 2": {"strategy": "dpjoin", "layout": (1, 2)},
    "dpjoin 3 x 1": {"strategy": "dpjoin", "layout": (3, 1)},
    "dpjoin 2 x 3, emitter": {"strategy": "dpjoin", "layout": (2, 3), "emitter": True},
    "dpjoin 3 x 1, emitter": {"strategy": "dpjoin", "layout": (3, 1), "emitter": True},
}
ANY_KIND = ("sequential", "dpjoin 3 x 1", "dpjoin 3 x 1, emitter")
BOTH_SIDES = ("dpjoin 1 x 2", "dpjoin 2 x 3", "dpjoin 2 x 3, emitter")


def held_against_all(case: Case, options: dict[str, Any], seed: int) -> None:
    got = on_threads(case, seed=seed, plain=True, **options)
    assert_same(got.drop_columns([KEY]), case.expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys: pa.Table = case.query.reference(case.data, keys=True)
    assert got.column(KEY).to_pylist() == keys.column(KEY).to_pylist()


options = st.fixed_dictionaries({"batch": st.sampled_from((1, 3, 2048)), "index": st.just("auto")})


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=EXAMPLES)
@given(case=strategies.time_joins(hows=("inner",)), extra=options, seed=st.integers(0, 2**16))
def test_time_windows(plan: str, case: Case, extra: dict[str, Any], seed: int) -> None:
    held_against_all(case, PLANS[plan] | extra, seed)


@pytest.mark.parametrize("plan", ANY_KIND)
@settings(max_examples=examples(2 * 12))
@given(case=strategies.time_joins(hows=("left", "semi", "anti")), extra=options, seed=st.integers(0, 2**16))
def test_other_kinds(plan: str, case: Case, extra: dict[str, Any], seed: int) -> None:
    held_against_all(case, PLANS[plan] | extra, seed)


@pytest.mark.parametrize("plan", [*ANY_KIND, *BOTH_SIDES])
@settings(max_examples=examples(2 * 12))
@given(case=strategies.time_joins(hows=("full",)), extra=options, seed=st.integers(0, 2**16))
def test_full_joins(plan: str, case: Case, extra: dict[str, Any], seed: int) -> None:
    held_against_all(case, PLANS[plan] | extra, seed)


@pytest.mark.parametrize("plan", ["sequential", "dpjoin 1 x 2"])
@settings(max_examples=examples(2 * 12))
@given(case=strategies.time_joins(hows=("right",)), extra=options, seed=st.integers(0, 2**16))
def test_right_joins(plan: str, case: Case, extra: dict[str, Any], seed: int) -> None:
    held_against_all(case, PLANS[plan] | extra, seed)


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=EXAMPLES)
@given(
    case=strategies.count_joins() | strategies.tumbling_joins() | strategies.tumbling_count_joins(),
    extra=options,
    seed=st.integers(0, 2**16),
)
def test_count_and_tumbling_windows(plan: str, case: Case, extra: dict[str, Any], seed: int) -> None:
    held_against_all(case, PLANS[plan] | extra, seed)


@pytest.mark.parametrize("workers", [1, 3])
@settings(max_examples=examples(3 * 12))
@given(case=strategies.asof_joins(), extra=options, seed=st.integers(0, 2**16))
def test_asof(workers: int, case: Case, extra: dict[str, Any], seed: int) -> None:
    held_against_all(case, {"workers": workers} | extra, seed)
