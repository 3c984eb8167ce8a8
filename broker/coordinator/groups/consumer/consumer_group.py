"""``ConsumerGroup``: the state machine of a group of the consumer protocol (KIP-848).

There are three epochs. The *group epoch* grows with every change of members, subscriptions or
topics. The *target assignment* is made for a group epoch, and says what each member is to have. A
*member epoch* is the epoch of the target assignment that the member has come to; it grows when the
member has given up what it is not to keep. The following rules hold, in whatever order events
arrive:

- A partition has one owner, from when the coordinator gives it to a member until that member says
  that it has given it up, leaves, or is removed.
- Epochs never go back. A member in another epoch than the coordinator knows must join again.
- A member is told of nothing before it is in the log.

What changes something returns the records that say so. The shell writes them in order, and answers
when they are in the log.
"""

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Final

from quorate.broker.coordinator.groups.consumer import consumer_log_format as log_format
from quorate.broker.coordinator.groups.consumer.classic_members import ClassicMembers
from quorate.broker.coordinator.groups.consumer.consumer_member import (
    NEVER_MS,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    CurrentAssignment,
)
from quorate.broker.coordinator.groups.consumer.heartbeat_messages import (
    HeartbeatAnswer,
    HeartbeatRequest,
)
from quorate.broker.coordinator.groups.consumer.reconciliation import (
    ReconciliationTarget,
    reconcile,
)
from quorate.broker.coordinator.shards.coordinator_records import LogRecord
from quorate.common.types import TopicId, TopicPartition
from quorate_proto.v1 import errors_pb2

_REMOVED_AT_ONCE: Final = 100


class ConsumerGroup(ClassicMembers):
    """One group. A heartbeat is ``subscribe``, then ``reconcile``."""

    # -- being a member --------------------------------------------------------------------------

    def reconcile(
        self,
        member: ConsumerMember,
        request: HeartbeatRequest,
        seen: CurrentAssignment,
        now_ms: int,
        *,
        has_changed: bool,
    ) -> tuple[HeartbeatAnswer, list[LogRecord]]:
        """Bring a member nearer to its target assignment; the second half of a heartbeat.

        ``seen`` is its assignment at the first half. If another heartbeat of the member came in
        between, what this one claims is old, and the member is only told what it has.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, the member was removed in between.
        """
        if self.members.get(member.member_id) is not member:
            raise self._unknown(f"member {member.member_id!r}")
        if member.current is not seen:
            current = member.current
            return HeartbeatAnswer(member.member_id, current.epoch, current.assigned), []
        records: list[LogRecord] = []
        if has_changed or not seen.is_reconciled_to(self.target_epoch):
            target = self._target_for(member)
            after = reconcile(seen, target, request.claimed, subscription_changed=has_changed)
            if after != seen:
                self.members.assign(member, after)
                self._set_revocation(member, now_ms)
                records.append(log_format.current_record(self.group_id, member.member_id, after))
        current = member.current
        # A member in an earlier epoch has not had the answer that told it of its partitions.
        missed_answer = request.member_epoch != seen.epoch
        has_news = missed_answer or current.assigned != seen.assigned
        tells = request.joins or request.is_full or has_news
        assigned = current.assigned if tells else None
        return HeartbeatAnswer(member.member_id, current.epoch, assigned), records

    def require_present(self, member: ConsumerMember) -> None:
        """Check that a member is still one, when what it was to be told is in the log at last.

        The log may have taken so long that the member was removed meanwhile, and others have its
        partitions.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        if self.members.get(member.member_id) is not member:
            raise self._unknown(f"member {member.member_id!r}")

    def _target_for(self, member: ConsumerMember) -> ReconciliationTarget:
        names = self.regexes.topics_of(member.metadata)

        def is_subscribed(topic_id: TopicId) -> bool:
            return self._topics.topic_name(topic_id) in names

        return ReconciliationTarget(
            self.target_epoch,
            self.target_of(member.member_id),
            is_subscribed,
            partial(self._is_free, member.member_id),
        )

    def _is_free(self, member_id: str, topic_id: TopicId, partition: int) -> bool:
        return self.members.owner(topic_id, partition) in (None, member_id)

    def leave(self, request: HeartbeatRequest) -> list[LogRecord]:
        """Remove a member that leaves. A static member may leave for a while: it keeps its
        partitions until its session ends.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if request.instance_id is not None:
            member = self.static_member(request.instance_id, request.member_id)
        else:
            found = self.members.get(request.member_id)
            if found is None:
                raise self._unknown(f"member {request.member_id!r}")
            member = found
        if request.member_epoch != STATIC_LEAVING_EPOCH:
            return self._remove_all([member])
        current = member.current.left_for_a_while()
        self.members.assign(member, current)
        member.act_by(NEVER_MS)
        return [log_format.current_record(self.group_id, member.member_id, current)]

    def expire(self, now_ms: int) -> list[LogRecord]:
        """Remove members that are silent, or have not given up partitions in time.

        The shell calls this when ``next_deadline_ms`` is reached. If very many members die
        together, it removes some of them, and the others at the next call.
        """
        late = (member for member in self.members if member.deadline_ms <= now_ms)
        records = self._remove_all([*islice(late, _REMOVED_AT_ONCE)])
        self._look_ahead(now_ms)
        return records

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
        """Check that a member may commit offsets of these partitions; return an error code.

        A member that does not know its newest epoch yet may commit for partitions that it has had
        since before (KIP-1251). Any client may commit while there are no members.
        """
        if member_epoch < 0 and self.is_empty:
            return errors_pb2.NONE
        if in_transaction and member_epoch < 0 and not member_id and instance_id is None:
            return errors_pb2.NONE
        member = self.members.get(member_id)
        if member is None:
            return errors_pb2.UNKNOWN_MEMBER_ID
        current = member.current
        if member_epoch == current.epoch:
            return errors_pb2.NONE
        has_them = member_epoch < current.epoch and all(
            self._has_since(current, tp, member_epoch) for tp in tps
        )
        return errors_pb2.NONE if has_them else _in_another_epoch(member)

    def is_classic(self, member_id: str) -> bool:
        """Return whether that is a member of the classic protocol."""
        member = self.members.get(member_id)
        return member is not None and member.is_classic

    def check_fetch(self, member_id: str | None, member_epoch: int) -> int:
        """Check that offsets may be fetched; return an error code. A client that names no member
        is not checked."""
        if member_id is None and member_epoch < 0:
            return errors_pb2.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return errors_pb2.UNKNOWN_MEMBER_ID
        is_current = member_epoch == member.current.epoch
        return errors_pb2.NONE if is_current else _in_another_epoch(member)

    def _has_since(self, current: CurrentAssignment, tp: TopicPartition, epoch: int) -> bool:
        topic = self._topics.topic(tp.topic)
        if topic is None:
            return False
        since = current.assignment_epoch(topic.topic_id, tp.partition)
        return since is not None and since <= epoch


def _in_another_epoch(member: ConsumerMember) -> int:
    """Return the error code that the client of the member understands."""
    return errors_pb2.ILLEGAL_GENERATION if member.is_classic else errors_pb2.STALE_MEMBER_EPOCH
