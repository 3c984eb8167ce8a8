"""A process that uses a log store in every way there is, and says what it was promised.

Run with ``python -m``; arguments: the folder, the file for marks, ``log.flush``, seed, steps per
partition, the name of this boot of the machine, and that of a mutant or nothing. It ends when all
steps are done, or is killed.
"""

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import msgspec

from quorate.broker.log import LogCallbacks, LogManager, LogOptions, PartitionLog, StoredLog
from quorate.broker.log.batches.record_batch import Batch, read_header
from quorate.broker.log.options import Flush
from quorate.broker.log.rewriting.rewriter import Rewrite
from quorate.common.types import LeaderEpoch, TopicIdPartition
from tests.support.power_loss.mutants import writing
from tests.support.power_loss.promises import (
    MERGED,
    PRODUCING,
    WRITTEN,
    Said,
    merged,
    payload,
    topic_id,
    version,
)

SLOTS = 6
TOPIC = "power"
SEGMENT_BYTES = 256 << 10


def options(flush: Flush) -> LogOptions:
    """Small segments, so that they roll and go all the time; nothing is read from memory."""
    return LogOptions(
        flush=flush,
        segment_bytes=SEGMENT_BYTES,
        tail_bytes=0,
        group_bytes=64 << 10,
        max_pending_bytes=256 << 10,
        reserve_bytes=64 << 10,
    )


def key_of(log: StoredLog) -> str:
    return bytes(log.tip.topic_id).decode()


def held(log: PartitionLog) -> list[tuple[int, int, int, int]]:
    """(base offset, last offset, leader epoch, version) of every batch of a log."""
    key = key_of(log)
    found = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        read = log.read(at, 1, log.log_end_offset)
        data = b"".join(read.chunks)
        header = read_header(memoryview(data))
        batch = (header.base_offset, header.last_offset, header.leader_epoch)
        found.append((*batch, version(key, *batch, data)))
        at = read.next_offset
    return found


def sealed_end(log: PartitionLog) -> int:
    """Return the offset up to which the log goes in sealed segments alone.

    The log's start may lie inside its first batch: that one is looked at, too.
    """
    placed, end = log.placed_from(log.log_start_offset, log.flushed_offset, 1 << 40)
    unsealed = (each.base_offset for each in placed if not each.segment.is_sealed)
    return max(log.log_start_offset, next(unsealed, end))


