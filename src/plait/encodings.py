"""How values are encoded says nothing about them: past the way in, a column has one encoding, and it is the plain one.

Arrow can hold the same values in many ways: under codes (dictionaries, in which a value may stand twice, and NULL beside the
codes that are NULL; every batch may have another one), as runs, as views. Whoever looked at codes, or met an encoding that one of
Arrow's functions does not know, gave another answer or none. So the rule: **a stream's columns are of plain types**
(`plain_type`), and so are results; data in another encoding is decoded as it comes in (`plain_array`). Nothing behind that has
to know of them.

What has no plain encoding is refused where its type is first seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from plait.errors import QueryError

_LISTS = {
    "list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_, "large_list_view": pa.large_list,
}  # fmt: skip


def plain_type(kind: pa.DataType, what: str = "A column") -> pa.DataType:
    """The type that holds the same values plainly; the very object if it does so itself.

    Args:
        kind: Any Arrow type.
        what: What begins the error.

    Raises:
        QueryError: It is a union, or a struct two of whose fields have one name.

    >>> plain_type(pa.dictionary(pa.int8(), pa.string())), plain_type(pa.list_(pa.string_view()))
    (DataType(string), ListType(list<item: large_string>))
    """
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type, what)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_union(kind):
        raise _refused(kind, what, "the values of a union have different types")
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type, what)
    if pa.types.is_nested(kind):
        made = _nested(kind, what)
        return kind if made == kind else made
    return kind


def _nested(kind: pa.DataType, what: str) -> pa.DataType:
    """The same of structs, maps and lists, inside out."""
    if pa.types.is_struct(kind):
        names = [kind.field(k).name for k in range(kind.num_fields)]
        if len(set(names)) < len(names):
            raise _refused(kind, what, "two of its fields have one name")
        return pa.struct([_plain_field(kind.field(k), what) for k in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field, what), _plain_field(kind.item_field, what), kind.keys_sorted)
    value = _plain_field(kind.value_field, what)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    for name, make in _LISTS.items():
        if getattr(pa.types, f"is_{name}")(kind):
            return make(value)
    raise _refused(kind, what, "its layout is not known")


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _plain_field(field: pa.Field, what: str) -> pa.Field:
    return field.with_type(plain_type(field.type, what))


def _refused(kind: pa.DataType, what: str, why: str) -> QueryError:
    return QueryError(f"{what} is {kind}", why=why, do="Cast it before it comes in, or leave it out with schema=")


def plain_schema(schema: pa.Schema, what: str = "A table") -> pa.Schema:
    """The schema with plain types; the very object if they all are."""
    made = [field.with_type(plain_type(field.type, f"{what}: column {field.name!r}")) for field in schema]
    same = all(a.type == b.type for a, b in zip(made, schema, strict=True))
    return schema if same else pa.schema(made, schema.metadata)


def plain_array(array: pa.Array) -> pa.Array:
    """The same values in their plain type.

    >>> plain_array(pa.array(["a", "b", "a"]).dictionary_encode()).to_pylist()
    ['a', 'b', 'a']
    """
    kind = array.type
    wanted = plain_type(kind)
    if wanted is kind:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return plain_array(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_array(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        ends = array.run_ends.to_numpy(zero_copy_only=False)
        places = np.searchsorted(ends, array.offset + np.arange(len(array)), "right")
        return plain_array(array.values).take(pa.array(places, pa.int64()))
    if _is_list_view(kind):
        return _listed(array, wanted)
    if pa.types.is_nested(kind):
        return rebuilt(array, lambda child, _: plain_array(child))
    return array.cast(wanted)


def _listed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Views of lists, which may overlap and lie in any order, one after another. Arrow's cast makes broken arrays of some."""
    null = np.asarray(array.is_null())
    starts, sizes = (part.to_numpy(zero_copy_only=False).astype(np.int64) for part in (array.offsets, array.sizes))
    starts, sizes = starts[: len(array)], np.where(null, 0, sizes[: len(array)])
    ends = np.concatenate(([0], np.cumsum(sizes)))
    places = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], sizes)
    return _list(plain_array(array.values.take(pa.array(places, pa.int64()))), ends, wanted, pa.array(null))


def rebuilt(array: pa.Array, inner: Callable[[pa.Array, int], pa.Array]) -> pa.Array:
    """The same structs, lists or maps around other columns: `inner` makes each child's, given it and which it is.

    Not by Arrow's cast, which knows few of the layouts inside others, and breaks lists of type null.
    """
    kind, mask = array.type, array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        made = [inner(array.field(k), k) for k in range(kind.num_fields)]
        fields = [kind.field(k).with_type(child.type) for k, child in enumerate(made)]
        return pa.StructArray.from_arrays(made, fields=fields, mask=mask) if made else array
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        values = inner(array.values.slice(array.offset * size, len(array) * size), 0)
        wanted = pa.list_(kind.value_field.with_type(values.type), size)
        return pa.FixedSizeListArray.from_arrays(values, type=wanted, mask=mask) if size else array.cast(wanted)
    ends = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64) if len(array) else np.zeros(1, np.int64)
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    if pa.types.is_map(kind):
        keys, items = (inner(part.slice(first, size), k) for k, part in enumerate((array.keys, array.items)))
        fields = [kind.key_field.with_type(keys.type), kind.item_field.with_type(items.type)]
        wanted = pa.map_(*fields, kind.keys_sorted)
        return pa.MapArray.from_arrays(pa.array(ends - first, pa.int32()), keys, items, type=wanted, mask=mask)
    values = inner(array.values.slice(first, size), 0)
    make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
    return _list(values, ends - first, make(kind.value_field.with_type(values.type)), mask)


def _list(values: pa.Array, ends: np.ndarray, kind: pa.DataType, mask: pa.Array | None) -> pa.Array:
    """A list array of these values, cut at `ends`."""
    large = pa.types.is_large_list(kind)
    offsets = pa.array(ends, pa.int64() if large else pa.int32())
    return (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, values, type=kind, mask=mask)


def one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column without its chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def as_array(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """A column in one piece, as this type."""
    return recast(one_piece(column), kind)


def recast(array: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The column in that type: the very object if it has it, since Arrow's cast breaks lists of type null."""
    return array if array.type == kind else array.cast(kind)


def stored(array: pa.Array) -> pa.Array:
    """Moments, days and spans, at any depth, as the integers that Arrow stores: Python's own types can't hold all of them."""
    kind = array.type
    if pa.types.is_nested(kind):
        return rebuilt(array, lambda child, _: stored(child)) if _has_times(kind) else array
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return array.view(pa.int32())
    return array.view(pa.int64()) if _has_times(kind) else array


def _has_times(kind: pa.DataType) -> bool:
    """Whether there are moments, days or spans in the type, at any depth."""
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(k).type) for k in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in plain columns; the very object if they all are."""
    schema = plain_schema(batch.schema)
    if schema is batch.schema:
        return batch
    return pa.RecordBatch.from_arrays([plain_array(column) for column in batch.columns], schema=schema)
