"""Reacts when the disk of the log fills up, is damaged, or has lost something."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.replica_reporter import ReplicaTroubles
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.broker.log.writing.log_writer import LogManagerListener
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.hosting.hosted_record import HostedRecord
from quorate.broker.replication.hosting.lost_replicas import Loss, lost_replicas
from quorate.broker.replication.hosting.stale_folder import why_stale
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import TopicId, TopicIdPartition
from quorate.metadata_log.image import Changes, Image

log = logging.getLogger(__name__)

STALE: Final = (
    "log directory %s is an old copy, or has lost its last writes: %s. This broker leaves every "
    "ISR and fetches what it lacks from the leaders"
)
LOST: Final = (
    "%s-%d is lost on this broker: %s. It leaves the ISR and is fetched from its leader; where no "
    "other replica is left, `quorate elect-leaders` accepts the loss"
)


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
        self.lost: Mapping[TopicIdPartition, Loss] = {}
        """The lost replicas of this broker until a controller has removed them from their ISRs. It
        is empty if the whole log may be lost."""
        self._hosted = HostedRecord(identity.broker_id, self._store, follower)
        self._recording: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None

    async def adopt(self, image: Image) -> None:
        """Host the replicas that ``image`` gives to this broker, when it comes up.

        What is lost is noted durably first: only then a missing log is created (rule 8).
        """
        await self._examine(image)
        if self._store.log_may_be_lost or self.lost:
            self._follower.subscribe(self._note_admission, "brokers")
        await self._host(image)
        self._recording = asyncio.create_task(self._hosted.run(), name="hosted-record")

    async def _examine(self, image: Image) -> None:
        """Find out whether the folder is an old one, or which replicas in it are lost."""
        store, own = self._store, self._identity.broker_id
        known = image.histories.get(own)
        stale = why_stale(known, store.history.incarnations, store.mark, image.restored_offset)
        if stale is not None and not store.log_may_be_lost:
            log.error(STALE, store.directory, stale)
            await store.declare_loss()
        if store.log_may_be_lost:
            return
        declared = frozenset(
            TopicIdPartition(TopicId(topic_id), number) for topic_id, number in store.history.lost
        )
        self.lost = lost_replicas(
            image,
            own,
            store.logs,
            hosted_through=store.history.hosted_through,
            declared=declared,
        )
        for tip, loss in self.lost.items():
            log.error(LOST, image.topic_names.get(tip.topic_id), tip.partition, loss.value)
        if declared != self.lost.keys():
            await store.declare_lost(self.lost)
        short = [each for each in store.logs.values() if each.lacks_committed]
        store.checkpoint_high_watermarks(
            {each.tip: each.checkpointed_high_watermark for each in short}
        )

    async def _host(self, image: Image) -> None:
        await self._replicas.adopt_image(
            image, log_may_be_lost=self._store.log_may_be_lost, lost=self.lost.keys()
        )

    def current(self) -> ReplicaTroubles:
        """Return which of the replicas here no ISR should rely on."""
        return ReplicaTroubles(self._store.is_full, self._replicas.damaged())

    async def close(self) -> None:
        """Adopt nothing more."""
        for task in (self._recording, self._adopting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def on_room(self, has_room: bool) -> None:
        """Wait out a full disk. With room again, create the replicas that found none."""
        self.changed.set()
        if has_room:
            adopting = self._host(self._follower.image)
            self._adopting = asyncio.create_task(adopting, name="adopt-with-room")

    def on_damaged(self, damaged_log: StoredLog, damaged: DamagedBatch | BrokenInvariant) -> None:
        """Have the replica noted as damaged, and reported if it was whole so far."""
        if self._replicas.note_damage(damaged_log, damaged):
            self.changed.set()

    def _note_admission(self, image: Image, _changes: Changes) -> None:
        """Settle the loss once a controller has taken what is lost out of the ISRs."""
        mine = image.brokers.get(self._identity.broker_id)
        if mine is None or not mine.admitted:
            return
        if mine.registration.incarnation_id == self._identity.incarnation_id:
            self.lost = {}
            self._store.loss_handled()
