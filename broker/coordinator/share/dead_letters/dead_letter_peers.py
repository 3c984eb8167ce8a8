"""The leaders of dead letter topics, on this broker or on others (KIP-1191)."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.config.topic_keys import TOPIC_DEAD_LETTERS_ENABLE, TopicKey
from quorate.broker.coordinator.shards.shared_requests import RequestsByBroker
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import ACKS_ALL, ProduceEntry
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import BrokerId, TopicId, TopicPartition
from quorate_proto.v1 import errors_pb2, share_states_pb2, share_states_pb2_grpc

_log: Final = logging.getLogger(__name__)

WRITE_TIMEOUT_MS: Final = 3_000
"""The time for which a leader waits for its in-sync replicas. Then the batch is written again."""
_ANSWER_GRACE_MS: Final = 500

OfTopic = Callable[[str, TopicKey[bool]], bool]
"""Returns the value of a key for a topic."""


class DeadLetterWrite(NamedTuple):
    """A batch of dead letters for one partition."""

    tp: TopicPartition
    topic_id: TopicId
    records: bytes


class DeadLetterPeers:
    """Writes batches at the leaders of their partitions, those of one turn of the event loop
    together."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        images: MetadataFollower,
        channels: PeerChannels,
        local: "DeadLetterLog",
    ) -> None:
        self._broker_id = identity.broker_id
        self._images = images
        self._channels = channels
        self._local = local
        self._requests: RequestsByBroker[DeadLetterWrite, int] = RequestsByBroker(
            self._write_at, errors_pb2.UNKNOWN_SERVER_ERROR
        )

    async def write(self, leader: BrokerId, write: DeadLetterWrite) -> int:
        """Return an error code, or NONE when all in-sync replicas have the batch."""
        return await self._requests.add(leader, write)

    def close(self) -> None:
        """Write nothing more."""
        self._requests.close()

    async def _write_at(self, leader: BrokerId, writes: Sequence[DeadLetterWrite]) -> Sequence[int]:
        if leader == self._broker_id:
            return await self._local.write(writes)
        broker = self._images.image.brokers.get(leader)
        if broker is None:
            return [errors_pb2.BROKER_NOT_AVAILABLE] * len(writes)
        stub = share_states_pb2_grpc.ShareStatesStub(self._channels.get(Peer.of(broker)))
        request = share_states_pb2.WriteDeadLettersRequest(broker_id=self._broker_id)
        for tp, topic_id, records in writes:
            request.batches.add(
                topic=tp.topic, topic_id=topic_id, partition=tp.partition, records=records
            )
        timeout_s = (WRITE_TIMEOUT_MS + _ANSWER_GRACE_MS) / 1000
        try:
            response = await stub.WriteDeadLetters(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            _log.info("broker %d takes no dead letters: %s", leader, error.details())
            return [errors_pb2.REQUEST_TIMED_OUT] * len(writes)
        return response.error_codes


class DeadLetterLog:
    """The dead letter topics that this broker leads."""

    def __init__(self, replicas: ReplicaManager, of_topic: OfTopic) -> None:
        self._replicas = replicas
        self._of_topic = of_topic

    async def write(self, writes: Sequence[DeadLetterWrite]) -> list[int]:
        """Append batches, and return an error code for each once it is committed.

        Whoever asks is a broker, but a topic must take dead letters as this broker knows it too.
        """
        taken = [self._of_topic(one.tp.topic, TOPIC_DEAD_LETTERS_ENABLE) for one in writes]
        outcomes = iter(
            await self._replicas.produce(
                [
                    ProduceEntry(one.tp, one.records, topic_id=one.topic_id)
                    for one, is_taken in zip(writes, taken, strict=True)
                    if is_taken
                ],
                ACKS_ALL,
                WRITE_TIMEOUT_MS,
            )
        )
        refused = errors_pb2.TOPIC_AUTHORIZATION_FAILED
        return [next(outcomes).error_code if is_taken else refused for is_taken in taken]


def writes_of(request: share_states_pb2.WriteDeadLettersRequest) -> list[DeadLetterWrite]:
    """Return the batches of a request."""
    return [
        DeadLetterWrite(
            TopicPartition(one.topic, one.partition), TopicId(one.topic_id), one.records
        )
        for one in request.batches
    ]
