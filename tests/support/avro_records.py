"""Encodes Avro records for tests, and decodes them with the product's decoder."""

import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from quorate.spark.typed import avro_instructions as op
from quorate.spark.typed.avro_decoder import AvroDecoder
from quorate.spark.typed.avro_schema import parse_avro
from quorate.spark.typed.avro_shapes import spark_type
from quorate.spark.typed.value_formats import Fault


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A field of a record."""
    return {"name": name, "type": type_, **more}


def encode(schema: Any, value: Any) -> bytes:  # noqa: ANN401 - any schema, any value
    """Encode as fastavro does."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def long(number: int) -> bytes:
    """Encode a long, or the number of a branch."""
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def encode_tree(schema: Any, value: Any) -> bytes:  # noqa: ANN401 - any schema, any value
    """Encode a value whose unions are pairs of the branch's number and its value."""
    if isinstance(schema, list):
        return long(value[0]) + encode_tree(schema[value[0]], value[1])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return b"".join(encode_tree(part["type"], value[part["name"]]) for part in schema["fields"])
    if kind == "array":
        items = b"".join(encode_tree(schema["items"], item) for item in value)
        return (long(len(value)) + items if value else b"") + b"\0"
    if kind == "map":
        pairs = b"".join(
            encode_tree("string", key) + encode_tree(schema["values"], item) for key, item in value
        )
        return (long(len(value)) + pairs if value else b"") + b"\0"
    if kind == "enum":
        return long(schema["symbols"].index(value))
    return _primitive(kind, value)


def _primitive(kind: str, value: Any) -> bytes:  # noqa: ANN401 - any value
    if kind == "null":
        return b""
    if kind in ("int", "long"):
        return long(value)
    if kind == "boolean":
        return bytes([value])
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "fixed":
        return bytes(value)
    data = value.encode() if isinstance(value, str) else value
    return long(len(data)) + bytes(data)


class Decoding:
    """A decoder of a reader's schema, and what it makes of records."""

    def __init__(self, reader: Any) -> None:  # noqa: ANN401 - JSON
        avro = parse_avro(json.dumps(reader))
        self.type = to_arrow_type(spark_type(avro), timezone="UTC")
        self._decoder = AvroDecoder(avro)

    def decode(
        self,
        writer: Any,  # noqa: ANN401 - JSON
        records: Sequence[bytes | None],
        *,
        stop_at_bad: bool = False,
    ) -> tuple[pa.Array, list[int], Fault | None]:
        """Decode records of one writer; the rows with bad ones, and the fault."""
        entry = self._decoder.add_writer(parse_avro(json.dumps(writer)))
        entries = np.array([op.NULL_RECORD if one is None else entry for one in records], np.int64)
        values = pa.array(records, pa.binary())
        found, bad, fault = self._decoder.decode(
            values, entries, self.type, stop_at_bad=stop_at_bad
        )
        found.validate(full=True)
        return found, np.flatnonzero(bad).tolist(), fault


def decoded(writer: Any, *records: bytes | None, reader: Any = None) -> list[Any]:  # noqa: ANN401
    """Decode good records."""
    found, bad, fault = Decoding(writer if reader is None else reader).decode(writer, records)
    assert not bad
    assert fault is None
    values: list[Any] = found.to_pylist()
    return values
