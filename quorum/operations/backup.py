"""Takes a backup of the quorum from a running voter, or from what a stopped one left on disk."""

from pathlib import Path

import grpc

from quorate.common.files.data_folder import (
    IDENTITY_FILE,
    DataFolderError,
    Identity,
    claimed_data_folder,
    read_identity,
)
from quorate.metadata_log.image import Image
from quorate.metadata_log.snapshot.snapshot import decode_snapshot
from quorate.quorum.client.directory import VoterDirectory
from quorate.quorum.client.watch import watch_request
from quorate.quorum.operations.backup_file import Backup, BackupHeader
from quorate.quorum.quorum_errors import BackupError
from quorate.quorum.raft.network.raft_frames import REGULAR
from quorate.quorum.raft.snapshot_store import SNAPSHOT_FILE
from quorate.quorum.raft.storage.journal import JournalError
from quorate.quorum.raft.storage.lmdb_journal import JOURNAL_FILE, LmdbJournal
from quorate.quorum.raft.storage.snapshot_file import (
    SnapshotCorrupt,
    SnapshotPosition,
    read_chunks,
    read_position,
)
from quorate.quorum.voter.state_machine import QuorumStateMachine
from quorate.quorum.voter_channels import stub_of
from quorate_proto.v1 import quorum_pb2 as pb

_READ_TIMEOUT_S = 10.0


# --- online -------------------------------------------------------------------------------------


async def take_backup(directory: VoterDirectory, *, now_ms: int, timeout_s: float) -> Backup:
    """Back up everything acknowledged before this call, consistently, from any one voter.

    Raises:
        BackupError: no voter with a majority behind it answered; says what each of them said.
    """
    said = []
    for address in directory.in_order_of_preference():
        try:
            return await _from_voter(directory, address, now_ms=now_ms, timeout_s=timeout_s)
        except grpc.aio.AioRpcError as error:
            said.append(f"{address}: {error.details() or error.code().name}")
    raise BackupError(f"no voter could give a backup: {'; '.join(said)}")


async def _from_voter(
    directory: VoterDirectory, address: str, *, now_ms: int, timeout_s: float
) -> Backup:
    """Read linearizably from one voter: what was acknowledged before is included.

    The snapshot comes in the pieces of a watch, so it may be of any size. A read first finds out
    whether the voter can tell what was acknowledged, since that has a time limit of its own.
    """
    stub = stub_of(directory.channel(address))
    await stub.Read(pb.ReadRequest(linearizable=True), timeout=min(timeout_s, _READ_TIMEOUT_S))
    status = await directory.status(address)
    call = stub.Watch(watch_request(linearizable=True), timeout=timeout_s)
    chunks = []
    try:
        async for event in call:
            if event.snapshot_done:
                break
            chunks.append(event.snapshot_chunk)
    finally:
        call.cancel()
    header = BackupHeader(cluster_id=status.cluster_id, taken_at_ms=now_ms, source=address)
    return Backup(header, status.term, decode_snapshot(chunks))


# --- offline ------------------------------------------------------------------------------------


def salvage_backup(folder: Path, *, now_ms: int) -> Backup:
    """Back up the newest state in the data folder of a stopped voter.

    This is for when the majority is lost. Every entry of the journal counts, also those that are
    not known to be committed, since they may have been acknowledged.

    Raises:
        BackupError: not a voter's folder, in use, or damaged.
    """
    try:
        own = _voters_identity(folder)
        with claimed_data_folder(folder, own.role, own.node_id, own.cluster_id):
            position, image = _newest_state(folder)
    except (DataFolderError, JournalError, SnapshotCorrupt) as error:
        raise BackupError(f"nothing can be salvaged from {folder}: {error}") from error
    header = BackupHeader(cluster_id=own.cluster_id, taken_at_ms=now_ms, source=str(folder))
    return Backup(header, position.last_term, image)


def _voters_identity(folder: Path) -> Identity:
    identity = read_identity(folder)
    if identity is None:
        raise BackupError(f"{folder} is no data folder of a voter: it has no {IDENTITY_FILE}")
    if identity.role != "quorum":
        raise BackupError(f"{folder} is the data folder of a {identity.role}, not a voter's")
    return identity


def _newest_state(folder: Path) -> tuple[SnapshotPosition, Image]:
    journal_path, snapshot_path = folder / JOURNAL_FILE, folder / SNAPSHOT_FILE
    if not journal_path.exists():
        raise JournalError(f"there is no {journal_path.name}")
    journal = LmdbJournal(journal_path)
    try:
        machine = QuorumStateMachine()
        applied = 0
        if snapshot_path.exists():
            applied = read_position(snapshot_path).last_index
            machine.install(applied, machine.decode(read_chunks(snapshot_path)))
        if journal and journal.first_index > applied + 1:
            raise JournalError(
                f"the journal begins at entry {journal.first_index}, the snapshot ends at {applied}"
            )
        machine.apply_run(
            [
                (index, command[1:])
                for command, index, _ in journal[:]
                if index > applied and command[0] == REGULAR
            ]
        )
        return SnapshotPosition(machine.image.offset, journal.getCurrentTerm()), machine.image
    finally:
        journal.close()
