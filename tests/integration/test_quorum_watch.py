"""Watches over real voters: in order, whole, and from any of them."""

import asyncio
import os
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from quorate.common.types import MetadataOffset
from quorate.metadata_log.records import Operation, SessionOpened
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.quorum_client import QuorumClient, SnapshotLoaded, TransactionsApplied
from quorate.quorum.client.watch import read_events, watch_request
from quorate.quorum.voter_channels import stub_of
from tests.integration.quorum_writes import Writer, applied_from, new_key, write
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration


async def test_watch_from_the_first_from_the_middle_and_from_now(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            written = sorted((await write(client, 50)).values())
            up_to = await client.read_offset()
            everything = await applied_from(client, MetadataOffset(1), up_to)
            assert everything[-50:] == written
            middle = written[25]
            assert await applied_from(client, middle, up_to) == written[25:]
            watching = asyncio.create_task(
                applied_from(client, MetadataOffset(up_to + 1), MetadataOffset(up_to + 1))
            )
            later = await write(client)
            assert await watching == list(later.values())


async def test_watch_from_zero_begins_with_a_snapshot(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            written = await write(client, 20)
            events = client.watch(MetadataOffset(0))
            first = await anext(events)
            assert isinstance(first, SnapshotLoaded)
            assert set(written) <= set(first.image.sessions)
            later = await write(client)
            seen: list[MetadataOffset] = []
            async for event in events:
                assert isinstance(event, TransactionsApplied)
                seen += [offset for offset, _ in event.transactions]
                if seen:
                    break
            assert seen == list(later.values())


async def test_e5_a_linearizable_watch_begins_with_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    """At every voter, though snapshots are shared and followers learn late what is committed."""
    with QuorumCluster(tmp_path, voters=3) as quorum:
        directory = VoterDirectory(quorum.addresses, quorum.security)
        async with connected(quorum) as client:
            for _ in range(3):
                for address in quorum.addresses:
                    written = await write(client)
                    call = stub_of(directory.channel(address)).Watch(
                        watch_request(linearizable=True)
                    )
                    async with aclosing(read_events(call, MetadataOffset(0))) as events:  # type: ignore[type-var]  # A generator.
                        first = await anext(events)
                    assert isinstance(first, SnapshotLoaded)
                    assert set(written) <= set(first.image.sessions)
        await directory.close()


async def settled_log_start(client: QuorumClient) -> MetadataOffset:
    """The first offset behind the log's start, once nothing more is compacted away."""
    start, since = -1, time.monotonic()

    async def is_settled() -> bool:
        nonlocal start, since
        found = (await client.status()).log_start_offset
        if found != start:
            start, since = found, time.monotonic()
        return time.monotonic() - since >= 1

    await async_wait_until(is_settled, "the end of compaction")
    return MetadataOffset(start + 1)


async def test_watch_from_what_is_compacted_away_says_so_with_a_snapshot(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.records.between.snapshots": 100,
        "metadata.log.retained.records": 10,
    }
    with QuorumCluster(tmp_path, voters=1, settings=settings) as quorum:
        async with connected(quorum) as client:
            written = await write(client, 300)
            for _ in range(20):
                written |= await write(client, 20)
            # The newest are in memory whatever the journal keeps; after a restart they are not.
            quorum.kill(1)
            quorum.start_all()
            first = await anext(client.watch(MetadataOffset(2)))
            assert isinstance(first, SnapshotLoaded)
            assert set(written) <= set(first.image.sessions)
            retained = await settled_log_start(client)
            up_to = await client.read_offset()
            offsets = await applied_from(client, retained, up_to)
            assert set(offsets) >= {offset for offset in written.values() if offset >= retained}


async def test_watch_goes_on_at_another_voter_without_gap_or_repetition(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client, connected(quorum) as watcher:
            offsets: list[MetadataOffset] = []

            async def follow() -> None:
                async for event in watcher.watch(MetadataOffset(1)):
                    assert isinstance(event, TransactionsApplied)
                    offsets.extend(offset for offset, _ in event.transactions)

            following = asyncio.create_task(follow())
            writer = Writer(client)
            for _ in range(3):
                await writer.wait_for_more()
                killed = await asyncio.to_thread(quorum.wait_for_leader)
                quorum.kill(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
                await writer.wait_for_more()
                quorum.start(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
            await writer.stop()
            last = max(writer.acknowledged.values())
            await async_wait_until(
                lambda: offsets and offsets[-1] >= last, f"the event of {last}", timeout_s=10
            )
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert offsets == sorted(set(offsets))
            assert set(writer.acknowledged.values()) <= set(offsets)


async def test_a_hundred_watchers_see_everything_in_order(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            seen = [MetadataOffset(0)] * 100

            async def watch(number: int) -> None:
                async for event in client.watch(MetadataOffset(1)):
                    assert isinstance(event, TransactionsApplied)
                    for offset, _ in event.transactions:
                        assert offset > seen[number]
                        seen[number] = offset

            watchers = [asyncio.create_task(watch(number)) for number in range(100)]
            for _ in range(20):
                last = max((await write(client, 20)).values())
            await async_wait_until(
                lambda: min(seen) >= last, f"all watchers to see {last}", timeout_s=20
            )
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)


async def test_nothing_is_kept_for_a_watcher_that_stops_reading(tmp_path: Path) -> None:
    """It falls behind what is retained, and goes on with a snapshot; nobody waits for it."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": 2 << 20,
        "metadata.log.retained.bytes": 1 << 20,
    }
    with QuorumCluster(tmp_path, voters=1, settings=settings) as quorum:
        async with connected(quorum) as client:
            lazy = client.watch(MetadataOffset(1))
            first = await anext(lazy)
            assert isinstance(first, TransactionsApplied)
            before_mb = resident_mb(quorum)
            key = new_key()
            large = Operation(
                records=(
                    SessionOpened(session_id=key, timeout_ms=1_000_000, description="x" * 500_000),
                )
            )
            # The same session again and again: refused, but in the log all the same. 120 MB.
            for _ in range(60):
                await asyncio.gather(*(client.transact([large]) for _ in range(4)))
            last = await client.read_offset()
            assert resident_mb(quorum) - before_mb < 80
            covered = first.applied_offset
            snapshots = 0
            async with asyncio.timeout(20):
                while covered < last:
                    event = await anext(lazy)
                    if isinstance(event, SnapshotLoaded):
                        snapshots += 1
                        assert event.image.offset > covered
                        covered = event.image.offset
                    else:
                        assert all(offset > covered for offset, _ in event.transactions)
                        covered = event.applied_offset
            assert snapshots == 1


def resident_mb(quorum: QuorumCluster) -> float:
    (process,) = quorum.processes.values()
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
