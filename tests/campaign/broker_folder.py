"""Makes a broker's data folder of the kind that months of use leave, in a second.

Several topics; sealed and active segments; truncations that reach sealed segments; later starts of
logs; idempotent producers; transactions that are committed, aborted and open; a compacted topic; a
topic that was deleted. Copies of the folder are taken on the way, as after a kill -9.
"""

import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from quorate.broker.log import LogManager, PartitionLog
from quorate.broker.log.batches.admission import AppendOrigin
from quorate.broker.log.batches.control_batches import EndMarker, encode_marker
from quorate.broker.log.cleaning.cleaner import CleaningInterrupted
from quorate.broker.log.segments.segment_names import UNFINISHED
from quorate.common.files.data_folder import LOCK_FILE, claimed_data_folder
from quorate.common.types import LeaderEpoch, TopicId, TopicIdPartition
from tests.campaign.broker_content import BROKER_ID, CLUSTER_ID, OPTIONS, History, log_content
from tests.support.log_cleaning import clean, seal
from tests.support.log_stores import OpenStore
from tests.support.record_batches import TRANSACTIONAL, Record, encode_batch

ROUNDS = 12
_COPIED = (4, 8, 11)
"""Rounds after which an older copy is taken."""
_PER_EPOCH = 3
_IDEMPOTENT, _COMMITS, _ABORTS, _OPEN = 1000, 2000, 2001, 2002
_TIME_MS = 1_900_000_000_000
_CLEANINGS = 10
_CLIENT = AppendOrigin.TRANSACTIONAL_CLIENT


async def build(
    folder: Path, copies: Path, chance: random.Random
) -> tuple[Sequence[Path], History]:
    """Make ``folder``; return its older copies in ``copies``, oldest first, and all batches that
    ever were in its logs."""
    taken: list[Path] = []
    with claimed_data_folder(folder, "broker", BROKER_ID, CLUSTER_ID):
        opened = OpenStore()
        opened.store = await LogManager.open(folder, OPTIONS, opened.callbacks())
        opened.store.loss_handled()
        (folder / "audit.log").write_text('{"change": "CreateTopics"}\n' * 20)
        use = _Use(opened, chance)
        for number in range(ROUNDS):
            await use.round(number)
            if number in _COPIED:
                await use.settle()
                taken.append(copies / str(number))
                _copy(folder, taken[-1])
        await use.settle()
        killed = copies / "killed"
        _copy(folder, killed)
        await opened.store.close()
    if chance.random() < 0.5:  # The other folders are of brokers that were stopped.
        shutil.rmtree(folder)
        killed.rename(folder)
    else:
        shutil.rmtree(killed)
    assert (folder / LOCK_FILE).exists()
    return taken, use.history


