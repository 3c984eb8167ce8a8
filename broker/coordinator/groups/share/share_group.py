"""``ShareGroup``: the state machine of a share group (KIP-932).

The epochs are those of a consumer group. Nobody has to give a partition up before another member
gets it, because several members may have the same one: the leader of the partition hands out
records one by one. So a member comes to the epoch of a new target assignment at once.

What changes something returns the records that say so. The shell writes them in order, and answers
when they are in the log.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import Steps
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    NEVER_MS,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.group_topics import Topics, topics_hash
from quorate.broker.coordinator.groups.consumer.target_assignment import (
    MEMBERS_IN_A_STEP,
    Assigning,
    Subscriber,
    TargetAssignment,
)
from quorate.broker.coordinator.groups.share import share_group_log_format as log_format
from quorate.broker.coordinator.groups.share.share_member import (
    NO_PARTITIONS,
    ShareAssignment,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMember,
)
from quorate.broker.coordinator.groups.share.share_topics import ShareTopics, TopicPartitions
from quorate.broker.coordinator.groups.share.simple_assignor import assign_simply
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.common.types import TopicId, TopicPartition
from quorate_proto.v1 import errors_pb2

_REMOVED_AT_ONCE: Final = 100


class ShareGroupState(StrEnum):
    """The states of a share group, under the names that clients see."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroupLimits(NamedTuple):
    """The limits of a group, which may change while it lives."""

    max_members: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class NewShareTarget(NamedTuple):
    """A target assignment for a group epoch."""

    epoch: int
    target: TargetAssignment


