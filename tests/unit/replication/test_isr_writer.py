"""ISR changes on their way to the quorum: coalesced, each with its own result (C1, C13, rule 5)."""

from collections.abc import Sequence

import pytest

from quorate.broker.replication.partition.effects import ReplicaRole
from quorate.common.types import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset
from quorate.metadata_log.image import Image
from quorate.metadata_log.records import (
    IsrChange,
    Operation,
    OperationResult,
    PartitionChange,
    ResultCode,
    TransactionResult,
)
from quorate.quorum.quorum_errors import (
    OutcomeUnknown,
    QuorumUnavailable,
    SessionLost,
    TransactionTooLarge,
)
from tests.support.broker_replicas import BrokerReplicas, tip_of
from tests.support.metadata import MetadataLogBuilder
from tests.unit.replication.test_produce import settle

TOPICS = ("orders", "bills", "carts")


class ScriptedQuorum:
    """Answers each operation with the next code of the script; OK once the script is over."""

    def __init__(self, *script: ResultCode | Exception) -> None:
        self.script = list(script)
        self.transactions: list[list[IsrChange]] = []

    async def transact(
        self, operations: Sequence[Operation], *, atomic: bool = True, timeout_ms: int = 30_000
    ) -> TransactionResult:
        assert not atomic, "each change stands alone"
        changes = [record for op in operations for record in op.records]
        self.transactions.append([c for c in changes if isinstance(c, IsrChange)])
        results = []
        for change in self.transactions[-1]:
            answer = self.script.pop(0) if self.script else ResultCode.OK
            if isinstance(answer, Exception):
                raise answer
            results.append(OperationResult(code=answer, version=change.expected_version + 1))
        return TransactionResult(offset=MetadataOffset(1), results=tuple(results))


class FixedImage:
    """A metadata follower that is never behind."""

    def __init__(self, image: Image) -> None:
        self.image = image

    async def wait_for(self, offset: MetadataOffset) -> Image:
        return self.image


def connect(broker: BrokerReplicas, quorum: ScriptedQuorum, image: Image | None = None) -> None:
    writer = broker.manager._isr_manager
    writer._quorum = quorum
    writer._metadata = FixedImage(image or Image())


async def lead_alone(broker: BrokerReplicas, *topics: str) -> None:
    for topic in topics:
        await broker.lead(topic, isr=(1,), replicas=(1, 2))


def catch_up(broker: BrokerReplicas, *topics: str) -> None:
    """Broker 2 reaches the end of each topic's log."""
    stream = broker.follower(2)
    for topic in topics:
        stream.send(topic, broker_epoch=42)


async def test_c13_changes_of_many_partitions_share_one_transaction(
    broker: BrokerReplicas,
) -> None:
    quorum = ScriptedQuorum()
    connect(broker, quorum)
    await lead_alone(broker, *TOPICS)
    catch_up(broker, *TOPICS)
    await settle()
    (changes,) = quorum.transactions
    assert [change.topic for change in changes] == list(TOPICS)
    assert changes[0].leader_broker_epoch == BrokerEpoch(5)
    assert [(m.broker_id, m.broker_epoch) for m in changes[0].isr][1] == (2, 42)
    assert all(broker.hosted(topic).replica.isr.committed == (1, 2) for topic in TOPICS)


async def test_c13_each_change_has_its_own_result(broker: BrokerReplicas) -> None:
    connect(broker, ScriptedQuorum(ResultCode.OK, ResultCode.INELIGIBLE_REPLICA, ResultCode.OK))
    await lead_alone(broker, *TOPICS)
    catch_up(broker, *TOPICS)
    await settle()
    isrs = [broker.hosted(topic).replica.isr for topic in TOPICS]
    assert [isr.committed for isr in isrs] == [(1, 2), (1,), (1, 2)]
    assert isrs[1].in_flight is None
    assert not isrs[1].unsettled


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("lost"), SessionLost("expired"), QuorumUnavailable("nobody")]
)
async def test_c1_without_an_answer_the_outcome_is_unknown(
    broker: BrokerReplicas, error: Exception
) -> None:
    connect(broker, ScriptedQuorum(error))
    await lead_alone(broker, "orders")
    catch_up(broker, "orders")
    await settle()
    isr = broker.hosted("orders").replica.isr
    assert isr.unsettled == {1, 2}
    assert isr.committed == (1,)
    broker.now_ms = 1_000
    broker.manager.table.tick()
    await settle()
    assert broker.hosted("orders").replica.isr.committed == (1, 2)


async def test_c13_a_transaction_that_is_too_large_is_split(broker: BrokerReplicas) -> None:
    quorum = ScriptedQuorum(TransactionTooLarge("over 1 MiB"))
    connect(broker, quorum)
    await lead_alone(broker, *TOPICS)
    catch_up(broker, *TOPICS)
    await settle()
    assert [len(changes) for changes in quorum.transactions] == [3, 1, 2]
    assert all(broker.hosted(topic).replica.isr.committed == (1, 2) for topic in TOPICS)


def image_with(leader: int, epochs: int) -> Image:
    """``orders-0`` led by 1 in epoch 0, and then ``epochs`` epochs later by ``leader``."""
    builder = MetadataLogBuilder()
    for broker_id in (1, 2):
        builder.start_broker(broker_id)
    builder.elect_controller(2)
    builder.create_topic("orders", (1, 2))
    for _ in range(epochs):
        before = builder.image.topics["orders"].partitions[0]
        builder.write_as_controller(
            PartitionChange(
                topic="orders",
                topic_id=tip_of("orders").topic_id,
                partition=0,
                expected_version=before.version,
                leader=BrokerId(leader),
                leader_epoch=LeaderEpoch(before.leader_epoch + 1),
                isr=before.isr,
                controller_id=BrokerId(2),
                controller_epoch=builder.image.controller_epoch,
            )
        )
    return builder.image


async def test_c15_a_conflict_with_a_newer_epoch_ends_the_leadership(
    broker: BrokerReplicas,
) -> None:
    connect(broker, ScriptedQuorum(ResultCode.FENCED_LEADER_EPOCH), image_with(2, epochs=1))
    await lead_alone(broker, "orders")
    catch_up(broker, "orders")
    await settle()
    replica = broker.hosted("orders").replica
    assert replica.role is ReplicaRole.SUSPENDED
    assert replica.leader_epoch == LeaderEpoch(0)


async def test_c1_a_conflict_in_the_same_epoch_is_retried_from_the_fresh_read(
    broker: BrokerReplicas,
) -> None:
    quorum = ScriptedQuorum(ResultCode.VERSION_CONFLICT)
    connect(broker, quorum, image_with(1, epochs=1))
    await broker.lead("orders", isr=(1,), replicas=(1, 2), epoch=1, version=0)
    assert broker.hosted("orders").tip == tip_of("orders")
    broker.follower(2).send("orders", epoch=1)
    await settle()
    replica = broker.hosted("orders").replica
    assert replica.role is ReplicaRole.LEADER
    assert replica.isr.version == 1
    assert replica.isr.committed == (BrokerId(1), BrokerId(2))


async def test_rule_9_nothing_is_written_while_this_broker_is_not_registered(
    broker: BrokerReplicas,
) -> None:
    quorum = ScriptedQuorum()
    connect(broker, quorum)
    broker.identity.unregister()
    await lead_alone(broker, "orders")
    catch_up(broker, "orders")
    await settle()
    assert not quorum.transactions
    assert broker.hosted("orders").replica.isr.in_flight is None, "it tries again later"
