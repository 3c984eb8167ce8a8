"""A partition of a coordinator's topic in the epoch in which this broker leads it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from broker.coordinator.appends import InDoubt
from broker.coordinator.batches import decode_batch, encode_batch
from broker.coordinator.led_shards import LedLog
from broker.coordinator.log_entries import LogBatch, LogRecord, TransactionEnd, TransactionOwner
from broker.coordinator.sure_leadership import MaySpeak
from broker.errors import KafkaError, error_name
from broker.log import ColdRead
from broker.log.admission import Origin
from broker.log.codecs import UndecodableRecords
from broker.log.control_batches import EndMarker, decode_marker
from broker.log.record_batch import BatchHeader, iterate_batches
from broker.replication.api import ACKS_ALL, ProduceEntry, ProduceOutcome
from broker.replication.hosted import HostedPartition
from broker.replication.verification import TransactionBatch
from broker.replication.waiters import Wakeup
from metadata_log.types import LeaderEpoch
from quorate_proto.v1 import errors_pb2

_log: Final = logging.getLogger(__name__)
_READ_BYTES: Final = 1 << 20

COORDINATOR_CODES: Final[Mapping[int, int]] = {
    errors_pb2.UNKNOWN_TOPIC_OR_PARTITION: errors_pb2.COORDINATOR_NOT_AVAILABLE,
    errors_pb2.NOT_ENOUGH_REPLICAS: errors_pb2.COORDINATOR_NOT_AVAILABLE,
    errors_pb2.NOT_ENOUGH_REPLICAS_AFTER_APPEND: errors_pb2.COORDINATOR_NOT_AVAILABLE,
    errors_pb2.REQUEST_TIMED_OUT: errors_pb2.COORDINATOR_NOT_AVAILABLE,
    errors_pb2.NOT_LEADER_OR_FOLLOWER: errors_pb2.NOT_COORDINATOR,
    errors_pb2.KAFKA_STORAGE_ERROR: errors_pb2.NOT_COORDINATOR,
    errors_pb2.MESSAGE_TOO_LARGE: errors_pb2.UNKNOWN_SERVER_ERROR,
    errors_pb2.RECORD_LIST_TOO_LARGE: errors_pb2.UNKNOWN_SERVER_ERROR,
    errors_pb2.INVALID_PRODUCER_EPOCH: errors_pb2.INVALID_PRODUCER_EPOCH,
    errors_pb2.INVALID_TXN_STATE: errors_pb2.INVALID_TXN_STATE,
    errors_pb2.INVALID_PRODUCER_ID_MAPPING: errors_pb2.INVALID_PRODUCER_ID_MAPPING,
}
"""What clients of a coordinator are told when its log does not take what is to be written: to ask
again here, to look for the coordinator, or neither, as Kafka's coordinators do."""


