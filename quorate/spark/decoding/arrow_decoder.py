"""Decodes record batches into Arrow batches of exactly the schema that Spark expects.

Only the columns of the schema are decoded. The output buffers are as large as the kernel may need,
and are handed to Arrow without a copy.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from quorate.common.topic_partition import TopicPartition
from quorate.spark.decoding import decoding_kernels as kernels
from quorate.spark.decoding.aborted_batches import NONE_ABORTED, AbortedBatches
from quorate.spark.decoding.decoded_columns import DecodedColumns, wanted_bits
from quorate.spark.decoding.decompression import Bytes
from quorate.spark.decoding.record_batches import PlainRecords, plain_records
from quorate.spark.errors import CorruptBatch

_FAULTS = {
    kernels.BAD_LENGTH: "its length runs past the batch",
    kernels.BAD_DELTA: "its timestamp or offset delta is malformed",
    kernels.BAD_KEY: "its key runs past the record",
    kernels.BAD_VALUE: "its value runs past the record",
    kernels.BAD_HEADERS: "its headers run past the record",
    kernels.BAD_HEADER: "a header runs past the record",
    kernels.TRAILING_BYTES: "bytes follow the last record",
}


NEEDS_NO_RECORDS = frozenset({"topic", "partition", "offset"})
"""The columns that runs of offsets have as well."""
RUN_ROWS = 1 << 14
"""The largest Arrow batch of a run: about as many rows as 1 MiB of small records."""


class ArrowDecoder:
    """Decodes one range of one partition. The next frame has to start at ``next_offset``."""

    def __init__(
        self, topic_partition: TopicPartition, start: int, end: int, schema: pa.Schema
    ) -> None:
        self.next_offset = start
        self._end = end
        self._topic_partition = topic_partition
        self._schema = schema
        self._wanted = wanted_bits(schema.names)
        self._constants: dict[str, pa.Array] = {}

    def decode(
        self, frame: Bytes, aborted: AbortedBatches = NONE_ABORTED
    ) -> Iterator[pa.RecordBatch]:
        """Yield the frame's records of [next_offset, end), about 1 MiB of them in each batch.

        ``next_offset`` moves behind the frame's batches as they are handed out.

        Raises:
            CorruptBatch: names topic, partition and offset.
        """
        try:
            for plain in plain_records(frame, self.next_offset, self._end, aborted):
                batch = self._decode_group(plain)
                self.next_offset = plain.next_offset
                if batch.num_rows:
                    yield batch
        except CorruptBatch as error:
            raise CorruptBatch(
                f"corrupt data in topic {self._topic_partition.topic} partition "
                f"{self._topic_partition.partition} at or after offset {self.next_offset}: {error}"
            ) from None

    @property
    def needs_no_records(self) -> bool:
        """True if `decode_run` can decode all columns of the schema."""
        return NEEDS_NO_RECORDS.issuperset(self._schema.names)

    def decode_run(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield rows for the part of [start, end) within the range: each offset has a record."""
        first, behind = max(start, self.next_offset), min(end, self._end)
        for offset in range(first, behind, RUN_ROWS):
            rows = min(RUN_ROWS, behind - offset)
            arrays = [self._run_array(field, offset, rows) for field in self._schema]
            self.next_offset = offset + rows
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self.next_offset = max(self.next_offset, end)

    def skip_to(self, offset: int) -> None:
        """Go on at an offset behind the present one, because the log holds no records between."""
        self.next_offset = offset

    def _decode_group(self, plain: PlainRecords) -> pa.RecordBatch:
        columns = DecodedColumns(plain, self._wanted)
        status = columns.decode(self.next_offset, self._end)
        if status != kernels.OK:
            raise CorruptBatch(f"{columns.failed_at(status)}: {_FAULTS[status]}")
        arrays = [self._array(field, columns) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, columns: DecodedColumns) -> pa.Array:
        if (constant := self._constant_of(field, columns.rows)) is not None:
            return constant
        return columns.array(field.name, field.type)

    def _run_array(self, field: pa.Field, offset: int, rows: int) -> pa.Array:
        if (constant := self._constant_of(field, rows)) is not None:
            return constant
        return pa.array(np.arange(offset, offset + rows, dtype=np.int64), field.type)

    def _constant_of(self, field: pa.Field, rows: int) -> pa.Array | None:
        """Return a column that has the same value in all records of the partition."""
        if field.name == "topic":
            return self._constant(field.name, self._topic_partition.topic, field.type, rows)
        if field.name == "partition":
            return self._constant(field.name, self._topic_partition.partition, field.type, rows)
        return None

    def _constant(self, name: str, value: object, type_: pa.DataType, rows: int) -> pa.Array:
        """Return an array of ``rows`` equal values: a slice of the longest such array so far."""
        longest = self._constants.get(name)
        if longest is None or len(longest) < rows:
            longest = self._constants[name] = pa.repeat(pa.scalar(value, type_), rows)
        return longest.slice(0, rows)
