"""What compiled conditions know besides numbers: text that compares by equality, `row["column"]`, None as a verdict.

Imported by generated modules; importing it teaches Numba these types. Text is the code its interner gave it
(`columns`), so `==` and `!=` with other text and with constants are all there is; anything else Numba refuses, when
the query is built.
"""

from __future__ import annotations

import operator
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from plait.core.condition.columns import constant_code


class TextType(types.Type):
    def __init__(self) -> None:
        super().__init__(name="plait.text")


text = TextType()


@register_model(TextType)
class TextModel(models.StructModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, [("code", types.int64)])  # type: ignore[no-untyped-call]  # Numba's own


@intrinsic
def as_text(typingctx: Any, code: Any) -> Any:
    def wrap(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = cgutils.create_struct_proxy(text)(context, builder)  # type: ignore[no-untyped-call]  # Numba's own
        made.code = args[0]
        return made._getvalue()

    return text(types.int64), wrap


@intrinsic
def code_of(typingctx: Any, value: Any) -> Any:
    def unwrap(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = cgutils.create_struct_proxy(text)(context, builder, value=args[0])  # type: ignore[no-untyped-call]  # Numba's own
        return made.code

    return types.int64(text), unwrap


def _compare(sign: Any) -> None:
    @overload(sign)
    def compared(a: Any, b: Any) -> Any:
        # The implementations' parameters must be spelled, annotations included, as those of `compared`.
        if isinstance(a, TextType) and isinstance(b, TextType):

            def columns(a: Any, b: Any) -> Any:
                return sign(code_of(a), code_of(b))  # type: ignore[call-arg]  # an intrinsic: Numba gives the context

            return columns
        if isinstance(a, TextType) and isinstance(b, types.StringLiteral):
            right = constant_code(b.literal_value)

            def with_constant(a: Any, b: Any) -> Any:
                return sign(code_of(a), right)  # type: ignore[call-arg]  # an intrinsic: Numba gives the context

            return with_constant
        if isinstance(b, TextType) and isinstance(a, types.StringLiteral):
            left = constant_code(a.literal_value)

            def constant_with(a: Any, b: Any) -> Any:
                return sign(left, code_of(b))  # type: ignore[call-arg]  # an intrinsic: Numba gives the context

            return constant_with
        return None


_compare(operator.eq)
_compare(operator.ne)


def truth(value: Any) -> bool:
    """`bool(value)`, for functions that end without a return on some path: None is false."""
    return bool(value)


@overload(truth)
def _truth(value: Any) -> Any:
    def of_none(value: Any) -> Any:
        return False

    def of_optional(value: Any) -> Any:
        return value is not None and bool(value)

    def of_any(value: Any) -> Any:
        return bool(value)

    if isinstance(value, types.NoneType):
        return of_none
    return of_optional if isinstance(value, types.Optional) else of_any


@overload(operator.getitem)
def _column_by_name(row: Any, name: Any) -> Any:
    if not (isinstance(row, types.BaseNamedTuple) and isinstance(name, types.StringLiteral)):
        return None
    field = name.literal_value
    if field not in row.fields:  # type: ignore[attr-defined]  # Numba's types have no stubs
        return None

    def get(row: Any, name: Any) -> Any:
        return getattr(row, field)

    return get
