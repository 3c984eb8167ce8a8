"""The first batch of a transaction waits for its coordinator, later ones for it (KIP-890)."""

import asyncio
from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.batches.record_batch import TRANSACTIONAL
from quorate.broker.replication.api import ACKS_LEADER, MarkerEntry, ProduceEntry, ProduceOutcome
from quorate.broker.replication.serving.transaction_verification import (
    TransactionBatch,
)
from quorate.common.types import TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.broker_replicas import BrokerReplicas
from tests.support.log_stores import batch
from tests.unit.replication.test_produce import settle

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("payments", 0)
PRODUCER = 7


class Coordinator:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[TransactionBatch] = []
        self._answers: list[asyncio.Future[None]] = []

    async def verify(self, batch: TransactionBatch) -> None:
        self.asked.append(batch)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        await answer

    async def answer(self, code: int = 0, *, which: int = 0) -> None:
        answer = self._answers.pop(which)
        if code:
            answer.set_exception(KafkaError(code, "no"))
        else:
            answer.set_result(None)
        await settle()


class Leader:
    """Broker 1, which leads two partitions alone."""

    def __init__(self, broker: BrokerReplicas) -> None:
        self.broker = broker
        assert isinstance(broker.verifier, Coordinator)
        self.coordinator = broker.verifier

    def send(
        self,
        *entries: tuple[TopicPartition, int],
        epoch: int = 0,
        transactional_id: str | None = "pay",
        timeout_ms: int = 10_000,
    ) -> "asyncio.Task[list[ProduceOutcome]]":
        """A request with a batch of one record for each (partition, sequence)."""
        wants = [
            ProduceEntry(
                tp,
                batch(producer=(PRODUCER, epoch, sequence), attributes=TRANSACTIONAL),
                AppendOrigin.TRANSACTIONAL_CLIENT,
                transactional_id,
            )
            for tp, sequence in entries
        ]
        return asyncio.create_task(self._produce(wants, timeout_ms))

    async def _produce(self, wants: list[ProduceEntry], timeout_ms: int) -> list[ProduceOutcome]:
        producing = self.broker.manager.produce(wants, ACKS_LEADER, timeout_ms)
        return await producing

    async def outcomes(self, *sent: "asyncio.Task[list[ProduceOutcome]]") -> list[Any]:
        await settle()
        self.broker.store.flush()
        return [
            (one.error_code, one.base_offset)
            for each in await asyncio.gather(*sent)
            for one in each
        ]

    def end(self, tp: TopicPartition = TP) -> "int":
        return self.broker.hosted(tp.topic).log.log_end_offset

    async def mark(self, *, epoch: int = 0) -> None:
        marker = EndMarker(PRODUCER, epoch, False, 0)
        writing = asyncio.create_task(
            self.broker.manager.write_markers([MarkerEntry(TP, marker)], 10_000)
        )
        await settle()
        self.broker.store.flush()
        assert await writing == [0]


@pytest.fixture
async def leader(broker: BrokerReplicas) -> Leader:
    await broker.restart(verifier=Coordinator())
    for topic in ("orders", "payments"):
        await broker.lead(topic, isr=(1,), replicas=(1,))
    return Leader(broker)


async def test_nothing_is_appended_before_the_coordinator_has_said_so(leader: Leader) -> None:
    sent = leader.send((TP, 0))
    await settle()
    assert leader.coordinator.asked == [TransactionBatch("pay", PRODUCER, 0, TP)]
    assert leader.end() == 0
    await leader.coordinator.answer()
    assert await leader.outcomes(sent) == [(0, 0)]


async def test_a_transaction_that_has_begun_here_is_not_asked_about_again(leader: Leader) -> None:
    first = leader.send((TP, 0))
    await settle()
    await leader.coordinator.answer()
    await leader.outcomes(first)
    assert await leader.outcomes(leader.send((TP, 1))) == [(0, 1)]
    assert len(leader.coordinator.asked) == 1


