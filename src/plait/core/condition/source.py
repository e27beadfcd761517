"""The text of a kernel module: scans, and the check of candidate pairs, for one condition and one signature.

The scan is in two phases. Over a tile of the window and a few probes, `hit |= condition` runs without a branch, which
is what LLVM turns into wide vector code; only where it came out true does a second loop look for the pairs. Tiles are
taken panel by panel, so that a panel stays in the cache while every probe passes over it. Pairs of one probe come in
window order; pairs of different probes interleave, and the caller sorts by probe (stable).

A kernel never allocates: it fills the buffers it is given, and when they may not hold the next tile it saves where it
is in `state` and returns 1, to be called again with larger ones.

The same text runs as plain Python where `compiled` does nothing, which is how tests try thousands of conditions.

Arguments of `scan_0` and `scan_1` (probes of the left and of the right side): `n` probes; `lo` and `hi`, int64 by probe,
their ranges of rows; the probes' leaves with their masks; the window's leaves with theirs, and `alive` where it has one;
`state`, four int64; `out_probe` and `out_row`, int64 of one length. `state` begins as -1, 0, 0, 0 and holds panel, probe,
tile, and pairs so far. 0 comes back when all is done. `verify` gets candidates as `left`, `right` and `other`, keeps
those that match in their front, and gives how many.

Why two phases: a loop that stores pairs as it finds them has a branch a pair, and runs at about a tenth of the speed of
one that only ORs (design.md, section 5). Matches are few, so the second loop seldom runs.
tests/core/join/test_machine_code.py looks at the machine code of the first.
"""

from __future__ import annotations

from textwrap import indent
from typing import Final

from plait.core.condition import opaque
from plait.core.condition.columns import constant_code
from plait.core.condition.leaves import Shape
from plait.core.condition.scalar import PRELUDE, ScalarWriter
from plait.core.condition.words import Signature
from plait.query.condition.expression import text as expression_text

PROBES: Final = 8  # probes a pass: each loaded tuple is compared this often
TILE: Final = 256  # tuples between two looks at `hit`
PANEL: Final = 8192  # tuples that stay in the cache while all probes pass

_HEAD = '''"""{what}

Written by plait; do not edit. Its name is the hash of all it was made from.
"""

{imports}
import numpy as np
from math import inf, nan
{types}

'''

_COMPILED_TYPES = """from numba import float32, float64, int32, int64, uint8, uint64

from plait.core.machine.marks import entry
from plait.core.machine.marks import inlined as compiled
from plait.core.machine.shield import njit
"""

_PLAIN_TYPES = """from numpy import float32, float64, int32, int64, uint8, uint64


def compiled(function):
    return function


entry = compiled
"""


def module_text(shape: Shape, signature: Signature, *, plain: bool = False, named: bool = False) -> str:
    """The whole module. `plain` leaves Numba out: the same functions, run by Python (trees only; functions are called).

    `named` gives the text by which the module is named, see `opaque.function_text`.

    `shape` is the condition, `signature` how its leaves are stored. Equal arguments give equal text, which is the
    module's name on disk.
    """
    writer = _ModuleWriter(shape, signature, 2 if plain else PROBES)  # Python gains nothing from more
    scans = [writer.scan(0), writer.scan(1)]
    functions = [writer.verify(), *scans]
    what = shape.predicate.describe() if shape.opaque else _describe(shape)
    head = _HEAD.format(
        what=_comment(what),
        imports="from collections import namedtuple\n" if shape.opaque else "",
        types=_PLAIN_TYPES if plain else _COMPILED_TYPES,
    )
    prelude = "\n".join(PRELUDE[name] for name in sorted(writer.used))
    if shape.opaque:
        assert not plain
        prelude += opaque.function_text(shape, named=named)
    return head + prelude + "\n\n" + "\n\n".join(functions)


def _describe(shape: Shape) -> str:
    expr = shape.predicate.expr
    return expression_text(expr) if expr is not None else "opaque"


