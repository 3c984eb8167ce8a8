"""The topics that the members of a group consume, as far as a coordinator can read them.

The metadata of members belongs to the clients. For the protocol type "consumer" it always begins
with version i16 and the topics, an array of strings.
"""

import struct
from typing import Final

from quorate.broker.coordinator.groups.state.classic_group import ClassicGroup

_CONSUMER: Final = "consumer"
_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def consumed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics to which members are subscribed, or None if they cannot be read."""
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
