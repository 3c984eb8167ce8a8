"""Produce: append at the leader, then wait for as much as ``acks`` asks (C12, scenario 14)."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from quorate.broker.common.errors import InvalidRecords, KafkaError, without_traceback
from quorate.broker.log import LogAppendInfo
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import encode_marker
from quorate.broker.log.batches.log_validator import LogValidator, TooMuchAtOnce
from quorate.broker.log.batches.recompression import needs_recompression
from quorate.broker.log.batches.record_batch import Batch
from quorate.broker.log.options import Records
from quorate.broker.replication.api import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    MarkerEntry,
    ProduceEntry,
    ProduceOutcome,
    TransactionSupport,
    refused,
)
from quorate.broker.replication.hosting.delayed_produce import (
    DelayedProduce,
    ProduceDeadlines,
    ProducePurgatory,
)
from quorate.broker.replication.hosting.hosted_partition import HostedPartition
from quorate.broker.replication.hosting.partition_table import PartitionTable
from quorate.broker.replication.serving.known_schemas import KnownSchemas
from quorate.broker.replication.serving.sequence_gaps import SequenceGaps
from quorate.broker.replication.serving.transaction_verification import (
    Release,
    TransactionBatch,
    TransactionVerification,
)
from quorate.broker.replication.serving.validation_queue import ValidationQueue
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import LeaderEpoch, TopicPartition
from quorate_proto.v1 import errors_pb2

_HELD: Final = ProduceOutcome()
"""The outcome of an entry that waits for validation in a thread or for verification."""

_MAY_PASS: Final = frozenset(
    {
        errors_pb2.CONCURRENT_TRANSACTIONS,
        errors_pb2.NOT_ENOUGH_REPLICAS,
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.UNKNOWN_TOPIC_ID,
        errors_pb2.KAFKA_STORAGE_ERROR,
        errors_pb2.REQUEST_TIMED_OUT,
    }
)
"""The refusals after which producers send the same batch again."""

_WHATEVER_IS_STORED: Final = frozenset(
    {
        errors_pb2.CORRUPT_MESSAGE,
        errors_pb2.INVALID_PRODUCER_EPOCH,
        errors_pb2.NOT_LEADER_OR_FOLLOWER,
        errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
"""The refusals that hold for batches in the log, too, or that say that they are not there."""

_EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on each epoch of a producer has one transaction."""

Validated: TypeAlias = Records | list[Batch] | KafkaError
"""The records of an entry: validated batches, or why they are refused. Bytes are those of
coordinators, which the log checks itself."""

_NOT_AT_ONCE: Final = KafkaError(
    errors_pb2.REQUEST_TIMED_OUT, "the batches are not validated yet; send them again"
)
"""Stands for batches that a thread must validate. No producer is answered with it: the entry waits,
or its original is found."""