async def test_the_next_transaction_is(leader: Leader) -> None:
    first = leader.send((TP, 0))
    await settle()
    await leader.coordinator.answer()
    await leader.outcomes(first)
    await leader.mark()
    leader.send((TP, 1))
    await settle()
    assert len(leader.coordinator.asked) == 2


async def test_so_is_the_first_batch_of_a_newer_epoch(leader: Leader) -> None:
    """Its coordinator may know nothing of this partition, whatever the older epoch left open."""
    first = leader.send((TP, 0))
    await settle()
    await leader.coordinator.answer()
    await leader.outcomes(first)
    leader.send((TP, 0), epoch=1)
    await settle()
    assert [asked.producer_epoch for asked in leader.coordinator.asked] == [0, 1]


async def test_batches_of_a_producer_stay_in_order_and_share_a_question(leader: Leader) -> None:
    sent = [leader.send((TP, sequence)) for sequence in range(4)]
    await settle()
    assert len(leader.coordinator.asked) == 1
    await leader.coordinator.answer()
    assert await leader.outcomes(*sent) == [(0, offset) for offset in range(4)]


async def test_a_partition_does_not_wait_for_another_ones_answer(leader: Leader) -> None:
    """Else a later request, for one of them alone, would overtake this one."""
    both = leader.send((TP, 0), (OTHER, 0))
    later = leader.send((TP, 1))
    await settle()
    assert [asked.tp for asked in leader.coordinator.asked] == [TP, OTHER]
    await leader.coordinator.answer()
    assert leader.end() == 2
    assert leader.end(OTHER) == 0
    await leader.coordinator.answer()
    assert await leader.outcomes(both, later) == [(0, 0), (0, 0), (0, 1)]


async def test_what_is_no_part_of_a_transaction_does_not_wait(leader: Leader) -> None:
    leader.send((TP, 0))
    await settle()
    plain = asyncio.create_task(leader.broker.produce("orders", batch(), acks=1))
    assert await leader.outcomes(leader.send((OTHER, 0), transactional_id=None)) == [(0, 0)]
    assert (await plain).base_offset == 0


@pytest.mark.parametrize(
    "code",
    [
        errors_pb2.INVALID_TXN_STATE,
        errors_pb2.INVALID_PRODUCER_EPOCH,
        errors_pb2.NOT_ENOUGH_REPLICAS,
    ],
)
async def test_a_refusal_is_told_to_all_that_wait_and_nothing_is_appended(
    leader: Leader, code: int
) -> None:
    sent = [leader.send((TP, sequence)) for sequence in range(2)]
    await settle()
    await leader.coordinator.answer(code)
    assert await leader.outcomes(*sent) == [(code, -1)] * 2
    assert leader.end() == 0
    again = leader.send((TP, 0))
    await settle()
    await leader.coordinator.answer()
    assert await leader.outcomes(again) == [(0, 0)]


async def test_a_transaction_that_ended_meanwhile_is_not_begun_again(leader: Leader) -> None:
    """Nobody would write a second marker."""
    sent = leader.send((TP, 0))
    await settle()
    await leader.mark()
    await leader.coordinator.answer()
    assert await leader.outcomes(sent) == [(errors_pb2.INVALID_TXN_STATE, -1)]
    assert leader.end() == 1, "the marker alone"


