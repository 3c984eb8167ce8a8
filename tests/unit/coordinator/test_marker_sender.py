"""A decided transaction is ended in each of its partitions, whatever becomes of their leaders."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.transactions.marker_sender import (
    MarkerSender,
    MarkerWrite,
    PartitionLeadership,
)
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.common.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time
from tests.support.waiting import async_wait_until

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
FAR = TopicPartition("payments", 0)
MARKER = EndMarker(7, 3, True, 5)


class Cluster:
    """Partitions, their leaders, and what these have written."""

    def __init__(self) -> None:
        self.leaders = {TP: (1, 10), OTHER: (1, 11), FAR: (2, 12)}
        self.exists = set(self.leaders)
        self.quorum_answers = True
        self.codes: dict[TopicPartition, list[int]] = {}
        """What a partition answers first; then it takes markers."""
        self.requests: list[tuple[int, Sequence[MarkerWrite]]] = []
        self.written: list[tuple[TopicPartition, EndMarker]] = []
        self.stuck: set[int] = set()
        self.sender = MarkerSender(self, self.write)

    def leadership(self, tp: TopicPartition) -> PartitionLeadership | None:
        if tp not in self.leaders:
            return None
        leader, epoch = self.leaders[tp]
        return PartitionLeadership(BrokerId(leader), LeaderEpoch(epoch))

    async def is_gone(self, tp: TopicPartition) -> bool:
        await pass_time(0.001)
        return self.quorum_answers and tp not in self.exists

    async def write(self, broker_id: BrokerId, writes: Sequence[MarkerWrite]) -> list[int]:
        self.requests.append((broker_id, writes))
        await pass_time(3600 if broker_id in self.stuck else 0.01)
        codes = []
        for write in writes:
            left = self.codes.get(write.tp)
            codes.append(left.pop(0) if left else 0)
            if not codes[-1]:
                self.written.append((write.tp, write.marker))
        return codes

    def send(
        self, *tps: TopicPartition, producer_id: int = 7
    ) -> Coroutine[Any, Any, frozenset[TopicPartition]]:
        return self.sender.send("pay", 5, producer_id, 3, True, tps)


async def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    cluster = Cluster()
    assert await cluster.send(TP, OTHER, FAR) == {TP, OTHER, FAR}
    assert {(leader, write) for leader, writes in cluster.requests for write in writes} == {
        (1, MarkerWrite(TP, LeaderEpoch(10), MARKER)),
        (1, MarkerWrite(OTHER, LeaderEpoch(11), MARKER)),
        (2, MarkerWrite(FAR, LeaderEpoch(12), MARKER)),
    }
    assert len(cluster.requests) == 2
    assert (cluster.sender.pending, cluster.sender.written) == (0, 3)


async def test_transactions_that_end_together_share_requests() -> None:
    cluster = Cluster()
    await asyncio.gather(*(cluster.send(TP, producer_id=number) for number in range(20)))
    ((_, writes),) = cluster.requests
    assert [write.marker.producer_id for write in writes] == list(range(20))


@pytest.mark.parametrize(
    "code",
    [
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.NOT_ENOUGH_REPLICAS,
        errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.KAFKA_STORAGE_ERROR,
        errors_pb2.FENCED_LEADER_EPOCH,
        errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER,
        errors_pb2.STALE_BROKER_EPOCH,
        errors_pb2.UNKNOWN_SERVER_ERROR,
    ],
)
async def test_whatever_may_pass_is_tried_again_and_only_there(code: int) -> None:
    cluster = Cluster()
    cluster.codes[TP] = [code] * 3
    await cluster.send(TP, OTHER)
    assert sorted(cluster.written) == [(TP, MARKER), (OTHER, MARKER)]


async def test_a_marker_follows_its_partition_to_the_next_leader() -> None:
    cluster = Cluster()
    cluster.leaders[TP] = (NO_BROKER, 13)
    ending = asyncio.create_task(cluster.send(TP, FAR))
    await async_wait_until(
        lambda: cluster.written == [(FAR, MARKER)], "the marker at the leader that answers"
    )
    await pass_time(3)
    assert not ending.done()
    assert len(cluster.requests) == 1, "nobody is asked about a partition that nobody leads"
    cluster.leaders[TP] = (2, 14)
    assert await ending == {TP, FAR}
    assert cluster.requests[-1] == (2, [MarkerWrite(TP, LeaderEpoch(14), MARKER)])


async def test_a_leader_that_does_not_answer_keeps_nobody_elses_transactions() -> None:
    cluster = Cluster()
    cluster.stuck.add(1)
    stuck = asyncio.create_task(cluster.send(TP))
    assert await cluster.send(FAR) == {FAR}
    assert not stuck.done()
    stuck.cancel()
    await asyncio.gather(stuck, return_exceptions=True)
    assert cluster.sender.pending == 0


async def test_a_deleted_partition_needs_no_marker() -> None:
    cluster = Cluster()
    del cluster.leaders[TP]
    cluster.exists.discard(TP)
    assert await cluster.send(TP, FAR) == {TP, FAR}
    assert cluster.written == [(FAR, MARKER)]


async def test_a_partition_that_is_only_not_known_here_is_waited_for() -> None:
    """A coordinator that has just started has not heard of everything."""
    cluster = Cluster()
    known = cluster.leaders.pop(TP)
    ending = asyncio.create_task(cluster.send(TP))
    await pass_time(5)
    assert not ending.done()
    cluster.leaders[TP] = known
    await ending
    assert cluster.written == [(TP, MARKER)]


async def test_while_the_quorum_does_not_answer_nothing_counts_as_deleted() -> None:
    cluster = Cluster()
    del cluster.leaders[TP]
    cluster.exists.discard(TP)
    cluster.quorum_answers = False
    ending = asyncio.create_task(cluster.send(TP))
    await pass_time(60)
    assert not ending.done()
    cluster.quorum_answers = True
    assert await ending == {TP}


@pytest.mark.parametrize(
    "code", [errors_pb2.INVALID_PRODUCER_EPOCH, errors_pb2.TRANSACTION_COORDINATOR_FENCED]
)
async def test_a_transaction_that_is_somebody_elses_is_left_to_them(code: int) -> None:
    cluster = Cluster()
    cluster.codes[TP] = [code]
    cluster.leaders[FAR] = (NO_BROKER, 13)
    with pytest.raises(KafkaError, match="orders-0 takes no marker of coordinator epoch 5") as why:
        await cluster.send(TP, FAR)
    assert why.value.code == code
    await pass_time(5)
    assert cluster.sender.pending == 0, "the others are not tried any more"


async def test_an_operator_hears_of_a_transaction_that_cannot_be_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.codes[TP] = [errors_pb2.NOT_ENOUGH_REPLICAS] * 1_000
    ending = asyncio.create_task(cluster.send(TP))
    await pass_time(95)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 3, "every 30 s"
    assert "'pay'" in warnings[0]
    assert "orders-0" in warnings[0]
    assert "NOT_ENOUGH_REPLICAS" in warnings[0]
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)


async def test_closed_it_keeps_nobody_waiting() -> None:
    cluster = Cluster()
    cluster.stuck.add(1)
    ending = asyncio.create_task(cluster.send(TP, OTHER))
    await pass_time(0.1)
    cluster.sender.close()
    with pytest.raises(asyncio.CancelledError):
        await ending
