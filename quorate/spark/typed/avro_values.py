"""Decodes the keys or values of a task that are in Avro."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quorate.spark.errors import UndecodableValue, ValueSchemaError
from quorate.spark.typed import avro_instructions as op
from quorate.spark.typed.avro_decoder import AvroDecoder
from quorate.spark.typed.avro_format import AvroFormat, avro_type
from quorate.spark.typed.schema_prefix import PREFIX_BYTES, describe
from quorate.spark.typed.schema_registry import NoSuchSchema, registry_of
from quorate.spark.typed.value_formats import Decoded, Fault
from quorate.spark.typed.wire_format import read_prefixes

UNKNOWN_IDS_MAX: Final = 100
"""How many unknown ids a task asks the registry for before it gives up."""


class AvroValues:
    """Decodes the values of one task."""

    def __init__(self, about: AvroFormat) -> None:
        self._decoder = AvroDecoder(about.reader)
        self._registry = registry_of(about.registry) if about.registry else None
        self._entries: dict[int, int] = {}
        self._refused: dict[int, str] = {}
        """Why records of a schema cannot be read, by its id."""
        self._entry = 0
        if self._registry is None:
            self._entry = self._decoder.add_writer(about.writer or about.reader)

    def decode(self, values: pa.Array, type_: pa.DataType, *, stop_at_bad: bool) -> Decoded:
        """Decode binary values into a column of the reader's type.

        Raises:
            RegistryUnavailable: the schema of a writer could not be asked for.
            UndecodableValue: the registry does not know many of the ids.
        """
        prefix, entries = self._entries_of(values)
        array, bad, fault = self._decoder.decode(
            values, entries, type_, prefix=prefix, stop_at_bad=stop_at_bad
        )
        if fault is not None:
            reason = self._explained(values[fault.row].as_py(), fault.reason)
            fault = Fault(fault.row, reason)
        return Decoded(array, bad, fault)

    def _entries_of(self, values: pa.Array) -> tuple[int, npt.NDArray[np.int64]]:
        if self._registry is None:
            entries = np.full(len(values), self._entry, np.int64)
            if values.null_count:
                valid = values.is_valid().to_numpy(zero_copy_only=False)
                entries[~valid] = op.NULL_RECORD
            return 0, entries
        prefixes = read_prefixes(values)
        entries = np.where(prefixes.present, op.BAD_RECORD, op.NULL_RECORD).astype(np.int64)
        ids = prefixes.ids[prefixes.well_formed]
        if ids.size and (ids == ids[0]).all():
            entries[prefixes.well_formed] = self._entry_of(int(ids[0]))
            return PREFIX_BYTES, entries
        for schema_id in np.unique(ids):
            mine = prefixes.well_formed & (prefixes.ids == schema_id)
            entries[mine] = self._entry_of(int(schema_id))
        return PREFIX_BYTES, entries

    def _entry_of(self, schema_id: int) -> int:
        """Return the entry of the records of a writer; `BAD_RECORD` if they cannot be read."""
        entry = self._entries.get(schema_id)
        if entry is None:
            entry = self._entries[schema_id] = self._new_entry(schema_id)
        return entry

    def _new_entry(self, schema_id: int) -> int:
        assert self._registry is not None
        try:
            writer = avro_type(self._registry.schema(schema_id))
            return self._decoder.add_writer(writer)
        except ValueSchemaError as error:
            self._refused[schema_id] = str(error)
            unknown = sum(1 for entry in self._entries.values() if entry == op.BAD_RECORD)
            if isinstance(error, NoSuchSchema) and unknown >= UNKNOWN_IDS_MAX:
                raise UndecodableValue(
                    f"{unknown} schema ids of these records are not in the registry: is it the one "
                    f"that they were written with? The last: {error}"
                ) from None
            return op.BAD_RECORD

    def _explained(self, value: bytes, reason: str) -> str:
        if self._registry is None:
            return reason
        about = describe(value)
        schema_id = int.from_bytes(value[1:PREFIX_BYTES], "big") if len(value) >= 5 else -1
        reason = reason or self._refused.get(schema_id, "")
        return f"{about}: {reason}" if reason else about
