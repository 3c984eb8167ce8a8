"""A log store on a file system that really is small: it fills up, serves, deletes and goes on."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from quorate.broker.common.errors import KafkaError
from quorate.broker.log import PartitionLog
from quorate.broker.log.options import Flush
from quorate.broker.log.writing.disk_space import DiskReserve
from tests.support.log_stores import EPOCH, OpenStore, batch, everything, opened
from tests.support.waiting import async_wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

DISK_BYTES = 16 << 20
SEGMENT_BYTES = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    size = f"size={DISK_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "none", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


async def fill(store: OpenStore, *logs: PartitionLog) -> None:
    """Append in turn, a batch at a time, until there is no room."""
    number = 0
    while not store.store.is_full:
        log = logs[number % len(logs)]
        number += 1
        try:
            log.append_as_leader(batch(1, 60_000, seed=number), EPOCH)
        except KafkaError:
            assert store.store.is_full
        await flushed_or_full(store, log)


async def flushed_or_full(store: OpenStore, log: PartitionLog) -> None:
    while log.flushed_offset < log.log_end_offset and not store.store.is_full:
        await asyncio.sleep(0)


def counted_looks(
    store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Awaitable[None]]:
    """Waits until the store has looked for room so often."""
    looked = threading.Semaphore(0)
    regain = DiskReserve.regain

    def noting(reserve: DiskReserve) -> bool:
        found = regain(reserve)
        looked.release()
        return found

    monkeypatch.setattr(DiskReserve, "regain", noting)

    def has_looked() -> bool:
        assert store.store.failure is None
        return looked.acquire(blocking=False)

    async def wait(times: int) -> None:
        for _ in range(times):
            await async_wait_until(has_looked, "a look for room")

    return wait


async def room(store: OpenStore) -> None:
    await async_wait_until(lambda: not store.store.is_full, "room")


@pytest.mark.parametrize("flush", ["sync", "os"])
async def test_a_store_that_fills_its_disk_lives_on(
    disk: Path, flush: Flush, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(
        disk, flush, segment_bytes=SEGMENT_BYTES, tail_bytes=0, reserve_bytes=1 << 20
    ) as store:
        kept, doomed = store.create("kept"), store.create("doomed")
        await fill(store, doomed)
        kept_from = doomed.flushed_offset
        assert kept_from * 60_000 > DISK_BYTES / 2
        assert len(everything(doomed)) > 0, "every batch can be read"
        looks = counted_looks(store, monkeypatch)
        turns: list[bool] = []
        store.on_room = turns.append
        await looks(3)
        assert turns == [], "the blocks of its own reserve are no room"
        await store.store.delete(doomed.tip)
        await room(store)
        await fill(store, kept)
        await kept.start_at(kept.flushed_offset // 2)
        await room(store)
        kept.append_as_leader(batch(1, 100, seed=99), EPOCH)
        await store.until_flushed(kept)
        written = everything(kept)
        await fill(store, kept)
        durable = kept.flushed_offset
    async with opened(
        disk, flush, segment_bytes=SEGMENT_BYTES, tail_bytes=0, reserve_bytes=1 << 20
    ) as store:
        kept = store.log("kept")
        assert kept.log_end_offset == durable
        assert everything(kept).startswith(written)
        assert not store.store.log_may_be_lost
        await kept.start_at(kept.log_end_offset)
        await room(store)
        kept.append_as_leader(batch(), EPOCH)
        await store.until_flushed(kept)
    assert not store.failures
