"""Mostly dead segments are emptied and go; what lives of them stays, byte for byte."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from quorate.broker.log import PartitionLog
from quorate.broker.log.directories.log_directories import LogDirectories
from quorate.broker.log.options import Flush
from quorate.broker.log.rewriting.relocation_plan import (
    RelocationStep,
    SegmentUsage,
    next_step,
    should_roll,
)
from quorate.broker.log.segments.damage import DamagedBatch
from quorate.broker.metrics.replica_metrics import DELETED, RELOCATED, STORED, store_samples
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened

SEGMENT_BYTES = 1 << 20
SIZE = 60_000


def test_the_emptiest_of_those_that_are_mostly_dead_is_next() -> None:
    usages = [
        SegmentUsage(1, 100, 49),
        SegmentUsage(2, 100, 20),
        SegmentUsage(3, 100, 100),
        SegmentUsage(4, 100, 100),
    ]
    assert next_step(usages, 1000) == RelocationStep(2, is_urgent=False)
    assert next_step([SegmentUsage(1, 100, 50)], 1000) is None
    assert next_step([], 0) is None


def test_what_is_wholly_dead_is_not_copied() -> None:
    assert next_step([SegmentUsage(1, 100, 0)], 0) is None


def test_all_dead_bytes_together_are_at_most_half_of_what_lives() -> None:
    usages = [SegmentUsage(1, 100, 60), SegmentUsage(2, 100, 70)]
    assert next_step(usages, 10) is None
    assert next_step(usages, 9) == RelocationStep(1, is_urgent=True)
    waiting = [*usages, SegmentUsage(3, 100, 0)]
    assert next_step(waiting, 10) is None, "it goes by itself"
    assert should_roll(waiting, 209)
    assert not should_roll(waiting, 210)
    assert not should_roll(usages, 0), "nothing waits"


async def fill(store: OpenStore, *logs: PartitionLog, batches: int = 40) -> None:
    """Batches in turn; over several segments."""
    for seed in range(batches):
        for log in logs:
            log.append_as_leader(batch(1, SIZE, seed=seed), EPOCH)
        await store.until_flushed(*logs)
    await store.store.housekeeping.idle()


async def settled(store: OpenStore) -> None:
    """Everything that is to be copied is, and what is empty has gone."""
    await store.store.relocator.idle()
    await store.store.housekeeping.idle()


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.glob("segment-*.mdb"))


@pytest.mark.parametrize("flush", ["sync", "os"])
async def test_d3_a_log_that_is_kept_does_not_keep_what_is_deleted(
    tmp_path: Path, flush: Flush
) -> None:
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES, tail_bytes=0) as store:
        kept, short = store.create("kept"), store.create("short")
        for _ in range(4):
            await fill(store, kept, short, short, short, batches=20)
            await short.start_at(short.log_end_offset)
            await settled(store)
        await fill(store, kept)
        await settled(store)
        before = everything(kept)
        allowed = 1.5 * kept.size_bytes + 2 * (SEGMENT_BYTES + 4 * SIZE)
        if flush == "sync":
            assert disk_bytes(tmp_path) <= allowed
        figures = {
            sample.family.name: sample.value
            for sample in store_samples(LogDirectories.alone(store.store))
        }
        assert figures[DELETED.name] == 240 * (short_bytes := len(batch(1, SIZE)))
        assert figures[RELOCATED.name] == store.store.relocator.copied_bytes > short_bytes
        stored_bytes = cast("int", figures[STORED.name])
        assert kept.size_bytes <= stored_bytes <= disk_bytes(tmp_path)
    async with opened(tmp_path, flush, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log("kept")) == before
        await settled(store)
        assert everything(store.log("kept")) == before


async def test_d3_a_batch_that_cannot_be_read_is_told_and_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES, tail_bytes=0) as store:
        told: list[tuple[str, int]] = []
        store.on_damaged = lambda log, error: told.append(
            (log.topic, cast(DamagedBatch, error).base_offset)
        )
        kept, bad, short = (store.create(topic) for topic in ("kept", "bad", "short"))
        await fill(store, kept, bad, short, short, short, short, batches=10)
        first = store.store.segments.by_id[1]
        read = first.read

        def damaged(number: int, wanted: list[tuple[int, int]]) -> object:
            if number == bad.number:
                raise DamagedBatch(first.path, number, wanted[0][0], "its checksum is wrong")
            return read(number, wanted)

        monkeypatch.setattr(first, "read", damaged)
        await short.start_at(short.log_end_offset)
        await settled(store)
        assert told == [("bad", 0)]
        assert not [p for p in kept.placed(0, kept.log_end_offset) if p.segment is first]
        assert 1 in store.store.segments.by_id, "what cannot be read stays where it is"
        await store.store.delete(bad.tip)
        await settled(store)
        assert 1 not in store.store.segments.by_id


async def test_d3_a_store_that_closes_stops_copying(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES, tail_bytes=0) as store:
        kept, short = store.create("kept"), store.create("short")
        await fill(store, kept, short, short, short, batches=60)
        before = everything(kept)
        await short.start_at(short.log_end_offset)
        await asyncio.sleep(0)
    async with opened(tmp_path, segment_bytes=SEGMENT_BYTES) as store:
        assert everything(store.log("kept")) == before
        await store.store.delete(store.log("short").tip)
        await settled(store)
        assert everything(store.log("kept")) == before
