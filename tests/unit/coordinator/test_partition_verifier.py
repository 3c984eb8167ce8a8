"""A leader asks the coordinator before a transaction begins in its partition."""

import asyncio
from typing import Any, cast

import grpc.aio
import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.config.internal_topics import TRANSACTIONS_TOPIC, partition_of
from quorate.broker.coordinator.transactions.partition_verifier import PartitionVerifier
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import TransactionSupport
from quorate.broker.replication.serving.transaction_verification import TransactionBatch
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2, transactions_pb2
from tests.support.identities import registered
from tests.support.metadata import MetadataLogBuilder
from tests.support.virtual_time import pass_time

TP = TopicPartition("orders", 1)
HERE = next(f"pay-{n}" for n in range(99) if partition_of(f"pay-{n}", 2) == 0)
THERE = next(f"pay-{n}" for n in range(99) if partition_of(f"pay-{n}", 2) == 1)


def batch(
    transactional_id: str,
    producer_id: int = 7,
    support: TransactionSupport = TransactionSupport.ANNOUNCED,
) -> TransactionBatch:
    return TransactionBatch(transactional_id, producer_id, 3, TP, support)


class Unreachable(grpc.aio.AioRpcError):
    def __init__(self) -> None:
        super().__init__(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "refused"
        )


class Leader(PeerChannels):
    """Broker 1, which coordinates the transactions of partition 0; broker 2 those of 1."""

    def __init__(self, *, with_topic: bool = True) -> None:
        super().__init__()
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        if with_topic:
            self.log.create_topic(TRANSACTIONS_TOPIC, (1, 2), (2, 1))
        images = MetadataFollower(None)  # type: ignore[arg-type]
        images.image = self.log.image
        self.code = 0
        self.local: list[TransactionBatch] = []
        self.requests: list[transactions_pb2.VerifyPartitionsRequest] = []
        self.is_reachable = True
        self.verifier = PartitionVerifier(
            identity=registered(1, 1), images=images, channels=self, local=cast("Any", self)
        )

    async def ask(self, asked: TransactionBatch) -> int:
        self.local.append(asked)
        return self.code

    def get(self, peer: Peer) -> grpc.aio.Channel:
        leader = self

        class Channel:
            def unary_unary(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - gRPC's own
                async def call(request: Any, timeout: float) -> Any:  # noqa: ANN401 - as above
                    assert peer.broker_id == 2
                    if not leader.is_reachable:
                        raise Unreachable
                    leader.requests.append(request)
                    await pass_time(0.01)
                    codes = [leader.code] * len(request.transactions)
                    return transactions_pb2.VerifyPartitionsResponse(error_codes=codes)

                return call

        channel: Any = Channel()
        return channel  # type: ignore[no-any-return]

    async def told(self, asked: TransactionBatch) -> int:
        try:
            await self.verifier.verify(asked)
        except KafkaError as error:
            names_all = (
                "orders-1" in error.message and repr(asked.transactional_id) in error.message
            )
            return error.code if names_all else -1
        return errors_pb2.NONE


async def test_its_own_coordinator_is_asked_without_the_network() -> None:
    leader = Leader()
    assert await leader.told(batch(HERE)) == 0
    assert leader.local == [batch(HERE)]
    assert not leader.requests


async def test_another_one_is_asked_once_for_all_batches_that_wait() -> None:
    leader = Leader()
    assert await asyncio.gather(*(leader.told(batch(THERE, n)) for n in range(5))) == [0] * 5
    (request,) = leader.requests
    assert request.broker_id == 1
    query = request.transactions[3]
    assert (query.transactional_id, query.producer_id, query.producer_epoch) == (THERE, 3, 3)
    assert (query.topic, query.partition) == TP


@pytest.mark.parametrize("name", [HERE, THERE])
@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errors_pb2.TRANSACTION_ABORTABLE, errors_pb2.INVALID_TXN_STATE),
        (errors_pb2.INVALID_TXN_STATE, errors_pb2.INVALID_TXN_STATE),
        (errors_pb2.PRODUCER_FENCED, errors_pb2.INVALID_PRODUCER_EPOCH),
        (errors_pb2.INVALID_PRODUCER_ID_MAPPING, errors_pb2.INVALID_PRODUCER_ID_MAPPING),
        (errors_pb2.COORDINATOR_LOAD_IN_PROGRESS, errors_pb2.NOT_ENOUGH_REPLICAS),
        (errors_pb2.COORDINATOR_NOT_AVAILABLE, errors_pb2.NOT_ENOUGH_REPLICAS),
        (errors_pb2.NOT_COORDINATOR, errors_pb2.NOT_ENOUGH_REPLICAS),
        (errors_pb2.CONCURRENT_TRANSACTIONS, errors_pb2.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_a_producer_is_told_what_clients_of_all_ages_understand(
    name: str, code: int, told: int
) -> None:
    leader = Leader()
    leader.code = code
    assert await leader.told(batch(name)) == told


async def test_whoever_cannot_be_asked_makes_the_producer_send_again() -> None:
    leader = Leader()
    leader.is_reachable = False
    assert await leader.told(batch(THERE)) == errors_pb2.NOT_ENOUGH_REPLICAS
    assert await Leader(with_topic=False).told(batch(HERE)) == errors_pb2.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("name", [HERE, THERE])
@pytest.mark.parametrize("support", [TransactionSupport.ABORTABLE, TransactionSupport.ADDED])
async def test_newer_producers_are_told_that_the_transaction_can_be_aborted(
    name: str, support: TransactionSupport
) -> None:
    leader = Leader()
    leader.code = errors_pb2.TRANSACTION_ABORTABLE
    assert await leader.told(batch(name, support=support)) == errors_pb2.TRANSACTION_ABORTABLE
    leader.code = errors_pb2.PRODUCER_FENCED
    assert await leader.told(batch(name, support=support)) == errors_pb2.INVALID_PRODUCER_EPOCH


async def test_a_partition_is_added_for_producers_with_transactions_v2_alone() -> None:
    leader = Leader()
    supports = list(TransactionSupport)
    sent = (leader.told(batch(THERE, n, support)) for n, support in enumerate(supports))
    assert await asyncio.gather(*sent) == [0, 0, 0]
    (request,) = leader.requests
    assert [query.add for query in request.transactions] == [False, False, True]


@pytest.mark.parametrize("name", [HERE, THERE])
async def test_a_leader_asks_again_while_the_previous_transaction_is_not_complete(
    name: str,
) -> None:
    leader = Leader()
    leader.code = errors_pb2.CONCURRENT_TRANSACTIONS
    added = batch(name, support=TransactionSupport.ADDED)
    asked = asyncio.ensure_future(leader.told(added))
    await pass_time(0.5)
    assert not asked.done()
    leader.code = errors_pb2.NONE
    await pass_time(0.1)
    assert await asked == errors_pb2.NONE


async def test_after_a_second_the_producer_has_to_ask_again() -> None:
    leader = Leader()
    leader.code = errors_pb2.CONCURRENT_TRANSACTIONS
    added = batch(HERE, support=TransactionSupport.ADDED)
    assert await leader.told(added) == errors_pb2.CONCURRENT_TRANSACTIONS
