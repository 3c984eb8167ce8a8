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
from quorate.broker.coordinator.groups.stored_values import StoredValues

_NO_CURRENT: Final = ShareAssignment()


class StoredShareGroup(StoredValues[ShareGroupKey, log_format.Value]):
    """The last value of each key of one share group."""

    def __init__(self) -> None:
        super().__init__(log_format.read_value)

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
