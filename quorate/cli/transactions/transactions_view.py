"""Formats producers and durations of transactions for people."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from quorate.cli.shared_options import print_json
from quorate.cli.tables import print_table

if TYPE_CHECKING:
    from quorate.client.results import PartitionProducer

_PRODUCER_HEADS: Final = (
    "topic",
    "partition",
    "producer id",
    "epoch",
    "coordinator epoch",
    "last sequence",
    "idle",
    "open since offset",
)


def show_producers(found: "Sequence[PartitionProducer]", none: str, *, as_json: bool) -> None:
    """Print the producers; ``none`` is printed if there are none."""
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            one.topic,
            str(one.partition),
            str(one.producer_id),
            str(one.producer_epoch),
            _number(one.coordinator_epoch),
            _number(one.last_sequence),
            duration(one.idle_ms),
            _number(one.transaction_start_offset),
        )
        for one in found
    ]
    print_table(_PRODUCER_HEADS, rows, none=none)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def duration(time_ms: int | None) -> str:
    """Format a duration in its two largest units; ``-`` stands for None."""
    if time_ms is None:
        return "-"
    seconds = time_ms // 1000
    if seconds < 60:
        return f"{time_ms / 1000:.1f}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"
