"""A user's operator compiled by Numba, from the very functions that are given: contract, rewriting, and the loop around.

What compiles: `state()` gives a NumPy array of numbers, always of one shape; `process` and `on_timer` are written with
`def`, read columns of numbers (and `t.ts`, `t.stream`), and yield tuples, dicts spelled out with every column, or
`plait.timer(...)`; outputs are numbers; `route` returns a bucket, `plait.ALL` or None. Integers are int64, as they are
in the state. Anything else runs as it is, in plain Python, and `explain` says why.

A generator that yields rows and timers has no one type, so `yield x` is rewritten to yield one tuple: (0, 0, columns
...) for a row, (1, at, zeros ...) for a timer. The loop `drive` hands tuples to buckets, keeps timers in a heap, and
writes rows into columns; it runs without the GIL. States lie in one array, a row a bucket, which plain Python can go on
with: a NULL in a column that is read makes the run do so.
"""

from __future__ import annotations

import hashlib
import os
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from plait.errors import DataError
from plait.operators.buckets import EVERY, NONE, PlainBuckets, check_passed, check_timer, nothing
from plait.operators.rewriting import NotCompiled, Source, Writer
from plait.predicates import store
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.windows.pane_columns import one_array

#: What `drive` has told: a timer was set in the past; there is more to do.
FAILED_TIMER, MORE = 1, 2
TIMERS = 1 << 12  # so many run without a look at whether the run has been stopped


def _stamp() -> str:
    """Numba's cache looks at the module's own text only, so that has to change with what it imports."""
    return hashlib.sha256(Path(__file__).with_name("compiled_values.py").read_bytes()).hexdigest()[:16]


def made_for(bound: Bound, cache_dir: str | os.PathLike[str] | None) -> tuple[Made | None, str]:
    """The compiled operator; or None, and why."""
    assert isinstance(bound.node, Operator)
    try:
        return Made(bound, cache_dir), ""
    except NotCompiled as reason:
        return None, str(reason)