class Load:
    """One store, one task per slot; in each slot one log after the other."""

    def __init__(self, marks: int, seed: int) -> None:
        self._marks = marks
        self._seed = seed
        self._changed = asyncio.Event()
        self.store: LogManager

    def say(self, what: str, log: StoredLog, offset: int = 0) -> None:
        self._write(Said(what, key_of(log), offset))

    def flushed(self, logs: Sequence[StoredLog]) -> None:
        for log in logs:
            self.say("flushed", log, log.flushed_offset)
        self._changed.set()

    def failed(self, error: Exception) -> None:
        print(f"the store failed: {error}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(1)

    async def run(self, directory: Path, flush: Flush, steps: int) -> None:
        self.store = await LogManager.open(
            directory, options(flush), LogCallbacks(self.flushed, self.failed)
        )
        for log in self.store.logs.values():
            self._write(Said("found", key_of(log), log.log_start_offset, held(log)))
        self._write(Said("opened"))
        self.store.loss_handled()
        await self.store.housekeeping.idle()
        self._write(Said("loss settled"))
        async with asyncio.TaskGroup() as tasks:
            for slot in range(SLOTS):
                tasks.create_task(_Slot(self, slot, self._seed).run(steps))
        await self.store.close()

    async def until_flushed(self, log: PartitionLog) -> None:
        while log.flushed_offset < log.log_end_offset:
            self._changed.clear()
            await self._changed.wait()

    def _write(self, said: Said) -> None:
        os.write(self._marks, msgspec.json.encode(said))


class _Slot:
    def __init__(self, load: Load, slot: int, seed: int) -> None:
        self._load = load
        self._store = load.store
        self._slot = slot
        self._chance = random.Random(seed * 100 + slot)
        self._generation = seed * 1000
        here = [log for log in self._store.logs.values() if key_of(log).startswith(self._prefix)]
        self._log = here[0] if here else self._created()
        # An epoch of this run's own: what it writes differs from all that any run has written.
        self._epoch = seed * 10_000

    @property
    def _prefix(self) -> str:
        return f"slot{self._slot:04}"

    def _created(self) -> PartitionLog:
        self._generation += 1
        tip = TopicIdPartition(topic_id(self._slot, self._generation), self._slot)
        self._load._write(Said("create", bytes(tip.topic_id).decode()))
        return self._store.create(tip, TOPIC)

    async def run(self, steps: int) -> None:
        # Slots differ: some only grow, some are cut and started anew all the time.
        odd = self._slot % PRODUCING
        kinds = {
            self._append: 70,
            self._flush: 8,
            self._cut: 4 * (self._slot % 3),
            self._start: 12,
            self._empty: odd,
            self._recreate: odd,
            self._merge: 20 * (not odd),
            self._store.writer.roll: 2,
        }
        for _ in range(steps):
            (kind,) = self._chance.choices(list(kinds), list(kinds.values()))
            await kind()
            await asyncio.sleep(0)
        await self._flush()

    async def _append(self) -> None:
        log = self._log
        await self._store.writer.wait_for_room()
        for _ in range(self._chance.randrange(1, 4)):
            if self._chance.random() < 0.05:
                self._epoch += 1
            base_offset = log.log_end_offset
            data = payload(key_of(log), base_offset, self._epoch)
            last_offset = base_offset + read_header(memoryview(data)).last_offset_delta
            batches = [(base_offset, last_offset, self._epoch, WRITTEN)]
            self._load._write(Said("append", key_of(log), batches=batches))
            log.append_as_leader(data, LeaderEpoch(self._epoch))

    async def _flush(self) -> None:
        log = self._log
        await self._load.until_flushed(log)
        ends = {log.tip: log.flushed_offset for log in self._store.logs.values()}
        self._store.checkpoint_high_watermarks(ends)
        end = sealed_end(log)
        await self._store.housekeeping.idle()
        self._load.say("sealed", log, end)

    async def _cut(self) -> None:
        log, length = self._log, self._log.log_end_offset - self._log.log_start_offset
        offset = log.log_end_offset - min(length, self._chance.choice([0, 1, 3, 10, 40, length]))
        # The batch that contains the offset goes as well.
        kept = [one for one in held(log) if one[1] < offset]
        end = kept[-1][1] + 1 if kept else log.log_start_offset
        self._epoch += 1
        self._load.say("cutting", log, end)
        await log.truncate_to(offset)
        self._load.say("cut", log, end)

    async def _start(self) -> None:
        log = self._log
        first = max(log.log_start_offset, log.flushed_offset - self._chance.choice([0, 3, 10, 25]))
        if first > log.log_start_offset:
            self._load.say("starting", log, first)
            await log.start_at(first)
            self._load.say("started", log, first)

    async def _empty(self) -> None:
        log = self._log
        offset = log.log_end_offset + self._chance.randrange(10)
        self._epoch += 1
        self._load.say("emptying", log, offset)
        await log.truncate_fully_and_start_at(offset)
        self._load.say("emptied", log, offset)

    async def _merge(self) -> None:
        """Write one batch in place of some of one epoch, as compaction does, in sealed segments."""
        log = self._log
        old = log.placed(log.log_start_offset, log.flushed_offset)
        first = self._chance.randrange(len(old) + 1)
        old = old[first : first + self._chance.randrange(1, 6)]
        bases = {placed.base_offset for placed in old}
        held_there = [one for one in held(log) if one[0] in bases]
        epochs = {epoch for _, _, epoch, _ in held_there}
        if len(epochs) != 1 or not all(placed.segment.is_sealed for placed in old):
            return
        batch = (held_there[0][0], held_there[-1][1], epochs.pop())
        self._load._write(Said("merging", key_of(log), batches=[(*batch, MERGED)]))
        data = memoryview(merged(key_of(log), *batch))
        (done,) = await self._store.rewrite([Rewrite(log, old, [Batch(read_header(data), data)])])
        if done:
            self._load._write(Said("merged", key_of(log), batches=[(*batch, MERGED)]))

    async def _recreate(self) -> None:
        self._load.say("deleting", self._log)
        await self._store.delete(self._log.tip)
        self._load.say("deleted", self._log)
        self._log = self._created()


def main() -> None:
    directory, marks, flush, seed, steps, boot, mutant = sys.argv[1:]
    mode: Flush = "sync" if flush == "sync" else "os"
    descriptor = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with patch("quorate.broker.log.log_manager.current_boot_id", lambda: boot), writing(mutant):
        asyncio.run(Load(descriptor, int(seed)).run(Path(directory), mode, int(steps)))


if __name__ == "__main__":
    main()
