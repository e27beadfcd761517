"""Sixteen bytes at once, wherever they lie: Numba has no word for it, and a loop over bytes costs three times as much."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

SIXTEEN = 16
_BYTES = ir.VectorType(ir.IntType(8), SIXTEEN).as_pointer()


@intrinsic
def copy_sixteen(typing_context: Any, data: Any, at: Any, out: Any, to: Any) -> Any:
    """out[to : to + 16] = data[at : at + 16], of arrays of bytes; no bounds are checked, and neither has to be aligned."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def pointer(k: int) -> Any:
            array = context.make_array(signature.args[k])(context, builder, args[k])
            index = context.cast(builder, args[k + 1], signature.args[k + 1], types.intp)
            found = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]  # Numba's own
                context, builder, signature.args[k], array, [index], wraparound=False, boundscheck=False
            )
            return builder.bitcast(found, _BYTES)

        loaded = builder.load(pointer(0))
        loaded.align = 1
        builder.store(loaded, pointer(2)).align = 1
        return context.get_dummy_value()

    return types.void(data, at, out, to), emit
