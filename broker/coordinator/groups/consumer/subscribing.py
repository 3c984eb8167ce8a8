"""Joining a consumer group and subscribing to topics: what a heartbeat changes in the group."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.broker.common.errors import KafkaError
from quorate.broker.common.regular_expressions import compiled_regex
from quorate.broker.coordinator.groups.consumer import consumer_log_format as log_format
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
    Owned,
    Partitions,
)
from quorate.broker.coordinator.groups.consumer.group_epochs import GroupEpochs
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import HeartbeatRequest
from quorate.broker.coordinator.groups.consumer.regular_expressions import (
    ResolvedRegex,
)
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate_proto.v1 import errors_pb2

_REGEX_BYTES_MAX: Final = 512 << 10
"""The largest record with the topics that match a regular expression; well below the limit of a
batch in __consumer_offsets."""

_NOTHING_SAID: Final = MemberMetadata(None, None, "", "", frozenset(), "", -1, None)


class Subscribed(NamedTuple):
    """The result of the first half of a heartbeat.

    ``has_changed`` says whether the member subscribes to something else than before.
    ``group_epoch`` is the epoch that the heartbeat began, or None if it began none.
    """

    member: ConsumerMember
    records: list[LogRecord]
    has_changed: bool
    group_epoch: int | None


class Subscribing(GroupEpochs):
    """The part of a group that takes in members and their subscriptions."""

    def subscribe(self, request: HeartbeatRequest, now_ms: int) -> Subscribed:
        """Take a heartbeat: let the member in if it is new, and take what it says of itself.

        Raises:
            KafkaError: the member is refused, and nothing has changed.
        """
        present, follows = self._member_of(request)
        before = follows or present
        known = _NOTHING_SAID if before is None else before.metadata
        metadata = request.metadata_after(known)
        self._check_new_regex(metadata.topic_regex)
        records: list[LogRecord] = []
        if present is not None:
            member = present
        elif follows is not None:
            member, records = self._replace(follows, request.member_id)
        else:
            member = ConsumerMember(request.member_id, known, CurrentAssignment())
            self.members.add(member)
        if before is None or metadata != known:
            self.members.describe(member, metadata)
            records.append(log_format.member_record(self.group_id, member.member_id, metadata))
            if (metadata.classic is None) != (known.classic is None):
                self._set_revocation(member, now_ms)
        regex_changed = metadata.topic_regex != known.topic_regex
        if regex_changed:
            records += self._forget_regex(known.topic_regex)
        names_changed = metadata.topic_names != known.topic_names
        # What a new expression matches is found out first, and that begins the next epoch.
        is_resolved = not metadata.topic_regex or metadata.topic_regex in self.regexes
        group_epoch = None
        if before is None or names_changed or (regex_changed and is_resolved):
            records += self._next_epoch()
            group_epoch = self.epoch
        self._set_session(member, now_ms)
        return Subscribed(member, records, names_changed or regex_changed, group_epoch)

    def _member_of(
        self, request: HeartbeatRequest
    ) -> tuple[ConsumerMember | None, ConsumerMember | None]:
        """Return the member that sent the heartbeat, or the static member whose place it takes.

        Both are None for a new member.
        """
        if len(self.members) >= self.limits.max_members and request.member_id not in self.members:
            raise KafkaError(
                errors_pb2.GROUP_MAX_SIZE_REACHED,
                f"group {self.group_id!r} has {len(self.members)} members: "
                f"{self.limits.max_members} at most (group.consumer.max.size)",
            )
        if request.instance_id is not None:
            return self._static_member_of(request, request.instance_id)
        member = self.members.get(request.member_id)
        if member is None and not request.joins:
            raise self._unknown(f"member {request.member_id!r}")
        if member is not None:
            self._check_epoch(member, request)
        return member, None

    def _static_member_of(
        self, request: HeartbeatRequest, instance_id: str
    ) -> tuple[ConsumerMember | None, ConsumerMember | None]:
        static = self.members.static(instance_id)
        if not request.joins:
            static = self.static_member(instance_id, request.member_id)
            self._check_epoch(static, request)
            return static, None
        if static is None:
            return self.members.get(request.member_id), None
        if static.member_id == request.member_id:
            if static.current.epoch == STATIC_LEAVING_EPOCH:
                return None, static
            return static, None  # The answer to its first join was lost.
        # A process of the classic protocol does not say that it leaves for a while.
        says_it_leaves = not static.is_classic and request.classic is None
        if says_it_leaves and static.current.epoch != STATIC_LEAVING_EPOCH:
            raise KafkaError(
                errors_pb2.UNRELEASED_INSTANCE_ID,
                f"instance id {instance_id!r} is in use by member {static.member_id!r}",
            )
        return None, static

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """Return the static member with that instance id, which must have that member id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        static = self.members.static(instance_id)
        if static is None:
            raise self._unknown(f"instance id {instance_id!r}")
        if static.member_id != member_id:
            raise KafkaError(
                errors_pb2.FENCED_INSTANCE_ID,
                f"instance id {instance_id!r} is in use by member {static.member_id!r}, which came "
                f"after {member_id!r}",
            )
        return static

    def _check_epoch(self, member: ConsumerMember, request: HeartbeatRequest) -> None:
        """Check that the member is in the epoch that it was told last, or in the one before if that
        answer may have been lost.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH.
        """
        said, current = request.member_epoch, member.current
        if said in (JOINING_EPOCH, current.epoch):
            return
        missed_one = said == current.previous_epoch and said < current.epoch
        if missed_one and _is_part(request.claimed, current.assigned):
            return
        raise KafkaError(
            errors_pb2.FENCED_MEMBER_EPOCH,
            f"member {member.member_id!r} is in epoch {said}, and should be in {current.epoch}: "
            "it must give up all its partitions and join again",
        )

    def _check_new_regex(self, regex: str) -> None:
        if regex and regex not in self.members.topic_regexes:
            compiled_regex(regex)

    def _replace(
        self, former: ConsumerMember, member_id: str
    ) -> tuple[ConsumerMember, list[LogRecord]]:
        """Give the place of a static member that has left for a while to the one that came back."""
        current = former.current._replace(epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        member = ConsumerMember(member_id, former.metadata, current)
        self.members.remove(former)
        self.members.add(member)
        target = self._target.pop(former.member_id, {})
        self._target[member_id] = target
        self._replacements += 1
        return member, [
            *log_format.member_tombstones(self.group_id, former.member_id),
            log_format.member_record(self.group_id, member_id, member.metadata),
            log_format.target_record(self.group_id, member_id, target),
            log_format.current_record(self.group_id, member_id, current),
        ]

    def _unknown(self, who: str) -> KafkaError:
        return KafkaError(
            errors_pb2.UNKNOWN_MEMBER_ID, f"{who} is not in group {self.group_id!r}: join again"
        )

    # -- regular expressions -----------------------------------------------------------------------

    @property
    def unresolved_regexes(self) -> list[str]:
        """The regular expressions whose topics are not known yet."""
        return [regex for regex in self.members.topic_regexes if regex not in self.regexes]

    def take_resolved(self, resolved: Mapping[str, ResolvedRegex]) -> list[LogRecord]:
        """Take the topics that regular expressions match; another epoch begins if they are others
        than before."""
        records: list[LogRecord] = []
        has_changed = False
        for regex, found in resolved.items():
            if regex not in self.members.topic_regexes:
                continue
            has_changed |= regex not in self.regexes or self.regexes.topics(regex) != found.topics
            self.regexes.put(regex, found)
            record = log_format.regex_record(self.group_id, regex, found)
            # What is too large for the log is found out again by the next coordinator.
            fits = record.size <= _REGEX_BYTES_MAX
            records.append(record if fits else log_format.regex_tombstone(self.group_id, regex))
        return [*records, *self._next_epoch()] if has_changed else records


def _is_part(claimed: Partitions | None, assigned: Owned) -> bool:
    """Return whether all partitions that a member claims are assigned to it."""
    return claimed is not None and all(
        own <= assigned.get(topic_id, {}).keys() for topic_id, own in claimed.items()
    )
