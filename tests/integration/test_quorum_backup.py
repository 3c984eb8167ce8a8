"""A quorum that is destroyed and restored from its backup, as those who use it see it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from quorate.common.types import MetadataOffset, SessionId
from quorate.metadata_log.image import Image
from quorate.quorum.client.quorum_client import QuorumClient, SnapshotLoaded
from quorate.quorum.operations.restore import OFFSET_GAP
from tests.integration.quorum_writes import image_now, write
from tests.support.cli import quorate, quorate_error, quorate_json
from tests.support.quorum_cluster import QuorumCluster, connected
from tests.support.waiting import async_wait_until

pytestmark = pytest.mark.integration


class Watcher:
    """The newest image that a watch has delivered as a whole."""

    def __init__(self, client: QuorumClient) -> None:
        self.snapshots: list[Image] = []
        self._task = asyncio.create_task(self._follow(client))

    async def _follow(self, client: QuorumClient) -> None:
        start = MetadataOffset(await client.read_offset() + 1)
        async for event in client.watch(start):
            if isinstance(event, SnapshotLoaded):
                self.snapshots.append(event.image)

    async def next_snapshot(self) -> Image:
        await async_wait_until(lambda: self.snapshots, "a snapshot", timeout_s=30)
        return self.snapshots.pop(0)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def destroy(quorum: QuorumCluster) -> None:
    """Every voter and every data folder is gone."""
    for voter_id in list(quorum.processes):
        quorum.kill(voter_id)
        shutil.rmtree(quorum.data_dir(voter_id))


def restore_first(quorum: QuorumCluster, backup: Path) -> None:
    """Voter 1 from the backup, running."""
    config = quorum.write_config(1)
    quorate("quorum", "restore", "--snapshot", str(backup), "--config", str(config))
    quorum.start(1)
    quorum.wait_for_leader()


def add_others(quorum: QuorumCluster) -> None:
    """Voters 2 and 3 with empty data folders, as new members."""
    for voter_id in (2, 3):
        quorum.start(voter_id)
    for voter_id in (2, 3):
        new = quorum.as_voter(voter_id)
        quorate("quorum", "add-voter", new, "--bootstrap-controller", quorum.address(1))


async def test_a_destroyed_quorum_comes_back_from_its_backup(tmp_path: Path) -> None:
    backup = tmp_path / "quorum.backup"
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            kept = await write(client, 50)
            watcher = Watcher(client)
            follower = next(v for v in quorum.voter_ids if v != quorum.leader())
            address = quorum.address(follower)
            taken = await asyncio.to_thread(
                quorate_json,
                *("quorum", "backup", "--bootstrap-controller", address, "--output", str(backup)),
            )
            lost = await write(client, 5)
            assert taken["cluster_id"] == quorum.cluster_id
            assert max(kept.values()) <= taken["offset"] < min(lost.values())
            assert quorate_json("quorum", "verify-backup", str(backup)) == taken

            destroy(quorum)
            await asyncio.to_thread(restore_first, quorum, backup)

            image = await watcher.next_snapshot()
            assert set(kept) <= set(image.sessions), "the watcher is told that history changed"
            assert not set(lost) & set(image.sessions)
            later = await write(client, 5)
            assert min(later.values()) > OFFSET_GAP, "no offset means two things"
            await asyncio.to_thread(add_others, quorum)
            quorum.kill(1)
            last = await write(client, 5)
            written = {*kept, *later, *last}
            assert written <= set((await image_now(client)).sessions), "the new voters have it all"
            await watcher.stop()


@pytest.mark.slow
async def test_rule_9_a_session_of_the_backup_expires_if_nobody_keeps_it(tmp_path: Path) -> None:
    backup = tmp_path / "quorum.backup"
    with QuorumCluster(tmp_path, voters=1) as quorum:
        gone: SessionId
        async with connected(quorum, "goes away", session_timeout_ms=1_000) as client:
            gone = client.session_id
            options = ("--bootstrap-controller", quorum.address(1), "--output", str(backup))
            await asyncio.to_thread(quorate, "quorum", "backup", *options)
        destroy(quorum)
        await asyncio.to_thread(restore_first, quorum, backup)
        async with connected(quorum) as client:
            assert gone in (await image_now(client)).sessions

            async def is_gone() -> bool:
                return gone not in (await image_now(client)).sessions

            await async_wait_until(is_gone, "the session to expire", timeout_s=10)


@pytest.mark.slow
async def test_voters_of_the_lost_quorum_end_when_they_meet_the_restored_one(
    tmp_path: Path,
) -> None:
    """Also if they are a majority of the lost one: two quorums must not go on side by side."""
    backup = tmp_path / "quorum.backup"
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            kept = await write(client, 20)
            options = ("--bootstrap-controller", quorum.address(1), "--output", str(backup))
            await asyncio.to_thread(quorate, "quorum", "backup", *options)
        for voter_id in list(quorum.processes):
            quorum.kill(voter_id)
        quorum.wipe(1)
        await asyncio.to_thread(restore_first, quorum, backup)
        quorum.start(2)
        quorum.start(3)
        for voter_id in (2, 3):
            await asyncio.to_thread(quorum.wait_for_exit, voter_id)
            assert f"voter {voter_id} was removed from the quorum" in quorum.log_text(voter_id)
        async with connected(quorum) as client:
            assert set(kept) <= set((await image_now(client)).sessions)


@pytest.mark.slow
def test_what_a_stopped_voter_left_can_be_salvaged(tmp_path: Path) -> None:
    backup = tmp_path / "quorum.backup"
    folder = ""
    with QuorumCluster(tmp_path, voters=1) as quorum:
        kept = asyncio.run(_write(quorum))
        folder = str(quorum.data_dir(1))
        arguments = ("quorum", "backup", "--from-data-dir", folder, "--output", str(backup))
        assert "used by another process" in quorate_error(*arguments)
        quorum.kill(1)
        assert quorate_json(*arguments)["sessions"] >= len(kept)
        shutil.rmtree(folder)
        restore_first(quorum, backup)
        assert set(kept) <= set(asyncio.run(_image(quorum)).sessions)


async def _write(quorum: QuorumCluster) -> dict[SessionId, MetadataOffset]:
    async with connected(quorum) as client:
        return await write(client, 30)


async def _image(quorum: QuorumCluster) -> Image:
    async with connected(quorum) as client:
        return await image_now(client)


async def test_without_a_majority_there_is_no_backup(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        for voter_id in (1, 2):
            quorum.kill(voter_id)
        output = tmp_path / "quorum.backup"
        said = quorate_error(
            *("quorum", "backup", "--bootstrap-controller", ",".join(quorum.addresses)),
            *("--output", str(output), "--timeout-ms", "3000"),
        )
        assert "no voter could give a backup" in said
        assert not output.exists()
