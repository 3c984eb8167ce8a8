"""The replica manager: the one front for everything that touches this broker's partitions."""

import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import ITEMS_IN_A_STEP, Steps
from quorate.broker.control.ports import Transactor
from quorate.broker.log import LogDirectories
from quorate.broker.log.cleaning.cleaner import CleanerWorker
from quorate.broker.log.cleaning.cleaner_process import CleanerProcess
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.broker.log.writing.log_writer import LogManagerListener
from quorate.broker.replication.api import (
    DeleteOutcome,
    DeleteRecordsPartition,
    EpochEndOffset,
    FetchOutcome,
    FetchParams,
    FetchPartition,
    Isolation,
    LogSize,
    MarkerEntry,
    OffsetOutcome,
    ProduceEntry,
    ProduceOutcome,
)
from quorate.broker.replication.commands.control_commands import ControlCommands
from quorate.broker.replication.commands.deposed_leaders import DeposedLeaders, SessionLife
from quorate.broker.replication.commands.stray_partitions import AssignmentCheck, QuorumReader
from quorate.broker.replication.fetching.replica_fetcher_manager import (
    ReplicaFetcherManager,
    ReplicaFetchOptions,
)
from quorate.broker.replication.hosting.delayed_fetch import DelayedFetch, FetchPosition
from quorate.broker.replication.hosting.delayed_produce import DelayedProduce
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_limits import PartitionLimits
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.hosting.replication_throttle import ReplicationThrottles
from quorate.broker.replication.isr_manager import IsrManager, MetadataReader
from quorate.broker.replication.maintenance.compaction_task import CompactionTask
from quorate.broker.replication.maintenance.maintenance_scheduler import MaintenanceScheduler
from quorate.broker.replication.maintenance.retention_task import RetentionTask
from quorate.broker.replication.moving.replica_mover import ReplicaMover, fresh_image
from quorate.broker.replication.serving.delete_records import RecordDeleter
from quorate.broker.replication.serving.fetch import RecordReader
from quorate.broker.replication.serving.known_schemas import KnownSchemas
from quorate.broker.replication.serving.produce import RecordAppender
from quorate.broker.replication.serving.producer_states import ProducerState, producer_states
from quorate.broker.replication.serving.transaction_verification import (
    TransactionBatch,
    TransactionVerification,
    TransactionVerifier,
)
from quorate.broker.rpc.peer_channels import PeerNetwork
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.clock import Clock
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import BrokerId, TopicIdPartition, TopicPartition
from quorate.metadata_log.image import Image
from quorate_proto.v1 import control_pb2, errors_pb2

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReplicationOptions:
    """The intervals and sizes of replication, from ``quorate.broker.config``."""

    fetch_wait_max_ms: int = 500
    fetch_response_max_bytes: int = 2 << 20
    checkpoint_interval_ms: int = 5_000
    producer_check_interval_ms: int = 600_000
    retention_check_interval_ms: int = 300_000


class ReplicaQuorum(Transactor, QuorumReader, SessionLife, Protocol):
    """The part of the quorum client that replicas need."""


