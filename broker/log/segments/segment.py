"""One segment: the batches that all partitions got while it was active.

It begins as an LMDB environment; only the newest segment is written. Its keys are those of
``segment_keys``. A batch is one value, or several of ``CHUNK_BYTES`` (so that LMDB finds space for
them). Once sealed it is a plain file: ``seal`` writes a footer after LMDB's last page and closes
the environment. From then on batches are read by ``pread`` at the positions in the footer.

A segment records, with the first batch that each partition has of an epoch in it, where that epoch
began. The epochs are therefore kept as long as the batches, and written in the same transaction
(KIP-101).

A segment is created under a temporary name, synced and renamed, and its folder synced, before it
takes a batch. A file with the final name is therefore complete, and the first acknowledged batch
cannot be lost with its directory entry.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import lmdb

from quorate.broker.common.errors import KafkaError
from quorate.broker.log.batches.record_batch import check_of
from quorate.broker.log.options import Flush, Records
from quorate.broker.log.segments.batch_places import CHUNK_BYTES, BatchPlaces
from quorate.broker.log.segments.batch_verification import verify
from quorate.broker.log.segments.damage import DamagedBatch, DamagedSegment
from quorate.broker.log.segments.pending_batch import PendingBatch
from quorate.broker.log.segments.segment_contents import (
    FooterDamaged,
    FooterPlace,
    SegmentContents,
    footer_crc,
)
from quorate.broker.log.segments.segment_environment import (
    delete_range,
    epochs_of,
    look_up,
    open_environment,
)
from quorate.broker.log.segments.segment_file import SegmentFile
from quorate.broker.log.segments.segment_keys import (
    CHECK,
    FORMAT,
    IDENTITY_KEY,
    IDENTITY_VALUE,
    KEY,
    NUMBER,
    epoch_key,
    packed_epoch,
)
from quorate.broker.log.segments.segment_names import (
    UNFINISHED,
    remove_segment_files,
    segment_id_of,
    segment_name,
)
from quorate.broker.log.segments.system_errors import refuse_system_error
from quorate.common.files.durable_files import sync_folder
from quorate.common.files.lmdb_lock_file import lock_file

log = logging.getLogger(__name__)

_BREATH_S: Final = 0.001


class Segment:
    """A segment. ``append`` and ``delete_from`` run on the writer's thread, ``read`` on any thread.

    It is either being written (after ``begin_writing``), or only read, from ``places`` in its file.
    """

    def __init__(self, path: Path, segment_id: int, file: SegmentFile) -> None:
        self.path = path
        self.id = segment_id
        self.live_batches = 0
        """The number of its batches that are live, which means that a log has them. This and their
        bytes are counted on the event loop."""
        self.live_bytes = 0
        self.stored_bytes = 0
        """The bytes of all batches that were ever written to it, including those that no log has
        any more."""
        self.contents: SegmentContents | None = None
        """Its contents, from its opening until ``begin_writing`` or ``forget_contents``."""
        self.places: BatchPlaces | None = None
        """The places of its batches in the file, or None while it is written."""
        self.is_sealed = False
        """Whether it has a footer. A sealed segment is never written again."""
        self.is_volatile = False
        """Whether a power loss may destroy it: it is written without fsync, and not sealed yet."""
        self.is_unlinked = False
        self.is_damaged = False
        """Whether damage was found when it was opened. Batches may be lost, and LMDB must not write
        it."""
        self.commit = 0
        """LMDB's last commit of it. This is not known of a sealed segment."""
        self._file = file
        self._environment: lmdb.Environment | None = None
        self._lock = threading.Lock()
        """Held to read from the environment, so that ``seal`` does not close it then."""
        self._used_bytes = self._page_bytes = 0
        """The bytes of the file that LMDB uses, and the size of its pages, while it is written."""
        self._recorded_epochs: dict[int, int] = {}
        self._written_at_ms: int | None = None

    @classmethod
    def create(
        cls, directory: Path, segment_id: int, flush: Flush, segment_bytes: int
    ) -> "Segment":
        """Return a new, empty segment to write to; durable by name on return."""
        path = directory / segment_name(segment_id)
        unfinished = path.with_name(path.name + UNFINISHED)
        for leftover in (unfinished, lock_file(unfinished)):
            leftover.unlink(missing_ok=True)
        environment = open_environment(unfinished, "sync", segment_bytes)
        with environment.begin(write=True) as transaction:
            transaction.put(IDENTITY_KEY, IDENTITY_VALUE.pack(FORMAT, segment_id))
        environment.close()
        unfinished.rename(path)
        lock_file(unfinished).unlink(missing_ok=True)
        sync_folder(directory)
        created = cls.open(path)
        created.begin_writing(flush, segment_bytes)
        return created

    @classmethod
    def open(
        cls, path: Path, footer: FooterPlace | None = None, least_commit: int = 0
    ) -> "Segment":
        """Return an existing segment for reading. If it has no valid footer, its pages are scanned.

        A file of an older commit than ``least_commit``, or than that of the footer, is an older
        copy.

        Raises:
            DamagedSegment: The file is of another format, is no segment, or cannot be read at all.
        """
        segment_id = segment_id_of(path)
        if segment_id is None:
            raise DamagedSegment(path, "its name is not that of a segment")
        segment = cls(path, segment_id, SegmentFile(path))
        try:
            segment._find_out(footer, least_commit)
        except BaseException:
            segment._file.close()
            raise
        return segment

    def _find_out(self, footer: FooterPlace | None, least_commit: int) -> None:
        if footer is not None:
            try:
                self._learn(self._file.footer(footer, self.id))
            except FooterDamaged as error:
                log.warning("log segment %s: its footer is damaged: %s", self.path, error)
                least_commit = footer.commit
            else:
                self.is_sealed = True
                return
        self._learn(self._file.scan(self.id, self._note_batch, on_problem=self._note_problem))
        self.commit = self._file.root().transaction
        if problem := older_copy(self.commit, least_commit):
            self._note_problem(problem)

    def _note_batch(self, damaged: DamagedBatch) -> None:
        log.error("%s", damaged.message)
        self.is_damaged = True

    def _note_problem(self, problem: str) -> None:
        log.error("log segment %s is damaged: %s; it is not written any more", self.path, problem)
        self.is_damaged = True

    def _learn(self, contents: SegmentContents) -> None:
        self.contents = contents
        self.places = contents.places()
        self.stored_bytes = sum(contents.sizes)
        self._written_at_ms = contents.written_at_ms

    def forget_contents(self) -> None:
        """Keep in memory only what is needed to read batches."""
        self.contents = None

    def hold(self, count: int, size: int) -> None:
        """Record that logs have this many more of its batches, and their bytes."""
        self.live_batches += count
        self.live_bytes += size

    def release(self, count: int, size: int) -> None:
        """Record that this many of its batches are in no log any more."""
        self.live_batches -= count
        self.live_bytes -= size

    def begin_writing(self, flush: Flush, segment_bytes: int) -> None:
        """Open the LMDB environment. This must follow the check of its pages, because the file is
        mapped.

        Raises:
            DamagedSegment: LMDB does not accept the file.
            OSError: The file cannot be written.
        """
        contents = self.contents
        if self._environment is not None or contents is None:
            return
        self.is_volatile = flush == "os"
        try:
            self._environment = open_environment(self.path, flush, segment_bytes)
        except lmdb.Error as error:
            refuse_system_error(self.path, error)
            raise DamagedSegment(self.path, str(error)) from error
        self._page_bytes = int(self._environment.stat()["psize"])
        self._note_usage(self._environment)
        for epoch in contents.epochs:
            known = self._recorded_epochs.get(epoch.number, -1)
            self._recorded_epochs[epoch.number] = max(known, epoch.leader_epoch)
        self.contents = self.places = self._written_at_ms = None

    def seal(self) -> FooterPlace:
        """Make all of it durable and write the footer. From then on it is only read.

        This takes a while. Nobody appends to it any more, but it is read meanwhile.

        Raises:
            OSError: The disk is full or broken. The segment can be read as before.
            DamagedSegment: The data that was written is not there.
        """
        contents = self.contents or self._file.scan(self.id, _refuse_damage, _give_way)
        packed = contents.pack()
        place = self._footer_place(packed)
        _write_durably(self.path, place.position, packed)
        with self._lock:
            environment, self._environment = self._environment, None
            self.places = contents.places()
            self.is_sealed = True
        self._written_at_ms = contents.written_at_ms
        if environment is not None:
            environment.close()
            lock_file(self.path).unlink(missing_ok=True)
        self._recorded_epochs.clear()
        return place

    def _footer_place(self, packed: bytes) -> FooterPlace:
        root = self._file.root()
        return FooterPlace(root.used_bytes, len(packed), footer_crc(packed), root.transaction)

    @property
    def used_bytes(self) -> int:
        """Return the bytes of the file that LMDB has ever used."""
        return self._file.root().used_bytes if self._environment is None else self._used_bytes

    @property
    def written_at_ms(self) -> int:
        """The time of the last write by the wall clock. No batch in the segment is newer."""
        known = self._written_at_ms
        return self._file.modified_at_ms if known is None else known

    @property
    def may_be_written(self) -> bool:
        """Whether batches may be added to it. This is only valid before the segment is written."""
        has_checks = self.contents is not None and self.contents.has_checks
        return has_checks and not self.is_sealed and not self.is_damaged

    @property
    def is_empty(self) -> bool:
        """Whether it holds no batch and no epoch. This is only valid before the segment is
        written."""
        return self.contents is not None and not self.contents and not self.contents.epochs

    def append(self, batches: Sequence[PendingBatch]) -> None:
        """Write ``batches`` in one transaction. It is durable on return if the segment was opened
        with ``sync``."""
        items: list[tuple[bytes, Records]] = []
        begun: dict[int, int] = {}
        for batch in batches:
            number, base_offset = batch.number, batch.base_offset
            epoch = batch.leader_epoch
            if epoch >= 0 and begun.get(number, self._recorded_epochs.get(number)) != epoch:
                begun[number] = epoch
                key = epoch_key(number, epoch)
                items.append((key, packed_epoch(key, batch.epoch_start_offset)))
            key = KEY.pack(number, base_offset, CHECK)
            items.append((key, check_of(key, batch.records)))
            if batch.size <= CHUNK_BYTES:
                items.append((KEY.pack(number, base_offset, 0), batch.records))
                continue
            view = memoryview(batch.records)
            items.extend(
                (KEY.pack(number, base_offset, chunk), view[start : start + CHUNK_BYTES])
                for chunk, start in enumerate(range(0, batch.size, CHUNK_BYTES))
            )
        environment = self._writable()
        # Context managers would cost a fifth of a small commit.
        transaction = environment.begin(write=True)
        try:
            transaction.cursor().putmulti(items)
        except BaseException:
            transaction.abort()
            raise
        transaction.commit()
        # LMDB does not write a commit that changes nothing, so this is not always the
        # transaction's own number.
        self.commit = self._note_usage(environment)
        self.stored_bytes += sum([batch.size for batch in batches])
        # Only after the commit, because it may fail and be repeated.
        self._recorded_epochs.update(begun)

    def delete_from(self, truncations: Sequence[tuple[int, int]]) -> None:
        """Delete, for each (partition number, offset), the batches and epochs from that offset
        on."""
        with self._writable().begin(write=True) as transaction, transaction.cursor() as cursor:
            for number, offset in truncations:
                self._recorded_epochs.pop(number, None)
                delete_range(cursor, KEY.pack(number, offset, 0), NUMBER.pack(number))
                for epoch in list(epochs_of(cursor, number)):
                    if epoch.start_offset >= offset:
                        transaction.delete(epoch_key(number, epoch.leader_epoch))
        self._note_usage(self._writable())

    def _note_usage(self, environment: lmdb.Environment) -> int:
        """Note how much of the file is used, and return the number of the last commit. LMDB is
        asked once per commit, because its answer costs as much as a small commit in memory."""
        info = environment.info()
        self._used_bytes = (info["last_pgno"] + 1) * self._page_bytes
        return int(info["last_txnid"])

    def read(
        self, number: int, wanted: Sequence[tuple[int, int]], *, wait: bool = True
    ) -> list[Records]:
        """Return the batches ``wanted``, given as (base offset, size), as verified chunks.

        Raises:
            DamagedBatch: A batch is missing, or not what was written.
            NotCached: The disk would have to be waited for, and ``wait`` is False.
        """
        with self._lock:
            environment = self._environment
            if environment is not None:
                chunks = look_up(environment, self.path, number, wanted)
        if environment is not None:
            verify(self.path, number, wanted, chunks, CHUNK_BYTES)
            return chunks
        assert self.places is not None
        return [*self._file.read_batches(self.places, number, wanted, wait=wait)]

    def sync(self) -> None:
        """Make everything durable that was written so far, however the segment was opened."""
        if self._environment is not None:
            self._environment.sync(True)
        else:
            self._file.sync()

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
        self._file.close()

    def unlink(self) -> None:
        """Close the segment and remove its files. Nothing waits for it to be sealed any more."""
        self.is_unlinked = True
        self.is_volatile = False
        self.close()
        remove_segment_files(self.path)

    def _writable(self) -> lmdb.Environment:
        assert self._environment is not None, f"{self.path} is not written any more"
        return self._environment


def is_unused(path: Path) -> bool:
    """Return whether the file is a segment that was created and then never written."""
    try:
        segment = Segment.open(path)
    except (KafkaError, OSError):
        return False
    try:
        return segment.is_empty and not segment.is_damaged
    finally:
        segment.close()


def older_copy(commit: int, least_commit: int) -> str:
    """Return what is wrong with a file of ``commit``, or an empty string."""
    if commit >= least_commit:
        return ""
    return f"it is an older copy: it is of commit {commit}, {least_commit} was written"


def _write_durably(path: Path, position: int, data: bytes) -> None:
    """Write the end of a file, and sync the whole file, including what others wrote."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, position)
            position, view = position + written, view[written:]
        os.ftruncate(descriptor, position)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give_way() -> None:
    """Let the event loop run. Otherwise this thread would hold the interpreter for 5 ms at a
    time."""
    time.sleep(_BREATH_S)


def _refuse_damage(damaged: DamagedBatch) -> None:
    raise damaged
