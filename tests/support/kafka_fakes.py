"""A whole broker's inside in memory, for tests of the Kafka listener alone."""

import asyncio
import dataclasses
import struct
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from quorate.broker.changes.table import A, Change, Q
from quorate.broker.common.errors import KafkaError
from quorate.broker.common.steps import Steps
from quorate.broker.config.dynamic_config import ConfigSource, Setting
from quorate.broker.config.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from quorate.broker.config.spec import BROKER_SPEC
from quorate.broker.control.controller_forwarder import ControllerForwarder
from quorate.broker.control.ports import QuorumView
from quorate.broker.coordinator.groups.consumer_group_parts import ConsumerGroupParts
from quorate.broker.coordinator.groups.group_coordinator import GroupCoordinator, GroupSettings
from quorate.broker.coordinator.groups.shard_clock import ShardClock
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    LogRecord,
    TransactionEnd,
    TransactionOwner,
)
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.share.led_share_partition import ShareLeaderParts
from quorate.broker.coordinator.share.share_leader import (
    ShareFetchParams,
    ShareLeader,
    ShareOutcome,
)
from quorate.broker.coordinator.share.share_states import ShareStates
from quorate.broker.coordinator.share.state.acquiring import Wanted
from quorate.broker.coordinator.share.state.stored_state import SharePartitionKey
from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.state.transaction_metadata import ProducerEpoch
from quorate.broker.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
    TransactionSettings,
)
from quorate.broker.kafka.admin.config_description import ConfigReads
from quorate.broker.kafka.records.fetch_session_cache import FetchSessionCache
from quorate.broker.kafka.server import KafkaServer
from quorate.broker.kafka.services import KafkaServices
from quorate.broker.kafka.share.share_sessions import ShareSessionCache
from quorate.broker.log.batches.admission import check_produced
from quorate.broker.log.batches.record_batch import iterate_batches
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.broker.metadata.metadata_cache import MetadataCache
from quorate.broker.metrics.client_metrics import ClientFigures
from quorate.broker.quota.client_memory import ClientMemory
from quorate.broker.quota.work_turns import WorkTurns
from quorate.broker.replication.api import (
    EARLIEST_TIMESTAMP_MS,
    LATEST_TIMESTAMP_MS,
    MAX_TIMESTAMP_MS,
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
from quorate.broker.replication.hosting.delayed_fetch import (
    DelayedFetch,
    FetchPosition,
    FetchWaiters,
)
from quorate.broker.replication.hosting.delayed_produce import DelayedProduce
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.serving.producer_states import ProducerState
from quorate.broker.replication.wakeup import Wakeup
from quorate.broker.security.authorizer import Authorizer, AuthorizerSettings
from quorate.broker.security.token_access import TokenDescription
from quorate.broker.telemetry.client_telemetry import ClientTelemetry
from quorate.common.configuration import Values
from quorate.common.types import (
    DEFAULT_LISTENER,
    BrokerEpoch,
    BrokerId,
    Endpoint,
    LeaderEpoch,
    MetadataOffset,
    TopicId,
    TopicPartition,
)
from quorate.metadata_log.image import Image
from quorate_proto.v1 import admin_pb2, errors_pb2
from quorate_proto.v1.quorum_pb2 import QuorumStatusResponse, WatchRequest
from quorate_proto.v1.quorum_pb2 import WatchEvent as EncodedWatchEvent
from tests.support.followers import ShownImage
from tests.support.share_fakes import (
    FakeDeadLetters,
    FakeGroupConfig,
    FakeShareStates,
    share_parts,
)
from tests.support.waiting import async_let_time_pass

BROKER = BrokerId(1)
PARTITIONS_MAX = 1_000
"""A fake topic has no more, whatever was asked for."""
FIRST_EPOCH = LeaderEpoch(0)
BROKER_EPOCH = BrokerEpoch(1)
_BASE_OFFSET = struct.Struct(">q")


@dataclass
class StoredBatch:
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    data: memoryview


@dataclass
class FakeLog:
    batches: list[StoredBatch] = field(default_factory=list)
    end_offset: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: list[AbortedTransaction] = field(default_factory=list)


class FakeReplicas(ReplicaManager):
    """Partitions of one broker that leads them all; every append is committed at once."""

    def __init__(self, topics: "FakeMetadata") -> None:
        # The base class would build what a log store needs; there is none here.
        self._topics = topics
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.produced: list[tuple[list[ProduceEntry], int, int]] = []
        self.errors: dict[TopicPartition, ProduceOutcome] = {}
        self.fetch_errors: dict[TopicPartition, FetchOutcome] = {}
        self.deletions: dict[TopicPartition, DeleteOutcome] = {}
        self.asked_to_delete: list[tuple[list[DeleteRecordsPartition], int]] = []
        self.turns_given = 0
        """The number of times that a large request waited before it appended a part."""
        self.markers: list[MarkerEntry] = []
        self.marker_codes: dict[TopicPartition, int] = {}
        self.producers: dict[TopicPartition, list[ProducerState]] = {}
        self.waiters: dict[TopicPartition, FetchWaiters] = {}
        self.looked_at: list[TopicPartition] = []
        """The partitions that polls looked at, in order."""
        self.is_troubled = False
        self.log_directories = [Path("/log")]
        self.near: list[Set[BrokerId] | None] = []
        """The brokers near the client of each fetch, in order."""
        self.preferred_read_replica = -1

    def _is_other(self, tp: TopicPartition, topic_id: TopicId | None) -> bool:
        """Whether the topic of that name has another id than the client says."""
        topic = self._topics.topics.get(tp.topic)
        return topic is not None and topic_id is not None and topic.topic_id != topic_id

    def _log(self, tp: TopicPartition) -> FakeLog | None:
        topic = self._topics.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return self.logs.setdefault(tp, FakeLog())

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]:
        self.produced.append((list(entries), acks, timeout_ms))
        return [self._append(entry) for entry in entries]

    def begin_produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> DelayedProduce:
        self.produced.append((list(entries), acks, timeout_ms))
        pending = DelayedProduce()
        pending.outcomes += [self._append(entry) for entry in entries]
        return pending

    async def wait_for_turn(self) -> None:
        self.turns_given += 1

    async def write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        self.markers += entries
        return [self.marker_codes.get(entry.tp, errors_pb2.NONE) for entry in entries]

    async def producer_states(self, tp: TopicPartition) -> list[ProducerState]:
        if self._log(tp) is None:
            raise KafkaError(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION, f"no replica of {tp}")
        return self.producers.get(tp, [])

    def _append(self, entry: ProduceEntry) -> ProduceOutcome:
        log = self._log(entry.tp)
        if entry.tp in self.errors:
            return self.errors[entry.tp]
        if self._is_other(entry.tp, entry.topic_id):
            return ProduceOutcome(errors_pb2.UNKNOWN_TOPIC_ID)
        if log is None:
            return ProduceOutcome(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
        base_offset = log.end_offset
        try:
            batches = list(iterate_batches(entry.records, str(entry.tp)))
            for batch in batches:
                check_produced(batch.header, 0, 8 << 20, str(entry.tp))
        except KafkaError as error:
            return ProduceOutcome(error.code, error.message)
        for header, data in batches:
            _BASE_OFFSET.pack_into(data, 0, log.end_offset)
            last = log.end_offset + header.last_offset_delta
            log.batches.append(StoredBatch(log.end_offset, last, header.max_timestamp, data))
            log.end_offset = last + 1
        for waiter in self.waiters.get(entry.tp, ()):
            waiter.wake()
        log.grown.set()
        log.grown = asyncio.Event()
        return ProduceOutcome(base_offset=base_offset, log_start_offset=0)

    async def fetch(
        self, wants: Sequence[FetchPartition], terms: FetchParams
    ) -> list[FetchOutcome]:
        self.near.append(terms.near)
        deadline = asyncio.get_running_loop().time() + terms.max_wait_ms / 1000
        while True:
            has_room = terms.room.reserve(terms.max_bytes) > 0 or terms.max_bytes == 0
            outcomes = [self._read(want, has_room=has_room) for want in wants]
            terms.room.keep(sum(outcome.size for outcome in outcomes))
            failed = any(outcome.error_code for outcome in outcomes)
            left = deadline - asyncio.get_running_loop().time()
            enough = sum(outcome.size for outcome in outcomes) >= terms.min_bytes or not has_room
            if failed or enough or left <= 0:
                return outcomes
            waits = [
                asyncio.ensure_future(log.grown.wait())
                for want in wants
                if (log := self._log(want.tp)) is not None
            ]
            try:
                if waits:
                    await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await async_let_time_pass(left, "nothing that is fetched can grow")
            finally:
                for wait in waits:
                    wait.cancel()

    async def poll(
        self, poll: DelayedFetch, terms: FetchParams
    ) -> dict[FetchPosition, FetchOutcome]:
        self.near.append(terms.near)
        deadline = asyncio.get_running_loop().time() + terms.max_wait_ms / 1000
        found: dict[FetchPosition, FetchOutcome] = {}
        wakeup = poll.wakeup = Wakeup()
        while True:
            again = {position: None for position in found if found[position].size}
            for position in again | poll.take_news():
                position.watch(self.waiters.setdefault(position.want.tp, {}))
                self.looked_at.append(position.want.tp)
                found[position] = self._read(position.want, has_room=True)
            failed = any(outcome.error_code for outcome in found.values())
            left = deadline - asyncio.get_running_loop().time()
            enough = sum(outcome.size for outcome in found.values()) >= terms.min_bytes
            if failed or enough or left <= 0 or poll.is_closed:
                return found
            await wakeup.wait(left)

    def _read(self, want: FetchPartition, *, has_room: bool) -> FetchOutcome:
        if self._is_other(want.tp, want.topic_id):
            return FetchOutcome(errors_pb2.INCONSISTENT_TOPIC_ID)
        if want.tp in self.fetch_errors:
            return self.fetch_errors[want.tp]
        log = self._log(want.tp)
        if log is None:
            return FetchOutcome(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
        if not 0 <= want.fetch_offset <= log.end_offset:
            return FetchOutcome(errors_pb2.OFFSET_OUT_OF_RANGE, log.end_offset, 0)
        if self.preferred_read_replica >= 0:
            preferred = self.preferred_read_replica
            return FetchOutcome(high_watermark=9, preferred_read_replica=preferred)
        chunks: list[bytes | memoryview] = []
        size = 0
        for batch in log.batches if has_room else ():
            if batch.last_offset < want.fetch_offset:
                continue
            if chunks and size + len(batch.data) > want.max_bytes:
                break
            chunks.append(batch.data)
            size += len(batch.data)
        end = log.end_offset
        return FetchOutcome(errors_pb2.NONE, end, 0, chunks, size, end, log.aborted)

    def list_offset(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        current_leader_epoch: int = -1,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> OffsetOutcome:
        log = self._log(tp)
        if log is None:
            return OffsetOutcome(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
        if timestamp_ms == LATEST_TIMESTAMP_MS:
            return OffsetOutcome(offset=log.end_offset, leader_epoch=0)
        if timestamp_ms == EARLIEST_TIMESTAMP_MS:
            return OffsetOutcome(offset=0, leader_epoch=0)
        if timestamp_ms == MAX_TIMESTAMP_MS:
            timestamp_ms = max(batch.max_timestamp_ms for batch in log.batches)
        for batch in log.batches:
            if batch.max_timestamp_ms >= timestamp_ms:
                return OffsetOutcome(
                    offset=batch.base_offset, timestamp_ms=batch.max_timestamp_ms, leader_epoch=0
                )
        return OffsetOutcome()

    async def delete_records(
        self, wants: Sequence[DeleteRecordsPartition], timeout_ms: int
    ) -> list[DeleteOutcome]:
        self.asked_to_delete.append((list(wants), timeout_ms))
        unknown = DeleteOutcome(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
        return [self.deletions.get(want.tp, unknown) for want in wants]

    def directories(self) -> list[Path]:
        return self.log_directories

    async def move_replica(self, tp: TopicPartition, directory: Path) -> int:
        if directory not in self.log_directories:
            return errors_pb2.LOG_DIR_NOT_FOUND
        return errors_pb2.NONE if tp in self.logs else errors_pb2.REPLICA_NOT_AVAILABLE

    def troubled_directories(self) -> Steps[set[Path]]:
        yield
        return set(self.log_directories) if self.is_troubled else set()

    def log_sizes(self, wanted: Iterable[TopicPartition] | None = None) -> Iterator[LogSize]:
        return iter(
            LogSize(
                tp,
                sum(len(batch.data) for batch in self.logs[tp].batches),
                0,
                self.log_directories[0],
            )
            for tp in (self.logs if wanted is None else wanted)
            if tp in self.logs
        )

    def offset_for_leader_epoch(
        self, tp: TopicPartition, current_leader_epoch: int, leader_epoch: int
    ) -> EpochEndOffset:
        log = self._log(tp)
        if log is None:
            return EpochEndOffset(errors_pb2.UNKNOWN_TOPIC_OR_PARTITION)
        return EpochEndOffset(leader_epoch=0, end_offset=log.end_offset)


@dataclass(frozen=True)
class FakePartition:
    leader: BrokerId = BROKER
    leader_epoch: LeaderEpoch = FIRST_EPOCH
    replicas: tuple[BrokerId, ...] = (BROKER,)
    isr: tuple[BrokerId, ...] = (BROKER,)


@dataclass(frozen=True)
class FakeTopic:
    topic_id: TopicId
    partitions: tuple[FakePartition, ...]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True)
class FakeBroker:
    kafka: Endpoint
    grpc: Endpoint
    rack: str = ""
    epoch: BrokerEpoch = BROKER_EPOCH
    other_listeners: Mapping[str, Endpoint] = field(default_factory=dict)

    @property
    def listeners(self) -> Mapping[str, Endpoint]:
        return {DEFAULT_LISTENER: self.kafka, **self.other_listeners}

    def at(self, listener: str, endpoint: Endpoint) -> "FakeBroker":
        """Return this broker with one more listener."""
        others = {**self.other_listeners, listener: endpoint}
        return dataclasses.replace(self, other_listeners=others)


class FakeMetadata(MetadataCache):
    """The metadata that UpdateMetadata would have told; ``changed`` stands for the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.controller_id = BROKER
        self.brokers: dict[BrokerId, FakeBroker] = {}  # type: ignore[assignment]
        self._fake_topics: dict[str, FakeTopic] = {}
        self.on_added: dict[str, Callable[[int], None]] = {}
        """The functions, by topic, that are told the number of its partitions."""
        self.transaction_version = 0

    @property
    def topics(self) -> dict[str, FakeTopic]:  # type: ignore[override]
        return self._fake_topics

    def changed(self) -> None:
        self.brokers = dict(self.brokers)

    def add_topic(self, name: str, partitions: int = 1) -> FakeTopic:
        topic = FakeTopic(TopicId(uuid4().bytes), (FakePartition(),) * partitions)
        self.topics[name] = topic
        self.changed()
        told = self.on_added.get(name)
        if told is not None:
            told(partitions)
        return topic

    def topic(self, name: str) -> FakeTopic | None:  # type: ignore[override]
        return self.topics.get(name)

    def partition_count(self, name: str) -> int:
        """0: there is no such topic."""
        topic = self.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    async def until_known(self) -> None:
        """Everything is known from the beginning."""

    def topic_name(self, topic_id: TopicId) -> str | None:
        return next((n for n, topic in self.topics.items() if topic.topic_id == topic_id), None)


class FakeOffsetsLog(LedPartition):
    """A partition of a coordinators' topic in memory, led for ever; every append is committed."""

    leader_epoch = FIRST_EPOCH
    has_valid_lease = True

    def __init__(self) -> None:
        self.entries: list[LogBatch | TransactionEnd] = []
        self.refusal: KafkaError | None = None

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        if self.refusal is not None:
            raise self.refusal
        producer_id = None if transaction is None else transaction.producer_id
        self.entries.append(LogBatch(len(self.entries), records, producer_id))
        return len(self.entries) - 1

    async def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        for entry in tuple(self.entries):
            yield entry


def fake_groups(metadata: FakeMetadata, config: Values) -> GroupCoordinator:
    """Coordinates every group, from the moment that __consumer_offsets is there."""

    def now_ms() -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    clock = ShardClock(now_ms, lambda: 1_700_000_000_000)
    groups = GroupCoordinator(
        GroupSettings.of(config),
        clock,
        metadata.partition_count,
        lambda: uuid4().hex,
        ConsumerGroupParts.of(config, metadata, WorkTurns(), lambda _, key: config[key.of_broker]),
        share_parts(metadata),
    )
    metadata.on_added[OFFSETS_TOPIC] = partial(_lead_all, groups)
    return groups


class FakeShareLeader(ShareLeader):
    """It leads nothing."""

    def __init__(self, replicas: ReplicaManager, states: ShareStates) -> None:
        clock = ShardClock(lambda: 0, lambda: 0)
        lease: Any = None  # Nothing is led, so nobody asks.
        super().__init__(
            ShareLeaderParts(FakeGroupConfig(), replicas, states, clock, lease, FakeDeadLetters())
        )

    async def fetch(
        self,
        wants: Mapping[SharePartitionKey, TopicPartition],
        wanted: Wanted,
        params: ShareFetchParams,
    ) -> dict[SharePartitionKey, ShareOutcome]:
        return {key: ShareOutcome(errors_pb2.NOT_LEADER_OR_FOLLOWER) for key in wants}


class FakeMarkers(MarkerSender):
    """Every partition has its marker at once; ``sent`` remembers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, ProducerEpoch, bool, frozenset[TopicPartition]]] = []

    async def send(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        partitions: Iterable[TopicPartition],
        transaction_version: int = 0,
    ) -> frozenset[TopicPartition]:
        done = frozenset(partitions)
        producer = ProducerEpoch(producer_id, producer_epoch)
        self.sent.append((transactional_id, producer, committed, done))
        return done


def fake_transactions(
    metadata: FakeMetadata,
    config: Values,
    markers: FakeMarkers,
    producer_ids: ProducerIds,
) -> TransactionCoordinator:
    """Coordinates every transactional id, from the moment that __transaction_state is there."""
    transactions = TransactionCoordinator(
        TransactionSettings.of(config),
        partition_count=metadata.partition_count,
        markers=markers,
        producer_ids=producer_ids,
        wall_ms=lambda: 1_700_000_000_000,
        transaction_version=lambda: metadata.transaction_version,
    )
    metadata.on_added[TRANSACTIONS_TOPIC] = partial(_lead_all, transactions)
    return transactions


def _lead_all(coordinator: GroupCoordinator | TransactionCoordinator, partitions: int) -> None:
    for partition in range(partitions):
        coordinator.lead(partition, FakeOffsetsLog())


class FakeForwarder(ControllerForwarder):
    """A controller that grants everything, and remembers what it was asked."""

    def __init__(self, metadata: FakeMetadata) -> None:
        self._metadata = metadata
        self.creations: list[admin_pb2.CreateTopicsRequest] = []
        self.deletions: list[admin_pb2.DeleteTopicsRequest] = []
        self.additions: list[admin_pb2.CreatePartitionsRequest] = []
        self.elections: list[admin_pb2.ElectLeadersRequest] = []
        self.features: list[admin_pb2.UpdateFeaturesRequest] = []
        self.reassignments: list[admin_pb2.AlterPartitionReassignmentsRequest] = []
        self.lists: list[admin_pb2.ListPartitionReassignmentsRequest] = []
        self.ongoing: list[admin_pb2.OngoingReassignment] = []
        self.refusals: dict[str, int] = {}
        self.refused_features: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.asked: dict[str, list[Any]] = {}
        self.proxied: list[bool] = []
        self.is_controller = True
        self.answers: dict[str, Callable[[Any], Any]] = {
            "CreateTopics": self._create_topics,
            "DeleteTopics": self._delete_topics,
            "CreatePartitions": self._create_partitions,
            "ElectLeaders": self._elect_leaders,
            "UpdateFeatures": self._update_features,
            "AlterPartitionReassignments": self._alter_partition_reassignments,
            "ListPartitionReassignments": self._list_partition_reassignments,
        }

    async def forward(
        self, change: Change[Q, A], request: Q, *, api_version: int | None = None
    ) -> A:
        """Answer as ``answers`` has it for the change; without an entry, with its empty answer."""
        proxied = api_version not in change.controller_only
        self.asked.setdefault(change.rpc, []).append(request)
        self.proxied.append(proxied)
        if not proxied and not self.is_controller:
            return change.failed(request, errors_pb2.NOT_CONTROLLER, "ask another")
        answer = self.answers.get(change.rpc)
        if answer is None:
            return change.answer()
        found: A = await answer(request)
        return found

    async def _create_topics(
        self, request: admin_pb2.CreateTopicsRequest
    ) -> admin_pb2.CreateTopicsResponse:
        self.creations.append(request)
        if self.gate is not None:
            await self.gate.wait()
        results = [self._create(topic, request.validate_only) for topic in request.topics]
        return admin_pb2.CreateTopicsResponse(topics=results)

    def _create(self, new: admin_pb2.NewTopic, validate_only: bool) -> admin_pb2.TopicResult:
        if new.name in self._metadata.topics:
            return admin_pb2.TopicResult(
                name=new.name,
                error_code=errors_pb2.TOPIC_ALREADY_EXISTS,
                error_message=f"topic {new.name} exists",
            )
        if new.name in self.refusals:
            return admin_pb2.TopicResult(
                name=new.name, error_code=self.refusals[new.name], error_message="refused"
            )
        count = len(new.assignments) or min(max(1, new.num_partitions), PARTITIONS_MAX)
        topic_id = b""
        if not validate_only:
            topic_id = self._metadata.add_topic(new.name, count).topic_id
        return admin_pb2.TopicResult(
            name=new.name,
            topic_id=topic_id,
            num_partitions=count,
            replication_factor=1,
            configs=new.configs,
        )

    async def _delete_topics(
        self, request: admin_pb2.DeleteTopicsRequest
    ) -> admin_pb2.DeleteTopicsResponse:
        self.deletions.append(request)
        names = [(name, b"") for name in request.names]
        names += [(self._metadata.topic_name(TopicId(raw)) or "", raw) for raw in request.topic_ids]
        return admin_pb2.DeleteTopicsResponse(topics=[self._delete(*item) for item in names])

    def _delete(self, name: str, topic_id: bytes) -> admin_pb2.TopicResult:
        known = self._metadata.topics.pop(name, None)
        self._metadata.changed()
        code = errors_pb2.NONE if known else errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
        return admin_pb2.TopicResult(
            name=name, topic_id=known.topic_id if known else topic_id, error_code=code
        )

    async def _create_partitions(
        self, request: admin_pb2.CreatePartitionsRequest
    ) -> admin_pb2.CreatePartitionsResponse:
        self.additions.append(request)
        results = [self._add(wanted, request.validate_only) for wanted in request.topics]
        return admin_pb2.CreatePartitionsResponse(topics=results, throttle_time_ms=7)

    def _add(self, wanted: admin_pb2.NewPartitions, validate_only: bool) -> admin_pb2.TopicResult:
        known = self._metadata.topics.get(wanted.name)
        if known is None:
            code = errors_pb2.UNKNOWN_TOPIC_OR_PARTITION
            return admin_pb2.TopicResult(name=wanted.name, error_code=code, error_message="unknown")
        if not validate_only:
            partitions = (FakePartition(),) * min(wanted.count, PARTITIONS_MAX)
            self._metadata.topics[wanted.name] = FakeTopic(known.topic_id, partitions)
        return admin_pb2.TopicResult(name=wanted.name)

    async def _elect_leaders(
        self, request: admin_pb2.ElectLeadersRequest
    ) -> admin_pb2.ElectLeadersResponse:
        self.elections.append(request)
        return admin_pb2.ElectLeadersResponse(
            partitions=[
                admin_pb2.PartitionResult(
                    topic=topic.topic,
                    partition=number,
                    error_code=errors_pb2.NONE
                    if self._exists(topic.topic, number)
                    else errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for topic in request.topics
                for number in topic.partitions
            ]
        )

    async def _update_features(
        self, request: admin_pb2.UpdateFeaturesRequest
    ) -> admin_pb2.UpdateFeaturesResponse:
        self.features.append(request)
        return admin_pb2.UpdateFeaturesResponse(
            results=[
                admin_pb2.FeatureResult(name=one.name, level=one.level)
                if one.name not in self.refused_features
                else admin_pb2.FeatureResult(
                    name=one.name,
                    error_code=errors_pb2.FEATURE_UPDATE_FAILED,
                    error_message="not understood",
                )
                for one in request.updates
            ]
        )

    async def _alter_partition_reassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        self.reassignments.append(request)
        return admin_pb2.AlterPartitionReassignmentsResponse(
            partitions=[
                admin_pb2.PartitionResult(topic=one.topic, partition=one.partition)
                if self._exists(one.topic, one.partition)
                else admin_pb2.PartitionResult(
                    topic=one.topic,
                    partition=one.partition,
                    error_code=errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"there is no partition {one.topic}-{one.partition}",
                )
                for one in request.partitions
            ]
        )

    async def _list_partition_reassignments(
        self, request: admin_pb2.ListPartitionReassignmentsRequest
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        self.lists.append(request)
        return admin_pb2.ListPartitionReassignmentsResponse(partitions=self.ongoing)

    def _exists(self, topic: str, number: int) -> bool:
        known = self._metadata.topics.get(topic)
        return known is not None and number < len(known.partitions)


class FakeProducerIds(ProducerIds):
    def __init__(self) -> None:
        self.next = 1000

    async def take(self) -> int:
        self.next += 1
        return self.next


class FakeConfigs(ConfigReads):
    """Tells whatever descriptions it is given."""

    def __init__(self) -> None:
        self.asked: list[admin_pb2.DescribeConfigsRequest] = []
        self.results: list[admin_pb2.DescribedConfig] = []

    async def describe(
        self, request: admin_pb2.DescribeConfigsRequest
    ) -> admin_pb2.DescribeConfigsResponse:
        self.asked.append(request)
        return admin_pb2.DescribeConfigsResponse(results=self.results)

    def settings_of_new_topics(self) -> dict[str, Setting[Any]]:
        return {
            "k": Setting("log.k", 1, ConfigSource.FILE),
            "retention.ms": Setting("log.retention.hours", 7, ConfigSource.DEFAULT),
        }


class FakeTokens(TokenDescription):
    """Tells whatever tokens it is given."""

    def __init__(self) -> None:
        self.asked: list[admin_pb2.DescribeDelegationTokensRequest] = []
        self.tokens: list[admin_pb2.DelegationToken] = []

    def describe(
        self, request: admin_pb2.DescribeDelegationTokensRequest
    ) -> Steps[admin_pb2.DescribeDelegationTokensResponse]:
        self.asked.append(request)
        yield from ()
        return admin_pb2.DescribeDelegationTokensResponse(tokens=self.tokens)


class FakeQuorum(QuorumView):
    """Tells its status; ``now_ms`` is the time by the wall clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.cluster_id = "test-cluster"
        self.answer: Callable[[], Awaitable[QuorumStatusResponse]] = _empty_status

    async def status(self) -> QuorumStatusResponse:
        return await self.answer()

    async def read_offset(self) -> MetadataOffset:
        raise NotImplementedError

    def relay_watch(self, request: WatchRequest) -> AsyncGenerator[EncodedWatchEvent, None]:
        raise NotImplementedError


async def _empty_status() -> QuorumStatusResponse:
    return QuorumStatusResponse()


@dataclass
class FakeBrokerInside:
    """One broker's services, and the server on top once it is started."""

    metadata: FakeMetadata
    replicas: FakeReplicas
    forwarder: FakeForwarder
    configs: FakeConfigs
    tokens: FakeTokens
    quorum: FakeQuorum
    services: KafkaServices
    server: KafkaServer
    markers: FakeMarkers

    async def start(self) -> Endpoint:
        """Listens on a free port and advertises it."""
        at = await self.server.start(Endpoint("127.0.0.1", 0))
        self.metadata.brokers[BROKER] = FakeBroker(at, Endpoint("127.0.0.1", at.port + 1))
        self.metadata.changed()
        return at


def fake_broker(
    log_dir: Path,
    image: Callable[[], Image] = Image,
    **overrides: Any,  # noqa: ANN401 - any config value
) -> FakeBrokerInside:
    """``overrides``: broker configuration, with ``_`` for ``.``"""
    values: dict[str, object] = {
        "broker.id": BROKER,
        "log.dir": str(log_dir),
        "quorum.bootstrap.servers": "127.0.0.1:1",
    }
    values.update({key.replace("_", "."): value for key, value in overrides.items()})
    metadata = FakeMetadata()
    replicas = FakeReplicas(metadata)
    replicas.log_directories = [log_dir]
    forwarder = FakeForwarder(metadata)
    configs = FakeConfigs()
    tokens = FakeTokens()
    config = BROKER_SPEC.parse(values)
    quorum = FakeQuorum()
    memory = ClientMemory.of(config)
    producer_ids = FakeProducerIds()
    share_states = FakeShareStates()
    share_leader = FakeShareLeader(replicas, share_states)
    markers = FakeMarkers()
    services = KafkaServices(
        config=config,
        broker_id=BROKER,
        cluster_id="test-cluster",
        replicas=replicas,
        metadata=metadata,
        forwarder=forwarder,
        producer_ids=producer_ids,
        groups=fake_groups(metadata, config),
        transactions=fake_transactions(metadata, config, markers, producer_ids),
        authorizer=Authorizer(ShownImage(image), AuthorizerSettings.of(config)),
        fetch_sessions=FetchSessionCache.of(
            config, lambda: int(asyncio.get_running_loop().time() * 1000)
        ),
        share_states=share_states,
        share_leader=share_leader,
        share_sessions=ShareSessionCache.of(config, share_leader),
        group_config=FakeGroupConfig(),
        configs=configs,
        tokens=tokens,
        quorum=quorum,
        telemetry=ClientTelemetry(lambda: quorum.now_ms),
        images=ShownImage(image),
        wall_clock_ms=lambda: quorum.now_ms,
        figures=ClientFigures(memory),
        memory=memory,
    )
    return FakeBrokerInside(
        metadata,
        replicas,
        forwarder,
        configs,
        tokens,
        quorum,
        services,
        KafkaServer(services),
        markers,
    )
