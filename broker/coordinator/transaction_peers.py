"""What brokers ask of each other for transactions: who leads, markers to leaders."""

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, Protocol

import grpc.aio

from broker.control.ports import Images
from broker.coordinator.marker_sender import Leadership, MarkerWrite
from broker.errors import error_name
from broker.log.control_batches import EndMarker
from broker.peers import Peer, PeerChannels
from broker.replication.api import MarkerEntry
from metadata_log.types import BrokerEpoch, BrokerId, LeaderEpoch, MetadataOffset, TopicPartition
from quorate_proto.v1 import errors_pb2, transactions_pb2, transactions_pb2_grpc
from quorum.errors import QuorumError

_log: Final = logging.getLogger(__name__)

MARKER_TIMEOUT_MS: Final = 5_000
"""How long a leader waits for its in-sync replicas: longer than a healthy one ever needs, and about
as long as it takes until another one leads."""
_ANSWER_GRACE_MS: Final = 1_000


class QuorumOffsets(Protocol):
    """``control.ports.QuorumView``."""

    async def read_offset(self) -> MetadataOffset: ...


class MarkerLog(Protocol):
    """``ReplicaManager.write_markers``."""

    async def write_markers(
        self, entries: Sequence[MarkerEntry], timeout_ms: int
    ) -> Sequence[int]: ...


class WatchedLeaders:
    """As the watched image has it; a partition is gone if the quorum, asked now, says so.

    What a broker has not heard of may have been created a moment ago, or the broker may have just
    started: markers of such partitions must not be forgotten.
    """

    def __init__(self, images: Images, quorum: QuorumOffsets) -> None:
        self._images = images
        self._quorum = quorum

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        partition = self._images.image.partition(tp)
        return None if partition is None else Leadership(partition.leader, partition.leader_epoch)

    async def is_gone(self, tp: TopicPartition) -> bool:
        try:
            image = await self._images.wait_for(await self._quorum.read_offset())
        except QuorumError as error:
            _log.debug("whether %s is gone is not known: %s", tp, error)
            return False
        return image.partition(tp) is None


class PeerMarkers:
    """``marker_sender.WriteMarkers``: here, or by gRPC."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        images: Images,
        channels: PeerChannels,
        local: MarkerLog,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._images = images
        self._channels = channels
        self._local = local
        self._request_number = 0

    async def __call__(self, broker_id: BrokerId, writes: Sequence[MarkerWrite]) -> Sequence[int]:
        if broker_id == self._broker_id:
            entries = [MarkerEntry(write.tp, write.marker) for write in writes]
            return await self._local.write_markers(entries, MARKER_TIMEOUT_MS)
        broker, epoch = self._images.image.brokers.get(broker_id), self._broker_epoch()
        if broker is None or epoch is None:
            return [errors_pb2.BROKER_NOT_AVAILABLE] * len(writes)
        self._request_number += 1
        request = marker_request(writes)
        request.broker_id, request.broker_epoch = self._broker_id, epoch
        request.request_number = self._request_number
        stub = transactions_pb2_grpc.TransactionsStub(self._channels.get(Peer.of(broker)))
        try:
            answer = await stub.WriteMarkers(
                request, timeout=(MARKER_TIMEOUT_MS + _ANSWER_GRACE_MS) / 1000
            )
        except grpc.aio.AioRpcError as error:
            _log.info("broker %d did not take markers: %s", broker_id, error.details())
            return [errors_pb2.REQUEST_TIMED_OUT] * len(writes)
        if answer.error_code:
            _log.info("broker %d takes no markers: %s", broker_id, error_name(answer.error_code))
            return [answer.error_code] * len(writes)
        return answer.partition_error_codes


def marker_request(writes: Sequence[MarkerWrite]) -> transactions_pb2.WriteMarkersRequest:
    """Markers for several partitions are told once where they stand side by side."""
    request = transactions_pb2.WriteMarkersRequest(timeout_ms=MARKER_TIMEOUT_MS)
    for marker, places in groupby(writes, lambda write: write.marker):
        message = request.markers.add(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            committed=marker.committed,
        )
        for tp, leader_epoch, _ in places:
            message.partitions.add(
                topic=tp.topic, partition=tp.partition, leader_epoch=leader_epoch
            )
    return request


def requested_writes(request: transactions_pb2.WriteMarkersRequest) -> list[MarkerWrite]:
    """What ``marker_request`` was made from."""
    return [
        MarkerWrite(
            TopicPartition(place.topic, place.partition),
            LeaderEpoch(place.leader_epoch),
            EndMarker(
                message.producer_id,
                message.producer_epoch,
                message.committed,
                message.coordinator_epoch,
            ),
        )
        for message in request.markers
        for place in message.partitions
    ]
