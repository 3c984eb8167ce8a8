"""Decodes texts in UTF-8."""

import numpy as np
import pyarrow as pa

from quorate.spark.typed.good_values import decode_good, rows_with_values
from quorate.spark.typed.value_formats import Decoded


class TextValues:
    """Decodes texts."""

    def decode(self, values: pa.Array, type_: pa.DataType, *, stop_at_bad: bool) -> Decoded:
        """Decode binary values into strings."""
        given = np.flatnonzero(rows_with_values(values))
        texts = (values.drop_null() if values.null_count else values).view(type_)

        def decode(begin: int, end: int) -> pa.Array:
            part = texts.slice(begin, end - begin)
            try:
                part.validate(full=True)
            except ValueError:
                raise ValueError("its bytes are no UTF-8") from None
            return part

        return decode_good(len(values), given, {}, decode, type_, stop_at_bad=stop_at_bad)
