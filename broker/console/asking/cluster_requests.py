"""Asks the cluster on behalf of a person: this broker, or the brokers that have the data."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.config.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from quorate.broker.console.asking.console_apis import ConsoleApi
from quorate.broker.console.asking.kafka_messages import decode_response, encode_request
from quorate.broker.console.asking.local_requests import AskFailed, LocalRequests
from quorate.broker.console.asking.person import Person, encode_person
from quorate.broker.kafka.wire.codec import Message
from quorate.broker.kafka.wire.primitives import MalformedRequest
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.rpc.peer_channels import Peer, PeerChannels
from quorate.common.types import NO_BROKER, BrokerId, TopicPartition
from quorate_proto.v1 import console_pb2, console_pb2_grpc

PEER_TIMEOUT_S: Final = 5.0
"""The longest wait for another broker. A page that lacks one broker is better than none."""

AT_ONCE: Final = 16
"""The requests to other brokers that are under way at the same time, for all people together."""

T = TypeVar("T")

Answers = Mapping[BrokerId, T | AskFailed]
"""The answer of each broker, or why there is none."""


class ClusterRequests:
    """Has requests carried out where they belong."""

    def __init__(
        self,
        identity: BrokerIdentity,
        images: MetadataFollower,
        channels: PeerChannels,
        local: LocalRequests,
    ) -> None:
        self._identity = identity
        self._images = images
        self._channels = channels
        self._local = local
        self._turns = asyncio.Semaphore(AT_ONCE)

    @property
    def broker_id(self) -> BrokerId:
        """The broker that serves this console."""
        return self._identity.broker_id

    async def ask(
        self, person: Person, api: ConsoleApi, body: Message, at: BrokerId | None = None
    ) -> Message:
        """Return the response of broker ``at``, or of this one.

        Raises:
            AskFailed: there is no response. The message says why.
        """
        frame = encode_request(api, body)
        try:
            if at is None or at == self.broker_id:
                return decode_response(api, await self._local.carry_out(person, frame))
            request = console_pb2.CarryOutRequest(
                broker_id=self.broker_id, person=encode_person(person), frame=frame
            )
            answer = await self.call(
                at, lambda stub: stub.CarryOut(request, timeout=PEER_TIMEOUT_S)
            )
            if answer.refusal:
                raise AskFailed(f"broker {at}: {answer.refusal}")
            return decode_response(api, answer.body)
        except MalformedRequest as error:
            raise AskFailed(f"the response to {api.name} cannot be read: {error}") from error

    async def ask_each(
        self,
        person: Person,
        api: ConsoleApi,
        body: Message,
        brokers: Iterable[BrokerId] | None = None,
    ) -> Answers[Message]:
        """Ask each of ``brokers``, or all live ones, the same at the same time."""
        asked = self.live_brokers if brokers is None else tuple(brokers)
        return await self.each(asked, lambda broker: self.ask(person, api, body, broker))

    async def ask_owners(
        self, person: Person, api: ConsoleApi, bodies: Mapping[BrokerId, Message]
    ) -> Answers[Message]:
        """Ask each broker what is there for it in ``bodies``, at the same time."""
        return await self.each(bodies, lambda broker: self.ask(person, api, bodies[broker], broker))

    async def each(
        self, brokers: Iterable[BrokerId], ask: Callable[[BrokerId], Awaitable[T]]
    ) -> Answers[T]:
        """Call ``ask`` for each broker at the same time, and return the answers by broker."""

        async def answer(broker: BrokerId) -> tuple[BrokerId, T | AskFailed]:
            try:
                return broker, await ask(broker)
            except AskFailed as error:
                return broker, error

        return dict(await asyncio.gather(*map(answer, brokers)))

    async def call(
        self,
        at: BrokerId,
        call: "Callable[[console_pb2_grpc.ConsolePeersAsyncStub], Awaitable[T]]",
    ) -> T:
        """Call another broker.

        Raises:
            AskFailed: it does not answer, or its release has no console.
        """
        broker = self._images.image.brokers.get(at)
        if broker is None:
            raise AskFailed(f"broker {at} is away")
        stub: Any = console_pb2_grpc.ConsolePeersStub(self._channels.get(Peer.of(broker)))
        try:
            async with self._turns:
                return await call(stub)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                reason = f"broker {at} runs a release without the console"
            else:
                reason = f"broker {at} does not answer: {error.details() or error.code().name}"
            raise AskFailed(reason) from error

    # -- who has the data ------------------------------------------------------------------------

    @property
    def live_brokers(self) -> tuple[BrokerId, ...]:
        """The registered brokers, in order."""
        return tuple(sorted(self._images.image.brokers))

    def leader_of(self, tp: TopicPartition) -> BrokerId:
        """Return the leader of a partition.

        Raises:
            AskFailed: there is no such partition, or nobody leads it.
        """
        partition = self._images.image.partition(tp)
        if partition is None:
            raise AskFailed(f"there is no partition {tp}")
        if partition.leader == NO_BROKER:
            raise AskFailed(f"{tp} is offline: nobody leads it")
        return partition.leader

    def coordinator_of_group(self, group: str) -> BrokerId:
        """Return the broker that coordinates a group.

        Raises:
            AskFailed: there is none now.
        """
        return self._coordinator(OFFSETS_TOPIC, group)

    def coordinator_of_transactions(self, transactional_id: str) -> BrokerId:
        """Return the broker that coordinates a transactional id.

        Raises:
            AskFailed: there is none now.
        """
        return self._coordinator(TRANSACTIONS_TOPIC, transactional_id)

    def _coordinator(self, topic_name: str, name: str) -> BrokerId:
        topic = self._images.image.topics.get(topic_name)
        if topic is None:
            raise AskFailed(f"{topic_name} does not exist yet: nobody has used it")
        number = partition_of(name, topic.partition_count)
        return self.leader_of(TopicPartition(topic_name, number))
