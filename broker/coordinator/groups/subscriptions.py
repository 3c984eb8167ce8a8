"""The topics that the members of a group of either protocol consume."""

from quorate.broker.coordinator.groups.consumer.consumer_group import ConsumerGroup
from quorate.broker.coordinator.groups.known_groups import Group
from quorate.broker.coordinator.groups.share.share_group import ShareGroup
from quorate.broker.coordinator.groups.state import subscription


def consumed_topics(group: Group) -> frozenset[str] | None:
    """Return the topics to which members are subscribed, or None if they cannot be read."""
    if isinstance(group, ConsumerGroup | ShareGroup):
        return group.subscribed_topics()
    return subscription.consumed_topics(group)
