"""The options of a streaming query: those of reading, and how much a micro-batch may hold."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate.spark.errors import OptionError
from quorate.spark.options.declaration import Scope
from quorate.spark.options.given import GivenOptions
from quorate.spark.options.read_options import ReadOptions, read_options_of
from quorate.spark.options.table import (
    MAX_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY_MS,
    MIN_OFFSETS_PER_TRIGGER,
)
from quorate.spark.streaming.admission import Limits


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """A streaming query's options, all checked."""

    reading: ReadOptions
    limits: Limits = Limits()  # noqa: RUF009 - frozen


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Check the options of a streaming query.

    Raises:
        OptionError: names the option, its value and what to do.
    """
    given = GivenOptions(options, Scope.STREAM)
    limits = Limits(
        at_most=given[MAX_OFFSETS_PER_TRIGGER],
        at_least=given[MIN_OFFSETS_PER_TRIGGER],
        delay_ms_max=given[MAX_TRIGGER_DELAY_MS],
    )
    at_most, at_least = limits.at_most, limits.at_least
    if at_most is not None and at_least is not None and at_most < at_least:
        raise OptionError(
            f"option {MIN_OFFSETS_PER_TRIGGER.name} is {at_least}, which is more than "
            f"{MAX_OFFSETS_PER_TRIGGER.name}, {at_most}"
        )
    return StreamOptions(read_options_of(given), limits)
