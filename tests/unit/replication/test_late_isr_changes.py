"""An ISR change that comes late, when what it was decided on is over (C1, C15, rule 5).

Only the compare-and-set stands between it and the loss of what was acknowledged.
Sessions end what a dead leader sent, sequences what it sent twice, broker epochs what it knew of
an earlier incarnation. In these interleavings all of them let the change pass.
"""

import pytest

from quorate.broker.replication.partition.effects import ProposeIsr
from quorate.broker.replication.partition.partition_replica import ISR_RETRY_BACKOFF_MS
from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.metadata_log.records import (
    IsrChange,
    Operation,
    OperationResult,
    PartitionChange,
    ResultCode,
)
from tests.support.metadata import MetadataLogBuilder, session_of, topic_id_of
from tests.support.replica import LAG_TIME_MAX_MS, ReplicaUnderTest, ids

TP = TopicPartition("orders", 0)

OTHER_WORK = 1
"""Sequence of a transaction that broker 1 still waits for, so that nothing after it is settled."""


class LeaderAndQuorum:
    """Broker 1 leads with 2 in sync; 3 has caught up at offset 10, and is about to join."""

    def __init__(self) -> None:
        self.log = log = MetadataLogBuilder()
        for broker_id in (1, 2, 3):
            log.start_broker(broker_id)
        log.elect_controller(2)
        log.create_topic("orders", (1, 2, 3))
        self.leader = leader = ReplicaUnderTest()
        leader.lead()
        self._sequence = OTHER_WORK
        self._durable = {2: 10, 3: 0}
        leader.flush(10)
        self.fetch(2, 10)
        leader.tick_at(LAG_TIME_MAX_MS + 1)
        assert self.write(leader.proposal).ok
        leader.commit_isr()
        assert self.isr == leader.isr == (1, 2)
        self.fetch(3, 10)
        assert leader.proposed == (1, 2, 3)

    @property
    def isr(self) -> tuple[int, ...]:
        partition = self.log.image.partition(TP)
        assert partition is not None
        return tuple(partition.isr)

    def fetch(self, broker_id: int, flushed_offset: int) -> None:
        """A follower, in the incarnation that the quorum knows, is durable so far."""
        self._durable[broker_id] = flushed_offset
        epoch = self.log.image.brokers[BrokerId(broker_id)].epoch
        self.leader.fetch(broker_id, flushed_offset, broker_epoch=epoch)

    def write(self, proposal: ProposeIsr) -> OperationResult:
        """The proposal reaches the quorum, now, in the leader's session."""
        self._sequence += 1
        record = IsrChange(
            topic=TP.topic,
            topic_id=topic_id_of(TP.topic),
            partition=TP.partition,
            expected_version=proposal.expected_version,
            leader=BrokerId(1),
            leader_broker_epoch=self.log.image.brokers[BrokerId(1)].epoch,
            leader_epoch=proposal.leader_epoch,
            isr=proposal.members,
        )
        result = self.log.transact(
            Operation(records=(record,)),
            client_id=session_of(1),
            sequence=self._sequence,
            low_water=OTHER_WORK,
        )
        return result.results[0]

    def append_and_commit(self, end: int) -> None:
        """With broker 2 alone; acknowledged to producers when it returns."""
        self.leader.flush(end)
        self.fetch(2, end)
        assert self.leader.high_watermark == end

    def without_what_was_acknowledged(self) -> list[int]:
        """Members of the ISR that would lose it if they were elected."""
        committed = self.leader.high_watermark
        return [one for one in self.isr if one != 1 and self._durable[one] < committed]


@pytest.fixture
def cluster() -> LeaderAndQuorum:
    return LeaderAndQuorum()


def test_c1_a_change_that_its_leader_gave_up_and_replaced_comes_last(
    cluster: LeaderAndQuorum,
) -> None:
    """One leader, one epoch, the same incarnations: the version alone tells that it is over."""
    leader = cluster.leader
    stuck = leader.proposal
    leader.lose_isr_answer()
    leader.flush(20)
    cluster.fetch(2, 20)
    leader.tick_at(leader.now_ms + ISR_RETRY_BACKOFF_MS + LAG_TIME_MAX_MS)
    assert leader.high_watermark == 10, "the change may have been applied: 3 counts"
    settled = leader.proposal
    assert leader.proposed == (1, 2)
    assert (settled.expected_version, settled.leader_epoch) == (
        stuck.expected_version,
        stuck.leader_epoch,
    )
    assert cluster.write(settled).ok
    leader.commit_isr()
    cluster.append_and_commit(30)
    assert cluster.write(stuck).code is ResultCode.VERSION_CONFLICT
    assert cluster.isr == (1, 2)
    assert not cluster.without_what_was_acknowledged()


def test_c15_a_change_of_an_earlier_leader_epoch_comes_after_the_controllers(
    cluster: LeaderAndQuorum,
) -> None:
    """The same broker leads on in the next epoch, and counts on nothing of the last one."""
    leader, stuck = cluster.leader, cluster.leader.proposal
    image = cluster.log.image
    partition = image.partition(TP)
    assert partition is not None
    by_controller = PartitionChange(
        topic=TP.topic,
        topic_id=topic_id_of(TP.topic),
        partition=TP.partition,
        expected_version=partition.version,
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(1),
        isr=ids(1, 2),
        controller_id=image.controller_id,
        controller_epoch=image.controller_epoch,
    )
    assert cluster.log.write_as_controller(by_controller).ok
    leader.lead(epoch=1, isr=(1, 2), version=partition.version + 1)
    cluster.append_and_commit(20)
    assert cluster.write(stuck).code is ResultCode.FENCED_LEADER_EPOCH
    assert cluster.isr == (1, 2)
    assert not cluster.without_what_was_acknowledged()
