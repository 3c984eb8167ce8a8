"""Reacts when the disk of the log fills up, is damaged, or has lost something."""

import asyncio

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.replica_reporter import ReplicaTroubles
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.broker.log.writing.log_writer import LogManagerListener
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.manager import ReplicaManager
from quorate.metadata_log.image import Changes, Image


class LogDirectoryMonitor(LogManagerListener):
    """Watches the log store of one incarnation of a broker, on behalf of its replicas.

    It listens to the store after the replica manager: the replicas know first.
    """

    def __init__(
        self,
        identity: BrokerIdentity,
        replicas: ReplicaManager,
        follower: MetadataFollower,
    ) -> None:
        self._identity = identity
        self._replicas = replicas
        self._store = replicas.table.store
        self._follower = follower
        self.changed = asyncio.Event()
        """Set when the controller should hear of other troubles than before, or of their end."""
        self._adopting: asyncio.Task[None] | None = None

    async def adopt(self, image: Image) -> None:
        """Host the replicas that ``image`` gives to this broker, when it comes up."""
        lost = self._store.log_may_be_lost
        await self._replicas.adopt_image(image, log_may_be_lost=lost)
        if lost:
            self._follower.subscribe(self._note_admission, "brokers")

    def current(self) -> ReplicaTroubles:
        """Return which of the replicas here no ISR should rely on."""
        return ReplicaTroubles(self._store.is_full, self._replicas.damaged())

    async def close(self) -> None:
        """Adopt nothing more."""
        if self._adopting is not None:
            self._adopting.cancel()
            await asyncio.gather(self._adopting, return_exceptions=True)

    def on_room(self, has_room: bool) -> None:
        """Wait out a full disk. With room again, create the replicas that found none."""
        self.changed.set()
        if has_room:
            lost = self._store.log_may_be_lost
            adopting = self._replicas.adopt_image(self._follower.image, log_may_be_lost=lost)
            self._adopting = asyncio.create_task(adopting, name="adopt-with-room")

    def on_damaged(self, damaged_log: StoredLog, damaged: DamagedBatch) -> None:
        """Have the replica noted as damaged, and reported if it was whole so far."""
        if self._replicas.note_damage(damaged_log, damaged):
            self.changed.set()

    def _note_admission(self, image: Image, _changes: Changes) -> None:
        """Settle the loss once a controller has taken this incarnation out of every ISR."""
        mine = image.brokers.get(self._identity.broker_id)
        if mine is None or not mine.admitted:
            return
        if mine.registration.incarnation_id == self._identity.incarnation_id:
            self._store.loss_handled()
