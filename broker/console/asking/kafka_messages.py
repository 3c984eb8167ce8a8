"""Kafka's messages from a client's side: requests are encoded, and responses are decoded.

The layouts are those by which the listeners decode and encode.
"""

import struct
from typing import Any, Final

from quorate.broker.console.asking.console_apis import CARRIED_FOR_OTHERS, ConsoleApi
from quorate.broker.kafka.wire.codec import (
    Message,
    entity_decoder,
    entity_encoder,
    request_is_flexible,
    schema_of,
)
from quorate.broker.kafka.wire.kio_layouts import EntityType
from quorate.broker.kafka.wire.primitives import Cursor

CLIENT_ID: Final = "quorate-console"
"""The client id of all requests of people at a console. Quotas and the audit log have it."""

_HEADER: Final = struct.Struct(">hhih")
_KEY_AND_VERSION: Final = struct.Struct(">hh")


def encode_request(api: ConsoleApi, body: Message) -> bytes:
    """Return the frame of a request, without its size.

    Raises:
        KeyError: a field without a default is missing.
    """
    name = CLIENT_ID.encode()
    frame = bytearray(_HEADER.pack(api.key, api.version, 0, len(name)) + name)
    if request_is_flexible(api.name, api.version):
        frame.append(0)
    entity_encoder(schema_of(api.name, api.version, EntityType.request))(frame, body)
    return bytes(frame)


def decode_response(api: ConsoleApi, body: bytes) -> Message:
    """Return the response whose encoded body is given.

    Raises:
        MalformedRequest: the bytes are not such a response.
    """
    schema: Any = schema_of(api.name, api.version, EntityType.response)
    decoded: Message = entity_decoder(schema)(Cursor(memoryview(body)))
    return decoded


def is_carried_for_others(frame: bytes) -> bool:
    """Return whether another broker's console may have this request carried out here."""
    if len(frame) < _KEY_AND_VERSION.size:
        return False
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    api = CARRIED_FOR_OTHERS.get(key)
    return api is not None and api.version == version