class Made:
    """One operator's compiled functions."""

    def __init__(self, bound: Bound, cache_dir: str | os.PathLike[str] | None) -> None:
        assert isinstance(bound.node, Operator)
        self.node, self.bound = bound.node, bound
        self.names = [i.node.name or f"input {n}" for n, i in enumerate(bound.inputs)]
        first = self._first_state(0)
        if not isinstance(first, np.ndarray) or first.ndim == 0 or first.dtype.kind not in "iufb":
            raise NotCompiled(f"state() gives a {type(first).__name__}, not a NumPy array of numbers")
        self.state = first
        self.outputs = [(f.name, _output_kind(f)) for f in self.node.output]
        readers: list[tuple[str, Any]] = [("route", self.node.route), ("process", self.node.process)]
        sources = {name: Source(name, function) for name, function in readers}
        if self.node.on_timer is not None:
            sources["on_timer"] = Source("on_timer", self.node.on_timer)
        self.columns = self._columns({c for name in ("route", "process") for c in sources[name].reads})
        text = self._text(sources)
        module = store.load(store.kernel_text(text), cache_dir)
        self.module = module
        self._compile()

    def _first_state(self, bucket: int) -> Any:
        try:
            return self.node.first_state(bucket)
        except Exception as error:  # it is called again in its place, where a tuple wants the state, and told there
            raise NotCompiled(f"state() of bucket {bucket} raised {type(error).__name__}") from error

    # --- columns ---

    def _columns(self, read: set[str]) -> list[tuple[str, str]]:
        """(name, int | float | bool) of what the functions read; a column that an input lacks is 0 there."""
        found: dict[str, str] = {}
        for name in sorted(read - {"ts", "stream"}):
            for bound in self.bound.inputs:
                if name in bound.schema.names:
                    kind = _number_kind(bound.schema.field(name).type)
                    if kind is None:
                        raise NotCompiled(f"column {name!r} is {bound.schema.field(name).type}, no number")
                    if found.setdefault(name, kind) != kind:
                        raise NotCompiled(f"column {name!r} is of different kinds in two inputs")
            if name not in found:
                raise NotCompiled(f"no input has a column {name!r}")
        return list(found.items())

    def layout(self) -> list[tuple[str, str]]:
        return [(name, "int64") for name, _ in self.columns]

    @property
    def width(self) -> int:
        return len(self.columns)

    def nulls(self, side: int, batch: pa.RecordBatch | pa.Table) -> str | None:
        """A column among those read that has a NULL in these rows."""
        schema = self.bound.inputs[side].schema
        return next((n for n, _ in self.columns if n in schema.names and batch.column(n).null_count), None)

    def arrays(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> list[np.ndarray]:
        schema = self.bound.inputs[side].schema
        made = []
        for name, kind in self.columns:
            if name not in schema.names:
                made.append(np.zeros(len(ts), np.int64))
                continue
            values = one_array(batch.column(name))
            if pa.types.is_temporal(values.type):
                values = values.cast(pa.timestamp("us")).view(pa.int64())
            if kind == "float":
                made.append(values.to_numpy(zero_copy_only=False).astype(np.float64).view(np.int64))
            else:
                made.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
        return made

    def routes(self, side: int, numbers: list[np.ndarray], ts: np.ndarray) -> np.ndarray | None:
        codes = np.empty(len(ts), np.int64)
        wide = np.array(numbers, np.int64).reshape(len(numbers), len(ts))
        bad = int(
            self.module.route_all(side, np.ascontiguousarray(ts), wide, wide.view(np.float64), self.node.buckets, codes)
        )
        return None if bad >= 0 else codes  # plain Python says what is wrong with it

    # --- text ---

    def _text(self, sources: dict[str, Source]) -> str:
        fields = ["ts", "stream", *(name for name, _ in self.columns)]
        reads = ", ".join(
            {"int": "ci[{k}, i]", "float": "cf[{k}, i]", "bool": "ci[{k}, i] != 0"}[kind].format(k=k)
            for k, (_, kind) in enumerate(self.columns)
        )
        kinds = [kind for _, kind in self.outputs]
        zeros = ", ".join({"int": "0", "float": "0.0", "bool": "False"}[kind] for kind in kinds)
        writer = Writer([name for name, _ in self.outputs], kinds, zeros)
        functions = "".join(writer.function(source) for source in sources.values())
        places = {kind: iter(range(len(kinds))) for kind in ("int", "float")}
        stores = "".join(
            f"            out_{'f' if kind == 'float' else 'i'}[{next(places['float' if kind == 'float' else 'int'])}, count] = "
            f"{'' if kind == 'float' else 'int'}(item[{2 + k}])\n"
            for k, kind in enumerate(kinds)
        )
        state = "states[(bucket - first) // step]"
        process = f"process({state}, Row(ts[i], STREAMS[inputs[i]], {reads}))"
        taken = writer.loop(process, stores) if sources["process"].yields else f"        {process}\n"
        timed = "            pass\n"
        if "on_timer" in sources:
            call = f"on_timer({state}, at)"
            timed = writer.loop(call, stores) if sources["on_timer"].yields else f"        {call}\n"
            timed = textwrap.indent(timed, "    ")
        return _TEXT.format(stamp=_stamp(), uses=writer.uses(), streams=tuple(self.names), fields=fields, reads=reads,
                            functions=functions,
                            process=taken, on_timer=timed, every=EVERY, none=NONE, more=MORE)  # fmt: skip

    def _compile(self) -> None:
        """For the types there are, now: what Numba refuses is found before anything runs."""
        from numba.core.errors import NumbaError

        buckets = CompiledBuckets(self, 0, 1)
        empty = np.empty(0, np.int64)
        wide = np.zeros((len(self.columns), 0), np.int64)
        try:
            self.module.route_all(0, empty, wide, wide.view(np.float64), self.node.buckets, empty)
            buckets.take(empty, empty, 0, empty, empty, wide)
        except NumbaError as error:
            said = " ".join(str(error).split())
            raise NotCompiled(f"Numba does not compile it: {said[:200]}") from error

    def buckets(self, share: int, shares: int) -> CompiledBuckets:
        return CompiledBuckets(self, share, shares)

    def describe(self) -> list[str]:
        read = ", ".join(name for name, _ in self.columns) or "no column"
        return [f"the operator's functions are compiled: they read {read}; states are {self.state.dtype} arrays"]


class CompiledBuckets:
    """As `buckets.PlainBuckets`, of one share."""

    compiled = True

    def __init__(self, made: Made, share: int, shares: int) -> None:
        from numba import types
        from numba.typed import List

        self.made, self.node, self.first, self.step = made, made.node, share, shares
        states = [made.node.first_state(b) for b in range(share, made.node.buckets, shares)] or [made.state]
        if any(s.shape != made.state.shape or s.dtype != made.state.dtype for s in states):
            raise NotCompiled("state() gives arrays of different shapes")
        self.states = np.array(states)
        self.timers = List.empty_list(types.UniTuple(types.int64, 2))  # type: ignore[no-untyped-call]  # Numba's own
        self.ran = np.full(2, -1, np.int64)
        self.width, self.calls, self.between = made.width, 0, nothing
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def take(self, ts: np.ndarray, inputs: np.ndarray, first_rank: int, which: np.ndarray, buckets: np.ndarray,
             numbers: np.ndarray) -> None:  # fmt: skip
        numbers = np.ascontiguousarray(numbers)
        ts, inputs, done = np.ascontiguousarray(ts), np.ascontiguousarray(inputs), 0
        while (
            more := self._drive(ts, inputs, first_rank, which[done:], buckets[done:], numbers, None, TIMERS)
        ) is not None:
            done += more
            self.between()
        self.calls += len(which)

    def pass_time(self, ts: int, most: int | None = None) -> bool:
        """As `buckets.PlainBuckets.pass_time`."""
        check_passed(ts)
        empty, none = np.empty(0, np.int64), np.zeros((self.width, 0), np.int64)
        while len(self.timers) and self._drive(empty, empty, 0, empty, empty, none, ts, most or TIMERS) is not None:
            if most is not None:
                return False
            self.between()
        return True

    def _drive(self, ts: np.ndarray, inputs: np.ndarray, rank: int, which: np.ndarray, buckets: np.ndarray, numbers: np.ndarray,
               until: int | None, most: int) -> int | None:  # fmt: skip
        """None if all is done; else, after `most` timers, how many of the tuples have been taken."""
        told = np.zeros(3, np.int64)
        kinds = [kind for _, kind in self.made.outputs]
        floats = max(kinds.count("float"), 1)
        found = self.made.module.drive(
            self.states, self.first, self.step, self.timers, self.ran, ts, inputs, rank, which, buckets, numbers,
            numbers.view(np.float64), until is not None, 0 if until is None else until, self.node.on_timer is not None,
            max(len(kinds) - kinds.count("float"), 1), floats, most, told,
        )  # fmt: skip
        if told[0] == FAILED_TIMER:
            check_timer(self.node, int(told[1]), int(told[2]))
        if found[0].shape[1]:
            self._parts.append(found)
        return int(told[1]) if told[0] == MORE else None

    def next_timer(self) -> int | None:
        return int(self.timers[0][0]) if len(self.timers) else None

    def last_timer(self) -> int | None:
        return max((at for at, _ in self.timers), default=None)

    def taken_out(self) -> tuple[Any, list[pa.Array]]:
        parts, self._parts = self._parts, []
        if not parts:
            return _Out(np.zeros((5, 0), np.int64)), []
        places, ints, floats = (np.concatenate([p[k] for p in parts], axis=1) for k in range(3))
        columns, at = [], {"int": 0, "float": 0}
        for (_, kind), field in zip(self.made.outputs, self.node.output, strict=True):
            own = "float" if kind == "float" else "int"
            data = (floats if own == "float" else ints)[at[own]]
            at[own] += 1
            columns.append(_column(data, field))
        return _Out(places), columns

    def plain(self) -> PlainBuckets:
        """The same states and timers, for plain Python to go on with."""
        made = PlainBuckets(self.node)
        for k, bucket in enumerate(range(self.first, self.node.buckets, self.step)):
            made._states[bucket] = self.states[k]
        made._timers = sorted((int(at), int(bucket)) for at, bucket in self.timers)
        made._ran = (int(self.ran[0]), int(self.ran[1]))
        made.between = self.between
        return made


class _Out:
    """As `buckets.Outputs`, in arrays."""

    def __init__(self, places: np.ndarray) -> None:
        self.ts, self.rank, self.bucket, self.index, self.cause = places


def _column(data: np.ndarray, field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_boolean(kind):
        return pa.array(data != 0)
    if pa.types.is_float32(kind):
        with np.errstate(over="ignore"):
            made = data.astype(np.float32)
        _check_all(np.isfinite(data) == np.isfinite(made), data, field)
        return pa.array(made)
    if pa.types.is_temporal(kind):
        return pa.array(data).view(kind) if kind.bit_width == 64 else pa.array(data.astype(np.int32)).view(kind)
    if pa.types.is_integer(kind):
        ends = np.iinfo(kind.to_pandas_dtype())
        _check_all((data >= ends.min) & (data <= min(ends.max, 2**63 - 1)), data, field)
    return pa.array(data).cast(kind)


def _check_all(fit: np.ndarray, data: np.ndarray, field: pa.Field) -> None:
    """As `pane_lists.checked` does for plain Python."""
    if not fit.all():
        value = data[int(np.argmin(fit))].item()
        why = "it lies beyond the ends of that type, and nothing is converted silently"
        raise DataError(f"The operator's output {field.name!r} is {value!r}, which is no {field.type}", why=why)


def _output_kind(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return "float"
    if (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)) or pa.types.is_timestamp(kind):
        return "int"
    raise NotCompiled(f"output {field.name!r} is {kind}, no number")


def _number_kind(kind: pa.DataType) -> str | None:
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return "float"
    whole = pa.types.is_integer(kind) and not pa.types.is_uint64(kind)
    return "int" if whole or (pa.types.is_timestamp(kind) and kind.unit != "ns") else None


_TEXT = '''"""Made by plait from a user's operator, with compiled_values {stamp}."""

import heapq
from collections import namedtuple

import numpy as np
from numba import int64, njit

from plait.kept import keep
from plait.operators.compiled_values import bucket_number, real, truth, whole

{uses}
STREAMS = {streams!r}
Row = namedtuple("Row", {fields!r})
{functions}

@keep
@njit(nogil=True, error_model="python")
def route_all(side, ts, ci, cf, buckets, codes):
    for i in range(len(ts)):
        code = route(Row(ts[i], STREAMS[side], {reads}))
        if code < {none} or code >= buckets or (code < 0 and code != {every} and code != {none}):
            return i
        codes[i] = code
    return -1


@njit(nogil=True)
def grown(a):
    made = np.empty((a.shape[0], 2 * a.shape[1]), np.int64)
    made[:, : a.shape[1]] = a
    return made


@njit(nogil=True)
def grown_f(a):
    made = np.empty((a.shape[0], 2 * a.shape[1]), np.float64)
    made[:, : a.shape[1]] = a
    return made


@keep
@njit(nogil=True, error_model="python")
def drive(states, first, step, timers, ran, ts, inputs, first_rank, which, buckets, ci, cf, passing, until, timed,
          ints, floats, most, told):
    """Tuples to their buckets, each after the timers that are due; or, `passing`, the timers up to `until`.

    After `most` timers it comes back, and tells how many tuples have been taken."""
    places = np.empty((5, 256), np.int64)
    out_i, out_f = np.empty((ints, 256), np.int64), np.empty((floats, 256), np.float64)
    count, k = 0, 0
    while True:
        if k < len(which):
            limit = ts[which[k]]
        elif passing:
            limit = until
        else:
            return places[:, :count], out_i[:, :count], out_f[:, :count]
        if len(timers) > 0 and timers[0][0] <= limit:
            if most == 0:
                told[0], told[1] = {more}, k
                return places[:, :count], out_i[:, :count], out_f[:, :count]
            most -= 1
            at, bucket = heapq.heappop(timers)
            if ran[0] == at and ran[1] == bucket:
                continue
            ran[0], ran[1] = at, bucket
            now, rank, cause, index, earliest = at - 1, 9223372036854775807, -1, 0, at + 1
{on_timer}
            continue
        if k == len(which):
            return places[:, :count], out_i[:, :count], out_f[:, :count]
        i, bucket = which[k], buckets[k]
        k += 1
        now, rank, cause, index, earliest = ts[i], first_rank + i, i, 0, ts[i] + 1
{process}
'''
