"""Asks for a topic in the way of Kafka's producers, so that the cluster may create it.

This is a Metadata v4 request over the Kafka protocol. The broker decides by
``auto.create.topics.enable`` and by the rights of the client, as for any client. The request is
written and read by hand, as in `bootstrap`.
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
    """Ask for a topic, and return Kafka's error code.

    It is 0 if the topic exists, and LEADER_NOT_AVAILABLE if it is being created.

    Raises:
        BootstrapError: no server answered.
    """
    body = struct.pack(">i", 1) + kafka_string(topic.encode()) + _ALLOW_CREATION
    request = encode_kafka_request(METADATA, _VERSION, body)
    return ask_any(bootstrap_servers, request, decode_error, security=security)


def decode_error(frame: bytes) -> int:
    """Return the error code of the one topic of a Metadata v4 response.

    Raises:
        MalformedResponse: the frame is no such response.
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
