"""Encodes columns of Spark in Avro: by pyruhvro, or row by row where it lacks a type.

pyruhvro encodes whole columns of plain types. So logical types are turned into the plain types that
stand for them first, and bytes into texts, which are written alike. Decimals, fixed types and
unions of several types are left: a schema with one of them is encoded row by row in Python.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quorate.spark.errors import RowError
from quorate.spark.typed.avro_schema import AvroType

_PLAIN_ARROW: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
}
_MILLIS: Final = 1000


def encodes_columns(avro: AvroType) -> bool:
    """Return True if pyruhvro encodes values of the type."""
    if avro.kind == "union":
        others = [branch for branch in avro.branches if branch.kind != "null"]
        return len(avro.branches) == 2 and len(others) == 1 and encodes_columns(others[0])
    if avro.kind in ("fixed", "null") or avro.logical == "decimal":
        return False
    parts = [part.type for part in avro.fields] if avro.items is None else [avro.items]
    return all(map(encodes_columns, parts))


class PlainSchema:
    """The schema of plain types that pyruhvro encodes by, which writes the same bytes."""

    def __init__(self) -> None:
        self._names = 0

    def of(self, avro: AvroType) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of a type."""
        if avro.kind == "union":
            return [self.of(branch) for branch in avro.branches]
        if avro.kind == "array":
            return {"type": "array", "items": self.of(_items(avro))}
        if avro.kind == "map":
            return {"type": "map", "values": self.of(_items(avro))}
        if avro.kind not in ("record", "enum"):
            return "string" if avro.kind == "bytes" else avro.kind
        # The same name may stand for two types once they are written out in full.
        self._names += 1
        name = f"T{self._names}"
        if avro.kind == "enum":
            return {"type": "enum", "name": name, "symbols": list(avro.symbols)}
        fields = [{"name": part.name, "type": self.of(part.type)} for part in avro.fields]
        return {"type": "record", "name": name, "fields": fields}


def plain_array(array: pa.Array, avro: AvroType, path: str) -> pa.Array:
    """Return a column as pyruhvro takes it.

    Args:
        array: values of the Arrow type that Spark has for ``avro``.
        avro: the type, for which `encodes_columns` is true.
        path: the name of the column, for messages.

    Raises:
        RowError: a value is null where the schema has no null.
    """
    inner = _without_null(avro)
    if inner is avro and array.null_count:
        raise RowError(f"{path} is null in a row, and the schema has no null there")
    if inner.kind == "record":
        parts = array.flatten()
        children = [
            _within(array, part, field.type, f"{path}.{field.name}")
            for part, field in zip(parts, inner.fields, strict=True)
        ]
        names = [field.name for field in inner.fields]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, names, mask=mask)
    if inner.kind == "array":
        items = plain_array(array.values, _items(inner), f"{path}[]")
        return pa.ListArray.from_arrays(_offsets(array), items)
    if inner.kind == "map":
        items = plain_array(array.items, _items(inner), f"{path}[]")
        return pa.MapArray.from_arrays(_offsets(array), array.keys, items)
    return _plain_leaf(array, inner)


def _within(record: pa.Array, part: pa.Array, avro: AvroType, path: str) -> pa.Array:
    """Return a field of a record. It may be null where the record itself is."""
    if not record.null_count or _without_null(avro) is not avro:
        return plain_array(part, avro, path)
    if part.filter(record.is_valid()).null_count:
        raise RowError(f"{path} is null in a row, and the schema has no null there")
    return plain_array(part, AvroType("union", branches=(AvroType("null"), avro)), path)


def _plain_leaf(array: pa.Array, avro: AvroType) -> pa.Array:
    if avro.kind == "bytes":
        return array.view(pa.string())
    if "timestamp" in avro.logical:
        microseconds = array.cast(pa.int64())
        if not avro.logical.endswith("millis"):
            return microseconds
        # Towards the past, as Spark does: a division of Arrow's rounds towards 0.
        down = pc.subtract(microseconds, pc.if_else(pc.less(microseconds, 0), _MILLIS - 1, 0))
        return pc.divide(down, _MILLIS)
    if avro.logical == "date":
        return array.cast(pa.int32())
    return array.cast(_PLAIN_ARROW[avro.kind])


