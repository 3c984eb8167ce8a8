"""All log folders of a broker, as one log store: each folder is a ``LogManager`` of its own.

A log is in one folder, and is written and read there as if there were no other. This module finds
the folder of a log, places new logs, and goes on without a folder whose disk has failed (KIP-112).
With one folder every call goes straight through to it.
"""

import asyncio
import logging
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Final, cast

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.directories.known_folders import (
    Absence,
    KnownFolder,
    KnownFolders,
    write_known_folders,
)
from quorate.broker.log.directories.log_room import LogRoom, SharedRoom
from quorate.broker.log.log_manager import LogManager
from quorate.broker.log.partition_log import PartitionLog
from quorate.broker.log.rewriting.rewriter import Rewrite
from quorate.broker.log.stored.retention import SegmentTimes
from quorate.broker.log.stored.stored_log import StoredLog
from quorate.common.background_tasks import BackgroundTasks
from quorate.common.types import TopicId, TopicIdPartition, TopicPartition
from quorate_proto.v1 import errors_pb2

log = logging.getLogger(__name__)

PREFERENCES_MAX: Final = 100_000
"""The number of replicas to come whose folder was chosen by a client. The oldest is forgotten."""

Logs = dict[TopicIdPartition, PartitionLog]


class LogDirectories:
    """The open log folders of one broker. It is used on the event-loop thread only.

    ``offline`` says of each folder that could not be opened why. ``missing`` are those of them that
    had replicas of this broker, by directory id.
    """

    def __init__(
        self,
        stores: Mapping[bytes, LogManager],
        known: KnownFolders | None = None,
        *,
        offline: Mapping[Path, str] | None = None,
        missing: Mapping[bytes, KnownFolder] | None = None,
    ) -> None:
        """``stores`` are the open folders by directory id, and ``known`` is their record."""
        self.stores: Final[Sequence[LogManager]] = tuple(stores.values())
        self.offline: Final = offline or {}
        self.missing: Final = missing or {}
        self.withheld: frozenset[TopicIdPartition] = frozenset()
        """The replicas that are in a missing folder. They get no other log here."""
        self._known = known or KnownFolders()
        self._by_id = dict(stores)
        self._by_path = {store.directory: store for store in self.stores}
        self._preferences: dict[TopicPartition, Path] = {}
        self._noted_absent: set[LogManager] = set()
        self._tasks = BackgroundTasks()
        first = self.stores[0]
        self._alone = first if len(self.stores) == 1 else None
        self.room: LogRoom = first.writer
        self.logs: Mapping[TopicIdPartition, PartitionLog] = first.logs
        """All logs by topic id and partition, those on failed disks included."""
        if self._alone is None:
            self.room = SharedRoom([store.writer for store in self.stores])
            self.logs = ChainMap(*[cast(Logs, store.logs) for store in self.stores])

    @classmethod
    def alone(cls, store: LogManager) -> "LogDirectories":
        """Return the folders of a broker that has this one alone."""
        return cls({b"": store})

    # -- which folders work ----------------------------------------------------------------------

    @property
    def working(self) -> list[LogManager]:
        """The folders whose disks have not failed."""
        return [store for store in self.stores if store.failure is None]

    @property
    def directories(self) -> list[Path]:
        """The paths of all folders, those that could not be opened last."""
        return [*self._by_path, *self.offline]

    @property
    def offline_directories(self) -> list[Path]:
        """The folders that could not be opened, or have failed since."""
        failed = [store.directory for store in self.stores if store.failure is not None]
        return [*self.offline, *failed]

    @property
    def troubled_directories(self) -> set[Path]:
        """The folders that are offline, and those whose disks are full."""
        full = {store.directory for store in self.stores if store.is_full}
        return full | set(self.offline_directories)

    @property
    def is_full(self) -> bool:
        """Whether appends are refused in every folder, because the disks are full."""
        return all(store.is_full for store in self.stores)

    @property
    def is_any_full(self) -> bool:
        """Whether appends are refused in some folder, because its disk is full."""
        return any(store.is_full for store in self.stores)

    @property
    def log_may_be_lost(self) -> bool:
        """Whether acknowledged batches may be missing in every folder (rule 8)."""
        return all(store.log_may_be_lost for store in self.stores)

    @property
    def mark(self) -> int:
        """The mark that every folder has on disk at least. It may fall when a folder is added."""
        counted = [store for store in self.stores if store not in self._noted_absent]
        return min((store.mark for store in counted), default=0)

    @property
    def hosted_through(self) -> int:
        """The metadata offset up to which every partition assigned here had a log in a folder."""
        return max(store.history.hosted_through for store in self.stores)

    @property
    def lost(self) -> frozenset[TopicIdPartition]:
        """The partitions that are declared lost until a controller has dealt with them."""
        lost = (one for store in self.stores for one in store.history.lost)
        return frozenset(TopicIdPartition(TopicId(topic_id), number) for topic_id, number in lost)

    @property
    def stray_count(self) -> int:
        """The number of logs that the quorum does not know, or that are in another folder, too."""
        return sum(len(store.history.strays) for store in self.stores)

    def store_of(self, stored_log: StoredLog) -> LogManager:
        """Return the folder of a log, or the first folder for a log that was deleted meanwhile."""
        tip = stored_log.tip
        found = (store for store in self.stores if store.logs.get(tip) is stored_log)
        return next(found, self.stores[0])

    # -- logs ------------------------------------------------------------------------------------

    def create(self, tip: TopicIdPartition, topic: str, *, assigned_at: int = 0) -> PartitionLog:
        """Return the log of ``tip``. Without one it is created in the folder with the fewest logs,
        as in Kafka.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._alone is not None and not self.withheld:
            return self._alone.create(tip, topic, assigned_at=assigned_at)
        existing = self.logs.get(tip)
        if existing is not None:
            return existing
        if tip in self.withheld:
            raise KafkaError(
                errors_pb2.KAFKA_STORAGE_ERROR,
                f"the log of {topic}-{tip.partition} is in a log directory that is offline: "
                + "; ".join(self.offline.values()),
            )
        store = self._preferred(TopicPartition(topic, tip.partition)) or self._emptiest()
        return store.create(tip, topic, assigned_at=assigned_at)

    def prefer(self, tp: TopicPartition, directory: Path) -> None:
        """Have a replica that this broker gets later put into this folder (KIP-113). It is
        remembered until then, or until the process ends, as in Kafka."""
        self._preferences[tp] = directory
        if len(self._preferences) > PREFERENCES_MAX:
            del self._preferences[next(iter(self._preferences))]

    def _preferred(self, tp: TopicPartition) -> LogManager | None:
        return self.store_at(self._preferences.pop(tp, Path()))

    def _emptiest(self) -> LogManager:
        """Return the folder for a new log: one that works, and has room if there is such a one."""
        working = self.working or self.stores
        return min(working, key=lambda store: (store.is_full, len(store.logs) + len(store.futures)))

    def future_of(self, tip: TopicIdPartition) -> PartitionLog | None:
        """Return the copy that a move of the replica makes, or None if it is not moved."""
        return next((store.futures[tip] for store in self.stores if tip in store.futures), None)

    def store_at(self, directory: Path) -> LogManager | None:
        """Return the folder at this path, or None if it is offline or no folder of this broker."""
        store = self._by_path.get(directory)
        return None if store is None or store.failure is not None else store

    async def delete(self, *tips: TopicIdPartition) -> None:
        """Delete the logs of ``tips`` that exist. Those of one folder are deleted in one step.

        A log on a disk that has failed is only forgotten: when its folder comes back, the quorum
        proves that it was deleted (rule 7).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._alone is not None:
            await self._alone.delete(*tips)
            return
        self.withheld -= frozenset(tips)
        for store in self.stores:
            here = [tip for tip in tips if tip in store.logs]
            if store.failure is not None:
                store.forget(here)
                continue
            if here:
                await store.delete(*here)
            for future in [store.futures[tip] for tip in tips if tip in store.futures]:
                await store.futures.delete(future)

    async def settle_duplicates(self) -> None:
        """Serve each log from one folder, when the folders were opened.

        A move that was interrupted may have left two that are equal: the one that it was moved to
        counts, and the other is deleted, unless one of the folders was absent: the other log may
        have gone on meanwhile. Then a folder that was not absent serves it.
        """
        absent = {store for store in self.stores if self.absence_of(store) is not None}
        count = Counter(tip for store in self.stores for tip in store.logs)
        for tip in [tip for tip, folders in count.items() if folders > 1]:
            here = [store for store in self.stores if tip in store.logs]
            newest = max(store.logs[tip].placement for store in here)
            for store in here:
                if store.logs[tip].placement < newest and absent.isdisjoint(here):
                    await store.delete(tip)
        self._supersede_duplicates(absent)
        for store in self.stores:
            for tip, future in tuple(store.futures.items()):
                # A copy beside the log itself is of no use: the log was made anew in the folder
                # that it was to be moved to.
                if tip in store.logs or (tip not in self.logs and not self.missing):
                    await store.futures.delete(future)

    def _supersede_duplicates(self, absent: Set[LogManager]) -> None:
        served: dict[TopicIdPartition, LogManager] = {}
        for store in sorted(self.stores, key=lambda store: store in absent):
            for tip in tuple(store.logs):
                first = served.setdefault(tip, store)
                if first is not store:
                    log.error(
                        "%r is in log directory %s, too, and is served from there: it is kept in "
                        "%s as a stray, see `quorate log strays`",
                        store.logs[tip],
                        first.directory,
                        store.directory,
                    )
                    store.supersede(tip)

    # -- what is recorded of logs ----------------------------------------------------------------

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Store high watermarks for the next start, soon. The marks of all folders grow together:
        no folder has a lower one than the quorum knows of this broker."""
        if self._alone is not None:
            self._alone.checkpoint_high_watermarks(offsets)
            return
        working = self.working
        mark = max((store.next_mark for store in working), default=0)
        for store in working:
            store.checkpoint_high_watermarks(offsets, mark)

    def note_cleaned(self, partition_log: PartitionLog, offset: int) -> None:
        """Record, also for the next start, that the log was compacted up to ``offset``."""
        self.store_of(partition_log).note_cleaned(partition_log, offset)

    def segment_times(self) -> Callable[[PartitionLog], SegmentTimes]:
        """Return a function from a log to the times of the last writes to segments of its folder,
        as ``PartitionLog.retained_from`` needs them."""
        times = {store.directory: store.segment_times() for store in self.working}
        nothing: SegmentTimes = {}
        return lambda partition_log: times.get(partition_log.directory, nothing)

    async def rewrite(self, rewrites: Sequence[Rewrite]) -> list[bool]:
        """Replace batches of one log by others that span the same offsets, see
        ``LogManager.rewrite``.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
            ValueError: The new batches do not span the same offsets as the old ones.
        """
        return await self.store_of(rewrites[0].log).rewrite(rewrites)

    async def seal(self) -> None:
        """Seal the active segments of all folders that work.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        for store in self.working:
            await store.writer.roll()

    async def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have been idle for long."""
        for store in self.working:
            await store.expire_producers(now_ms)

    # -- losses and strays -----------------------------------------------------------------------

    async def declare_lost(self, tips: Iterable[TopicIdPartition]) -> None:
        """Record in every folder that these partitions are lost, and no others."""
        lost = tuple(tips)
        for store in self.working:
            await store.declare_lost(lost)

    def loss_handled(self) -> None:
        """Record that what may be lost was removed from its ISRs (rule 8)."""
        for store in self.working:
            store.loss_handled()

    def note_strays(self, tips: Iterable[TopicIdPartition]) -> None:
        """Record, in the folder of each, the partitions that the quorum does not know (rule 7)."""
        strays = set(tips)
        for store in self.working:
            store.note_strays(strays & store.logs.keys())

    def note_hosted_through(self, offset: int) -> None:
        """Record that every partition assigned up to this metadata offset has a log here, once
        these logs are durable in every folder."""
        if self._alone is not None:
            self._alone.note_hosted_through(offset)
        else:
            self._tasks.start(self._note_hosted_through(offset), "hosted-through")

    async def _note_hosted_through(self, offset: int) -> None:
        working = self.working
        try:
            for store in working:
                await store.writer.settle()
        except KafkaError as error:
            log.info("the record of what has a log stays behind: %s", error.message)
            return
        for store in working:
            store.note_hosted_through(offset)

    # -- the record of folders -------------------------------------------------------------------

    def absence_of(self, store: LogManager) -> Absence | None:
        """Return since when a folder was absent before this start, or None if it was not."""
        for directory_id, one in self._by_id.items():
            if one is store and directory_id in self._known.folders:
                return self._known.folders[directory_id].absence
        return None

    async def note_absences(self, since: Absence) -> None:
        """Record which folders are absent from now on, and that the others are there.

        ``since`` is what the quorum knows of this broker now. It is durable on return in every
        folder that works; one that cannot be written is found to be an old copy later.
        """
        if not self._known.folders:
            return
        absences = {directory_id: one.absence for directory_id, one in self._known.folders.items()}
        for directory_id in self.missing:
            absences[directory_id] = absences.get(directory_id) or since
        failed = [store for store in self.stores if store.failure is not None]
        for directory_id, store in self._by_id.items():
            is_absent = store.failure is not None
            absences[directory_id] = since._replace(mark=store.mark) if is_absent else None
        folders = {
            directory_id: one._replace(absence=absences[directory_id])
            for directory_id, one in self._known.folders.items()
        }
        self._known = self._known.with_folders(folders)
        for store in self.working:
            try:
                await asyncio.to_thread(write_known_folders, store.directory, self._known)
            except OSError as error:
                log.error("cannot write the record of folders in %s: %s", store.directory, error)
        self._noted_absent.update(failed)

    async def close(self) -> None:
        """Record nothing more. Whoever opened the folders closes them."""
        await self._tasks.close()
