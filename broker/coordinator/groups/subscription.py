"""What the members of a group consume, as far as a coordinator can tell.

The metadata of members is the clients' own affair; those of the protocol type "consumer" begin it
all in the same way: version i16, then the topics, an array of strings.
"""

import struct
from typing import Final

from broker.coordinator.groups.group import ConsumerGroup

_CONSUMER: Final = "consumer"
_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def consumed_topics(group: ConsumerGroup) -> frozenset[str] | None:
    """Topics that members of a group are subscribed to; None: nobody can tell."""
    if group.protocol_type != _CONSUMER or group.protocol_name is None:
        return None
    topics: set[str] = set()
    for member in group.members:
        subscribed = _topics(member.metadata(group.protocol_name))
        if subscribed is None:
            return None
        topics |= subscribed
    return frozenset(topics)


def _topics(metadata: bytes) -> set[str] | None:
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        at, topics = _VERSION_AND_COUNT.size, set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, at)
            at += _LENGTH.size
            if length < 0 or at + length > len(metadata):
                return None
            topics.add(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
