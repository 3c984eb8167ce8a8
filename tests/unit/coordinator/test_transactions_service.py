"""Markers from coordinators: what comes too late must not end the next transaction."""

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import grpc.aio
import pytest

from quorate.broker.coordinator.transactions.marker_sender import MarkerWrite
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.coordinator.transactions.transaction_peers import (
    PeerMarkers,
    WatchedLeaders,
    marker_request,
    requested_writes,
)
from quorate.broker.coordinator.transactions.transactions_service import TransactionsService
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import MarkerEntry
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset, TopicPartition
from quorate.quorum.quorum_errors import QuorumUnavailable
from quorate_proto.v1 import errors_pb2, transactions_pb2
from tests.support.identities import registered
from tests.support.metadata import MetadataLogBuilder
from tests.support.virtual_time import pass_time

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
COMMIT = EndMarker(7, 3, True, 5)
ABORT = EndMarker(8, 0, False, 5)
CONTEXT: Any = None


@dataclass
class Hosted:
    """One partition of the receiver."""

    leader_epoch: int = 4
    leads: bool = True

    @property
    def replica(self) -> "Hosted":
        return self


class Receiver:
    """Broker 2, which leads partitions; broker 1 coordinates."""

    def __init__(self) -> None:
        self.log = MetadataLogBuilder()
        for broker_id in (1, 2):
            self.log.start_broker(broker_id)
        self.log.elect_controller(1)
        self.log.create_topic("t", (2,), (2,))
        self.follower = MetadataFollower(None)  # type: ignore[arg-type]
        self.look()
        self.hosted = {TP: Hosted(), OTHER: Hosted()}
        self.written: list[MarkerEntry] = []
        self.codes: dict[TopicPartition, int] = {}
        self.verified: list[tuple[Any, ...]] = []
        fake: Any = self
        self.service = TransactionsService(fake, self.follower, fake)
        self.epoch = self.follower.image.brokers[BrokerId(1)].epoch
        self.number = 0

    def look(self) -> None:
        self.follower.image = self.log.image
        self.follower.applied_offset = self.log.image.offset

    @property
    def table(self) -> "Receiver":
        return self

    def named(self, tp: TopicPartition) -> Hosted | None:
        return self.hosted.get(tp)

    async def write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        assert timeout_ms > 0
        self.written += entries
        await pass_time(0.01)
        return [self.codes.get(entry.tp, 0) for entry in entries]

    def verify(
        self, transactional_id: str, producer: ProducerEpoch, partitions: Set[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self.verified.append((transactional_id, producer, set(partitions)))
        if transactional_id == "other":
            return dict.fromkeys(partitions, errors_pb2.INVALID_TXN_STATE)
        return {
            tp: errors_pb2.NONE if tp == TP else errors_pb2.UNKNOWN_SERVER_ERROR
            for tp in partitions
        }

    def request(self, *writes: MarkerWrite) -> transactions_pb2.WriteMarkersRequest:
        self.number += 1
        request = marker_request(writes)
        request.broker_id, request.broker_epoch = 1, self.epoch
        request.request_number = self.number
        return request

    async def answer(self, request: transactions_pb2.WriteMarkersRequest) -> int | list[int]:
        answer = await self.service.WriteMarkers(request, CONTEXT)
        return answer.error_code or list(answer.partition_error_codes)


def write(tp: TopicPartition = TP, marker: EndMarker = COMMIT, epoch: int = 4) -> MarkerWrite:
    return MarkerWrite(tp, LeaderEpoch(epoch), marker)


def test_a_request_says_all_of_its_markers() -> None:
    writes = [write(), write(OTHER), write(TP, ABORT, 9), write(OTHER)]
    request = marker_request(writes)
    assert len(request.markers) == 3, "what stands side by side is told once"
    assert requested_writes(request) == writes


async def test_each_partition_has_an_answer_of_its_own() -> None:
    receiver = Receiver()
    receiver.codes[OTHER] = errors_pb2.NOT_ENOUGH_REPLICAS
    elsewhere = TopicPartition("u", 0)
    request = receiver.request(write(elsewhere), write(), write(OTHER))
    assert await receiver.answer(request) == [
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.NONE,
        errors_pb2.NOT_ENOUGH_REPLICAS,
    ]
    assert receiver.written == [MarkerEntry(TP, COMMIT), MarkerEntry(OTHER, COMMIT)]


async def test_a_request_that_comes_after_its_repetition_is_refused() -> None:
    receiver = Receiver()
    late, repeated = receiver.request(write()), receiver.request(write())
    assert await receiver.answer(repeated) == [0]
    assert await receiver.answer(late) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await receiver.answer(repeated) == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(receiver.written) == 1


async def test_a_restarted_coordinator_begins_to_count_anew_and_ends_the_one_before() -> None:
    receiver = Receiver()
    for _ in range(5):
        assert await receiver.answer(receiver.request(write())) == [0]
    old_epoch, receiver.epoch = receiver.epoch, BrokerEpoch(receiver.epoch + 100)
    receiver.number = 0
    assert await receiver.answer(receiver.request(write())) == [0]
    receiver.epoch, receiver.number = old_epoch, 50
    late = await receiver.answer(receiver.request(write()))
    assert late == errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_coordinator_of_an_old_session_is_refused() -> None:
    receiver = Receiver()
    receiver.log.stop_broker(1)
    receiver.log.start_broker(1, incarnation=1)
    receiver.look()
    assert await receiver.answer(receiver.request(write())) == errors_pb2.STALE_BROKER_EPOCH
    assert not receiver.written


@pytest.mark.parametrize(
    ("hosted", "code"),
    [
        (Hosted(leader_epoch=5), errors_pb2.FENCED_LEADER_EPOCH),
        (Hosted(leader_epoch=3), errors_pb2.UNKNOWN_LEADER_EPOCH),
        (Hosted(leads=False), errors_pb2.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_a_marker_for_another_leadership_is_refused(hosted: Hosted, code: int) -> None:
    """In between, its repetition may have been written by another leader."""
    receiver = Receiver()
    receiver.hosted[TP] = hosted
    assert await receiver.answer(receiver.request(write(), write(OTHER))) == [code, 0]
    assert receiver.written == [MarkerEntry(OTHER, COMMIT)]


async def test_a_leader_asks_whether_partitions_are_in_transactions() -> None:
    receiver = Receiver()
    request = transactions_pb2.VerifyPartitionsRequest(
        broker_id=2,
        transactions=[
            transactions_pb2.TransactionQuery(
                transactional_id=name, producer_id=7, producer_epoch=epoch, topic="t", partition=at
            )
            for name, epoch, at in [("pay", 3, 1), ("pay", 3, 0), ("other", 3, 0), ("pay", 4, 0)]
        ],
    )
    answer = await receiver.service.VerifyPartitions(request, CONTEXT)
    other = errors_pb2.INVALID_TXN_STATE
    assert list(answer.error_codes) == [errors_pb2.UNKNOWN_SERVER_ERROR, 0, other, 0], "in order"
    assert receiver.verified == [
        ("pay", (7, 3), {TP, OTHER}),
        ("other", (7, 3), {TP}),
        ("pay", (7, 4), {TP}),
    ], "those of one transaction at once"


class Unreachable(grpc.aio.AioRpcError):
    def __init__(self) -> None:
        super().__init__(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "refused"
        )


class Channels(PeerChannels):
    """Every peer is the one receiver."""

    def __init__(self, receiver: Receiver) -> None:
        super().__init__()
        self.receiver = receiver
        self.is_reachable = True

    def get(self, peer: Peer) -> grpc.aio.Channel:
        channels = self

        class Channel:
            def unary_unary(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - gRPC's own
                async def call(request: Any, timeout: float) -> Any:  # noqa: ANN401 - as above
                    assert peer.broker_id == 2
                    if not channels.is_reachable:
                        raise Unreachable
                    return await channels.receiver.service.WriteMarkers(request, CONTEXT)

                return call

        channel: Any = Channel()
        return channel  # type: ignore[no-any-return]


class Sender:
    """Broker 1, beside the receiver."""

    def __init__(self) -> None:
        self.receiver = Receiver()
        self.channels = Channels(self.receiver)
        self.own: list[MarkerEntry] = []
        self.identity = registered(1, self.receiver.epoch)
        replicas: Any = self
        self.markers = PeerMarkers(
            identity=self.identity,
            images=self.receiver.follower,
            channels=self.channels,
            local=replicas,
        )

    async def write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        self.own += entries
        return [0] * len(entries)


async def test_markers_go_to_the_leader_or_stay_here() -> None:
    sender = Sender()
    assert list(await sender.markers(BrokerId(1), [write()])) == [0]
    assert sender.own == [MarkerEntry(TP, COMMIT)]
    for _ in range(2):
        assert list(await sender.markers(BrokerId(2), [write(), write(OTHER)])) == [0, 0]
    assert len(sender.receiver.written) == 4


async def test_whoever_cannot_be_asked_is_an_error_code() -> None:
    sender = Sender()
    two = [write(), write(OTHER)]
    assert await sender.markers(BrokerId(9), two) == [errors_pb2.BROKER_NOT_AVAILABLE] * 2
    sender.channels.is_reachable = False
    assert await sender.markers(BrokerId(2), two) == [errors_pb2.REQUEST_TIMED_OUT] * 2
    sender.channels.is_reachable = True
    sender.identity.register(BrokerEpoch(1))
    assert await sender.markers(BrokerId(2), two) == [errors_pb2.STALE_BROKER_EPOCH] * 2
    sender.identity.unregister()
    assert await sender.markers(BrokerId(2), two) == [errors_pb2.BROKER_NOT_AVAILABLE] * 2


class Quorum:
    """Has got as far as it says."""

    def __init__(self, offset: int | None) -> None:
        self.offset = offset

    async def read_offset(self) -> MetadataOffset:
        if self.offset is None:
            raise QuorumUnavailable("nobody answers")
        return MetadataOffset(self.offset)


def leaders_of(receiver: Receiver, offset: int | None) -> WatchedLeaders:
    quorum: Any = Quorum(offset)
    return WatchedLeaders(receiver.follower, quorum)


async def test_a_partition_is_gone_when_the_quorum_says_so() -> None:
    receiver = Receiver()
    newest = receiver.log.image.offset
    leaders = leaders_of(receiver, newest)
    known = leaders.leadership(TP)
    assert known is not None
    assert known.leader == 2
    new = TopicPartition("new", 0)
    assert leaders.leadership(new) is None
    assert await leaders.is_gone(new)
    assert not await leaders.is_gone(TP)
    assert not await leaders_of(receiver, None).is_gone(new)


async def test_what_the_image_here_is_behind_of_is_waited_for() -> None:
    receiver = Receiver()
    receiver.log.create_topic("new", (2,))
    leaders = leaders_of(receiver, receiver.log.image.offset)
    asked = asyncio.create_task(leaders.is_gone(TopicPartition("new", 0)))
    await pass_time(1)
    assert not asked.done()
    receiver.follower._load(receiver.log.image)
    assert not await asked
