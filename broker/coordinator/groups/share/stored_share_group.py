"""A share group as a log describes it, from which a new coordinator takes it."""

from collections.abc import Callable
from typing import Final

from quorate.broker.coordinator.groups.consumer.consumer_member import Partitions
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.share import share_group_log_format as log_format
from quorate.broker.coordinator.groups.share.share_group import ShareGroup, ShareGroupLimits
from quorate.broker.coordinator.groups.share.share_group_log_format import (
    ShareGroupEpoch,
    ShareGroupKey,
    ShareTargetEpoch,
)
from quorate.broker.coordinator.groups.share.share_member import (
    NO_PARTITIONS,
    ShareAssignment,
    ShareMember,
    ShareMemberMetadata,
)
from quorate.broker.coordinator.groups.share.share_topics import ShareTopics

_NO_CURRENT: Final = ShareAssignment()


class StoredShareGroup:
    """The last value of each key of one group."""

    def __init__(self) -> None:
        self.values: dict[ShareGroupKey, log_format.Value] = {}

    def take(self, key: ShareGroupKey, value: bytes | None) -> None:
        """Take the next record of the log.

        Raises:
            UnknownRecord: the value has another format.
        """
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = log_format.read_value(key.kind, value)

    def group(
        self,
        group_id: str,
        limits: Callable[[], ShareGroupLimits],
        topics: Topics,
        now_ms: int,
    ) -> ShareGroup:
        """Return the group; each member gets its full session timeout from ``now_ms`` on."""
        group = ShareGroup(group_id, limits, topics)
        epoch, target_epoch = ShareGroupEpoch(0, 0), 0
        states = ShareTopics()
        metadata: dict[str, ShareMemberMetadata] = {}
        current: dict[str, ShareAssignment] = {}
        targets: dict[str, Partitions] = {}
        for key, value in self.values.items():
            match value:
                case ShareGroupEpoch():
                    epoch = value
                case ShareTargetEpoch():
                    target_epoch = value.epoch
                case ShareMemberMetadata():
                    metadata[key.member_id] = value
                case ShareAssignment():
                    current[key.member_id] = value
                case ShareTopics():
                    states = value
                case dict():
                    targets[key.member_id] = value
        for member_id, found in metadata.items():
            member = ShareMember(member_id, found, current.get(member_id, _NO_CURRENT))
            group.restore_member(member, targets.get(member_id, NO_PARTITIONS), now_ms)
        group.restore(epoch.epoch, epoch.metadata_hash, target_epoch, states)
        return group
