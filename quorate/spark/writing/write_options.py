"""What one write is to do, of the options that were given."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quorate.spark.options.connection import Connection, read_connection
from quorate.spark.options.declaration import Scope
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.table import (
    BATCH_BYTES,
    COMPRESSION,
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    TOPIC,
)
from quorate.spark.retries import INTERVAL_MS_MAX


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """All checked; travels to the executors by pickle."""

    connection: Connection
    topic: str | None = None
    """Where all rows go; None: their column says."""
    compression: str = COMPRESSION.default
    batch_bytes: int = BATCH_BYTES.default
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS.default
    request_timeout_ms: int = REQUEST_TIMEOUT_MS.default


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """
    Raises:
        OptionError: names the option, its value and what to do.
    """
    given = GivenOptions(options, Scope.WRITE)
    connection = read_connection(given)
    retries_max = max(connection.retries_max, given[DELIVERY_TIMEOUT_MS] // INTERVAL_MS_MAX)
    return WriteOptions(
        # A writer waits for a cluster as long as for a partition of it.
        connection=replace(connection, retries_max=retries_max),
        topic=given[TOPIC],
        compression=given[COMPRESSION],
        batch_bytes=given[BATCH_BYTES],
        delivery_timeout_ms=given[DELIVERY_TIMEOUT_MS],
        request_timeout_ms=given[REQUEST_TIMEOUT_MS],
    )
