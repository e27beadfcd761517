"""A user's operator compiled by Numba, from the very functions that are given: contract, rewriting, and the loop around.

What compiles: `state()` gives a NumPy array of int64 or float64, always of one shape; `process` and `on_timer` are written with
`def`, read columns of numbers (and `t.ts`, `t.stream`), and yield tuples, dicts spelled out with every column, or
`plait.timer(...)`; outputs are numbers; `route` returns a bucket, `plait.ALL` or None. Anything else runs as it is, in
plain Python, and `explain` says why.

The rule: *a compiled call gives what Python would give, or it is undone and Python does it.* Every step of the functions is
checked (`machine_steps`, `rewrite`): where an integer would leave 64 bits, or something raises, the loop `drive` puts the
state back as it was before the call, forgets its rows and timers, and comes back; Python makes the call, on the same state,
and raises what is to be raised; then `drive` goes on.

`drive` hands tuples to buckets, keeps timers in a heap, and writes rows into columns; it runs without the GIL. States lie in
one array, a row a bucket, which plain Python can go on with: a NULL in a column that is read makes the run do so.

Example of a call that is undone: `state[0] = state[0] + t.x` with 2^63 - 1 in the state. `add_ints` raises `Beyond`, the
log of writes is played backwards, and Python calls the user's own `process` on the same row of `states`. There NumPy
wraps and warns, or raises, as it would have done without plait.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.condition import store
from plait.core.metrics import Counts
from plait.core.operator.buckets import EVERY, NONE, PlainBuckets, RowView, check_passed, nothing
from plait.core.operator.machine_steps import no_timers
from plait.core.operator.rewrite import NotCompiled, Typed, UserFunction, Writer
from plait.core.values import one_array
from plait.errors import DataError
from plait.query.bind import Bound, label
from plait.query.operator import Operator

#: What `drive` has told: Python is to call `process`, or `on_timer`; there is more to do.
BEYOND_TUPLE, BEYOND_TIMER, MORE = 1, 2, 3
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
TIMERS = 1 << 12  # so many run without a look at whether the run has been stopped


def made_for(bound: Bound, cache_dir: str | os.PathLike[str] | None) -> tuple[Made | None, str]:
    """The compiled operator; or None, and why."""
    assert isinstance(bound.node, Operator)
    try:
        return Made(bound, cache_dir), ""
    except NotCompiled as reason:
        return None, str(reason)


class Made:
    """One operator's compiled functions.

    `state` is an example of a state, for its type and shape. `columns` are what the functions read, each "int", "float"
    or "bool"; `outputs` the same of the output. `module` has `route_all` and `drive`. It has no state of its own: shares
    use one together.
    """

    def __init__(self, bound: Bound, cache_dir: str | os.PathLike[str] | None) -> None:
        assert isinstance(bound.node, Operator)
        self.node, self.bound = bound.node, bound
        self.names = [label(i, n) for n, i in enumerate(bound.inputs)]
        first = self._first_state(0)
        if type(first) is not np.ndarray or first.ndim == 0:
            raise NotCompiled(f"state() gives a {type(first).__name__}, not a NumPy array of numbers")
        if first.dtype not in (np.dtype(np.int64), np.dtype(np.float64)):
            raise NotCompiled(f"state() gives an array of {first.dtype}; those of int64 and float64 are compiled")
        self.state = first
        self.outputs = [(f.name, _output_kind(f)) for f in self.node.output]
        readers: list[tuple[str, Any]] = [("route", self.node.route), ("process", self.node.process)]
        functions = {name: UserFunction(name, function) for name, function in readers}
        if self.node.on_timer is not None:
            functions["on_timer"] = UserFunction("on_timer", self.node.on_timer)
        self.columns = self._columns({c for name in ("route", "process") for c in functions[name].reads})
        text = self._text(functions)
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
        """(name, int | float | bool) of what the functions read. Where an input lacks a column, `present` refuses it.

        `ts` and `stream` are no columns here. A column must be of one kind in all inputs that have it.
        """
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
        """What a source's arena on threads holds: 64 bits a column, floats by their bits."""
        return [(name, "int64") for name, _ in self.columns]

    @property
    def width(self) -> int:
        return len(self.columns)

    def unreadable(self, side: int, batch: pa.RecordBatch | pa.Table) -> str:
        """Why machine code can't read these rows: a NULL, or a moment beyond 64 bits of microseconds; "" if it can."""
        schema = self.bound.inputs[side].schema
        for name, _ in self.columns:
            if name not in schema.names:
                continue
            column = batch.column(name)
            if column.null_count:
                return f"column {name!r} has NULLs"
            if pa.types.is_timestamp(column.type) and len(column):
                stored = one_array(column).view(pa.int64()).to_numpy(zero_copy_only=False)
                most = (2**63 - 1) // _MICROS[column.type.unit]
                if stored.max() > most or stored.min() < -most:
                    return f"column {name!r} has moments beyond 64 bits of microseconds"
        return ""

    def arrays(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> list[np.ndarray]:
        """The columns that the functions read. One int64 array a column. Booleans are 0 and 1, moments microseconds;
        zeros where this input has no such column.
        """
        schema = self.bound.inputs[side].schema
        made = []
        for name, kind in self.columns:
            if name not in schema.names:
                made.append(np.zeros(len(ts), np.int64))
                continue
            values = one_array(batch.column(name))
            if pa.types.is_timestamp(values.type):
                made.append(values.view(pa.int64()).to_numpy(zero_copy_only=False) * _MICROS[values.type.unit])
            elif kind == "float":
                made.append(values.to_numpy(zero_copy_only=False).astype(np.float64).view(np.int64))
            else:
                made.append(values.to_numpy(zero_copy_only=False).astype(np.int64))
        return made

    def routes(self, side: int, numbers: list[np.ndarray], ts: np.ndarray) -> np.ndarray | None:
        """Where tuples go: int64 codes by tuple (`buckets.EVERY`, `NONE`, or a bucket); None where Python has to ask the
        user's `route`: it raised, or named no bucket.
        """
        codes = np.empty(len(ts), np.int64)
        wide = np.array(numbers, np.int64).reshape(len(numbers), len(ts))
        try:
            bad = self.module.route_all(
                side, np.ascontiguousarray(ts), wide, wide.view(np.float64), self.node.buckets, codes
            )
        except Exception:
            return None  # plain Python does it, or says what is wrong with it
        return None if int(bad) >= 0 else codes

    # --- text ---

    def _text(self, functions: dict[str, UserFunction]) -> str:
        """The module: the user's functions rewritten, then `_TEXT` with the names and types filled in. A call's row is a
        named tuple `Row` of (ts, stream, side, c0, c1, ...).
        """
        reads = "".join(
            {"int": ", ci[{k}, i]", "float": ", cf[{k}, i]", "bool": ", ci[{k}, i] != 0"}[kind].format(k=k)
            for k, (_, kind) in enumerate(self.columns)
        )
        kinds = [kind for _, kind in self.outputs]
        state = ("int" if self.state.dtype.kind == "i" else "float", self.state.ndim)
        texts = "".join(Writer(user, self._fields(user), state, self.outputs).function() for user in functions.values())
        places = {kind: iter(range(len(kinds))) for kind in ("int", "float")}
        stores = "".join(
            f"        out_{'f' if kind == 'float' else 'i'}[{next(places['float' if kind == 'float' else 'int'])}, count] = "
            f"{'' if kind == 'float' else 'int'}(item[{2 + k}])\n"
            for k, kind in enumerate(kinds)
        )
        made = calls("process", "plait_process(state, row, log)", stores, functions["process"].yields)
        on_timer = "pass"
        if "on_timer" in functions:
            made += calls("on_timer", "plait_on_timer(state, row, log)", stores, functions["on_timer"].yields)
            on_timer = """places, out_i, out_f, count = call_on_timer(
                    state, at, log, waiting, places, out_i, out_f, count,
                    at - 1, 9223372036854775807, bucket, -1, at + 1, timed)"""
        fields = ["ts", "stream", "side", *(f"c{k}" for k in range(len(self.columns)))]
        return _TEXT.format(streams=tuple(self.names), fields=fields, reads=reads, functions=texts,
                            calls=made, on_timer=on_timer, place=_place(self.state.ndim), number=state[0],
                            every=EVERY, none=NONE, more=MORE, beyond_tuple=BEYOND_TUPLE, beyond_timer=BEYOND_TIMER)  # fmt: skip

    def _fields(self, user: UserFunction) -> dict[str, Typed]:
        """How a function's text reads each column of its tuple."""
        row = user.row
        found = {"ts": Typed(f"{row}.ts", "int"), "stream": Typed(f"{row}.stream", "text")}
        for k, (name, kind) in enumerate(self.columns):
            inputs = sum(1 << n for n, bound in enumerate(self.bound.inputs) if name in bound.schema.names)
            everywhere = inputs == (1 << len(self.bound.inputs)) - 1
            text = f"{row}.c{k}" if everywhere else f"plait_present({row}.c{k}, {row}.side, {inputs})"
            found[name] = Typed(text, kind)
        return found

    def _compile(self) -> None:
        """For the types there are, now: what Numba refuses is found before anything runs."""
        from numba.core.errors import NumbaError

        buckets = CompiledBuckets(self, 0, 1)
        empty = np.empty(0, np.int64)
        wide = np.zeros((len(self.columns), 0), np.int64)
        try:
            self.module.route_all(0, empty, wide, wide.view(np.float64), self.node.buckets, empty)
            buckets.take(empty, empty, 0, empty, empty, wide, _no_rows)
        except NumbaError as error:
            said = " ".join(str(error).split())
            raise NotCompiled(f"Numba does not compile it: {said[:200]}") from error

    def buckets(self, share: int, shares: int, between: Callable[[], None] = nothing) -> CompiledBuckets:
        return CompiledBuckets(self, share, shares, between)

    def describe(self) -> list[str]:
        read = ", ".join(name for name, _ in self.columns) or "no column"
        return [f"the operator's functions are compiled: they read {read}; states are {self.state.dtype} arrays"]


class CompiledBuckets:
    """As `buckets.PlainBuckets`, of one share.

    `states` has a row for each bucket of the share: bucket b is row (b - first) // step. `timers` is the heap of
    `machine_steps`, `ran` the last timer that ran (at, bucket). `_parts` are outputs so far, in order. `redone` counts
    the calls that Python made.
    """

    compiled = True

    def __init__(self, made: Made, share: int, shares: int, between: Callable[[], None] = nothing) -> None:
        self.made, self.node, self.first, self.step = made, made.node, share, shares
        states = [made.node.first_state(b) for b in range(share, made.node.buckets, shares)] or [made.state]
        if any(s.shape != made.state.shape or s.dtype != made.state.dtype for s in states):
            raise NotCompiled("state() gives arrays of different shapes")
        self.states = np.array(states)
        self.timers = no_timers()
        self.ran = np.full(2, -1, np.int64)
        self.width, self.counts, self._between = made.width, Counts(), between
        self._parts: list[Any] = []  # of `drive`: three arrays; of Python: places and columns
        self._python = PlainBuckets(made.node)  # makes the calls that machine code can't
        self._set: list[tuple[int, int]] = []  # timers that Python has set
        self.redone = 0

    @property
    def calling(self) -> tuple[str, int, int]:
        """As `buckets.PlainBuckets.calling`: whatever raises, raises there."""
        return self._python.calling

    def take(self, ts: np.ndarray, inputs: np.ndarray, first_rank: int, which: np.ndarray, buckets: np.ndarray,
             numbers: np.ndarray, view: Callable[[int], RowView]) -> None:  # fmt: skip
        """`view` gives a tuple by its place in the batch, to Python.

        As `PlainBuckets.take`; besides, `inputs` is the input of each tuple (int64) and `numbers` its columns, int64 of
        shape (columns, tuples). `drive` comes back for a call that Python must make, or after TIMERS timers, and is
        called again from there.
        """
        numbers = np.ascontiguousarray(numbers)
        ts, inputs, done = np.ascontiguousarray(ts), np.ascontiguousarray(inputs), 0
        while (
            more := self._drive(ts, inputs, first_rank, which[done:], buckets[done:], numbers, None, TIMERS)
        ) is not None:
            code, taken = more
            done += taken
            if code == BEYOND_TUPLE:
                one = slice(done, done + 1)
                self._call(int(buckets[done]), partial(_taken, ts, first_rank, which[one], buckets[one], view))
                done += 1
            self._between()
        self.counts.calls += len(which)

    def pass_time(self, ts: int, most: int | None = None) -> bool:
        """As `buckets.PlainBuckets.pass_time`."""
        check_passed(ts)
        empty, none = np.empty(0, np.int64), np.zeros((self.width, 0), np.int64)
        while self.timers[0, 0] > 0 or self._set:
            more = self._drive(empty, empty, 0, empty, empty, none, ts, most or TIMERS)
            if more is None:
                break
            if most is not None and more[0] == MORE:
                return False
            self._between()
        return True

    def _drive(self, ts: np.ndarray, inputs: np.ndarray, rank: int, which: np.ndarray, buckets: np.ndarray, numbers: np.ndarray,
               until: int | None, most: int) -> tuple[int, int] | None:  # fmt: skip
        """None if all is done; else why it came back, and how many of the tuples have been taken.

        `until`: pass time up to it after the tuples; None: don't. Arrays that come back are new, and become one of
        `_parts`.
        """
        told = np.zeros(4, np.int64)
        kinds = [kind for _, kind in self.made.outputs]
        floats = max(kinds.count("float"), 1)
        given, self._set = np.array(self._set, np.int64).reshape(-1, 2), []
        *found, self.timers = self.made.module.drive(
            self.states, self.first, self.step, self.timers, given, self.ran, ts, inputs, rank, which, buckets, numbers,
            numbers.view(np.float64), until is not None, 0 if until is None else until, self.node.on_timer is not None,
            max(len(kinds) - kinds.count("float"), 1), floats, most, told,
        )  # fmt: skip
        if found[0].shape[1]:
            self._parts.append(found)
        if told[0] == BEYOND_TIMER:
            self._run_timer(int(told[2]), int(told[3]))
        return (int(told[0]), int(told[1])) if told[0] else None

    def _run_timer(self, at: int, bucket: int) -> None:
        def run(python: PlainBuckets) -> None:
            python.restore(bucket, self._state(bucket), [at])
            python.pass_time(at, 1)

        self._call(bucket, run)

    def _state(self, bucket: int) -> np.ndarray:
        """The row itself: what Python writes into it, machine code sees."""
        found: np.ndarray = self.states[(bucket - self.first) // self.step]
        return found

    def _call(self, bucket: int, run: Callable[[PlainBuckets], None]) -> None:
        """One call by Python, which machine code has undone.

        `run` is given Python's buckets, with this bucket's state in place. Timers that it sets are handed to `drive` at
        its next call.
        """
        python = self._python
        python.restore(bucket, self._state(bucket), [])
        run(python)
        self._set += python.taken_timers()
        self.redone += 1
        out, columns = python.taken_out()
        if out.ts:
            places = np.array([out.ts, out.rank, out.bucket, out.index, out.cause], np.int64)
            self._parts.append((places, columns))

    def next_timer(self) -> int | None:
        return min((at for at, _ in (*self._pending(1), *self._set)), default=None)

    def last_timer(self) -> int | None:
        return max((at for at, _ in (*self._pending(), *self._set)), default=None)

    def _pending(self, most: int | None = None) -> list[tuple[int, int]]:
        """Timers that machine code has set, the first of them first."""
        count = int(self.timers[0, 0])
        return [(at, bucket) for at, bucket in self.timers[1 : 1 + min(count, most or count)].tolist()]

    def taken_out(self) -> tuple[Any, list[pa.Array]]:
        """What came out since the last call, and its columns. Parts that machine code made are joined before they become
        Arrow columns: Python's calls, which are few, cut them apart.
        """
        parts, self._parts = self._parts, []
        if not parts:
            return _Out(np.zeros((5, 0), np.int64)), []
        made: list[tuple[np.ndarray, list[pa.Array]]] = []
        for python, group in itertools.groupby(parts, key=lambda part: len(part) == 2):
            found = list(group)
            made += found if python else [self._columns_of(found)]
        places = np.concatenate([places for places, _ in made], axis=1)
        columns = zip(*(columns for _, columns in made), strict=True)
        return _Out(places), [each[0] if len(each) == 1 else pa.concat_arrays(each) for each in columns]

    def _columns_of(self, parts: list[Any]) -> tuple[np.ndarray, list[pa.Array]]:
        places, ints, floats = (np.concatenate([p[k] for p in parts], axis=1) for k in range(3))
        columns, at = [], {"int": 0, "float": 0}
        for (_, kind), field in zip(self.made.outputs, self.node.output, strict=True):
            own = "float" if kind == "float" else "int"
            data = (floats if own == "float" else ints)[at[own]]
            at[own] += 1
            columns.append(_column(data, field))
        return places, columns

    def plain(self) -> PlainBuckets:
        """The same states and timers, for plain Python to go on with.

        States are not copied: Python's buckets write to the same rows.
        """
        made = PlainBuckets(self.node, self._between)
        for k, bucket in enumerate(range(self.first, self.node.buckets, self.step)):
            made._states[bucket] = self.states[k]
        made._timers = sorted([*self._pending(), *self._set])
        made._ran = (int(self.ran[0]), int(self.ran[1]))
        made.counts = self.counts
        return made


class _Out:
    """As `buckets.Outputs`, in arrays."""

    def __init__(self, places: np.ndarray) -> None:
        self.ts, self.rank, self.bucket, self.index, self.cause = places


def _column(data: np.ndarray, field: pa.Field) -> pa.Array:
    """Numbers of `drive` as a column of the declared type. What does not fit is refused, as for plain Python."""
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
    """As `lists.checked` does for plain Python."""
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


def _place(dimensions: int) -> str:
    """The type of a place in the state, as the text has it."""
    return "plait_int64" if dimensions == 1 else f"plait_types.UniTuple(plait_int64, {dimensions})"


def _taken(ts: np.ndarray, rank: int, which: np.ndarray, buckets: np.ndarray, view: Callable[[int], RowView],
           python: PlainBuckets) -> None:  # fmt: skip
    python.take(ts, rank, which, buckets, view)


def _no_rows(i: int) -> RowView:
    raise AssertionError(f"row {i} of none")


def calls(role: str, call: str, stores: str, yields: bool) -> str:
    """The text that makes one call, and goes through what it yields. Numba loses what a generator raises where the loop itself
    stands under `try`, so this is a function of its own."""
    items = f"""
    index = 0
    for item in {call}:
        if item[0] == 1:
            if item[1] < earliest or not timed:
                raise Beyond
            waiting.append(item[1])
            continue
        if count == places.shape[1]:
            places, out_i, out_f = grown(places), grown(out_i), grown_f(out_f)
        places[0, count], places[1, count], places[2, count] = now, rank, bucket
        places[3, count], places[4, count] = index, cause
{stores}        count += 1
        index += 1
"""
    return f"""

@njit(nogil=True, error_model="python")
def call_{role}(state, row, log, waiting, places, out_i, out_f, count, now, rank, bucket, cause, earliest, timed):
{items if yields else f"    {call}"}
    return places, out_i, out_f, count
"""


_TEXT = '''"""Made by plait from a user's operator."""

from collections import namedtuple
from math import inf as plait_inf, isfinite as plait_isfinite, isinf as plait_isinf, isnan as plait_isnan, nan as plait_nan

import numpy as np
from numba import float64 as plait_float64, int64 as plait_int64, types as plait_types
from numba.typed import List as plait_List

from plait.core.machine.kept import keep
from plait.core.operator.machine_steps import (
    Beyond, abs_int as plait_abs_int, add_ints as plait_add_ints, bucket_number as plait_bucket_number, ceil as plait_ceil,
    div_floats as plait_div_floats, div_ints as plait_div_ints, floor as plait_floor, floordiv_ints as plait_floordiv_ints,
    greatest as plait_greatest, in_float as plait_in_float, in_range as plait_in_range, in_step as plait_in_step,
    int_of as plait_int_of, least as plait_least, lshift_ints as plait_lshift_ints, mod_ints as plait_mod_ints,
    mul_ints as plait_mul_ints, neg_int as plait_neg_int, pow_ints as plait_pow_ints, present as plait_present,
    put as plait_put, rshift_ints as plait_rshift_ints, sqrt as plait_sqrt, sub_ints as plait_sub_ints, take_timer, with_timer,
)
from plait.core.machine.shield import njit

plait_abs, plait_bool, plait_len, plait_range = abs, bool, len, range
STREAMS = {streams!r}
CHANGE = plait_types.Tuple(({place}, plait_{number}64))
Row = namedtuple("Row", {fields!r})
{functions}

@keep
@njit(nogil=True, error_model="python")
def route_all(side, ts, ci, cf, buckets, codes):
    for i in range(len(ts)):
        code = plait_route(Row(ts[i], STREAMS[side], side{reads}))
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
{calls}

@njit(nogil=True)
def undo(state, log, waiting):
    """The state as it was before the call."""
    for j in range(len(log) - 1, -1, -1):
        at, value = log[j]
        state[at] = value
    log.clear()
    waiting.clear()


@njit(nogil=True)
def done(timers, bucket, log, waiting):
    for at in waiting:
        timers = with_timer(timers, at, bucket)
    if len(log):
        log.clear()
    if len(waiting):
        waiting.clear()
    return timers


@keep
@njit(nogil=True, error_model="python")
def drive(states, first, step, timers, given, ran, ts, inputs, first_rank, which, buckets, ci, cf, passing, until, timed,
          ints, floats, most, told):
    """Tuples to their buckets, each after the timers that are due; or, `passing`, the timers up to `until`.

    After `most` timers, and where Python is to make a call, it comes back, and tells how many tuples have been taken.
    Lists live and die in here: where one crosses to Python, Numba asks Python for its contents, and a signal that strikes just
    there comes out as another error, or not at all."""
    log, waiting = plait_List.empty_list(CHANGE), plait_List.empty_list(plait_int64)
    places = np.empty((5, 256), np.int64)
    out_i, out_f = np.empty((ints, 256), np.int64), np.empty((floats, 256), np.float64)
    count, k = 0, 0
    for j in range(len(given)):
        timers = with_timer(timers, given[j, 0], given[j, 1])
    while True:
        if k < len(which):
            limit = ts[which[k]]
        elif passing:
            limit = until
        else:
            return places[:, :count], out_i[:, :count], out_f[:, :count], timers
        if timers[0, 0] > 0 and timers[1, 0] <= limit:
            if most == 0:
                told[0], told[1] = {more}, k
                return places[:, :count], out_i[:, :count], out_f[:, :count], timers
            most -= 1
            at, bucket = take_timer(timers)
            if ran[0] == at and ran[1] == bucket:
                continue
            ran[0], ran[1] = at, bucket
            before, state = count, states[(bucket - first) // step]
            ok = True
            try:
                if at == 9223372036854775807:
                    raise Beyond
                {on_timer}
            except Exception:
                ok = False
            if not ok:
                undo(state, log, waiting)
                told[0], told[1], told[2], told[3] = {beyond_timer}, k, at, bucket
                return places[:, :before], out_i[:, :before], out_f[:, :before], timers
            timers = done(timers, bucket, log, waiting)
            continue
        if k == len(which):
            return places[:, :count], out_i[:, :count], out_f[:, :count], timers
        i, bucket = which[k], buckets[k]
        before, state = count, states[(bucket - first) // step]
        ok = True
        try:
            row = Row(ts[i], STREAMS[inputs[i]], inputs[i]{reads})
            places, out_i, out_f, count = call_process(
                state, row, log, waiting, places, out_i, out_f, count, ts[i], first_rank + i, bucket, i, ts[i] + 1, timed)
        except Exception:
            ok = False
        if not ok:
            undo(state, log, waiting)
            told[0], told[1] = {beyond_tuple}, k
            return places[:, :before], out_i[:, :before], out_f[:, :before], timers
        timers = done(timers, bucket, log, waiting)
        k += 1
'''
