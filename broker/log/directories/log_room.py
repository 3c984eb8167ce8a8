"""Waiting until the disks of several log folders keep up with what is appended."""

from collections.abc import Sequence
from typing import Protocol

from quorate.broker.log.writing.log_writer import LogWriter


class LogRoom(Protocol):
    """Tells who appends much when to go on. The writer of a single folder is one itself."""

    @property
    def has_room(self) -> bool:
        """Whether ``wait_for_room`` would return at once."""

    async def wait_for_room(self) -> None:
        """Wait until few bytes wait to be flushed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if no disk works any more.
        """

    async def wait_for_turn(self) -> None:
        """Wait until few batches wait to be flushed."""


class SharedRoom:
    """The room of several folders: each of those that work must have some.

    A folder that has failed holds nobody up: its logs refuse what is appended.
    """

    def __init__(self, writers: Sequence[LogWriter]) -> None:
        self._writers = writers

    @property
    def has_room(self) -> bool:
        return all(one.has_room for one in self._working())

    async def wait_for_room(self) -> None:
        for one in self._working():
            await one.wait_for_room()

    async def wait_for_turn(self) -> None:
        for one in self._working():
            await one.wait_for_turn()

    def _working(self) -> list[LogWriter]:
        return [one for one in self._writers if one.failure is None] or [self._writers[0]]
