"""Domain types: ids, epochs and offsets that must not be mistaken for one another."""

from typing import Final, NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
VoterId = NewType("VoterId", int)

BrokerEpoch = NewType("BrokerEpoch", int)
"""Metadata offset of a broker's registration: grows with every incarnation (B3)."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""Counts controllers, from 1; never the Raft term (E2)."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts leadership decisions of one partition, from 0."""

MetadataOffset = NewType("MetadataOffset", int)
"""Raft index of a transaction: the zxid of this system. 0 is "before everything"."""

SessionId = NewType("SessionId", bytes)
TopicId = NewType("TopicId", bytes)

NO_BROKER: Final = BrokerId(-1)
"""No leader, or no controller."""

NO_SESSION: Final = SessionId(b"")
"""The quorum itself as the writer of a transaction."""

ID_BYTES: Final = 16
"""Length of session, topic and incarnation ids."""


class TopicPartition(NamedTuple):
    """A partition by name, as clients and people know it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id: survives deletion and re-creation under the same name."""

    topic_id: TopicId
    partition: int


class Endpoint(NamedTuple):
    """Where a process can be reached."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
