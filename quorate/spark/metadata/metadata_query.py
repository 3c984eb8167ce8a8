"""The options of a query of the metadata log, and the range of offsets that it reads."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from quorate.spark.errors import OptionError, RangeUnavailable
from quorate.spark.offset_ranges import EARLIEST
from quorate.spark.options.connection_options import ConnectionOptions, read_connection_options
from quorate.spark.options.given_options import GivenOptions
from quorate.spark.options.offset_positions import AtOffset, LogPosition
from quorate.spark.options.option_declaration import Scope
from quorate.spark.options.option_table import (
    ENDING_OFFSET,
    FAIL_ON_DATA_LOSS,
    FRAME_TIMEOUT_MS,
    MAX_OFFSETS_PER_TRIGGER,
    RECORD_TYPES,
    STARTING_OFFSET,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """The checked options of a query of the metadata log."""

    connection: ConnectionOptions
    starting: LogPosition = STARTING_OFFSET.default
    ending: LogPosition = ENDING_OFFSET.default
    record_types: tuple[str, ...] = ()
    """The types of records to read; empty for all types."""
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
        connection=read_connection_options(given),
        starting=given[STARTING_OFFSET],
        ending=given[ENDING_OFFSET],
        record_types=given[RECORD_TYPES],
        fail_on_data_loss=given[FAIL_ON_DATA_LOSS],
        frame_timeout_ms=given[FRAME_TIMEOUT_MS],
        max_offsets_per_trigger=given[MAX_OFFSETS_PER_TRIGGER],
    )


_logger = logging.getLogger(__name__)


class KnownOffsets(NamedTuple):
    """The offsets that the metadata log holds: ``earliest <= offset < latest``."""

    earliest: int
    latest: int
    cluster_id: str = ""


class MetadataRange(NamedTuple):
    """The changes with ``start <= offset < end``."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"metadata offsets [{self.start}, {self.end})"


def position_in(known: KnownOffsets, bound: LogPosition) -> int:
    """Return the offset of a bound. A relative one never leaves the log."""
    if isinstance(bound, AtOffset):
        return bound.offset
    if bound.edge == EARLIEST:
        return min(known.earliest + bound.distance, known.latest)
    return max(known.latest - bound.distance, known.earliest)


def plan_range(options: MetadataOptions, known: KnownOffsets) -> MetadataRange:
    """Return the range to read, which may be empty.

    Raises:
        RangeUnavailable: part of it lies outside the log, and ``failOnDataLoss`` is on.
    """
    wanted = MetadataRange(position_in(known, options.starting), position_in(known, options.ending))
    held = MetadataRange(
        min(max(wanted.start, known.earliest), known.latest),
        max(min(wanted.end, known.latest), known.earliest),
    )
    if wanted.start > wanted.end:
        raise RangeUnavailable(
            f"startingOffset {wanted.start} lies behind endingOffset {wanted.end}"
        )
    if held != wanted:
        refuse_loss(wanted, known.earliest, known.latest, options.fail_on_data_loss)
    return held


def refuse_loss(wanted: MetadataRange, earliest: int, latest: int, fail: bool) -> None:
    """Fail, or log a warning, because part of a range is not in the log.

    Raises:
        RangeUnavailable: ``fail`` is True.
    """
    message = (
        f"{wanted} are not available: changes are kept for [{earliest}, {latest}). What is older "
        "was compacted into a snapshot, which has no history"
    )
    if fail:
        raise RangeUnavailable(f"{message}; failOnDataLoss=false reads what is left")
    _logger.warning("%s; reading what is left (failOnDataLoss=false)", message)
