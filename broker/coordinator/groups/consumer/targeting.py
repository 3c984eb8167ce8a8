"""How a consumer group gets its target assignments."""

from typing import Final, NamedTuple

from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer import consumer_log_format as log_format
from quorate.broker.coordinator.groups.consumer.consumer_member import Partitions
from quorate.broker.coordinator.groups.consumer.subscribing import Subscribing
from quorate.broker.coordinator.groups.consumer.target_assignment import (
    MEMBERS_IN_A_STEP,
    Assigning,
    Assignor,
    Subscriber,
)
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.common.types import TopicId

_NONE: Final[Partitions] = {}


class NewTarget(NamedTuple):
    """A target assignment for a group epoch, with the records of what is new in it."""

    epoch: int
    replacements: int
    target: dict[str, Partitions]
    records: list[tuple[str, LogRecord]]
    """Each with the member that it is about."""


class Targeting(Subscribing):
    """The part of a group that makes target assignments, in steps."""

    def new_target(self, assign: Assignor) -> Steps[NewTarget]:
        """Make a target assignment for the present epoch.

        The group may change meanwhile; ``take_target`` follows.
        """
        epoch, replacements = self.epoch, self._replacements
        assigning = yield from self._assigning()
        target = yield from assign(assigning)
        records = []
        for number, (member_id, partitions) in enumerate(target.items()):
            if partitions != assigning.former.get(member_id, _NONE):
                record = log_format.target_record(self.group_id, member_id, partitions)
                records.append((member_id, record))
            if not number % MEMBERS_IN_A_STEP:
                yield
        return NewTarget(epoch, replacements, target, records)

    def take_target(self, new: NewTarget, now_wall_ms: int) -> list[LogRecord]:
        """Take a target assignment that was made.

        It is dropped if a static member came back meanwhile, because it names that member by its
        former id. Members that have left meanwhile are left out; the group is in a later epoch.
        """
        if new.replacements != self._replacements or new.epoch <= self.target_epoch:
            return []
        members = self.members
        self._target = {each: own for each, own in new.target.items() if each in members}
        self.target_epoch = new.epoch
        target_epoch = log_format.TargetEpoch(new.epoch, now_wall_ms)
        return [
            *(record for member_id, record in new.records if member_id in members),
            log_format.target_epoch_record(self.group_id, target_epoch),
        ]

    def _assigning(self) -> Steps[Assigning]:
        """Copy what an assignor works from."""
        subscribers: list[Subscriber] = []
        ids_of: dict[frozenset[str], tuple[TopicId, ...]] = {}
        counts: dict[TopicId, int] = {}
        former = dict(self._target)
        for number, member in enumerate(tuple(self.members)):
            names = self.regexes.topics_of(member.metadata)
            if names not in ids_of:
                ids_of[names] = self._existing(names, counts)
            topic_ids = ids_of[names]
            instance_id, owned = member.metadata.instance_id, member.current.assigned
            subscribers.append(Subscriber(member.member_id, instance_id, topic_ids, owned))
            if not number % MEMBERS_IN_A_STEP:
                yield
        return Assigning(subscribers, counts, former)

    def _existing(self, names: frozenset[str], counts: dict[TopicId, int]) -> tuple[TopicId, ...]:
        """Return the ids of the topics that exist, and note their partition counts."""
        topic_ids = []
        for name in sorted(names):
            topic = self._topics.topic(name)
            if topic is not None:
                topic_ids.append(topic.topic_id)
                counts[topic.topic_id] = topic.partition_count
        return tuple(topic_ids)
