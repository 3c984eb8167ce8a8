"""Makes the data folder of a voter that has led, followed, and written snapshots."""

import shutil
from pathlib import Path
from typing import NamedTuple

from quorate.quorum.client.quorum_client import QuorumClient
from quorate.quorum.operations.backup_file import Backup, BackupHeader, write_backup
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorate.quorum.raft.storage.promises import Promise
from tests.campaign.voter_content import BACKUP_FILE
from tests.integration.quorum_writes import image_now, write
from tests.support.quorum_cluster import QuorumCluster, connected

VOTER_ID = 1
CLUSTER_ID = "campaign"
COMPACTING = {
    "metadata.log.max.records.between.snapshots": 100,
    "metadata.log.retained.records": 20,
    "raft.election.timeout.min.ms": 1_000,
    "raft.election.timeout.max.ms": 2_000,
}
_SESSION_TIMEOUT_MS = 30_000
_ROUNDS = 3
_WRITES = 70


class BuiltVoter(NamedTuple):
    """The configuration of the voter, older copies of its folder, oldest first, and what the other
    voters know of it."""

    config: Path
    copies: list[Path]
    promises: dict[int, Promise]


async def build(folder: Path, work: Path, copies: Path) -> BuiltVoter:
    """Make ``folder`` with real voters in ``work``. It is as after a kill -9."""
    taken = []
    work.mkdir()
    with QuorumCluster(work, cluster_id=CLUSTER_ID, settings=COMPACTING) as quorum:
        async with connected(quorum, session_timeout_ms=_SESSION_TIMEOUT_MS) as client:
            for number in range(_ROUNDS):
                await _use(quorum, client)
                quorum.pause(VOTER_ID)
                taken.append(copies / str(number))
                shutil.copytree(quorum.data_dir(VOTER_ID), taken[-1])
                quorum.resume(VOTER_ID)
                if number == 1:
                    quorum.kill(quorum.wait_for_leader())
                    quorum.start_all()
                await _write_backup(client, taken[-1])
            await _use(quorum, client)
            quorum.kill(VOTER_ID)
            shutil.copytree(quorum.data_dir(VOTER_ID), folder)
            await _write_backup(client, folder)
        config = quorum.write_config(VOTER_ID)
        others = [quorum.data_dir(each) for each in quorum.voter_ids if each != VOTER_ID]
    promises = [_promise(other) for other in others]
    return BuiltVoter(config, taken, {n: found for n, found in enumerate(promises, 2) if found})


async def _use(quorum: QuorumCluster, client: QuorumClient) -> None:
    await write(client, _WRITES)
    quorum.wait_until_applied(VOTER_ID, await client.read_offset())


async def _write_backup(client: QuorumClient, folder: Path) -> None:
    header = BackupHeader(cluster_id=CLUSTER_ID, taken_at_ms=1, source="campaign")
    write_backup(folder / BACKUP_FILE, Backup(header, 1, await image_now(client)))


def _promise(folder: Path) -> Promise | None:
    """Return what the voter has promised to the stopped one in ``folder``."""
    journal = LmdbJournal(folder / JOURNAL_FILE)
    try:
        return journal.promises.get(VOTER_ID)
    finally:
        journal.close()
