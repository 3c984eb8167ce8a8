"""Sends the brokers what has changed between two images (C3, C19, E6, B1, B3).

Every control request follows from applied transactions, whoever wrote them: the controller's own
decisions and the ISR changes of leaders are published in the same way. Transactions that are
applied together are published together.

From inter_broker_protocol 3 on the metadata itself reaches brokers by the metadata log alone. They
are asked how far they have followed it where somebody waits for them (read-after-write).

LeaderAndIsr goes to a broker's incarnation only once its arrival has been processed (see
``managers.broker_manager``). Otherwise a restarted leader would continue in its old leader epoch.
The first LeaderAndIsr is complete, an INIT: a broker that lost its session and registers again,
without a restart, may hold replicas of topics that were deleted meanwhile (C7).
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from typing import Final

from quorate.broker.controller.channels.broker_channel import BrokerChannel
from quorate.broker.controller.channels.control_request_queue import ChannelContext
from quorate.broker.controller.channels.control_requests import StoppedReplica, leaving
from quorate.common.types import BrokerId, TopicId, TopicIdPartition
from quorate.metadata_log.features import METADATA_FROM_LOG
from quorate.metadata_log.image import Changes, Image
from quorate.metadata_log.partitions import Topic

log = logging.getLogger(__name__)

PUBLISH_TIMEOUT_MS: Final = 1_000
"""A change is answered once the brokers have received it, or after this time without the answer of
some of them."""


class ControllerChannelManager:
    """The channels to all live brokers, and the image that was published to them."""

    def __init__(self, shared: ChannelContext) -> None:
        self._shared = shared
        self._channels: dict[BrokerId, BrokerChannel] = {}
        self._published = Image()
        self._changed_topics: set[str] = set()
        self._is_asked_for = True
        """Whether the brokers were asked to have what is published (inter_broker_protocol 3)."""
        self._due: asyncio.Handle | None = None
        self._closed = False
        self._introduction: asyncio.Task[None] | None = None

    @property
    def channels(self) -> Collection[BrokerChannel]:
        return self._channels.values()

    def start(self, image: Image) -> None:
        """Begin as a new controller: send INIT and all metadata to every broker (C9)."""
        self._published = image
        self._open_channels(image)
        self._introduction = asyncio.create_task(self._log_first_publish(), name="introduction")

    def close(self) -> None:
        """Stop publishing, even if a part of the tenure still asks for it (E4)."""
        self._closed = True
        if self._introduction is not None:
            self._introduction.cancel()
        if self._due is not None:
            self._due.cancel()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    async def _log_first_publish(self) -> None:
        """Log when the brokers know this controller and have received the first requests."""
        clock = asyncio.get_running_loop()
        begun_s = clock.time()
        channels = [one for one in self._channels.values() if one.has_published_leadership]
        await asyncio.gather(*(channel.drained() for channel in channels))
        took_ms = (clock.time() - begun_s) * 1000
        log.info("INIT and all metadata told to %d brokers in %.0f ms", len(channels), took_ms)

    def on_image(self, changes: Changes) -> None:
        """Publish soon, once everything that was applied together is applied."""
        self._changed_topics |= changes.topics
        if changes.topics or changes.brokers or changes.features:
            self._due = self._due or asyncio.get_running_loop().call_soon(self.publish)

    def publish(self) -> None:
        """Send the brokers the differences between the newest image and the published one."""
        if self._closed:
            return
        if self._due is not None:
            self._due.cancel()
            self._due = None
        image, before = self._shared.images.image, self._published
        changed, self._changed_topics = self._changed_topics, set()
        self._open_channels(image)
        self._tell_leadership(before, image, changed)
        self._stop_removed(before, image, changed)
        if changed or image.brokers is not before.brokers:
            self._tell_metadata(image, changed)
        if _is_from_log(image) != _is_from_log(before):
            for channel in self._channels.values():
                channel.metadata.enqueue_all()
        self._published = image

    async def publish_and_wait(self, timeout_ms: float) -> None:
        """Publish, and wait until the brokers have answered, at most ``timeout_ms``."""
        self.publish()
        self._ask_for_metadata()
        timeout_ms = min(PUBLISH_TIMEOUT_MS, max(0, timeout_ms))
        waits = [asyncio.create_task(channel.drained()) for channel in self._channels.values()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_ms / 1000)
            for wait in late:
                wait.cancel()

    async def stop_leaving(self, image: Image, names: Collection[str], timeout_ms: float) -> None:
        """Have all replicas of deleted topics and removed partitions in ``names`` stopped and
        deleted.

        Wait for the brokers, at most ``timeout_ms`` (C5, C14).
        """
        waits = []
        doomed = leaving(image, names)
        for broker_id, channel in self._channels.items():
            stops = doomed.get(broker_id)
            if stops:
                channel.stops.enqueue(stops)
                waits.append(asyncio.create_task(channel.stops.drained()))
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_ms / 1000)
            for wait in late:
                wait.cancel()

    def _tell_metadata(self, image: Image, changed: Collection[str]) -> None:
        """Send the changed topics and the brokers, unless brokers find them in the metadata log."""
        topics = frozenset(changed)
        self._shared.requests.forget(name for name in topics if name not in image.topics)
        if _is_from_log(image):
            self._is_asked_for = False
            return
        for channel in self._channels.values():
            channel.metadata.enqueue(topics)

    def _ask_for_metadata(self) -> None:
        """Ask the brokers to have followed the metadata log up to here, for somebody who waits."""
        if not self._is_asked_for:
            self._is_asked_for = True
            for channel in self._channels.values():
                channel.metadata.enqueue_all()

    def _open_channels(self, image: Image) -> None:
        """Open one channel per incarnation. A restarted broker gets a new one (B3)."""
        for broker_id, channel in list(self._channels.items()):
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                self._channels.pop(broker_id).close()
        for broker_id, broker in image.brokers.items():
            found = self._channels.get(broker_id)
            if found is None:
                found = self._channels[broker_id] = BrokerChannel(self._shared, broker)
                found.start()
                found.metadata.enqueue_all()
            if not found.has_published_leadership and broker.admitted:
                found.begin_leadership()

    def _stop_removed(self, before: Image, image: Image, changed: Collection[str]) -> None:
        """Stop and delete replicas that are no longer in the AR, because their removal is committed
        (C11, rule 7).

        An older LeaderAndIsr cannot bring them back, because the StopReplica has the newer epoch.
        """
        stops: dict[BrokerId, list[StoppedReplica]] = {}
        for name in changed:
            topic, known = image.topics.get(name), before.topics.get(name)
            if topic is None or known is None or known.topic_id != topic.topic_id:
                continue
            pairs = zip(known.partitions, topic.partitions, strict=False)
            for number, (old, new) in enumerate(pairs):
                if old.replicas is new.replicas:
                    continue
                tip = TopicIdPartition(topic.topic_id, number)
                for broker_id in old.replicas:
                    if broker_id not in new.replicas:
                        stop = StoppedReplica(name, tip, leader_epoch=new.leader_epoch)
                        stops.setdefault(broker_id, []).append(stop)
        for broker_id, replicas in stops.items():
            channel = self._channels.get(broker_id)
            if channel is not None:
                channel.stops.enqueue(replicas)

    def _tell_leadership(self, before: Image, image: Image, changed: set[str]) -> None:
        """Send new leader epochs to all replicas of their partition, in one request per broker."""
        tips: dict[BrokerId, list[TopicIdPartition]] = {}
        for name in changed:
            topic = image.topics.get(name)
            if topic is None:
                continue
            for number in _with_new_epoch(before.topics.get(name), topic):
                for replica in topic.partitions[number].replicas:
                    tips.setdefault(replica, []).append(
                        TopicIdPartition(TopicId(topic.topic_id), number)
                    )
        for broker_id, partitions in tips.items():
            channel = self._channels.get(broker_id)
            if channel is not None and channel.has_published_leadership:
                channel.leadership.enqueue(partitions)


def _with_new_epoch(before: Topic | None, topic: Topic) -> Iterator[int]:
    """Yield partitions with a new leader epoch. A leader's own ISR change is not published, because
    the epoch stays."""
    if before is None or before.topic_id != topic.topic_id:
        yield from range(len(topic.partitions))
        return
    known = before.partitions
    for number, partition in enumerate(topic.partitions):
        if number >= len(known) or (
            partition is not known[number] and partition.leader_epoch != known[number].leader_epoch
        ):
            yield number


def _is_from_log(image: Image) -> bool:
    return image.inter_broker_protocol >= METADATA_FROM_LOG
