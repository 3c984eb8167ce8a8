"""Kafka requests of a valid shape with random values, made from the layouts of Kafka's schemas."""

import random
import struct
from collections.abc import Sequence
from typing import Final

from bench.hostile_requests.layouts import Field, Layout, layout_of
from bench.hostile_requests.values import pack, packing
from bench.hostile_requests.writing import length
from tests.support.unprivileged.values import WAIT_MS_MAX, number, raw, text, waits

_BITS: Final = {
    "int8": 8, "int16": 16, "error_code": 16, "int32": 32, "timedelta_i32": 32, "int64": 64,
    "timedelta_i64": 64, "datetime_i64": 64,
}  # fmt: skip
_UNSIGNED: Final = {"uint16": 16, "uint32": 32}


def random_frame(
    chance: random.Random, key: int, version: int, topic_ids: Sequence[bytes]
) -> bytes:
    """A request without its size."""
    layout = layout_of(key, version)
    client_id = text(chance)[:200].encode()
    header = struct.pack(">hhih", key, version, 1, len(client_id)) + client_id
    return header + (b"\0" if layout.flexible else b"") + _entity(chance, layout, topic_ids)


def _entity(chance: random.Random, layout: Layout, topic_ids: Sequence[bytes]) -> bytes:
    out = bytearray()
    for field in layout.plain:
        out += _field(chance, field, layout.flexible, topic_ids)
    if layout.flexible:
        out += b"\0"
    return bytes(out)


def _field(
    chance: random.Random, field: Field, flexible: bool, topic_ids: Sequence[bytes]
) -> bytes:
    if not field.is_array:
        return _value(chance, field, flexible, topic_ids)
    if field.nullable and chance.random() < 0.15:
        return length(-1, flexible)
    count = chance.choice((0, 1, 1, 2, 3))
    parts = [_value(chance, field, flexible, topic_ids) for _ in range(count)]
    return length(count, flexible) + b"".join(parts)


def _value(
    chance: random.Random, field: Field, flexible: bool, topic_ids: Sequence[bytes]
) -> bytes:
    if field.nested is not None:
        if field.is_array or not field.nullable:
            return _entity(chance, field.nested, topic_ids)
        if chance.random() < 0.3:
            return b"\xff"
        return b"\x01" + _entity(chance, field.nested, topic_ids)
    if packing(field.kafka_type) is not None:
        return pack(field.kafka_type, _number(chance, field))
    if field.kafka_type == "uuid":
        return chance.choice(topic_ids) if chance.random() < 0.7 else chance.randbytes(16)
    if field.value_is_nullable and chance.random() < 0.15:
        return length(-1, flexible, ">h" if field.kafka_type == "string" else ">i")
    if field.kafka_type == "string":
        value = text(chance).encode()
        return length(len(value), flexible, ">h") + value
    value = raw(chance)
    return length(len(value), flexible) + value


def _number(chance: random.Random, field: Field) -> int | float | bool:
    if field.kafka_type == "bool":
        return chance.random() < 0.5
    if field.kafka_type == "float64":
        return chance.choice((0.0, -1.0, 1.0, 1e300, float("inf"), float("nan")))
    if waits(field.name):
        return chance.randint(0, WAIT_MS_MAX)
    if field.name == "acks":
        return chance.choice((-1, 1, 2, -32_768))  # 0 is the one that has no answer.
    if field.kafka_type in _UNSIGNED:
        return number(chance, _UNSIGNED[field.kafka_type], signed=False)
    return number(chance, _BITS[field.kafka_type])
