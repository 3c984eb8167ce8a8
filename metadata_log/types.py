"""Domain types: ids, epochs and offsets that must not be mistaken for one another."""

from typing import Annotated, Final, NamedTuple, NewType

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""What fits into the int32 of a snapshot or a control request; else it is refused on arrival."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""As ``Int32``, for an int64."""

BrokerId = NewType("BrokerId", Int32)
VoterId = NewType("VoterId", Int32)

BrokerEpoch = NewType("BrokerEpoch", Int64)
"""Metadata offset of a broker's registration: grows with every incarnation (B3)."""

ControllerEpoch = NewType("ControllerEpoch", Int32)
"""Counts controllers, from 1; never the Raft term (E2)."""

LeaderEpoch = NewType("LeaderEpoch", Int32)
"""Counts leadership decisions of one partition, from 0."""

MetadataOffset = NewType("MetadataOffset", Int64)
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


DEFAULT_LISTENER: Final = "PLAINTEXT"
"""Name of the one listener of a broker that names none."""


class Endpoint(NamedTuple):
    """Where a process can be reached."""

    host: str
    port: Int32

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
