"""The health of every topic, computed again only for topics that have changed.

A change of the metadata marks topics. They are looked at when somebody asks, in slices, so that the
death of a broker with 100,000 partitions does not hold the event loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from quorate.broker.console.health.topic_health import (
    BrokerShare,
    TopicHealth,
    broker_shares,
    topic_health,
)
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.quota.work_turns import WorkTurns
from quorate.common.types import BrokerId
from quorate.metadata_log.image import Changes, Image


class HealthIndex:
    """Holds the health of the topics of the newest image."""

    def __init__(
        self, images: MetadataFollower, turns: WorkTurns, min_insync_replicas: Callable[[str], int]
    ) -> None:
        self._images = images
        self._turns = turns
        self._min_insync_replicas = min_insync_replicas
        self._topics: dict[str, TopicHealth] = {}
        self._shares: dict[str, dict[BrokerId, BrokerShare]] = {}
        self._changed: set[str] = set(images.image.topics)
        self._refreshing = asyncio.Lock()
        images.subscribe(self._on_image)

    def close(self) -> None:
        self._images.unsubscribe(self._on_image)

    def _on_image(self, image: Image, changes: Changes) -> None:
        self._changed.update(changes.topics)
        self._changed.update(changes.deletions)
        self._changed.update(changes.reassignments)
        self._changed.update(name for kind, name in changes.configs if kind == "topic")
        if any(kind != "topic" for kind, _ in changes.configs):
            self._changed.update(image.topics)

    async def topics(self) -> Mapping[str, TopicHealth]:
        """Return the health of every topic, by name."""
        await self._refresh()
        return self._topics

    async def shares(self, names: Iterable[str] | None = None) -> Mapping[BrokerId, BrokerShare]:
        """Return the partitions of each broker that has any, in these topics or in all."""
        await self._refresh()
        total: dict[BrokerId, BrokerShare] = {}
        wanted = tuple(self._shares if names is None else names)
        async for name in self._turns.through(wanted):
            of_topic = self._shares.get(name, {})
            for broker, share in of_topic.items():
                sums = total.setdefault(broker, BrokerShare())
                sums.leaders += share.leaders
                sums.replicas += share.replicas
                sums.out_of_sync += share.out_of_sync
        return total

    async def _refresh(self) -> None:
        async with self._refreshing:
            changed, self._changed = self._changed, set()
            async for name in self._turns.through(tuple(changed)):
                self._look_at(name)

    def _look_at(self, name: str) -> None:
        image = self._images.image
        topic = image.topics.get(name)
        if topic is None:
            self._topics.pop(name, None)
            self._shares.pop(name, None)
            return
        self._topics[name] = topic_health(image, topic, self._min_insync_replicas(name))
        shares: dict[BrokerId, BrokerShare] = {}
        broker_shares(topic, shares)
        self._shares[name] = shares
