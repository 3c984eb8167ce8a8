"""What the Kafka listener needs of the rest of the broker, as narrow protocols.

The real ones are ``replication.manager``, ``control.metadata_cache`` and ``control.forwarding``;
tests bring fakes of the same surface.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.replication.api import (
    EpochEnd,
    FetchOutcome,
    FetchWant,
    OffsetOutcome,
    ProduceEntry,
    ProduceOutcome,
)
from metadata_log.configuration import Configuration
from metadata_log.types import (
    BrokerId,
    Endpoint,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from quorate_proto.v1 import admin_pb2


class Replicas(Protocol):
    """The partitions of this broker.

    ``produce`` appends before its first await: requests of one connection are started in order and
    not waited for, so anything else would reorder a producer's batches.
    """

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]: ...

    async def fetch(
        self, wants: Sequence[FetchWant], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[FetchOutcome]: ...

    def list_offset(
        self, tp: TopicPartition, timestamp_ms: int, current_leader_epoch: int = -1
    ) -> OffsetOutcome: ...

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEnd: ...


class KnownPartition(Protocol):
    """One partition as UpdateMetadata told it. ``leader`` -1: none."""

    @property
    def leader(self) -> BrokerId: ...
    @property
    def leader_epoch(self) -> LeaderEpoch: ...
    @property
    def replicas(self) -> tuple[BrokerId, ...]: ...
    @property
    def isr(self) -> tuple[BrokerId, ...]: ...


class KnownTopic(Protocol):
    """One topic; partition number = position."""

    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partitions(self) -> Sequence[KnownPartition]: ...


class KnownBroker(Protocol):
    """One live broker. ``rack`` empty: none."""

    @property
    def kafka(self) -> Endpoint: ...
    @property
    def grpc(self) -> Endpoint: ...
    @property
    def rack(self) -> str: ...


class Metadata(Protocol):
    """What clients are told (C19): changed by UpdateMetadata alone.

    Every change comes with a new mapping of ``brokers``, so answers may be cached by its identity.
    """

    @property
    def controller_id(self) -> BrokerId: ...
    @property
    def brokers(self) -> Mapping[BrokerId, KnownBroker]: ...
    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    def topic_name(self, topic_id: TopicId) -> str | None: ...


class Forwarder(Protocol):
    """Changes of topics, carried out by the controller: here, or one hop away (F2)."""

    async def create_topics(
        self, request: admin_pb2.CreateTopicsRequest
    ) -> admin_pb2.CreateTopicsResponse: ...

    async def delete_topics(
        self, request: admin_pb2.DeleteTopicsRequest
    ) -> admin_pb2.DeleteTopicsResponse: ...


class ProducerIdSource(Protocol):
    """``coordinator.producer_ids.ProducerIds``."""

    async def take(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaServices:
    """Collaborators of the listener. ``config``: of ``broker.config``."""

    config: Configuration
    broker_id: BrokerId
    cluster_id: str
    replicas: Replicas
    metadata: Metadata
    forwarder: Forwarder
    producer_ids: ProducerIdSource
