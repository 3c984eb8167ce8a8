"""Admin work that is pending in the metadata log from its acceptance until it is done.

Whatever happens to a controller, the next one finds the work there and carries it out (C9). A piece
of work is identified by its pending record's version, because the same topic may have the same work
pending again later.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final, Protocol

from quorate.broker.controller.channels.controller_channel_manager import ControllerChannelManager
from quorate.broker.controller.managers import partition_count_manager, topic_manager
from quorate.broker.controller.managers.decisions import ControllerTenure
from quorate.broker.controller.tenure import EventPriority, EventQueue, TenureEnded, Writer
from quorate.common.types import MetadataOffset
from quorate.metadata_log.image import Changes, Image
from quorate.metadata_log.partitions import PartitionAddition, PartitionRemoval, TopicDeletion
from quorate.metadata_log.records import Operation
from quorate.quorum.quorum_errors import QuorumError

log = logging.getLogger(__name__)

RETRY_INTERVAL_MS: Final = 200
"""The pause until the next attempt while the quorum is unavailable."""

STOP_TIMEOUT_MS: Final = 5_000
"""The time to wait for live brokers to stop replicas. A slower broker continues after the
partitions are gone."""


class PendingRecord(Protocol):
    """A pending record of the image."""

    @property
    def version(self) -> MetadataOffset: ...


class PendingWork(ABC):
    """One kind of pending work, by topic, during one controller's tenure."""

    kind: ClassVar[str]
    """The name of this kind of work in log messages."""

    def __init__(
        self,
        tenure: ControllerTenure,
        writer: Writer,
        channel_manager: ControllerChannelManager,
        events: EventQueue,
    ) -> None:
        self.tenure = tenure
        self.channel_manager = channel_manager
        self._writer = writer
        self._events = events
        self._under_way: dict[MetadataOffset, asyncio.Task[None]] = {}

    @staticmethod
    @abstractmethod
    def pending(image: Image) -> Mapping[str, PendingRecord]:
        """Return the pending records, by topic."""

    @abstractmethod
    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        """Return the operations that end the work for each of ``names`` that has it pending."""

    async def prepare(self, image: Image, names: Collection[str]) -> None:  # noqa: B027 - optional
        """Do the work outside the metadata log that must come first. It is repeated after a
        failover."""

    def close(self) -> None:
        for task in set(self._under_way.values()):
            task.cancel()

    def take_up(self, names: Iterable[str]) -> None:
        """Begin the pending work for ``names`` that is not in progress."""
        image = self._writer.image
        pending = self.pending(image)
        fresh = {
            name: pending[name].version
            for name in names
            if name in pending and pending[name].version not in self._under_way
        }
        if fresh:
            task = asyncio.create_task(self._work_off(image, fresh), name=f"topic-{self.kind}")
            self._under_way.update(dict.fromkeys(fresh.values(), task))

    async def finished(self, names: Iterable[str], timeout_ms: float) -> None:
        """Wait until the pending work for ``names`` is done, or the time is up."""
        pending = self.pending(self._writer.image)
        versions = [pending[name].version for name in names if name in pending]
        tasks = {self._under_way[one] for one in versions if one in self._under_way}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)

    async def _work_off(self, image: Image, fresh: Mapping[str, MetadataOffset]) -> None:
        try:
            await self.prepare(image, fresh.keys())
            while not await self._completed(fresh):
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
        except TenureEnded:
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
            await self._events.run(EventPriority.ADMIN, complete)
        except QuorumError as error:
            log.warning("%d %ss wait for the quorum: %s", len(fresh), self.kind, error)
            return False
        return True


class TopicDeletions(PendingWork):
    """Deletions of topics: the replicas are stopped, then the topic is removed (C5).

    Brokers that are down are not waited for. At their start they find that the partitions are no
    longer theirs.
    """

    kind = "deletion"

    @staticmethod
    def pending(image: Image) -> Mapping[str, TopicDeletion]:
        return image.deletions

    async def prepare(self, image: Image, names: Collection[str]) -> None:
        await self.channel_manager.stop_leaving(image, names, STOP_TIMEOUT_MS)

    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        return topic_manager.removals(image, self.tenure, names)


class PartitionAdditions(PendingWork):
    """Additions of partitions: leaders are chosen when an addition ends (C14).

    That needs only the quorum.
    """

    kind = "addition"

    @staticmethod
    def pending(image: Image) -> Mapping[str, PartitionAddition]:
        return image.additions

    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        return partition_count_manager.additions(image, self.tenure, names)


class PartitionRemovals(PendingWork):
    """Removals of partitions: the replicas are stopped first (C14).

    Brokers that are down find out at their start (rule 7).
    """

    kind = "removal"

    @staticmethod
    def pending(image: Image) -> Mapping[str, PartitionRemoval]:
        return image.removals

    async def prepare(self, image: Image, names: Collection[str]) -> None:
        await self.channel_manager.stop_leaving(image, names, STOP_TIMEOUT_MS)

    def completions(self, image: Image, names: Iterable[str]) -> Sequence[Operation]:
        return partition_count_manager.removals(image, self.tenure, names)


class AllPendingWork:
    """All kinds of pending work of one controller's tenure."""

    def __init__(
        self,
        tenure: ControllerTenure,
        writer: Writer,
        channel_manager: ControllerChannelManager,
        events: EventQueue,
    ) -> None:
        self.deletions = TopicDeletions(tenure, writer, channel_manager, events)
        self.additions = PartitionAdditions(tenure, writer, channel_manager, events)
        self.removals = PartitionRemovals(tenure, writer, channel_manager, events)
        self._writer = writer

    def take_up_all(self) -> None:
        """Continue where the last controller stopped (C9)."""
        image = self._writer.image
        self.additions.take_up(image.additions)
        self.removals.take_up(image.removals)
        self.deletions.take_up(image.deletions)

    def on_image(self, changes: Changes) -> None:
        """Begin the work that has become pending."""
        self.additions.take_up(changes.additions)
        self.removals.take_up(changes.removals)
        self.deletions.take_up(changes.deletions)

    def close(self) -> None:
        self.additions.close()
        self.removals.close()
        self.deletions.close()
