"""The scan's hot loop is vector code: packed compares on wide registers, in the loop that tests the condition."""

from __future__ import annotations

import platform
import re
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pyarrow as pa
import pytest
from numba import njit

from plait.core.condition.leaves import shape
from plait.core.condition.source import module_text
from plait.core.condition.store import kernel_text, load
from plait.core.condition.words import Signature
from plait.query.condition.predicate import predicate

LEFT = pa.schema([("x", pa.int32()), ("y", pa.float32())])
RIGHT = pa.schema([("a", pa.int32()), ("b", pa.float32())])
BAND = Signature((("int32", "float32"),) * 2, ((False, False),) * 2, (False, False))

wide = platform.machine() in ("x86_64", "AMD64") and llvm.get_host_cpu_features().get("avx2", False)
x86 = pytest.mark.skipif(not wide, reason="reads the assembly of x86 processors with AVX2")


def near(l: Any, r: Any) -> Any:
    return (abs(l.x - r.a) <= 10) & (abs(l.y - r.b) <= 10)


def near_opaque(l: Any, r: Any) -> Any:
    if abs(l.x - r.a) > 10:
        return False
    return abs(l.y - r.b) <= 10


def assembly(on: Any, *, edit: Any = None) -> str:
    bound = predicate(on, ("left", "right"), {"l": 0, "r": 1}).bind(LEFT, RIGHT)
    text = module_text(shape(bound, LEFT, RIGHT), BAND)
    module = load(kernel_text(edit(text) if edit else text))
    ints, floats, longs = np.zeros(8, np.int32), np.zeros(8, np.float32), np.zeros(1, np.int64)
    out = np.empty(4096, np.int64)
    # A kernel loaded from the cache has no assembly: compile this one in memory.
    fresh = njit(nogil=True, boundscheck=False, error_model="numpy")(module.scan_0.py_func)
    fresh(1, longs, longs + 8, ints, floats, ints, floats, np.array([-1, 0, 0, 0]), out, out.copy())
    (code,) = fresh.inspect_asm().values()
    return str(code)


def loops(code: str) -> list[list[str]]:
    """Innermost loops: the instructions between a label and a jump back to it, with no other label between."""
    found, label, body = [], "", []  # type: ignore[var-annotated]
    for line in code.splitlines():
        line = line.strip()
        if re.match(r"^[.\w$]+:", line):
            label, body = line.split(":")[0], []
        elif line and not line.startswith(("#", ".")):
            body.append(line)
            jump = re.match(r"j\w+\s+(\S+)", line)
            if jump and jump.group(1) == label:
                found.append(body)
    return found


def is_vector_loop(body: list[str]) -> bool:
    """Tests both columns of many tuples at a time: packed integer and packed float compares on ymm or zmm."""
    wide = [line for line in body if "%ymm" in line or "%zmm" in line]
    integers = any(re.match(r"vpcmp(eq|gt|lt|le|nlt|nle|u)?\w*d\b", line) for line in wide)
    floats = any(re.match(r"vcmp\w*ps\b", line) for line in wide)
    return integers and floats


@x86
def test_the_traced_scans_hot_loop_is_vector_code() -> None:
    hot = [body for body in loops(assembly(near)) if is_vector_loop(body)]
    assert hot
    # Eight probes a pass: at least sixteen packed compares in one loop, none on single values.
    best = max(hot, key=len)
    packed = [line for line in best if re.match(r"v(pcmp|cmp)\w*(d|ps)\b", line)]
    assert len(packed) >= 16, "\n".join(best)
    assert not any(re.match(r"v?u?comiss|cmpl", line) for line in best), "\n".join(best)


@x86
def test_the_opaque_scans_hot_loop_is_vector_code() -> None:
    hot = [
        body for body in loops(assembly(near_opaque))
        if sum(bool(re.match(r"v(pcmp|cmp)\w*(q|pd)\b.*[yz]mm", line)) for line in body) >= 16
    ]  # fmt: skip
    assert hot


@x86
def test_the_check_would_see_a_scalar_loop() -> None:
    """A reduction that LLVM can't vectorise: the same loop, counting instead of or-ing, ended by a branch."""
    scalar = assembly(near, edit=lambda text: text.replace("hit |= (", "hit = hit or ("))
    assert not any(is_vector_loop(body) for body in loops(scalar))
