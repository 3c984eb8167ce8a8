"""Tells the brokers what has changed between two images (C3, C19, E6, B1, B3).

Everything a controller says to brokers follows from applied transactions, whoever wrote them: its
own decisions and the ISR changes of leaders take the same way. Transactions that are applied
together are told together.

Leadership is told to a broker's incarnation only once its arrival has been dealt with (see
``managers.brokers``): told earlier, a restarted leader would go on in its old leader epoch. What it
is told first is complete, an INIT: a broker that lost its session and registers again, without a
restart, may hold replicas of topics that were deleted meanwhile (C7).
"""

import asyncio
import logging
from collections.abc import Collection, Iterator

from broker.controller.control_channel import BrokerChannel
from broker.controller.control_requests import StoppedReplica, leaving
from broker.controller.lane import Correspondence
from metadata_log.draft import Changes
from metadata_log.image import Image, Topic
from metadata_log.types import BrokerId, TopicId, TopicIdPartition

log = logging.getLogger(__name__)


class Publisher:
    """The channels to all live brokers, and the image they have been told."""

    def __init__(self, shared: Correspondence) -> None:
        self._shared = shared
        self._channels: dict[BrokerId, BrokerChannel] = {}
        self._told = Image()
        self._changed_topics: set[str] = set()
        self._due: asyncio.Handle | None = None
        self._closed = False
        self._introduction: asyncio.Task[None] | None = None

    @property
    def channels(self) -> Collection[BrokerChannel]:
        return self._channels.values()

    def start(self, image: Image) -> None:
        """As a new controller: INIT and full metadata to all (C9)."""
        self._told = image
        self._open_channels(image)
        self._introduction = asyncio.create_task(self._introduce(), name="introduction")

    def close(self) -> None:
        """Say no more, whoever of the tenure still asks for it (E4)."""
        self._closed = True
        if self._introduction is not None:
            self._introduction.cancel()
        if self._due is not None:
            self._due.cancel()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    async def _introduce(self) -> None:
        """Say when the brokers know this controller, and what it was told to begin with."""
        clock = asyncio.get_running_loop()
        begun_s = clock.time()
        channels = [one for one in self._channels.values() if one.told_leadership]
        await asyncio.gather(*(channel.drained() for channel in channels))
        took_ms = (clock.time() - begun_s) * 1000
        log.info("INIT and all metadata told to %d brokers in %.0f ms", len(channels), took_ms)

    def on_image(self, changes: Changes) -> None:
        """Something was applied: tell of it as soon as all that came along with it is applied."""
        self._changed_topics |= changes.topics
        if changes.topics or changes.brokers:
            self._due = self._due or asyncio.get_running_loop().call_soon(self.publish)

    def publish(self) -> None:
        """Tell the brokers what differs between the newest image and what they were told."""
        if self._closed:
            return
        if self._due is not None:
            self._due.cancel()
            self._due = None
        image, before = self._shared.image(), self._told
        changed, self._changed_topics = self._changed_topics, set()
        self._open_channels(image)
        self._tell_leadership(before, image, changed)
        self._stop_removed(before, image, changed)
        if changed or image.brokers is not before.brokers:
            topics = frozenset(changed)
            self._shared.requests.forget(name for name in topics if name not in image.topics)
            for channel in self._channels.values():
                channel.metadata.tell(topics)
        self._told = image

    async def drained(self, timeout_ms: float) -> None:
        """Wait, but not long, until the brokers have taken in what was published."""
        waits = [asyncio.create_task(channel.drained()) for channel in self._channels.values()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_ms / 1000)
            for wait in late:
                wait.cancel()

    async def stop_leaving(self, image: Image, names: Collection[str], timeout_ms: float) -> None:
        """Have all replicas of what is being deleted or removed of topics ``names`` stopped and
        deleted; wait, but not for ever (C5, C14).
        """
        waits = []
        doomed = leaving(image, names)
        for broker_id, channel in self._channels.items():
            stops = doomed.get(broker_id)
            if stops:
                channel.stops.tell(stops)
                waits.append(asyncio.create_task(channel.stops.drained()))
        if waits:
            _, late = await asyncio.wait(waits, timeout=timeout_ms / 1000)
            for wait in late:
                wait.cancel()

    def _open_channels(self, image: Image) -> None:
        """One channel per incarnation: a bounced broker gets a new one (B3)."""
        for broker_id, channel in list(self._channels.items()):
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                self._channels.pop(broker_id).close()
        for broker_id, broker in image.brokers.items():
            found = self._channels.get(broker_id)
            if found is None:
                found = self._channels[broker_id] = BrokerChannel(self._shared, broker)
                found.start()
                found.metadata.tell_all()
            if not found.told_leadership and broker.admitted:
                found.told_leadership = True
                found.leadership.tell_all()

    def _stop_removed(self, before: Image, image: Image, changed: Collection[str]) -> None:
        """Replicas that an AR no longer has are stopped and deleted: that they left is committed
        (C11, rule 7). An older leadership cannot bring them back: the stop has the newer epoch.
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
        for broker_id, told in stops.items():
            channel = self._channels.get(broker_id)
            if channel is not None:
                channel.stops.tell(told)

    def _tell_leadership(self, before: Image, image: Image, changed: set[str]) -> None:
        """New leader epochs go to all replicas of their partition, in one request per broker."""
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
        for broker_id, told in tips.items():
            channel = self._channels.get(broker_id)
            if channel is not None and channel.told_leadership:
                channel.leadership.tell(told)


def _with_new_epoch(before: Topic | None, topic: Topic) -> Iterator[int]:
    """Partitions whose leadership was decided anew: a leader's own ISR change is no such thing."""
    if before is None or before.topic_id != topic.topic_id:
        yield from range(len(topic.partitions))
        return
    known = before.partitions
    for number, partition in enumerate(topic.partitions):
        if number >= len(known) or (
            partition is not known[number] and partition.leader_epoch != known[number].leader_epoch
        ):
            yield number
