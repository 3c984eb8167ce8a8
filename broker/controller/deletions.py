"""Carries pending deletions out: stop the replicas, then remove the topic (C5).

A deletion is pending in the metadata log from the moment it is accepted, so a new controller takes
it up where the last one left it. Brokers that are away are not waited for: they find out at their
start that the partitions are no longer theirs.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from broker.controller.event_queue import EventQueue, LeftOffice, Priority
from broker.controller.managers import topics as topic_manager
from broker.controller.managers.office import Office
from broker.controller.publisher import Publisher
from broker.controller.writer import Writer
from metadata_log.image import Image, Topic
from metadata_log.types import TopicId
from quorum.errors import QuorumError

log = logging.getLogger(__name__)

STOP_TIMEOUT_MS: Final = 5_000
"""A live broker that takes longer to stop its replicas goes on doing so after the topic is gone."""

RETRY_INTERVAL_MS: Final = 200


class Deletions:
    """The deletions of one controller's tenure."""

    def __init__(
        self, office: Office, writer: Writer, publisher: Publisher, events: EventQueue
    ) -> None:
        self._office = office
        self._writer = writer
        self._publisher = publisher
        self._events = events
        self._under_way: dict[TopicId, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in set(self._under_way.values()):
            task.cancel()

    def take_up(self, image: Image, names: Iterable[str]) -> None:
        """Begin those pending deletions among ``names`` that are not under way."""
        found = [image.topics[name] for name in names if name in image.deletions]
        fresh = [topic for topic in found if topic.topic_id not in self._under_way]
        if not fresh:
            return
        task = asyncio.create_task(self._carry_out(fresh), name="topic-deletion")
        self._under_way.update((topic.topic_id, task) for topic in fresh)

    async def finished(self, topic_ids: Iterable[TopicId], timeout_ms: float) -> None:
        """Wait until the deletions of ``topic_ids`` are through, or the time is up."""
        tasks = {self._under_way[one] for one in topic_ids if one in self._under_way}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)

    async def _carry_out(self, topics: list[Topic]) -> None:
        topic_ids = [topic.topic_id for topic in topics]
        try:
            await self._publisher.stop_topics(topics, STOP_TIMEOUT_MS)
            while not await self._removed(topic_ids):
                await asyncio.sleep(RETRY_INTERVAL_MS / 1000)
        except LeftOffice:
            log.info("%d deletions are left to the next controller", len(topics))
        except Exception:
            log.exception("%d deletions failed; the next controller takes them up", len(topics))
        finally:
            for topic_id in topic_ids:
                self._under_way.pop(topic_id, None)

    async def _removed(self, topic_ids: list[TopicId]) -> bool:
        async def remove() -> None:
            image = self._writer.image
            await self._writer.commit(topic_manager.removals(image, self._office, topic_ids))

        try:
            await self._events.run(Priority.ADMIN, remove)
        except QuorumError as error:
            log.warning("%d deletions wait for the quorum: %s", len(topic_ids), error)
            return False
        return True
