"""Decodes the keys or values of a task that are in JSON."""

from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from quorate.spark.errors import ValueSchemaError
from quorate.spark.typed.good_values import decode_good, rows_with_values
from quorate.spark.typed.json_format import JsonFormat
from quorate.spark.typed.json_lines import json_lines
from quorate.spark.typed.json_reading import reader_of
from quorate.spark.typed.schema_prefix import PREFIX_BYTES, describe
from quorate.spark.typed.value_formats import Decoded
from quorate.spark.typed.wire_format import read_prefixes

_REASON_BYTES_MAX: Final = 300


class JsonValues:
    """Decodes the values of one task."""

    def __init__(self, about: JsonFormat) -> None:
        if not isinstance(about.type, StructType):
            raise ValueSchemaError(f"JSON values are objects, not {about.type.simpleString()}")
        self._with_prefix = about.with_prefix

    def decode(self, values: pa.Array, type_: pa.DataType, *, stop_at_bad: bool) -> Decoded:
        """Decode binary values into a column of the type."""
        given, refused, prefix = rows_with_values(values), {}, 0
        if self._with_prefix:
            prefixes, prefix = read_prefixes(values), PREFIX_BYTES
            for row in np.flatnonzero(given & ~prefixes.well_formed):
                refused[int(row)] = describe(values[int(row)].as_py())
            given = prefixes.well_formed
        lines = json_lines(values, given, prefix)
        read = reader_of(type_)

        def decode(begin: int, end: int) -> pa.Array:
            first, behind = int(lines.ends[begin]), int(lines.ends[end])
            body = lines.body.slice(first, behind - first)
            try:
                return read(body, end - begin)
            except ValueError as error:
                raise ValueError(str(error)[:_REASON_BYTES_MAX]) from None

        return decode_good(
            len(values),
            lines.rows,
            {**refused, **lines.refused},
            decode,
            type_,
            stop_at_bad=stop_at_bad,
        )
