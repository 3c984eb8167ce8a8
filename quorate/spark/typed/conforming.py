"""Turns arrays into arrays of a wider type of the same form, as Spark expects them."""

from typing import Any

import pyarrow as pa


def conformed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the array as one of ``type_``.

    Structs keep the fields that ``type_`` has, by name and in its order. Other types are cast
    where they differ.

    Raises:
        ValueError: a value does not fit the type.
    """
    if array.type.equals(type_):
        return array
    if pa.types.is_struct(type_):
        validity = array.is_null() if array.null_count else None
        children = [
            conformed(_field(array, type_.field(index).name), type_.field(index).type)
            for index in range(type_.num_fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=validity)
    if pa.types.is_list(type_):
        return _repeated(array, type_, conformed(array.values, type_.value_type))
    if pa.types.is_map(type_):
        key, item = conformed(array.keys, type_.key_type), conformed(array.items, type_.item_type)
        pairs = pa.StructArray.from_arrays([key, item], fields=[type_.key_field, type_.item_field])
        return _repeated(array, type_, pairs)
    return array.cast(type_)


def _field(array: pa.Array, name: str) -> pa.Array:
    return array.field(name)


def _repeated(array: pa.Array, type_: pa.DataType, items: pa.Array) -> pa.Array:
    """Return a list or a map with other items, which are as many."""
    buffers: list[Any] = array.buffers()[:2]
    return pa.Array.from_buffers(
        type_, len(array), buffers, array.null_count, array.offset, children=[items]
    )