async def test_a_leadership_that_ended_meanwhile_takes_nothing(leader: Leader) -> None:
    sent = leader.send((TP, 0))
    await settle()
    await leader.broker.command("orders", leader=2, epoch=1)
    await leader.coordinator.answer()
    assert await leader.outcomes(sent) == [(errors_pb2.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_led_again_it_asks_again(leader: Leader) -> None:
    sent = leader.send((TP, 0))
    await settle()
    await leader.broker.command("orders", leader=2, epoch=1)
    await leader.broker.lead("orders", isr=(1,), replicas=(1,), epoch=2)
    await leader.coordinator.answer()
    assert await leader.outcomes(sent) == [(errors_pb2.NOT_LEADER_OR_FOLLOWER, -1)]
    assert leader.end() == 0


async def test_an_answer_that_comes_too_late_appends_nothing(leader: Leader) -> None:
    sent = leader.send((TP, 0), timeout_ms=1)
    assert (await sent)[0].error_code == errors_pb2.REQUEST_TIMED_OUT
    await leader.coordinator.answer()
    assert leader.end() == 0


async def test_what_came_behind_it_is_not_appended_without_it(leader: Leader) -> None:
    first, behind = leader.send((TP, 0), timeout_ms=1), leader.send((TP, 1))
    assert (await first)[0].error_code == errors_pb2.REQUEST_TIMED_OUT
    await leader.coordinator.answer()
    assert await leader.outcomes(behind) == [(errors_pb2.NOT_ENOUGH_REPLICAS, -1)]
    assert leader.end() == 0


async def test_a_refusal_does_not_let_those_behind_it_pass(leader: Leader) -> None:
    first = leader.send((TP, 0))
    await settle()
    await leader.coordinator.answer(errors_pb2.NOT_ENOUGH_REPLICAS)
    behind = leader.send((TP, 1))
    await settle()
    await leader.coordinator.answer()
    refused = (errors_pb2.NOT_ENOUGH_REPLICAS, -1)
    assert await leader.outcomes(first, behind) == [refused, refused]


async def test_nobody_is_asked_about_what_is_stored(leader: Leader) -> None:
    """Its transaction may be over: what is asked then is whether another one may begin."""
    sent = leader.send((TP, 0))
    await settle()
    await leader.coordinator.answer()
    await leader.outcomes(sent)
    await leader.mark()
    assert await leader.outcomes(leader.send((TP, 0))) == [(errors_pb2.NONE, 0)]
    await leader.mark(epoch=1)
    fenced = (errors_pb2.INVALID_PRODUCER_EPOCH, -1)
    assert await leader.outcomes(leader.send((TP, 0))) == [fenced]
    assert len(leader.coordinator.asked) == 1


async def test_closed_it_sends_producers_elsewhere(leader: Leader) -> None:
    sent = leader.send((TP, 0))
    await settle()
    await leader.broker.manager.close()
    assert (await sent)[0].error_code == errors_pb2.NOT_LEADER_OR_FOLLOWER


async def test_switched_off_nobody_is_asked(leader: Leader) -> None:
    leader.broker.limits.verifies = False
    assert await leader.outcomes(leader.send((TP, 0))) == [(0, 0)]
    assert not leader.coordinator.asked


async def test_a_coordinator_asks_before_it_writes_in_a_producers_name(leader: Leader) -> None:
    """What a producer commits of a group's offsets."""
    batch = TransactionBatch("pay", PRODUCER, 0, TP)
    asking = asyncio.create_task(leader.broker.manager.verify_transaction(batch))
    await settle()
    await leader.coordinator.answer()
    await asking
    asking = asyncio.create_task(leader.broker.manager.verify_transaction(batch))
    await settle()
    await leader.mark()
    await leader.coordinator.answer()
    with pytest.raises(KafkaError, match="has ended") as why:
        await asking
    assert why.value.code == errors_pb2.INVALID_TXN_STATE
    assert len(leader.coordinator.asked) == 2


async def test_no_transaction_begins_behind_another_batch_of_its_request(leader: Leader) -> None:
    """Whose producer alone would have been asked about."""
    plain = batch(producer=(PRODUCER + 1, 0, 0))
    begins = batch(producer=(PRODUCER, 0, 0), attributes=TRANSACTIONAL)
    entry = ProduceEntry(TP, plain + begins, AppendOrigin.TRANSACTIONAL_CLIENT, "pay")
    (outcome,) = await leader.broker.manager.produce([entry], ACKS_LEADER, 10_000)
    assert outcome.error_code == errors_pb2.INVALID_RECORD
    assert leader.end() == 0