def _copy(folder: Path, copy: Path) -> None:
    """Copy the folder of a running store, without the segment that it may be creating just now."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(f"*{UNFINISHED}*"))


class _Use:
    """The use of the folder, round by round."""

    def __init__(self, opened: OpenStore, chance: random.Random) -> None:
        self._opened, self._store, self._chance = opened, opened.store, chance
        self._plain = [self._create("plain", n) for n in range(3)]
        self._transactional = self._create("payments")
        self._compacted = self._create("compacted")
        self._doomed = [self._create("doomed", n) for n in range(2)]
        self._sequence = 0
        self.history = History()
        self._at: dict[int, Callable[[], Awaitable[None]]] = {
            3: self._truncate,
            5: self._delete_topic,
            6: self._move_start,
            7: self._clean,
            9: self._truncate,
            10: self._clean,
        }

    def _create(self, topic: str, partition: int = 0) -> PartitionLog:
        tip = TopicIdPartition(TopicId(self._chance.randbytes(16)), partition)
        return self._store.create(tip, topic, assigned_at=self._chance.randrange(5, 5_000))

    async def round(self, number: int) -> None:
        epoch = LeaderEpoch(number // _PER_EPOCH)
        for log in (*self._plain, *self._live(self._doomed)):
            for _ in range(self._chance.randrange(2, 6)):
                log.append_as_leader(self._batch(log), epoch)
        self._plain[0].append_as_leader(self._idempotent(), epoch)
        self._write_transactions(number, epoch)
        for _ in range(6):
            self._compacted.append_as_leader(self._batch(self._compacted, keys=5), epoch)
        await self.settle()
        await self._remember()
        if number % 2:
            await seal(self._opened)
        if number in self._at:
            await self._at[number]()
        await self._remember()
        logs = self._live([*self._plain, self._transactional, self._compacted])
        self._store.checkpoint_high_watermarks({log.tip: log.flushed_offset for log in logs})

    async def _remember(self) -> None:
        for tip, log in self._store.logs.items():
            self.history.add(tip, (await log_content(log)).batches)

    async def settle(self) -> None:
        """Have everything on disk, and nothing in the background that would still write."""
        await self._opened.until_flushed(*self._store.logs.values())
        await self._store.housekeeping.idle()
        await self._store.relocator.idle()  # A segment that was sealed may have woken it.
        await self._store.housekeeping.idle()

    def _live(self, logs: Sequence[PartitionLog]) -> list[PartitionLog]:
        return [log for log in logs if log.tip in self._store.logs]

    def _batch(self, log: PartitionLog, keys: int = 1000) -> bytes:
        """Return a batch of a few records, some of them large."""
        size = self._chance.choice([20, 300, 1_500, 9_000])
        records = [
            Record(
                n,
                _TIME_MS + log.log_end_offset + n,
                b"key %d" % self._chance.randrange(keys),
                self._chance.randbytes(size),
            )
            for n in range(self._chance.randrange(1, 5))
        ]
        return encode_batch(records, codec=self._chance.choice(["none", "zstd"]))

    def _idempotent(self) -> bytes:
        records = [Record(n, _TIME_MS, b"k", b"once %d" % n) for n in range(3)]
        self._sequence += 3
        return encode_batch(records, producer=(_IDEMPOTENT, 0, self._sequence - 3))

    def _write_transactions(self, number: int, epoch: LeaderEpoch) -> None:
        log = self._transactional
        for producer in (_COMMITS, _ABORTS):
            log.append_as_leader(self._part(producer, 2 * number), epoch, _CLIENT)
        if number == ROUNDS - 2:
            log.append_as_leader(self._part(_OPEN, 0), epoch, _CLIENT)
        for producer in (_COMMITS, _ABORTS):
            marker = EndMarker(producer, 0, committed=producer == _COMMITS, coordinator_epoch=0)
            log.append_as_leader(encode_marker(marker, _TIME_MS), epoch, AppendOrigin.MARKERS)

    def _part(self, producer: int, sequence: int) -> bytes:
        """Return a batch that is part of the producer's transaction."""
        records = [Record(n, _TIME_MS, b"k", self._chance.randbytes(400)) for n in range(2)]
        return encode_batch(records, attributes=TRANSACTIONAL, producer=(producer, 0, sequence))

    async def _truncate(self) -> None:
        """Cut a log back into sealed segments, as a follower does; other batches follow."""
        log = self._plain[1]
        await log.truncate_to(log.log_end_offset * 2 // 3)

    async def _delete_topic(self) -> None:
        await self._store.delete(*(log.tip for log in self._doomed))

    async def _move_start(self) -> None:
        await self._plain[2].start_at(self._plain[2].log_end_offset // 2)
        await self._transactional.start_at(self._transactional.log_end_offset // 4)

    async def _clean(self) -> None:
        """Compact a log; its batches may be on their way to another segment for a moment."""
        for _ in range(_CLEANINGS):
            await self.settle()
            try:
                await clean(self._opened, self._compacted)
                return
            except CleaningInterrupted:
                await seal(self._opened)
        raise AssertionError("the log cannot be cleaned")
