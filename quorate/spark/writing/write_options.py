"""The options of a write."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quorate.spark.options.connection_options import ConnectionOptions, read_connection_options
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.option_table import (
    BATCH_BYTES,
    COMPRESSION,
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    TOPIC,
)
from quorate.spark.options.typed_options import TypedOptions, read_typed_options
from quorate.spark.retries import INTERVAL_MS_MAX


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The checked options of a write. The object travels to the executors by pickle."""

    connection: ConnectionOptions
    topic: str | None = None
    """The topic of all rows; None if the column ``topic`` names it."""
    compression: str = COMPRESSION.default
    batch_bytes: int = BATCH_BYTES.default
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS.default
    request_timeout_ms: int = REQUEST_TIMEOUT_MS.default
    typed: TypedOptions = TypedOptions()  # noqa: RUF009 - frozen
    """How keys and values are encoded."""


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    given = GivenOptions(options, Scope.WRITE)
    connection = read_connection_options(given)
    retries_max = max(connection.retries_max, given[DELIVERY_TIMEOUT_MS] // INTERVAL_MS_MAX)
    return WriteOptions(
        # A writer waits as long for the cluster as for one partition of it.
        connection=replace(connection, retries_max=retries_max),
        topic=given[TOPIC],
        compression=given[COMPRESSION],
        batch_bytes=given[BATCH_BYTES],
        delivery_timeout_ms=given[DELIVERY_TIMEOUT_MS],
        request_timeout_ms=given[REQUEST_TIMEOUT_MS],
        typed=read_typed_options(given),
    )
