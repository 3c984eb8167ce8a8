"""A partition of __transaction_state with whoever leads it, and the partitions that markers reach.

The log takes its time, refuses, or takes what it was given without being able to say so; markers
arrive one by one. Whoever leads may be replaced at any moment: then the old one has no say any
more, neither in the log nor in the partitions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from quorate.broker.common.errors import KafkaError
from quorate.broker.coordinator.shards.coordinator_records import (
    LogBatch,
    LogRecord,
    TransactionOwner,
)
from quorate.broker.coordinator.shards.led_partition import LedPartition
from quorate.broker.coordinator.transactions.marker_sender import MarkerSender
from quorate.broker.coordinator.transactions.producer_ids import ProducerIds
from quorate.broker.coordinator.transactions.state import transaction_log_format as log_format
from quorate.broker.coordinator.transactions.state.transaction_metadata import (
    TRANSACTIONS_V2,
    ProducerEpoch,
    TransactionMetadata,
    TransactionState,
)
from quorate.broker.coordinator.transactions.transaction_shard import TransactionShard
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2
from tests.support.virtual_time import pass_time

WALL_MS = 1_700_000_000_000
A = TopicPartition("orders", 0)
B = TopicPartition("payments", 1)
MINUTE_MS = 60_000


class StateLog:
    """What is in the log, whoever wrote it."""

    def __init__(self) -> None:
        self.batches: list[list[LogRecord]] = []
        self.epoch = LeaderEpoch(-1)
        self.fate: Callable[[], str] = lambda: "taken"
        """Of the next append: "taken", "refused", or "in doubt": taken, and nobody is told."""
        self.pause_s: Callable[[], float] = lambda: 0.01

    def states(self) -> list[tuple[str, TransactionMetadata | None]]:
        return [
            (
                log_format.decode_key(record.key),
                None if record.value is None else log_format.decode(record.value),
            )
            for batch in self.batches
            for record in batch
        ]


class StateLogOfEpoch(LedPartition):
    """As its leader of one epoch sees it."""

    has_valid_lease = True

    def __init__(self, log: StateLog) -> None:
        log.epoch = LeaderEpoch(log.epoch + 1)
        self.leader_epoch = log.epoch
        self._log = log

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        fate = self._log.fate()
        if self.leader_epoch != self._log.epoch:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, "led elsewhere")
        if fate != "refused":
            self._log.batches.append(list(records))
        place = len(self._log.batches) - 1
        await pass_time(self._log.pause_s())
        if self.leader_epoch != self._log.epoch:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, "led elsewhere")
        if fate != "taken":
            raise KafkaError(errors_pb2.COORDINATOR_NOT_AVAILABLE, fate)
        return place

    async def replay(self) -> AsyncIterator[LogBatch]:
        for place, batch in enumerate(self._log.batches):
            await asyncio.sleep(0)
            yield LogBatch(place, batch)


class Partition:
    """A partition of clients' records: which are open, and how the others ended."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        """Producer id → its records since the last marker."""
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.committed: list[str] = []
        self.aborted: list[str] = []

    def write(self, producer: ProducerEpoch, record: str) -> bool:
        if producer.epoch < self.epochs.get(producer.producer_id, 0):
            return False
        self.epochs[producer.producer_id] = producer.epoch
        self.open.setdefault(producer.producer_id, []).append(record)
        return True

    def end(
        self, producer: ProducerEpoch, committed: bool, coordinator_epoch: int, version: int
    ) -> None:
        producer_id = producer.producer_id
        if version >= TRANSACTIONS_V2 and producer_id in self.open:
            assert producer.epoch != self.epochs[producer_id], "ends what came after it"
        if coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            raise KafkaError(errors_pb2.TRANSACTION_COORDINATOR_FENCED, "a newer coordinator")
        if producer.epoch < self.epochs.get(producer_id, 0):
            raise KafkaError(errors_pb2.INVALID_PRODUCER_EPOCH, "a newer epoch")
        self.coordinator_epochs[producer_id] = coordinator_epoch
        self.epochs[producer_id] = producer.epoch
        records = self.open.pop(producer_id, [])
        (self.committed if committed else self.aborted).extend(records)


class Partitions(MarkerSender):
    """All of them, and the way of markers to them."""

    def __init__(self) -> None:
        self.of: dict[TopicPartition, Partition] = {}
        self.pause_s: Callable[[], float] = lambda: 0.01
        self.away: set[TopicPartition] = set()
        """Nobody leads these now."""
        self.sent: list[tuple[TopicPartition, ProducerEpoch, bool]] = []

    def __getitem__(self, tp: TopicPartition) -> Partition:
        return self.of.setdefault(tp, Partition())

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
        done = set()
        for tp in sorted(partitions):
            await pass_time(self.pause_s())
            if tp not in self.away:
                producer = ProducerEpoch(producer_id, producer_epoch)
                self[tp].end(producer, committed, coordinator_epoch, transaction_version)
                self.sent.append((tp, producer, committed))
                done.add(tp)
        return frozenset(done)


class CountedIds(ProducerIds):
    """Ids that take a moment."""

    def __init__(self) -> None:
        self._last = 1000

    async def take(self) -> int:
        await pass_time(0.001)
        self._last += 1
        return self._last


class World:
    def __init__(self) -> None:
        self.log = StateLog()
        self.partitions = Partitions()
        self.shard: TransactionShard | None = None
        self._producer_ids = CountedIds()
        self.transaction_version = 0

    async def lead(self) -> TransactionShard:
        """Somebody leads from now on, and has read the log."""
        self.replace_leader()
        assert self.shard is not None
        await self.shard.load()
        return self.shard

    def replace_leader(self) -> None:
        """``shard`` has not read the log yet."""
        if self.shard is not None:
            self.shard.end(errors_pb2.NOT_COORDINATOR)
        self.led_log = StateLogOfEpoch(self.log)
        self.shard = TransactionShard(
            "__transaction_state-7",
            self.led_log,
            markers=self.partitions,
            producer_ids=self._producer_ids,
            wall_ms=self.wall_ms,
            transaction_version=lambda: self.transaction_version,
        )

    def last_state(self, transactional_id: str) -> TransactionState | None:
        """As the log has it."""
        found = dict(self.log.states()).get(transactional_id)
        return None if found is None else found.state

    def wall_ms(self) -> int:
        return WALL_MS + int(asyncio.get_running_loop().time() * 1000)