class Producer(Protocol):
    """``ReplicaManager.produce``: appends before its first await."""

    def __call__(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> Awaitable[list[ProduceOutcome]]: ...


VerifyTransaction = Callable[[TransactionBatch], Awaitable[None]]
"""Returns when a batch of that transaction may be appended at once, or raises a KafkaError."""


async def _taken_for_granted(_batch: TransactionBatch) -> None:
    pass


class Coordinator(Protocol):
    """As ``led_shards.LedShards`` has it."""

    def lead(self, partition: int, log: LedLog) -> None:
        """This broker leads that partition from now on, in the epoch of ``log``."""

    def resign(self, partition: int) -> None:
        """This broker leads it no longer."""


def told_of_leaderships(
    coordinator: Coordinator,
    produce: Producer,
    wall_clock_ms: Callable[[], int],
    may_speak: MaySpeak,
    *,
    append_timeout_ms: int,
    on_transaction_end: Callable[[int, TransactionEnd], None] | None = None,
    verify: VerifyTransaction = _taken_for_granted,
) -> Callable[[HostedPartition], None]:
    """For ``PartitionTable.on_leadership``: has the coordinator lead what this broker leads.

    A topic of the same name may have taken the place of one whose deletion this broker hears of
    only later, or never: their partitions are told apart, whatever their epochs.

    ``append_timeout_ms``: how long it waits for the replicas in sync to have what it writes.
    ``on_transaction_end``: told of the markers in each partition, if it has others write there.
    ``verify``: ``ReplicaManager.verify_transaction``, for what it writes for transactions.
    """

    leading: dict[int, HostedPartition] = {}

    def on_leadership(hosted: HostedPartition) -> None:
        partition = hosted.tp.partition
        before = leading.get(partition)
        is_over = before is not hosted if hosted.leads else before is hosted
        if before is not None and is_over:
            del leading[partition]
            coordinator.resign(partition)
        if hosted.leads:
            leading[partition] = hosted
            led = LedPartition(
                hosted,
                produce,
                may_speak,
                timeout_ms=append_timeout_ms,
                wall_clock_ms=wall_clock_ms,
                verify=verify,
            )
            coordinator.lead(partition, led)
        if on_transaction_end is not None:
            hosted.on_transaction_end = lambda marker, place: on_transaction_end(
                partition, end_of(marker, place)
            )

    return on_leadership


class LedPartition:
    """As ``appends.CoordinatorLog`` has it."""

    def __init__(
        self,
        hosted: HostedPartition,
        produce: Producer,
        may_speak: MaySpeak,
        *,
        timeout_ms: int,
        wall_clock_ms: Callable[[], int],
        verify: VerifyTransaction = _taken_for_granted,
    ) -> None:
        self.leader_epoch: LeaderEpoch = hosted.replica.leader_epoch
        self._hosted = hosted
        self._produce = produce
        self._may_speak = may_speak
        self._timeout_ms = timeout_ms
        self._wall_clock_ms = wall_clock_ms
        self._verify = verify

    @property
    def is_led(self) -> bool:
        """Still, in the same epoch."""
        hosted = self._hosted
        return hosted.leads and hosted.replica.leader_epoch == self.leader_epoch

    @property
    def is_surely_led(self) -> bool:
        """As ``led_shards.LedLog.is_surely_led``."""
        return self.is_led and self._may_speak(self._hosted.tp, self.leader_epoch)

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        """As ``CoordinatorLog.append``."""
        hosted = self._hosted
        if transaction is not None:
            await self._until_verified(transaction)
        if not self.is_led:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, f"{hosted.tp} is led elsewhere")
        batch = encode_batch(records, self._wall_clock_ms(), transaction)
        place = hosted.log.log_end_offset
        entry = ProduceEntry(hosted.tp, batch, Origin.COORDINATOR)
        (outcome,) = await self._produce([entry], ACKS_ALL, self._timeout_ms)
        code = outcome.error_code
        if not code:
            return outcome.base_offset
        refusal = self._refusal(code, outcome.error_message)
        if code == errors_pb2.REQUEST_TIMED_OUT:
            raise InDoubt(refusal.code, refusal.message, place)
        raise refusal

    async def _until_verified(self, transaction: TransactionOwner) -> None:
        """Its coordinator knows that this partition is part of it, and will end it here, too.

        Raises:
            KafkaError: it does not, or nobody can tell now.
        """
        try:
            await self._verify(TransactionBatch(*transaction, self._hosted.tp))
        except KafkaError as error:
            raise self._refusal(error.code, error.message) from error

    def _refusal(self, code: int, message: str | None) -> KafkaError:
        """As clients of a coordinator know it."""
        told = COORDINATOR_CODES.get(code, errors_pb2.UNKNOWN_SERVER_ERROR)
        return KafkaError(told, f"{self._hosted.tp}: {error_name(code)}: {message}")

    async def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        """As ``CoordinatorLog.replay``: what is there when it begins, which is committed when it
        ends.
        """
        log = self._hosted.log
        offset, end = log.log_start_offset, log.log_end_offset
        wait = False
        while offset < end and self.is_led:
            try:
                read = log.read(max(offset, log.log_start_offset), _READ_BYTES, end, wait=wait)
            except ColdRead as cold:
                await cold.load()
                wait = True
                continue
            wait = False
            if not read.chunks:
                break
            for header, data in iterate_batches(b"".join(read.chunks), str(self._hosted.tp)):
                if header.record_count:
                    entry = self._decode(header, data)
                    if entry is not None:
                        yield entry
            offset = read.next_offset
            await asyncio.sleep(0)
        await self._until_committed(end)

    async def _until_committed(self, end: int) -> None:
        """What its predecessor appended last can be lost with this leader too, as long as others
        lack it: an offset told of before would go back, a transaction completed before be aborted.
        """
        wakeup = Wakeup()
        waiters, replica = self._hosted.fetch_waiters, self._hosted.replica
        waiters[wakeup] = None
        try:
            while self.is_led and replica.high_watermark < end:
                await wakeup.wait()
        finally:
            del waiters[wakeup]

    def _decode(self, header: BatchHeader, data: memoryview) -> LogBatch | TransactionEnd | None:
        """What cannot be read must not keep all others from their groups."""
        place = header.base_offset
        try:
            if header.is_control:
                marker = decode_marker(header, data)
                return None if marker is None else end_of(marker, place)
            producer_id = header.producer_id if header.is_transactional else None
            return LogBatch(place, list(decode_batch(header, data)), producer_id)
        except UndecodableRecords as error:
            tp = self._hosted.tp
            _log.error("%s: batch at offset %d is passed over: %s", tp, place, error)
            return None


def end_of(marker: EndMarker, place: int) -> TransactionEnd:
    """What the marker that stands at offset ``place`` says."""
    return TransactionEnd(place, marker.producer_id, marker.committed)
