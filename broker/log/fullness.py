"""Whether the disk of a store is full, and who waits for that to change."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path

from broker.errors import KafkaError
from broker.log.room import Reserve
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

OnRoom = Callable[[bool], None]
"""Whether there is room: the disk is full from now on, or no longer."""


class Fullness:
    """Of one store; on the event loop alone."""

    def __init__(self, directory: Path, reserve: Reserve) -> None:
        self._directory = directory
        self.is_full = not reserve.is_held
        self.on_room: OnRoom = lambda has_room: None
        self._reserve = reserve
        self._waiting: deque[asyncio.Future[None]] = deque()

    def check(self) -> None:
        """Refuse what needs room.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.is_full:
            raise KafkaError(errors_pb2.KAFKA_STORAGE_ERROR, self.message())

    def begin(self, error: Exception) -> None:
        """Nothing more is taken in; what deletes goes on, with the blocks of the reserve."""
        self.is_full = True
        log.error("%s (%s)", self.message(), error)
        self.let_go_on()
        self.on_room(False)

    def end(self) -> None:
        self.is_full = False
        log.warning("log directory %s has room again and takes batches", self._directory)
        self.on_room(True)

    async def wait(self) -> None:
        """Until less waits to be written, or the disk is full, or has failed."""
        room = asyncio.get_running_loop().create_future()
        self._waiting.append(room)
        await room

    def let_go_on(self) -> None:
        """Whoever waits."""
        while self._waiting:
            resolve(self._waiting.popleft())

    def refuse(self, refusal: KafkaError) -> None:
        """Whoever waits."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(refusal)

    def message(self) -> str:
        """What is the matter, and what to do."""
        try:
            free = f"{self._reserve.free_bytes()} bytes free"
        except OSError as error:
            free = f"free space unknown: {error}"
        return (
            f"log directory {self._directory} is full ({free}, "
            f"{self._reserve.regained_bytes} needed): batches are refused and reads go on until "
            "there is room; free space, or delete records or topics"
        )


def resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
