"""The requests between brokers for transactions: finding leaders, and sending markers to them."""

import logging
from collections.abc import Sequence
from itertools import groupby
from typing import Final

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import error_name
from quorate.broker.control.ports import QuorumView
from quorate.broker.coordinator.transactions.marker_sender import MarkerWrite, PartitionLeadership
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import MarkerEntry
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import BrokerId, LeaderEpoch, TopicPartition
from quorate.quorum.quorum_errors import QuorumError
from quorate_proto.v1 import errors_pb2, transactions_pb2, transactions_pb2_grpc

_log: Final = logging.getLogger(__name__)

MARKER_TIMEOUT_MS: Final = 5_000
"""The longest wait of a leader for its in-sync replicas. It is longer than a healthy replica ever
needs, and about the time that an election of another leader takes."""
_ANSWER_GRACE_MS: Final = 1_000


class WatchedLeaders:
    """Finds leaders in the metadata image, and asks the quorum whether a partition is gone.

    A partition that this broker does not know may just have been created, or the broker may just
    have started. The markers of such partitions must not be dropped.
    """

    def __init__(self, images: MetadataFollower, quorum: QuorumView) -> None:
        self._images = images
        self._quorum = quorum

    def leadership(self, tp: TopicPartition) -> PartitionLeadership | None:
        partition = self._images.image.partition(tp)
        return (
            None
            if partition is None
            else PartitionLeadership(partition.leader, partition.leader_epoch)
        )

    async def is_gone(self, tp: TopicPartition) -> bool:
        try:
            image = await self._images.wait_for(await self._quorum.read_offset())
        except QuorumError as error:
            _log.debug("whether %s is gone is not known: %s", tp, error)
            return False
        return image.partition(tp) is None


class PeerMarkers:
    """Writes markers on this broker, or on another one by gRPC; see
    ``marker_sender.WriteMarkers``."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        images: MetadataFollower,
        channels: PeerChannels,
        local: ReplicaManager,
    ) -> None:
        self._identity = identity
        self._images = images
        self._channels = channels
        self._local = local
        self._request_number = 0

    async def __call__(self, broker_id: BrokerId, writes: Sequence[MarkerWrite]) -> Sequence[int]:
        if broker_id == self._identity.broker_id:
            entries = [
                MarkerEntry(write.tp, write.marker, write.transaction_version) for write in writes
            ]
            return await self._local.write_markers(entries, MARKER_TIMEOUT_MS)
        broker, epoch = self._images.image.brokers.get(broker_id), self._identity.epoch
        if broker is None or epoch is None:
            return [errors_pb2.BROKER_NOT_AVAILABLE] * len(writes)
        self._request_number += 1
        request = marker_request(writes)
        request.broker_id, request.broker_epoch = self._identity.broker_id, epoch
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
    """Return the request for these markers; adjacent writes of the same marker share one entry."""
    request = transactions_pb2.WriteMarkersRequest(timeout_ms=MARKER_TIMEOUT_MS)
    for (marker, version), places in groupby(writes, lambda write: write[2:]):
        message = request.markers.add(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            committed=marker.committed,
            transaction_version=version,
        )
        for tp, leader_epoch, _, _ in places:
            message.partitions.add(
                topic=tp.topic, partition=tp.partition, leader_epoch=leader_epoch
            )
    return request


def requested_writes(request: transactions_pb2.WriteMarkersRequest) -> list[MarkerWrite]:
    """Return the marker writes of a request that ``marker_request`` made."""
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
            message.transaction_version,
        )
        for message in request.markers
        for place in message.partitions
    ]
