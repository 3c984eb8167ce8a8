"""``ShareStates``: asks the share coordinators, on this broker or on others (KIP-932).

Whoever is asked may no longer coordinate, or not yet, so a question is asked again for a while. It
does no harm if a question is carried out twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import error_name
from quorate.broker.config.internal_topics import SHARE_STATE_TOPIC, partition_of
from quorate.broker.coordinator.shards.shared_requests import RequestsByBroker
from quorate.broker.coordinator.share.dead_letters.dead_letter_peers import (
    DeadLetterLog,
    writes_of,
)
from quorate.broker.coordinator.share.share_coordinator import ShareCoordinator
from quorate.broker.coordinator.share.share_questions import Answer, Question
from quorate.broker.coordinator.share.share_state_messages import (
    answer_message,
    answer_of,
    question_message,
    question_of,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.api import LATEST_TIMESTAMP_MS
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import ID_BYTES, NO_BROKER, BrokerId, TopicPartition
from quorate_proto.v1 import errors_pb2, share_states_pb2, share_states_pb2_grpc

_log: Final = logging.getLogger(__name__)

TIMEOUT_MS: Final = 7_000
"""Longer than the coordinator waits for its in-sync replicas."""
PATIENCE_MS: Final = 10_000
"""How long a question is asked again: an election of another coordinator takes less."""
_PAUSES_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5)

_TRY_AGAIN: Final = frozenset(
    {
        errors_pb2.NOT_COORDINATOR,
        errors_pb2.COORDINATOR_NOT_AVAILABLE,
        errors_pb2.COORDINATOR_LOAD_IN_PROGRESS,
        errors_pb2.REQUEST_TIMED_OUT,
        errors_pb2.BROKER_NOT_AVAILABLE,
    }
)

_FAILED: Final = Answer(errors_pb2.UNKNOWN_SERVER_ERROR, "the share coordinator was not asked")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ShareStates:
    """The share coordinators of the cluster, as one broker asks them. All methods run on the event
    loop."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        images: MetadataFollower,
        channels: PeerChannels,
        local: ShareCoordinator,
        replicas: ReplicaManager,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = identity.broker_id
        self._images = images
        self._channels = channels
        self._local = local
        self._replicas = replicas
        self._now_ms = now_ms
        self._requests = RequestsByBroker(self._send, _FAILED)

    async def ask(self, question: Question, patience_ms: int = PATIENCE_MS) -> Answer:
        """Return the answer; with an error if there is none within ``patience_ms``."""
        until_ms = self._now_ms() + patience_ms
        pauses = iter(_PAUSES_S)
        while True:
            answer = await self._ask_once(question)
            if answer.error_code not in _TRY_AGAIN or self._now_ms() >= until_ms:
                return answer
            await asyncio.sleep(next(pauses, _PAUSES_S[-1]))

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers to questions that are asked at the same time."""
        return list(await asyncio.gather(*map(self.ask, questions)))

    async def end_offsets(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions end, as their leaders know it; unknown ones are left out."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for tp in tps:
            partition = self._images.image.partition(tp)
            if partition is not None and partition.leader != NO_BROKER:
                by_leader.setdefault(partition.leader, []).append(tp)
        found: dict[TopicPartition, int] = {}
        for leader, some in by_leader.items():
            ends = await self._ends_at(leader, some)
            found.update((tp, end) for tp, end in zip(some, ends, strict=False) if end >= 0)
        return found

    async def _ends_at(self, leader: BrokerId, tps: Sequence[TopicPartition]) -> Sequence[int]:
        if leader == self._broker_id:
            return ends_here(self._replicas, tps)
        broker = self._images.image.brokers.get(leader)
        if broker is None:
            return ()
        request = share_states_pb2.FindEndsRequest(broker_id=self._broker_id)
        for tp in tps:
            request.partitions.add(topic=tp.topic, partition=tp.partition)
        stub = share_states_pb2_grpc.ShareStatesStub(self._channels.get(Peer.of(broker)))
        try:
            response = await stub.FindEnds(request, timeout=TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError as error:
            _log.info("broker %d does not say where it ends: %s", leader, error.details())
            return ()
        return response.end_offsets

    def close(self) -> None:
        """Ask nothing more."""
        self._requests.close()

    async def _ask_once(self, question: Question) -> Answer:
        coordinator = self._coordinator(question)
        if coordinator == NO_BROKER:
            return Answer(
                errors_pb2.COORDINATOR_NOT_AVAILABLE,
                f"the partition of {SHARE_STATE_TOPIC} has no leader now",
            )
        if coordinator == self._broker_id:
            return await self._local.ask(question)
        return await self._requests.add(coordinator, question)

    def _coordinator(self, question: Question) -> BrokerId:
        topic = self._images.image.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            return NO_BROKER
        partition = partition_of(question.key.coordinated_name, len(topic.partitions))
        return topic.partitions[partition].leader

    async def _send(self, broker_id: BrokerId, questions: Sequence[Question]) -> Sequence[Answer]:
        broker = self._images.image.brokers.get(broker_id)
        if broker is None:
            return [Answer(errors_pb2.BROKER_NOT_AVAILABLE)] * len(questions)
        request = share_states_pb2.ShareStatesRequest(
            broker_id=self._broker_id, questions=map(question_message, questions)
        )
        stub = share_states_pb2_grpc.ShareStatesStub(self._channels.get(Peer.of(broker)))
        try:
            response = await stub.Ask(request, timeout=TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError as error:
            _log.info("broker %d does not answer for share groups: %s", broker_id, error.details())
            return [Answer(errors_pb2.REQUEST_TIMED_OUT)] * len(questions)
        return [answer_of(one) for one in response.answers]


class ShareStatesService(share_states_pb2_grpc.ShareStatesServicer):
    """``ShareStates``, the gRPC service for other brokers."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        replicas: ReplicaManager,
        dead_letters: DeadLetterLog,
    ) -> None:
        self._coordinator = coordinator
        self._replicas = replicas
        self._dead_letters = dead_letters

    async def Ask(
        self, request: share_states_pb2.ShareStatesRequest, context: Context
    ) -> share_states_pb2.ShareStatesResponse:
        """Answer all questions once what they change is committed."""
        if any(len(one.topic_id) != ID_BYTES for one in request.questions):
            refused = Answer(errors_pb2.INVALID_REQUEST, f"a topic id has {ID_BYTES} bytes")
            answers: Sequence[Answer] = [refused] * len(request.questions)
        else:
            answers = await self._coordinator.ask_all([*map(question_of, request.questions)])
        return share_states_pb2.ShareStatesResponse(answers=map(answer_message, answers))

    async def FindEnds(
        self, request: share_states_pb2.FindEndsRequest, context: Context
    ) -> share_states_pb2.FindEndsResponse:
        """Return where partitions end that are led here."""
        tps = [TopicPartition(one.topic, one.partition) for one in request.partitions]
        return share_states_pb2.FindEndsResponse(end_offsets=ends_here(self._replicas, tps))

    async def WriteDeadLetters(
        self, request: share_states_pb2.WriteDeadLettersRequest, context: Context
    ) -> share_states_pb2.WriteDeadLettersResponse:
        """Append dead letters to partitions that are led here."""
        codes = await self._dead_letters.write(writes_of(request))
        return share_states_pb2.WriteDeadLettersResponse(error_codes=codes)


def ends_here(replicas: ReplicaManager, tps: Iterable[TopicPartition]) -> list[int]:
    """Return the high watermarks of partitions that are led here, and -1 for others."""
    outcomes = [replicas.list_offset(tp, LATEST_TIMESTAMP_MS) for tp in tps]
    return [-1 if one.error_code else one.offset for one in outcomes]


def why_failed(answer: Answer) -> str:
    """Return the error of an answer, for people."""
    return f"{error_name(answer.error_code)}: {answer.error_message}"
