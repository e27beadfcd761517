"""An opaque condition is compiled only where machine code is proven to be Python's: attacked with values at the ends.

For every function of a pool, and for bounds from a few units to all 64 bits: either the proof says why it is left to Python,
or the compiled function gives what Python gives, errors included, on every pair of values at the ends of those bounds.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.core.join.ends import FLOATS, NUMBERS, TEXTS

from plait.core.condition import opaque, proof
from plait.core.condition.bounds import Interval, rounded
from plait.core.condition.columns import constant_code
from plait.core.condition.judge import GivenRow
from plait.core.condition.leaves import Shape, shape
from plait.query.condition.predicate import predicate

BOUNDS: list[Interval] = [
    (0, 1), (-100, 100), (-(2**31), 2**31 - 1), (-(2**53), 2**53), (0, 2**62 - 1), (-(2**63) + 1, 2**63 - 1),
    (-(2**63), 2**63 - 1), (0, 2**64 - 1),
]  # fmt: skip
HEAD = "from collections import namedtuple\nfrom numba import njit\nimport numpy as np\ncompiled = njit(nogil=True)\n"


def shape_of(on: Any, kinds: tuple[pa.DataType, ...]) -> Shape | None:
    schemas = [pa.schema([("a", a), ("b", b)]) for a, b in (kinds[:2], kinds[2:])]
    made = predicate(on, ("l", "r"), {"l": 0, "r": 1})
    return None if made.kind != "opaque" else shape(made.bind(*schemas), *schemas)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return bool(call())
    except Exception as error:
        return type(error).__name__


def compiled(made: Shape) -> Callable[..., Any]:
    """The condition of two tuples of values, in machine code."""
    names: dict[str, Any] = {}
    exec(compile(HEAD + opaque.function_text(made, named=False), "<condition>", "exec"), names)
    as_text, texts = names["as_text"], [[leaf.kind == "text" for leaf in made.leaves[side]] for side in (0, 1)]
    arguments = [[f"{'lr'[side]}{k}" for k in range(len(made.leaves[side]))] for side in (0, 1)]
    rows = [
        f"{row}({', '.join(f'as_text({a})' if text else a for a, text in zip(own, texts[side], strict=True))})"
        for side, (row, own) in enumerate(zip(("LeftRow", "RightRow"), arguments, strict=True))
    ]
    text = f"def called({', '.join(arguments[0] + arguments[1])}):\n    return holds({rows[0]}, {rows[1]})\n"
    exec(text, names | {"as_text": as_text}, names)
    exec(text, names)
    found: Callable[..., Any] = names["njit"](error_model="python")(names["called"])
    return found


def values_of(kind: str, bound: Interval) -> list[Any]:
    if kind == "bool":
        return [True, False]
    if kind == "text":
        return ["", "a", "ab", "b"]
    if "float" in kind:
        return FLOATS
    low, high = rounded(bound)
    inside = [low, low + 1, high - 1, high, 0, 1, 2, -1, 3, 5, 127]
    return sorted({n for n in inside if low <= n <= high})


def check(on: Any, kinds: tuple[pa.DataType, ...], *, bounds: list[Interval] = BOUNDS) -> int:
    """How many bounds were proven; each of them holds."""
    made = shape_of(on, kinds)
    if made is None:
        return 0
    proven, machine = 0, None
    for bound in bounds:
        given = tuple(tuple(rounded(bound) if "int" in l.kind else None for l in side) for side in made.leaves)
        if opaque.why_python(made, given):  # type: ignore[arg-type]
            continue
        proven += 1
        machine = machine or compiled(made)
        pools = [[values_of(l.kind, bound) for l in side] for side in made.leaves]
        for left in itertools.product(*pools[0]):
            for right in itertools.product(*pools[1]):
                rows = [
                    GivenRow(dict(zip([l.expr.name for l in side], row, strict=True)))  # type: ignore[union-attr]
                    for side, row in zip(made.leaves, (left, right), strict=True)
                ]
                words = [constant_code(v) if isinstance(v, str) else v for v in (*left, *right)]
                truth = outcome(lambda: on(*rows))  # noqa: B023
                assert outcome(lambda: machine(*words)) == truth, (bound, left, right)  # type: ignore[misc]  # noqa: B023
    return proven


INT, FLOAT, BOOL, TEXT = pa.int64(), pa.float64(), pa.bool_(), pa.string()
OPAQUE = [f for f in NUMBERS if shape_of(f, (INT,) * 4) is not None]
SOME = OPAQUE[::4]


@pytest.mark.parametrize("at", range(len(SOME)))
def test_what_is_proven_is_the_same_in_machine_code(at: int) -> None:
    check(SOME[at], [(INT,) * 4, (INT, INT, FLOAT, FLOAT)][at % 2])


def test_text_that_is_proven_is_the_same_in_machine_code() -> None:
    assert sum(check(on, (TEXT,) * 4, bounds=[(0, 1)]) for on in TEXTS) > 0


def every() -> None:
    """The long form, minutes: `python -m tests.core.condition.test_proof`."""
    for kinds in ((INT,) * 4, (INT, INT, FLOAT, FLOAT), (FLOAT,) * 4, (INT, BOOL, INT, BOOL)):
        proven = sum(check(on, kinds) for on in OPAQUE)
        sys.stdout.write(f"{[str(kind) for kind in kinds]}: {proven} of {len(OPAQUE) * len(BOUNDS)} proven\n")


# --- what the proof is made of -------------------------------------------------------------------------------------


def why(on: Any, bound: Interval, *kinds: pa.DataType) -> str:
    made = shape_of(on, kinds or (INT,) * 4)
    assert made is not None
    given = tuple(tuple(bound if "int" in leaf.kind else None for leaf in side) for side in made.leaves)
    return opaque.why_python(made, given)  # type: ignore[arg-type]


def test_the_same_function_is_proven_or_not_by_the_data() -> None:
    def near(l: Any, r: Any) -> Any:
        if abs(l.a - r.a) > 10:
            return False
        return l.b * r.b > 3

    assert why(near, (-(2**31), 2**31 - 1)) == ""
    assert why(near, (-(2**31) - 1, 2**31)) == ""
    assert "beyond 64 bits" in why(near, (-(2**32), 2**32))
    assert "beyond 64 bits" in why(near, (0, 2**64 - 1))


@pytest.mark.parametrize(
    ("on", "said"),
    [
        (lambda l, r: l.a == r.a and str(l.a) == "1", "`str`"),
        (lambda l, r: l.a is r.a and True, "`is_` of integers"),
        (lambda l, r: any(n == l.a for n in (1, 2)), "tuple of columns|make_function|can't read"),
        (lambda l, r: math.sin(l.a) > 0 and True, "`math.sin`"),
        (lambda l, r: (l.a and r.b == 1) + 1 > 2, "of mixed and whole"),
        (lambda l, r: [n for n in (1, 2) if n == l.a] == [1], "it (holds|uses|has|makes)|can't read"),
    ],
)
def test_what_is_left_to_python_says_why(on: Any, said: str) -> None:
    assert re.search(said, why(on, (0, 9))), why(on, (0, 9))


def test_a_name_without_a_value_on_some_way_is_left_to_python() -> None:
    def late(l: Any, r: Any) -> Any:
        if l.a > 0:
            gap = l.a - r.a
        return gap > 3

    assert "'gap' may have no value yet" in why(late, (0, 9))


def test_a_bound_method_and_text_that_is_no_number_are_left_to_python() -> None:
    class Near:
        limit = 3

        def holds(self, l: Any, r: Any) -> Any:
            return l.a == r.a and l.b < self.limit

    assert "a method" in why(Near().holds, (0, 9))
    assert "of text and text" in why(lambda l, r: l.a < r.a and True, (0, 9), *(TEXT,) * 4)
    assert "of bytes" in why(lambda l, r: l.a == r.a and True, (0, 9), *(pa.binary(),) * 4)


def test_integers_beyond_2_to_53_meet_floats_only_in_python() -> None:
    def same(l: Any, r: Any) -> Any:
        return l.a == r.a and True

    assert why(same, (-(2**53), 2**53), INT, INT, FLOAT, FLOAT) == ""
    assert "beyond 2^53" in why(same, (0, 2**53 + 1), INT, INT, FLOAT, FLOAT)
    assert "beyond 2^53" in why(lambda l, r: l.a / r.a == 1 and True, (0, 2**53 + 1))
    assert check(same, (INT, INT, FLOAT, FLOAT)) == 3


def test_intervals_are_never_too_narrow() -> None:
    assert proof.prove(lambda a, b: a * b - a, [proof.whole((-3, 5)), proof.whole((2, 4))]).interval == (-17, 23)
    with pytest.raises(proof.Unproven):
        proof.prove(lambda a, b: a // b, [proof.whole((-(2**63), 0)), proof.whole((-1, 1))])
    with pytest.raises(proof.Unproven):
        proof.prove(lambda a, b: a % b, [proof.whole((-(2**63), 0)), proof.whole((-1, 1))])


if __name__ == "__main__":
    every()
