"""The replica manager: one front for everything that touches this broker's partitions."""

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import grpc.aio

from broker.background_tasks import BackgroundTasks
from broker.errors import KafkaError
from broker.log import LogStore, PartitionLog
from broker.log.cleaner import Worker
from broker.log.cleaner_process import CleanerProcess
from broker.log.damage import DamagedBatch
from broker.log.stored_log import StoredLog
from broker.peers import Peer
from broker.replication.api import (
    DeleteOutcome,
    DeleteWant,
    EpochEnd,
    FetchOutcome,
    FetchTerms,
    FetchWant,
    Isolation,
    LogSize,
    MarkerEntry,
    OffsetOutcome,
    ProduceEntry,
    ProduceOutcome,
)
from broker.replication.commands import ControlCommands
from broker.replication.compacting import Compacting
from broker.replication.consume import Consuming
from broker.replication.deleting import Deleting
from broker.replication.fetcher_pool import FetcherPool, FetchOptions
from broker.replication.isr_writer import IsrWriter, MetadataReader, Transactor
from broker.replication.limits import Limits
from broker.replication.partition_table import PartitionTable
from broker.replication.polling import Poll, Position
from broker.replication.produce import Producing, not_leader
from broker.replication.producer_states import ProducerState, producer_states
from broker.replication.retaining import Retaining
from broker.replication.strays import ConfirmUnassigned
from broker.replication.throttle import Throttles
from broker.replication.upkeep import Upkeep
from broker.replication.verification import TransactionBatch, Verification
from metadata_log.image import Image
from metadata_log.types import BrokerEpoch, BrokerId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReplicationOptions:
    """Taken from ``broker.config`` by whoever builds the broker."""

    fetch_wait_max_ms: int = 500
    fetch_response_max_bytes: int = 2 << 20
    checkpoint_interval_ms: int = 5_000
    producer_check_interval_ms: int = 600_000
    retention_check_interval_ms: int = 300_000


