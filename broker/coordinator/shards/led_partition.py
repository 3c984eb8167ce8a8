"""A partition of a coordinator's topic in the epoch in which this broker leads it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from quorate.broker.common.errors import KafkaError, error_name
from quorate.broker.coordinator.shards.coordinator_lease import CoordinatorLease
from quorate.broker.coordinator.shards.coordinator_records import (
    CommitOutcomeUnknown,
    LogBatch,
    LogRecord,
    TransactionEnd,
    TransactionOwner,
    decode_batch,
    encode_batch,
)
from quorate.broker.log import ColdRead
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.codecs import UndecodableRecords
from quorate.broker.log.batches.control_batches import EndMarker, decode_marker
from quorate.broker.log.batches.record_batch import BatchHeader, iterate_batches
from quorate.broker.replication.api import ACKS_ALL, ProduceEntry
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.manager import ReplicaManager
from quorate.broker.replication.serving.transaction_verification import TransactionBatch
from quorate.broker.replication.wakeup import Wakeup
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import LeaderEpoch
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
    errors_pb2.CONCURRENT_TRANSACTIONS: errors_pb2.CONCURRENT_TRANSACTIONS,
    errors_pb2.TRANSACTION_ABORTABLE: errors_pb2.TRANSACTION_ABORTABLE,
}
"""The errors that clients of a coordinator receive when its log refuses a write. They make clients
retry here, look for the coordinator, or give up, in the same way as Kafka's coordinators."""


class LedPartition:
    """The log of one partition of a coordinator's topic, while this broker leads it in one
    epoch."""

    def __init__(
        self,
        hosted: HostedPartition,
        replicas: ReplicaManager,
        lease: CoordinatorLease,
        *,
        timeout_ms: int,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self.leader_epoch: LeaderEpoch = hosted.replica.leader_epoch
        self._hosted = hosted
        self._replicas = replicas
        self._lease = lease
        self._timeout_ms = timeout_ms
        self._wall_clock_ms = wall_clock_ms

    @property
    def is_led(self) -> bool:
        """Return whether this broker still leads the partition in the same epoch."""
        hosted = self._hosted
        return hosted.leads and hosted.replica.leader_epoch == self.leader_epoch

    @property
    def has_valid_lease(self) -> bool:
        """Return whether no other broker can have become the leader, so that memory may be
        trusted."""
        return self.is_led and self._lease.is_valid(self._hosted.tp, self.leader_epoch)

    def give_up(self, broken: BrokenInvariant) -> None:
        """Stop leading, because the state of this coordinator broke an invariant."""
        self._replicas.give_up(self._hosted, broken)

    async def append(
        self, records: Sequence[LogRecord], transaction: TransactionOwner | None = None
    ) -> int:
        """Append records, and return their offset once they are committed.

        Without a transaction, records are appended before the first await, so in the order of the
        calls.

        Raises:
            KafkaError: they were not appended; the code is one that coordinators answer with.
            CommitOutcomeUnknown: the records are in the log, but may not become committed.
        """
        hosted = self._hosted
        if transaction is not None:
            await self._until_verified(transaction)
        if not self.is_led:
            raise KafkaError(errors_pb2.NOT_COORDINATOR, f"{hosted.tp} is led elsewhere")
        batch = encode_batch(records, self._wall_clock_ms(), transaction)
        place = hosted.log.log_end_offset
        entry = ProduceEntry(hosted.tp, batch, AppendOrigin.COORDINATOR)
        (outcome,) = await self._replicas.produce([entry], ACKS_ALL, self._timeout_ms)
        code = outcome.error_code
        if not code:
            return outcome.base_offset
        refusal = self._refusal(code, outcome.error_message)
        if outcome.was_appended:
            raise CommitOutcomeUnknown(refusal.code, refusal.message, place)
        raise refusal

    async def _until_verified(self, transaction: TransactionOwner) -> None:
        """Wait until the transaction coordinator confirms that this partition is part of the
        transaction.

        Then it will also write the marker that ends the transaction here.

        Raises:
            KafkaError: the partition is not part of it, or the coordinator cannot be asked now.
        """
        try:
            await self._replicas.verify_transaction(
                TransactionBatch(*transaction[:3], self._hosted.tp, transaction.support)
            )
        except KafkaError as error:
            raise self._refusal(error.code, error.message) from error

    def _refusal(self, code: int, message: str | None) -> KafkaError:
        """Translate an error of the log into an error code that coordinators return."""
        told = COORDINATOR_CODES.get(code, errors_pb2.UNKNOWN_SERVER_ERROR)
        return KafkaError(told, f"{self._hosted.tp}: {error_name(code)}: {message}")

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record that is appended."""
        return self._hosted.log.log_end_offset

    def replay(self) -> AsyncIterator[LogBatch | TransactionEnd]:
        """Yield everything that is in the log at the start, batch by batch.

        It ends when all of that is committed; nobody may act on it before.
        """
        return self.replay_from(0)

    async def replay_from(self, begin: int) -> AsyncIterator[LogBatch | TransactionEnd]:
        """Yield as ``replay``, from offset ``begin`` on."""
        log = self._hosted.log
        offset, end = max(begin, log.log_start_offset), log.log_end_offset
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
        """Wait until everything before offset ``end`` is committed.

        Records that the former leader appended last can still be lost with this leader, as long as
        other replicas lack them. An offset that was returned before would then go back, and a
        completed transaction would be aborted.
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
        """Decode a batch. A batch that cannot be decoded is skipped, so that all other groups still
        load."""
        place = header.base_offset
        try:
            if header.is_control:
                marker = decode_marker(header, data)
                return None if marker is None else transaction_end(marker, place)
            producer_id = header.producer_id if header.is_transactional else None
            return LogBatch(place, list(decode_batch(header, data)), producer_id)
        except UndecodableRecords as error:
            tp = self._hosted.tp
            _log.error("%s: batch at offset %d is passed over: %s", tp, place, error)
            return None


def transaction_end(marker: EndMarker, place: int) -> TransactionEnd:
    """Return what the marker at offset ``place`` says about its transaction."""
    return TransactionEnd(place, marker.producer_id, marker.committed)
