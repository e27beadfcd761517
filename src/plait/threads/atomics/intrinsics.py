"""Atomic steps on one word of an int64 array, as Numba intrinsics: with `core.machine.wide` the only machine-level code of plait.

Each compiles to the instruction one expects, runs without the GIL and can be cached. Orders are those of C11:

    load_acquire    what the writer of the value did before its release store is visible afterwards
    store_release   everything done before is visible to whoever acquires the value
    cas             acquire and release if it succeeds, acquire if it fails; true iff the word was changed
    fetch_add       acquire and release; gives the word as it was
    fence           sequentially consistent: no later load overtakes an earlier store (Dekker's pattern)
    pause           tells the core that this is a spin loop; no order
    trailing_zeros  not atomic at all; here because Numba has no word for it

Indices are not checked and do not wrap round. The array must be contiguous and 8-byte aligned, as NumPy's own are.
A plain `a[i]` beside these is allowed only where another word's release and acquire orders it: LLVM assumes that
no other thread touches a plain word, and turns `while a[0] == 0` into an endless loop.

Each step is a few lines of LLVM, put where it is called: there is no call, and nothing to load.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_WORD = ir.IntType(64)


def _address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The pointer to array[index], unchecked: what `a[i]` compiles to, less the wrap-around and the bounds check."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    index = context.cast(builder, args[1], signature.args[1], types.intp)
    return cgutils.get_item_pointer(
        context, builder, signature.args[0], array, [index], wraparound=False, boundscheck=False
    )


def _word(context: Any, builder: Any, signature: Any, args: Any, at: int) -> Any:
    """The argument number `at` as an int64, whatever integer type Numba has given it: a literal 0 is an int64 here too."""
    return context.cast(builder, args[at], signature.args[at], types.int64)


@intrinsic
def load_acquire(typing_context: Any, array: Any, index: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, signature, args), "acquire", 8, typ=_WORD)

    return types.int64(array, index), emit


@intrinsic
def store_release(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = _word(context, builder, signature, args, 2)
        builder.store_atomic(word, _address(context, builder, signature, args), "release", 8)
        return context.get_dummy_value()

    return types.void(array, index, value), emit


@intrinsic
def cas(typing_context: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        old = _word(context, builder, signature, args, 2)
        new = _word(context, builder, signature, args, 3)
        pointer = _address(context, builder, signature, args)
        pair = builder.cmpxchg(pointer, old, new, ordering="acq_rel", failordering="acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(array, index, expected, value), emit


@intrinsic
def fetch_add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = _word(context, builder, signature, args, 2)
        return builder.atomic_rmw("add", _address(context, builder, signature, args), word, "acq_rel")

    return types.int64(array, index, value), emit


@intrinsic
def fence(typing_context: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def pause(typing_context: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Inline assembly aborts the process under Numba; these intrinsics do not.
        machine = platform.machine().lower()
        if machine in ("x86_64", "amd64"):
            kind, name, operands = ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause", []
        elif machine in ("arm64", "aarch64"):
            kind, name = ir.FunctionType(ir.VoidType(), [ir.IntType(32)]), "llvm.aarch64.hint"
            operands = [ir.Constant(ir.IntType(32), 1)]
        else:
            return context.get_dummy_value()
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def trailing_zeros(typing_context: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = _word(context, builder, signature, args, 0)
        return builder.cttz(word, ir.Constant(ir.IntType(1), 0))

    return types.int64(value), emit


@intrinsic
def address_of(typing_context: Any, array: Any, index: Any) -> Any:
    """The address of one word, for the system calls in `sleep`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(_address(context, builder, signature, args), _WORD)

    return types.int64(array, index), emit


@intrinsic
def pointer_at(typing_context: Any, address: Any) -> Any:
    """An address as a pointer, for `numba.carray`: memory that Python allocated and keeps alive."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), emit


@intrinsic
def call_at(typing_context: Any, function: Any, argument: Any) -> Any:
    """Call the C function `int64 f(int64)` at an address.

    An indirect call costs nanoseconds: nothing for a batch of tuples, far too much for each pair of them.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])

    return types.int64(types.int64, types.int64), emit
