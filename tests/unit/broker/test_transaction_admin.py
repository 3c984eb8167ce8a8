"""What a broker answers over gRPC about transactions: those it coordinates, those in its logs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from quorate.broker.admin.transaction_admin import TransactionAdmin
from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from quorate.broker.coordinator.transactions.transaction_shard import TransactionShard
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.record_batch import TRANSACTIONAL
from quorate.broker.replication.api import ACKS_LEADER, ProduceEntry
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.common.acl_types import AclOperation, ResourceType
from quorate.common.types import TopicPartition
from quorate_proto.v1 import admin_pb2, errors_pb2
from tests.support.acls import acl, log_with
from tests.support.broker_replicas import BrokerReplicas
from tests.support.followers import ShownImage
from tests.support.kafka_fakes import FakeMarkers, FakeOffsetsLog
from tests.support.log_stores import batch
from tests.unit.replication.test_produce import settle

TP = TopicPartition("orders", 0)
WALL_MS = 1_000_000
ALICE = admin_pb2.RequestContext(principal_name="User:alice", client_host="h", forwarded_by=-1)


class CountedIds(ProducerIds):
    def __init__(self) -> None:
        self._last = 100

    async def take(self) -> int:
        self._last += 1
        return self._last


class Broker:
    """Coordinates two partitions of __transaction_state, and leads one of a topic."""

    def __init__(self, replicas: BrokerReplicas, authorizer: Authorizer) -> None:
        self.replicas = replicas
        self.now_ms = WALL_MS
        self.coordinator = TransactionCoordinator(
            TransactionSettings(900_000, 10_000, 10_000_000, 10_000_000),
            partition_count=lambda topic: 2 if topic == TRANSACTIONS_TOPIC else 0,
            markers=FakeMarkers(),
            producer_ids=CountedIds(),
            wall_ms=lambda: self.now_ms,
            transaction_version=lambda: 0,
        )
        self.admin = TransactionAdmin(
            self.coordinator, replicas.manager, authorizer, lambda: self.now_ms
        )

    async def lead(self, *partitions: int) -> None:
        for partition in partitions:
            self.coordinator.lead(partition, FakeOffsetsLog())
        while self.coordinator.is_loading:
            await asyncio.sleep(0)

    def shard(self, name: str) -> TransactionShard:
        return self.coordinator.shard_of(name)

    async def begin(self, name: str, *partitions: int) -> ProducerEpoch:
        producer = await self.shard(name).init_producer(name, 60_000, None)
        tps = frozenset(TopicPartition("orders", number) for number in partitions)
        if tps:
            assert await self.shard(name).add_partitions(name, producer, tps) == 0
        return producer

    async def write(self, producer_id: int, *, epoch: int = 0, timestamp_ms: int = 1_000) -> None:
        """A batch of a transaction."""
        records = batch(
            producer=(producer_id, epoch, 0), timestamp_ms=timestamp_ms, attributes=TRANSACTIONAL
        )
        entry = ProduceEntry(TP, records, AppendOrigin.TRANSACTIONAL_CLIENT)
        sent = asyncio.ensure_future(self.replicas.manager.produce([entry], ACKS_LEADER, 10_000))
        await settle()
        self.replicas.store.flush()
        assert (await sent)[0].error_code == 0

    async def listed(self, **request: Any) -> admin_pb2.ListTransactionsResponse:  # noqa: ANN401 - fields
        return await self.admin.list_transactions(
            admin_pb2.ListTransactionsRequest(context=ALICE, **request)
        )

    async def producers(self, **request: Any) -> admin_pb2.DescribeProducersResponse:  # noqa: ANN401 - fields
        return await self.admin.describe_producers(
            admin_pb2.DescribeProducersRequest(context=ALICE, **request)
        )

    async def abort(self, **request: Any) -> admin_pb2.AbortTransactionResponse:  # noqa: ANN401 - fields
        aborting = asyncio.ensure_future(
            self.admin.abort_transaction(
                admin_pb2.AbortTransactionRequest(context=ALICE, **request)
            )
        )
        await settle()
        self.replicas.store.flush()
        return await aborting


def everything_allowed() -> Authorizer:
    return Authorizer(ShownImage(lambda: log_with().image), AuthorizerSettings())


@pytest.fixture
async def broker() -> AsyncIterator[BrokerReplicas]:
    broker = await BrokerReplicas().start()
    yield broker
    await broker.close()


@pytest.fixture
async def here(broker: BrokerReplicas) -> Broker:
    await broker.lead("orders", isr=(1,), replicas=(1,))
    found = Broker(broker, everything_allowed())
    await found.lead(0, 1)
    return found


def names(answer: admin_pb2.ListTransactionsResponse) -> list[str]:
    assert answer.error_code == 0
    return sorted(one.transactional_id for one in answer.transactions)


async def test_transactions_are_listed_with_what_is_known(here: Broker) -> None:
    producer = await here.begin("pay", 1, 0)
    here.now_ms += 5_000
    (one,) = (await here.listed()).transactions
    assert (one.transactional_id, one.state, one.timeout_ms) == ("pay", "Ongoing", 60_000)
    assert (one.producer_id, one.producer_epoch, one.open_ms) == (*producer, 5_000)
    assert [(tp.topic, tp.partition) for tp in one.partitions] == [("orders", 0), ("orders", 1)]


async def test_filters_leave_out_what_does_not_fit(here: Broker) -> None:
    idle = await here.begin("idle")
    await here.begin("pay", 0)
    here.now_ms += 5_000
    assert names(await here.listed()) == ["idle", "pay"]
    assert names(await here.listed(transactional_ids=["pay", "none"])) == ["pay"]
    assert names(await here.listed(producer_ids=[idle.producer_id])) == ["idle"]
    assert names(await here.listed(states=["ongoing"])) == ["pay"]
    assert names(await here.listed(open_for_ms=4_999)) == ["pay"]
    assert names(await here.listed(open_for_ms=5_000)) == []
    wrong = await here.listed(states=["Bored"])
    assert wrong.error_code == errors_pb2.INVALID_REQUEST
    assert "'Bored'" in wrong.error_message


async def test_it_says_for_which_partitions_it_can_tell(broker: BrokerReplicas) -> None:
    here = Broker(broker, everything_allowed())
    await here.lead(1)
    answer = await here.listed()
    assert (list(answer.coordinated), answer.partition_count) == ([1], 2)
    here.coordinator.lead(0, FakeOffsetsLog())
    assert list((await here.listed()).coordinated) == [1], "its log is being read"


async def test_producers_of_led_partitions_are_told(here: Broker) -> None:
    await here.write(7, epoch=2, timestamp_ms=WALL_MS - 3_000)
    (one,) = (await here.producers(with_open_transaction=True)).producers
    assert (one.topic, one.partition, one.producer_id, one.producer_epoch) == (*TP, 7, 2)
    assert (one.idle_ms, one.transaction_start_offset, one.coordinator_epoch) == (3_000, 0, -1)
    assert len((await here.producers(topic="orders", partitions=[0])).producers) == 1
    assert not (await here.producers(topic="orders", partitions=[1])).producers
    assert not (await here.producers(topic="other")).producers
    await here.replicas.command("orders", leader=2, epoch=1)
    assert not (await here.producers()).producers, "its leader tells"


async def test_what_hangs_is_aborted_where_it_begins(here: Broker) -> None:
    await here.write(7, epoch=2)
    place = {"topic": "orders", "partition": 0}
    elsewhere = await here.abort(**place, start_offset=5)
    assert elsewhere.error_code == errors_pb2.INVALID_TXN_STATE
    assert "open ones begin at [0]" in elsewhere.error_message
    aborted = await here.abort(**place, start_offset=0)
    assert (aborted.error_code, aborted.producer_id, aborted.producer_epoch) == (0, 7, 2)
    hosted = here.replicas.hosted("orders")
    assert not hosted.log.transactions.ongoing
    assert [one.producer_id for one in hosted.log.transactions.aborted(0, 1)] == [7]
    again = await here.abort(**place, start_offset=0)
    assert again.error_code == errors_pb2.INVALID_TXN_STATE


async def test_a_partition_that_is_led_elsewhere_is_not_aborted_here(here: Broker) -> None:
    await here.replicas.command("orders", leader=2, epoch=1)
    answer = await here.abort(topic="orders", partition=0, start_offset=0)
    assert answer.error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_an_open_transaction_is_aborted_by_its_name(here: Broker) -> None:
    producer = await here.begin("pay", 0)
    aborted = await here.abort(transactional_id="pay")
    assert (aborted.producer_id, aborted.producer_epoch) == producer
    unknown = await here.abort(transactional_id="other")
    assert unknown.error_code == errors_pb2.TRANSACTIONAL_ID_NOT_FOUND


async def test_f5_what_may_not_be_seen_is_counted_or_left_out(broker: BrokerReplicas) -> None:
    log = log_with(
        acl("User:alice", AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "pay"),
        acl("User:bob", AclOperation.ALL, ResourceType.TOPIC, "*"),
    )
    await broker.lead("orders", isr=(1,), replicas=(1,))
    authorizer = Authorizer(ShownImage(lambda: log.image), AuthorizerSettings(enabled=True))
    here = Broker(broker, authorizer)
    await here.lead(0, 1)
    await here.begin("pay", 0)
    await here.begin("other", 0)
    await here.write(7)
    answer = await here.listed()
    assert (names(answer), answer.hidden) == (["pay"], 1)
    assert not (await here.producers()).producers
    named = await here.producers(topic="orders")
    assert named.error_code == errors_pb2.TOPIC_AUTHORIZATION_FAILED
    refused = await here.abort(transactional_id="pay")
    assert refused.error_code == errors_pb2.CLUSTER_AUTHORIZATION_FAILED
    assert here.coordinator.find("pay").state.title == "Ongoing"
