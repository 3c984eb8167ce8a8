"""Builds record batches from rows: one open batch for each partition, which is closed when full.

A batch has at most ``batch_bytes`` of records. Only a single record may be larger, and it is then
checked against the limit of its topic. Sequence numbers count the records of a partition from 0,
batch after batch. Together with the producer id they identify a batch, however often it is sent.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import crc32c
import numpy as np

from quorate.spark.errors import RecordTooLarge
from quorate.spark.kernels.kernel_store import load_kernel
from quorate.spark.writing import writing_kernels as kernels
from quorate.spark.writing.compression import compress
from quorate.spark.writing.partitioner import RowsOfPartitionSlot, TargetPartition
from quorate.spark.writing.row_columns import Rows

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
LENGTH_OVERHEAD_BYTES: Final = 12
CRC_START: Final = 21
CRC_FIELD: Final = struct.Struct(">I")
CRC_AT: Final = 17
MAGIC: Final = 2
NO_LEADER_EPOCH: Final = -1

FIRST_BUFFER_BYTES: Final = 16 << 10
LARGEST_BATCH_BYTES: Final = (16 << 20) - (64 << 10)
"""The largest batch that fits in one request to a broker."""
OPEN_BYTES_MAX: Final = 32 << 20
"""The limit for the open batches of all partitions together. Beyond it the largest batches are
closed before they are full."""

SEQUENCES: Final = 1 << 31
"""The count of sequence numbers: they run from 0 to 2^31 - 1, and then from 0 again."""


@dataclass(frozen=True, slots=True, eq=False)
class ProducerBatch:
    """A closed batch, ready to be sent."""

    number: int
    """The position among all batches of the writer, in the order in which they were closed."""
    target: TargetPartition
    records: tuple[bytes | memoryview, ...]
    """The bytes of the batch, in pieces."""
    size: int
    base_sequence: int
    count: int


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """The settings of one writer's batches."""

    producer_id: int
    producer_epoch: int
    codec: str
    batch_bytes: int


class _OpenBatch:
    """The records of one partition so far, behind room for the header."""

    def __init__(self, size: int, base_timestamp: int) -> None:
        self.buffer = np.empty(size, np.uint8)
        self.at = HEADER_BYTES
        self.count = 0
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp

    def grow(self, size: int) -> None:
        """Move the records into a larger buffer."""
        larger = np.empty(size, np.uint8)
        larger[: self.at] = self.buffer[: self.at]
        self.buffer = larger

    def note_appended(self, count: int, at: int, max_timestamp: int) -> None:
        """Note that ``count`` records were written into the buffer, up to position ``at``."""
        self.count += count
        self.at = at
        self.max_timestamp = max_timestamp