class ReplicaManager:
    """Owned by the event-loop thread: no locks against threads, no threads.

    Order of construction: the manager; ``LogStore.open(…, on_flushed=manager.on_flushed,
    on_failed=manager.on_log_failed)``; ``await manager.start(store)``. The gRPC services of
    ``fetch_service`` and ``range_read`` are built over ``manager.table``.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        options: ReplicationOptions,
        *,
        quorum: Transactor,
        metadata: MetadataReader,
        broker_epoch: Callable[[], BrokerEpoch | None],
        limits: Limits,
        confirm_unassigned: ConfirmUnassigned,
        now_ms: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        open_channel: Callable[[Peer], grpc.aio.Channel],
        throttles: Throttles | None = None,
        start_cleaner: Callable[[], Worker] = CleanerProcess,
    ) -> None:
        """``now_ms``: a monotonic clock; ``wall_clock_ms``: the one that records have their
        timestamps by, since the epoch. ``broker_epoch``: None until registered.

        ``open_channel``: to a leader; closed by its fetcher.
        """
        self.table = PartitionTable(
            broker_id,
            limits=limits,
            now_ms=now_ms,
            throttles=throttles,
        )
        self._wall_clock_ms = wall_clock_ms
        self._isr_writer = IsrWriter(self.table, quorum, metadata, broker_epoch)
        self.table.isr_proposals = self._isr_writer
        self._fetchers = FetcherPool(
            self.table,
            FetchOptions(
                max_wait_ms=options.fetch_wait_max_ms, max_bytes=options.fetch_response_max_bytes
            ),
            broker_epoch,
            open_channel,
        )
        self._commands = ControlCommands(self.table, self._fetchers, confirm_unassigned)
        self._producing = Producing(self.table, wall_clock_ms)
        self._consuming = Consuming(self.table)
        self._deleting = Deleting(self.table)
        self.compacting = Compacting(self.table, limits, now_ms, wall_clock_ms, start_cleaner)
        self._upkeep = Upkeep(
            self.table,
            limits,
            Retaining(self.table, limits, wall_clock_ms),
            self.compacting,
            checkpoint_interval_ms=options.checkpoint_interval_ms,
            producer_check_interval_ms=options.producer_check_interval_ms,
            retention_check_interval_ms=options.retention_check_interval_ms,
        )
        self._tasks = BackgroundTasks()

    # -- life ------------------------------------------------------------------------------------

    async def start(self, store: LogStore) -> None:
        """Host every log found on disk; none leads or follows until it is told to (C10)."""
        self.table.attach(store)
        self._tasks.start(self._isr_writer.run(), "isr-writer")
        self._upkeep.start(self._tasks)

    async def adopt_image(self, image: Image, *, log_may_be_lost: bool = False) -> None:
        """Start the replicas that the image assigns to this broker, and check strays (C10).

        ``log_may_be_lost``: take up no leadership, the quorum decides first (rule 8).
        """
        await self._commands.adopt_image(image, log_may_be_lost=log_may_be_lost)

    def configs_changed(self, topics: Set[str] | None = None) -> None:
        """The watch brought another configuration: what leads here looks its limits up again.

        ``topics``: as ``PartitionTable.configs_changed``.
        """
        self.table.configs_changed(topics)
        self.table.tick()

    def prepare_to_stop(self) -> None:
        """Before a controlled shutdown: no ISR that this broker is taken out of is joined again."""
        self._fetchers.drain()

    async def close(self) -> None:
        """Stop fetching and serving; waiting produces fail. The log store is the caller's."""
        await self._commands.close()
        await self._producing.recoding.close()
        if self._producing.verification is not None:
            await self._producing.verification.close()
        await self._fetchers.close()
        await self._tasks.close()
        await self.compacting.close()
        for hosted in self.table:
            self.table.run(hosted, hosted.replica.stop())
            hosted.fail_all(errors_pb2.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
            hosted.leadership_changed()
        self._upkeep.checkpoint()

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        """For ``LogStore.open``: a group of appends is durable."""
        self.table.on_flushed(logs)

    def on_log_failed(self, error: Exception) -> None:
        """For ``LogStore.open``: nothing can be written any more; every waiting produce fails."""
        log.error("the log store failed: %s", error)
        for hosted in self.table:
            hosted.fail_all(errors_pb2.KAFKA_STORAGE_ERROR, f"the log store failed: {error}")

    def on_damaged(self, damaged_log: StoredLog, damaged: DamagedBatch) -> bool:
        """For ``LogStore.on_damaged``: a batch cannot be read. Whether its log was whole so far."""
        hosted = self.table.get(damaged_log.tip)
        if hosted is None or hosted.log is not damaged_log:
            return False
        is_new = not hosted.is_damaged
        if is_new:
            log.error("%s has damage: %s", hosted.tp, damaged.message)
        hosted.damaged_at = max(damaged.base_offset, hosted.damaged_at or 0)
        return is_new

    def damaged(self) -> list[TopicIdPartition]:
        """Replicas with damaged logs that were not told yet to fetch them again."""
        return [
            hosted.tip
            for hosted in self.table
            if hosted.is_damaged and not (hosted.following and hosted.following.start_over)
        ]

    def on_room(self, has_room: bool) -> None:
        """The disk is full: who waits for it is told, though what was appended may count later."""
        self._fetchers.tell_positions()
        if not has_room:
            for hosted in self.table:
                hosted.fail_all(errors_pb2.KAFKA_STORAGE_ERROR, "the disk of the log is full")

    # -- clients ---------------------------------------------------------------------------------

    def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> Coroutine[Any, Any, list[ProduceOutcome]]:
        """Append at the leader and wait as ``acks`` asks; appends happen before the first await."""
        return self._producing.produce(entries, acks, timeout_ms)

    def verify_transactions(self, verification: Verification | None) -> None:
        """Have coordinators asked before transactions begin here; None: not from now on."""
        self._producing.verification = verification

    async def verify_transaction(self, batch: TransactionBatch) -> None:
        """Right before a coordinator appends in the name of a producer: as ``Verification.verify``.

        Raises:
            KafkaError: it may not.
        """
        hosted, verification = self.table.named(batch.tp), self._producing.verification
        if hosted is not None and verification is not None:
            await verification.verify(hosted, batch)

    async def producer_states(self, tp: TopicPartition) -> list[ProducerState]:
        """The producers that a replica of this broker knows.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION: there is none here.
        """
        hosted = self.table.named(tp)
        if hosted is None:
            raise KafkaError(*not_leader(tp, hosted))
        return await producer_states(hosted.log)

    def write_markers(
        self, entries: Sequence[MarkerEntry], timeout_ms: int
    ) -> Coroutine[Any, Any, list[int]]:
        """End transactions in partitions led here, by committed markers; a code per entry.

        NONE, or why not: INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED will stay, what
        else there is passes.
        """
        return self._producing.write_markers(entries, timeout_ms, self._wall_clock_ms())

    async def fetch(self, wants: Sequence[FetchWant], terms: FetchTerms) -> list[FetchOutcome]:
        """Committed records for consumers, by long poll (C16)."""
        return await self._consuming.fetch(wants, terms)

    async def poll(self, poll: Poll, terms: FetchTerms) -> dict[Position, FetchOutcome]:
        """As ``fetch``, of those positions of a session that have news."""
        return await self._consuming.poll(poll, terms)

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        current_leader_epoch: int = -1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> OffsetOutcome:
        """Latest (-1), earliest (-2), that of the greatest timestamp (-3), or the first offset at
        or after a timestamp."""
        return self._consuming.list_offset(tp, timestamp_ms, current_leader_epoch, isolation)

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEnd:
        """Where an epoch ends in the leader's log."""
        return self._consuming.offset_for_leader_epoch(tp, current_leader_epoch, leader_epoch)

    async def delete_records(
        self, wants: Sequence[DeleteWant], timeout_ms: int
    ) -> list[DeleteOutcome]:
        """Delete what lies below an offset, here and on the ISR."""
        return await self._deleting.delete(wants, timeout_ms)

    def log_sizes(self) -> Iterator[LogSize]:
        """Every partition that this broker holds."""
        for hosted in self.table:
            behind = hosted.replica.high_watermark - hosted.log.log_end_offset
            yield LogSize(hosted.tp, hosted.log.size_bytes, max(0, behind))

    def storage_is_troubled(self) -> bool:
        """Whether the log folder is full, or a log in it cannot be read."""
        return self.table.store.is_full or any(hosted.is_damaged for hosted in self.table)

    # -- the controller --------------------------------------------------------------------------

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow, as told by a controller that was fenced before (C6, C7)."""
        return await self._commands.apply_leader_and_isr(request)

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Stop, and delete if told so (C8)."""
        return await self._commands.stop_replicas(request)
