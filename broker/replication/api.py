"""What the replica manager is asked and what it answers: values shared with the Kafka listener."""

import enum
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.errors import InvalidRecords, KafkaError, RecordError
from broker.log.aborted_transactions import AbortedTransaction
from broker.log.admission import Origin
from broker.log.control_batches import EndMarker
from metadata_log.types import BrokerId, TopicPartition
from quorate_proto.v1 import errors_pb2

Bytes = bytes | memoryview
"""Whole record batches v2, back to back. Never copied on the way through this package."""

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0

LATEST_TIMESTAMP_MS = -1
"""ListOffsets: the high watermark."""

EARLIEST_TIMESTAMP_MS = -2
"""ListOffsets: the first offset still in the log."""

MAX_TIMESTAMP_MS = -3
"""ListOffsets: the first record with the greatest timestamp (KIP-734)."""


class Isolation(enum.IntEnum):
    """How far a consumer reads, as the wire has it (KIP-98)."""

    READ_UNCOMMITTED = 0
    """To the high watermark."""
    READ_COMMITTED = 1
    """To the last stable offset, and is told what was aborted below it."""


def isolation_of(level: int) -> Isolation:
    """As the wire has it; a level that nobody knows is the one that shows less."""
    return Isolation.READ_COMMITTED if level else Isolation.READ_UNCOMMITTED


class ReadRoom(Protocol):
    """What of memory a read for a client may use; ``client_memory.AnswerLease`` is the real one."""

    def reserve(self, wanted_bytes: int) -> int:
        """How many of ``wanted_bytes`` may be read now, in place of what was reserved before; at
        least one batch is, unless this is 0."""

    def keep(self, size: int) -> None:
        """So many bytes were read; the others are given back."""


class _AllRoom:
    def reserve(self, wanted_bytes: int) -> int:
        return wanted_bytes

    def keep(self, size: int) -> None:
        """Nothing is counted."""


ALL_ROOM: Final[ReadRoom] = _AllRoom()
"""Of readers that nobody bounds."""


@dataclass(frozen=True, slots=True)
class ProduceEntry:
    """Batches for one partition, and who has them written.

    ``transactional_id``: of their producer; its coordinator is asked before they begin a
    transaction. None: it is not.
    """

    tp: TopicPartition
    records: Bytes
    origin: Origin = Origin.CLIENT
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class MarkerEntry:
    """The end of a transaction in one of its partitions."""

    tp: TopicPartition
    marker: EndMarker


@dataclass(frozen=True, slots=True)
class ProduceOutcome:
    """What became of one ``ProduceEntry``. ``base_offset`` is -1 with any error.

    ``record_errors``: the records that all of them were refused for, where it was for some.
    """

    error_code: int = errors_pb2.NONE
    error_message: str | None = None
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()


def refused(error: KafkaError) -> ProduceOutcome:
    """Of an entry that its log did not take."""
    records = error.record_errors if isinstance(error, InvalidRecords) else ()
    return ProduceOutcome(error.code, error.message, record_errors=records)


@dataclass(frozen=True, slots=True)
class FetchWant:
    """A consumer's position in one partition. ``current_leader_epoch`` -1: not checked."""

    tp: TopicPartition
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """What holds for all positions of one fetch.

    It is answered at once with ``min_bytes`` of records, with as many as there is room for, or with
    any error; else when enough was committed or ``max_wait_ms`` have passed. ``max_bytes``: of the
    answer, which one batch alone may exceed.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    room: ReadRoom = ALL_ROOM
    """Kept for the bytes of all that was found."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    near: Set[BrokerId] | None = None
    """Brokers that the reader is sent to where it can (KIP-392); None: it reads from leaders
    alone."""


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """Batches from the one that contains the offset, all below the high watermark (C16).

    With ``Isolation.READ_COMMITTED`` below the last stable offset, and ``aborted_transactions``:
    what may have records among these batches that do not count.
    """

    error_code: int = errors_pb2.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    chunks: Sequence[Bytes] = field(default=())
    size: int = 0
    last_stable_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] = field(default=())
    preferred_read_replica: int = -1
    """The broker to read from instead; there are no records then. -1: this one."""


@dataclass(frozen=True, slots=True)
class OffsetOutcome:
    """An offset found; offset and timestamp are -1 where there is none."""

    error_code: int = errors_pb2.NONE
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class DeleteWant:
    """Records below ``offset`` are to go; -1: all that are committed."""

    tp: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """``low_watermark``: the first offset that a member of the ISR still has; -1 with any error."""

    error_code: int = errors_pb2.NONE
    low_watermark: int = -1


@dataclass(frozen=True, slots=True)
class LogSize:
    """Bytes of a partition's log here, and how far it is behind what is committed."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The largest epoch at or below the one asked about, and where it ends; -1: none."""

    error_code: int = errors_pb2.NONE
    leader_epoch: int = -1
    end_offset: int = -1
