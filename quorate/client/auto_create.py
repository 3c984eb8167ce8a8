"""Asking for a topic as Kafka's producers do, so that the cluster creates it if it is to.

A Metadata v4 request over the Kafka wire: ``auto.create.topics.enable`` and the rights of who asks
decide on the broker, as for any client. Written and read by hand, as `bootstrap` is.
"""

import struct

from quorate.client.bootstrap import (
    MalformedResponse,
    Reader,
    ask_any,
    encode_kafka_request,
    kafka_string,
)
from quorate.client.security import ClientSecurity

METADATA = 3
_VERSION = 4
_ALLOW_CREATION = b"\x01"


def ask_for_topic(bootstrap_servers: str, topic: str, security: ClientSecurity) -> int:
    """Kafka's error code: 0 if it is there, LEADER_NOT_AVAILABLE if it soon will be.

    Raises:
        BootstrapError: no server answered.
    """
    body = struct.pack(">i", 1) + kafka_string(topic.encode()) + _ALLOW_CREATION
    request = encode_kafka_request(METADATA, _VERSION, body)
    return ask_any(bootstrap_servers, request, decode_error, security=security)


def decode_error(frame: bytes) -> int:
    """The error code of the one topic of a Metadata v4 response.

    Raises:
        MalformedResponse: it is no such response.
    """
    reader = Reader(frame)
    reader.take(8)  # Correlation id, throttle time.
    for _ in range(reader.int32()):
        reader.take(4)
        _skip_string(reader)
        reader.take(4)
        _skip_string(reader)
    _skip_string(reader)
    reader.take(4)
    if reader.int32() != 1:
        raise MalformedResponse("the answer is not of the one topic that was asked for")
    return reader.int16()


def _skip_string(reader: Reader) -> None:
    reader.take(max(0, reader.int16()))
