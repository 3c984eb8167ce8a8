"""The base of every client of a run: it calls brokers, and knows what one of them told it last."""

import asyncio
import pickle
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from quorate.broker.common.errors import error_name
from quorate.broker.config.internal_topics import INTERNAL_TOPICS
from quorate_proto.v1 import errors_pb2
from tests.sim.cluster.front_door import SERVICE
from tests.sim.cluster.rpc_frames import endpoint_of
from tests.sim.world import Violation

if TYPE_CHECKING:
    from tests.sim.cluster.clients import Clients

CALL_TIMEOUT_S: Final = 3.0

UNEXPECTED: Final = frozenset(
    {
        errors_pb2.UNKNOWN_SERVER_ERROR,
        errors_pb2.CORRUPT_MESSAGE,
        errors_pb2.INVALID_RECORD,
        errors_pb2.INVALID_REQUEST,
    }
)

TopicPart = tuple[str, int]


class Client:
    """Calls brokers, and remembers the newest leaderships it was told."""

    sees_internal_topics = False
    """Whether it is told of the topics of coordinators, which coordinators alone write to."""

    def __init__(self, clients: "Clients", number: int) -> None:
        self.clients = clients
        self.number = number
        self.world = clients.world
        self.leaders: dict[TopicPart, tuple[bytes, int, int]] = {}
        self._channels: dict[int, Any] = {}
        self.is_idle = False

    async def call(self, broker: int, name: str, request: Any) -> Any:
        """The broker's answer, None if there is none in time."""
        channel = self.channel(broker)
        method = channel.unary_unary(f"/{SERVICE}/{name}", pickle.dumps, pickle.loads)
        try:
            return await method(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return None

    def channel(self, broker: int) -> Any:
        """This client's connection to a broker."""
        channel = self._channels.get(broker)
        if channel is None:
            rpc = self.clients.process.rpc
            channel = self._channels[broker] = rpc.open_channel(endpoint_of(broker))
        return channel

    def any_broker(self) -> int:
        return self.world.random.choice(self.clients.broker_ids)

    async def look(self) -> None:
        """Ask any broker who leads what."""
        told = await self.call(self.any_broker(), "Metadata", None)
        if told is None:
            await self.pause(0.2)
            return
        fresh = {}
        for tp, (topic_id, leader, epoch) in told.items():
            if tp[0] in INTERNAL_TOPICS and not self.sees_internal_topics:
                continue
            known = self.leaders.get(tp)
            if known is not None and known[0] == topic_id and known[2] > epoch:
                fresh[tp] = known
            else:
                fresh[tp] = (topic_id, leader, epoch)
        self.leaders = fresh

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.world.between(0.5, 1.5))

    def check_code(self, code: int, what: str) -> None:
        if code in UNEXPECTED:
            raise Violation(f"client {self.number}: {what} answered {error_name(code)}")
