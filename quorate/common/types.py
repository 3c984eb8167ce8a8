"""Domain types: ids, epochs and offsets that must not be mistaken for one another."""

from typing import Annotated, Final, NamedTuple, NewType

import msgspec

from quorate.common.topic_partition import TopicPartition as TopicPartition

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""An integer that fits into the int32 of a snapshot or a control request. Others are refused on
arrival.
"""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""An integer that fits into an int64, as ``Int32``."""

BrokerId = NewType("BrokerId", Int32)
VoterId = NewType("VoterId", Int32)

BrokerEpoch = NewType("BrokerEpoch", Int64)
"""The metadata offset of a broker's registration. It grows with every incarnation (B3)."""

ControllerEpoch = NewType("ControllerEpoch", Int32)
"""A count of controllers, from 1. It is never the Raft term (E2)."""

LeaderEpoch = NewType("LeaderEpoch", Int32)
"""A count of the leadership decisions of one partition, from 0."""

MetadataOffset = NewType("MetadataOffset", Int64)
"""The Raft index of a transaction: the zxid of this system. 0 means "before everything"."""

SessionId = NewType("SessionId", bytes)
TopicId = NewType("TopicId", bytes)

NO_BROKER: Final = BrokerId(-1)
"""The id that stands for no leader, or no controller."""

NO_SESSION: Final = SessionId(b"")
"""The client id of transactions that the quorum itself writes."""

ID_BYTES: Final = 16
"""The length of session, topic and incarnation ids."""


class TopicIdPartition(NamedTuple):
    """A partition by topic id. The topic that is created again under the same name has
    another id.
    """

    topic_id: TopicId
    partition: int


DEFAULT_LISTENER: Final = "PLAINTEXT"
"""The name of the one listener of a broker that names none."""


class Endpoint(NamedTuple):
    """The address at which a process can be reached."""

    host: str
    port: Int32

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
