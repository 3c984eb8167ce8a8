"""The broker's front door for simulated clients: Kafka's requests without their wire format.

What a handler of the Kafka listener asks of ``KafkaServices`` is asked here, over the simulated
network, in pickled tuples.
"""

import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from quorate.broker.changes.table import CHANGES, Change
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.replication.api import FetchParams, FetchPartition, Isolation, ProduceEntry
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.security.listener_security import OPEN_LISTENER, ListenerSecurity
from quorate.broker.security.listener_tls import ListenerTls
from quorate.common.types import BrokerId, Endpoint, TopicPartition
from tests.sim.cluster.rpc import Rpc
from tests.sim.cluster.rpc_frames import CLIENTS
from tests.sim.groups.group_door import GroupDoor

SERVICE = "clients"

Handler = Callable[[Any, Any], Awaitable[Any]]


class FrontDoor:
    """The surface of ``quorate.broker.kafka.server.KafkaServer``."""

    def __init__(self, rpc: Rpc, services: KafkaServices) -> None:
        self._rpc = rpc
        self._services = services
        self._is_open = False
        assert isinstance(services.replicas, ReplicaManager)
        self._replicas = services.replicas

    async def start(
        self,
        listener: Endpoint,
        security: ListenerSecurity = OPEN_LISTENER,
        tls: ListenerTls | None = None,
    ) -> Endpoint:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                handler, request_deserializer=pickle.loads, response_serializer=pickle.dumps
            )
            for name, handler in self._handlers().items()
        }
        self._rpc.servers[CLIENTS].add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        self._is_open = True
        return listener

    async def stop(self) -> None:
        self._is_open = False

    def _handlers(self) -> dict[str, Handler]:
        return {
            "Metadata": self._metadata,
            "Produce": self._produce,
            "TransactionalProduce": self._transactional_produce,
            "Fetch": self._fetch,
            "FetchCommitted": self._fetch_committed,
            "LatestOffset": self._latest_offset,
            **GroupDoor(self._services).handlers(),
            **{change.rpc: self._changing(change) for change in CHANGES},
        }

    async def _metadata(self, _: Any, __: Any) -> Any:
        """{(topic, partition): (topic id, leader, leader epoch)} as this broker was told."""
        return {
            (name, number): (topic.topic_id, int(one.leader), int(one.leader_epoch))
            for name, topic in self._services.metadata.topics.items()
            for number, one in enumerate(topic.partitions)
        }

    async def _produce(self, request: Any, _: Any) -> Any:
        """(error code, base offset, who led) for one batch with acks as asked."""
        tp, records, acks, timeout_ms = request
        return await self._append(ProduceEntry(TopicPartition(*tp), records), acks, timeout_ms)

    async def _transactional_produce(self, request: Any, _: Any) -> Any:
        """Produce as ``_produce`` does, for a transactional client."""
        tp, records, acks, timeout_ms, transactional_id, support = request
        origin = AppendOrigin.TRANSACTIONAL_CLIENT
        entry = ProduceEntry(
            TopicPartition(*tp), records, origin, transactional_id, support=support
        )
        return await self._append(entry, acks, timeout_ms)

    async def _append(self, entry: ProduceEntry, acks: int, timeout_ms: int) -> Any:
        hosted = self._replicas.table.named(entry.tp)
        epoch = -1 if hosted is None else int(hosted.replica.leader_epoch)
        tip = None if hosted is None else tuple(hosted.tip)
        (outcome,) = await self._services.replicas.produce([entry], acks, timeout_ms)
        return outcome.error_code, outcome.base_offset, tip, epoch

    async def _fetch(self, request: Any, _: Any) -> Any:
        """(error code, log start, records, partition) of one partition."""
        return (await self._read(request, Isolation.READ_UNCOMMITTED, None))[:4]

    async def _fetch_committed(self, request: Any, _: Any) -> Any:
        """Fetch as ``_fetch`` does, with the aborted transactions, and from a follower, too."""
        return await self._read(
            request, Isolation.READ_COMMITTED, frozenset({self._services.broker_id})
        )

    async def _read(
        self, request: Any, isolation: Isolation, near: frozenset[BrokerId] | None
    ) -> tuple[Any, ...]:
        tp, offset, epoch, max_wait_ms = request
        tp = TopicPartition(*tp)
        hosted = self._replicas.table.named(tp)
        terms = FetchParams(
            max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=4_000, isolation=isolation, near=near
        )
        want = FetchPartition(tp, offset, 2_000, epoch)
        (outcome,) = await self._services.replicas.fetch([want], terms)
        records = b"".join(outcome.chunks)
        tip = None if hosted is None else tuple(hosted.tip)
        aborted = [tuple(one) for one in outcome.aborted_transactions]
        return outcome.error_code, outcome.log_start_offset, records, tip, aborted

    async def _latest_offset(self, request: Any, _: Any) -> Any:
        """(error code, offset, partition): where readers of that isolation are at the end."""
        tp, epoch, isolation = request
        tp = TopicPartition(*tp)
        hosted = self._replicas.table.named(tp)
        outcome = self._services.replicas.list_offset(tp, -1, epoch, isolation)
        return outcome.error_code, outcome.offset, None if hosted is None else tuple(hosted.tip)

    def _changing(self, change: Change[Any, Any]) -> Handler:
        async def handler(request: bytes, _: Any) -> bytes:
            parsed = change.request.FromString(request)
            answer = await self._services.forwarder.forward(change, parsed)
            return bytes(answer.SerializeToString())

        return handler
