"""The replica manager: every partition this broker hosts, and the effects of their decisions."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.log.store import LogStore
from broker.replication.api import (
    EpochEnd,
    FetchOutcome,
    FetchWant,
    OffsetOutcome,
    ProduceEntry,
    ProduceOutcome,
)
from metadata_log.image import Image
from metadata_log.records import Operation, TransactionResult
from metadata_log.types import (
    BrokerEpoch,
    BrokerId,
    MetadataOffset,
    TopicIdPartition,
    TopicPartition,
)
from quorate_proto.v1 import control_pb2


class Transactor(Protocol):
    """The part of ``QuorumClient`` that ISR changes need."""

    async def transact(
        self, operations: Sequence[Operation], *, atomic: bool = True, timeout_ms: int = 30_000
    ) -> TransactionResult: ...


class MetadataReader(Protocol):
    """The part of ``MetadataFollower`` that a fresh read after a conflict needs."""

    @property
    def image(self) -> Image: ...

    async def wait_for(self, offset: MetadataOffset) -> Image: ...


@dataclass(frozen=True, kw_only=True)
class ReplicationOptions:
    """Taken from ``broker.config`` by whoever builds the broker."""

    replica_lag_time_max_ms: int = 30_000
    fetch_wait_max_ms: int = 500
    fetch_response_max_bytes: int = 2 << 20
    checkpoint_interval_ms: int = 5_000


class ReplicaManager:
    """Owned by the event-loop thread: no locks, no threads.

    Order of construction: the manager; ``LogStore.open(…, on_flushed=manager.on_flushed,
    on_failed=manager.on_log_failed)``; ``await manager.start(store)``.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        options: ReplicationOptions,
        *,
        quorum: Transactor,
        metadata: MetadataReader,
        broker_epoch: Callable[[], BrokerEpoch],
        min_insync_replicas: Callable[[str], int],
        confirm_unassigned: Callable[[TopicIdPartition], Awaitable[bool]],
        now_ms: Callable[[], int],
    ) -> None: ...

    async def start(self, store: LogStore) -> None:
        """Host every log found on disk; none leads or follows until it is told to (C10)."""
        raise NotImplementedError

    async def adopt_image(self, image: Image, *, log_may_be_lost: bool = False) -> None:
        """Start the replicas that the image assigns to this broker, and check strays (C10)."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]:
        raise NotImplementedError

    async def fetch(
        self, wants: Sequence[FetchWant], *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> list[FetchOutcome]:
        raise NotImplementedError

    def list_offset(
        self, tp: TopicPartition, timestamp_ms: int, current_leader_epoch: int = -1
    ) -> OffsetOutcome:
        raise NotImplementedError

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEnd:
        raise NotImplementedError

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        raise NotImplementedError

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        raise NotImplementedError
