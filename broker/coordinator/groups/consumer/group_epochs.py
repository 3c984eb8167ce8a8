"""The data of a consumer group that all its operations share, and the group epoch."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from quorate.broker.coordinator.groups.consumer import consumer_log_format as log_format
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    NEVER_MS,
    ConsumerMember,
    MemberState,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.group_members import GroupMembers
from quorate.broker.coordinator.groups.consumer.group_topics import (
    ResolvedRegexes,
    Topics,
    topics_hash,
)
from quorate.broker.coordinator.shards.coordinator_records import LogRecord

_MEMBERS_PER_MS: Final = 100
"""A large group checks all its members at most once in a number of milliseconds, one for each 100
members, as a classic group does."""


class ConsumerGroupState(StrEnum):
    """The states of a consumer group, under the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroupLimits(NamedTuple):
    """The limits of a group. ``assignment_interval_ms`` is the least time between two target
    assignments (KIP-1263)."""

    max_members: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class GroupEpochs:
    """The state of one group; ``Subscribing``, ``Targeting`` and ``ConsumerGroup`` add the
    operations."""

    protocol_type: Final = "consumer"

    def __init__(self, group_id: str, limits: ConsumerGroupLimits, topics: Topics) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.members = GroupMembers(group_id)
        self.regexes = ResolvedRegexes()
        self.limits = limits
        self._topics = topics
        self._target: dict[str, Partitions] = {}
        self._metadata_hash = 0
        self._hashed_names: frozenset[str] | None = None
        """The topics that the hash was made of; None if it must be made anew."""
        self._replacements = 0
        """How many static members came back under another member id."""
        self._has_topics_record = False
        self.next_deadline_ms = NEVER_MS
        """The time before which ``expire`` has nothing to do. It may be too early, and too late by
        one millisecond, or by one for each ``_MEMBERS_PER_MS`` members."""

    def configure(self, limits: ConsumerGroupLimits) -> None:
        """Take other limits. A session timeout holds from the next heartbeat of a member on."""
        self.limits = limits

    # -- restoring -------------------------------------------------------------------------------

    def restore_epochs(self, epoch: int, metadata_hash: int, target_epoch: int) -> None:
        """Take the epochs that the log has. Topics may have changed since."""
        self.epoch, self._metadata_hash, self.target_epoch = epoch, metadata_hash, target_epoch

    def restore_member(self, member: ConsumerMember, now_ms: int) -> None:
        """Take a member that the log has; it is not known whether it is still alive.

        Raises:
            BrokenInvariant: it owns what another member owns.
        """
        self.members.add(member)
        self._set_session(member, now_ms)
        self._set_revocation(member, now_ms)

    def restore_target(self, member_id: str, partitions: Partitions) -> None:
        """Take the target assignment of a member that the log has."""
        self._target[member_id] = partitions

    def restore_topics_record(self) -> None:
        """Remember that the log has the record that Kafka 4.0 wrote, to remove it."""
        self._has_topics_record = True

    # -- looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """How far the group is on the way to what its members ask for."""
        if not len(self.members):
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if not self.members.all_stable_at(self.target_epoch):
            return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no members, so that it may be deleted."""
        return not len(self.members)

    @property
    def is_unused(self) -> bool:
        """Return the same as ``is_empty``; of classic groups, member ids may be pending."""
        return self.is_empty

    @property
    def needs_target(self) -> bool:
        """Return whether there are members whose target assignment is older than the group
        epoch."""
        return self.epoch > self.target_epoch and not self.is_empty

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that members are subscribed to, by name or by expression."""
        return frozenset({*self.members.topic_names, *self.regexes.all_topics()})

    def subscribes_to(self, names: Iterable[str]) -> bool:
        """Return whether members are subscribed to one of these topics."""
        by_name, by_regex = self.members.topic_names, self.regexes
        return any(name in by_name or by_regex.matches(name) for name in names)

    def target_of(self, member_id: str) -> Partitions:
        """Return the target assignment of a member; empty while it has none."""
        return self._target.get(member_id, {})

    def all_records(self) -> list[LogRecord]:
        """Return the records of the whole group, for a log that has none of it yet."""
        group_id = self.group_id
        epoch = log_format.GroupEpoch(self.epoch, self._metadata_hash)
        records = [log_format.group_record(group_id, epoch)]
        for member in self.members:
            about, target = member.member_id, self.target_of(member.member_id)
            records.append(log_format.member_record(group_id, about, member.metadata))
            if target:
                records.append(log_format.target_record(group_id, about, target))
            records.append(log_format.current_record(group_id, about, member.current))
        target_epoch = log_format.TargetEpoch(self.target_epoch, 0)
        return [*records, log_format.target_epoch_record(group_id, target_epoch)]

    def all_tombstones(self) -> list[LogRecord]:
        """Return the records that remove the whole group from the log; its offsets stay."""
        records = log_format.group_tombstones(self.group_id)
        for member in self.members:
            records += log_format.member_tombstones(self.group_id, member.member_id)
        for regex in self.regexes:
            records.append(log_format.regex_tombstone(self.group_id, regex))
        return records

    # -- epochs ----------------------------------------------------------------------------------

    def topics_changed(self) -> list[LogRecord]:
        """Begin another group epoch if topics that members subscribe to were created, deleted or
        have grown."""
        self._hashed_names = None
        return self._next_epoch() if self._update_hash() else []

    def _next_epoch(self) -> list[LogRecord]:
        """Begin another group epoch, because members, subscriptions or topics have changed."""
        self._update_hash()
        self.epoch += 1
        epoch = log_format.GroupEpoch(self.epoch, self._metadata_hash)
        records = [log_format.group_record(self.group_id, epoch)]
        if self._has_topics_record:
            self._has_topics_record = False
            records.append(log_format.topics_tombstone(self.group_id))
        return records

    def _update_hash(self) -> bool:
        """Take the present topics into account, and return whether they are not those of the group
        epoch."""
        names = self.subscribed_topics()
        if names == self._hashed_names:
            return False
        before, self._metadata_hash = self._metadata_hash, topics_hash(self._topics, names)
        self._hashed_names = names
        return before != self._metadata_hash

    def _set_session(self, member: ConsumerMember, now_ms: int) -> None:
        classic = member.metadata.classic
        timeout_ms = self.limits.session_timeout_ms
        member.expire_at(now_ms + (timeout_ms if classic is None else classic.session_timeout_ms))
        self._wake_by(member.session_deadline_ms)

    def _set_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        """Let the member give partitions up within its rebalance timeout, if it has to.

        A member of the classic protocol does so by joining again, as soon as it is told to.
        """
        if member.is_classic:
            return
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            self._must_act(member, now_ms)
        else:
            member.act_by(NEVER_MS)

    def _must_act(self, member: ConsumerMember, now_ms: int) -> None:
        """Let the member do its next step within its rebalance timeout."""
        member.act_by(now_ms + member.metadata.rebalance_timeout_ms)
        self._wake_by(member.rebalance_deadline_ms)

    def _wake_by(self, deadline_ms: int) -> None:
        self.next_deadline_ms = min(self.next_deadline_ms, deadline_ms)

    def _look_ahead(self, now_ms: int) -> None:
        next_ms = min((member.deadline_ms for member in self.members), default=NEVER_MS)
        pause_ms = max(1, len(self.members) // _MEMBERS_PER_MS)
        self.next_deadline_ms = max(next_ms, now_ms + pause_ms) if next_ms < NEVER_MS else NEVER_MS

    def _remove_all(self, members: Iterable[ConsumerMember]) -> list[LogRecord]:
        """Remove members; their partitions are free. The next group epoch leaves them out."""
        records: list[LogRecord] = []
        for member in members:
            self.members.remove(member)
            self._target.pop(member.member_id, None)
            records += log_format.member_tombstones(self.group_id, member.member_id)
            records += self._forget_regex(member.metadata.topic_regex)
        return [*records, *self._next_epoch()] if records else []

    def _forget_regex(self, regex: str) -> list[LogRecord]:
        """Forget a regular expression if nobody subscribes to it any more."""
        if not regex or regex in self.members.topic_regexes:
            return []
        self.regexes.forget(regex)
        return [log_format.regex_tombstone(self.group_id, regex)]
