"""An old copy of a voter's data folder is put back: the voter leaves, and the others go on."""

import asyncio
import shutil
from pathlib import Path

import pytest

from quorate.quorum.operations.stale_folder import STALE_FILE
from tests.integration.quorum_writes import image_now, write
from tests.integration.test_quorum_disk import complaint, run_voter
from tests.support.quorum_cluster import QuorumCluster, connected

pytestmark = pytest.mark.integration


async def test_a_voter_with_an_old_folder_leaves_and_is_marked(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as quorum:
        async with connected(quorum) as client:
            leader = quorum.wait_for_leader()
            victim = next(v for v in quorum.voter_ids if v != leader)
            acknowledged = dict(await write(client, 20))
            folder, copy = quorum.data_dir(victim), tmp_path / "copy"
            quorum.stop(victim)
            shutil.copytree(folder, copy)
            quorum.start(victim)
            acknowledged |= await write(client, 200)
            offset = await client.read_offset()
            await asyncio.to_thread(quorum.wait_until_applied, victim, offset)
            # All stop, and start together: only what is on their disks is remembered.
            for voter_id in quorum.voter_ids:
                quorum.stop(voter_id)
            newest = tmp_path / "newest"
            folder.rename(newest)
            shutil.copytree(copy, folder)
            for voter_id in quorum.voter_ids:
                quorum.start(voter_id)
            assert await asyncio.to_thread(quorum.wait_for_exit, victim) == 1
            said = complaint(quorum.log_text(victim))
            assert f"the data folder of voter {victim} is older than what this voter" in said
            assert f"remove-voter {victim}" in said
            acknowledged |= await write(client, 20)
            assert set(acknowledged) <= set((await image_now(client)).sessions)
            # It tells those that it was connected to, and one of them may lead later.
            others = [voter_id for voter_id in quorum.voter_ids if voter_id != victim]
            told = [await asyncio.to_thread(quorum.status, other) for other in others]
            assert None not in told
            stale = {voter.voter_id for one in told if one for voter in one.voters if voter.stale}
            assert stale == {victim}
            # It is refused again when nobody else could tell.
            assert (folder / STALE_FILE).exists()
            code, said = await asyncio.to_thread(run_voter, quorum.write_config(victim))
            assert (code, "is older than what this voter" in said) == (1, True)
            # The newest folder is as good as before.
            shutil.rmtree(folder)
            newest.rename(folder)
            quorum.start(victim)
            offset = await client.read_offset()
            await asyncio.to_thread(quorum.wait_until_applied, victim, offset)