def _offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of a list or map, null where it is null."""
    offsets = array.offsets
    if not array.null_count:
        return offsets
    mask = pa.concat_arrays([array.is_null(), pa.array([False])])
    return pc.if_else(mask, pa.scalar(None, offsets.type), offsets)


def encode_value(avro: AvroType, value: Any, path: str) -> bytes:  # noqa: ANN401 - any value
    """Encode one value, as `pyarrow.Array.to_pylist` gives it.

    Raises:
        RowError: the value does not fit the type; names the column.
    """
    try:
        return _encoded(avro, value, path)
    except (TypeError, ValueError, OverflowError, struct.error, AttributeError) as error:
        if isinstance(error, RowError):
            raise
        raise RowError(
            f"{path} cannot be written as {avro.logical or avro.kind}: {error}"
        ) from None


def _encoded(avro: AvroType, value: Any, path: str) -> bytes:  # noqa: ANN401 - any value
    if avro.kind == "union":
        return _encoded_branch(avro, value, path)
    if avro.kind == "null":
        return b""
    if value is None:
        raise RowError(f"{path} is null in a row, and the schema has no null there")
    if avro.kind == "record":
        return b"".join(
            encode_value(part.type, value[part.name], f"{path}.{part.name}") for part in avro.fields
        )
    if avro.kind == "array":
        items = [encode_value(_items(avro), item, f"{path}[]") for item in value]
        return _block(items)
    if avro.kind == "map":
        pairs = [
            _text(key.encode()) + encode_value(_items(avro), item, f"{path}[]")
            for key, item in value
        ]
        return _block(pairs)
    return _encoded_leaf(avro, value, path)


def _encoded_branch(avro: AvroType, value: Any, path: str) -> bytes:  # noqa: ANN401 - any value
    plain = [number for number, branch in enumerate(avro.branches) if branch.kind != "null"]
    if value is None:
        if len(plain) == len(avro.branches):
            raise RowError(f"{path} is null in a row, and the schema has no null there")
        kinds = [branch.kind for branch in avro.branches]
        return long(kinds.index("null"))
    number = plain[0]
    if isinstance(value, dict) and len(plain) > 1:
        members = list(value.values())
        chosen = [index for index, member in enumerate(members) if member is not None]
        if len(chosen) != 1:
            raise RowError(f"{path} has {len(chosen)} members that are not null, and needs one")
        number, value = plain[chosen[0]], members[chosen[0]]
    elif len(plain) > 1:
        # Int and long, or float and double: the wider one holds every value.
        number = next(n for n in plain if avro.branches[n].kind in ("long", "double"))
    return long(number) + encode_value(avro.branches[number], value, path)


def _encoded_leaf(avro: AvroType, value: Any, path: str) -> bytes:  # noqa: ANN401 - any value
    if avro.logical == "decimal":
        return _decimal(avro, value, path)
    if avro.kind == "boolean":
        return bytes([bool(value)])
    if avro.kind in ("int", "long"):
        return long(value)
    if avro.kind in ("float", "double"):
        return struct.pack("<f" if avro.kind == "float" else "<d", value)
    if avro.kind == "enum":
        if value not in avro.symbols:
            raise RowError(f"{path} is {value!r}, which is no symbol of the enum {avro.name}")
        return long(avro.symbols.index(value))
    if avro.kind == "fixed":
        if len(value) != avro.size:
            raise RowError(f"{path} has {len(value)} bytes, and the schema has {avro.size}")
        return bytes(value)
    return _text(value.encode() if isinstance(value, str) else bytes(value))


def _decimal(avro: AvroType, value: Any, path: str) -> bytes:  # noqa: ANN401 - any value
    number = int(value.scaleb(avro.scale))
    if avro.kind == "bytes":
        return _text(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
    try:
        return number.to_bytes(avro.size, "big", signed=True)
    except OverflowError:
        raise RowError(f"{path} is {value}, which has no room in {avro.size} bytes") from None


def long(number: int) -> bytes:
    """Encode a long."""
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def _text(data: bytes) -> bytes:
    return long(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return (long(len(items)) + b"".join(items) if items else b"") + b"\0"


def _without_null(avro: AvroType) -> AvroType:
    """Return the one type that is not null of a union with null; another type as it is."""
    if avro.kind != "union":
        return avro
    return next(branch for branch in avro.branches if branch.kind != "null")


def _items(avro: AvroType) -> AvroType:
    assert avro.items is not None
    return avro.items
