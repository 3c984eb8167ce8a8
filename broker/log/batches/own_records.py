"""Encoding of single records that a broker writes itself; see ``records`` for the layout. Pure."""

from collections.abc import Iterable

from quorate.broker.log.batches.records import signed_varint

Header = tuple[bytes, bytes | None]
"""The name of a header, and its value."""


def encoded_record(
    offset_delta: int, key: bytes | None, value: bytes | None, headers: Iterable[Header]
) -> bytes:
    """Return one record whose timestamp is that of its batch."""
    encoded_headers = [_sized(name) + _sized(data) for name, data in headers]
    body = b"".join(
        (
            b"\0\0",
            signed_varint(offset_delta),
            _sized(key),
            _sized(value),
            signed_varint(len(encoded_headers)),
            *encoded_headers,
        )
    )
    return signed_varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return signed_varint(-1) if data is None else signed_varint(len(data)) + data
