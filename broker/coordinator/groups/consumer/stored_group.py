"""A consumer group as a log describes it, from which a new coordinator takes it."""

from typing import Final

from quorate.broker.coordinator.groups.consumer import consumer_log_format as log_format
from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.consumer.consumer_log_format import (
    ConsumerGroupKey,
    GroupEpoch,
    TargetEpoch,
)
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
)
from quorate.broker.coordinator.groups.consumer.group_epochs import ConsumerGroupLimits
from quorate.broker.coordinator.groups.consumer.group_topics import Topics
from quorate.broker.coordinator.groups.consumer.regular_expressions import ResolvedRegex
from quorate.broker.coordinator.groups.stored_values import StoredValues

_NO_CURRENT: Final = CurrentAssignment()


class StoredConsumerGroup(StoredValues[ConsumerGroupKey, log_format.Value]):
    """The last value of each key of one consumer group."""

    def __init__(self) -> None:
        super().__init__(log_format.read_value)

    def group(
        self, group_id: str, limits: ConsumerGroupLimits, topics: Topics, now_ms: int
    ) -> ConsumerGroup:
        """Return the group; each member gets its full session timeout from ``now_ms`` on."""
        group = ConsumerGroup(group_id, limits, topics)
        epoch, target = GroupEpoch(0, 0), TargetEpoch(0, 0)
        metadata: dict[str, MemberMetadata] = {}
        current: dict[str, CurrentAssignment] = {}
        for key, value in self.values.items():
            match value:
                case GroupEpoch():
                    epoch = value
                case TargetEpoch():
                    target = value
                case MemberMetadata():
                    metadata[key.about] = value
                case CurrentAssignment():
                    current[key.about] = value
                case ResolvedRegex():
                    group.regexes.put(key.about, value)
                case log_format.SubscribedTopics():
                    group.restore_topics_record()
                case dict():
                    group.restore_target(key.about, value)
        for member_id, found in metadata.items():
            member = ConsumerMember(member_id, found, current.get(member_id, _NO_CURRENT))
            group.restore_member(member, now_ms)
        group.restore_epochs(epoch.epoch, epoch.metadata_hash, target.epoch)
        return group
