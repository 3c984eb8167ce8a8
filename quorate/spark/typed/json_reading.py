"""Reads lines of JSON objects into a column: by Arrow's reader, or record by record."""

import functools
import io
import json
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.json

from quorate.spark.typed.conforming import conformed

Reader = Callable[[pa.Buffer, int], pa.Array]
"""Reads a buffer of so many lines. It raises ValueError if one of them does not fit the type."""


@functools.lru_cache(maxsize=64)
def reader_of(type_: pa.DataType) -> Reader:
    """Return the reader for a type of structs."""
    if not type_.num_fields:
        return lambda body, lines: pa.array([{}] * lines, type_)
    if _has_map(type_):
        return functools.partial(_read_records, type_=type_)
    return functools.partial(_read_columns, type_=type_, read_as=_as_read(type_))


def _read_columns(
    body: pa.Buffer, lines: int, *, type_: pa.DataType, read_as: pa.DataType
) -> pa.Array:
    if not lines:
        return pa.array([], type_)
    table = pyarrow.json.read_json(
        pa.BufferReader(body),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=body.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(read_as)), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != lines:
        raise ValueError(f"{lines} values were read as {table.num_rows}")
    found = table.to_struct_array()
    whole = found.chunk(0) if found.num_chunks == 1 else pa.concat_arrays(found.chunks)
    whole.validate(full=True)
    return conformed(whole, type_)


def _read_records(body: pa.Buffer, lines: int, *, type_: pa.DataType) -> pa.Array:
    """Read record by record, for types that Arrow's reader does not have."""
    del lines
    text = io.BytesIO(body)
    try:
        rows = [_value(json.loads(line, parse_constant=_refuse), type_) for line in text]
        return pa.array(rows, type_)
    except (TypeError, OverflowError, RecursionError, pa.ArrowException) as error:
        raise ValueError(str(error)) from None


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _value(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - JSON
    """Return a value of JSON as `pyarrow.array` takes it."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        if not isinstance(value, dict):
            raise ValueError(f"{str(value)[:40]!r} is no object")
        return {part.name: _value(value.get(part.name), part.type) for part in type_}
    if pa.types.is_map(type_):
        if not isinstance(value, dict):
            raise ValueError(f"{str(value)[:40]!r} is no object")
        return [(key, _value(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_list(type_):
        if not isinstance(value, list):
            raise ValueError(f"{str(value)[:40]!r} is no array")
        return [_value(item, type_.value_type) for item in value]
    return _leaf(value, type_)


def _leaf(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - JSON
    texts = pa.types.is_string(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_)
    if texts or pa.types.is_binary(type_):
        if not isinstance(value, str):
            raise ValueError(f"{str(value)[:40]!r} is no string")
        if pa.types.is_string(type_):
            return value
        return pa.scalar(value).cast(type_).as_py()
    if isinstance(value, bool) != pa.types.is_boolean(type_):
        raise ValueError(f"{value!r} is not of type {type_}")
    if pa.types.is_decimal(type_):
        return pa.scalar(str(value)).cast(type_).as_py()
    if pa.types.is_floating(type_):
        number = float(value)
        if math.isinf(number):
            raise ValueError("a number is too big to be stored in double")
        return number
    if pa.types.is_integer(type_) and not isinstance(value, int):
        raise ValueError(f"{value!r} is not of type {type_}")
    return value


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return any(_has_map(type_.field(index).type) for index in range(type_.num_fields))


def _as_read(type_: pa.DataType) -> pa.DataType:
    """Return the type by which Arrow's reader reads: dates are texts, as it reads only numbers."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(part.name, _as_read(part.type)) for part in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _as_read(type_.value_type)))
    return pa.string() if pa.types.is_date(type_) else type_