class ShareGroup:
    """One group. A heartbeat is ``subscribe``, then ``reconcile``."""

    protocol_type: Final = "share"
    is_unused: Final = False
    """A share group stays until it is deleted, because it has states with the share coordinator."""

    def __init__(
        self, group_id: str, limits: Callable[[], ShareGroupLimits], topics: Topics
    ) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.topics = ShareTopics()
        self.topic_names: Counter[str] = Counter()
        """The topics that members subscribe to, with the number of these members."""
        self._limits = limits
        self._known_topics = topics
        self._target: dict[str, Partitions] = {}
        self._metadata_hash = 0
        self.next_deadline_ms = NEVER_MS
        """The time before which ``expire`` has nothing to do; it may be too early."""

    # -- restoring -------------------------------------------------------------------------------

    def restore(
        self, epoch: int, metadata_hash: int, target_epoch: int, topics: ShareTopics
    ) -> None:
        """Take what the log has of the group. Topics may have changed since."""
        self.epoch, self._metadata_hash = epoch, metadata_hash
        self.target_epoch, self.topics = target_epoch, topics

    def restore_member(self, member: ShareMember, target: Partitions, now_ms: int) -> None:
        """Take a member that the log has; it is not known whether it is still alive."""
        self.members[member.member_id] = member
        self.topic_names.update(member.metadata.topic_names)
        self._target[member.member_id] = target
        self._set_session(member, now_ms)

    # -- looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members, so that it may be deleted."""
        return not self.members

    @property
    def needs_target(self) -> bool:
        """Return whether there are members whose target assignment is older than the group
        epoch."""
        return self.epoch > self.target_epoch and not self.is_empty

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members are subscribed to."""
        return frozenset(self.topic_names)

    def subscribes_to(self, names: Iterable[str]) -> bool:
        """Return whether members are subscribed to one of these topics."""
        return any(name in self.topic_names for name in names)

    def uninitialized(self) -> tuple[TopicPartitions, Mapping[TopicId, str]]:
        """Return the partitions that members are subscribed to and that have no state yet, and the
        names of their topics."""
        wanted: dict[TopicId, frozenset[int]] = {}
        names: dict[TopicId, str] = {}
        for name in self.topic_names:
            topic = self._known_topics.topic(name)
            if topic is not None:
                wanted[topic.topic_id] = frozenset(range(topic.partition_count))
                names[topic.topic_id] = name
        missing = self.topics.missing(wanted)
        return missing, {topic_id: names[topic_id] for topic_id in missing}

    # -- being a member --------------------------------------------------------------------------

    def subscribe(
        self, request: ShareHeartbeat, now_ms: int
    ) -> tuple[ShareMember, list[LogRecord], bool]:
        """Take the first half of a heartbeat: let the member in if it is new, and take what it says
        of itself. Return the member, the records, and whether its subscription has changed.

        Raises:
            KafkaError: the member is refused, and nothing has changed.
        """
        member = self.members.get(request.member_id)
        if member is None:
            self._check_new(request)
        else:
            self._check_epoch(member, request)
        before = None if member is None else member.metadata
        metadata = request.metadata_after(before)
        if member is None:
            member = ShareMember(request.member_id, metadata, ShareAssignment())
            self.members[request.member_id] = member
        records: list[LogRecord] = []
        if metadata != before:
            member.metadata = metadata
            records.append(log_format.member_record(self.group_id, member.member_id, metadata))
        names_before = frozenset() if before is None else before.topic_names
        has_changed = before is None or metadata.topic_names != names_before
        if has_changed:
            self._count(metadata.topic_names - names_before, +1)
            self._count(names_before - metadata.topic_names, -1)
            records += self._next_epoch()
        self._set_session(member, now_ms)
        return member, records, has_changed

    def reconcile(
        self, member: ShareMember, request: ShareHeartbeat, *, has_changed: bool
    ) -> tuple[ShareHeartbeatAnswer, list[LogRecord]]:
        """Take the second half of a heartbeat: bring the member to its target assignment.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the member was removed in between.
        """
        if self.members.get(member.member_id) is not member:
            raise self._unknown(member.member_id)
        before, records = member.current, list[LogRecord]()
        if has_changed or before.epoch != self.target_epoch:
            names = member.metadata.topic_names
            own = {
                topic_id: partitions
                for topic_id, partitions in self._target.get(member.member_id, {}).items()
                if self._known_topics.topic_name(topic_id) in names
            }
            previous = before.epoch if before.epoch != self.target_epoch else before.previous_epoch
            member.current = ShareAssignment(self.target_epoch, previous, own)
            if member.current != before:
                record = log_format.current_record(self.group_id, member.member_id, member.current)
                records.append(record)
        current = member.current
        is_full = request.joins or request.topic_names is not None
        # A member in an earlier epoch has not had the answer that told it of its partitions.
        missed_answer = request.member_epoch != before.epoch
        tells = is_full or missed_answer or current.partitions != before.partitions
        assigned = current.partitions if tells else None
        return ShareHeartbeatAnswer(member.member_id, current.epoch, assigned), records

    def leave(self, member_id: str) -> list[LogRecord]:
        """Remove a member that leaves.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        return self._remove_all([member])

    def expire(self, now_ms: int) -> list[LogRecord]:
        """Remove members that are silent; of very many that die together, some at a time."""
        late = (one for one in self.members.values() if one.deadline_ms <= now_ms)
        records = self._remove_all([*islice(late, _REMOVED_AT_ONCE)])
        deadlines = (one.deadline_ms for one in self.members.values())
        self.next_deadline_ms = max(now_ms + 1, min(deadlines, default=NEVER_MS))
        return records

    def _check_new(self, request: ShareHeartbeat) -> None:
        if not request.joins:
            raise self._unknown(request.member_id)
        most = self._limits().max_members
        if len(self.members) >= most:
            raise KafkaError(
                errors_pb2.GROUP_MAX_SIZE_REACHED,
                f"group {self.group_id!r} has {len(self.members)} members: {most} at most "
                "(group.share.max.size)",
            )

    def _check_epoch(self, member: ShareMember, request: ShareHeartbeat) -> None:
        said, current = request.member_epoch, member.current
        if said not in (JOINING_EPOCH, current.epoch, current.previous_epoch):
            raise KafkaError(
                errors_pb2.FENCED_MEMBER_EPOCH,
                f"member {member.member_id!r} is in epoch {said}, and should be in "
                f"{current.epoch}: it must join again",
            )

    def _unknown(self, member_id: str) -> KafkaError:
        return KafkaError(
            errors_pb2.UNKNOWN_MEMBER_ID,
            f"member {member_id!r} is not in group {self.group_id!r}: join again",
        )

    def _remove_all(self, members: Iterable[ShareMember]) -> list[LogRecord]:
        records: list[LogRecord] = []
        for member in members:
            del self.members[member.member_id]
            self._target.pop(member.member_id, None)
            self._count(member.metadata.topic_names, -1)
            records += log_format.member_tombstones(self.group_id, member.member_id)
        return [*records, *self._next_epoch()] if records else []

    def _count(self, names: Iterable[str], by: int) -> None:
        for name in names:
            self.topic_names[name] += by
            if not self.topic_names[name]:
                del self.topic_names[name]

    def _set_session(self, member: ShareMember, now_ms: int) -> None:
        member.expire_at(now_ms + self._limits().session_timeout_ms)
        self.next_deadline_ms = min(self.next_deadline_ms, member.deadline_ms)

    # -- epochs, topics and targets --------------------------------------------------------------

    def topics_changed(self) -> list[LogRecord]:
        """Begin another group epoch if topics that members subscribe to were created, deleted or
        have grown."""
        changed = topics_hash(self._known_topics, self.subscribed_topics()) != self._metadata_hash
        return self._next_epoch() if changed else []

    def set_topics(self, topics: ShareTopics, *, reassign: bool = False) -> list[LogRecord]:
        """Take what became of the states of partitions. ``reassign`` says whether others can be
        assigned now."""
        if topics == self.topics:
            return []
        self.topics = topics
        records = [log_format.topics_record(self.group_id, topics)]
        return [*records, *self._next_epoch()] if reassign else records

    def begin(self) -> list[LogRecord]:
        """Return the record of a group that is created without members."""
        return [self._epoch_record()]

    def new_target(self) -> Steps[NewShareTarget]:
        """Make a target assignment for the present epoch, in steps. The group may change
        meanwhile; ``take_target`` follows."""
        epoch, former = self.epoch, dict(self._target)
        assignable = {t: own for t, own in self.topics.initialized.items() if own}
        subscribers: list[Subscriber] = []
        counts: dict[TopicId, int] = {}
        for number, member in enumerate(tuple(self.members.values())):
            topic_ids = []
            for name in sorted(member.metadata.topic_names):
                topic = self._known_topics.topic(name)
                if topic is not None and topic.topic_id in assignable:
                    topic_ids.append(topic.topic_id)
                    counts[topic.topic_id] = topic.partition_count
            subscribers.append(Subscriber(member.member_id, None, tuple(topic_ids)))
            if not number % MEMBERS_IN_A_STEP:
                yield
        target = yield from assign_simply(Assigning(subscribers, counts, former), assignable)
        return NewShareTarget(epoch, target)

    def take_target(self, new: NewShareTarget, now_wall_ms: int) -> list[LogRecord]:
        """Take a target assignment that was made. Members that have left meanwhile are left out."""
        if new.epoch <= self.target_epoch:
            return []
        before = self._target
        self._target = {each: own for each, own in new.target.items() if each in self.members}
        self.target_epoch = new.epoch
        records = [
            log_format.target_record(self.group_id, member_id, own)
            for member_id, own in self._target.items()
            if own != before.get(member_id, NO_PARTITIONS)
        ]
        return [*records, log_format.target_epoch_record(self.group_id, new.epoch, now_wall_ms)]

    def _next_epoch(self) -> list[LogRecord]:
        self._metadata_hash = topics_hash(self._known_topics, self.subscribed_topics())
        self.epoch += 1
        return [self._epoch_record()]

    def _epoch_record(self) -> LogRecord:
        return log_format.group_record(self.group_id, self.epoch, self._metadata_hash)

    # -- offsets ---------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        tps: Iterable[TopicPartition],
        *,
        in_transaction: bool = False,
    ) -> int:
        """Refuse a commit: a share group has no committed offsets."""
        return errors_pb2.GROUP_ID_NOT_FOUND
