"""The requests to the replica manager and its answers, shared with the Kafka listener."""

import enum
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from quorate.broker.common.errors import InvalidRecords, KafkaError, RecordError
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker
from quorate.broker.log.state.aborted_transactions import AbortedTransaction
from quorate.common.types import BrokerId, TopicId, TopicPartition
from quorate_proto.v1 import errors_pb2

Bytes = bytes | memoryview
"""Whole record batches v2, back to back. They are never copied on the way through replication."""

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0

LATEST_TIMESTAMP_MS = -1
"""The timestamp by which ListOffsets asks for the high watermark."""

EARLIEST_TIMESTAMP_MS = -2
"""The timestamp by which ListOffsets asks for the first offset that is still in the log."""

MAX_TIMESTAMP_MS = -3
"""The timestamp by which ListOffsets asks for the first record of the greatest one (KIP-734)."""


class Isolation(enum.IntEnum):
    """The isolation level of a consumer, with the values of the wire (KIP-98)."""

    READ_UNCOMMITTED = 0
    """The consumer reads up to the high watermark."""
    READ_COMMITTED = 1
    """It reads up to the last stable offset, and is told what was aborted below it."""


def isolation_of(level: int) -> Isolation:
    """Return the level for a value of the wire. An unknown value gets the level that shows less."""
    return Isolation.READ_COMMITTED if level else Isolation.READ_UNCOMMITTED


class ReadMemory(Protocol):
    """The memory that a client's read may use; ``client_memory.ResponseLease`` is the real one."""

    def reserve(self, wanted_bytes: int) -> int:
        """Return how many of ``wanted_bytes`` may be read now, instead of what was reserved before.

        At least one batch is read unless this is 0.
        """

    def keep(self, size: int) -> None:
        """Keep ``size`` bytes, which were read, and give the others back."""


class _UnlimitedReadMemory:
    def reserve(self, wanted_bytes: int) -> int:
        return wanted_bytes

    def keep(self, size: int) -> None:
        """Count nothing."""


ALL_ROOM: Final[ReadMemory] = _UnlimitedReadMemory()
"""The room of readers that nothing bounds."""


class TransactionSupport(enum.IntEnum):
    """What a client's version of a request says about its transactions (KIP-890)."""

    ANNOUNCED = 0
    """The producer has told the coordinator of the partition, and knows no TRANSACTION_ABORTABLE:
    it gets INVALID_TXN_STATE."""
    ABORTABLE = 1
    """It has told the coordinator, and knows TRANSACTION_ABORTABLE."""
    ADDED = 2
    """Transactions v2: the leader of the partition has the coordinator add it."""


class ProduceEntry(msgspec.Struct, frozen=True):
    """Batches for one partition, and the origin from which they come.

    ``transactional_id`` is that of their producer: its coordinator is asked before they begin a
    transaction. Without one nobody is asked. ``support`` says what it is asked. With a ``topic_id``
    they are for the topic of that id alone, and not for another one that was created under its
    name.
    """

    tp: TopicPartition
    records: Bytes
    origin: AppendOrigin = AppendOrigin.CLIENT
    transactional_id: str | None = None
    topic_id: TopicId | None = None
    support: TransactionSupport = TransactionSupport.ANNOUNCED


@dataclass(frozen=True, slots=True)
class MarkerEntry:
    """The end of a transaction in one of its partitions.

    From ``transaction_version`` 2 on, the marker's epoch is above that of the transaction that it
    ends (KIP-1228).
    """

    tp: TopicPartition
    marker: EndMarker
    transaction_version: int = 0


class ProduceOutcome(msgspec.Struct, frozen=True):
    """The outcome of one ``ProduceEntry``. ``base_offset`` is -1 with any error.

    ``record_errors`` are the records for which the whole entry was refused, if some were the cause.
    With an error, ``was_appended`` says whether the batches are in the log of the leader, where
    they may still become committed.
    """

    error_code: int = errors_pb2.NONE
    error_message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    was_appended: bool = False


def refused(error: KafkaError) -> ProduceOutcome:
    """Return the outcome of an entry that its log did not take."""
    records = error.record_errors if isinstance(error, InvalidRecords) else ()
    return ProduceOutcome(error.code, error.message, record_errors=records)


class FetchPartition(msgspec.Struct, frozen=True):
    """A consumer's position in one partition. A ``current_leader_epoch`` of -1 is not checked, and
    neither is a ``topic_id`` of None.
    """

    tp: TopicPartition
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    topic_id: TopicId | None = None


class FetchParams(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of all positions of one fetch.

    The fetch is answered at once with ``min_bytes`` of records, with as many as there is room for,
    or with any error. Otherwise it is answered when enough was committed or ``max_wait_ms`` have
    passed. ``max_bytes`` limits the answer, but one batch alone may exceed it.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    room: ReadMemory = ALL_ROOM
    """The memory for the bytes of everything that is found."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    near: Set[BrokerId] | None = None
    """The brokers that the reader is sent to if possible (KIP-392), or None to read from leaders
    alone."""


class FetchOutcome(msgspec.Struct, frozen=True):
    """Batches from the one that contains the offset, all below the high watermark (C16).

    With ``Isolation.READ_COMMITTED`` they lie below the last stable offset, and
    ``aborted_transactions`` are those that may have records among these batches: these do not
    count.
    """

    error_code: int = errors_pb2.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    chunks: Sequence[Bytes] = ()
    size: int = 0
    last_stable_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] = ()
    preferred_read_replica: int = -1
    """The broker to read from instead, without records here; -1 stands for this broker."""


@dataclass(frozen=True, slots=True)
class OffsetOutcome:
    """An offset that was looked up; offset and timestamp are -1 if there is none."""

    error_code: int = errors_pb2.NONE
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeleteRecordsPartition:
    """The deletion of all records below ``offset``; -1 stands for all that are committed."""

    tp: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """The first offset that a member of the ISR still has; it is -1 with any error."""

    error_code: int = errors_pb2.NONE
    low_watermark: int = -1


@dataclass(frozen=True, slots=True)
class LogSize:
    """The bytes of a partition's log here, how far it is behind what is committed, and the folder
    that it is in."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    directory: Path
    is_future: bool = False
    """Whether it is the copy that a move of the replica makes, see ``replication.moving``."""


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """The largest epoch at or below the requested one, and where it ends; -1 stands for none."""

    error_code: int = errors_pb2.NONE
    leader_epoch: int = -1
    end_offset: int = -1
