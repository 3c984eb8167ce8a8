"""Admin work that is pending in the metadata log from when it is accepted until it is done.

Whatever happens to a controller, the next one finds it there and carries it out (C9). It is known
by its pending record's version: the same topic may have the same work pending once more.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Protocol

from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers.office import Office
from broker.controller.publisher import Publisher
from broker.controller.writer import Writer
from metadata_log.image import Image
from metadata_log.records import Operation
from metadata_log.types import MetadataOffset
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 200
"""Until the next attempt while the quorum is away."""

STOP_TIMEOUT_MS: Final = 5_000
"""A live broker that takes longer to stop its replicas goes on doing so after they are gone."""


class Pending(Protocol):
    """A pending record."""

    @property
    def version(self) -> MetadataOffset: ...


class PendingWork(ABC):
    """One kind of it, topic by topic, during one controller's tenure."""

    kind: ClassVar[str]
    """What people call a piece of it."""

    def __init__(
        self, office: Office, writer: Writer, publisher: Publisher, events: EventQueue
    ) -> None:
        self.office = office
        self.publisher = publisher
        self._writer = writer
        self._events = events
        self._under_way: dict[MetadataOffset, asyncio.Task[None]] = {}

    @staticmethod
    @abstractmethod
    def pending(image: Image) -> Mapping[str, Pending]:
        """What is pending, by topic."""

    @abstractmethod
    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        """What ends it for those of ``names`` for which it is pending, each in one transaction."""

    async def prepare(self, image: Image, names: Collection[str]) -> None:  # noqa: B027 - optional
        """What has to be done first, outside the metadata log; again after a failover."""

    def close(self) -> None:
        for task in set(self._under_way.values()):
            task.cancel()

    def take_up(self, names: Iterable[str]) -> None:
        """Begin what is pending for ``names`` and not under way."""
        image = self._writer.image
        pending = self.pending(image)
        fresh = {
            name: pending[name].version
            for name in names
            if name in pending and pending[name].version not in self._under_way
        }
        if fresh:
            task = asyncio.create_task(self._carry_out(image, fresh), name=f"topic-{self.kind}")
            self._under_way.update(dict.fromkeys(fresh.values(), task))

    async def finished(self, names: Iterable[str], timeout_ms: float) -> None:
        """Wait until what is pending for ``names`` is done, or the time is up."""
        pending = self.pending(self._writer.image)
        versions = [pending[name].version for name in names if name in pending]
        tasks = {self._under_way[one] for one in versions if one in self._under_way}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)

    async def _carry_out(self, image: Image, fresh: Mapping[str, MetadataOffset]) -> None:
        try:
            await self.prepare(image, fresh.keys())
            while not await self._completed(fresh):
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
        except LeftOffice:
            log.info("%d %ss are left to the next controller", len(fresh), self.kind)
        except Exception:
            log.exception("%d %ss failed; the next controller takes them up", len(fresh), self.kind)
        finally:
            for version in fresh.values():
                self._under_way.pop(version, None)

    async def _completed(self, fresh: Mapping[str, MetadataOffset]) -> bool:
        async def complete() -> None:
            image = self._writer.image
            pending = self.pending(image)
            same = [
                name
                for name, version in fresh.items()
                if name in pending and pending[name].version == version
            ]
            results = await self._writer.commit(self.completions(image, same))
            refused = [result.detail for result in results if not result.ok]
            if refused:
                log.error("%d %ss stay pending: %s", len(refused), self.kind, refused[0])

        try:
            await self._events.run(Priority.ADMIN, complete)
        except QuorumError as error:
            log.warning("%d %ss wait for the quorum: %s", len(fresh), self.kind, error)
            return False
        return True
