"""The prefix that Confluent's serializers put before a record: a zero byte and the schema's id.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/
"""

from typing import Final

PREFIX_BYTES: Final = 5


def prefix(schema_id: int) -> bytes:
    """Return the prefix of a record."""
    return b"\0" + schema_id.to_bytes(PREFIX_BYTES - 1, "big")


def describe(value: bytes) -> str:
    """Return what the prefix of a bad value says, for a message."""
    if len(value) < PREFIX_BYTES:
        return f"it has {len(value)} bytes, and the prefix with the schema id alone has 5"
    if value[0]:
        return f"it begins with byte {value[0]} and not with 0, so it names no schema id"
    return f"schema id {int.from_bytes(value[1:PREFIX_BYTES], 'big')}"
