"""Kafka requests in the flexible encoding that librdkafka does not know, written and read by hand.

``bootstrap`` has the connection. An executor must not need a Kafka codec for these few requests.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from quorate.client.bootstrap import Reader, ask_any, kafka_string
from quorate.client.errors import RequestFailed
from quorate.client.security import ClientSecurity

T = TypeVar("T")

NO_TAGS: Final = b"\0"
NULL: Final = b"\0"
"""A compact array or string that is null."""

_CLIENT_ID: Final = b"quorate"


def ask_flexible(
    address: str,
    api: tuple[int, int],
    body: bytes,
    read: Callable[[Reader], T],
    *,
    timeout_ms: int,
    security: ClientSecurity,
) -> T:
    """Send a request to one broker, and return what ``read`` makes of the body of the answer.

    ``api`` is an API key and a version of it whose answer begins with a throttle time.

    Raises:
        BootstrapError, InvalidOption, LoginFailed, ValueError: as ``bootstrap.discover``.
    """
    header = struct.pack(">hhi", *api, 1) + kafka_string(_CLIENT_ID) + NO_TAGS
    request = struct.pack(">i", len(header) + len(body)) + header + body
    return ask_any(
        address,
        request,
        lambda frame: read(_body(frame)),
        timeout_ms=timeout_ms,
        security=security,
    )


def text(value: str) -> bytes:
    """Encode a compact string."""
    raw = value.encode()
    return _varint(len(raw) + 1) + raw


def array(items: Sequence[bytes]) -> bytes:
    """Encode a compact array of encoded items."""
    return _varint(len(items) + 1) + b"".join(items)


def items_of(reader: Reader) -> Iterable[None]:
    """Yield once for each item of an array, and read the tags behind it."""
    for _ in range(reader.unsigned_varint() - 1):
        yield
        reader.tags()


def int64(reader: Reader) -> int:
    """Read a number of 8 bytes."""
    return int.from_bytes(reader.take(8), "big", signed=True)


def check(code: int, message: str) -> None:
    """Raise ``RequestFailed`` unless ``code`` is 0."""
    if code:
        raise RequestFailed(code, message)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _body(frame: bytes) -> Reader:
    """Return a reader of the body, behind a header of the flexible format and the throttle time."""
    reader = Reader(frame)
    reader.int32()
    reader.tags()
    reader.int32()
    return reader