class BatchBuilder:
    """The open batches of one writer, by slot: the position of their target in ``targets``."""

    def __init__(self, targets: list[TargetPartition], settings: BatchSettings) -> None:
        """The list ``targets`` may grow while the builder is used."""
        self._targets = targets
        self._settings = settings
        self._open: dict[int, _OpenBatch] = {}
        self._sequences: dict[int, int] = {}
        self._report = np.zeros(kernels.REPORT_SIZE, np.int64)
        self._closed = 0
        self.open_bytes = 0

    def append(self, rows: Rows, part: RowsOfPartitionSlot) -> Iterator[ProducerBatch]:
        """Append rows to the batches of one partition, and yield the batches that are full.

        Raises:
            RecordTooLarge: names topic, partition, size and limit.
        """
        slot, at = part.slot, part.begin
        while at < part.end:
            batch = self._open.get(slot)
            if batch is None:
                size = min(FIRST_BUFFER_BYTES, self._limit(slot))
                batch = _OpenBatch(size, int(rows.timestamps_ms[part.order[at]]))
                self._open[slot] = batch
                self.open_bytes += len(batch.buffer)
            at = self._fill(batch, rows, part._replace(begin=at))
            if at < part.end and not self._make_room(slot, batch):
                yield self._close(slot)

    def close_largest(self) -> Iterator[ProducerBatch]:
        """Close the largest batches if all open batches together exceed `OPEN_BYTES_MAX`."""
        if self.open_bytes <= OPEN_BYTES_MAX:
            return
        by_size = sorted(self._open, key=lambda slot: len(self._open[slot].buffer))
        while self.open_bytes > OPEN_BYTES_MAX // 2:
            yield self._close(by_size.pop())

    def close_all(self) -> Iterator[ProducerBatch]:
        """Close all open batches."""
        for slot in list(self._open):
            yield self._close(slot)

    def _fill(self, batch: _OpenBatch, rows: Rows, part: RowsOfPartitionSlot) -> int:
        """Append as many rows as there is room for; return the position of the next row."""
        report = self._report
        report[kernels.MAX_TIMESTAMP] = batch.max_timestamp
        stopped = load_kernel(kernels.APPEND_RECORDS)(
            batch.buffer.ctypes.data, batch.at, len(batch.buffer), batch.count,
            batch.base_timestamp, part.order.ctypes.data, part.begin, part.end,
            report.ctypes.data, rows.present, *rows.addresses,
        )  # fmt: skip
        batch.note_appended(
            stopped - part.begin, int(report[kernels.AT]), int(report[kernels.MAX_TIMESTAMP])
        )
        return stopped

    def _make_room(self, slot: int, batch: _OpenBatch) -> bool:
        """Make room in a full batch for the next record; return False if it must be closed."""
        needed = batch.at + int(self._report[kernels.NEEDED])
        target = self._targets[slot]
        limit = self._limit(slot)
        if needed > limit and batch.count:
            return False
        if needed > LARGEST_BATCH_BYTES:
            raise _too_large(target, needed - HEADER_BYTES, LARGEST_BATCH_BYTES, "gRPC's requests")
        size = max(needed, min(limit, 2 * len(batch.buffer)))
        self.open_bytes += size - len(batch.buffer)
        batch.grow(size)
        return True

    def _limit(self, slot: int) -> int:
        """Return the largest size in bytes of a batch that holds more than one record."""
        most = self._settings.batch_bytes
        return max(HEADER_BYTES, min(most, self._targets[slot].bytes_max or most))

    def _close(self, slot: int) -> ProducerBatch:
        batch = self._open.pop(slot)
        self.open_bytes -= len(batch.buffer)
        target = self._targets[slot]
        sequence = self._sequences.get(slot, 0)
        self._sequences[slot] = (sequence + batch.count) % SEQUENCES
        records = self._seal(batch, sequence)
        size = sum(len(piece) for piece in records)
        if target.bytes_max and size > target.bytes_max:
            # Only a single record can be that large: batches of several are kept below the limit.
            raise _too_large(target, size, target.bytes_max, "max.message.bytes of the topic")
        self._closed += 1
        return ProducerBatch(self._closed, target, records, size, sequence, batch.count)

    def _seal(self, batch: _OpenBatch, sequence: int) -> tuple[bytes | memoryview, ...]:
        """Compress the records, and write the header with the checksum; return the pieces."""
        settings = self._settings
        whole = batch.buffer[: batch.at].data
        codec, records = compress(settings.codec, whole[HEADER_BYTES:])
        HEADER.pack_into(
            whole, 0, 0, HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(records), NO_LEADER_EPOCH,
            MAGIC, 0, codec, batch.count - 1, batch.base_timestamp, batch.max_timestamp,
            settings.producer_id, settings.producer_epoch, sequence, batch.count,
        )  # fmt: skip
        if codec == 0:
            CRC_FIELD.pack_into(whole, CRC_AT, crc32c.crc32c(whole[CRC_START:]))
            return (whole,)
        checksum = crc32c.crc32c(records, crc32c.crc32c(whole[CRC_START:HEADER_BYTES]))
        CRC_FIELD.pack_into(whole, CRC_AT, checksum)
        return bytes(whole[:HEADER_BYTES]), records


def _too_large(target: TargetPartition, size: int, limit: int, whose: str) -> RecordTooLarge:
    partition = target.partition
    return RecordTooLarge(
        f"a record for topic {partition.topic} partition {partition.partition} has {size} bytes "
        f"in its batch, the limit is {limit} ({whose})"
    )
