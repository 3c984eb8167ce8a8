"""Transactions v2 at partition leaders: the first batch adds the partition (KIP-890)."""

import asyncio

import pytest

from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import TRANSACTIONAL
from quorate.broker.replication.api import (
    ACKS_LEADER,
    MarkerEntry,
    ProduceEntry,
    ProduceOutcome,
    TransactionSupport,
)
from quorate.broker.replication.serving.transaction_verification import TransactionBatch
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.unit.replication.test_produce import settle
from tests.unit.replication.test_verification import PRODUCER, TP, Coordinator

ADDED = TransactionSupport.ADDED


class Leader:
    """Broker 1, which leads a partition alone."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker
        assert isinstance(broker.verifier, Coordinator)
        self.coordinator = broker.verifier

    def send(self, epoch: int, sequence: int = 0) -> "asyncio.Task[list[ProduceOutcome]]":
        entry = ProduceEntry(
            TP,
            batch(producer=(PRODUCER, epoch, sequence), attributes=TRANSACTIONAL),
            AppendOrigin.TRANSACTIONAL_CLIENT,
            "pay",
            support=ADDED,
        )
        return asyncio.create_task(self._produce(entry))

    async def _produce(self, entry: ProduceEntry) -> list[ProduceOutcome]:
        return await self.broker.manager.produce([entry], ACKS_LEADER, 10_000)

    async def code(self, sent: "asyncio.Task[list[ProduceOutcome]]") -> int:
        await settle()
        self.broker.store.flush()
        (outcome,) = await sent
        return outcome.error_code

    async def write(self, epoch: int) -> None:
        """The first batch of a transaction, which its coordinator adds."""
        sent = self.send(epoch)
        await settle()
        await self.coordinator.answer()
        assert await self.code(sent) == errors_pb2.NONE

    async def mark(self, epoch: int, version: int = 2) -> int:
        entry = MarkerEntry(TP, EndMarker(PRODUCER, epoch, True, 0), version)
        writing = asyncio.create_task(self.broker.manager.write_markers([entry], 10_000))
        await settle()
        self.broker.store.flush()
        (code,) = await writing
        return code

    @property
    def is_open(self) -> bool:
        return PRODUCER in self.broker.hosted("orders").log.transactions.ongoing


@pytest.fixture
async def leader(broker: BrokerReplicas) -> Leader:
    await broker.restart(verifier=Coordinator())
    await broker.lead("orders", isr=(1,), replicas=(1,))
    return Leader(broker)


async def test_the_coordinator_is_asked_to_add_the_partition(leader: Leader) -> None:
    await leader.write(0)
    assert leader.coordinator.asked == [TransactionBatch("pay", PRODUCER, 0, TP, ADDED)]
    assert leader.is_open


async def test_it_is_asked_although_verification_is_off(leader: Leader) -> None:
    leader.broker.limits.verifies = False
    await leader.write(0)
    assert leader.coordinator.asked


async def test_a_batch_that_comes_after_its_end_is_refused_without_a_question(
    leader: Leader,
) -> None:
    await leader.write(0)
    assert await leader.mark(1) == errors_pb2.NONE
    asked = len(leader.coordinator.asked)
    assert await leader.code(leader.send(0, 1)) == errors_pb2.INVALID_PRODUCER_EPOCH
    assert await leader.code(leader.send(0)) == errors_pb2.INVALID_PRODUCER_EPOCH
    assert len(leader.coordinator.asked) == asked
    assert not leader.is_open


async def test_a_batch_whose_end_comes_between_question_and_append_is_refused(
    leader: Leader,
) -> None:
    sent = leader.send(0)
    await settle()
    assert await leader.mark(1) == errors_pb2.NONE
    await leader.coordinator.answer()
    await leader.coordinator.answer(errors_pb2.INVALID_PRODUCER_EPOCH)
    assert await leader.code(sent) == errors_pb2.INVALID_PRODUCER_EPOCH
    assert not leader.is_open


async def test_the_marker_of_the_transaction_before_makes_the_leader_ask_once_more(
    leader: Leader,
) -> None:
    await leader.write(0)
    sent = leader.send(1)
    await settle()
    assert await leader.mark(1) == errors_pb2.NONE
    await leader.coordinator.answer()
    assert not sent.done()
    await leader.coordinator.answer()
    assert await leader.code(sent) == errors_pb2.NONE
    assert leader.is_open


@pytest.mark.parametrize(("version", "code"), [(2, errors_pb2.INVALID_PRODUCER_EPOCH), (0, 0)])
async def test_a_marker_that_comes_late_does_not_end_what_follows(
    leader: Leader, version: int, code: int
) -> None:
    """KIP-1228. Without transactions v2 the marker of a transaction has its epoch."""
    await leader.write(0)
    assert await leader.mark(1) == errors_pb2.NONE
    assert await leader.mark(1) == errors_pb2.NONE, "again, before anything follows"
    await leader.write(1)
    assert await leader.mark(1, version) == code
    assert leader.is_open == (version == 2)


async def test_the_first_batch_of_a_producer_that_is_not_known_has_the_first_sequence(
    leader: Leader,
) -> None:
    sent = leader.send(3, 5)
    await settle()
    await leader.coordinator.answer()
    assert await leader.code(sent) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not leader.is_open


async def test_a_producer_that_has_to_wait_sends_the_batches_behind_again(leader: Leader) -> None:
    await leader.write(0)
    assert await leader.mark(1) == errors_pb2.NONE
    first = leader.send(1)
    await settle()
    await leader.coordinator.answer(errors_pb2.CONCURRENT_TRANSACTIONS)
    assert await leader.code(first) == errors_pb2.CONCURRENT_TRANSACTIONS
    second = leader.send(1, 1)
    await settle()
    await leader.coordinator.answer()
    assert await leader.code(second) != errors_pb2.NONE
    assert not leader.is_open
