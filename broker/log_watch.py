"""What a broker does when its log's disk fails, fills up, is damaged, or has lost something."""

import asyncio
from collections.abc import Callable

from broker.log.damage import DamagedBatch
from broker.log.store import LogStore
from broker.log.stored_log import StoredLog
from broker.metadata_follower import MetadataFollower
from broker.replication.manager import ReplicaManager
from metadata_log.image import Image
from metadata_log.types import BrokerId


class LogWatch:
    """Of one incarnation of a broker. ``on_failed`` is for ``LogStore.open``."""

    def __init__(
        self,
        broker_id: BrokerId,
        incarnation_id: bytes,
        replicas: ReplicaManager,
        follower: MetadataFollower,
        look_for_trouble: Callable[[], None],
    ) -> None:
        """``look_for_trouble``: what the controller should know may be different now."""
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._replicas = replicas
        self._follower = follower
        self._look_for_trouble = look_for_trouble
        self._adopting: asyncio.Task[None] | None = None
        self.has_failed = asyncio.Event()
        """Nothing can be written any more."""

    def on_failed(self, error: Exception) -> None:
        self._replicas.on_log_failed(error)
        self.has_failed.set()

    def watch(self, store: LogStore) -> None:
        """From now on, and until it is closed."""
        store.fullness.on_room = lambda has_room: self._on_room(store, has_room)
        store.on_damaged = self._on_damaged

    async def adopt(self, image: Image, store: LogStore) -> None:
        """Have the replicas that ``image`` gives to this broker, when it comes up."""
        lost = store.log_may_be_lost
        await self._replicas.adopt_image(image, log_may_be_lost=lost)
        if lost:
            self._follower.subscribe(lambda image, _: self._note_admission(image, store))

    async def close(self) -> None:
        if self._adopting is not None:
            self._adopting.cancel()
            await asyncio.gather(self._adopting, return_exceptions=True)

    def _on_room(self, store: LogStore, has_room: bool) -> None:
        """A full disk is waited out. With room again, replicas that found none are created."""
        self._replicas.on_room(has_room)
        self._look_for_trouble()
        if has_room:
            lost = store.log_may_be_lost
            adopting = self._replicas.adopt_image(self._follower.image, log_may_be_lost=lost)
            self._adopting = asyncio.create_task(adopting, name="adopt-with-room")

    def _on_damaged(self, damaged_log: StoredLog, damaged: DamagedBatch) -> None:
        if self._replicas.on_damaged(damaged_log, damaged):
            self._look_for_trouble()

    def _note_admission(self, image: Image, store: LogStore) -> None:
        """Once a controller has taken this incarnation out of every ISR, its loss is dealt with."""
        mine = image.brokers.get(self._broker_id)
        if mine is None or not mine.admitted:
            return
        if mine.registration.incarnation_id == self._incarnation_id:
            store.loss_handled()