def _comment(text: str) -> str:
    """Safe inside a docstring, and ASCII."""
    return text.encode("ascii", "backslashreplace").decode().replace("\\", "/").replace('"', "'")


class _ModuleWriter:
    """Writes a module's functions. `probes` is how many copies of the condition a scan's loop holds: each row of the
    window is loaded once for that many probes.
    """

    def __init__(self, shape: Shape, signature: Signature, probes: int) -> None:
        self.shape, self.signature, self.probes = shape, signature, probes
        self.codes = {value: constant_code(value) for value in shape.literals}
        self.used: set[str] = set()

    # --- names: L0, L1 .. are the left leaves' arrays, L0v their masks, LA the rows that are alive ---

    def _leaf_arrays(self, side: int) -> list[str]:
        letter = "LR"[side]
        out = []
        for k in range(len(self.shape.leaves[side])):
            out.append(f"{letter}{k}")
            if self.signature.nullable[side][k]:
                out.append(f"{letter}{k}v")
        return out

    def _loads(self, side: int, at: str, suffix: str = "") -> list[str]:
        return [f"{name.lower()}{suffix} = {name}[{at}]" for name in self._leaf_arrays(side)]

    def _condition(self, suffixes: tuple[str, str], temp: str) -> tuple[list[str], str]:
        """The assignments of a condition over one pair, and the text that says whether it matches. `suffixes` are
        appended to the leaves' names of either side, `temp` to those of assignments.
        """
        names = {
            (side, k): f"{'lr'[side]}{k}{suffixes[side]}"
            for side in (0, 1)
            for k in range(len(self.shape.leaves[side]))
        }
        # A leaf's mask is named after the leaf: l0 and l0v, or with a suffix l0_3 and l0_3v.
        if self.shape.opaque:
            return [], opaque.call_text(self.shape, names)
        writer = ScalarWriter(self.shape, self.signature, names, self.codes, temp)
        condition = writer.condition()
        self.used |= writer.used
        return writer.lines, condition

    def verify(self) -> str:
        """Keep the candidates that match, in place and in order; gives how many."""
        arrays = ", ".join(self._leaf_arrays(0) + self._leaf_arrays(1))
        loads = self._loads(0, "i") + self._loads(1, "j")
        lines, condition = self._condition(("", ""), "")
        body = "\n".join(loads + lines)
        return f"""@entry
def verify(n, left, right, other, {arrays}):
    # `other` travels along with the pairs: the probe each of them belongs to.
    kept = 0
    for at in range(uint64(n)):
        i = uint64(left[at])
        j = uint64(right[at])
{indent(body, " " * 8)}
        if {condition}:
            left[kept] = left[at]
            right[kept] = right[at]
            other[kept] = other[at]
            kept += 1
    return kept
""".replace(", )", ")")

    def scan(self, side: int) -> str:
        """All pairs of probes of one side with their ranges of the other side's window.

        Dead rows of the window are masked by `alive`; of a dead probe the caller makes the range empty.
        """
        if self.shape.opaque and not opaque.cannot_fail(self.shape):
            return self._careful_scan(side)
        return self._fast_scan(side)

    def _head(self, side: int) -> str:
        window = 1 - side
        alive = [f"{'LR'[window]}A"] if self.signature.alive[window] else []
        arrays = ", ".join(self._leaf_arrays(side) + self._leaf_arrays(window) + alive)
        arrays = f"{arrays}, " if arrays else ""
        return f"@entry\ndef scan_{side}(n, lo, hi, {arrays}state, out_probe, out_row):\n"

    def _alive(self, side: int, condition: str) -> str:
        if not self.signature.alive[1 - side]:
            return condition
        return f"(alive & {condition})"

    def _slow_loop(self, side: int, first: str, last: str, *, guard: bool) -> str:
        """Look at every pair of probe `p` with rows [first, last); `guard`: ask for alive before the condition."""
        window = 1 - side
        lines, condition = self._condition(("", ""), "")
        alive = self.signature.alive[window]
        loads = self._loads(window, "j")
        inner = "\n".join([*loads, *lines, f"if {condition}:"])
        emit = "    out_probe[count] = p\n    out_row[count] = int64(j)\n    count += 1"
        body = f"{inner}\n{emit}"
        if alive:
            body = f"if {'LR'[window]}A[j] != uint8(0):\n{indent(body, '    ')}"
        return f"for j in range(uint64({first}), uint64({last})):\n{indent(body, '    ')}"

    def _fast_scan(self, side: int) -> str:
        """The scan in two phases. Probes are taken PROBES at a time over tiles of TILE rows that cover the ranges of all
        of them. So the condition is also computed for rows outside of a probe's own range; `hit` may be true for nothing.
        The second loop looks at each probe's own rows. The last group is filled up with its last probe.
        """
        window = 1 - side
        setup, tests = [], []
        for k in range(self.probes):
            setup.append(f"q = uint64(min(g + {k}, n - 1))")
            setup += self._probe_loads(side, k)
            suffixes = (f"_{k}", "") if side == 0 else ("", f"_{k}")
            lines, condition = self._condition(suffixes, f"_{k}")
            tests += [*lines, f"hit |= {self._alive(side, condition)}"]
        loads = self._loads(window, "j")
        if self.signature.alive[window]:
            loads.append(f"alive = {'LR'[window]}A[j] != uint8(0)")
        probe = "\n".join(self._loads(side, "uint64(p)"))
        slow = self._slow_loop(side, "max(tile, lo[p])", "min(tile_end, hi[p])", guard=False)
        return f"""{self._head(side)}    begin = lo[0]
    end = hi[0]
    for p in range(1, n):
        begin = min(begin, lo[p])
        end = max(end, hi[p])
    count = state[3]
    first_probe = state[1]
    first_tile = state[2]
    start = begin
    if state[0] >= 0:
        start = state[0]
    for panel in range(start, end, {PANEL}):
        panel_end = min(panel + {PANEL}, end)
        for g in range(first_probe, n, {self.probes}):
            after = min(g + {self.probes}, n)
            tile_0 = lo[g]
            tile_n = hi[g]
            for p in range(g + 1, after):
                tile_0 = min(tile_0, lo[p])
                tile_n = max(tile_n, hi[p])
            tile_0 = max(max(tile_0, panel), first_tile)
            tile_n = min(tile_n, panel_end)
            first_tile = panel
            if tile_0 >= tile_n:
                continue
{indent(chr(10).join(setup), " " * 12)}
            for tile in range(tile_0, tile_n, {TILE}):
                tile_end = min(tile + {TILE}, tile_n)
                hit = False
                for j in range(uint64(tile), uint64(tile_end)):
{indent(chr(10).join(loads + tests), " " * 20)}
                if hit:
                    if count + {self.probes * TILE} > len(out_probe):
                        state[0] = panel
                        state[1] = g
                        state[2] = tile
                        state[3] = count
                        return 1
                    for p in range(g, after):
{indent(probe, " " * 24)}
{indent(slow, " " * 24)}
        first_probe = 0
    state[3] = count
    return 0
"""

    def _probe_loads(self, side: int, k: int) -> list[str]:
        out = []
        for name in self._leaf_arrays(side):
            stem, mask = (name[:-1], "v") if name.endswith("v") else (name, "")
            out.append(f"{stem.lower()}_{k}{mask} = {name}[q]")
        return out

    def _careful_scan(self, side: int) -> str:
        """For a function that may raise: called on exactly the pairs that exist, one after the other."""
        probe = "\n".join(self._loads(side, "uint64(p)"))
        slow = self._slow_loop(side, "tile", "tile_end", guard=True)
        return f"""{self._head(side)}    count = state[3]
    first = state[2]
    for p in range(max(state[1], 0), n):
{indent(probe, " " * 8)}
        for tile in range(max(lo[p], first), hi[p], {TILE}):
            tile_end = min(tile + {TILE}, hi[p])
            if count + {TILE} > len(out_probe):
                state[1] = p
                state[2] = tile
                state[3] = count
                return 1
{indent(slow, " " * 12)}
        first = 0
    state[3] = count
    return 0
"""
