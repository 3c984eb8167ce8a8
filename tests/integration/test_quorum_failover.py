"""Three real voters, and the loss of some or all of them (D1, D4)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from quorate.common.types import MetadataOffset, SessionId
from tests.integration.quorum_writes import Writer, applied_from, image_now, write
from tests.support.quorum_cluster import QuorumCluster, connected

pytestmark = pytest.mark.integration

FAILOVER_S = 10.0
"""Half a second where nothing else runs (``bench/quorum_writes.py``), longer on a busy machine."""


async def more_of_each(writers: Sequence[Writer]) -> None:
    """Until each of them has had 20 more writes acknowledged."""
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.wait_for_more(20, timeout_s=FAILOVER_S))


async def test_d1_leader_killed_writes_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as one, connected(quorum) as two:
            writers = [Writer(one), Writer(two)]
            for _ in range(2):
                await more_of_each(writers)
                killed = await asyncio.to_thread(quorum.wait_for_leader)
                quorum.kill(killed)
                async with asyncio.timeout(FAILOVER_S):
                    # By the time of its successor, answers of the killed one have come.
                    await asyncio.to_thread(quorum.wait_for_leader)
                    await more_of_each(writers)
                quorum.start(killed)
                await asyncio.to_thread(quorum.wait_for_leader)
            for writer in writers:
                await writer.stop()
            image = await image_now(one)
            for writer in writers:
                assert len(writer.acknowledged) > 50
                assert set(writer.acknowledged) <= set(image.sessions)
                assert writer.uncertain == 0


async def test_d1_all_voters_killed_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            acknowledged = dict(await write(client, 300))
            writers = [Writer(client) for _ in range(8)]
            await more_of_each(writers)
            for voter_id in quorum.voter_ids:
                quorum.kill(voter_id)
            await asyncio.to_thread(quorum.start_all)
            await more_of_each(writers)
            for writer in writers:
                await writer.stop()
                acknowledged |= writer.acknowledged
            image = await image_now(client)
            assert set(acknowledged) <= set(image.sessions)
            # The log itself is whole: every offset that was acknowledged is delivered.
            up_to = await client.read_offset()
            offsets = await applied_from(client, MetadataOffset(1), up_to)
            assert offsets == sorted(set(offsets))
            assert set(acknowledged.values()) <= set(offsets)


async def test_d1_minority_cannot_commit_and_catches_up_later(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            await write(client)
            leader = quorum.wait_for_leader()
            followers = [voter_id for voter_id in quorum.voter_ids if voter_id != leader]
            quorum.pause(followers[0])
            await write(client, 20)
            quorum.pause(followers[1])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await write(client)
            for follower in followers:
                quorum.resume(follower)
            acknowledged = await write(client, 20)
            assert set(acknowledged) <= set((await image_now(client)).sessions)


async def test_p1_restart_with_compaction_keeps_everything(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.records.between.snapshots": 200,
        "metadata.log.retained.records": 50,
    }
    with QuorumCluster(tmp_path, settings=settings) as quorum:
        acknowledged: dict[SessionId, MetadataOffset] = {}
        for _ in range(2):
            async with connected(quorum) as client:
                for _ in range(5):
                    acknowledged |= await write(client, 100)
            for voter_id in quorum.voter_ids:
                quorum.kill(voter_id)
            quorum.start_all()
        async with connected(quorum) as client:
            status = await client.status()
            assert status.log_start_offset > 1
            assert set(acknowledged) <= set((await image_now(client)).sessions)


async def test_p11_voter_that_lags_behind_compaction_gets_a_snapshot(tmp_path: Path) -> None:
    settings = {
        "metadata.log.max.records.between.snapshots": 200,
        "metadata.log.retained.records": 10,
    }
    with QuorumCluster(tmp_path, settings=settings) as quorum:
        async with connected(quorum) as client:
            leader = quorum.wait_for_leader()
            late = next(voter_id for voter_id in quorum.voter_ids if voter_id != leader)
            quorum.kill(late)
            acknowledged = await write(client, 1_000)
            quorum.start(late)
            offset = await client.read_offset()
            await asyncio.to_thread(quorum.wait_until_applied, late, offset)
            assert "installing snapshot" in quorum.log_text(late)
            # It votes and serves what it got: the others' leader goes, and nothing is missing.
            quorum.kill(quorum.wait_for_leader())
            acknowledged |= await write(client, 10)
            assert set(acknowledged) <= set((await image_now(client)).sessions)


async def test_d1_one_voter_is_up_in_a_moment_and_keeps_its_data(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, voters=1) as quorum:
        async with connected(quorum) as client:
            acknowledged = await write(client, 100)
            quorum.kill(1)
            quorum.start_all()
            acknowledged |= await write(client, 10)
            assert set(acknowledged) <= set((await image_now(client)).sessions)
