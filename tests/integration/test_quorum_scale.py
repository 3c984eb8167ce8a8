"""Snapshots of very many partitions: written, sent and installed under a load of writes."""

import asyncio
from pathlib import Path

import pytest

from quorate.common.types import MetadataOffset
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.quorum_client import SnapshotLoaded
from quorate.quorum.client.watch import follow
from quorate.quorum.operations.admin import QuorumAdmin
from quorate.quorum.quorum_config import parse_voters
from tests.support.many_partitions import Load, ManyPartitions
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.waiting import async_wait_until, wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 60.0
SETTINGS = {
    "metadata.log.max.records.between.snapshots": 1_000,
    "metadata.log.retained.records": 100,
    # A machine that runs other tests as well holds up everybody for half a second at times.
    "raft.election.timeout.min.ms": 1_500,
    "raft.election.timeout.max.ms": 3_000,
}


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [
        pytest.param(5, 5_000, id="25k"),
        pytest.param(20, 10_000, id="200k", marks=pytest.mark.slow),
        pytest.param(2_000, 100, id="200k-small-topics", marks=pytest.mark.slow),
    ],
)
async def test_p11_lagging_and_empty_voters_get_snapshots_and_nobody_stalls(
    tmp_path: Path, topics: int, partitions: int
) -> None:
    with QuorumCluster(tmp_path, settings=SETTINGS) as quorum:
        async with connected(quorum, session_timeout_ms=30_000) as client:
            many = ManyPartitions(client, topics=topics, partitions=partitions)
            await many.create()
            before = await client.status()
            leader = before.leader_id
            late = next(each for each in quorum.voter_ids if each != leader)
            load = Load(many, in_flight=10)
            quorum.kill(late)

            def compacted() -> bool:
                status = quorum.status(leader)
                return status is not None and status.log_start_offset > before.commit_offset + 1_000

            await asyncio.to_thread(wait_until, compacted, "the leader to compact its log")
            quorum.start(late)
            await async_wait_until(
                lambda: "installing snapshot" in quorum.log_text(late),
                "a snapshot",
            )
            empty = quorum.start_new()
            directory = VoterDirectory(quorum.addresses)
            (voter,) = parse_voters(quorum.as_voter(empty))
            await QuorumAdmin(directory, TIMEOUT_S).add_voter(voter, lambda _progress: None)
            await directory.close()
            assert "installing snapshot" in quorum.log_text(empty)
            await load.stop()
            after = await client.status()
            assert (after.term, after.leader_id) == (before.term, leader)
            assert load.longest_gap_ms < 1_500
            offset = await client.read_offset()
            for voter_id in (leader, late, empty):
                assert await partitions_at(quorum, voter_id, offset) == topics * partitions


async def partitions_at(quorum: QuorumCluster, voter_id: int, offset: MetadataOffset) -> int:
    """How many partitions a voter knows of, once it has applied everything up to ``offset``."""

    def applied() -> bool:
        status = quorum.status(voter_id)
        return status is not None and status.applied_offset >= offset

    await asyncio.to_thread(wait_until, applied, f"voter {voter_id} to apply {offset}")
    directory = VoterDirectory([quorum.address(voter_id)])
    try:
        first = await anext(follow(directory, MetadataOffset(0)))
    finally:
        await directory.close()
    assert isinstance(first, SnapshotLoaded)
    return sum(len(topic.partitions) for topic in first.image.topics.values())
