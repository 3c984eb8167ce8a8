"""What a query of the metadata log may ask for."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.spark.errors import OptionError
from quorate.spark.options.connection import Connection, read_connection
from quorate.spark.options.declaration import Scope
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.positions import LogPosition
from quorate.spark.options.table import (
    ENDING_OFFSET,
    FAIL_ON_DATA_LOSS,
    FRAME_TIMEOUT_MS,
    MAX_OFFSETS_PER_TRIGGER,
    RECORD_TYPES,
    STARTING_OFFSET,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """A query's options, all checked."""

    connection: Connection
    starting: LogPosition = STARTING_OFFSET.default
    ending: LogPosition = ENDING_OFFSET.default
    record_types: tuple[str, ...] = ()
    """None: all."""
    fail_on_data_loss: bool = True
    frame_timeout_ms: int = FRAME_TIMEOUT_MS.default
    max_offsets_per_trigger: int | None = None


def parse_metadata_options(
    options: Mapping[str, str], *, streaming: bool = False
) -> MetadataOptions:
    """Check the options of a query.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    given = GivenOptions(options, Scope.METADATA)
    if streaming and given.has(ENDING_OFFSET):
        raise OptionError(
            f"option {ENDING_OFFSET.name} is not for a streaming query: it has no end"
        )
    return MetadataOptions(
        connection=read_connection(given),
        starting=given[STARTING_OFFSET],
        ending=given[ENDING_OFFSET],
        record_types=given[RECORD_TYPES],
        fail_on_data_loss=given[FAIL_ON_DATA_LOSS],
        frame_timeout_ms=given[FRAME_TIMEOUT_MS],
        max_offsets_per_trigger=given[MAX_OFFSETS_PER_TRIGGER],
    )
