"""From positions to offsets: which questions the leaders are asked, and what the answers mean.

Pure: the clock is an argument, the leaders' answers are a function.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from quorate.spark.errors import RangeUnavailable
from quorate.spark.options.offset_bounds import OffsetBound
from quorate.spark.options.positions import AtOffset, AtTime, BeforeNow, FromEdge, Position
from quorate.spark.ranges import EARLIEST, LATEST, TopicPartition

OffsetOf = Callable[[TopicPartition, int], int]
"""(partition, question) -> offset; the question is `EARLIEST`, `LATEST` or a time in ms; the answer
-1 if there is no record at or after the time."""


def questions_for(
    partitions: Sequence[TopicPartition], now_ms: int, *bounds: OffsetBound
) -> Iterable[tuple[TopicPartition, int]]:
    """What has to be asked: both edges of every partition, and the times that bounds mean."""
    for partition in partitions:
        yield partition, EARLIEST
        yield partition, LATEST
        for bound in bounds:
            if (time_ms := _time_ms(bound.at(partition), now_ms)) is not None:
                yield partition, time_ms


@dataclass(frozen=True, slots=True)
class Resolver:
    """Offsets of positions, as the leaders' answers have them."""

    offset_of: OffsetOf
    now_ms: int

    def edges(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset of the log and the one behind its last that is read.

        A transaction may be open since before what is left of the log: then there is nothing.
        """
        first = self.offset_of(partition, EARLIEST)
        return first, max(first, self.offset_of(partition, LATEST))

    def resolve(
        self, position: Position, partition: TopicPartition, *, absent_is_latest: bool
    ) -> int:
        """The offset that a position means; relative ones never leave the log.

        Raises:
            RangeUnavailable: no record is at or after the time, and the latest offset will not do.
        """
        first, behind_last = self.edges(partition)
        if isinstance(position, AtOffset):
            return position.offset
        if isinstance(position, FromEdge):
            if position.edge == EARLIEST:
                return min(first + position.distance, behind_last)
            return max(behind_last - position.distance, first)
        time_ms = _time_ms(position, self.now_ms)
        assert time_ms is not None
        offset = self.offset_of(partition, time_ms)
        if offset >= 0:
            return offset
        if absent_is_latest or isinstance(position, BeforeNow):
            return behind_last
        raise RangeUnavailable(
            f"no record of topic {partition.topic} partition {partition.partition} is at or after "
            f"{time_ms} ms: set startingOffsetsByTimestampStrategy=latest to go on"
        )


def _time_ms(position: Position, now_ms: int) -> int | None:
    if isinstance(position, AtTime):
        return position.timestamp_ms
    # Before 1970 is before everything; negative numbers are other questions.
    return max(now_ms - position.age_ms, 0) if isinstance(position, BeforeNow) else None