class ReplicaManager(LogManagerListener):
    """The front of replication: clients, the controller and the log store talk to it.

    The event-loop thread owns it: it has no locks against threads, and starts none. It hosts every
    log of the store from the beginning. No replica leads or follows until it is told to (C10).
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        store: LogDirectories,
        options: ReplicationOptions,
        *,
        quorum: ReplicaQuorum,
        metadata: MetadataReader,
        limits: PartitionLimits,
        throttles: ReplicationThrottles,
        clock: Clock,
        network: PeerNetwork,
        partition_count: Callable[[str], int],
        verifier: TransactionVerifier | None = None,
        assignments: AssignmentCheck | None = None,
        start_cleaner: Callable[[], CleanerWorker] = CleanerProcess,
    ) -> None:
        """Host the logs of ``store``.

        ``network`` opens the channels to leaders. ``partition_count`` returns the partitions of a
        topic, 0 if this broker knows none. Without a ``verifier`` transactions begin
        unverified. ``assignments`` asks the quorum about strays; by default it reads ``metadata``.
        ``start_cleaner`` starts the process that compacts, when it is needed.
        """
        self.table = PartitionTable(
            identity.broker_id,
            store,
            limits=limits,
            throttles=throttles,
            clock=clock,
            partition_count=partition_count,
        )
        self._limits = limits
        self._isr_manager = IsrManager(self.table, quorum, metadata, identity)
        self._fetchers = ReplicaFetcherManager(
            self.table,
            ReplicaFetchOptions(
                max_wait_ms=options.fetch_wait_max_ms, max_bytes=options.fetch_response_max_bytes
            ),
            identity,
            network,
        )
        self._commands = ControlCommands(
            self.table,
            self._fetchers,
            assignments or AssignmentCheck(identity.broker_id, quorum, metadata),
        )
        self._mover = ReplicaMover(self.table, self._commands, fresh_image(quorum, metadata))
        verification = None if verifier is None else TransactionVerification(verifier, limits)
        self.schemas = KnownSchemas()
        """The schemas of topics whose records must name theirs; whoever serves the registry says
        how it is asked."""
        self._appender = RecordAppender(self.table, verification, self.schemas)
        self._reader = RecordReader(self.table)
        self._deleter = RecordDeleter(self.table)
        self.compaction = CompactionTask(self.table, limits, start_cleaner)
        self.retention = RetentionTask(self.table, limits)
        self._maintenance = MaintenanceScheduler(
            self.table,
            limits,
            self.retention,
            self.compaction,
            checkpoint_interval_ms=options.checkpoint_interval_ms,
            producer_check_interval_ms=options.producer_check_interval_ms,
            retention_check_interval_ms=options.retention_check_interval_ms,
        )
        self._deposed_leaders = DeposedLeaders(self.table, metadata, quorum, limits)
        self._tasks = BackgroundTasks()

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Write ISR changes and maintain the logs until ``close``."""
        self._tasks.start(self._isr_manager.run(), "isr-writer")
        self._tasks.start(self._deposed_leaders.run(), "deposed-leaders")
        self._maintenance.start(self._tasks)
        self._mover.resume()

    async def adopt_image(
        self,
        image: Image,
        *,
        log_may_be_lost: bool = False,
        lost: Set[TopicIdPartition] = frozenset(),
    ) -> None:
        """Start the replicas that the image assigns to this broker, and check strays (C10).

        With ``log_may_be_lost`` take up no leadership, and otherwise none of a ``lost`` replica:
        the quorum decides first (rule 8).
        """
        await self._commands.adopt_image(image, log_may_be_lost=log_may_be_lost, lost=lost)

    def configs_changed(self, topics: Set[str] | None = None) -> None:
        """Have leaders here look up their limits again: the configuration has changed.

        ``topics`` are those whose configuration has changed. None means that any may have.
        """
        self.table.configs_changed(topics)
        self.table.tick()

    def prepare_to_stop(self) -> None:
        """Prepare a controlled shutdown: join no ISR again that this broker is taken out of."""
        self._fetchers.drain()

    async def close(self) -> None:
        """Stop fetching and serving; waiting produces fail. The caller closes the log store."""
        await self._mover.close()
        await self._commands.close()
        await self._appender.close()
        await self._fetchers.close()
        await self._tasks.close()
        await self.compaction.close()
        for hosted in self.table:
            self.table.run(hosted, hosted.replica.stop())
            hosted.fail_all(errors_pb2.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
            hosted.leadership_changed()
        self._maintenance.checkpoint()

    def silent_peers(self) -> Mapping[BrokerId, int]:
        """Return the brokers that nothing is heard of over replication streams, and since when."""
        return self.table.silent_peers()

    def silence_max_ms(self) -> int:
        """Return ``replica.silence.max.ms``."""
        return self._limits.silence_max_ms()

    def on_flushed(self, logs: Sequence[StoredLog]) -> None:
        """Serve everybody who waits for this group of appends: it is durable."""
        self.table.on_flushed(logs)

    def on_log_failed(self, error: Exception) -> None:
        """Fail every waiting produce request: nothing can be written any more."""
        log.error("the log store failed: %s", error)
        for hosted in self.table:
            hosted.fail_all(errors_pb2.KAFKA_STORAGE_ERROR, f"the log store failed: {error}")

    def on_directory_failed(self, error: Exception) -> None:
        """Stop the replicas on a disk that has failed; the others go on (KIP-112)."""
        message = f"the disk of its log has failed: {error}"
        here = [hosted for hosted in self.table if hosted.log.is_offline]
        log.error("%d replicas here are offline, others go on: %s", len(here), error)
        for hosted in here:
            self.table.take_offline(hosted, message)

    def note_damage(self, damaged_log: StoredLog, damaged: DamagedBatch | BrokenInvariant) -> bool:
        """Remember a batch that cannot be read, or stop a replica that broke an invariant.

        Return whether its log was whole so far.
        """
        hosted = self.table.get(damaged_log.tip)
        if hosted is None or hosted.log is not damaged_log:
            return False
        if isinstance(damaged, BrokenInvariant):
            self.table.give_up(hosted, damaged)
            return True
        is_new = not hosted.is_damaged
        if is_new:
            log.error("%s has damage: %s", hosted.tp, damaged.message)
        hosted.note_damage(damaged.base_offset)
        return is_new

    def give_up(self, hosted: HostedPartition, broken: BrokenInvariant) -> None:
        """Stop a replica whose state, or what a coordinator keeps of it, broke an invariant."""
        self.table.give_up(hosted, broken)

    def damaged(self) -> list[TopicIdPartition]:
        """Return the replicas with damaged logs that were not told yet to fetch them again."""
        return [hosted.tip for hosted in self.table if hosted.awaits_repair]

    def unfit(self) -> list[TopicIdPartition]:
        """Return the replicas on disks that have failed or are full, and those whose folder is not
        there, while other folders go on."""
        full = [each.tip for each in self.table if each.log.is_full and not each.log.is_offline]
        return [*full, *self.offline()]

    def offline(self) -> list[TopicIdPartition]:
        """Return the replicas on disks that have failed, and those whose folder is not there."""
        here = [each.tip for each in self.table if each.log.is_offline]
        return [*here, *self.table.store.withheld]

    def on_room(self, has_room: bool) -> None:
        """Tell leaders whether this broker can append; fail waiting produces on a full disk.

        What was appended before may count later all the same.
        """
        self._fetchers.tell_positions()
        if not has_room:
            for hosted in self.table:
                if hosted.log.is_full:
                    hosted.fail_all(errors_pb2.KAFKA_STORAGE_ERROR, "the disk of the log is full")

    # -- clients ---------------------------------------------------------------------------------

    def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> Coroutine[Any, Any, list[ProduceOutcome]]:
        """Append at the leader and wait as ``acks`` asks; appends happen before the first await."""
        return self._appender.produce(entries, acks, timeout_ms)

    def begin_produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> DelayedProduce:
        """Append at the leader, and return the outcomes, which may come later as ``acks`` asks."""
        return self._appender.begin_produce(entries, acks, timeout_ms)

    async def wait_for_turn(self) -> None:
        """Wait until a large request may append its next part: until little else waits."""
        await self._appender.wait_for_turn()

    async def verify_transaction(self, batch: TransactionBatch) -> None:
        """Verify a transaction right before a coordinator appends in the name of its producer.

        Raises:
            KafkaError: the coordinator may not append, see ``TransactionVerification.verify``.
        """
        await self._appender.verify_transaction(batch)

    async def producer_states(self, tp: TopicPartition) -> list[ProducerState]:
        """Return the producers that a replica of this broker knows.

        Raises:
            KafkaError: There is no replica here: NOT_LEADER_OR_FOLLOWER, or
                UNKNOWN_TOPIC_OR_PARTITION if there is no such partition.
        """
        hosted = self.table.named(tp)
        if hosted is None:
            raise KafkaError(*self.table.not_leader(tp, hosted))
        return await producer_states(hosted.log)

    def write_markers(
        self, entries: Sequence[MarkerEntry], timeout_ms: int
    ) -> Coroutine[Any, Any, list[int]]:
        """End transactions in partitions led here, by committed markers; a code per entry."""
        return self._appender.write_markers(entries, timeout_ms)

    def fetch(
        self, wants: Sequence[FetchPartition], params: FetchParams
    ) -> Coroutine[Any, Any, list[FetchOutcome]]:
        """Return committed records for consumers, by long poll (C16)."""
        return self._reader.fetch(wants, params)

    def poll(
        self, delayed: DelayedFetch, params: FetchParams
    ) -> Coroutine[Any, Any, dict[FetchPosition, FetchOutcome]]:
        """Return the outcomes of those positions of a session that have news, by long poll."""
        return self._reader.poll(delayed, params)

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        current_leader_epoch: int = -1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> OffsetOutcome:
        """Return the latest (-1), the earliest (-2) or the first offset at or after a timestamp.

        -3 asks for the offset of the greatest timestamp.
        """
        return self._reader.list_offset(tp, timestamp_ms, current_leader_epoch, isolation)

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndOffset:
        """Return where an epoch ends in the leader's log."""
        return self._reader.offset_for_leader_epoch(tp, current_leader_epoch, leader_epoch)

    async def delete_records(
        self, wants: Sequence[DeleteRecordsPartition], timeout_ms: int
    ) -> list[DeleteOutcome]:
        """Delete what lies below an offset, here and on the ISR."""
        return await self._deleter.delete(wants, timeout_ms)

    def log_sizes(self, wanted: Iterable[TopicPartition] | None = None) -> Iterator[LogSize]:
        """Return the size of every log that this broker holds, or of those that are wanted."""
        named = None if wanted is None else map(self.table.named, wanted)
        for hosted in self.table if named is None else filter(None, named):
            partition_log = hosted.log
            if partition_log.is_offline:
                continue
            behind = max(0, hosted.replica.high_watermark - partition_log.log_end_offset)
            yield LogSize(hosted.tp, partition_log.size_bytes, behind, partition_log.directory)
            future = self.table.store.future_of(hosted.tip)
            if future is not None:
                behind = max(0, partition_log.log_end_offset - future.log_end_offset)
                yield LogSize(hosted.tp, future.size_bytes, behind, future.directory, True)

    def strays(self) -> Sequence[HostedPartition]:
        """Return the partitions that the quorum does not know, which an operator decides about."""
        return self._commands.strays()

    def directories(self) -> list[Path]:
        """Return the log folders of this broker, those that are offline included."""
        return self.table.store.directories

    async def move_replica(self, tp: TopicPartition, directory: Path) -> int:
        """Begin to move a replica into another log folder (KIP-113). Return a Kafka error code."""
        return await self._mover.move(tp, directory)

    def troubled_directories(self) -> Steps[set[Path]]:
        """Return the log folders that are offline or full, or have a damaged log. In steps, because
        every log is looked at."""
        damaged: set[Path] = set()
        for place, hosted in enumerate(tuple(self.table), start=1):
            if hosted.is_damaged:
                damaged.add(hosted.log.directory)
            if not place % ITEMS_IN_A_STEP:
                yield
        return damaged | self.table.store.troubled_directories

    # -- the controller --------------------------------------------------------------------------

    async def apply_leader_and_isr(
        self, request: control_pb2.LeaderAndIsrRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow, as a fenced request of the controller says (C6, C7)."""
        return await self._commands.apply_leader_and_isr(request)

    async def apply_init(self, image: Image) -> list[control_pb2.PartitionOutcome]:
        """Lead or follow as the image says, which a fenced INIT of the controller names (C7)."""
        return await self._commands.apply_init(image)

    async def stop_replicas(
        self, request: control_pb2.StopReplicaRequest
    ) -> list[control_pb2.PartitionOutcome]:
        """Stop replicas, and delete their logs if the request says so (C8)."""
        return await self._commands.stop_replicas(request)
