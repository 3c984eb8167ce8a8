"""Records of one partition as rows with their keys, for tables that are kept by upserts."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.common.table_keys import TABLE_DEAD_LETTER_TOPIC, TABLE_WRITE_MODE
from quorate.pipeline.pipeline_errors import PipelineError
from quorate.spark.offset_ranges import OffsetRange
from quorate.spark.typed.typed_batches import BadRow, TypedBatches
from quorate.tables.dead_letters import DeadLetters
from quorate.tables.row_plan import RowPlan
from quorate.tables.write_mode import KEY, RAW_KEY

NO_KEY = "key: the record has none, so it replaces no row"


class KeyedRecords:
    """Turns whole records into rows, keys and tombstones."""

    def __init__(
        self, plan: RowPlan, offsets: OffsetRange, dead_letters: DeadLetters | None
    ) -> None:
        """
        Args:
            plan: how records become rows; it is keyed.
            offsets: the range that the records are of.
            dead_letters: takes records without a key and those that cannot be decoded.
        """
        self._plan = plan
        self._offsets = offsets
        self._dead_letters = dead_letters
        self._typed = (
            None if plan.divides is None else TypedBatches(plan.divides, offsets.topic_partition)
        )

    def rows(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
        """Return rows, the bytes of their keys, and which of them have no value: tombstones.

        Raises:
            PipelineError: a record has no key, and there is no topic of dead letters.
            QuorateSourceError: a record cannot be decoded, and there is no topic of dead letters.
        """
        records = self._with_keys(records)
        rows, records = self._decoded(records)
        keys = records.column(KEY)
        if RAW_KEY in self._plan.schema.names:
            rows = rows.append_column(RAW_KEY, keys)
        return rows, keys, pc.is_null(records.column("value"))

    def _with_keys(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that have keys; the others are dead letters, or an error."""
        keys = records.column(KEY)
        if not keys.null_count:
            return records
        keyless = np.flatnonzero(pc.is_null(keys).to_numpy(zero_copy_only=False)).tolist()
        if self._dead_letters is None:
            offset = records.column("offset")[keyless[0]].as_py()
            topic, number = self._offsets.topic_partition
            raise PipelineError(
                f"the record at offset {offset} of topic {topic} partition {number} has no key, so "
                f"it replaces no row ({TABLE_WRITE_MODE.name}=upsert): name a topic for such "
                f"records with {TABLE_DEAD_LETTER_TOPIC.name}"
            )
        self._dead_letters.add(self._offsets, records, [BadRow(row, NO_KEY) for row in keyless])
        return records.filter(pc.is_valid(keys))

    def _decoded(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows of the records that can be decoded, and these records."""
        if self._typed is None:
            return records.select(self._plan.schema.names), records
        if self._dead_letters is None:
            return self._typed.typed(records), records
        rows, bad = self._typed.divided(records)
        if not bad:
            return rows, records
        self._dead_letters.add(self._offsets, records, bad)
        is_good = np.ones(records.num_rows, bool)
        is_good[[one.row for one in bad]] = False
        return rows, records.filter(pa.array(is_good))
