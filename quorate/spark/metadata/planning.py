"""Which metadata offsets a query reads: options and what the log holds in, a range out. Pure."""

import logging
from typing import NamedTuple

from quorate.spark.errors import RangeUnavailable
from quorate.spark.metadata.metadata_options import MetadataOptions
from quorate.spark.options.positions import AtOffset, LogPosition
from quorate.spark.ranges import EARLIEST

_logger = logging.getLogger(__name__)


class KnownOffsets(NamedTuple):
    """What the log holds: ``earliest <= offset < latest``."""

    earliest: int
    latest: int
    cluster_id: str = ""


class MetadataRange(NamedTuple):
    """Changes with ``start <= offset < end``."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"metadata offsets [{self.start}, {self.end})"


def position_in(known: KnownOffsets, bound: LogPosition) -> int:
    """The offset of a bound; one that is relative never leaves the log."""
    if isinstance(bound, AtOffset):
        return bound.offset
    if bound.edge == EARLIEST:
        return min(known.earliest + bound.distance, known.latest)
    return max(known.latest - bound.distance, known.earliest)


def plan_range(options: MetadataOptions, known: KnownOffsets) -> MetadataRange:
    """The range to read; perhaps empty.

    Raises:
        RangeUnavailable: part of it lies outside the log, and ``failOnDataLoss`` is not off.
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
    """
    Raises:
        RangeUnavailable: if it is to fail.
    """
    told = (
        f"{wanted} are not available: changes are kept for [{earliest}, {latest}). What is older "
        "was compacted into a snapshot, which has no history"
    )
    if fail:
        raise RangeUnavailable(f"{told}; failOnDataLoss=false reads what is left")
    _logger.warning("%s; reading what is left (failOnDataLoss=false)", told)
