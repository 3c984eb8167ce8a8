"""Decodes values by a format, as an executor does."""

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from quorate.spark.typed.decoders import decoder_of
from quorate.spark.typed.value_formats import Fault, ValueFormat


def decode(
    about: ValueFormat, values: Sequence[bytes | None]
) -> tuple[list[Any], list[int], Fault | None]:
    """The decoded values, the rows of bad ones, and the fault if it is to stop at the first."""
    # Formats travel to the executors.
    about = pickle.loads(pickle.dumps(about))
    type_ = to_arrow_type(about.spark_type, timezone="UTC")
    # A slice, as a column that was decoded in pieces may be.
    array = pa.array([b"not this", *values], pa.binary()).slice(1)
    decoder = decoder_of(about)
    found = decoder.decode(array, type_, stop_at_bad=False)
    assert found.array.type == type_
    found.array.validate(full=True)
    stopped = decoder.decode(array, type_, stop_at_bad=True)
    bad = np.flatnonzero(found.bad).tolist()
    assert (stopped.fault is None) == (not bad)
    if stopped.fault is not None:
        assert stopped.fault.row == bad[0]
    return found.array.to_pylist(), bad, stopped.fault