class RecordAppender:
    """Appends before its first await, so that requests of one connection keep their order.

    Exceptions are batches whose validation takes long (``validation_queue``), batches that would
    begin a transaction (``transaction_verification``), and whatever waits behind them.
    """

    def __init__(
        self,
        table: PartitionTable,
        verification: TransactionVerification | None,
        schemas: KnownSchemas,
    ) -> None:
        """Without ``verification``, transactions begin without a question to their coordinators.

        ``schemas`` knows the schemas of topics whose records must name theirs.
        """
        self._table = table
        self._clock = table.clock
        self._validator = LogValidator.at_once()
        self._schemas = schemas
        self._validation = ValidationQueue(table.clock.wall_clock_ms, schemas)
        self._gaps = SequenceGaps()
        self._deadlines = ProduceDeadlines()
        self._verification = verification

    async def produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> list[ProduceOutcome]:
        """Append the entries and return one outcome for each, in order, when all are known.

        With acks=0 that is at once, but not before the disk keeps up.
        """
        pending = self.begin_produce(entries, acks, timeout_ms)
        if acks == ACKS_NONE and pending.outcomes:
            with contextlib.suppress(KafkaError):
                await self._table.store.room.wait_for_room()
        return await pending.wait()

    def begin_produce(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int
    ) -> DelayedProduce:
        """Append the entries, and return their outcomes, some of which may come later.

        With acks=0 an entry is answered once it is appended, with 1 once it is durable here, and
        with -1 once it is below the high watermark, so on every member of the maximal ISR.
        """
        pending = DelayedProduce()
        if acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
            message = f"acks={acks}: must be -1, 0 or 1"
            refusal = ProduceOutcome(errors_pb2.INVALID_REQUIRED_ACKS, message)
            pending.outcomes += [refusal] * len(entries)
            return pending
        for entry in entries:
            self._append(entry, acks, pending)
        pending.expire_after(timeout_ms, self._deadlines)
        return pending

    async def wait_for_turn(self) -> None:
        """Wait until few batches wait for their validation or for the disk. A request over very
        many partitions appends them in parts, and calls this before each.
        """
        await self._validation.turns.wait()
        await self._table.store.room.wait_for_turn()

    async def close(self) -> None:
        """Refuse what waits for validation or verification: another broker will lead."""
        await self._validation.close()
        self._schemas.close()
        if self._verification is not None:
            await self._verification.close()

    async def verify_transaction(self, batch: TransactionBatch) -> None:
        """Verify a transaction right before a coordinator appends in the name of its producer.

        Raises:
            KafkaError: the coordinator may not append, see ``TransactionVerification.verify``.
        """
        hosted = self._table.named(batch.tp)
        if hosted is not None and self._verification is not None:
            await self._verification.verify(hosted, batch)

    async def write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        """End transactions in partitions led here, and return an error code per entry, in order.

        NONE means that the marker is committed. A coordinator that gets an error, or no answer,
        sends the marker again: a marker that ends nothing does no harm. INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED will stay; every other error passes.
        """
        late = [self._is_late(entry) for entry in entries]
        written = iter(
            await self._write_markers(
                [entry for entry, is_late in zip(entries, late, strict=True) if not is_late],
                timeout_ms,
            )
        )
        refused = errors_pb2.INVALID_PRODUCER_EPOCH
        return [refused if is_late else next(written) for is_late in late]

    def _is_late(self, entry: MarkerEntry) -> bool:
        """Say whether the marker of a transaction v2 comes after the next one has begun here.

        A marker's epoch is above that of its own transaction, so one that is open in this epoch is
        a later one (KIP-1228). ``check_marker`` refuses markers of epochs before.
        """
        hosted = self._table.named(entry.tp)
        if hosted is None or entry.transaction_version < _EPOCH_PER_TRANSACTION:
            return False
        producer_id = entry.marker.producer_id
        producer = hosted.log.producers.get(producer_id)
        is_open = producer_id in hosted.log.transactions.ongoing
        return is_open and producer is not None and producer.epoch == entry.marker.producer_epoch

    async def _write_markers(self, entries: Sequence[MarkerEntry], timeout_ms: int) -> list[int]:
        timestamp_ms = self._clock.wall_clock_ms()
        epochs = [self._leader_epoch(entry.tp) for entry in entries]
        batches = {
            marker: encode_marker(marker, timestamp_ms)
            for marker in {entry.marker for entry in entries}
        }
        produced = [
            ProduceEntry(entry.tp, batches[entry.marker], AppendOrigin.MARKERS) for entry in entries
        ]
        outcomes = await self.produce(produced, ACKS_ALL, timeout_ms)
        for entry, epoch, outcome in zip(entries, epochs, outcomes, strict=True):
            if outcome.error_code == errors_pb2.NONE:
                self._tell_of_end(entry, epoch, outcome.base_offset)
        return [outcome.error_code for outcome in outcomes]

    def _leader_epoch(self, tp: TopicPartition) -> LeaderEpoch | None:
        hosted = self._table.named(tp)
        return None if hosted is None else hosted.led_epoch

    def _tell_of_end(self, entry: MarkerEntry, epoch: LeaderEpoch | None, offset: int) -> None:
        """Tell the partition's listener, unless the leadership has changed since the append.

        A listener that leads in another epoch has found the marker in the log.
        """
        hosted = self._table.named(entry.tp)
        if hosted is not None and hosted.led_epoch == epoch:
            hosted.transaction_ended(entry.marker, offset)

    def _append(self, entry: ProduceEntry, acks: int, pending: DelayedProduce) -> None:
        """Append an entry, or hold it, and add its outcome to ``pending``."""
        hosted = self._table.named(entry.tp, entry.topic_id)
        records: Validated = entry.records
        if hosted is not None and hosted.leads:
            if entry.origin.is_client:
                records = self._validated(hosted, entry)
            if self._is_held(hosted, entry, records, acks, pending):
                return
        outcome, waiters, needed = self._appended(hosted, entry, records, acks)
        pending.outcomes.append(outcome)
        if waiters is not None:
            waiters.add(needed, pending, pending.expect())

    def _validated(self, hosted: HostedPartition, entry: ProduceEntry) -> Validated:
        """Validate the batches of a client, unless that takes long or others wait for it."""
        target = hosted.log
        codec = target.storing.codec
        if hosted in self._validation.queues or target.storing.named_parts is not None:
            return _NOT_AT_ONCE
        if codec is not None and needs_recompression(entry.records, codec):
            return _NOT_AT_ONCE
        try:
            return self._validator.validate(
                entry.records, target, entry.origin, self._clock.wall_clock_ms(), entry.tp
            )
        except TooMuchAtOnce:
            return _NOT_AT_ONCE
        except KafkaError as error:
            return without_traceback(error)

    def _is_held(
        self,
        hosted: HostedPartition,
        entry: ProduceEntry,
        records: Validated,
        acks: int,
        pending: DelayedProduce,
    ) -> bool:
        """Have the entry wait for its validation or for the answer of a coordinator, if it must.

        Returns whether it waits. Most batches are validated already, and most begin no
        transaction: neither waits. What is in the log already does not wait either.
        """
        if records is _NOT_AT_ONCE:
            if _needs_no_wait(hosted, entry):
                return False
            pending.outcomes.append(_HELD)
            go_on = partial(self._go_on, acks, pending, pending.expect())
            self._validation.hold(hosted, entry, go_on)
            return True
        asked = None if isinstance(records, KafkaError) else self._question(hosted, entry)
        if asked is None or _needs_no_wait(hosted, entry):
            return False
        pending.outcomes.append(_HELD)
        asked(partial(self._release, entry, records, acks, pending, pending.expect()))
        return True

    def _question(
        self, hosted: HostedPartition, entry: ProduceEntry
    ) -> Callable[[Release], None] | None:
        """Return a function that asks a coordinator and goes on then, or None if none is asked."""
        if self._verification is None or entry.transactional_id is None:
            return None
        batch = self._verification.needed(hosted, entry)
        return None if batch is None else partial(self._verification.hold, hosted, batch)

    def _go_on(
        self,
        acks: int,
        pending: DelayedProduce,
        position: int,
        entry: ProduceEntry,
        records: Validated,
    ) -> None:
        """Go on with an entry that is validated by now, or that was refused."""
        hosted = self._table.named(entry.tp, entry.topic_id)
        release = partial(self._release, entry, records, acks, pending, position)
        is_refused = isinstance(records, KafkaError)
        if not is_refused and hosted is not None and hosted.leads and pending.is_open(position):
            asked = self._question(hosted, entry)
            if asked is not None:
                asked(release)
                return
        release(None)

    def _release(
        self,
        entry: ProduceEntry,
        records: Validated,
        acks: int,
        pending: DelayedProduce,
        position: int,
        refusal: KafkaError | None,
    ) -> None:
        """Append an entry that was held, or answer it with the refusal."""
        if not pending.is_open(position):
            # The request has timed out: the producer sends it again, and what came behind it.
            self._gaps.note(entry.tp, entry.records, self._clock.now_ms())
            return
        if refusal is not None:
            pending.outcomes[position] = self._refused(entry, refusal)
            pending.settle(position, errors_pb2.NONE, None)
            return
        hosted = self._table.named(entry.tp, entry.topic_id)
        outcome, waiters, needed = self._appended(hosted, entry, records, acks)
        pending.outcomes[position] = outcome
        if waiters is not None:
            waiters.add(needed, pending, position)
        else:
            pending.settle(position, errors_pb2.NONE, None)

    def _appended(
        self, hosted: HostedPartition | None, entry: ProduceEntry, records: Validated, acks: int
    ) -> tuple[ProduceOutcome, ProducePurgatory | None, int]:
        """Append an entry. Return its outcome, and where to wait for which offset first.

        What the log has already is not refused, whatever refuses new batches: it waits like its
        original.
        """
        if hosted is None or not hosted.leads:
            return self._refused(entry, self._not_led(entry, hosted)), None, 0
        replica = hosted.replica
        end_before = hosted.log.log_end_offset
        try:
            if isinstance(records, KafkaError):
                raise records
            if acks == ACKS_ALL and not replica.has_enough_replicas:
                raise _too_few_replicas(hosted)
            if self._gaps.by_partition or entry.support is TransactionSupport.ADDED:
                self._check_order(hosted, entry, records)
            appended = hosted.log.append_as_leader(records, replica.leader_epoch, entry.origin)
        except KafkaError as refusal:
            try:
                appended = _original(hosted, entry, without_traceback(refusal))
            except KafkaError as error:
                hosted.traffic.refused_a_produce()
                return self._refused(entry, without_traceback(error)), None, 0
        except BrokenInvariant as broken:
            self._table.give_up(hosted, broken)
            stopped = KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, hosted.broken)
            return self._refused(entry, stopped), None, 0
        outcome = ProduceOutcome(
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=hosted.log.log_start_offset,
        )
        needed = appended.last_offset + 1
        # Records that were sent again do not count: a part of them may be in the log already.
        hosted.traffic.took(len(entry.records), hosted.log.log_end_offset - end_before)
        if acks == ACKS_ALL and replica.high_watermark < needed:
            return outcome, hosted.waiting_for_commit, needed
        if acks == ACKS_LEADER and hosted.log.flushed_offset < needed:
            return outcome, hosted.waiting_for_flush, needed
        return outcome, None, 0

    def _not_led(self, entry: ProduceEntry, hosted: HostedPartition | None) -> KafkaError:
        """Return why this broker does not lead the partition of an entry."""
        if hosted is None and self._table.named(entry.tp) is not None:
            assert entry.topic_id is not None
            return KafkaError(
                errors_pb2.UNKNOWN_TOPIC_ID,
                f"{entry.tp} is not of topic id {entry.topic_id.hex()}: the topic was re-created",
            )
        return KafkaError(*self._table.not_leader(entry.tp, hosted))

    def _check_order(
        self, hosted: HostedPartition, entry: ProduceEntry, records: Records | list[Batch]
    ) -> None:
        """Refuse what must not be appended before a batch that was refused.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS, as for the batch before; OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if entry.support is TransactionSupport.ADDED:
            _check_first_of_unknown(hosted, records)
        producers = hosted.log.producers
        if self._gaps.explain(entry.tp, entry.records, producers, self._clock.now_ms()):
            raise KafkaError(
                errors_pb2.NOT_ENOUGH_REPLICAS,
                f"{entry.tp}: a batch that its producer sent before was refused; send both again",
            )

    def _refused(self, entry: ProduceEntry, error: KafkaError) -> ProduceOutcome:
        """Return the outcome of an entry that is refused, and remember it if it may come again."""
        if error.code in _MAY_PASS:
            self._gaps.note(entry.tp, entry.records, self._clock.now_ms())
        return refused(error)


def _check_first_of_unknown(hosted: HostedPartition, records: Records | list[Batch]) -> None:
    """Refuse a transactional batch that cannot be its producer's first here (KIP-890).

    With transactions v2 each transaction begins at sequence 0, so nothing was forgotten of a
    producer that is not known: what comes before this batch is on its way.

    Raises:
        KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    if not isinstance(records, list):
        return
    header = records[0].header
    is_first = header.base_sequence == 0 or not header.is_transactional
    if not is_first and hosted.log.producers.get(header.producer_id) is None:
        raise KafkaError(
            errors_pb2.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{hosted.tp}: a batch of producer {header.producer_id}, of which nothing is known "
            f"here, begins at sequence {header.base_sequence}, expected is 0; send what is missing "
            "first",
        )


