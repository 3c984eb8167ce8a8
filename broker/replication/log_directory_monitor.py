"""Reacts when the disk of the log fills up, is damaged, or has lost something."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from quorate.broker.common.broker_identity import BrokerIdentity
from quorate.broker.control.replica_reporter import ReplicaTroubles
from quorate.broker.log.directories.known_folders import Absence
from quorate.broker.log.log_manager import LogManager
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.broker.log.writing.log_writer import LogManagerListener
from quorate.broker.metadata.metadata_follower import MetadataFollower
from quorate.broker.replication.hosting.hosted_record import HostedRecord
from quorate.broker.replication.hosting.lost_replicas import (
    Loss,
    lost_replicas,
    withheld_replicas,
)
from quorate.broker.replication.hosting.stale_folder import why_stale
from quorate.broker.replication.manager import ReplicaManager
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.invariants import BrokenInvariant
from quorate.common.types import BrokerEpoch, TopicIdPartition
from quorate.metadata_log.image import BrokerHistory, Changes, Image
from quorate.metadata_log.rules.broker_history import LOST_REPLICAS_MAX

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
        self._tasks = BackgroundTasks()
        self._recording: asyncio.Task[None] | None = None
        self._adopting: asyncio.Task[None] | None = None

    async def adopt(self, image: Image) -> None:
        """Host the replicas that ``image`` gives to this broker, when it comes up.

        What is lost is noted durably first: only then a missing log is created (rule 8).
        """
        await self._examine(image)
        if self.lost or any(folder.log_may_be_lost for folder in self._store.stores):
            self._follower.subscribe(self._note_admission, "brokers")
        await self._host(image)
        self._recording = asyncio.create_task(self._hosted.run(), name="hosted-record")

    async def _examine(self, image: Image) -> None:
        """Find out whether a folder is an old one, which replicas are lost, and which are in a
        folder that is not there."""
        store, own = self._store, self._identity.broker_id
        for folder in store.stores:
            await self._compare(folder, image)
        if store.missing:
            store.withheld = withheld_replicas(
                image, own, store.logs, hosted_through=store.hosted_through
            )
        await store.note_absences(self._known_now())
        if store.log_may_be_lost:
            return
        declared = store.lost
        doubtful = {tip for folder in store.stores if folder.log_may_be_lost for tip in folder.logs}
        lost = lost_replicas(
            image,
            own,
            store.logs,
            hosted_through=store.hosted_through,
            declared=declared,
            doubtful=doubtful,
        )
        self.lost = {tip: why for tip, why in lost.items() if tip not in store.withheld}
        for tip, loss in self.lost.items():
            log.error(LOST, image.topic_names.get(tip.topic_id), tip.partition, loss.value)
        if declared != self.lost.keys():
            await store.declare_lost(self.lost)
        short = [each for each in store.logs.values() if each.lacks_committed]
        store.checkpoint_high_watermarks(
            {each.tip: each.checkpointed_high_watermark for each in short}
        )

    async def _compare(self, folder: LogManager, image: Image) -> None:
        """Have a folder that is an old copy declare its logs lost. One that was absent is compared
        with what the quorum knew when it was used last."""
        history = image.histories.get(self._identity.broker_id)
        absence = self._store.absence_of(folder)
        if absence is not None:
            history = BrokerHistory(
                absence.incarnation_id, BrokerEpoch(absence.epoch), absence.mark
            )
        known = folder.history.incarnations
        stale = why_stale(history, known, folder.mark, image.restored_offset)
        if stale is not None and not folder.log_may_be_lost:
            log.error(STALE, folder.directory, stale)
            await folder.declare_loss()

    def _known_now(self) -> Absence:
        """Return what the quorum knows of this broker and its folders."""
        history = self._follower.image.histories.get(self._identity.broker_id)
        return (
            Absence(b"", 0, 0)
            if history is None
            else Absence(history.incarnation_id, history.epoch, history.mark)
        )

    async def _host(self, image: Image) -> None:
        await self._replicas.adopt_image(
            image, log_may_be_lost=self._store.log_may_be_lost, lost=self.lost.keys()
        )

    def current(self) -> ReplicaTroubles:
        """Return which of the replicas here no ISR should rely on."""
        is_full, damaged = self._store.is_full, self._replicas.damaged()
        directories = [str(folder) for folder in self._store.offline_directories]
        if not is_full and (directories or self._store.is_any_full):
            damaged += [tip for tip in self._replicas.unfit() if self._is_in_isr(tip)]
        return ReplicaTroubles(is_full, damaged, directories, self._replicas.offline())

    def declared_lost(self) -> list[TopicIdPartition]:
        """Return the replicas that no ISR may rely on from the registration on.

        A replica whose folder is not there is among them only where its ISR has other members: an
        operator would have to accept the loss of the last one, which comes back with its folder.
        """
        withheld = [tip for tip in self._store.withheld if self._is_in_isr(tip, among_others=True)]
        lost = [*self.lost, *withheld]
        return lost if len(lost) <= LOST_REPLICAS_MAX else list(self.lost)

    def _is_in_isr(self, tip: TopicIdPartition, *, among_others: bool = False) -> bool:
        """Return whether the ISR has this broker, and others if ``among_others`` is true.

        A report of a replica that is out of its ISR would give it a new leader epoch each time.
        """
        image = self._follower.image
        topic = image.topic_by_id(tip.topic_id)
        if topic is None or tip.partition >= image.kept(topic):
            return False
        isr = topic.partitions[tip.partition].isr
        return self._identity.broker_id in isr and len(isr) > among_others

    async def close(self) -> None:
        """Adopt nothing more."""
        await self._tasks.close()
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

    def on_directory_failed(self, error: Exception) -> None:
        """Have the controller told of the replicas on the failed disk, and the failure recorded in
        the other folders."""
        self.changed.set()
        self._tasks.start(self._store.note_absences(self._known_now()), "absent-folders")

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
