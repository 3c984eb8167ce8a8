"""A member of a share group, and what it says and is told in a heartbeat (KIP-932)."""

from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NEVER_MS,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    NAMES_LENGTH_MAX,
    NAMES_MAX,
)
from quorate_proto.v1 import errors_pb2

NO_PARTITIONS: Final[Partitions] = {}
MEMBER_ID_LENGTH_MAX: Final = 36
"""Members choose their ids: Kafka's clients take an UUID."""


class ShareMemberMetadata(NamedTuple):
    """The description that a member gives of itself, as the log has it."""

    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]


class ShareAssignment(NamedTuple):
    """The partitions of a member in its epoch, as the log has them. ``previous_epoch`` is what the
    member may still send if it missed the last answer."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    partitions: Partitions = NO_PARTITIONS


class ShareMember:
    """One member. It is mutable, because its deadline moves with every heartbeat."""

    __slots__ = ("current", "deadline_ms", "member_id", "metadata")

    def __init__(
        self, member_id: str, metadata: ShareMemberMetadata, current: ShareAssignment
    ) -> None:
        self.member_id = member_id
        self.metadata = metadata
        self.current = current
        self.deadline_ms = NEVER_MS
        """The time at which the member is removed if it stays silent."""

    def expire_at(self, deadline_ms: int) -> None:
        """Set the time at which the member is removed if it stays silent."""
        self.deadline_ms = deadline_ms


class ShareHeartbeat(NamedTuple):
    """A heartbeat. What is None is as the member said it before."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    rack_id: str | None = None
    topic_names: frozenset[str] | None = None

    @property
    def joins(self) -> bool:
        """Whether the member joins, or joins again."""
        return self.member_epoch == JOINING_EPOCH

    @property
    def leaves(self) -> bool:
        return self.member_epoch == LEAVING_EPOCH

    def metadata_after(self, before: ShareMemberMetadata | None) -> ShareMemberMetadata:
        """Return what the member has said of itself, by now and ``before``."""
        rack_id, names = self.rack_id, self.topic_names
        if before is not None:
            rack_id = before.rack_id if rack_id is None else rack_id
            names = before.topic_names if names is None else names
        return ShareMemberMetadata(rack_id, self.client_id, self.client_host, names or frozenset())


class ShareHeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat. ``assigned`` is None if the member has it already."""

    member_id: str
    member_epoch: int
    assigned: Partitions | None = None


def check_share_heartbeat(request: ShareHeartbeat) -> None:
    """Check what can be checked without the group.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if not request.member_id or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise _invalid(f"a member id has 1 to {MEMBER_ID_LENGTH_MAX} characters")
    if request.rack_id == "":
        raise _invalid("the rack id is empty: leave it out, or name the rack")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid(f"member epoch {request.member_epoch} must be -1 or greater")
    names = request.topic_names or ()
    if request.joins and not names:
        raise _invalid("a member that joins must name topics")
    if len(names) > NAMES_MAX or sum(map(len, names)) > NAMES_LENGTH_MAX:
        raise _invalid(
            f"a subscription to {len(names)} topics: at most {NAMES_MAX}, of {NAMES_LENGTH_MAX} "
            "characters together"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REQUEST, message)