def _too_few_replicas(hosted: HostedPartition) -> KafkaError:
    replica = hosted.replica
    return KafkaError(
        errors_pb2.NOT_ENOUGH_REPLICAS,
        f"the ISR of {hosted.tp} is {list(replica.isr.committed)}, below "
        f"min.insync.replicas={replica.min_insync_replicas}",
    )


def _original(hosted: HostedPartition, entry: ProduceEntry, refusal: KafkaError) -> LogAppendInfo:
    """Return where the log has the batches that it refuses now.

    Raises:
        KafkaError: the refusal if the log has none of them, or why that is not known.
    """
    is_malformed = refusal.code == errors_pb2.INVALID_RECORD and not isinstance(
        refusal, InvalidRecords
    )
    if is_malformed or refusal.code in _WHATEVER_IS_STORED:
        raise refusal
    original = hosted.log.find_originals(entry.records, entry.origin)
    if original is None:
        raise refusal
    return original


def _needs_no_wait(hosted: HostedPartition, entry: ProduceEntry) -> bool:
    """Say whether the log has the batches of the entry, or will refuse their epoch anyway."""
    try:
        return hosted.log.find_originals(entry.records, entry.origin) is not None
    except KafkaError as error:
        return error.code == errors_pb2.INVALID_PRODUCER_EPOCH
