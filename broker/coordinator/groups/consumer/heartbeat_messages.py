"""What a member of a consumer group says in a heartbeat, and what it is told (KIP-848)."""

from collections.abc import Container
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ClassicMetadata,
    MemberMetadata,
    Owned,
    Partitions,
)
from quorate_proto.v1 import errors_pb2

UNCHANGED_TIMEOUT: Final = -1

NAMES_MAX: Final = 10_000
NAMES_LENGTH_MAX: Final = 256 << 10
"""The most topics that a member may name, and the most characters of their names together. They are
one record in the log, and are sorted and counted in one go."""


class HeartbeatRequest(NamedTuple):
    """A heartbeat. What is None, or a timeout of -1, is as the member said it before.

    ``claimed`` are the partitions that the member has. An empty ``topic_regex`` ends the
    subscription to a regular expression. ``classic`` is not None if this is a member of the classic
    protocol that joins.
    """

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_TIMEOUT
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    claimed: Partitions | None = None
    classic: ClassicMetadata | None = None

    @property
    def joins(self) -> bool:
        """Whether the member joins, or joins again."""
        return self.member_epoch == JOINING_EPOCH

    @property
    def leaves(self) -> bool:
        """Whether the member leaves, for good or for a while."""
        return self.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH)

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, because it does not know what the coordinator
        knows."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        says_timeout = self.rebalance_timeout_ms != UNCHANGED_TIMEOUT
        return says_timeout and subscribes and self.claimed is not None

    def metadata_after(self, before: MemberMetadata) -> MemberMetadata:
        """Return what the member has said of itself, by now and ``before``."""
        timeout_ms = self.rebalance_timeout_ms
        return MemberMetadata(
            before.instance_id if self.instance_id is None else self.instance_id,
            before.rack_id if self.rack_id is None else self.rack_id,
            self.client_id,
            self.client_host,
            before.topic_names if self.topic_names is None else self.topic_names,
            before.topic_regex if self.topic_regex is None else self.topic_regex,
            before.rebalance_timeout_ms if timeout_ms == UNCHANGED_TIMEOUT else timeout_ms,
            before.server_assignor if self.server_assignor is None else self.server_assignor,
            self.classic,
        )


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat. ``assigned`` is None if the member has it already."""

    member_id: str
    member_epoch: int
    assigned: Owned | None = None


def check_heartbeat(
    request: HeartbeatRequest, assignors: Container[str], *, needs_member_id: bool
) -> None:
    """Check what can be checked without the group.

    ``needs_member_id`` says whether members choose their ids, as from version 1 on.

    Raises:
        KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    if not request.member_id and (needs_member_id or epoch > 0 or epoch == LEAVING_EPOCH):
        raise _invalid("the member id is empty")
    if request.instance_id == "":
        raise _invalid("the instance id is empty: leave it out, or name the instance")
    if request.rack_id == "":
        raise _invalid("the rack id is empty: leave it out, or name the rack")
    if epoch < STATIC_LEAVING_EPOCH:
        raise _invalid(f"member epoch {epoch} must be -2 or greater")
    if epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise _invalid("member epoch -2 is for members with an instance id")
    names = request.topic_names or ()
    if len(names) > NAMES_MAX or sum(map(len, names)) > NAMES_LENGTH_MAX:
        raise _invalid(
            f"a subscription to {len(names)} topics by name: at most {NAMES_MAX}, of "
            f"{NAMES_LENGTH_MAX} characters together; use a regular expression"
        )
    if request.joins:
        _check_joining(request)
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        raise KafkaError(
            errors_pb2.UNSUPPORTED_ASSIGNOR,
            f"assignor {wanted!r} is not among group.consumer.assignors of this broker",
        )


def _check_joining(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        raise _invalid("a member that joins must say its rebalance timeout")
    if request.claimed is None or request.claimed:
        raise _invalid("a member that joins has no partitions, and must say so")
    if request.topic_names is None and request.topic_regex is None:
        raise _invalid("a member that joins must name topics or a regular expression")


def _invalid(message: str) -> KafkaError:
    return KafkaError(errors_pb2.INVALID_REQUEST, message)
