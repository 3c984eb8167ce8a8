"""Makes the data folder of a voter that has led, followed, and written snapshots."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.operations.backup_file import Backup, BackupHeader, write_backup
from tests.campaign.voter_content import BACKUP_FILE
from tests.integration.quorum_writes import image_now, write
from tests.support.quorum_cluster import QuorumCluster, connected

VOTER_ID = 1
CLUSTER_ID = "campaign"
COMPACTING = {
    "metadata.log.max.records.between.snapshots": 100,
    "metadata.log.retained.records": 20,
}
_ROUNDS = 4
_WRITES = 70


async def build(folder: Path, work: Path, copies: Path) -> tuple[Path, Sequence[Path]]:
    """Make ``folder`` with real voters in ``work``; return the voter's configuration, and older
    copies of the folder, oldest first. The folder is as after a kill -9."""
    taken = []
    work.mkdir()
    with QuorumCluster(work, cluster_id=CLUSTER_ID, settings=COMPACTING) as quorum:
        async with connected(quorum) as client:
            for number in range(_ROUNDS):
                await write(client, _WRITES)
                quorum.wait_until_applied(VOTER_ID, await client.read_offset())
                quorum.pause(VOTER_ID)
                taken.append(copies / str(number))
                shutil.copytree(quorum.data_dir(VOTER_ID), taken[-1])
                quorum.resume(VOTER_ID)
                if number == 1:
                    quorum.kill(quorum.wait_for_leader())
                    quorum.start_all()
                await _write_backup(client, taken[-1])
        config = quorum.write_config(VOTER_ID)
    shutil.copytree(taken.pop(), folder)
    return config, taken


async def _write_backup(client: QuorumClient, folder: Path) -> None:
    header = BackupHeader(cluster_id=CLUSTER_ID, taken_at_ms=1, source="campaign")
    write_backup(folder / BACKUP_FILE, Backup(header, 1, await image_now(client)))
